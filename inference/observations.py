"""The data of a run of sweeps: X as sweeps read it, and the strategy of its labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.compressed import is_sparse
from ..model.data import Data
from ..model.groups import Groups, SingleGroups, as_groups
from ..model.indexed import Indexed
from ..model.types import Array
from ..model.unlabelled import labels_of
from .labels import Known, MeanField, Structured
from .labels.spread import spread
from .labels.unlabelled import label_prior
from .observed import observe_matrix
from .observed.candidates import Candidates
from .observed.sparse import SparseCandidates
from .posterior import Posterior
from .sharding import ShardedMatrix


class Observations(NamedTuple):
    """X and labels, made once a run by `observe`.

    X: as sweeps read it.
    labels: the strategy of labels.
    """

    X: Any  # an `Observed`, or `Candidates` for the structured form
    labels: Known


def observe(data: Data, form: str = "structured") -> Observations:
    """Arrange the data for sweeps.

    Args:
        data: of a `Problem`.
        form: of q for unlabelled samples, one of `labels.FORMS`.
    """
    if isinstance(data.X, ShardedMatrix):
        return Observations(*spread(data, data.X.observed, form))
    if is_sparse(data):
        with jax.ensure_compile_time_eval():
            return arrange(data, form)
    observed: Observations = _arranged(data, form)
    return observed


def arrange(data: Data, form: str) -> Observations:
    """Arrange the data of one device for sweeps, a sparse X on the host, and choose a strategy of labels.

    Args:
        data: as in `observe`.
        form: as in `observe`.
    """
    if data.num_unlabelled == 0:
        return Observations(observe_matrix(data), Known(_indexed(data) if is_sparse(data) else data.groups))
    labels = labels_of(data)
    N, (M, C) = data.num_samples, labels.weights.shape
    known, unlabelled = _split(data, N - M, M)
    one = jnp.ones((), data.X.dtype)
    about = label_prior(data), one, data.membership, labels.unlabelled

    def groups_of(rows: Array, membership: Array) -> Any:
        return as_groups(membership, None if data.several is None else data.several[rows])

    if form == "structured":
        kind = SparseCandidates if is_sparse(data) else Candidates
        X: Any = kind(observe_matrix(data, known), observe_matrix(data, unlabelled, C), C)
        candidates = jnp.tile(jnp.eye(C, dtype=data.membership.dtype), (M, 1))
        membership = jnp.concatenate([data.membership[known], candidates])
        rows = jnp.concatenate([known, jnp.repeat(unlabelled, C)])
        return Observations(X, Structured(groups_of(rows, membership), *about))
    rows = jnp.concatenate([known, unlabelled])
    return Observations(observe_matrix(data, rows), MeanField(groups_of(rows, data.membership[rows]), *about))


def _indexed(data: Data) -> Groups:
    """Return membership by index where every sample has one label: rates of v are then gathered, not stored."""
    if data.membership is None or data.several is not None or isinstance(data.membership, Indexed):
        return data.groups
    return SingleGroups(Indexed(np.asarray(data.membership).argmax(axis=1), data.num_groups).on_device())


def _split(data: Data, *sizes: int) -> tuple[Array, Array]:
    """Return the indices of labelled and of unlabelled samples, on the host for a sparse X."""
    if is_sparse(data):
        return np.flatnonzero(data.known), np.flatnonzero(~data.known)
    flags = labels_of(data).unlabelled
    known, unlabelled = (jnp.nonzero(flags == flag, size=n)[0] for flag, n in enumerate(sizes))
    return known, unlabelled


_arranged = jax.jit(arrange, static_argnames="form")


def form_of(posterior: Posterior, data: Data) -> str:
    """Return the form of q that a posterior has for unlabelled samples.

    Args:
        posterior: raises if it has no q(z) although the data have unlabelled samples.
        data: of a `Problem`, or as made by `as_data`.
    """
    if data.num_unlabelled > 0 and posterior.labels is None:
        raise ValueError("expected a posterior of data with unlabelled samples, with q(z); got one without q(z)")
    return "mean_field" if posterior.labels is None or posterior.labels.V is None else "structured"
