"""Warm start for unlabelled samples: the options, and the posterior from which a fit begins.

Joint updates of T, λ and labels lock in early: beliefs of the first sweeps soon become certain. So a fit begins with
the labelled samples alone; the others are then folded in under every group, and annealing (`momentum.anneal`) lets the
evidence for their labels grow slowly.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from ...model.checks import whole
from ...model.compressed import is_sparse
from ...model.data import Data, take
from ...model.priors import Gamma
from ...model.problem import Problem
from ...model.types import Array
from ...model.unlabelled import labels_of
from .. import processes, sharding
from ..fold_in import fold
from ..posterior import Fit, LabelPosterior, Posterior
from ..starts import METHODS, Start
from . import FORMS
from .unlabelled import label_prior, matched


class Labelling(NamedTuple):
    """Options for learning the labels of unlabelled samples, as made by `labelling`."""

    form: str
    warm_start: str | None
    annealing: int


def labelling(
    form: str = "structured", *, warm_start: str | None = "groups", annealing: int = 20, tempering: int | None = None
) -> Labelling:
    """Return options for learning the labels of unlabelled samples; `run_many` tries several starts.

    Args:
        form: of q for an unlabelled sample. "structured", q(v | z) q(z): a q(v) for every candidate group, at as many
            times the work for unlabelled samples. "mean_field", q(v) q(z): the paper's appendix. One q(v) cannot have
            the sparsity of every group at once, so that it recovers fewer labels.
        warm_start: fit the labelled samples first, alone, initialised from their "groups" or at "random" (as `init`
            of `run`), and begin there. None for no warm start. There is none either if `start` gives V or a posterior,
            or if no sample is labelled.
        annealing: the number of sweeps, before the recorded ones, in which the evidence for labels has a weight that
            grows from 0 towards 1; 0 for no annealing. There is none if `start` is a posterior, whose form is kept
            unless another is asked for.
        tempering: the former name of annealing.

    >>> labelling("mean_field", warm_start=None, annealing=0)  # plain joint updates, as in the appendix
    Labelling(form='mean_field', warm_start=None, annealing=0)
    """
    if form not in FORMS:
        raise ValueError(f"expected form to be one of {', '.join(map(repr, FORMS))}; got {form!r}")
    if warm_start is not None and warm_start not in METHODS:
        methods = ", ".join(map(repr, METHODS))
        raise ValueError(f"expected warm_start to be one of {methods}, or None; got {warm_start!r}")
    if tempering is not None:
        warnings.warn(
            "tempering is now called annealing: cavi.labelling(annealing=...).", DeprecationWarning, stacklevel=2
        )
        annealing = tempering
    return Labelling(form, warm_start, whole("annealing", annealing, 0))


def labelling_for(data: Data, init: str) -> Labelling:
    """Return the options of the estimator, the commands and `choose_rank`: annealing for dense X only.

    While the evidence is weak, unlabelled samples belong to all groups and draw their dictionaries together. Images
    need the annealing nevertheless; counts of words do not, and it makes q(z) much worse there (docs/labels.md).

    Args:
        data: as made by `as_data`, or by `shard`.
        init: the initialisation of the labelled samples.
    """
    own = data.X.part.data if _is_sharded(data) else data
    return labelling(warm_start=init, annealing=0) if is_sparse(own) else labelling(warm_start=init)


def begins_warm(how: Labelling, data: Data, start: Any) -> bool:
    """Return whether a fit begins with the labelled samples alone."""
    left_open = start is None or (isinstance(start, Start) and start.V is None)
    return how.warm_start is not None and bool(data.known.any()) and left_open


def labelled(data: Data) -> Data:
    """Return the labelled samples, each repeated so that their number is about that of all samples.

    So the priors have the same weight as in a fit to all samples.
    """
    known = np.flatnonzero(data.known)
    times = max(1, round(data.num_samples / len(known)))
    return sharding.labelled(data, times) if _is_sharded(data) else _take(data, np.tile(known, times))


def _take(data: Data, samples: np.ndarray) -> Data:
    """Return these samples, taken on the host: JAX would compile a program for each kind of indexing."""
    return take(data if is_sparse(data) else jax.tree.map(np.asarray, data), samples)


def _is_sharded(data: Data) -> bool:
    return isinstance(data.X, sharding.ShardedMatrix)


def joined(problem: Problem, fit: Fit) -> Posterior:
    """Return a posterior of all samples, the unlabelled ones folded in under a fit to the labelled ones.

    Args:
        problem: all samples.
        fit: to the `labelled` ones.
    """
    data = problem.data
    known, others = np.flatnonzero(data.known), np.flatnonzero(~data.known)
    T, V, lam = fit.posterior
    given, bound = _folded(problem, T, lam, others)
    prior = np.asarray(labels_of(data).weights, float)
    with np.errstate(divide="ignore"):
        z = jax.device_put(softmax(np.log(prior) + np.asarray(bound, float), axis=1).astype(problem.dtype))
    new = _mixture(given, z)
    columns = Gamma(*(np.empty((x.shape[0], data.num_samples), problem.dtype) for x in V))
    for into, old, folded_in in zip(columns, V, new, strict=True):
        into[:, known], into[:, others] = np.asarray(old)[:, : len(known)], np.asarray(folded_in)
    return Posterior(T, columns, lam).with_labels(label_posterior(data, z, given))


@jax.jit  # one program in place of twenty
def _mixture(given: Gamma, z: Array) -> Gamma:
    """Return `matched` for q(v | z), groups × components × samples, as components × samples."""
    return matched(Gamma(*(jnp.transpose(x, (2, 0, 1)) for x in given)), z).transpose()


def _folded(problem: Problem, T: Gamma, lam: Gamma | None, others: np.ndarray) -> tuple[Gamma, Array]:
    """Return q(v | z), groups × components × unlabelled samples, and ℒ, unlabelled samples × groups."""
    data, C = problem.data, problem.data.num_groups
    if not _is_sharded(data):
        folded = fold(problem.priors, T, lam, _take(data, others), max_steps=100, tol=1e-5)
        return folded.V, folded.bound
    own = data.X.part.data  # every process folds its own samples in
    some = np.flatnonzero(~own.known)
    rows = Gamma(*np.zeros((2, 0, C, problem.rank), problem.dtype))
    bound = np.zeros((0, C), problem.dtype)
    if len(some):
        folded = fold(problem.priors, T, lam, _take(own, some), max_steps=100, tol=1e-5)
        rows = Gamma(*(np.moveaxis(np.broadcast_to(x, folded.V.a.shape), 2, 0) for x in folded.V))
        bound = np.asarray(folded.bound)
    V, bound = Gamma(*map(processes.concatenated, rows)), processes.concatenated(bound)
    return Gamma(*(jnp.asarray(np.moveaxis(x, 0, 2)) for x in V)), bound


def label_posterior(data: Data, z: Any = None, V: Gamma | None = None) -> LabelPosterior:
    """Return the labels of unlabelled samples, by q(z) or by the prior alone.

    Args:
        data: of a `Problem`, with unlabelled samples.
        z: q(z), unlabelled samples × groups; None for the prior.
        V: q(v | z), groups × components × unlabelled samples.
    """
    labels = labels_of(data)
    z = labels.weights if z is None else z
    full = np.array(data.membership)
    full[~data.known] = np.asarray(z)
    pi = None if labels.dirichlet is None else label_prior(data).dirichlet(z)
    return LabelPosterior(jax.device_put(full), pi, V, labels.unlabelled)
