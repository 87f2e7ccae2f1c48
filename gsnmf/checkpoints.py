"""Checkpoints of a run on disk: one file, replaced as a whole, removed when the run has ended."""

from __future__ import annotations

import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .inference.engine import Snapshot
from .journal import key_of
from .model import Data
from .model.missing import label_fingerprint
from .reading import PathLike
from .writing import write_whole

FORMAT, FORMAT_VERSION = "gsnmf-checkpoint", 1
PERIOD = 30.0  # seconds between checkpoints


class Checkpoint:
    """A file from which a run resumes as if it had not been interrupted.

    Args:
        path: the file.
        mark: identifies the run, as made by `mark_of`: a file with another mark is not resumed from.
        period: seconds between checkpoints.
        due: whether it is time, given the seconds since the last checkpoint; for several processes they must agree.
        writes: whether this process writes.
    """

    def __init__(
        self,
        path: PathLike,
        mark: str,
        period: float = PERIOD,
        due: Callable[[bool], bool] = bool,
        writes: bool = True,
    ) -> None:
        self.path, self.mark, self.period = Path(path), mark, period
        self.due, self.writes = due, writes
        self.last = time.monotonic()
        self.take: Callable[[], Snapshot] | None = None

    def __call__(self, take: Callable[[], Snapshot]) -> None:
        """Write a checkpoint if it is time; what `cavi.run` takes as `checkpoint`."""
        self.take = take
        if self.due(time.monotonic() - self.last >= self.period):
            self.last = time.monotonic()
            snapshot = take()
            if self.writes:
                self.save(snapshot)

    def save_last(self) -> None:
        """Write a checkpoint of an interrupted run; not for several processes, which must agree."""
        if self.take is not None and jax.process_count() == 1:
            self.save(self.take())

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; the file is the old one or the new one at any moment."""
        about = {"format": FORMAT, "format_version": FORMAT_VERSION, "mark": self.mark, "stop": bool(snapshot.stop)}
        arrays = {f"leaf.{n}": leaf for n, leaf in enumerate(snapshot.leaves)}
        buffer = io.BytesIO()
        words = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez(buffer, about=words, last=snapshot.last, elbo=snapshot.elbo, **arrays)  # type: ignore[arg-type]  # not options
        write_whole({self.path: buffer.getvalue()})

    def load(self) -> Snapshot | None:
        """Return the snapshot of the file; None without a file."""
        if not self.path.exists():
            return None
        remedy = "remove it, or choose another --out"
        try:
            if not zipfile.is_zipfile(self.path):  # else NumPy's message would be about pickles
                raise ValueError("another kind of file, or a damaged one")
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as stored:
                about = json.loads(bytes(stored["about"]))
                leaves = [stored[f"leaf.{n}"] for n in range(sum(name.startswith("leaf.") for name in stored.files))]
                last, elbo = stored["last"], stored["elbo"]
            if about["format"] != FORMAT or about["format_version"] > FORMAT_VERSION:
                raise ValueError(f"{about['format']} in version {about['format_version']}")
            mark, stop = about["mark"], bool(about["stop"])
        except MemoryError:  # says nothing about the file
            raise
        except Exception as error:  # of another or a damaged file: from zipfile, zlib, tokenize, struct, …
            raise ValueError(f"expected a checkpoint in {self.path}; got {error} ({remedy})") from None
        if mark != self.mark:
            raise ValueError(f"expected {self.path} to be a checkpoint of this run; got that of another one ({remedy})")
        return Snapshot(leaves, last, elbo, stop)


def mark_of(data: Data, priors: Any, options: dict[str, Any]) -> str:
    """Return a mark of data, priors, options, precision and version: runs with other ones cannot resume each other.

    It does not depend on how samples are spread over processes, all of which must ask for it.
    """
    F, N = data.matrix.shape
    checksum = data.matrix.checksum(np.arange(N), N)
    marks = {"shape": (F, N), "checksum": checksum, "labels": label_fingerprint(data)}
    return f"{zlib.crc32(key_of(marks, priors, options).encode()):08x}"
