"""HDF5 and zarr: AnnData's .h5ad, 10x's .h5 and single datasets, samples × features, read in part or as a whole.

Only h5py is needed (for .zarr, zarr); anndata is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .arrays import read_consistent
from .containers import in_a_sentence, open_group, opened
from .frames import find_part, names_of, read_column, text_of
from .matrix import NamedMatrix, PathLike
from .tenx import describe_genes, find_genes

BLOCK = 64  # consecutive samples read at once from a file
SUFFIXES = (".h5ad", ".h5", ".hdf5", ".zarr")


class FileRows:
    """Samples that are rows of a file, dense or in compressed rows, as columns; in 10x's layout, genes only.

    shape: numbers of features and of samples.
    dtype: the type of the entries.
    block: consecutive samples that should be read together.
    kept: the rows of features that are genes, in 10x's layout with others; None for all.
    names: of features in 10x's layout; None in others.

    Args:
        stored: a dataset samples × features; or a group with data, indices and indptr, as AnnData and 10x write them.
        path: of the file, for errors.
    """

    block = BLOCK

    def __init__(self, stored: Any, path: PathLike = "") -> None:
        self.stored, self.path = stored, path
        self.indptr: NDArray[np.int64] | None = None
        self.kept: NDArray[np.intp] | None = None
        self.names: list[str] | None = None
        if hasattr(stored, "keys"):
            for name in ("indptr", "indices"):
                if stored[name].dtype.kind not in "iu":
                    raise ValueError(f"expected whole numbers in {name} of compressed rows; got {stored[name].dtype}")
            self.indptr = np.asarray(stored["indptr"][:], np.int64)
            F, N = shape_of(stored)
            self.dtype = stored["data"].dtype
            _check_compressed(stored, self.indptr, N)
            if is_tenx(stored):
                self.kept, self.names = find_genes(*_features(stored))
        else:
            N, F = stored.shape
            self.dtype = stored.dtype
        self.shape = int(F if self.kept is None else len(self.kept)), int(N)
        self._stored_features = int(F)

    def __getitem__(self, key: tuple[Any, NDArray[np.int64]]) -> Any:
        """Return columns, `X[:, rows]` for increasing rows: an array, or a sparse matrix."""
        every, rows = key
        if not (isinstance(every, slice) and every == slice(None)):
            raise IndexError(f"expected X[:, rows]; got X[{every!r}, …]")
        with in_a_sentence(Path(self.path)):
            return self._read(np.asarray(rows))

    def _read(self, rows: NDArray[np.int64]) -> Any:
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
        if self.indptr is None:
            parts = [self.stored[int(run[0]) : int(run[-1]) + 1] for run in runs]
            return np.concatenate(parts).T if parts else np.zeros((self.shape[0], 0), self.dtype)
        spans = [slice(int(self.indptr[run[0]]), int(self.indptr[run[-1] + 1])) for run in runs]
        values, indices = (
            np.concatenate([self.stored[name][span] for span in spans]) if spans else np.zeros(0, kind)
            for name, kind in (("data", self.dtype), ("indices", np.int32))
        )
        lengths = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        found = scipy.sparse.csc_array((values, indices, indptr), shape=(self._stored_features, len(rows)))
        return found if self.kept is None else found[self.kept]


def open_hdf5(path: Path, key: str | None = None) -> NamedMatrix:
    """Open a matrix, samples × features, without loading it: its X is a `FileRows`.

    Args:
        path: as in `read_hdf5`.
        key: as in `read_hdf5`.
    """
    group = open_group(path)
    with in_a_sentence(path):
        rows = FileRows(find_matrix(group, key, path), path)
        return _named(rows, rows, group, path, key)


def read_hdf5(path: Path, *, key: str | None = None) -> NamedMatrix:
    """Read a matrix in AnnData's layout, in 10x's, or the only dataset, all samples × features, and turn it.

    Args:
        path: .h5ad, .h5, .hdf5, or a folder .zarr.
        key: the place of the matrix, such as "layers/counts"; "X" by default, or the only matrix.
    """
    with opened(path) as group:
        stored = find_matrix(group, key, path, columns=True)
        if kind_of(stored) == "csc_matrix":
            F, N = shape_of(stored)
            parts = tuple(stored[name][:] for name in ("data", "indices", "indptr"))
            X: Any = read_consistent(lambda: scipy.sparse.csc_array(parts, shape=(N, F)), path).T
            return _named(X, None, group, path, key)
        rows = FileRows(stored)
        X = read_consistent(lambda: rows[:, np.arange(rows.shape[1])], path)
        return _named(X, rows, group, path, key)


def _named(X: Any, rows: FileRows | None, group: Any, path: Path, key: str | None) -> NamedMatrix:
    """Return a matrix with the names that its file has, in AnnData's layout or in 10x's."""
    if rows is not None and rows.names is not None:
        samples = [str(name) for name in text_of(rows.stored["barcodes"][:]).tolist()]
        return NamedMatrix(X, rows.names, samples, describe_genes(rows._stored_features - rows.shape[0]))
    var = _var_of(key)
    features, samples_or_none = (names_of(group, axis, n) for axis, n in zip((var, "obs"), X.shape, strict=True))
    found = [f"of features from {var}"] if features is not None else []
    found += ["of samples from obs"] if samples_or_none is not None else []
    how = f"names {', '.join(found)}" if found else "no names"
    return NamedMatrix(
        X, features, samples_or_none, f"samples in rows; {how}", lambda column: read_column(path, column)
    )


def _var_of(key: str | None) -> str:
    """Return the frame that names the features of a matrix: `raw` has genes of its own, in older files as raw.var."""
    place = (key or "").strip("/")
    return "raw/var" if place.startswith("raw/") else "raw.var" if place == "raw.X" else "var"


def find_matrix(group: Any, key: str | None, path: Path, *, columns: bool = False) -> Any:
    """Return the matrix in a file: a dataset with two axes, or a group in compressed rows.

    Args:
        group: the file, from `open_group`.
        key: as in `read_hdf5`.
        path: of the file, for errors.
        columns: whether compressed columns are accepted as well: they can be read as a whole only.
    """
    if key is None and hasattr(group, "keys"):
        names = list(group.keys())
        key = "X" if "X" in names else "matrix" if "matrix" in names else names[0] if len(names) == 1 else None
        if key is None:
            raise ValueError(f"expected one matrix in {path}, or the one called X; got {', '.join(names) or 'none'}")
    try:
        found = group if key is None else group[key]
    except KeyError:
        folder = str(key).rpartition("/")[0]
        folder = folder if folder and folder in group else ""
        there = [f"{folder}/{name}" if folder else name for name in (group[folder] if folder else group)]
        raise ValueError(f"expected {key!r} in {path}; got {', '.join(there)}") from None
    if hasattr(found, "keys"):
        kind = kind_of(found)
        if kind not in ("csr_matrix", *(("csc_matrix",) if columns else ())):
            raise ValueError(f"expected a dense matrix or compressed rows (csr_matrix) in {path}; got {kind}")
        if not {"data", "indices", "indptr"} <= set(found.keys()):
            raise ValueError(f"expected data, indices and indptr in {key!r} of {path}; got {', '.join(found.keys())}")
        found_kind = found["data"].dtype.kind
    else:
        found_kind = found.dtype.kind
    if found_kind not in "biuf" or (not hasattr(found, "keys") and len(found.shape) != 2):
        what = found if not hasattr(found, "keys") else found["data"]
        raise ValueError(f"expected a matrix of real numbers in {path}; got {what.dtype} of shape {what.shape}")
    return found


def matrices_in(path: Path) -> list[str]:
    """Return the places of all matrices of an AnnData's counts or of values made from them: X, layers and raw.

    Args:
        path: .h5ad or .zarr.
    """
    with opened(path) as group:
        layers = find_part(group, "layers")
        places = [f"layers/{name}" for name in layers] if layers is not None else []
        return [place for place in ("X", *places, "raw/X", "raw.X") if find_part(group, place) is not None]


def kind_of(stored: Any) -> str:
    """Return csr_matrix, csc_matrix or another kind of group in AnnData's words, array for a dataset."""
    if not hasattr(stored, "keys"):
        return "array"
    old = stored.attrs.get("h5sparse_format")  # before anndata 0.7: csr or csc
    guess = f"{old}_matrix" if old else "csr_matrix" if "indptr" in stored else "group"
    return str(stored.attrs.get("encoding-type", guess))


