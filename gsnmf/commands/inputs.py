"""Options that say how files are read, and the line that says what was read."""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model import Data
    from ..reading import NamedMatrix

FIRST = 256  # samples of a file that is not loaded, looked at for values that are not counts
FILES = """\
FILE holds a matrix, features × samples: .npy, .npz (one array, or the one called X), .csv, .tsv, .parquet, .mtx or
.mtx.gz; or samples in rows: .h5ad, .h5, .zarr; or a folder or .h5 by 10x; or, with --text, a table of documents. In
.csv and .tsv, the first row and column may name samples and features. Labels are .npy, .npz, or text with one label per
line, which may begin with a line that says label, group or class; semicolons separate several labels of a sample. Of an
.h5ad or a table of documents, --labels obs:COLUMN is a column. NaN, empty cells, NA and null stand for missing entries
and for unlabelled samples, whose labels are learned; at the end of a file of labels write NA, as trailing empty lines
are ignored. One line says what was read as data, as names and as missing (docs/files.md)."""
READING = ("key", "header", "index", "text", "min_df", "max_features", "stop_words")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a matrix is read."""
    group = parser.add_argument_group("how FILE is read")
    group.add_argument("--key", metavar="NAME", help="matrix in an .h5ad, .h5 or .zarr, as layers/counts (default: X)")
    for name, what in (
        ("header", "row of a .csv or .tsv names samples"),
        ("index", "column of a .csv, .tsv or .parquet names features"),
    ):
        said = f"whether the first {what} (default: by its cells, refused in case of doubt)"
        group.add_argument(f"--{name}", type=yes_or_no, metavar="yes|no", help=said)
    group.add_argument("--text", metavar="COLUMN", help="count the terms of this column of a .csv, .tsv or .parquet")
    group.add_argument("--min-df", type=int, metavar="N", help="with --text: terms in fewer documents go (default: 2)")
    group.add_argument("--max-features", type=int, metavar="N", help="with --text: most frequent terms (default: all)")
    group.add_argument("--stop-words", choices=["english", "none"], help="with --text: terms to omit (default: none)")


def yes_or_no(text: str) -> bool:
    """Parse yes or no."""
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"expected yes or no; got {text!r}")
    return text == "yes"


def read_data(arguments: argparse.Namespace, path: Path, **more: Any) -> Data:
    """Read the data of a command; `arguments.said` gets what was read, for `announce`.

    Args:
        arguments: of the command.
        path: of the matrix.
        more: other arguments of `as_data`.
    """
    from ..model import as_data
    from ..reading import read_columns, read_matrix

    options = {name: value for name in READING if (value := getattr(arguments, name, None)) is not None}
    matrix = read_matrix(path, **options)
    groups = read_columns(matrix, path, arguments.labels)
    describe(arguments, matrix, path)
    return as_data(matrix.X, groups, feature_names=matrix.feature_names, sample_names=matrix.sample_names, **more)


def describe(arguments: argparse.Namespace, matrix: NamedMatrix, path: Path, more: str = "") -> None:
    """Set `arguments.said`: what was read, and a warning if an AnnData's matrix does not hold counts.

    Args:
        arguments: of the command.
        matrix: as read, or as opened: then its first samples are looked at.
        path: of the matrix.
        more: what else is to be said of it.
    """
    import numpy as np

    from ..reading.counts import counts_advice
    from ..streams import FileRows

    arguments.said = [matrix.describe() + more]
    if path.suffix.lower() in (".h5ad", ".zarr"):
        X = matrix.X[:, np.arange(min(FIRST, matrix.X.shape[1]))] if isinstance(matrix.X, FileRows) else matrix.X
        advice = counts_advice(X)
        if advice is not None:
            arguments.said.append(f"warning: {advice.partition(': ')[0]}: {_others(arguments, path)}")


def _others(arguments: argparse.Namespace, path: Path) -> str:
    """Return where else the counts may be, as options of the command."""
    from ..reading.hdf5 import matrices_in

    own = getattr(arguments, "key", None) or "X"
    keys = [f"--key {shlex.quote(key)}" for key in matrices_in(path) if key != own]
    return f"{' or '.join(keys)} reads another matrix" if keys else "the file has no other matrix"


def announce(arguments: argparse.Namespace) -> None:
    """Print what was read, before work begins."""
    for line in getattr(arguments, "said", ()):
        print(f"gsnmf: {line}", file=sys.stderr)


@contextmanager
def said(shown: bool = True) -> Iterator[None]:
    """Print what the library logs meanwhile, such as what a first fit waits for.

    Args:
        shown: whether to print it, as only one of several processes does.
    """
    log, handler = logging.getLogger("gsnmf"), logging.StreamHandler()
    level = log.level
    handler.setFormatter(logging.Formatter("gsnmf: %(message)s"))
    if shown:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
