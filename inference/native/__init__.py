"""Compiled kernels for sparse X and Gibbs sampling, called by JAX inside its own programs; see `describe`.

A kernel knows rows and columns only: samples are rows where there are more of them than features, else features. The
sparse matrix comes as in scipy.sparse.csr_array: `indptr`, `indices` and `values` (its `data`).

They work under `jit`, in loops, in `shard_map` and under `vmap` (all but `log_moments` one call after another), and on
CPUs only; results do not depend on the number of threads. They have no derivatives. Without a library, they raise a
RuntimeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.types import Array
from .library import describe, is_available, load

__all__ = [
    "Sums",
    "allocate",
    "describe",
    "gamma",
    "is_available",
    "log_moments",
    "row_pointers",
    "thin",
]


class Sums(NamedTuple):
    """Sums of q(S).

    rows: Σ_j E[s_ij·], rows × components; with candidates, for each of them.
    columns: Σ_i w_i E[s_ij·], columns × components.
    log_ratios: Σ_j x log(M/x) of every row.
    """

    rows: Array
    columns: Array
    log_ratios: Array


def allocate(
    indptr: Array, indices: Array, values: Array, log_rows: Array, log_columns: Array, weights: Array | None = None
) -> Sums:
    """Return the sums of q(S) at its optimum, in one pass over the nonzeros: see `observed.dense.allocate`.

    Args:
        indptr: rows + 1, from `row_pointers`; of the indices, none is checked.
        indices: the column of every entry, 32 bits.
        values: the entries, above 0 or 0.
        log_rows: E[log ·], rows × components. If there are C times as many, consecutive ones are candidates for the
            same row of X.
        log_columns: E[log ·], columns × components.
        weights: of every row of `log_rows`, in the sums over rows; None for 1. Where it is 0, `columns` costs nothing.

    >>> if is_available():
    ...     sums = allocate(np.array([0, 2]), np.array([0, 1], np.int32), jnp.array([3.0, 1.0]),
    ...                     jnp.zeros((1, 2)), jnp.zeros((2, 2)))
    ...     print(sums.rows.tolist(), sums.columns.tolist())
    [[2.0, 2.0]] [[1.5, 1.5], [0.5, 0.5]]
    """
    values, log_rows, log_columns = _same_dtype(values, log_rows, log_columns)
    indptr = _checked(indptr, indices, values)
    (number, K), rows = log_rows.shape, indptr.shape[0] - 1
    if log_columns.shape[1] != K or (number != rows and (rows == 0 or number % rows)):
        raise ValueError(
            f"expected {rows} rows, or candidates for each, and as many components in rows and columns; "
            f"got {log_rows.shape} and {log_columns.shape}"
        )
    optional = [] if weights is None else [jnp.broadcast_to(jnp.asarray(weights, values.dtype), (number,))]
    shapes = log_rows.shape, log_columns.shape, (number,)
    return Sums(*_call("allocate", shapes, values.dtype, indptr, indices, values, log_rows, log_columns, *optional))


def thin(key: Array, indptr: Array, indices: Array, values: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
    """Draw S, counts split among the components in proportion to t v, and return its sums over columns and over rows.

    The same key gives the same draws whatever the number of threads, but others than `thinning.thin`.

    Args:
        key: a JAX key.
        indptr: as in `allocate`.
        indices: as in `allocate`.
        values: the counts, whole numbers.
        rows: the factor of the rows, rows × components.
        columns: the factor of the columns, columns × components.

    >>> if is_available():
    ...     S = thin(jax.random.key(0), np.array([0, 2]), np.array([0, 1], np.int32), jnp.array([3.0, 1.0]),
    ...              jnp.ones((1, 2)), jnp.ones((2, 2)))
    ...     print(S[0].sum(), S[1].sum(axis=1))
    4.0 [3. 1.]
    """
    values, rows, columns = _same_dtype(values, rows, columns)
    indptr = _checked(indptr, indices, values)
    if rows.shape != (indptr.shape[0] - 1, columns.shape[1]):
        raise ValueError(
            f"expected {indptr.shape[0] - 1} rows and as many components in rows and columns; "
            f"got {rows.shape} and {columns.shape}"
        )
    shapes, dtype = (rows.shape, columns.shape), values.dtype
    S_rows, S_columns = _call("thin", shapes, dtype, _words(key), indptr, indices, values, rows, columns)
    return S_rows, S_columns


def gamma(key: Array, shape: Array) -> Array:
    """Draw from Gamma(a, 1) for every a; see `gammas.draw_gammas`.

    The same key gives the same draws whatever the number of threads.

    Args:
        key: a JAX key.
        shape: the shapes a > 0, an array of any shape.

    >>> gamma(jax.random.key(0), jnp.array([0.1, 2.0])).shape if is_available() else (2,)
    (2,)
    """
    (shape,) = _same_dtype(shape)
    (drawn,) = _call("gamma", ((shape.size,),), shape.dtype, _words(key), shape.reshape(-1))
    return drawn.reshape(shape.shape)


def log_moments(x: Array) -> tuple[Array, Array]:
    """Return ψ(x), and the sums of x + log Γ(x) − x ψ(x) along the last axis, of positive numbers.

    These are E[log y] and the entropy of log y for y ~ Gamma(x, 1).

    >>> [round(float(value.sum()), 4) for value in log_moments(jnp.ones(2))] if is_available() else [-1.1544, 3.1544]
    [-1.1544, 3.1544]
    """
    (x,) = _same_dtype(x)
    if x.ndim == 0:
        raise ValueError("expected an array with an axis to sum along; got a number")
    if x.size == 0:
        return x, jnp.zeros(x.shape[:-1], x.dtype)
    mean, entropy = _call("log_moments", (x.shape, x.shape[:-1]), x.dtype, x, vmap_method="broadcast_all")
    return mean, entropy


def row_pointers(indptr: np.ndarray) -> np.ndarray:
    """Return the row pointers of a CSR matrix as the kernels take them, whether or not JAX has integers of 64 bits.

    They are 32 bits wide if that is enough, else 64 bits in two columns of 32.

    >>> row_pointers(np.array([0, 2, 5])).dtype, row_pointers(np.array([0, 2**40])).shape
    (dtype('int32'), (2, 2))
    """
    indptr = np.ascontiguousarray(indptr, np.int64)
    return indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr.view(np.int32).reshape(-1, 2)


def _words(key: Array) -> Array:
    """Return a key as whole numbers of 32 bits."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _same_dtype(*arrays: Array) -> tuple[Array, ...]:
    dtypes = {np.dtype(x.dtype) for x in arrays}
    if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"expected arrays of float32 or of float64; got {', '.join(sorted(map(str, dtypes)))}")
    return arrays


