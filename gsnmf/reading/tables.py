"""Tables: .csv and .tsv, features × samples, with names in the first row and column or without."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .matrix import NamedMatrix
from .naming import describe_names, find_names
from .words import is_missing, is_value

BEFORE_COMMA = re.compile(r".*;\s*[+-]?\d+", re.DOTALL)  # of a number with a decimal comma, after a semicolon


def read_table(path: Path, *, header: bool | None = None, index: bool | None = None) -> NamedMatrix:
    """Read a .csv or .tsv; the rule for names is at the top of naming.py.

    Args:
        path: the file.
        header: whether the first row names the samples; None for the rule.
        index: whether the first column names the features; None for the rule.
    """
    table = read_cells(path)
    cells = table.rows
    named = find_names(path, cells, header, index)
    head = cells[0] if named.row else []
    body = cells[1:] if named.row else cells
    if not body:
        raise ValueError(f"expected rows of numbers in {path}; got only a header")
    if len(body[0]) == int(named.column):
        raise ValueError(f"expected columns of numbers in {path}; got only names of features")
    X = _numbers(path, body, table.numbers[int(named.row) :], int(named.column))
    features = [row[0].strip() for row in body] if named.column else None
    samples = [cell.strip() for cell in head[int(named.column and not named.short) :]] if named.row else None
    return NamedMatrix(X, features, samples, describe_names(named, table.empty_columns, table.empty_rows))


class Cells(NamedTuple):
    """The cells of a table, as text.

    rows: of equal lengths; the first one alone may be a cell shorter.
    numbers: of these rows in the file, from 1; lines without any cell, which are skipped, count as well.
    empty_columns: how many empty last columns were left out.
    empty_rows: how many empty last rows were left out.
    """

    rows: list[list[str]]
    numbers: list[int]
    empty_columns: int
    empty_rows: int


def read_cells(path: Path) -> Cells:
    """Read the cells of a .csv or .tsv."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter)
        lines = [(reader.line_num, row) for row in reader if row]  # the line on which a row ends
    except csv.Error as error:
        raise ValueError(f"expected rows of values in {path}; got {error}") from None
    if not lines:
        raise ValueError(f"expected rows of values in {path}; got an empty file")
    numbers, rows = [number for number, _ in lines], [row for _, row in lines]
    rows, bare = _without_empty_rows(rows)
    rows, empty = _without_empty_columns(rows)
    if delimiter == ",":
        _check_decimal_commas(path, rows)
    short = len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1 and not any(map(is_value, rows[0]))
    width = len(rows[0]) + short
    for number, row in list(zip(numbers, rows, strict=False))[short:]:  # empty last rows have numbers, too
        if len(row) != width:
            raise ValueError(f"expected {width} columns in every row of {path}; got {len(row)} in row {number}")
    return Cells(rows, numbers, empty, bare)


def read_text(path: Path) -> str:
    """Read a file of text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected {path} to be text in UTF-8; got {error}") from None


def _without_empty_rows(rows: list[list[str]]) -> tuple[list[list[str]], int]:
    """Remove last rows of several cells that are all empty, as spreadsheets leave them; say how many."""
    kept = len(rows)
    while kept > 1 and len(rows[kept - 1]) > 1 and not any(cell.strip() for cell in rows[kept - 1]):
        kept -= 1
    return rows[:kept], len(rows) - kept


def _check_decimal_commas(path: Path, rows: list[list[str]]) -> None:
    """Raise if commas are within numbers, and semicolons between them: g1;1,5 would be 5 for a feature g1;1."""
    below = rows[1:] or rows
    if all(len(row) == 2 and BEFORE_COMMA.fullmatch(row[0]) and row[1].strip().isdigit() for row in below):
        raise ValueError(
            f"expected commas between columns and decimal points in {path}; got {','.join(below[0])!r}, as with "
            "semicolons and decimal commas"
        )


def _without_empty_columns(rows: list[list[str]]) -> tuple[list[list[str]], int]:
    """Remove last columns in which every cell is empty, whether or not the header has them; say how many."""
    width, empty = max(map(len, rows)), 0
    if any(len(row) != width for row in rows[1:]):  # refused later
        return rows, 0
    while width - empty > 1 and not any(
        row[width - empty - 1 :][:1] and row[width - empty - 1].strip() for row in rows
    ):
        empty += 1
    return [row[: width - empty] for row in rows], empty


def _numbers(path: Path, body: list[list[str]], numbers: list[int], skipped_columns: int) -> NDArray[np.float64]:
    for r, row in zip(numbers, body, strict=False):
        for c, cell in enumerate(row[skipped_columns:], 1 + skipped_columns):
            if not is_value(cell):
                raise ValueError(f"expected a number in row {r}, column {c} of {path}; got {cell!r}")
    rows = [["nan" if is_missing(cell) else cell for cell in row[skipped_columns:]] for row in body]
    return np.asarray([list(map(float, row)) for row in rows])
