"""Every kind of matrix by one function: a table of suffixes and readers, and data made of what was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..model.checks import require_flag
from ..model.data import Data, as_data
from .annotated import read_genes, read_obs, read_var
from .arrays import read_array_file
from .counts import warn_unless_counts
from .hdf5 import SUFFIXES as HDF5
from .hdf5 import read_hdf5
from .labels import SUFFIXES as LABEL_SUFFIXES
from .labels import read_labels
from .market import read_market
from .matrix import NamedMatrix, PathLike, as_path, not_a_file
from .parquet import read_parquet
from .tables import read_table
from .tenx import is_tenx_folder, read_tenx_folder
from .text import read_documents

BYTES = 64  # for the name and the row end of a feature or sample, about
COLUMN = "obs:"  # before the name of a column that has labels


class Reader(NamedTuple):
    """A function that reads a matrix, and the options that it takes."""

    read: Callable[..., NamedMatrix]
    options: tuple[str, ...] = ()


TABLE = Reader(read_table, ("header", "index"))
READERS = {
    ".npy": Reader(read_array_file),
    ".npz": Reader(read_array_file),
    ".csv": TABLE,
    ".tsv": TABLE,
    ".mtx": Reader(read_market),
    ".mtx.gz": Reader(read_market),
    ".parquet": Reader(read_parquet, ("index",)),
    **{suffix: Reader(read_hdf5, ("key",)) for suffix in HDF5},
}
DOCUMENTS = Reader(read_documents, ("column", "min_df", "max_features", "stop_words"))
WITH_TEXT = (".csv", ".tsv", ".parquet")
NEEDED = {
    "key": "HDF5 and zarr",
    "header": ".csv and .tsv",
    "index": ".csv, .tsv and .parquet",
    **dict.fromkeys(("min_df", "max_features", "stop_words"), "documents (text=)"),
}


def read_matrix(
    path: PathLike,
    *,
    key: str | None = None,
    header: bool | None = None,
    index: bool | None = None,
    text: str | None = None,
    min_df: int | None = None,
    max_features: int | None = None,
    stop_words: str | None = None,
) -> NamedMatrix:
    """Read a matrix, features × samples, with the names of its axes; docs/files.md lists the formats.

    .npy, .npz, .csv, .tsv, .parquet, .mtx and .mtx.gz hold features × samples. In .h5ad, .h5, .zarr, in 10x's files and
    folders and in tables of documents, samples are cells, barcodes and documents, by their own conventions; the result
    is features × samples in any case. Matrices that are stored as sparse stay sparse.

    Args:
        path: a file, or a folder of 10x or zarr.
        key: the place of the matrix in HDF5 or zarr, such as "layers/counts"; "X" by default, or the only matrix.
        header: whether the first row of a .csv or .tsv names the samples; None for the rule in docs/files.md.
        index: whether its first column, or that of a .parquet, names the features.
        text: the column with the text of documents, one per row of a .csv, .tsv or .parquet, whose terms are counted.
        min_df: with text, documents that a term must occur in; 2 by default.
        max_features: with text, the most frequent terms that are kept; all by default.
        stop_words: with text, "english" leaves out frequent words; none by default.
    """
    path = as_path(path)
    for name, value in (("header", header), ("index", index)):
        if value is not None:
            require_flag(name, value)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"expected text to be the name of a column; got {text!r}")
    options: dict[str, Any] = {"key": key, "header": header, "index": index}
    options |= {"min_df": min_df, "max_features": max_features, "stop_words": stop_words}
    given = {name: value for name, value in options.items() if value is not None}
    reader = _reader(path, text)
    for name in given:
        if name not in reader.options:
            raise ValueError(f"expected {name} only for {NEEDED[name]}; got {name}={given[name]!r} for {path.name}")
    return reader.read(path, **given) if text is None else reader.read(path, text, **given)


def _reader(path: Path, text: str | None) -> Reader:
    """Return the reader of a file or folder that exists."""
    suffixes = WITH_TEXT if text is not None else tuple(READERS)
    suffix = max((end for end in suffixes if path.name.lower().endswith(end)), key=len, default=None)
    if text is None and is_tenx_folder(path):
        return Reader(read_tenx_folder)
    if suffix is None:
        what = "a table of documents" if text is not None else "a file"
        more = "" if text is not None else ", or a folder with 10x's matrix.mtx"
        raise ValueError(f"expected {what} ending in {', '.join(suffixes)}{more}; got {path}")
    if not (path.is_file() or (suffix == ".zarr" and path.is_dir())):
        raise not_a_file(path)
    return DOCUMENTS if text is not None else READERS[suffix]


def read_columns(matrix: NamedMatrix, path: PathLike, labels: Any) -> NDArray[Any] | None:
    """Return labels given in any form: in a file, in a column of the matrix's own file, or as they are.

    Args:
        matrix: as read.
        path: of the matrix.
        labels: "obs:cell_type" for a column; "cell_type" for a column, too, unless it is a file or ends like one;
            a file; a sequence of labels; or None.
    """
    if labels is None or not isinstance(labels, (str, Path)):
        return labels
    named = str(labels)
    is_file = Path(named).is_file() or named.lower().endswith(LABEL_SUFFIXES)
    if not named.startswith(COLUMN) and (is_file or matrix.column is None):
        return _require_one_each(read_labels(named), matrix, named)
    if matrix.column is None:
        raise ValueError(
            f"expected a file of labels, as {Path(path).name} has no columns with values of samples; got {named!r}"
        )
    return matrix.column(named.removeprefix(COLUMN))


def _require_one_each(labels: NDArray[Any], matrix: NamedMatrix, path: str) -> NDArray[Any]:
    """Return labels of a file; raise unless there is one for every sample of the matrix, if it was read."""
    if matrix.X is not None and len(labels) != matrix.X.shape[1]:
        F, N = matrix.X.shape
        hint = ", as many as features: transpose the matrix?" if len(labels) == F else ""
        raise ValueError(f"expected one label for each of the {N} samples in {path}; got {len(labels)}{hint}")
    return labels


def load_data(path: PathLike, labels: Any = None, **options: Any) -> Data:
    """Read a matrix and labels, and return validated data with the names of both axes.

    Args:
        path: as in `read_matrix`.
        labels: a file; a column of the matrix's own file, as "obs:cell_type"; a sequence, as groups in `as_data`.
        options: those of `read_matrix`; all others as in `as_data`.
    """
    from ..memory import available, in_units  # which reads headers by this package

    own = {name: options.pop(name) for name in ("text", *NEEDED) if name in options}
    matrix = read_matrix(path, **own)
    names = {"feature_names": matrix.feature_names, "sample_names": matrix.sample_names}
    columns = read_columns(matrix, path, labels)
    needed, room = BYTES * sum(matrix.X.shape), available()
    try:
        if room is not None and needed > room:
            raise MemoryError(f"names and row ends take {in_units(needed)}")
        return as_data(matrix.X, columns, **(names | options))
    except MemoryError as error:  # a sparse matrix may state any number of empty rows
        F, N = matrix.X.shape
        raise ValueError(f"expected a matrix in {path} that fits in memory; got {F:,} × {N:,} ({error})") from None


def read_source(source: Any, groups: Any) -> tuple[Any, Any, Any, Any]:
    """Return X, features × samples, groups, and the names of features and of samples; what `as_data` asks for.

    Args:
        source: a path, or an AnnData.
        groups: as in `as_data`; or the name of a column.
    """
    if not hasattr(source, "obs_names"):
        matrix = read_matrix(source)
        return matrix.X, read_columns(matrix, source, groups), matrix.feature_names, matrix.sample_names
    X = read_genes(source, None, read_var(source, None))
    warn_unless_counts(X, source)
    groups = read_obs(source, groups.removeprefix(COLUMN)) if isinstance(groups, str) else groups
    return X, groups, source.var_names.tolist(), source.obs_names.tolist()
