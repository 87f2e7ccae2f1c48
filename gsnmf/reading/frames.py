"""AnnData's frames in a file, `obs` and `var`: names and columns, in the layout of any version of anndata.

Since anndata 0.8, a frame is a group, and a categorical column is a group of codes and categories. In 0.7, the column
has the codes, and an attribute leads to its categories. Before 0.7, a frame is one dataset whose first field has the
names, and categories are in `uns`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .containers import opened
from .labels import require_shared
from .matrix import PathLike


def read_column(path: PathLike, column: str) -> NDArray[Any]:
    """Read a column of AnnData's `obs`, one label per sample; None where it is missing.

    Args:
        path: .h5ad or .zarr.
        column: its name.
    """
    return require_shared(read_part_of_column(path, column), path)


def read_part_of_column(path: PathLike, column: str) -> NDArray[Any]:
    """Read a column of one of several files: labels of its samples may be those of samples in other files only."""
    with opened(Path(path)) as group:
        obs = find_part(group, "obs")
        columns = _columns(obs)
        if column not in columns:
            found = "no obs" if obs is None else ", ".join(columns)
            raise ValueError(f"expected a column {column!r} in the obs of {path}; got {found}")
        values = _values(obs, column, find_part(group, "uns"))
        if values.ndim != 1:
            shape = " × ".join(map(str, values.shape))
            raise ValueError(f"expected one label per sample in the column {column!r} of {path}; got values {shape}")
        return values


def names_of(group: Any, place: str, length: int) -> list[str] | None:
    """Return the index of AnnData's `var` or `obs`; None without one of this length.

    Args:
        group: the file, from `open_group`.
        place: of the frame: "var", "obs" or "raw/var".
        length: the number of names.
    """
    frame = find_part(group, place)
    index = _index_of(frame)
    if index is None:
        return None
    names = _values(frame, index)
    return [str(name) for name in names.tolist()] if len(names) == length else None


def find_part(group: Any, place: str) -> Any:
    """Return a part of a file; None if it has none in this place.

    Args:
        group: the file, from `open_group`.
        place: of the part, such as "layers".
    """
    return group[place] if hasattr(group, "keys") and place in group else None


def _columns(frame: Any) -> list[str]:
    """Return the names of the columns of a frame, without its index."""
    return [name for name in _fields(frame) if name not in (_index_of(frame), "__categories")]


def _values(frame: Any, name: str, uns: Any = None) -> NDArray[Any]:
    """Return a column: plain, categorical, or nullable, with None where values are missing.

    Args:
        frame: a group, or a dataset with fields.
        name: of the column.
        uns: the file's `uns`, which has the categories of a dataset with fields.
    """
    stored = frame[name]
    if hasattr(stored, "keys"):
        if "codes" in stored:
            return _decoded(stored["codes"], stored["categories"])
        read, missing = text_of(np.asarray(stored["values"][:])).astype(object), np.asarray(stored["mask"][:], bool)
        read[missing] = None
        return read if missing.any() else np.asarray(read.tolist())
    if not hasattr(frame, "keys"):
        categories = f"{name}_categories"
        coded = uns is not None and categories in uns and stored.dtype.kind in "iu"
        return _decoded(stored, uns[categories]) if coded else text_of(np.asarray(stored[:]))
    if "categories" in stored.attrs:  # a reference in HDF5, a path in zarr
        return _decoded(stored, frame[stored.attrs["categories"]])
    return text_of(np.asarray(stored[:]))


def text_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return bytes, as HDF5 stores text, as text.

    Args:
        values: of any type; numbers are returned as they are.
    """
    if values.dtype.kind not in "SO":
        return values
    return np.asarray([x.decode() if isinstance(x, bytes) else x for x in values.tolist()])


def _decoded(codes: Any, categories: Any) -> NDArray[Any]:
    """Return the category of each code; None for −1, which stands for missing values."""
    index, labels = np.asarray(codes[:]), text_of(np.atleast_1d(categories[()])).tolist()
    read = np.array([*labels, None], object)[index]  # the last for code −1
    return read if (index < 0).any() else np.asarray(read.tolist())


def _fields(frame: Any) -> list[str]:
    if hasattr(frame, "keys"):
        return [str(name) for name in frame]
    return list(getattr(getattr(frame, "dtype", None), "names", None) or ())


def _index_of(frame: Any) -> str | None:
    """Return the name of the index of a frame; None without one."""
    fields = _fields(frame)
    if not hasattr(frame, "keys"):
        return fields[0] if fields else None
    index = str(frame.attrs.get("_index", "_index"))
    return index if index in fields else None
