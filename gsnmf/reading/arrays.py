"""NumPy's .npy and .npz, and sparse .npz. What a header claims is checked before memory is asked for."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..model.compressed import is_consistent
from .matrix import NamedMatrix, require_real

SPARSE = {"format.npy", "shape.npy", "data.npy"}  # members that scipy.sparse.save_npz always writes
VERSIONS = ((1, 0), (2, 0))  # of NumPy's format, for arrays of numbers


def read_array_file(path: Path) -> NamedMatrix:
    """Read features × samples from a .npy; from a .npz, the array called X, the only one, or a sparse matrix."""
    sparse = _read_sparse_npz(path) if path.suffix.lower() == ".npz" else None
    return NamedMatrix(require_real(read_array(path, ("X",)) if sparse is None else sparse, path), None, None)


def read_array(path: Path, keys: tuple[str, ...]) -> NDArray[Any]:
    """Read the array of a .npy; from a .npz, the array named in `keys`, else the only one."""
    arrays, names = read_arrays(path, keys)
    for key in (*keys, *names):
        if key in arrays:
            return arrays[key]
    raise ValueError(
        f"expected one array, or one called {' or '.join(keys)}, in {path}; got {', '.join(names) or 'none'}"
    )


def read_arrays(path: Path, keys: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Read the arrays of a .npz named in `keys`, or the only one; return them by name, and the names of all arrays.

    The content of the file counts, not its suffix: a .npy has one array, whose name is empty.

    Args:
        path: the file.
        keys: the names to look for.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        _check_claim(file, member.file_size)
        else:
            with path.open("rb") as file:
                _check_claim(file, path.stat().st_size)
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                _check_characters(loaded)
                return {"": loaded}, [""]
            names = list(loaded.files)
            wanted = names if len(names) == 1 else [key for key in keys if key in names]
            # A member that is not an array is returned as bytes.
            arrays = {name: np.asarray(loaded[name]) for name in wanted}
            for array in arrays.values():
                _check_characters(array)
            return arrays, names
    except Exception as error:  # of a damaged file: from zipfile, zlib, tokenize, struct, …
        raise ValueError(f"expected a NumPy file of numbers or text in {path}; got {in_words(error)}") from None


def open_npy(path: Path) -> NDArray[Any]:
    """Open the array of a .npy as a memory map, without reading it."""
    try:
        with path.open("rb") as file:
            _check_claim(file, path.stat().st_size)
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of a damaged file: from tokenize, struct, mmap, …
        raise ValueError(f"expected a NumPy file of numbers in {path}; got {in_words(error)}") from None
    return array


def _check_characters(array: NDArray[Any]) -> None:
    """Raise SystemError, as Python does, for text with numbers that are not characters."""
    if array.dtype.kind == "U":
        array.tolist()


def _read_sparse_npz(path: Path) -> Any:
    """Read what scipy.sparse.save_npz wrote; None if the file has something else."""
    try:
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as file:
            if not set(file.namelist()) >= SPARSE:
                return None
        found, _ = read_arrays(path, ("shape",))  # and for its checks
        if not all(0 <= n < 2**31 for n in found["shape"].ravel().tolist()):
            raise ValueError(f"a shape of {found['shape'].tolist()}")
    except Exception as error:  # of a damaged file: from zipfile, zlib, tokenize, struct, …
        raise ValueError(f"expected a sparse matrix in {path}; got {in_words(error)}") from None
    return read_consistent(lambda: scipy.sparse.load_npz(path), path)


def read_consistent(make: Callable[[], Any], path: Path) -> Any:
    """Return the sparse matrix that a function makes if its parts belong together, else raise."""
    try:
        X = make()
        consistent = not scipy.sparse.issparse(X) or is_consistent(X)
    except Exception:  # of a damaged file
        consistent = False
    if not consistent:
        raise ValueError(f"expected a sparse matrix in {path}; got indices and row ends that do not belong together")
    return X


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array in NumPy's format: its shape, whether it is in Fortran order, and its dtype.

    Args:
        file: at the beginning of the array; then at its first number.
    """
    version = np.lib.format.read_magic(file)
    if version not in VERSIONS:
        raise ValueError(f"expected NumPy's format in version 1.0 or 2.0; got {version}")
    old = version == (1, 0)
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = (
        np.lib.format.read_array_header_1_0(file) if old else np.lib.format.read_array_header_2_0(file)
    )
    return header


def _check_claim(file: IO[bytes], size: int) -> None:
    """Raise if the header of an array claims more bytes than there are; a file without a header is left to NumPy."""
    start = file.read(8)
    if start[:6] != np.lib.format.MAGIC_PREFIX or tuple(start[6:]) not in VERSIONS:
        return
    file.seek(0)
    try:
        shape, _, dtype = read_npy_header(file)
    except Exception:  # of tokenize and of NumPy
        raise ValueError("a header that is damaged") from None
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > size - file.tell() and not dtype.hasobject:
        raise ValueError(f"a header that claims {math.prod(shape):,} values in {size:,} bytes")


def in_words(error: Exception) -> str:
    """Return what is wrong with a file, in words that do not depend on the versions of libraries."""
    if isinstance(error, zlib.error):
        return "compressed data that are damaged"
    if isinstance(error, RuntimeError) and "encrypted" in str(error):
        return "an encrypted archive"
    return str(error) or type(error).__name__
