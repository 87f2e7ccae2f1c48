"""Sparse X: its nonzero entries in compressed rows, and sets of hidden places."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import numpy as np
import scipy.sparse

from .types import Array


@jax.tree_util.register_pytree_node_class
class Compressed:
    """The nonzero entries of a sparse X, row by row, each of them once; 8 bytes a nonzero in single precision.

    Rows lie along the longer axis of X, so that entries of a row address the smaller factor. An entry that is not
    stored is an observed 0.

    indptr: where rows begin, int64, one more than rows.
    indices: the column of each nonzero, int32, increasing in a row.
    values: each nonzero.
    shape: numbers of features and of samples.
    by_sample: true if rows are samples, false if they are features.
    """

    ndim = 2

    def __init__(self, indptr: Array, indices: Array, values: Array, shape: tuple[int, int], by_sample: bool) -> None:
        self.indptr, self.indices, self.values = indptr, indices, values
        self.shape, self.by_sample = shape, by_sample

    def __repr__(self) -> str:
        F, N = self.shape
        return f"Compressed({F} features × {N} samples, {self.nnz} nonzero entries)"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: nothing turns a sparse X into a dense one without being asked."""
        refuse("this", self.shape, self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of values."""
        return self.values.dtype  # type: ignore[no-any-return]  # of an array

    @property
    def size(self) -> int:
        """The number of entries of X, zeros included."""
        return self.shape[0] * self.shape[1]

    @property
    def nnz(self) -> int:
        """The number of nonzero entries."""
        return int(self.values.shape[0])

    def astype(self, dtype: Any) -> Compressed:
        """Return the same matrix with values of this type, on the host."""
        return self.with_values(np.asarray(self.values).astype(dtype, copy=False))

    def with_values(self, values: Array) -> Compressed:
        """Return other values at the same places."""
        return Compressed(self.indptr, self.indices, values, self.shape, self.by_sample)

    def to_scipy(self) -> Any:
        """Return the matrix, features × samples, in SciPy's form that shares these arrays (CSC if rows are samples)."""
        form = scipy.sparse.csc_array if self.by_sample else scipy.sparse.csr_array
        held = form((np.asarray(self.values), np.asarray(self.indices), np.asarray(self.indptr)), shape=self.shape)
        held.has_canonical_format = True
        return held

    def rows_along(self, by_sample: bool) -> Compressed:
        """Return the same matrix with samples as rows, or with features."""
        return self if self.by_sample == by_sample else _compress(self.to_scipy(), by_sample)

    def take(self, samples: Array) -> Compressed:
        """Return these samples, as often as their indices occur."""
        return compress(self.to_scipy()[:, np.asarray(samples)])

    def at(self, feature: Array, sample: Array) -> np.ndarray:
        """Return the entries at these places."""
        if len(feature) == 0:
            return np.zeros(0, self.dtype)
        found = self.to_scipy()[np.asarray(feature), np.asarray(sample)]
        return np.asarray(found.toarray() if scipy.sparse.issparse(found) else found).ravel()

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], tuple[tuple[int, int], bool]]:
        """Arrays are leaves; shape and layout are static."""
        return (self.indptr, self.indices, self.values), (self.shape, self.by_sample)

    @classmethod
    def tree_unflatten(cls, static: tuple[tuple[int, int], bool], leaves: tuple[Array, Array, Array]) -> Compressed:
        """Rebuild the matrix."""
        return cls(*leaves, *static)


def is_consistent(X: Any) -> bool:
    """Return whether the indices of a SciPy matrix are inside its shape, and its rows follow each other.

    Compiled code, SciPy's included, trusts them and would read elsewhere in memory.

    >>> is_consistent(scipy.sparse.csr_array((np.ones(1), np.array([5]), np.array([0, 1])), shape=(1, 3)))
    False
    """
    if X.format == "coo":
        return all(_are_below(index, n) for index, n in zip((X.row, X.col), X.shape, strict=True))
    X = X.tocsr() if X.format == "lil" else X
    if X.format not in ("csr", "csc", "bsr"):
        return True
    rows, columns = X.shape[::-1] if X.format == "csc" else X.shape
    if X.format == "bsr":
        rows, columns = rows // X.blocksize[0], columns // X.blocksize[1]
    begins = np.asarray(X.indptr)
    if begins.dtype.kind not in "iu" or len(begins) != rows + 1 or begins[0] != 0 or (begins[1:] < begins[:-1]).any():
        return False
    return bool(begins[-1] <= len(X.indices) == len(X.data)) and _are_below(X.indices[: begins[-1]], columns)


def _are_below(index: Array, n: int) -> bool:
    return len(index) == 0 or bool(index.dtype.kind in "iu" and index.min() >= 0 and index.max() < n)


