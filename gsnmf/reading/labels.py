"""Labels of samples, from files and from columns of tables, by one rule (docs/files.md)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.labels import check_kinds, is_whole
from .arrays import read_array
from .matrix import PathLike, as_path, require_file
from .tables import read_text
from .words import is_missing

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt")
HEADERS = ("label", "labels", "group", "groups", "class", "y")
DIGITS = 19  # from here on, whole numbers are names: arrays of NumPy do not hold them
SEPARATOR = ";"  # between the labels of a sample


def read_labels(path: PathLike) -> NDArray[Any]:
    """Read one label per sample from .npy, .npz (one array, or the one called labels or y), or text, one per line.

    Lines of text are read as by `labels_of`. The first one is a header if it is a word and all others are whole
    numbers, or if it is label, labels, group, groups, class or y and does not recur. Empty lines at the end are
    ignored.

    Args:
        path: the file.
    """
    path = require_file(as_path(path), SUFFIXES)
    if path.suffix.lower() in (".npy", ".npz"):
        labels = read_array(path, ("labels", "y"))
        if labels.ndim != 1 or labels.dtype.kind not in "biufUS":
            raise ValueError(f"expected one label per sample in {path}; got {labels.dtype} of shape {labels.shape}")
        return require_shared(_decoded(labels, path) if labels.dtype.kind == "S" else labels, path)
    delimiter = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    lines = [line.strip().strip('"') for line in read_text(path).rstrip().splitlines()]
    if delimiter and any(delimiter in line for line in lines):
        wide = next(line for line in lines if delimiter in line)
        raise ValueError(f"expected one label per line in {path}; got several columns, {wide[:50]!r}")
    numbers = [is_whole(line) for line in lines[1:] if not is_missing(line)]
    word = bool(lines) and lines[0][:1].isalpha() and not is_missing(lines[0])
    once = bool(lines) and lines[0].lower() not in (line.lower() for line in lines[1:])
    if word and ((lines[0].lower() in HEADERS and once) or (numbers and all(numbers))):
        lines = lines[1:]
    return labels_of(lines, path)


def labels_of(cells: Sequence[str], path: PathLike) -> NDArray[Any]:
    """Return the labels that cells of text state, one cell per sample.

    Empty cells, NA, NaN, N/A, #N/A, <NA>, null and None (in upper or lower case) are unlabelled samples, None. A
    semicolon separates the labels of a multi-label sample, a list. If all labels are whole numbers (1 and 1.0 are the
    same one), they are read as numbers, else as text.

    Args:
        cells: as read.
        path: the file, for errors.

    >>> labels_of(["1", "1.0", "NA"], "y.txt").tolist(), labels_of(["a; b", "b"], "y.txt").tolist()
    ([1, 1, None], [['a', 'b'], 'b'])
    """
    sets = [[word for part in cell.split(SEPARATOR) if not is_missing(word := part.strip())] for cell in cells]
    for cell, some in zip(cells, sets, strict=True):
        if some and len(some) < sum(bool(part.strip()) for part in cell.split(SEPARATOR)):
            raise ValueError(f"expected known labels where a sample has several in {path}; got {cell!r}")
    known = {word for some in sets for word in some}
    if not known:
        raise ValueError(f"expected one label per line in {path}, some of them known; got {len(cells)} unlabelled")
    whole = all(is_whole(word) and len(word) < DIGITS for word in known)
    if not whole:
        check_kinds(known)
    labels = [[int(word.partition(".")[0]) if whole else word for word in dict.fromkeys(some)] for some in sets]
    if all(len(some) == 1 for some in labels):
        return require_shared(np.asarray([some[0] for some in labels]), path)
    found = np.empty(len(labels), object)
    found[:] = [None if not some else some[0] if len(set(some)) == 1 else sorted(set(some)) for some in labels]
    return require_shared(found, path)


def require_shared(labels: NDArray[Any], path: PathLike) -> NDArray[Any]:
    """Return the labels; raise if each of three or more labelled samples has a label that no other sample has.

    Args:
        labels: one per sample.
        path: the file, for errors.
    """
    sets = [some if isinstance(some, list) else [some] for some in labels.tolist() if some is not None and some == some]
    counts = Counter(label for some in sets for label in some)
    numbers = [label for label in counts if isinstance(label, (int, float))]
    if -1 in counts and len(counts) == len(numbers) > 2 and min(label for label in numbers if label != -1) >= 0:
        warnings.warn(f"-1 in {path} is read as a group: unlabelled samples have NA, or NaN in .npy", stacklevel=2)
    if len(sets) > 2 and all(any(counts[label] == 1 for label in some) for some in sets):
        shown = ", ".join(repr(label) for label in list(counts)[:3])
        several = " (a semicolon separates labels of one sample: leave out all but the labels)"
        several = several if max(map(len, sets)) > 1 else ""
        raise ValueError(
            f"expected labels that several samples share in {path}; got {len(counts)} labels for {len(sets)} labelled "
            f"samples ({shown}, …): are these names of samples?{several}"
        )
    return labels


def _decoded(labels: NDArray[Any], path: PathLike) -> NDArray[Any]:
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected labels in {path} to be text in UTF-8; got {error}") from None
