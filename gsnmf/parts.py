"""Parts of a matrix: the samples that one of several processes reads."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .reading import Matrix, PathLike, read_matrix

SUFFIXES = (".npy", ".npz", ".csv", ".tsv")


class Part(NamedTuple):
    """Some of the samples of a matrix.

    matrix: these samples.
    first: the index of the first of them.
    num_samples: of all parts.
    """

    matrix: Matrix
    first: int
    num_samples: int


def read_part(path: PathLike, index: int, number: int) -> Part:
    """Read the samples of one process: contiguous, about as many as those of every other.

    A .npy file and an array in an .npz that is not compressed are read in part only. From a folder of files, features ×
    samples each and taken in the order of their names, every process reads its own files. Other files are read as a
    whole by every process, which then keeps its part.

    Args:
        path: a file as in `read_matrix`, or a folder of such files.
        index: the number of the process, from 0.
        number: of processes.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path, index, number)
    mapped = _mapped(path)
    matrix = read_matrix(path) if mapped is None else Matrix(mapped, None, None)
    N = matrix.X.shape[1] if matrix.X.ndim == 2 else 0
    start, end = share(N, index, number)
    names = matrix.sample_names
    own = Matrix(matrix.X[:, start:end].copy(), matrix.feature_names, None if names is None else names[start:end])
    return Part(own, start, N)


def share(length: int, index: int, number: int) -> tuple[int, int]:
    """Return the first and the end of one of several parts of equal length, or one more; raise if one is empty."""
    if length < number:
        raise ValueError(f"expected at least one sample for each of {number} processes; got {length}")
    ends = np.linspace(0, length, number + 1).astype(int)
    return int(ends[index]), int(ends[index + 1])


def _from_folder(folder: Path, index: int, number: int) -> Part:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if len(files) < number:
        raise ValueError(f"expected at least {number} files of samples in {folder}, one a process; got {len(files)}")
    start, end = share(len(files), index, number)
    widths = [_width(file) for file in files]
    pieces = [read_matrix(file) for file in files[start:end]]
    heights = {piece.X.shape[0] for piece in pieces}
    if len(heights) > 1:
        raise ValueError(f"expected files of equally many features in {folder}; got {sorted(heights)}")
    names = [piece.sample_names for piece in pieces]
    named = None if any(one is None for one in names) else [name for one in names for name in one or []]
    X = np.concatenate([piece.X for piece in pieces], axis=1)
    return Part(Matrix(X, pieces[0].feature_names, named), sum(widths[:start]), sum(widths))


def _width(path: Path) -> int:
    """Return the number of samples in a file, from its header if that tells."""
    mapped = _mapped(path)
    return int((read_matrix(path).X if mapped is None else mapped).shape[1])


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
                version = np.lib.format.read_magic(file)
                read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, fortran, dtype = read[version](file)
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
