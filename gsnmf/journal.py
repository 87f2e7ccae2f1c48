"""Pieces of long work on disk: one line of JSON for each, appended as soon as it is known, so that work resumes.

`gsnmf reproduce` and `gsnmf sweep` keep their results so (`experiments/results.py`); `gsnmf choose` and
`gsnmf crosscheck` have a `Journal` while they run.
"""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from . import __version__
from .model import Data
from .model.missing import marks_of
from .reading import PathLike
from .reading.matrix import as_path
from .writing import keep_name, locked, named

FORMAT, FORMAT_VERSION = "gsnmf-journal", 1


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row, and ensure that it is on the disk before returning; a last line that was cut off is removed."""
    line, new = json.dumps(row).encode() + b"\n", not path.exists()
    with named(path), path.open("a+b") as file, locked(file.fileno()):
        _mend_end(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    if new:
        keep_name(path)


def _mend_end(file: BinaryIO) -> None:
    """Complete the last line of a file, or remove it if it was cut off by a crash or a full disk."""
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read() == b"\n":
        return
    file.seek(0)
    content = file.read()
    begin = content.rfind(b"\n") + 1
    try:
        json.loads(content[begin:])
        file.write(b"\n")
    except ValueError:
        file.truncate(begin)


def read_rows(path: Path, what: str, is_row: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return the rows of a file written by `append`, without those that were cut off by a crash.

    Args:
        path: of the file.
        what: the file holds, for the error.
        is_row: whether an object is a row of such a file; others are refused.
    """
    rows: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
            if b'{"'.startswith(line[:2]):  # cut off
                continue
        if not isinstance(row, dict) or not is_row(row):
            raise ValueError(f"expected {path} to hold {what}; got the line {line[:50]!r}")
        rows.append(row)
    return rows


class Journal:
    """A file with the finished pieces of a computation, each under a key that identifies all that it depends on.

    A call with the same file resumes: pieces that are there are not computed again. Pieces with other keys stay unused.

    Args:
        path: of the file, which need not exist; None keeps nothing.
    """

    def __init__(self, path: PathLike | None) -> None:
        self.path = None if path is None else as_path(path)
        self.lines: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            rows = read_rows(self.path, "pieces of a run that gsnmf resumes", _is_piece)
            self.lines = {row["key"]: row["value"] for row in rows if row["crc"] == crc_of(row["value"])}

    def __contains__(self, key: str) -> bool:
        return key in self.lines

    def piece(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the piece with this key, from the file or computed and then appended to it.

        Args:
            key: from `piece_key`.
            compute: returns a dictionary of numbers, text, None, bytes, arrays, and lists and dictionaries of these.
        """
        if self.path is None:
            return compute()
        if key not in self.lines:
            value = _encode(compute())
            row = {"format": FORMAT, "format_version": FORMAT_VERSION, "key": key, "crc": crc_of(value)}
            append(self.path, row | {"value": value})
            self.lines[key] = value
        found: dict[str, Any] = _decode(self.lines[key])  # also when it was computed: the rest is then the same
        return found

    def remove(self) -> None:
        """Remove the file: the results are saved."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def piece_key(data: Data, priors: Any, options: Mapping[str, Any]) -> str:
    """Return a key of everything that a piece depends on, as `key_of`; data are as made by `as_data`."""
    return key_of(marks_of(data), priors, options)


def key_of(marks: Mapping[str, Any], priors: Any, options: Mapping[str, Any]) -> str:
    """Return a key of everything that a computation depends on: data, priors, options, precision and version.

    Args:
        marks: that identify the data.
        priors: any pytree of arrays and numbers.
        options: by name.
    """
    arrays = [np.ascontiguousarray(leaf, float) for leaf in jax.tree.leaves(priors)]
    of = dict(marks) | {"options": {name: repr(value) for name, value in options.items()}}
    of |= {"priors": zlib.crc32(b"".join(str(array.shape).encode() + array.tobytes() for array in arrays))}
    of |= {"family": str(jax.tree.structure(priors)), "version": __version__}
    return json.dumps(of | {"precision": jax.numpy.result_type(float).name}, sort_keys=True)


def _is_piece(row: dict[str, Any]) -> bool:
    known = row.get("format") == FORMAT and row.get("format_version") == FORMAT_VERSION
    return known and isinstance(row.get("key"), str) and {"crc", "value"} <= row.keys()


def crc_of(value: Any) -> float:
    """Return a checksum of a value as JSON writes it; NaN, which equals nothing, if it is nested too deeply."""
    try:
        return zlib.crc32(json.dumps(value).encode())
    except RecursionError:
        return math.nan


def _encode(value: Any) -> Any:
    """Return a value that JSON holds without loss: bytes and arrays as text."""
    if isinstance(value, dict):
        return {key: _encode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(one) for one in value]
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.ascontiguousarray(value)
        return {"bytes": base64.b64encode(array.tobytes()).decode(), "dtype": array.dtype.str, "shape": value.shape}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any) -> Any:
    """Invert `_encode`; tuples come back as lists."""
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "bytes" not in value:
        return {key: _decode(one) for key, one in value.items()}
    content = base64.b64decode(value["bytes"])
    return np.frombuffer(content, value["dtype"]).reshape(value["shape"]) if "dtype" in value else content
