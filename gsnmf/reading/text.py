"""Documents: a table with a column of text, counted by scikit-learn's CountVectorizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .labels import labels_of
from .matrix import NamedMatrix, number
from .parquet import read_frame

MIN_DF = 2  # documents that a term must occur in
STOP_WORDS = ("english", "none")


def read_documents(
    path: Path, column: str, *, min_df: int = MIN_DF, max_features: int | None = None, stop_words: str | None = None
) -> NamedMatrix:
    """Read documents, one per row of a table, as counts of terms × documents.

    Args:
        path: .csv, .tsv (first row: names of columns) or .parquet.
        column: the column with the text.
        min_df: a term is left out if it is in fewer documents.
        max_features: the most frequent terms that are kept; None for all.
        stop_words: "english" leaves out scikit-learn's list of frequent words; None or "none" leaves out none.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    for name, value, least in (("min_df", min_df, 1), ("max_features", max_features, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"expected {name} to be a whole number ≥ {least}; got {value!r}")
    if stop_words not in (None, *STOP_WORDS):
        raise ValueError(f"expected stop_words to be one of {', '.join(STOP_WORDS)}; got {stop_words!r}")
    frame = _frame(path)
    documents = _column(frame, column, path)
    if not documents:
        raise ValueError(f"expected documents in {path}; got only a header")
    counter = CountVectorizer(
        min_df=min_df, max_features=max_features, stop_words="english" if stop_words == "english" else None
    )
    try:
        X = counter.fit_transform(documents).T.tocsc()
    except ValueError as error:
        raise ValueError(
            f"expected terms that occur in at least {min_df} documents in column {column!r} of {path}; got "
            f"{number(len(documents), 'document')} ({error})"
        ) from None
    empty = int((np.diff(X.indptr) == 0).sum())
    how = f"documents in rows; features are the terms of column {column!r} in at least {number(min_df, 'document')}"
    how += f"; {number(empty, 'document')} without any of them" if empty else ""
    terms = [str(term) for term in counter.get_feature_names_out()]
    return NamedMatrix(X, terms, None, how, lambda name: labels_of(_column(frame, name, path), path))


def _frame(path: Path) -> Any:
    """Read a table as text."""
    if path.suffix.lower() == ".parquet":
        return read_frame(path)
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        options: Any = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
        frame = pd.read_csv(path, **options)
        if not isinstance(frame.index, pd.RangeIndex) and not frame.iloc[:, -1].str.strip().any():
            names = frame.columns  # commas at the ends of lines, but not of the header: pandas takes an index for one
            frame = frame.reset_index().iloc[:, : len(names)].set_axis(names, axis=1)
        # pandas numbers columns of one name
        stated = pd.read_csv(path, header=None, nrows=1, **options).iloc[0].tolist()
        if len(stated) == len(frame.columns):
            frame.columns = [name or own for name, own in zip(stated, frame.columns, strict=True)]
        return frame
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        raise ValueError(f"expected a table of text in {path}; got {' '.join(str(error).split())}") from None


def _column(frame: Any, name: str, path: Path) -> list[str]:
    if name not in frame.columns:
        raise ValueError(f"expected a column {name!r} in {path}; got {', '.join(map(str, frame.columns))}")
    if (frame.columns == name).sum() > 1:
        raise ValueError(f"expected one column {name!r} in {path}; got {(frame.columns == name).sum()}")
    values: NDArray[Any] = frame[name].to_numpy(object)
    return ["" if pd.isna(value) else str(value) for value in values]