def require_consistent(X: Any, name: str = "X") -> None:
    """Raise unless the indices and row ends of a SciPy matrix belong together.

    Args:
        X: the matrix.
        name: of it, for the message.
    """
    if not is_consistent(X):
        raise ValueError(
            f"expected {name} with indices inside its shape, {X.shape[0]} × {X.shape[1]}, and row ends in order; got a "
            f"malformed {type(X).__name__}"
        )


def compress(X: Any, by_sample: bool | None = None) -> Compressed:
    """Return a SciPy matrix in compressed rows: duplicates summed, explicit zeros removed, the given one untouched.

    Args:
        X: features × samples, in any of SciPy's sparse formats.
        by_sample: rows are samples, or features; by default the longer axis.

    >>> compress(scipy.sparse.coo_array([[0, 2, 0], [0, 0, 3]])).indices.tolist()
    [0, 1]
    """
    F, N = X.shape
    return _compress(X, N >= F if by_sample is None else by_sample)


def _compress(X: Any, by_sample: bool) -> Compressed:
    rows = scipy.sparse.csr_array(X.T if by_sample else X)
    if not rows.has_canonical_format or (rows.data == 0).any():
        rows = rows.copy()  # else it may share the user's arrays, which stay as they are
        rows.sum_duplicates()
        rows.eliminate_zeros()
    indptr, indices = rows.indptr.astype(np.int64, copy=False), rows.indices.astype(np.int32, copy=False)
    F, N = X.shape
    return Compressed(indptr, indices, rows.data, (int(F), int(N)), by_sample)


@jax.tree_util.register_pytree_node_class
class Places:
    """The hidden places of a sparse X, which takes the place of a mask: the opposite of an index of observed entries.

    feature, sample: the indices of each hidden place, int32, each place once.
    shape: numbers of features and of samples.
    """

    ndim = 2

    def __init__(self, feature: Array, sample: Array, shape: tuple[int, int]) -> None:
        self.feature, self.sample, self.shape = feature, sample, shape

    def __repr__(self) -> str:
        return f"Places({len(self)} hidden of {self.shape[0]} × {self.shape[1]})"

    def __len__(self) -> int:
        return int(self.feature.shape[0])

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: nothing turns hidden places into a dense mask without being asked."""
        refuse("this", self.shape, np.dtype(bool))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the mask that these places stand for."""
        return np.dtype(bool)

    def to_scipy(self) -> Any:
        """Return a sparse matrix, features × samples, with 1 at hidden places."""
        pairs = np.asarray(self.feature), np.asarray(self.sample)
        return scipy.sparse.csr_array((np.ones(len(self)), pairs), shape=self.shape)

    def take(self, samples: Array) -> Places:
        """Return the hidden places of these samples, as often as their indices occur."""
        return places(self.to_scipy()[:, np.asarray(samples)])

    def counts(self, axis: int) -> np.ndarray:
        """Return the numbers of hidden places, by sample for axis 0 and by feature for axis 1."""
        index = self.sample if axis == 0 else self.feature
        return np.bincount(np.asarray(index), minlength=self.shape[1 - axis])

    def tree_flatten(self) -> tuple[tuple[Array, Array], tuple[int, int]]:
        """Indices are leaves; the shape is static."""
        return (self.feature, self.sample), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], leaves: tuple[Array, Array]) -> Places:
        """Rebuild the places."""
        return cls(*leaves, shape)


def places(hidden: Any) -> Places:
    """Return the places at which a SciPy matrix, features × samples, is not 0; in the order of features."""
    feature, sample = hidden.nonzero()
    order = np.lexsort((sample, feature))
    F, N = hidden.shape
    return Places(feature[order].astype(np.int32), sample[order].astype(np.int32), (int(F), int(N)))


def is_sparse(data: Any) -> bool:
    """Return whether these `Data` have a sparse X."""
    return isinstance(data.X, Compressed)


def require_dense(data: Any, what: str) -> None:
    """Raise for a sparse X, with the size that it would have as a dense array.

    Args:
        data: as made by `as_data`, or of a `Problem`.
        what: that needs a dense X, for the message.
    """
    if is_sparse(data):
        refuse(what, data.X.shape, data.X.dtype)


def refuse(what: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> NoReturn:
    """Raise, with the size of the dense array that `what` would need."""
    size = shape[0] * shape[1] * dtype.itemsize
    unit = next((unit for unit in ("GB", "MB", "kB") if size >= {"GB": 1e9, "MB": 1e6, "kB": 1e3}[unit]), "bytes")
    number = size / {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1}[unit]
    raise ValueError(
        f"expected a dense array, as {what} reads every entry; got a sparse one, {shape[0]} × {shape[1]}: "
        f"as_data(X.toarray(), ...) would make it dense in {number:,.3g} {unit}"
    )
