"""The matrix that every reader returns, and checks that readers share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

PathLike: TypeAlias = str | os.PathLike[str]


class NamedMatrix(NamedTuple):
    """A matrix read from a file.

    X: features × samples; NaN where a cell was empty. A sparse matrix of SciPy if the file has one; or an object that
        reads samples when they are asked for (`gsnmf.streams.open_named`).
    feature_names, sample_names: as the file gives them, else None.
    how: where names came from and what was left out, in words.
    column: a function from the name of a column to one value per sample; None for files without such columns.
    """

    X: Any
    feature_names: list[str] | None
    sample_names: list[str] | None
    how: str = "no names"
    column: Callable[[str], NDArray[Any]] | None = None

    def describe(self) -> str:
        """Return what was read as data, as names and as missing, in one line.

        >>> NamedMatrix(np.array([[1.0, np.nan]]), None, None).describe()
        'read 1 feature × 2 samples; no names; 1 missing cell'
        """
        F, N = self.X.shape
        said = f"read {number(F, 'feature')} × {number(N, 'sample')}; {self.how}"
        values = self.X
        if scipy.sparse.issparse(self.X):
            said += f"; {number(self.X.nnz, 'entry')} stored, all others 0"
            values = self.X.data
        loaded = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
        missing = int(np.isnan(values).sum()) if loaded and values.dtype.kind == "f" else 0
        return said + (f"; {number(missing, 'missing cell')}" if missing else "")


def number(n: int, word: str) -> str:
    """Return a number with its noun.

    >>> number(1, "cell"), number(1234, "entry")
    ('1 cell', '1,234 entries')
    """
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word.removesuffix('y')}{'ies' if word.endswith('y') else 's'}"


def require_real(X: Any, path: Path) -> Any:
    """Return the matrix if it has two axes and holds real numbers, else raise."""
    if X.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers in {path}; got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"expected a matrix, features × samples, in {path}; got shape {X.shape}")
    return X


def as_path(path: Any) -> Path:
    """Return the name of a file as a Path; raise if it is something else."""
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"expected the name of a file; got {path!r}")
    return Path(path)


def require_file(path: Path, suffixes: tuple[str, ...]) -> Path:
    """Return the path if it ends in one of the suffixes and is a file, else raise."""
    if not path.name.lower().endswith(suffixes):
        raise ValueError(f"expected a file ending in {', '.join(suffixes)}; got {path}")
    if not path.is_file():
        raise not_a_file(path)
    return path


def not_a_file(path: Path) -> ValueError:
    """Return the error for a path that is no file."""
    there = "is a folder" if path.is_dir() else "is a device, a pipe or a socket" if path.exists() else "does not exist"
    return ValueError(f"expected a file; got {path}, which {there}")
