"""Input files: matrices, labels and pictures. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

PathLike: TypeAlias = str | os.PathLike[str]
CORNERS = ("", "id", "index", "name", "feature", "features", "gene", "genes", "probe", "symbol", "term", "word")
HEADERS = ("label", "labels", "group", "groups", "class", "y")
MISSING = ("", "na", "nan", "n/a")  # cells without a number or a label
GREY = ("1", "L", "LA", "P", "RGB", "RGBA")  # modes of pictures that become 8-bit grey without loss of range


class Matrix(NamedTuple):
    """A matrix read from a file.

    X: features × samples; NaN where a cell was empty. A sparse matrix of SciPy if the file has one.
    feature_names, sample_names: as the file gives them, else None.
    """

    X: Any
    feature_names: list[str] | None
    sample_names: list[str] | None


def read_matrix(path: PathLike) -> Matrix:
    """Read a features × samples matrix from .npy, .npz (one array, or the one called X), .csv or .tsv.

    A sparse matrix is read from MatrixMarket's .mtx or .mtx.gz, or from an .npz written by scipy.sparse.save_npz.

    In .csv and .tsv the first row names the samples if a cell after its first is not a number, or if its first cell is
    empty or a word above numbers; the first column names the features if it has words below the header, or if the
    header's first cell is empty or one of id, index, name, feature, gene, probe, symbol, term, word. Other cells that
    are empty, NA or NaN are missing entries, NaN in X.
    """
    path = _existing(path, (".npy", ".npz", ".csv", ".tsv", ".mtx", ".mtx.gz"))
    sparse = _read_sparse(path)
    if sparse is not None:
        return Matrix(sparse, None, None)
    if path.suffix.lower() in (".npy", ".npz"):
        X = _read_array(path, ("X",))
        if X.dtype.kind not in "biuf":
            raise ValueError(f"expected real numbers in {path}; got dtype {X.dtype}")
        return Matrix(X, None, None)
    cells = _read_cells(path)
    head = cells[0]
    corner = head[0].strip().lower() in CORNERS and len(head) > 1
    titled = len(cells) > 1 and not _is_number(head[0]) and all(_is_value(row[0]) for row in cells[1:])
    header = corner or titled or not all(map(_is_value, head[1:]))
    body = cells[1:] if header else cells
    if not body:
        raise ValueError(f"expected rows of numbers in {path}; got only a header")
    named = len(head) > 1 and (corner or not all(_is_value(row[0]) for row in body))
    features = [row[0] for row in body] if named else None
    return Matrix(_numbers(path, body, int(header), int(named)), features, head[int(named) :] if header else None)


def read_labels(path: PathLike) -> NDArray[Any]:
    """Read one label per sample from .npy, .npz (one array, or the one called labels or y), or text, one per line.

    Whole numbers are read as numbers, everything else as text. The first line of a text file is a header if it is a
    word and all others are whole numbers, or if it is label, labels, group, groups, class or y. Lines that are NA, NaN
    or empty, except empty lines at the end, stand for unlabelled samples, None.
    """
    path = _existing(path, (".npy", ".npz", ".csv", ".tsv", ".txt"))
    if path.suffix.lower() in (".npy", ".npz"):
        labels = _read_array(path, ("labels", "y"))
        if labels.ndim != 1 or labels.dtype.kind not in "biufUS":
            raise ValueError(f"expected one label per sample in {path}; got {labels.dtype} of shape {labels.shape}")
        return labels.astype(str) if labels.dtype.kind == "S" else labels
    delimiter = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    lines = [line.strip().strip('"') for line in _read_text(path).rstrip().splitlines()]
    if delimiter and any(delimiter in line for line in lines):
        wide = next(line for line in lines if delimiter in line)
        raise ValueError(f"expected one label per line in {path}; got several columns, {wide[:50]!r}")
    numbers = [_is_whole(line) for line in lines[1:] if not _is_missing(line)]
    word = bool(lines) and lines[0][:1].isalpha() and not _is_missing(lines[0])
    if word and (lines[0].lower() in HEADERS or (numbers and all(numbers))):
        lines = lines[1:]
    known = [line for line in lines if not _is_missing(line)]
    if not known:
        raise ValueError(f"expected one label per line in {path}, some of them known; got {len(lines)} unlabelled")
    read = int if all(map(_is_whole, known)) else str
    if len(known) == len(lines):
        return np.asarray([read(line) for line in lines])
    return np.asarray([None if _is_missing(line) else read(line) for line in lines], object)


def read_images(paths: Sequence[Path]) -> NDArray[np.uint8]:
    """Read pictures of one size as 8-bit grey levels, samples × height × width."""
    from PIL import Image

    images: list[NDArray[np.uint8]] = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                if picture.mode not in GREY:
                    raise ValueError(f"expected 8 bits per pixel in {path}; got mode {picture.mode}")
                images.append(np.asarray(picture.convert("L")))
        except (OSError, SyntaxError) as error:  # Pillow raises both for broken files
            raise ValueError(f"expected a picture in {path}; got {error}") from None
        if images[-1].shape != images[0].shape:
            height, width = images[0].shape
            raise ValueError(
                f"expected images of one size, {height}x{width} as in {paths[0].name}; "
                f"got {'x'.join(map(str, images[-1].shape))} in {path.name}"
            )
    return np.stack(images)


def read_arrays(path: Path, keys: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Read the arrays of a .npz named in `keys`, or the only one; return them by name, and the names of all arrays.

    The content of the file counts, not its suffix: a .npy has one array, whose name is empty.

    Args:
        path: the file.
        keys: the names to look for.
    """
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}, [""]
            names = list(loaded.files)
            wanted = names if len(names) == 1 else [key for key in keys if key in names]
            # A member that is not an array is returned as bytes.
            return {name: np.asarray(loaded[name]) for name in wanted}, names
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"expected a NumPy file of numbers or text in {path}; got {error}") from None


