"""Input files: matrices, documents, labels and pictures. Nothing is ever unpickled; docs/files.md has the rules."""

from __future__ import annotations

from .arrays import read_arrays
from .images import read_images
from .labels import read_labels
from .matrix import NamedMatrix, PathLike
from .open import load_data, read_columns, read_matrix, read_source

__all__ = [
    "NamedMatrix", "PathLike", "load_data", "read_arrays", "read_columns", "read_images", "read_labels", "read_matrix",
    "read_source",
]  # fmt: skip