def _checked(indptr: Array, indices: Array, values: Array) -> Array:
    """Return the row pointers, or raise if the parts of a sparse matrix do not fit."""
    indptr = row_pointers(indptr) if isinstance(indptr, np.ndarray) and indptr.dtype == np.int64 else indptr
    if indptr.dtype not in (np.int32, np.int64) or indptr.shape[1:] not in ((), (2,)) or indices.dtype != np.int32:
        raise ValueError(
            "expected row pointers of 32 or 64 bits, from row_pointers, and indices of 32 bits; "
            f"got {indptr.dtype}{list(indptr.shape)} and {indices.dtype}"
        )
    if indices.shape != values.shape or values.ndim != 1:
        raise ValueError(f"expected as many indices as values; got {indices.shape} and {values.shape}")
    return indptr


def _call(
    kernel: str, shapes: tuple[tuple[int, ...], ...], dtype: np.dtype, *arrays: Array, vmap_method: str = "sequential"
) -> Sequence[Array]:
    library = load()
    if not library.level:
        raise RuntimeError(f"expected a compiled kernel; got none: {library.reason}")
    name = f"gsnmf_{kernel}_{'f32' if dtype == np.float32 else 'f64'}_{library.level}"
    like = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]  # type: ignore[no-untyped-call] # not typed in JAX
    return jax.ffi.ffi_call(name, like, vmap_method=vmap_method)(*arrays)
