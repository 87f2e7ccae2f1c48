"""Cells of text files: numbers, missing ones, and labels. One rule for all readers."""

from __future__ import annotations

import math

from ..model.labels import MISSING, is_whole

__all__ = ["MISSING", "as_float", "is_missing", "is_number", "is_value", "is_whole"]


def is_missing(cell: str) -> bool:
    """Return whether a cell stands for a missing entry, or an unlabelled sample.

    >>> [is_missing(cell) for cell in ("", " NA ", "#N/A", "<NA>", "NULL", "-", "0")]
    [True, True, True, True, True, False, False]
    """
    return cell.strip().lower() in MISSING


def is_number(cell: str) -> bool:
    """Return whether a cell is a number that is not NaN, written without separators: 1_000 and 1,000 are not.

    >>> [is_number(cell) for cell in ("1e3", " 2 ", "1_000", "1,000", "nan")]
    [True, True, False, False, False]
    """
    return not math.isnan(as_float(cell))


def is_value(cell: str) -> bool:
    """Return whether a cell is a number or missing."""
    return is_missing(cell) or is_number(cell)


def as_float(cell: str) -> float:
    """Return the number in a cell, NaN without one."""
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan
