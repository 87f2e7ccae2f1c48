"""Learning of hyperparameters (empirical Bayes): the best shape a and scale b for the factors, tied within blocks.

As a function of a block's a and b the bound is, except for a constant, the sum over its entries x of

    a (L − log b) − E/b − log Γ(a),        E = E[x] and L = E[log x] under q,

    scale    b = mean(E) / mean(a)                                               is its maximiser in b,
    shape    ψ(a) = mean(L − log b)                                              in a,
    both     log a − ψ(a) = log mean(E) − mean(L),   b = mean(E)/a               in both.

It is concave in log b, in a, and in a with b at its optimum, as log a − ψ(a) falls: every value between the old one
and the maximiser is at least as good as the old one, so that a step to a limit on a cannot lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..model.priors import Axes, Gamma, Priors, canonical
from ..model.special import inverse_digamma, shape_of_gap
from ..model.types import Array
from .moments import Moments, Transposed

WHAT = ("both", "scale", "shape")
DICTIONARY = ("feature", "component")
COEFFICIENTS = ("component", "group", "sample")


class Learn(NamedTuple):
    """Options for learning hyperparameters, as made by `learn`.

    dictionary, coefficients: the axis along which values may differ, "all" for one value, None for not learned.
    what: one of WHAT for the dictionary, and one for the coefficients.
    least_shape: the lower limit on the dictionary's shape; None for no limit.
    """

    dictionary: str | None
    coefficients: str | None
    what: tuple[str, str]
    least_shape: float | None


def learn(
    dictionary: str | None = None,
    coefficients: str | None = None,
    *,
    what: str | tuple[str, str] = "both",
    least_shape: float | None = None,
) -> Learn:
    """Return options for `run` and `run_many` to learn hyperparameters, which start at the values in the priors.

    Args:
        dictionary: for the prior of T: "feature" or "component", the axis along which values may differ (they are tied
            along the other); "all" for one value; None to keep the values given.
        coefficients: the same for the prior of λ, "component" or "group", or another axis of the family's λ; for a
            `Gamma` on V, "component" or "sample".
        what: "scale", "shape" or "both"; or a pair, for the dictionary and for the coefficients. Values to be learned
            must already be tied in the priors given; others need not be.
        least_shape: a lower limit on the shape of the dictionary, learned and given. The paper's program learns T's
            prior only while its shape is above 1, so that T does not become sparse instead of V.

    >>> learn("component", "all", what=("both", "scale")).what
    ('both', 'scale')
    """
    axes: dict[str, tuple] = {"dictionary": (dictionary, DICTIONARY), "coefficients": (coefficients, COEFFICIENTS)}
    for name, (axis, known) in axes.items():
        if axis is not None and axis not in ("all", *known):
            choices = ", ".join(map(repr, ("all", *known)))
            raise ValueError(f"expected {name} to be None or one of {choices}; got {axis!r}")
    if dictionary is None and coefficients is None:
        raise ValueError("expected dictionary or coefficients to be learned; got neither (learn=None learns nothing)")
    pair = (what, what) if isinstance(what, str) else what
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(w, str) and w in WHAT for w in pair):
        raise ValueError(f"expected what to be one of {', '.join(map(repr, WHAT))}, or a pair of them; got {what!r}")
    if least_shape is not None:
        if dictionary is None or pair[0] == "scale":
            raise ValueError(
                "expected the dictionary's shape to be learned with least_shape; got "
                f"dictionary={dictionary!r}, what={what!r}"
            )
        if not isinstance(least_shape, (int, float, np.number)) or not 0 < least_shape < math.inf:
            raise ValueError(f"expected least_shape to be None or a positive number; got {least_shape!r}")
        least_shape = float(least_shape)
    return Learn(dictionary, coefficients, pair, least_shape)


def tie(priors: Priors, learn: Learn, shapes: dict[str, tuple[int, int]]) -> Priors:
    """Return the priors with learned hyperparameters in the shape of their ties, for a run to begin with.

    Args:
        priors: of a `Problem`; raises if values to be learned are not tied.
        learn: as made by `learn`.
        shapes: of the hyperparameters of "dictionary" and "coefficients" after broadcasting.
    """

    def one(site: str, gamma: Gamma, along: int | None, what: str) -> Gamma:
        full, tied = shapes[site], tuple(n if axis == along else 1 for axis, n in enumerate(shapes[site]))
        if what == "both" and tied == full:
            raise ValueError(
                f"expected blocks of several values, to learn shape and scale of {site} together; got blocks of 1, by "
                f"{getattr(learn, site)!r}: what='scale' or 'shape' learns one of them"
            )
        values = {name: np.broadcast_to(x, full) for name, x in gamma._asdict().items()}
        for name in _learned(what):
            first = values[name][tuple(slice(n) for n in tied)]
            if (values[name] != first).any():
                axis = getattr(learn, site)
                raise ValueError(
                    f"expected {site}.{name} to be tied as it is to be learned, by {axis!r}; got values from "
                    f"{values[name].min():g} to {values[name].max():g}"
                )
            gamma = gamma._replace(**{name: jnp.asarray(first)})
        if site == "dictionary" and learn.least_shape is not None and np.min(gamma.a) < learn.least_shape:
            raise ValueError(f"expected dictionary.a ≥ least_shape={learn.least_shape:g}; got {np.min(gamma.a):g}")
        return gamma

    return _each(priors, learn, one)


def relearn(priors: Priors, learn: Learn, q: Transposed, m: Moments, weights: Array) -> Priors:
    """Return the best priors for these factors, whose moments are m, within their ties: the bound does not fall.

    Args:
        priors: so far.
        learn: what is learned.
        q: the factors.
        m: their moments.
        weights: of the rows of V, 0 for rows that stand for no sample.
    """

    def one(site: str, gamma: Gamma, along: int | None, what: str) -> Gamma:
        if site == "dictionary":
            return best(gamma, q.T.mean.T, m.T.T, along, what, learn.least_shape)
        if q.lam is not None:
            return best(gamma, q.lam.mean, q.lam.log_mean, along, what)
        each = (weights / jnp.mean(weights))[None, :]  # so that means over rows are those over samples
        return best(gamma, q.V.mean.T * each, m.V.T * each, along, what)

    return _each(priors, learn, one)


def learned_priors(given: Priors, learned: Priors | None, learn: Learn | None) -> Priors:
    """Return the priors given, with learned hyperparameters as NumPy arrays."""
    if learn is None or learned is None:
        return given
    found = {"dictionary": learned.dictionary, "coefficients": _gamma_of(learned)}

    def one(site: str, gamma: Gamma, along: int | None, what: str) -> Gamma:
        return gamma._replace(**{name: np.asarray(getattr(found[site], name)) for name in _learned(what)})

    return _each(canonical(given), learn, one)


def best(prior: Gamma, E: Array, L: Array, along: int | None, what: str, least: float | None = None) -> Gamma:
    """Return the Gamma with the best a and b; see the top of this file.

    Args:
        prior: with two axes, and in the shape of the ties where it is learned.
        E: the means of all entries.
        L: the mean logarithms of all entries.
        along: the axis along which values may differ; None for one value.
        what: "scale", "shape" or "both".
        least: a lower limit on the shape; None for no limit.
    """
    mean = partial(jnp.mean, axis=tuple({0, 1} - {along}), keepdims=True)
    a, b = prior
    info = np.finfo(E.dtype)
    E, L = mean(E), mean(L)
    if what == "shape":
        a = inverse_digamma(L - mean(jnp.log(b)))
    elif what == "both":
        a = shape_of_gap(jnp.maximum(jnp.log(E) - L, info.eps))  # positive, except for rounding
    if what != "scale":
        # Above 1/√eps the shape depends on the rounding of L alone; a larger shape that was given may stay.
        a = jnp.clip(a, 0.0 if least is None else least, jnp.maximum(prior.a, info.eps**-0.5))
    return Gamma(a, b if what == "shape" else E / mean(a))


def _learned(what: str) -> tuple[str, ...]:
    """Return the fields of a Gamma that are learned."""
    return {"both": ("a", "b"), "shape": ("a",), "scale": ("b",)}[what]


def _gamma_of(priors: Priors) -> Any:
    """Return the Gamma with the hyperparameters of coefficients: the prior of λ, or that of V if there is no λ."""
    hyperprior = priors.coefficients.hyperprior
    return priors.coefficients if hyperprior is None else hyperprior


def _each(priors: Priors, learn: Learn, one: Callable[[str, Gamma, int | None, str], Gamma]) -> Priors:
    """Return the priors with one(site, Gamma, axis, what) in place of each Gamma that is learned."""
    if learn.dictionary is not None:
        along = _axis(learn.dictionary, DICTIONARY, "the dictionary")
        priors = priors._replace(dictionary=one("dictionary", priors.dictionary, along, learn.what[0]))
    if learn.coefficients is not None:
        family: Any = priors.coefficients
        along = _axis(learn.coefficients, family.axes, "Gamma coefficients" if family.hyperprior is None else "λ")
        gamma = one("coefficients", _gamma_of(priors), along, learn.what[1])
        if family.hyperprior is None:
            return priors._replace(coefficients=gamma)
        field = next((name for name, value in family._asdict().items() if value is family.hyperprior), None)
        if field is None:
            name = type(family).__name__
            raise ValueError(f"expected a family with its hyperprior in a field, to learn it; got {name}")
        priors = priors._replace(coefficients=family._replace(**{field: gamma}))
    return priors


def _axis(name: str, axes: Axes, what: str) -> int | None:
    """Return the index of an axis, as in the priors; None for "all"."""
    if name == "all":
        return None
    if name not in axes:
        *others, last = (repr(axis) for axis in ("all", *axes) if not axis.startswith("all_"))
        choices = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"expected {what} to be learned by {choices}; got {name!r}")
    return axes.index(name)
