"""Tables in .parquet, columns are samples; names of features by the rule of .csv (naming.py)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from .matrix import NamedMatrix, require_real
from .naming import Named, describe_names, is_corner, is_names

NUMBERS = "biuf"  # kinds of dtypes
UNNAMED = re.compile(r"\s*(Unnamed: \d+)?\s*")  # as pandas calls a column without a name


def read_parquet(path: Path, *, index: bool | None = None) -> NamedMatrix:
    """Read a .parquet, columns are samples; the index of its frame or its first column may name the features.

    The index does if it is of text or has a name. Otherwise the first column does if it is of text, or if its name
    says what features are called, as in a .csv.

    Args:
        path: the file.
        index: whether the first column names the features; None for the rule.
    """
    frame, empty = _without_empty_columns(read_frame(path))
    own = frame.index.tolist() if frame.index.dtype.kind not in "iu" or frame.index.name else None
    if index is None:
        index = own is None and _is_named(path, frame)
    if index:
        if len(frame.columns) < 2:
            raise ValueError(f"expected columns of numbers in {path}; got only names of features")
        own, frame = frame.iloc[:, 0].tolist(), frame.iloc[:, 1:]
    _check_numbers(path, frame)
    X = require_real(frame.to_numpy(dtype=float, na_value=np.nan), path)
    features = None if own is None else [str(name) for name in own]
    how = describe_names(Named(True, features is not None), empty).replace("first row", "columns")
    return NamedMatrix(X, features, [str(name) for name in frame.columns], how)


def read_frame(path: Path) -> Any:
    """Read a .parquet as a DataFrame."""
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise ValueError(f"expected the package pyarrow, to read {path} (pip install pyarrow); got none") from None
    except Exception as error:  # pyarrow has classes of its own
        if "Multiple matches" in str(error):
            raise ValueError(f"expected columns of distinct names in {path}; got several of one name") from None
        raise ValueError(f"expected a parquet file in {path}; got another kind of file, or a damaged one") from None


def _without_empty_columns(frame: Any) -> tuple[Any, int]:
    """Remove last columns that have neither a name nor a value; say how many."""
    width = len(frame.columns)
    while width > 1 and UNNAMED.fullmatch(str(frame.columns[width - 1])) and frame.iloc[:, width - 1].isna().all():
        width -= 1
    return frame.iloc[:, :width], len(frame.columns) - width


def _is_named(path: Path, frame: Any) -> bool:
    """Return whether the first column names the features; raise if its whole numbers may be names or data."""
    kinds = [kind.kind for kind in frame.dtypes]
    if not kinds or kinds[0] not in NUMBERS:
        return bool(kinds)
    if len(kinds) < 2:
        return False
    _check_numbers(path, frame)
    if is_corner([str(name) for name in frame.columns]):
        return True
    first, *others = (frame.iloc[:, n].to_numpy(dtype=float, na_value=np.nan) for n in range(len(kinds)))
    is_names(path, [f"{value:.17g}" for value in first], "column", "index", np.concatenate(others).tolist())
    return False


def _check_numbers(path: Path, frame: Any) -> None:
    for name, kind in frame.dtypes.items():
        if kind.kind not in NUMBERS:
            raise ValueError(f"expected numbers in column {name!r} of {path}; got {kind}")
