"""How labels that are unknown are learned: the form of q for such samples, and where a fit begins.

Joint updates of T, λ and labels lock in early: what is believed at first is soon believed for certain. So a fit begins
with the samples whose labels are known, alone; the others are then folded in under every group, and what is believed
about their labels is let grow sure but slowly (`engine.temper`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from ...model.data import Data, take
from ...model.priors import Gamma, Priors
from ...model.validation import whole
from ..fold_in import fold_in
from ..posterior import Fit, LabelPosterior, Posterior, matched
from ..starts import METHODS, Start
from .unlabelled import FORMS, unknown_of


class Labelling(NamedTuple):
    """How labels that are unknown are learned, as made by `labelling`."""

    form: str
    warm_start: str | None
    tempering: int


def labelling(form: str = "structured", *, warm_start: str | None = "groups", tempering: int = 20) -> Labelling:
    """How labels that are unknown are learned; several starts and the best of them are `run_many`'s.

    Args:
        form: of q for a sample without a label. "structured", q(v | z) q(z): a q(v) for every group it may be of, at as
            many times the work and the memory for such samples. "mean_field", q(v) q(z): the paper's appendix. One q(v)
            cannot be sparse as each of the groups wants it, so that labels are recovered less well.
        warm_start: learn from samples whose labels are known first, alone, and begin with that: from their "groups" or
            from a "random" start, as `init` has them. None for no such thing; nor is there one if `start` gives V or a
            posterior, or if no label is known.
        tempering: sweeps in which the evidence for labels counts less than it should, from not at all on, before those
            that count; 0 for none. There are none if `start` is a posterior, whose form is kept, if it has one and no
            other is asked for.

    >>> labelling("mean_field", warm_start=None, tempering=0)  # plain joint updates, as the appendix has them
    Labelling(form='mean_field', warm_start=None, tempering=0)
    """
    if form not in FORMS:
        raise ValueError(f"expected form to be one of {', '.join(map(repr, FORMS))}; got {form!r}")
    if warm_start is not None and warm_start not in METHODS:
        said = ", ".join(map(repr, METHODS))
        raise ValueError(f"expected warm_start to be one of {said}, or None; got {warm_start!r}")
    return Labelling(form, warm_start, whole("tempering", tempering, 0))


def is_warm(how: Labelling, data: Data, start: Any) -> bool:
    """Whether a fit begins with the labelled samples alone."""
    left_open = start is None or (isinstance(start, Start) and start.V is None)
    return how.warm_start is not None and bool(data.known.any()) and left_open


def labelled(data: Data) -> Data:
    """The samples whose labels are known, each as often as makes them about as many as there are in all.

    So the priors weigh no more in a fit to them than in one to all.
    """
    known = np.flatnonzero(data.known)
    return take(data, np.tile(known, max(1, round(data.num_samples / len(known)))))


def joined(data: Data, ready: Data, fit: Fit, priors: Priors) -> Posterior:
    """All samples under what was learned from `labelled` ones, the others folded in.

    Args:
        data: as made by `as_data`; ready: as `prepare` leaves them.
        ready: likewise.
        fit: to the labelled ones.
        priors: those of the fit.
    """
    known, others = np.flatnonzero(data.known), np.flatnonzero(~data.known)
    folded = fold_in(take(data, others), fit, priors, max_steps=100, tol=1e-5)
    T, V, lam = fit.posterior
    weights: Any = ready.labels.weights  # type: ignore[union-attr]  # some are unknown
    prior, dtype = np.asarray(weights, float), ready.X.dtype
    with np.errstate(divide="ignore"):
        z = jnp.asarray(softmax(np.log(prior) + np.asarray(folded.bound, float), axis=1), dtype)
    new = matched(Gamma(*(jnp.transpose(x, (2, 0, 1)) for x in folded.V)), z).transpose()
    both = zip(V, new, strict=True)
    columns = Gamma(*(np.empty((x.shape[0], data.num_samples), dtype) for x in V))
    for into, (old, folded_in) in zip(columns, both, strict=True):
        into[:, known], into[:, others] = np.asarray(old)[:, : len(known)], np.asarray(folded_in)
    return Posterior(T, columns, lam).with_labels(label_posterior(ready, z, folded.V))


def label_posterior(data: Data, z: Any = None, V: Gamma | None = None) -> LabelPosterior:
    """What is said of labels by q(z) of the samples without one, or by the prior alone.

    Args:
        data: as `prepare` leaves them, in which some labels are unknown.
        z: q(z), of these samples × groups; the prior if left out.
        V: q(v | z), groups × components × these samples.
    """
    labels = data.labels
    z = labels.weights if z is None else z  # type: ignore[union-attr]  # there are some
    full = np.array(data.membership)
    full[~data.known] = np.asarray(z)
    pi = unknown_of(data, "structured").dirichlet(z)
    return LabelPosterior(jax.device_put(full), pi, V, labels.unknown)  # type: ignore[union-attr]
