"""Sizes of matrices in files, from their headers: what does not fit in memory is refused before it is read."""

from __future__ import annotations

import gzip
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .reading import PathLike
from .reading.arrays import SPARSE, read_npy_header
from .reading.containers import opened
from .reading.hdf5 import find_matrix, shape_of
from .reading.market import PACKED

NAMES = ("X.npy", "labels.npy", "y.npy")  # arrays that are read of several in an .npz
HDF5 = (".h5ad", ".h5", ".hdf5")


class Header(NamedTuple):
    """The size of a matrix in a file.

    shape: as the file states it; of two axes or others.
    itemsize: bytes of a number.
    stored: the number of entries that a sparse matrix stores; None for a dense one.
    """

    shape: tuple[int, ...]
    itemsize: int
    stored: int | None = None

    @property
    def axes(self) -> tuple[int, int]:
        """Two numbers of the same size: features and samples, if there are two axes."""
        return self.shape if len(self.shape) == 2 else (math.prod(self.shape), 1)

    @property
    def numbers(self) -> int:
        """The number of entries that the file stores."""
        return math.prod(self.shape) if self.stored is None else self.stored


def read_header(path: PathLike, key: str | None = None) -> Header | None:
    """Return the size of the matrix in a file, read from its header alone; None if unknown.

    A header that claims more than the file can hold, or 2³¹ along an axis, tells nothing: the readers refuse it.

    Args:
        path: .npy, .npz, .mtx, .mtx.gz or HDF5.
        key: the place of the matrix in HDF5, as in `read_matrix`.
    """
    path = Path(path)
    try:
        header = _read(path, key)
        believed = header is not None and header.numbers <= PACKED * path.stat().st_size and max(header.shape) < 2**31
        return header if believed else None
    except Exception:  # of a damaged file: whoever reads it says what is wrong with it
        return None


def _read(path: Path, key: str | None) -> Header | None:
    name = path.name.lower()
    if name.endswith(".npy"):
        with path.open("rb") as file:
            return _numpy(file)
    if name.endswith(".npz"):
        return _archive(path)
    if name.endswith((".mtx", ".mtx.gz")):
        with gzip.open(path, "rb") if name.endswith(".gz") else path.open("rb") as file:
            return _matrix_market(file)
    return _hdf5(path, key) if name.endswith(HDF5) else None


def _numpy(file: Any) -> Header:
    shape, _, dtype = read_npy_header(file)
    return Header(shape, dtype.itemsize)


def _archive(path: Path) -> Header | None:
    """Return the size of the array in an .npz that is read: the only one, X or labels; or of SciPy's sparse matrix."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()

        def header(name: str) -> Header:
            with archive.open(name) as file:
                return _numpy(file)

        if set(names) >= SPARSE:
            if header("shape.npy").shape != (2,):
                return None
            with archive.open("shape.npy") as file:
                F, N = np.lib.format.read_array(file, allow_pickle=False).tolist()
            data = header("data.npy")
            return Header((F, N), data.itemsize, math.prod(data.shape))
        wanted = names if len(names) == 1 else [name for name in NAMES if name in names]
        return header(wanted[0]) if wanted else None


def _matrix_market(file: Any) -> Header | None:
    """Return the size in the first line of a MatrixMarket file that is not a comment."""
    kind = file.readline(1000).split()
    line = file.readline(1000)
    while line.startswith(b"%") or line.isspace():
        line = file.readline(1000)
    numbers = [int(word) for word in line.split()]
    if len(kind) < 3 or len(numbers) != (3 if kind[2] == b"coordinate" else 2):
        return None
    return Header((numbers[0], numbers[1]), 8, numbers[2] if len(numbers) == 3 else None)


def _hdf5(path: Path, key: str | None) -> Header:
    """Return the size of the matrix that `read_hdf5` reads, as features × samples."""
    with opened(path) as group:
        stored = find_matrix(group, key, path, columns=True)
        if hasattr(stored, "keys"):
            return Header(shape_of(stored), stored["data"].dtype.itemsize, int(stored["data"].shape[0]))
        return Header(shape_of(stored), stored.dtype.itemsize)
