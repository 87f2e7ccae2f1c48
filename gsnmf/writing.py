"""Files that appear whole or not at all."""

from __future__ import annotations

import glob
import os
import socket
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

fcntl: Any = None  # not on Windows: files still appear whole there, but two writers may interleave their pairs
with suppress(ImportError):
    import fcntl

HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"  # machines may share a folder


def write_whole(contents: Mapping[Path, bytes]) -> None:
    """Write files of one folder such that, at any moment, each is the old one or the new one, also after a crash.

    Files that belong together are replaced under a lock of their folder: two writers do not leave a mixed set. If not
    all of them can be replaced, the others stay under their temporary names, from which `load_fit` completes a pair.

    Args:
        contents: the bytes of each file; the folder exists.
    """
    temporary = {file: temporary_of(file) for file in contents}
    first = next(iter(contents))
    try:
        for file, content in contents.items():
            with named(file), temporary[file].open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
        with folder_locked(first.parent) as folder:
            for file in contents:
                with named(file):
                    os.replace(temporary[file], file)
            _keep_names(folder)
            for file in contents:
                _clear(file)
    finally:
        if temporary[first].exists():  # nothing was replaced
            for file in temporary.values():
                file.unlink(missing_ok=True)


def keep_name(file: Path) -> None:
    """Ensure that the name of a new file is on the disk."""
    with folder_locked(file.parent) as folder:
        _keep_names(folder)


def _keep_names(folder: int | None) -> None:
    """Ensure that the names in an open folder are on the disk: a power cut could undo them."""
    if folder is not None:
        with suppress(OSError):  # some file systems cannot
            os.fsync(folder)


def temporary_of(file: Path) -> Path:
    """Return the name under which this thread writes a file before it appears."""
    return file.with_name(f".{file.name}.{HOST}.{os.getpid()}.{threading.get_ident()}.tmp")


def _clear(file: Path) -> None:
    """Remove temporary files that processes of this machine left when they were killed."""
    for left in file.parent.glob(f".{glob.escape(file.name)}.{HOST}.*.tmp"):
        number = left.name.split(".")[-3]
        if fcntl is not None and number.isdecimal():  # on Windows, os.kill would end the process
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except (OSError, OverflowError):  # another user's process, which lives
                pass


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Raise OSErrors of writing with the file's own name, such as for a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{file} could not be written: {error.strerror or error}") from None


@contextmanager
def folder_locked(folder: Path) -> Iterator[int | None]:
    """Hold the folder's lock and return its descriptor; None if it cannot be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        yield None
        return
    try:
        with locked(handle):
            yield handle
    finally:
        os.close(handle)


@contextmanager
def locked(handle: int) -> Iterator[None]:
    """Hold the lock of an open file or folder, which ends with the process at the latest and leaves no file.

    Args:
        handle: the file's descriptor; closing it ends the lock.
    """
    if fcntl is not None:
        with suppress(OSError):  # some file systems have no locks: files then still appear whole
            fcntl.flock(handle, fcntl.LOCK_EX)
    yield