def is_tenx(stored: Any) -> bool:
    """Return whether a group has 10x's layout: barcodes are samples."""
    return hasattr(stored, "keys") and "barcodes" in stored and "shape" in stored


def shape_of(stored: Any) -> tuple[int, int]:
    """Return features and samples of a dataset, or of a group in compressed rows or columns."""
    if not hasattr(stored, "keys"):
        N, F = (int(n) for n in stored.shape)
    elif is_tenx(stored):
        F, N = (int(n) for n in stored["shape"][:])
    else:
        N, F = (int(n) for n in stored.attrs["h5sparse_shape" if "h5sparse_shape" in stored.attrs else "shape"])
    return F, N


def _features(stored: Any) -> tuple[list[str], list[str], list[str] | None]:
    """Return identifiers, symbols and types of features in 10x's layout, of CellRanger 3 and later or 2 (no types)."""
    if "features" in stored:
        ids, names, kinds = (text_of(stored["features"][name][:]).tolist() for name in ("id", "name", "feature_type"))
        return ids, names, kinds
    ids, names = (text_of(stored[name][:]).tolist() for name in ("genes", "gene_names"))
    return ids, names, None


def _check_compressed(stored: Any, indptr: NDArray[np.int64], num_rows: int) -> None:
    """Raise if compressed rows do not belong together."""
    length = int(stored["data"].shape[0])
    good = len(indptr) == num_rows + 1 and indptr[0] == 0 and indptr[-1] == length == stored["indices"].shape[0]
    if not good or (np.diff(indptr) < 0).any():
        raise ValueError(
            f"expected compressed rows of {num_rows} samples; got {len(indptr)} row ends for {length} values that do "
            "not belong together"
        )
