"""Files: matrices and labels that people bring, and fits that are saved and loaded again. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import __version__
from .inference import Fit, Posterior
from .model import Gamma, GroupSparse, Names, Priors

PathLike: TypeAlias = str | os.PathLike[str]
FORMAT, FORMAT_VERSION = "gsnmf-fit", 1
FAMILIES: dict[str, Any] = {f.__name__: f for f in (Gamma, GroupSparse, Priors, Posterior)}
HEADERS = ("label", "labels", "group", "groups", "class", "y")


class Matrix(NamedTuple):
    """A matrix read from a file.

    X: features × samples.
    feature_names, sample_names: as the file gives them, else None.
    """

    X: NDArray[Any]
    feature_names: list[str] | None
    sample_names: list[str] | None


class Saved(NamedTuple):
    """What `save_fit` saved: the fit, the priors it was made with, the names of its axes."""

    fit: Fit
    priors: Priors
    names: Names


def read_matrix(path: PathLike) -> Matrix:
    """A features × samples matrix from .npy, .npz (one array, or the one called X), .csv or .tsv.

    In .csv and .tsv the first row names the samples if a cell after its first is not a number, or if its first cell is
    empty or a word atop numbers; the first column names the features if it has words below the header, or if the
    header's first cell is empty.
    """
    path = _existing(path, (".npy", ".npz", ".csv", ".tsv"))
    if path.suffix.lower() in (".npy", ".npz"):
        X = _read_array(path, ("X",))
        if X.dtype.kind not in "biuf":
            raise ValueError(f"expected real numbers in {path}; got dtype {X.dtype}")
        return Matrix(X, None, None)
    cells = _read_cells(path)
    head = cells[0]
    corner = head[0].strip() == "" and len(head) > 1
    titled = len(cells) > 1 and not _is_number(head[0]) and all(_is_number(row[0]) for row in cells[1:])
    header = corner or titled or not all(map(_is_number, head[1:]))
    body = cells[1:] if header else cells
    if not body:
        raise ValueError(f"expected rows of numbers in {path}; got a header only")
    named = len(head) > 1 and (corner or not all(_is_number(row[0]) for row in body))
    features = [row[0] for row in body] if named else None
    return Matrix(_numbers(path, body, int(header), int(named)), features, head[int(named) :] if header else None)


def read_labels(path: PathLike) -> NDArray[Any]:
    """One label per sample from .npy, .npz (one array, or the one called labels or y), or text with one label per line.

    Whole numbers are read as such, everything else as text. The first line of a text file is a header if it is a word
    and all others are whole numbers, or if it says label, labels, group, groups, class or y.
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
        raise ValueError(f"expected one label per line in {path}; got several columns")
    whole = [_is_whole(line) for line in lines]
    if lines and (lines[0].lower() in HEADERS or (lines[0][:1].isalpha() and len(lines) > 1 and all(whole[1:]))):
        lines, whole = lines[1:], whole[1:]
    if not lines or "" in lines:
        raise ValueError(f"expected one label per line in {path}; got {'an empty line' if lines else 'none'}")
    return np.asarray([int(line) for line in lines] if all(whole) else lines)


def save_fit(path: PathLike, fit: Fit, priors: Priors, names: Names) -> Path:
    """Write the arrays to `path`.npz and everything else, readable by people, to `path`.json; returns the former.

    Each file appears whole or not at all, and a pair that does not belong together is noticed when it is loaded.

    Args:
        path: with or without .npz; its folder must exist.
        fit: from `cavi.run`; any precision, restored bit by bit.
        priors: those it was made with.
        names: `data.names`.
    """
    arrays: dict[str, NDArray[Any]] = {}
    posterior, prior = _describe(fit.posterior, "posterior", arrays), _describe(priors, "priors", arrays)
    _describe(fit.elbo, "elbo", arrays)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "gsnmf_version": __version__,
        "num_steps": int(fit.num_steps),
        "converged": bool(fit.converged),
        "message": str(fit.message),
        "posterior": posterior,
        "priors": prior,
        "names": {axis: _describe_names(axis, getattr(names, axis)) for axis in ("feature", "sample", "group")},
        "sha256_of_npz": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    npz, text = pair(path)
    _write({npz: buffer.getvalue(), text: (json.dumps(description, indent=1) + "\n").encode()})
    return npz


