"""Detect, report and prune unused components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..model.data import Data
from ..model.priors import Gamma, Priors, canonical
from ..model.special import exp_digamma
from .bound import bound
from .posterior import Fit, Posterior
from .results import rank_of, require_own_data
from .warning import DeadComponentsWarning, warn

STEP = 1 << 16  # features or samples that are read at once, in double precision
SHOWN = 5  # dead components that a warning names


def in_use(posterior: Posterior, data: Data | None = None) -> NDArray[np.bool_]:
    """Return whether each component explains anything: Σ_ν exp E[log t] Σ_τ exp E[log v] ≥ ½ Σ_ν E[t] Σ_τ E[v].

    q(S) depends on exp E[log ·], so that the left side is about the number of counts in X that it allots to the
    component; the right side is half of what the component is expected to cause. With counts, both products are
    similar. Without, q(t) and q(v) are as wide as priors: for aᵗ < 1 the left side is at most a third. A component is
    also unused if it is expected to cause less than a thousandth of the mean over components, which is the only sign in
    factors without a width (MAP).

    Args:
        posterior: as in `Fit`.
        data: the data that it was fitted to; only needed if a mask hides whole features or samples, whose factors stay
            as wide as priors whatever the component explains: the sums leave them out.

    >>> from gsnmf.model import Gamma
    >>> T, V = Gamma(np.array([[90.0, 0.6]]), np.ones((1, 2))), Gamma(np.array([[50.0], [1.0]]), np.ones((2, 1)))
    >>> in_use(Posterior(T, V, None)).tolist()
    [True, False]
    """
    if rank_of(posterior) and np.shape(posterior.V.mean)[1] == 0:
        raise ValueError("expected a posterior with coefficients of samples; got one of a stream, which keeps none")
    allotted, expected = _counts(posterior, data)
    used: NDArray[np.bool_] = (allotted >= expected / 2) & (expected > 1e-3 * expected.mean())
    return used


def _counts(posterior: Posterior, data: Data | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both products of `in_use`, by component, by NumPy: JAX would compile them for every new shape."""
    size = len(posterior.T[0]), np.shape(posterior.V[0])[1]
    seen: list[Any] = [None, None]
    if data is not None and data.mask is not None:
        if data.matrix.shape != size:
            raise ValueError(f"expected the data that were fitted, features × samples {size}; got {data.matrix.shape}")
        seen = [data.matrix.observed_counts(axis) > 0 for axis in (1, 0)]
    sums = (_sums(posterior.T, 0, seen[0]), _sums(posterior.V, 1, seen[1]))
    allotted, expected = (T * V for T, V in zip(*sums, strict=True))
    return allotted, expected


