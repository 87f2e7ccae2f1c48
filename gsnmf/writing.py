"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

fcntl: Any = None  # not on Windows: files still appear whole there, but two writers may interleave their pairs
with suppress(ImportError):
    import fcntl


def write_whole(contents: Mapping[Path, bytes]) -> None:
    """Write files of one folder such that, at any moment, each is the old one or the new one, also after a crash.

    Files that belong together are replaced under a lock of their folder: two writers do not leave a mixed set.

    Args:
        contents: the bytes of each file; the folder exists.
    """
    mine = f"{os.getpid()}.{threading.get_ident()}"
    temporary = {file: file.with_name(f".{file.name}.{mine}.tmp") for file in contents}
    try:
        for file, content in contents.items():
            with temporary[file].open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
        with _locked(next(iter(contents)).parent):
            for file in contents:
                os.replace(temporary[file], file)
    finally:
        for file in temporary.values():
            file.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process at the latest and leaves no file."""
    if fcntl is None:  # pragma: no cover
        yield
        return
    with ExitStack() as held:
        with suppress(OSError):  # some file systems have no locks: files then still appear whole
            handle = os.open(folder, os.O_RDONLY)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
