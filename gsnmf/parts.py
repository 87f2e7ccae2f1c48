"""Parts of a matrix: the samples that one of several processes reads."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .headers import read_header
from .reading import NamedMatrix, PathLike, read_matrix
from .reading.arrays import SPARSE, read_npy_header
from .reading.frames import read_part_of_column
from .reading.labels import require_shared
from .streams import LAZY, open_named

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".mtx", ".mtx.gz", ".h5ad", ".h5", ".hdf5")
WITH_OBS = (".h5ad", ".zarr")


class OwnSamples(NamedTuple):
    """Some of the samples of a matrix.

    matrix: these samples.
    first: the index of the first of them.
    num_samples: of all parts.
    """

    matrix: NamedMatrix
    first: int
    num_samples: int


def read_part(path: PathLike, index: int, number: int, key: str | None = None) -> OwnSamples:
    """Read the samples of one process: contiguous, about as many as those of every other.

    Only this part is read of a .npy, of an array in an .npz that is not compressed, of a sparse matrix in compressed
    columns that scipy.sparse.save_npz wrote, and of HDF5 as `streams.open_matrix` opens it. From a folder of files,
    features × samples each (samples × features in HDF5) and taken in the order of their names, every process reads its
    own files. Other files are read as a whole by every process, which then keeps its part.

    Args:
        path: a file as in `read_matrix`, or a folder of such files.
        index: the number of the process, from 0.
        number: of processes.
        key: as in `read_matrix`.
    """
    path = Path(path)
    if path.is_dir() and path.suffix.lower() != ".zarr":
        return _from_folder(path, index, number, key)
    opened = _opened(path, key)
    whole = read_matrix(path, key=key) if opened is None else opened
    X, samples = whole.X, whole.sample_names
    N = X.shape[1] if len(X.shape) == 2 else 0
    start, end = bounds_of_part(N, index, number)
    own = X.tocsc()[:, start:end] if hasattr(X, "tocsc") else X[:, np.arange(start, end)]
    return OwnSamples(whole._replace(X=own, sample_names=None if samples is None else samples[start:end]), start, N)


def bounds_of_part(length: int, index: int, number: int) -> tuple[int, int]:
    """Return the first and the end of one of several parts of equal length, or one more; raise if one is empty."""
    if length < number:
        raise ValueError(f"expected at least one sample for each of {number} processes; got {length}")
    ends = np.linspace(0, length, number + 1).astype(int)
    return int(ends[index]), int(ends[index + 1])


def _files_in(folder: Path) -> list[Path]:
    """Return the files of samples in a folder, in the order of their names."""
    return sorted(file for file in folder.iterdir() if file.name.lower().endswith(SUFFIXES))


def obs_reader(path: PathLike) -> Callable[[str], NDArray[Any]] | None:
    """Return a function that reads a column of AnnData's obs by its name, for the samples of all parts.

    Args:
        path: as in `read_part`; for other files than AnnData's, or with such ones in the folder, it returns None.
    """
    path = Path(path)
    files = _files_in(path) if path.is_dir() and path.suffix.lower() != ".zarr" else [path]
    if not files or any(file.suffix.lower() not in WITH_OBS for file in files):
        return None

    def read(name: str) -> NDArray[Any]:
        columns = [read_part_of_column(file, name) for file in files]
        alike = len({column.dtype.kind for column in columns}) == 1
        return require_shared(np.concatenate(columns if alike else [c.astype(object) for c in columns]), path)

    return read


def _from_folder(folder: Path, index: int, number: int, key: str | None) -> OwnSamples:
    files = _files_in(folder)
    if len(files) < number:
        raise ValueError(f"expected at least {number} files of samples in {folder}, one a process; got {len(files)}")
    start, end = bounds_of_part(len(files), index, number)
    outlines = [_outline(file, key) for file in files]
    _check_features(folder, files, [features for _, features in outlines])
    widths = [width for width, _ in outlines]
    pieces = [read_part(file, 0, 1, key).matrix for file in files[start:end]]
    heights = {piece.X.shape[0] for piece in pieces}
    if len(heights) > 1:
        raise ValueError(f"expected files of equally many features in {folder}; got {sorted(heights)}")
    names = [piece.sample_names for piece in pieces]
    named = None if any(one is None for one in names) else [name for one in names for name in one or []]
    sparse = {scipy.sparse.issparse(piece.X) for piece in pieces}
    if len(sparse) > 1:
        raise ValueError(f"expected sparse matrices in all files of {folder}, or in none; got sparse and dense ones")
    X = (scipy.sparse.hstack if sparse.pop() else np.hstack)([piece.X for piece in pieces])
    return OwnSamples(NamedMatrix(X, pieces[0].feature_names, named, pieces[0].how), sum(widths[:start]), sum(widths))


def _outline(path: Path, key: str | None) -> tuple[int, list[str] | None]:
    """Return the number of samples in a file and the names of its features, without its entries if that is possible."""
    if path.suffix.lower() in LAZY[1:]:
        opened = open_named(path, key)
        return int(opened.X.shape[1]), opened.feature_names
    header = read_header(path, key)
    if header is not None and len(header.shape) == 2:  # of formats without names
        return int(header.shape[1]), None
    whole = read_matrix(path, key=key)
    return int(whole.X.shape[1]), whole.feature_names


def _check_features(folder: Path, files: Sequence[Path], features: Sequence[list[str] | None]) -> None:
    """Raise if files name different features, or the same in another order; files without names are not compared."""
    named = [(file, names) for file, names in zip(files, features, strict=True) if names is not None]
    for file, names in named[1:]:
        first, expected = named[0]
        for n, (one, other) in enumerate(zip_longest(expected, names), 1):
            if one != other:
                raise ValueError(
                    f"expected the same features in the same order in all files of {folder}; got {_shown(other)} in "
                    f"{file.name} as feature {n}, which is {_shown(one)} in {first.name}"
                )


def _shown(name: str | None) -> str:
    return "none" if name is None else repr(name)


def _opened(path: Path, key: str | None) -> NamedMatrix | None:
    """Return a matrix that reads columns when they are asked for; None if a file has to be read as a whole."""
    if path.suffix.lower() in LAZY[1:]:
        return open_named(path, key)
    found = _columns(path) if key is None else None
    return None if found is None else NamedMatrix(found, None, None)


def _columns(path: Path) -> Any:
    """Return an array or sparse matrix of NumPy's or SciPy's files that need not be read; None for other files."""
    mapped = _mapped(path)
    if mapped is not None or path.suffix.lower() != ".npz":
        return mapped
    try:
        with zipfile.ZipFile(path) as archive:
            if not set(archive.namelist()) >= SPARSE | {"indices.npy", "indptr.npy"}:
                return None
        columns = Columns(path)
        return columns if columns.format == "csc" else None
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        return None  # `read_matrix` says what is wrong with it


class Columns:
    """A sparse matrix in compressed columns in an .npz of SciPy: ranges of columns are read, the rest is skipped.

    Args:
        path: as written by scipy.sparse.save_npz, compressed or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        kind = np.asarray(self._read("format")).item()
        self.format = kind.decode() if isinstance(kind, bytes) else str(kind)
        self.shape = tuple(int(n) for n in self._read("shape"))
        self.indptr = np.asarray(self._read("indptr"), np.int64)

    def __getitem__(self, key: tuple[Any, np.ndarray]) -> Any:
        """Return columns, X[:, columns] for consecutive columns."""
        first, end = int(key[1][0]), int(key[1][-1]) + 1
        span = slice(int(self.indptr[first]), int(self.indptr[end]))
        parts = self._read("data", span), self._read("indices", span), self.indptr[first : end + 1] - span.start
        return scipy.sparse.csc_array(parts, shape=(self.shape[0], end - first))

    def _read(self, name: str, span: slice | None = None) -> np.ndarray:
        """Read an array, or a range of one with one axis."""
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as file:
            if span is None:
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
            (length,), _, dtype = read_npy_header(file)
            if span.stop > length:
                raise ValueError(f"expected {span.stop} entries in {self.path}; got {length}")
            file.seek(span.start * dtype.itemsize, 1)
            return np.frombuffer(file.read((span.stop - span.start) * dtype.itemsize), dtype)


def _mapped(path: Path) -> Any:
    """Return the array of a .npy, or of an .npz that is not compressed, without reading it; None for other files."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz") or not path.is_file():
        return None
    try:
        if suffix == ".npy":
            found = np.load(path, mmap_mode="r", allow_pickle=False)
            return found if found.ndim == 2 and found.dtype.kind in "biuf" else None
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            member = members[0] if len(members) == 1 else next((m for m in members if m.filename == "X.npy"), None)
            if member is None or member.compress_type != zipfile.ZIP_STORED:
                return None
            with archive.open(member) as file:
                shape, fortran, dtype = read_npy_header(file)
                header = file.tell()
        if len(shape) != 2 or dtype.kind not in "biuf":
            return None
        with path.open("rb") as file:  # the local header may be longer than the directory's copy of it
            file.seek(member.header_offset + 26)
            name, extra = np.frombuffer(file.read(4), "<u2")
        offset = member.header_offset + 30 + int(name) + int(extra) + header
        return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        return None  # `read_matrix` says what is wrong with it
