"""Where the names of a table are: in its first row and column, in one of them, or nowhere.

The rule for names in .csv and .tsv (`header` and `index` settle each question; a file that the rule cannot settle is
refused). A cell is a number, missing (see `words.MISSING`), or text.

    both        the first cell is empty, or says what features are called (gene, gene_id, term, Unnamed: 0, …); or the
                first row is a cell shorter than all others, as R writes it, and the first column is text or 1, 2, …
    first row   names the samples if its cells, without the first, are text; is data if they are numbers or missing
    column      the first one names the features if its cells below the header are text; is data if they are not
    refused     text and numbers in one row or column; whole numbers that look like names (1, 2, 3, …; years, equal
                steps, or numbers larger than all others, before names of features); text that looks like numbers (10%,
                <5, TRUE, "1,234")
    left out    last columns without any content, which commas at the ends of lines make; last rows of commas only
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .words import as_float, is_number, is_value

WORDS = """
id ids index name names feature features gene genes probe probes symbol symbols term terms word words token tokens
unnamed variable protein transcript peptide otu taxon taxa item rowname rownames ensembl entrez accession
identifier identifiers geneid geneids genename genesymbol probeid probesetid featureid transcriptid proteinid ensemblid
entrezid rowid
"""
CAPITALS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # Gene and ID in GeneID
CORNERS = frozenset(WORDS.split())  # in the cell above names of features
LIKE_NUMBERS = re.compile(  # 1,234 and 1.234,5 and 1'234, with signs, currencies, exponents, percent and quotes
    r"""\s*['"]?\s*[<>≤≥=~]*\s*[+-]?\s*[$€£]?
    (\d[\d,'\s]*\.?\d* | \.\d+ | \d{1,3}(\.\d{3})+(,\d*)?)([ed][+-]?\d+)?\s*%?\s*['"]?\s* | \s*(true|false)\s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
YEARS = 1800, 2100  # whole numbers that are years, if all of a row are
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


def describe_names(named: Named, columns: int = 0, rows: int = 0) -> str:
    """Return where names come from, and how many empty columns and rows were left out, in words."""
    said = {
        (True, True): "names of features from the first column, of samples from the first row",
        (False, True): "names of features from the first column, no names of samples",
        (True, False): "names of samples from the first row, no names of features",
        (False, False): "no names",
    }[named.row, named.column]
    empty = [
        f"an empty last {word}" if n == 1 else f"{n} empty last {word}s"
        for n, word in ((columns, "column"), (rows, "row"))
        if n
    ]
    return f"{said}; {' and '.join(empty)} left out" if empty else said


def find_names(path: Path, cells: list[list[str]], header: bool | None, index: bool | None) -> Named:
    """Return where the names of a table are, by the rule at the top of this file; raise if it does not settle that.

    Args:
        path: of the file, for errors.
        cells: text, row by row.
        header: whether the first row names the samples; None for the rule.
        index: whether the first column names the features; None for the rule.
    """
    head, wide = cells[0], len(cells[0]) > 1
    if len(cells) > 1 and len(head) < len(cells[1]):
        return _below_short_header(path, cells, header, index)
    if wide and header is None and index is None and is_corner(head):
        _check_empty_corner(path, cells)
        return Named(True, True)
    undecided = header is None
    if header is None:
        header = is_names(path, head[1:] if wide else head, "row", "header")
        if not header and all(map(is_value, head)):
            is_names(path, head, "row", "header")
    if index is None:
        if header and wide and is_corner(head):
            return Named(True, True)
        column = [row[0] for row in cells[int(header) :]]
        rest = [as_float(cell) for row in cells[int(header) :] for cell in row[1:]] if header else []
        index = wide and is_names(path, column, "column", "index", rest)
        if header and not index and wide:
            is_names(path, head, "row", "header")  # its first cell belongs to it as well
    if undecided and index and not header:
        _check_row_of_numbers(path, cells)
    return Named(header, index)


def _check_row_of_numbers(path: Path, cells: list[list[str]]) -> None:
    """Raise if the numbers of the first row, before names of features, may name samples: years, codes, equal steps."""
    head = [as_float(cell) for cell in cells[0][1:]]
    others = [as_float(cell) for row in cells[1:] for cell in row[1:]]
    if not others or not _are_whole(head):
        return
    steps = set(np.diff(head))
    even = len(head) >= FEW and len(steps) == 1 and steps != {0.0}
    years = len(head) > 1 and len(set(head)) == len(head) and _are_years(head) and not _are_years(others)
    if even or years or _look_like_names(head, others):
        raise _either(path, cells[0][1:], "row", "header")


def _below_short_header(path: Path, cells: list[list[str]], header: bool | None, index: bool | None) -> Named:
    """Return where names are below a header that is a cell short; raise unless the first column holds names."""
    width, column = len(cells[1]), [row[0] for row in cells[1:]]
    if header is False or index is False:
        raise ValueError(f"expected {width} columns in every row of {path}; got {len(cells[0])} in row 1")
    counted = len(column) > 1 and _are_consecutive([as_float(cell) for cell in column])
    if index is None and not counted and not is_names(path, column, "column", "index"):
        raise ValueError(
            f"expected names above all {width} columns of {path}, or names in the first column; got a header of "
            f"{width - 1} above {', '.join(cells[1][:3])}: --index yes takes the first column as names (index=True in "
            "read_matrix)"
        )
    return Named(True, True, short=True)


def is_corner(head: Sequence[str]) -> bool:
    """Return whether the first cell of a header stands above names: samples would share its words.

    >>> [is_corner([cell, "s1", "s2"]) for cell in ("", "Geneid", "GeneID", "gene_id", "WordPress", "country")]
    [True, True, True, True, False, False]
    """
    if not head[0].strip():
        return True
    first, *others = (set(re.findall(r"[a-z]+", cell.lower())) for cell in head)
    said = first & CORNERS
    if not said:  # words by their capitals; the last one says what it is
        first, *others = (set(CAPITALS.findall(cell)[-1:]) for cell in head)
        said = {word for word in first if word.lower() in CORNERS}
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


def is_names(path: Path, line: Sequence[str], what: str, option: str, others: Sequence[float] = ()) -> bool:
    """Return whether a row or column holds names; raise if it may hold either names or numbers."""
    settle = f"--{option} yes|no settles it ({option}= in read_matrix)"
    texts = [cell for cell in line if not is_value(cell)]
    numbers = [cell for cell in line if is_number(cell)]
    if texts and (numbers or not any(any(map(str.isalnum, cell)) for cell in texts) or _are_like_numbers(texts)):
        got = f"{texts[0]!r} next to {numbers[0]!r}" if numbers else repr(texts[0])
        raise ValueError(
            f"expected the first {what} of {path} to hold either names or numbers; got {got}: {settle}, "
            "and cells that are NA are missing"
        )
    if not texts and _look_like_names([as_float(cell) for cell in line], others):
        raise _either(path, line, what, option)
    return bool(texts)


def _either(path: Path, line: Sequence[str], what: str, option: str) -> ValueError:
    said = ", ".join(cell.strip() for cell in line[:FEW])
    return ValueError(
        f"expected the first {what} of {path} to be data or names; got {said}, …, which may be either: --{option} "
        f"yes|no settles it ({option}= in read_matrix)"
    )


def _look_like_names(values: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether numbers are consecutive, or whole, distinct and larger than all `others`, if there are any."""
    if len(values) < FEW or not _are_whole(values):
        return False
    larger = len(others) > 0 and len(set(values)) == len(values) and min(values) > np.nanmax([0.0, *others])
    return larger or _are_consecutive(values)


def _are_years(values: Sequence[float]) -> bool:
    return all(YEARS[0] <= value <= YEARS[1] for value in values)


def _are_whole(values: Sequence[float]) -> bool:
    return all(value == np.floor(value) for value in values)  # false for NaN


def _are_consecutive(values: Sequence[float]) -> bool:
    return _are_whole(values) and all(np.diff(values) == 1)


def _are_like_numbers(texts: Sequence[str]) -> bool:
    """Return whether all cells of text are numbers in another notation, or booleans.

    >>> [_are_like_numbers([cell]) for cell in ("1,234", "10%", "<5", "'1'", "TRUE", "10x", "2020-01-01", "1.2.3")]
    [True, True, True, True, True, False, False, False]
    """
    return all(LIKE_NUMBERS.fullmatch(cell) for cell in texts)
