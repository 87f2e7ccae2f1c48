"""The nonzero entries of a sparse X as sweeps read them: by the compiled kernel, or by JAX alone.

Both forms have the same methods; rows are samples, or features where there are more of these:

    allocate(log_rows, log_cols)              Σ E[s] by row and by column, and Σ x log(M/x) of every row
    row_sums(log_rows, log_cols)              the first and the last of these
    column_sums(log_rows, log_cols, weights)  the second, with a weight for every row
    expected_log_ratios(rows, cols, by_row)   Σ x (E[log m] − log x) of every row, or of every column

`row_sums` and `column_sums` take C times as many rows of E[log] as X has: consecutive ones are candidates for one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ...model.compressed import Compressed
from ...model.priors import Gamma
from ...model.types import Array
from .. import native
from .segments import BLOCK, Segments, cut_into_segments, rounded_up

SMALL = 1 << 22  # nonzeros: so few are filled up to a rounded number, for which a program may have been compiled


class Entries(Protocol):
    """The nonzero entries of a sparse X; see the top of this file."""

    def allocate(self, log_rows: Array, log_cols: Array) -> tuple[Array, Array, Array]: ...  # noqa: D102 (as above)
    def row_sums(self, log_rows: Array, log_cols: Array) -> tuple[Array, Array]: ...  # noqa: D102 (as above)
    def column_sums(self, log_rows: Array, log_cols: Array, weights: Array) -> Array: ...  # noqa: D102 (as above)
    def expected_log_ratios(self, rows: Gamma, cols: Gamma, by_row: bool) -> Array: ...  # noqa: D102 (as above)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Entries in compressed rows for the compiled kernel, which reads each of them once.

    indptr: where rows begin, from `native.row_pointers`.
    indices: the column of each entry; entries beyond the last row are not read.
    values: each entry.
    """

    indptr: Array
    indices: Array
    values: Array

    def allocate(self, log_rows: Array, log_cols: Array) -> tuple[Array, Array, Array]:
        """Return Σ E[s] by row and by column, and Σ x log(M/x) of every row."""
        return _allocate(self, log_rows, log_cols, jnp.ones(len(log_rows), log_rows.dtype))

    def row_sums(self, log_rows: Array, log_cols: Array) -> tuple[Array, Array]:
        """Return Σ E[s] by row and Σ x log(M/x) of every row; the kernel skips the columns of rows of weight 0."""
        by_row, _, log_ratios = _allocate(self, log_rows, log_cols, jnp.zeros(len(log_rows), log_rows.dtype))
        return by_row, log_ratios

    def column_sums(self, log_rows: Array, log_cols: Array, weights: Array) -> Array:
        """Return Σ of weight × E[s] by column."""
        return _allocate(self, log_rows, log_cols, weights)[1]

    def expected_log_ratios(self, rows: Gamma, cols: Gamma, by_row: bool) -> Array:
        """Return Σ x (E[log m] − log x) of every row, or of every column, by JAX alone."""
        return self.segments().expected_log_ratios(rows, cols, by_row)

    def segments(self) -> Segments:
        """Return the same entries for JAX alone, each its own segment."""
        size = len(self.values)
        blocks = -(-size // BLOCK)
        last = max(0, len(self.indptr) - 2)
        # Of row pointers of 64 bits in two columns neither half will do; JAX could not index so many entries anyway.
        row = jnp.searchsorted(self.indptr, jnp.arange(size, dtype=self.indptr.dtype), side="right") - 1
        cut = (
            jnp.pad(x, (0, blocks * BLOCK - size)).reshape(blocks, BLOCK)
            for x in (jnp.minimum(row, last), self.indices, self.values)
        )
        row, col, value = cut
        return Segments(row, col[:, :, None], value[:, :, None], num_rows=last + 1)


@jax.custom_jvp
def _allocate(entries: Rows, log_rows: Array, log_cols: Array, weights: Array) -> tuple[Array, Array, Array]:
    sums = native.allocate(entries.indptr, entries.indices, entries.values, log_rows, log_cols, weights)
    return sums.rows, sums.columns, sums.log_ratios


@_allocate.defjvp
def _allocate_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Differentiate the same sums by JAX alone: the kernel has no derivatives."""
    entries, *factors = primals

    def sums(log_rows: Array, log_cols: Array, weights: Array) -> tuple[Array, Array, Array]:
        segments = entries.segments()
        by_row, logs = segments.row_sums(log_rows, log_cols)
        return by_row, segments.column_sums(log_rows, log_cols, weights), logs

    return _allocate(*primals), jax.jvp(sums, tuple(factors), tuple(tangents[1:]))[1]


def read_entries(X: Compressed) -> Entries:
    """Return the entries of X for the compiled kernel where there is one, else for JAX.

    Args:
        X: on the host.
    """
    if not native.is_available():
        return cut_into_segments(X)
    indices, values = X.indices, X.values
    if X.nnz < SMALL:
        indices, values = (np.pad(x, (0, rounded_up(X.nnz) - X.nnz)) for x in (indices, values))
    return Rows(*map(jax.device_put, (native.row_pointers(X.indptr), indices, values)))