def load_fit(path: PathLike) -> Saved:
    """A fit saved by `save_fit`, with NumPy arrays throughout.

    Args:
        path: with or without .npz.
    """
    npz, text = pair(path)
    for file in (npz, text):
        if not file.is_file():
            raise ValueError(f"expected a saved fit in {npz} and {text.name}; got no file {file}")
    try:
        description = json.loads(text.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected {text} to be JSON written by save_fit; got {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"expected {text} to say format {FORMAT!r}; got something else")
    version = description.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ValueError(
            f"expected {text} in format version {FORMAT_VERSION} or older; got {version}, "
            f"written by gsnmf {description.get('gsnmf_version')} (this is {__version__})"
        )
    content = npz.read_bytes()
    if hashlib.sha256(content).hexdigest() != description.get("sha256_of_npz"):
        raise ValueError(f"expected {npz} as it was saved with {text.name}; got other or damaged contents")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        how = (description[field] for field in ("num_steps", "converged", "message"))
        fit = Fit(_build(description["posterior"], arrays), arrays["elbo"], *how)
        axes: dict[str, Any] = {axis: np.asarray(n["values"], n["dtype"]) for axis, n in description["names"].items()}
        return Saved(fit, _build(description["priors"], arrays), Names(**axes))
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"expected {text} to describe the arrays of {npz.name}; got {error!r}") from None


def _existing(path: PathLike, suffixes: tuple[str, ...]) -> Path:
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"expected a file ending in {', '.join(suffixes)}; got {path}")
    if not path.is_file():
        raise ValueError(f"expected a file; got {path}, which is {'a folder' if path.is_dir() else 'not there'}")
    return path


def _read_array(path: Path, keys: tuple[str, ...]) -> NDArray[Any]:
    """The array of a .npy, or of a .npz the one called as one of `keys`, else the only one."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            wanted = [key for key in keys if key in loaded.files] or loaded.files
            if len(wanted) == 1 or (wanted and wanted[0] in keys):
                array: NDArray[Any] = loaded[wanted[0]]
                return array
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"expected a NumPy file of numbers or text in {path}; got {error}") from None
    raise ValueError(
        f"expected one array, or one called {' or '.join(keys)}, in {path}; got {', '.join(wanted) or 'none'}"
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"expected {path} to be text in UTF-8; got other bytes") from None


def _read_cells(path: Path) -> list[list[str]]:
    """The cells of a .csv or .tsv, a rectangle of text; empty lines are skipped."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = [row for row in csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=delimiter) if row]
    if not rows:
        raise ValueError(f"expected rows of values in {path}; got an empty file")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"expected {len(rows[0])} columns in every row of {path}; got {len(row)} in row {number}")
    return rows


def _numbers(path: Path, body: list[list[str]], skipped_rows: int, skipped_columns: int) -> NDArray[np.float64]:
    for r, row in enumerate(body, 1 + skipped_rows):
        for c, cell in enumerate(row[skipped_columns:], 1 + skipped_columns):
            if not _is_number(cell):
                raise ValueError(f"expected a number in row {r}, column {c} of {path}; got {cell!r}")
    return np.asarray([list(map(float, row[skipped_columns:])) for row in body])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_whole(text: str) -> bool:
    """Whether text is a whole number as Python would write it: 007 is a name, not 7."""
    return text.removeprefix("-").isdecimal() and str(int(text)) == text


def pair(path: PathLike) -> tuple[Path, Path]:
    """The two files of a fit; only .npz and .json are endings here, so that fit.v2 stays fit.v2.npz."""
    path = Path(path)
    stem = path.stem if path.suffix in (".npz", ".json") else path.name
    if not stem:
        raise ValueError(f"expected the name of a file; got {str(path)!r}")
    return path.with_name(f"{stem}.npz"), path.with_name(f"{stem}.json")


def _write(contents: dict[Path, bytes]) -> None:
    temporary = {file: file.with_name(f".{file.name}.{os.getpid()}.tmp") for file in contents}
    try:
        for file, content in contents.items():
            temporary[file].write_bytes(content)
        for file in contents:
            os.replace(temporary[file], file)
    finally:
        for file in temporary.values():
            file.unlink(missing_ok=True)


def _describe(value: Any, key: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """NamedTuples as their name and fields, an array as its key in `arrays`, where it is put."""
    if value is None:
        return None
    if isinstance(value, tuple):
        name = type(value).__name__
        if FAMILIES.get(name) is not type(value):
            raise ValueError(f"expected one of {', '.join(FAMILIES)} in a fit to save; got {name}")
        return {"family": name} | {
            f: _describe(getattr(value, f), f"{key}.{f}", arrays) for f in FAMILIES[name]._fields
        }
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers in {key} to save; got dtype {array.dtype}")
    arrays[key] = array
    return key


def _build(description: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The inverse of `_describe`; a scalar comes back as one."""
    if description is None:
        return None
    if isinstance(description, str):
        return arrays[description][()]
    fields = dict(description)
    return FAMILIES[fields.pop("family")](**{name: _build(value, arrays) for name, value in fields.items()})


def _describe_names(axis: str, names: NDArray[Any]) -> dict[str, Any]:
    if names.dtype.kind not in "biufU":
        raise ValueError(f"expected {axis} names that are numbers or text; got dtype {names.dtype}")
    return {"dtype": names.dtype.str, "values": names.tolist()}
