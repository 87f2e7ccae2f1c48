"""HDF5 files and zarr folders: opened for reading, with errors in a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def open_group(path: Path) -> Any:
    """Open an HDF5 file or a zarr folder for reading."""
    if not path.exists():
        raise ValueError(f"expected a file; got {path}, which does not exist")
    if path.suffix.lower() != ".zarr":
        import h5py

        try:
            return h5py.File(path, "r")
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else "another kind of file, or a damaged one"
            raise ValueError(f"expected an HDF5 file in {path}; got {reason}") from None
    try:
        import zarr
    except ImportError:
        raise ValueError(f"expected the package zarr, to open {path} (pip install zarr); got none") from None
    try:
        return zarr.open(str(path), mode="r")
    except Exception:  # zarr has classes of its own
        raise ValueError(f"expected a zarr folder in {path}; got another kind of folder, or a damaged one") from None


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file, and close it; raise ValueError for whatever h5py or zarr raise of a damaged one."""
    group = open_group(path)
    try:
        with in_a_sentence(path):
            yield group
    finally:
        if hasattr(group, "close"):
            group.close()


@contextmanager
def in_a_sentence(path: Path) -> Iterator[None]:
    """Raise ValueError for whatever h5py or zarr raise of a damaged file."""
    try:
        yield
    except MemoryError:  # says nothing about the file
        raise
    except Exception as error:  # a damaged file may raise anything: OSError, KeyError, TypeError, zarr's own, …
        if isinstance(error, ValueError) and str(error).startswith("expected"):
            raise  # a sentence of our own
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"expected a matrix with names in {path}; got {said}") from None