def _sums(q: Any, axis: int, seen: NDArray[np.bool_] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return Σ exp E[log ·] and Σ E[·] along an axis, where it was observed, some rows or columns at a time."""

    def means(part: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        if isinstance(q, Gamma):
            shape = np.shape(q.a)
            a, b = (np.asarray(np.broadcast_to(parameter, shape)[part], float) for parameter in q)
            return exp_digamma(a) * b, a * b
        return np.exp(np.asarray(q.log_mean[part], float)), np.asarray(q.mean[part], float)

    length, found = np.shape(q[0])[axis], []
    for n in range(0, length, STEP):
        chosen = slice(n, n + STEP) if seen is None else n + np.flatnonzero(seen[n : n + STEP])
        found.append([x.sum(axis=axis) for x in means((slice(None),) * axis + (chosen,))])
    first, second = (np.sum(parts, axis=0) for parts in zip(*found, strict=True))
    return first, second


def warn_of_dead(fits: Sequence[Fit], datas: Sequence[Data], stacklevel: int = 2) -> None:
    """Warn once, by a `DeadComponentsWarning`, of all fits in which components explain nothing.

    Args:
        fits: fits with a bound that is not finite are skipped.
        datas: the data that each was fitted to.
        stacklevel: as in `warnings.warn`, counted from the caller.
    """
    used = [in_use(fit.posterior, data) for fit, data in zip(fits, datas, strict=True) if np.isfinite(fit.elbo[-1])]
    poor = [flags for flags in used if not flags.all()]
    if not poor:
        return
    dead = np.flatnonzero(~poor[0])
    names = ", ".join(map(str, dead[:SHOWN])) + (", …" if len(dead) > SHOWN else "")
    count = f"{len(poor)} of {len(fits)} fits have dead components. " if len(fits) > 1 else ""
    warn(
        f"{count}{len(dead)} of {len(poor[0])} components explain nothing ({names}): leave them out with "
        "gsnmf.inference.prune(fit, data), ask for fewer, or weaken the prior on V (lower the shapes of λ).",
        DeadComponentsWarning,
        stacklevel=stacklevel + 1,
    )


def prune(fit: Fit, data: Data, kept: ArrayLike | None = None) -> Fit:
    """Return the fit without its unused components; its bound is not lower, except by rounding, and mostly higher.

    Component i owns −Σ_ν E[t] Σ_τ E[v] − KL(q(t_i)‖p) − KL(q(v_i)‖p) − KL(q(λ_i)‖p) of the bound, and its part of
    Σ x log M. The latter is about the counts allotted to it: almost none, if it is unused. The former is its cost:
    about ½ Σ_c log(1 + N_c/aˡ_ic) under a `GroupSparse` prior of large scale, because q(v_i) and q(λ_i) cannot depend
    on each other as v and λ do a priori; more under a `Gamma` prior, for T and V. The bound rises by that cost. If it
    fell by more than rounding, unused components would be put back until it does not, those with most counts first.

    Args:
        fit: of `cavi.run`, with its `priors`.
        data: the data that it was fitted to.
        kept: true for components to keep instead of those in use, one for each, as from `Consensus.stable`. The bound
            may then be lower, as counts of the others are not yet allotted to those that stay:
            `cavi.run(data, pruned.priors, start=pruned)` continues the fit.

    Returns a fit to the same data under the priors in its `priors`, whose component axes are shorter; the other
    factors are as they were, `elbo` ends with the bound of the remaining ones, and `message` reports the pruning.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import as_data
    >>> data, priors = as_data([[90.0, 180.0], [30.0, 60.0]]), Priors(Gamma(0.6, 20.0), Gamma(1.0, 0.05))
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # it warns: one component explains all of X
    ...     fit = cavi.run(data, priors, key=jax.random.key(0), rank=2)
    >>> prune(fit, data).message[-46:]
    '1 of 2 components were left out, bound +0.984.'
    """
    if not isinstance(fit, Fit) or fit.priors is None or fit.bound != "augmented":
        kind = f"a Fit of the {fit.bound} bound" if isinstance(fit, Fit) else type(fit).__name__
        raise ValueError(f"expected a Fit of cavi.run, with its priors; got {kind}")
    require_own_data(fit, data)
    used, before = in_use(fit.posterior, data), bound(fit, data)
    if not np.isfinite(before):
        raise ValueError(f"expected a fit with a finite bound; got {before}")
    if kept is not None:
        return _keep(fit, data, check_kept(kept, len(used)), before)
    rounding = 16 * float(np.finfo(jnp.result_type(float)).eps) * abs(before)
    stay, expected = used.copy(), _counts(fit.posterior, data)[1]
    while not stay.all():
        if stay.any():
            pruned = _keep(fit, data, stay, before)
            if pruned.elbo[-1] >= before - rounding:
                return pruned
        stay[np.argmax(np.where(stay, -np.inf, expected))] = True
    return fit


def _keep(fit: Fit, data: Data, kept: NDArray[np.bool_], before: float) -> Fit:
    """Return the fit with these components only, with its bound and a message."""
    if kept.all() or fit.priors is None:
        return fit
    posterior, priors = without(fit.posterior, fit.priors, kept)
    after = bound(posterior, data, priors)
    said = f"{(~kept).sum()} of {len(kept)} components were left out, bound {after - before:+.3g}."
    elbo, message = np.append(fit.elbo[:-1], after), f"{fit.message} {said}"
    return fit._replace(posterior=posterior, priors=priors, elbo=elbo, message=message)


def check_kept(kept: ArrayLike, K: int) -> NDArray[np.bool_]:
    """Return flags of components as booleans; raise unless there is one for each of K, and one is true."""
    flags = np.asarray(kept)
    if flags.dtype != bool or flags.shape != (K,) or not flags.any():
        raise ValueError(f"expected a boolean for each of {K} components, one of them true; got {kept!r}")
    return flags


def without(posterior: Posterior, priors: Priors, kept: NDArray[np.bool_]) -> tuple[Posterior, Priors]:
    """Return factors and priors of some components; hyperparameters without an axis of components stay as they are.

    Args:
        posterior: Gamma factors.
        priors: the priors of the factors, with closed forms.
        kept: true for the components to return.
    """
    K, priors = len(kept), canonical(priors)  # a NumPyro Gamma has leaves other than a and b

    def cut(tree: Any, axis: int) -> Any:
        """Return the tree with the component axis of every leaf cut, if it has one; lists are matrices here."""

        def one(leaf: Any) -> Any:
            shape = np.shape(leaf)
            return np.compress(kept, leaf, axis=axis) if len(shape) >= -axis and shape[axis] == K else leaf

        return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, list))

    labels = posterior.labels
    labels = None if labels is None else labels._replace(V=cut(labels.V, -2))
    factors = Posterior(cut(posterior.T, -1), cut(posterior.V, -2), cut(posterior.lam, -2)).with_labels(labels)
    return factors, Priors(cut(priors.dictionary, -1), cut(priors.coefficients, -2))
