"""Tables: .csv, .tsv and .parquet, features × samples, with names in the first row and column or without.

The rule for names in .csv and .tsv (`header` and `index` settle each question; a file that the rule cannot settle is
refused). A cell is a number, missing (see `words.MISSING`), or text.

    both        the first cell is empty, or says what features are called (gene, gene_id, term, Unnamed: 0, …); or the
                first row is a cell shorter than all others, as R writes it
    first row   names the samples if its cells, without the first, are text; is data if they are numbers or missing
    column      the first one names the features if its cells below the header are text; is data if they are not
    refused     text and numbers in one row or column; whole numbers that look like names (1, 2, 3, …)
    left out    a last column without any content, which commas at the ends of lines make
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .matrix import NamedMatrix, require_real
from .words import as_float, is_missing, is_number, is_value

WORDS = """
id ids index name names feature features gene genes probe probes symbol symbols term terms word words token tokens
unnamed variable protein transcript peptide otu taxon taxa item rowname rownames ensembl entrez accession
"""
CORNERS = frozenset(WORDS.split())  # in the cell above names of features
FEW = 3  # numbers in sequence that look like names; fewer may be counts


class Named(NamedTuple):
    """Position of the names in a table.

    row: whether the first row names the samples.
    column: whether the first column names the features.
    short: whether the header has no cell above the first column.
    """

    row: bool
    column: bool
    short: bool = False


def read_table(path: Path, *, header: bool | None = None, index: bool | None = None) -> NamedMatrix:
    """Read a .csv or .tsv; see the top of this file.

    Args:
        path: the file.
        header: whether the first row names the samples; None for the rule.
        index: whether the first column names the features; None for the rule.
    """
    cells = read_cells(path)
    cells, empty = _without_empty_column(cells)
    named = _find_names(path, cells, header, index)
    head = cells[0] if named.row else []
    body = cells[1:] if named.row else cells
    if not body:
        raise ValueError(f"expected rows of numbers in {path}; got only a header")
    if len(body[0]) == int(named.column):
        raise ValueError(f"expected columns of numbers in {path}; got only names of features")
    X = _numbers(path, body, int(named.row), int(named.column))
    features = [row[0].strip() for row in body] if named.column else None
    samples = [cell.strip() for cell in head[int(named.column and not named.short) :]] if named.row else None
    return NamedMatrix(X, features, samples, describe_names(named, empty))


def describe_names(named: Named, empty: bool = False) -> str:
    """Return where names come from, in words."""
    said = {
        (True, True): "names of features from the first column, of samples from the first row",
        (False, True): "names of features from the first column, no names of samples",
        (True, False): "names of samples from the first row, no names of features",
        (False, False): "no names",
    }[named.row, named.column]
    return f"{said}; an empty last column left out" if empty else said


def read_parquet(path: Path) -> NamedMatrix:
    """Read a .parquet, columns are samples; the index of its frame, or a first column of text, names the features."""
    frame = read_frame(path)
    index = frame.index.tolist() if frame.index.dtype.kind not in "iu" or frame.index.name else None
    if index is None and len(frame.columns) and frame.dtypes.iloc[0].kind not in "biuf":
        index, frame = frame.iloc[:, 0].tolist(), frame.iloc[:, 1:]
    for name, kind in frame.dtypes.items():
        if kind.kind not in "biuf":
            raise ValueError(f"expected numbers in column {name!r} of {path}; got {kind}")
    X = require_real(frame.to_numpy(dtype=float, na_value=np.nan), path)
    features = None if index is None else [str(name) for name in index]
    samples = [str(name) for name in frame.columns]
    return NamedMatrix(
        X, features, samples, describe_names(Named(True, index is not None)).replace("first row", "columns")
    )


def read_frame(path: Path) -> Any:
    """Read a .parquet as a DataFrame."""
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise ValueError(f"expected the package pyarrow, to read {path} (pip install pyarrow); got none") from None
    except Exception:  # pyarrow has classes of its own
        raise ValueError(f"expected a parquet file in {path}; got another kind of file, or a damaged one") from None


def read_cells(path: Path) -> list[list[str]]:
    """Read the cells of a .csv or .tsv as text; empty lines are skipped, and rows have equal lengths.

    The first row alone may be a cell shorter than all others.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter) if row]
    except csv.Error as error:
        raise ValueError(f"expected rows of values in {path}; got {error}") from None
    if not rows:
        raise ValueError(f"expected rows of values in {path}; got an empty file")
    short = len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1 and not any(map(is_value, rows[0]))
    width = len(rows[0]) + short
    for number, row in enumerate(rows[short:], 1 + short):
        if len(row) != width:
            raise ValueError(f"expected {width} columns in every row of {path}; got {len(row)} in row {number}")
    return rows


