"""The nonzero entries of a sparse X for JAX alone: rows cut into segments of equal length."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from ...model.compressed import Compressed
from ...model.priors import Gamma
from ...model.types import Array
from .dense import exp_scaled, expected_log_of, ratios

BLOCK = 8192  # entries read at a time, whose rows of K numbers stay in the cache
LANES = 8  # numbers, of which rows of components have a multiple: products are a fifth faster
WIDTHS = (4, 8, 16, 32, 64)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Segments:
    """Entries in blocks of segments; each segment is a part of one row, filled up with zeros.

    Nothing of nonzeros × components is formed: blocks are read one after another, and again when differentiated. The
    methods are those of `Entries`.

    row: the row of each segment, blocks × segments.
    col: the column of each entry, blocks × segments × width.
    value: each entry, of the same shape.
    num_rows: the number of rows.
    """

    row: Array
    col: Array
    value: Array
    num_rows: int = field(metadata={"static": True})

    def allocate(self, log_rows: Array, log_cols: Array, weights: Array | None = None) -> tuple[Array, Array, Array]:
        """Return Σ E[s] by row and by column, and Σ x log(M/x) of every row; see `dense.allocate`.

        Args:
            log_rows: E[log] of the rows' factor, rows × components.
            log_cols: E[log] of the columns' factor, columns × components.
            weights: of every row in the sums by column; None for 1.
        """
        K = log_rows.shape[1]
        (g_rows, shift_rows), (g_cols, shift_cols) = (exp_scaled(x, axis=1) for x in (log_rows, log_cols))
        g_rows, g_cols = (jnp.pad(g, ((0, 0), (0, -K % LANES))) for g in (g_rows, g_cols))

        def add(total: tuple[Array, Array, Array], block: tuple[Array, Array, Array]) -> tuple[tuple, None]:
            row, col, x = block
            g_row, g_col = _at(g_rows, row), _at(g_cols, col)
            xi, x_log_xi = ratios(x, _dot(g_row, g_col))
            xi = jnp.where(x > 0, xi, 0)
            by_row = jnp.einsum("sw,swk->sk", xi, g_col)
            logs = jnp.sum(x * (_at(shift_cols[:, 0], col) + _at(shift_rows, row)) - x_log_xi, axis=1)
            if weights is not None:
                g_row = g_row * _at(weights, row)[:, None]
            by_col = xi[:, :, None] * g_row[:, None, :]
            return (_add(total[0], row, by_row), _add(total[1], col, by_col), _add(total[2], row, logs)), None

        zero = jnp.zeros_like(g_rows), jnp.zeros_like(g_cols), jnp.zeros(len(g_rows), g_rows.dtype)
        (by_row, by_col, logs), _ = jax.lax.scan(jax.checkpoint(add), zero, (self.row, self.col, self.value))
        return (g_rows * by_row)[:, :K], (g_cols * by_col)[:, :K], logs

    def row_sums(self, log_rows: Array, log_cols: Array) -> tuple[Array, Array]:
        """Return Σ E[s] by row, and Σ x log(M/x) of every row, of candidates one after another."""
        by_row, logs = jax.lax.map(lambda rows: self.allocate(rows, log_cols)[::2], self._candidates(log_rows))
        return jnp.swapaxes(by_row, 0, 1).reshape(log_rows.shape), logs.T.reshape(-1)

    def column_sums(self, log_rows: Array, log_cols: Array, weights: Array) -> Array:
        """Return Σ of weight × E[s] by column, of candidates one after another."""

        def add(total: Array, candidate: tuple[Array, Array]) -> tuple[Array, None]:
            rows, weight = candidate
            return total + self.allocate(rows, log_cols, weight)[1], None

        pairs = self._candidates(log_rows), self._candidates(weights)
        return jax.lax.scan(add, jnp.zeros_like(log_cols), pairs)[0]

    def _candidates(self, rows: Array) -> Array:
        """Return candidates × rows (× components) from rows of X with consecutive candidates."""
        copies = rows.shape[0] // self.num_rows if self.num_rows else 1
        return jnp.swapaxes(rows.reshape(self.num_rows, copies, *rows.shape[1:]), 0, 1)

    def expected_log_ratios(self, rows: Gamma, cols: Gamma, by_row: bool) -> Array:
        """Return Σ x (E[log m] − log x) of every row, or of every column; see `dense.expected_log`.

        Args:
            rows: the factor of rows, rows × components.
            cols: the factor of columns, columns × components.
            by_row: of every row, else of every column.
        """
        row_moments, col_moments = (
            (q.mean, q.mean**2, q.mean**2 / q.a) for q in (rows.broadcast(*rows.a.shape), cols.broadcast(*cols.a.shape))
        )

        def add(total: Array, block: tuple[Array, Array, Array]) -> tuple[Array, None]:
            row, col, x = block
            E, square, variance = (_at(q, row) for q in row_moments)
            E_, square_, variance_ = (_at(q, col) for q in col_moments)
            both = _dot(square + variance, variance_) + _dot(variance, square_)
            terms = x * (expected_log_of(_dot(E, E_), both) - jnp.log(jnp.where(x > 0, x, 1)))
            return _add(total, row, terms.sum(axis=1)) if by_row else _add(total, col, terms), None

        zero = jnp.zeros(len((rows if by_row else cols).a), self.value.dtype)
        return jax.lax.scan(jax.checkpoint(add), zero, (self.row, self.col, self.value))[0]


def _at(rows: Array, index: Array) -> Array:
    return rows.at[index].get(mode="promise_in_bounds")


def _add(total: Array, index: Array, values: Array) -> Array:
    return total.at[index].add(values, mode="promise_in_bounds")


def _dot(rows: Array, cols: Array) -> Array:
    return jnp.einsum("sk,swk->sw", rows, cols)


def cut_into_segments(X: Compressed) -> Segments:
    """Return the entries of X in segments, of the width that needs the fewest numbers.

    Args:
        X: on the host.
    """
    lengths = np.diff(X.indptr)
    width = min(WIDTHS, key=lambda w: int((-(-lengths // w)).sum()) * (w + 2))
    number = -(-lengths // width)
    S, per_block = int(number.sum()), BLOCK // width
    blocks = rounded_up(-(-S // per_block))
    per_block = rounded_up(S) if blocks == 1 else per_block
    row = np.zeros(blocks * per_block, np.int32)
    col = np.zeros((blocks * per_block, width), np.int32)
    value = np.zeros(col.shape, X.dtype)
    row[:S] = np.repeat(np.arange(len(lengths), dtype=np.int32), number)
    skipped = width * (np.cumsum(number) - number) - X.indptr[:-1]  # zeros before each row
    place = np.arange(X.nnz) + np.repeat(skipped, lengths)
    col.ravel()[place], value.ravel()[place] = X.indices, X.values
    shape = blocks, per_block
    arrays = row.reshape(shape), col.reshape(*shape, width), value.reshape(*shape, width)
    first, second, third = map(jax.device_put, arrays)
    return Segments(first, second, third, len(lengths))


def rounded_up(number: int) -> int:
    """Return the number with all but its three leading bits rounded up: few shapes, so that few programs are compiled.

    >>> rounded_up(5), rounded_up(100)
    (5, 112)
    """
    unit = 1 << max(0, number.bit_length() - 3)
    return -(-number // unit) * unit
