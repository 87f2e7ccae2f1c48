"""A sparse X: only its nonzero entries are read, and the rest is in sums of T and V.

ξ, Σ_T, Σ_V and Σ x log M need M = g_T g_V where x > 0 alone. An entry that is not stored is an observed 0; hidden
entries are a second set of places, which sums over all entries leave out: Σ_τ w E[v] = Σ_τ E[v] − Σ_{τ hidden} E[v].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, xlogy

from ...model.compressed import Compressed, Places
from ...model.priors import Gamma
from ...model.types import Array
from ..moments import by_component
from .candidates import Candidates
from .entries import Entries, Rows, read_entries
from .segments import BLOCK


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse:
    """A sparse X of which everything was observed; the methods are those of `Observed`.

    entries: the nonzero entries, by row.
    base: as in `Observed`.
    num_samples: the number of samples.
    by_sample: true if rows are samples, false if they are features.
    """

    entries: Entries
    base: Array
    num_samples: int = field(metadata={"static": True})
    by_sample: bool = field(metadata={"static": True})

    @property
    def in_place(self) -> bool:
        """As in `Observed`."""
        return True

    @property
    def is_compiled(self) -> bool:
        """As in `Observed`."""
        return isinstance(self.entries, Rows)

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, Σ_V and Σ x log(M/x) from E[log T] and E[log V]."""
        if self.by_sample:
            by_sample, by_feature, log_ratios = self.entries.allocate(V, T.T)
        else:
            by_feature, by_sample, log_ratios = self.entries.allocate(T.T, V)
        return by_feature.T, by_sample, jnp.sum(log_ratios)

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ E[v_iτ], components × 1."""
        return total_of_V(V)[:, None]

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν E[t_νi], 1 × components."""
        return T.total(axis=1)[None, :]

    def expected_log_ratios(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ν x (E[log m] − log x) of every sample; see `dense.expected_log`."""
        across = T.broadcast(*T.a.shape).transpose()
        rows, cols = (V, across) if self.by_sample else (across, V)
        return self.entries.expected_log_ratios(rows, cols, self.by_sample)

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return (Σ_ν E_T)(Σ_τ E_V) of every component."""
        return T.total(axis=1) * total_of_V(V)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaskedSparse(Sparse):
    """A sparse X with hidden places.

    feature, sample: the indices of hidden places in blocks, filled up with indices beyond the last.
    seen_of_feature, seen_of_sample: the numbers of observed entries of each feature and sample.
    """

    feature: Array
    sample: Array
    seen_of_feature: Array
    seen_of_sample: Array

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ w_ντ E[v_iτ], components × features; above 0, so that it has a logarithm."""
        hidden = _gather(V.mean, self.sample, self.feature, len(self.seen_of_feature))
        left = jnp.where(self.seen_of_feature[:, None] > 0, total_of_V(V)[None, :] - hidden, 0)
        return jnp.maximum(left.T, np.finfo(left.dtype).tiny)

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν w_ντ E[t_νi], samples × components."""
        hidden = _gather(T.mean.T, self.feature, self.sample, self.num_samples)
        left = jnp.where(self.seen_of_sample[:, None] > 0, T.total(axis=1)[None, :] - hidden, 0)
        return jnp.maximum(left, 0)

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ντ w_ντ E[t_νi v_iτ] of every component."""
        return (T.mean * self.exposure_of_T(V)).sum(axis=1)


def total_of_V(V: Gamma) -> Array:
    """Return Σ_τ E[v_iτ] of every component; as `Gamma.total`, but XLA stores E[V] alone, not both its parameters."""
    return V.total(axis=0) if len(V.b) == 1 else by_component(V.mean, axis=0)


def _gather(rows: Array, read: Array, write: Array, length: int) -> Array:
    """Return, for each index in `write`, the sum of the rows at its partners in `read`."""

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        some = rows.at[block[0]].get(mode="fill", fill_value=0)
        return total.at[block[1]].add(some, mode="drop"), None

    zero = jnp.zeros((length, rows.shape[1]), rows.dtype)
    return jax.lax.scan(jax.checkpoint(add), zero, (read, write))[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseCandidates(Candidates):
    """A sparse X with a row of V for every candidate group of an unlabelled sample; rows of X are samples there."""

    def allocate_weighted(
        self,
        T: Array,
        V: Array,
        weigh: Callable[[Array, Array, Array, Array], tuple[Array, Array]],
        read: tuple[Array, Array],
    ) -> tuple[Array, Array, Array, Array]:
        """Return sums of q(S) and weights, as `Candidates` does.

        Weights depend on the log ratios of all groups: entries are read for these first, then for sums by feature.
        """
        M, C = self.unlabelled.num_samples, self.num_groups
        known, each = jnp.split(V, [len(V) - M * C])
        T_known, V_known, log_ratio = self.known.allocate(T, known)
        entries: Entries = self.unlabelled.entries
        across = T.T
        V_each, log_ratios = entries.row_sums(each, across)
        weights, terms = weigh(log_ratios.reshape(M, C), *read, jnp.ones(M, V.dtype))
        by_feature = entries.column_sums(each, across, weights.reshape(-1))
        return T_known + by_feature.T, jnp.concatenate([V_known, V_each]), log_ratio + terms, weights


def read_sparse(X: Compressed, hidden: Places | None, by_sample: bool | None = None, room: int = 0) -> Sparse:
    """Return a sparse X as sweeps read it.

    Args:
        X: on the host.
        hidden: hidden places; None when everything was observed.
        by_sample: whether rows are samples; None for the rows that X has.
        room: for so many hidden places at least, so that several X have arrays of one shape.
    """
    F, N = X.shape
    X = X if by_sample is None else X.rows_along(by_sample)
    entries, base = read_entries(X), jnp.asarray(base_by_row(X).sum(), X.dtype)
    if hidden is None:
        return Sparse(entries, base, num_samples=N, by_sample=X.by_sample)
    number = max(len(hidden), room)
    blocks = max(1, -(-number // BLOCK))
    size = blocks * BLOCK if blocks > 1 else number
    pairs = (
        np.append(index, np.full(size - len(hidden), length, np.int32)).reshape(blocks, -1)
        for index, length in ((hidden.feature, F), (hidden.sample, N))
    )
    seen = (length - hidden.counts(axis) for length, axis in ((N, 1), (F, 0)))
    feature, sample, seen_of_feature, seen_of_sample = map(jax.device_put, (*pairs, *seen))
    return MaskedSparse(entries, base, N, X.by_sample, feature, sample, seen_of_feature, seen_of_sample)


def base_by_row(X: Compressed) -> np.ndarray:
    """Return Σ [x log x − log Γ(x + 1)] of every row in double precision, some rows at a time.

    Args:
        X: on the host.
    """
    rows = len(X.indptr) - 1
    sums = np.zeros(rows)
    for first in range(0, rows, 1 << 16):
        begins = X.indptr[first : first + (1 << 16) + 1]
        x = np.asarray(X.values[begins[0] : begins[-1]], float)
        row = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
        sums[first : first + len(begins) - 1] = np.bincount(row, xlogy(x, x) - gammaln(x + 1), len(begins) - 1)
    return sums
