"""Results on disk: one line of JSON for every fold, appended as soon as it is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..journal import append, crc_of, read_rows

# Fields that identify a fold: a resumed run skips the folds that the file has already.
IDENTITY = (
    "dataset", "fingerprint", "version", "precision", "method", "settings", "run", "fold", "folds", "restarts",
    "validation", "bounds",
)  # fmt: skip
PREDICTORS = ("vote", "cosine", "blend", "chosen")


def read(paths: Path | Sequence[Path]) -> list[dict[str, Any]]:
    """Read all rows of one or several files; a row that was cut off is left out, so that its fold is computed again.

    Args:
        paths: files of results.
    """
    rows: list[dict[str, Any]] = []
    for path in [paths] if isinstance(paths, Path) else paths:
        if not path.is_file():
            raise ValueError(f"expected a file of results; got {path}, which does not exist")
        rows += _rows(path)
    return [row for row in rows if "command" not in row]


def write(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row with its checksum.

    Args:
        path: of the results.
        row: a fold, or a command with the versions of its packages.
    """
    append(path, {**row, "crc": crc_of(row)})


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return all rows without their checksums; raise if one was altered."""
    rows = read_rows(path, "results of `gsnmf reproduce` or `gsnmf sweep`", _is_result)
    return [{name: value for name, value in row.items() if name != "crc"} for row in rows]


def record(path: Path, about: Mapping[str, Any]) -> None:
    """Append the command and the versions of its packages, unless they are the last ones that the file has.

    Args:
        path: of the results.
        about: with a field `command`.
    """
    rows = _rows(path) if path.exists() else []
    if [row for row in rows if "command" in row][-1:] != [about]:
        write(path, about)


def _is_result(row: dict[str, Any]) -> bool:
    """Return whether a row is a command, or a fold with settings and counts of the types that figures read.

    Its checksum must be right; rows of version 0.1 have none.
    """
    if "crc" in row and row["crc"] != crc_of({name: value for name, value in row.items() if name != "crc"}):
        return False
    if "command" in row:
        return True
    if not row.keys() >= {*IDENTITY, "size"} or not isinstance(row["settings"], dict):
        return False
    if not _is_count(row["size"]) or row["size"] == 0 or not _is_number(row["settings"].get("large", 0)):
        return False
    if row["validation"]:
        return _is_count(row.get("chosen"))
    correct = row.get("correct")
    return isinstance(correct, list) and len(correct) > 0 and all(map(_is_count, correct))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def identity(row: Mapping[str, Any]) -> str:
    """Return the text that identifies a fold of a run."""
    return json.dumps({name: row[name] for name in IDENTITY}, sort_keys=True)


def by_fold(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tabulate one line for each fold: accuracies over restarts, and of predictors that do not use the test labels.

    Args:
        rows: as returned by `read`.

    Columns: the method and all settings; mean, max, min and mean square over restarts; roots, the mean with the cosine
    of square roots; vote, cosine, blend and chosen, where they were computed; bound, collapsed, sweeps and seconds,
    means over restarts, where they were computed.
    """
    chosen = {identity({**row, "validation": False}): row["chosen"] for row in rows if row["validation"]}
    lines = []
    for row in rows:
        if row["validation"]:
            continue
        accuracy = np.asarray(row["correct"]) / row["size"]
        line = {name: row[name] for name in ("dataset", "method", "run", "fold", "restarts")} | row["settings"]
        line |= {"mean": accuracy.mean(), "max": accuracy.max(), "min": accuracy.min()}
        line |= {"square": (accuracy**2).mean(), "settings": json.dumps(row["settings"], sort_keys=True)}
        if "roots" in row:
            line["roots"] = np.mean(row["roots"]) / row["size"]
        right = {**row, "chosen": chosen.get(identity(row))}
        line |= {name: right[name] / row["size"] for name in PREDICTORS if right.get(name) is not None}
        for name in ("bound", "collapsed", "sweeps", "seconds"):
            if row.get(name):
                line[name] = float(np.mean(row[name]))
        lines.append(line)
    return pd.DataFrame(lines)