def read_text(path: Path) -> str:
    """Read a file of text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected {path} to be text in UTF-8; got {error}") from None


def _without_empty_column(cells: list[list[str]]) -> tuple[list[list[str]], bool]:
    """Remove a last column in which every cell is empty; say whether there was one."""
    if len(cells[-1]) < 2 or any(row[-1].strip() for row in cells):
        return cells, False
    return [row[:-1] for row in cells], True


def _find_names(path: Path, cells: list[list[str]], header: bool | None, index: bool | None) -> Named:
    """Apply the rule at the top of this file."""
    head, wide = cells[0], len(cells[0]) > 1
    if len(cells) > 1 and len(head) < len(cells[1]):
        return Named(True, True, short=True)
    if wide and header is None and index is None and _is_corner(head):
        _check_empty_corner(path, cells)
        return Named(True, True)
    if header is None:
        header = _is_names(path, head[1:] if wide else head, "row", "header")
        if not header and all(map(is_value, head)):
            _is_names(path, head, "row", "header")
    if index is None:
        if header and wide and _is_corner(head):
            return Named(True, True)
        column = [row[0] for row in cells[int(header) :]]
        rest = [as_float(cell) for row in cells[int(header) :] for cell in row[1:]] if header else []
        index = wide and _is_names(path, column, "column", "index", rest)
        if header and not index and wide:
            _is_names(path, head, "row", "header")  # its first cell belongs to it as well
    return Named(header, index)


def _is_corner(head: Sequence[str]) -> bool:
    """Return whether the first cell of a header stands above names: samples would share its words."""
    first, *others = (set(re.findall(r"[a-z]+", cell.lower())) for cell in head)
    if not head[0].strip():
        return True
    said = first & CORNERS
    return not is_number(head[0]) and bool(said) and not any(said & other for other in others)


def _check_empty_corner(path: Path, cells: list[list[str]]) -> None:
    """Raise if an empty first cell may as well be a missing entry: only numbers follow, in no order."""
    lines = [cells[0][1:], [row[0] for row in cells[1:]]]
    values = [[as_float(cell) for cell in line] for line in lines]
    if cells[0][0].strip() or not all(is_value(cell) for line in lines for cell in line):
        return
    for what, line, found in zip(("row", "column"), lines, values, strict=True):
        if not all(np.diff(found) > 0):
            raise ValueError(
                f"expected names after the empty first cell of {path}, or increasing numbers; got "
                f"{', '.join(line[:5])} in the first {what}: --header yes|no and --index yes|no settle it "
                "(header= and index= in read_matrix)"
            )


def _is_names(path: Path, line: Sequence[str], what: str, option: str, others: Sequence[float] = ()) -> bool:
    """Return whether a row or column holds names; raise if it may hold either names or numbers."""
    settle = f"--{option} yes|no settles it ({option}= in read_matrix)"
    texts = [cell for cell in line if not is_value(cell)]
    numbers = [cell for cell in line if is_number(cell)]
    if texts and (numbers or not any(any(map(str.isalnum, cell)) for cell in texts)):
        got = f"{texts[0]!r} next to {numbers[0]!r}" if numbers else repr(texts[0])
        raise ValueError(
            f"expected the first {what} of {path} to hold either names or numbers; got {got}: {settle}, "
            "and cells that are NA are missing"
        )
    if not texts and _look_like_names([as_float(cell) for cell in line], others):
        said = f"{', '.join(cell.strip() for cell in line[:3])}, …"
        raise ValueError(
            f"expected the first {what} of {path} to be data or names; got {said}, which may be either: {settle}"
        )
    return bool(texts)


def _look_like_names(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether numbers are consecutive, or whole, distinct and larger than all `others`, if there are any."""
    if len(values) < FEW or not all(value == np.floor(value) for value in values):  # false for NaN
        return False
    larger = len(others) > 0 and len(set(values)) == len(values) and min(values) > np.nanmax([0.0, *others])
    return larger or all(np.diff(values) == 1)


def _numbers(path: Path, body: list[list[str]], skipped_rows: int, skipped_columns: int) -> NDArray[np.float64]:
    for r, row in enumerate(body, 1 + skipped_rows):
        for c, cell in enumerate(row[skipped_columns:], 1 + skipped_columns):
            if not is_value(cell):
                raise ValueError(f"expected a number in row {r}, column {c} of {path}; got {cell!r}")
    rows = [["nan" if is_missing(cell) else cell for cell in row[skipped_columns:]] for row in body]
    return np.asarray([list(map(float, row)) for row in rows])
