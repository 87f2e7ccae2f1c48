"""Standard streams that lose output to a full or closed console instead of ending the command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Lossy:
    """A text stream that records its first failure to write instead of raising it.

    lost: the first failure; None if there was none.

    Args:
        stream: where text goes.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.lost: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def isatty(self) -> bool:
        """Return whether a person reads this."""
        try:
            return bool(self.stream.isatty())
        except ValueError:  # it was closed
            return False

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        try:
            self.stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self.lost = self.lost or error
        return len(text)

    def flush(self) -> None:
        """Write what is left, if that is possible."""
        try:
            self.stream.flush()
        except (OSError, ValueError) as error:
            self.lost = self.lost or error


@contextmanager
def forgiving() -> Iterator[Lossy]:
    """Let stdout and stderr lose what cannot be written, and replace characters they cannot encode; return stdout."""
    _open_missing()
    # another thread may have wrapped the streams already and restore them before this one does
    before = [stream.stream if isinstance(stream, Lossy) else stream for stream in (sys.stdout, sys.stderr)]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for stream in before:
            if isinstance(stream, io.TextIOWrapper):
                with suppress(OSError, ValueError):  # it is full, or was closed
                    stream.reconfigure(errors="replace")
        out, err = (Lossy(nowhere if stream is None else stream) for stream in before)
        sys.stdout, sys.stderr = out, err  # all other attributes are those of the stream
        try:
            yield out
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = before


def _open_missing() -> None:
    """Open closed descriptors 0 to 2, so that no file opened later takes their numbers and receives messages."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
