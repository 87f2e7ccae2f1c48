"""10x Genomics' folders: matrix.mtx, features.tsv (formerly genes.tsv) and barcodes.tsv, each perhaps with .gz."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .market import read_sparse_text
from .matrix import NamedMatrix

GENES = "Gene Expression"  # the type of features that are kept if there are others


def is_tenx_folder(path: Path) -> bool:
    """Return whether a folder holds a matrix as 10x writes it."""
    return path.is_dir() and any((path / name).is_file() for name in ("matrix.mtx", "matrix.mtx.gz"))


def read_tenx_folder(path: Path) -> NamedMatrix:
    """Read features × samples from a folder as 10x writes it: genes are features, barcodes are samples.

    Genes are named by their symbols, made distinct as in anndata: a, a-1, a-2. Features of other types than genes are
    left out.

    Args:
        path: the folder.
    """
    X = read_sparse_text(_one(path, "matrix.mtx"))
    table = _rows(_one(path, "features.tsv", "genes.tsv"))
    barcodes = [row[0] for row in _rows(_one(path, "barcodes.tsv"))]
    for what, names, length in (("features", table, X.shape[0]), ("barcodes", barcodes, X.shape[1])):
        if len(names) != length:
            raise ValueError(f"expected {length} {what} in {path}, as the matrix has; got {len(names)}")
    kinds = [row[2] for row in table] if all(len(row) > 2 for row in table) else None
    X, names, left_out = keep_genes(X, [row[0] for row in table], [row[min(1, len(row) - 1)] for row in table], kinds)
    return NamedMatrix(X, names, barcodes, describe_genes(left_out))


def keep_genes(
    X: Any, ids: Sequence[str], names: Sequence[str], kinds: Sequence[str] | None
) -> tuple[Any, list[str], int]:
    """Return the genes of X, their distinct names, and the number of other features.

    Args:
        X: features × samples, sparse.
        ids: identifiers, for features without a name.
        names: symbols.
        kinds: types of features; None if unknown.
    """
    kept, named = find_genes(ids, names, kinds)
    return (X, named, 0) if kept is None else (X.tocsr()[kept], named, len(ids) - len(kept))


def find_genes(
    ids: Sequence[str], names: Sequence[str], kinds: Sequence[str] | None
) -> tuple[NDArray[np.intp] | None, list[str]]:
    """Return the rows of genes, None if all rows are kept, and their distinct names.

    Args:
        ids: as in `keep_genes`.
        names: as in `keep_genes`.
        kinds: as in `keep_genes`.
    """
    named = distinct([name or identifier for name, identifier in zip(names, ids, strict=True)])
    if kinds is None or GENES not in kinds or set(kinds) == {GENES}:
        return None, named
    kept = np.flatnonzero(np.asarray(kinds) == GENES)
    return kept, [named[row] for row in kept]


def describe_genes(left_out: int) -> str:
    """Return where names come from, in words."""
    said = "names of features from the genes' symbols, of samples from the barcodes"
    return f"{said}; {left_out:,} features other than genes left out" if left_out else said


def distinct(names: Sequence[str]) -> list[str]:
    """Return names made distinct: a name that occurs again gets -1, -2, ....

    >>> distinct(["a", "b", "a", "a"])
    ['a', 'b', 'a-1', 'a-2']
    """
    taken, counts, found = set(names), dict.fromkeys(names, 0), []
    for name in names:
        new = name
        if counts[name]:
            while (new := f"{name}-{counts[name]}") in taken:
                counts[name] += 1
        counts[name] += 1
        taken.add(new)
        found.append(new)
    return found


def _one(folder: Path, *names: str) -> Path:
    """Return the file of this name, with or without .gz."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    raise ValueError(f"expected {' or '.join(names)}, perhaps with .gz, in {folder}; got none")


def _rows(path: Path) -> list[list[str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            return [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ValueError(f"expected a table of text in {path}; got {error}") from None
