"""Columns and names in AnnData's `obs` and `var`, in HDF5 or zarr."""

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
    with opened(Path(path)) as group:
        obs = group.get("obs")
        if obs is None or column not in obs:
            index = None if obs is None else str(obs.attrs.get("_index", "_index"))
            found = "no obs" if obs is None else ", ".join(name for name in obs if name not in (index, "__categories"))
            raise ValueError(f"expected a column {column!r} in the obs of {path}; got {found}")
        return require_shared(_values(obs[column]), path)


def names_of(group: Any, axis: str, length: int) -> list[str] | None:
    """Return the index of AnnData's `var` or `obs`; None without one of this length.

    Args:
        group: the file, from `open_group`.
        axis: "var" or "obs".
        length: the number of names.
    """
    frame: Any = group[axis] if hasattr(group, "keys") and axis in group else None
    if not hasattr(frame, "keys"):
        return None
    index = str(frame.attrs.get("_index", "_index"))
    if index not in frame:
        return None
    names = _values(frame[index])
    return [str(name) for name in names.tolist()] if len(names) == length else None


def _values(stored: Any) -> NDArray[Any]:
    """Return the values of a column: plain, categorical, or nullable, with None where they are missing."""
    if not hasattr(stored, "keys"):
        return text_of(np.asarray(stored[:]))
    if "codes" in stored:
        codes, labels = np.asarray(stored["codes"][:]), text_of(np.asarray(stored["categories"][:])).tolist()
        read = np.array([*labels, None], object)[codes]  # the last for code −1
        missing = codes < 0
    else:
        read, missing = text_of(np.asarray(stored["values"][:])).astype(object), np.asarray(stored["mask"][:], bool)
        read[missing] = None
    return read if missing.any() else np.asarray(read.tolist())


def text_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return bytes, as HDF5 stores text, as text."""
    if values.dtype.kind not in "SO":
        return values
    return np.asarray([x.decode() if isinstance(x, bytes) else x for x in values.tolist()])