def _read_sparse(path: Path) -> Any:
    """Read a sparse matrix; None if the file has none."""
    import scipy.io
    import scipy.sparse

    try:
        if path.suffix.lower() in (".mtx", ".gz"):
            found = scipy.io.mmread(path)
            X = found if scipy.sparse.issparse(found) else scipy.sparse.csr_array(found)
        elif path.suffix.lower() == ".npz" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                if not {"format.npy", "shape.npy", "data.npy"} <= set(file.namelist()):
                    return None
            X = scipy.sparse.load_npz(path)
        else:
            return None
    except (ValueError, OSError, EOFError, KeyError, OverflowError, zipfile.BadZipFile) as error:
        raise ValueError(f"expected a sparse matrix in {path}; got {error}") from None
    if X.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers in {path}; got dtype {X.dtype}")
    return X


def _existing(path: PathLike, suffixes: tuple[str, ...]) -> Path:
    path = Path(path)
    if not path.name.lower().endswith(suffixes):
        raise ValueError(f"expected a file ending in {', '.join(suffixes)}; got {path}")
    if not path.is_file():
        raise ValueError(f"expected a file; got {path}, which {'is a folder' if path.is_dir() else 'does not exist'}")
    return path


def _read_array(path: Path, keys: tuple[str, ...]) -> NDArray[Any]:
    """Read the array of a .npy; from a .npz, the array named in `keys`, else the only one."""
    arrays, names = read_arrays(path, keys)
    for key in (*keys, *names):
        if key in arrays:
            return arrays[key]
    raise ValueError(
        f"expected one array, or one called {' or '.join(keys)}, in {path}; got {', '.join(names) or 'none'}"
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected {path} to be text in UTF-8; got {error}") from None


def _read_cells(path: Path) -> list[list[str]]:
    """Read the cells of a .csv or .tsv, a rectangle of text; empty lines are skipped."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        rows = [row for row in csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=delimiter) if row]
    except csv.Error as error:
        raise ValueError(f"expected rows of values in {path}; got {error}") from None
    if not rows:
        raise ValueError(f"expected rows of values in {path}; got an empty file")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"expected {len(rows[0])} columns in every row of {path}; got {len(row)} in row {number}")
    return rows


def _numbers(path: Path, body: list[list[str]], skipped_rows: int, skipped_columns: int) -> NDArray[np.float64]:
    for r, row in enumerate(body, 1 + skipped_rows):
        for c, cell in enumerate(row[skipped_columns:], 1 + skipped_columns):
            if not _is_value(cell):
                raise ValueError(f"expected a number in row {r}, column {c} of {path}; got {cell!r}")
    rows = [["nan" if _is_missing(cell) else cell for cell in row[skipped_columns:]] for row in body]
    return np.asarray([list(map(float, row)) for row in rows])


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _is_value(cell: str) -> bool:
    return _is_missing(cell) or _is_number(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_whole(text: str) -> bool:
    """Return whether text is a whole number as Python would write it: 007 is a name, not 7."""
    return text.removeprefix("-").isdecimal() and str(int(text)) == text
