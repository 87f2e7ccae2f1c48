"""Results on disk: one line of JSON for every fold, appended as soon as it is known."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# Fields that identify a fold: a resumed run skips the folds that the file has already.
IDENTITY = (
    "dataset", "fingerprint", "version", "precision", "method", "settings", "run", "fold", "folds", "restarts",
    "validation", "bounds",
)  # fmt: skip
PREDICTORS = ("vote", "cosine", "blend", "chosen")


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row, and ensure that it is on the disk before returning."""
    with path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        whole = file.tell() == 0 or (file.seek(-1, os.SEEK_END), file.read())[1] == b"\n"
        file.write(b"" if whole else b"\n")  # the last line may have been cut off by a crash
        file.write(json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(paths: Path | Sequence[Path]) -> list[dict[str, Any]]:
    """Read all rows of one or several files; a row that was cut off is left out, so that its fold is computed again.

    Args:
        paths: files written by `append`.
    """
    rows = []
    for path in [paths] if isinstance(paths, Path) else paths:
        if not path.is_file():
            raise ValueError(f"expected a file of results; got {path}, which does not exist")
        for line in path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                row = {"command": ""} if line.startswith(b'{"') else None  # a row cut off by a crash
            if not isinstance(row, dict) or not ("command" in row or row.keys() >= set(IDENTITY)):
                raise ValueError(
                    f"expected {path} to hold results of `gsnmf reproduce` or `gsnmf sweep`; got the line {line[:50]!r}"
                )
            rows.append(row)
    return [row for row in rows if "command" not in row]


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
