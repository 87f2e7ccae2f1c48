"""Files that commands write: never an input, and nothing that gsnmf did not write itself unless --force is given."""

from __future__ import annotations

import argparse
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ..writing import temporary_of

PAGE = b"\xc2\xb7 gsnmf</title>"  # the end of the title of every report
TABLES = (b"rank,score,error,", b"algorithm,invariant,mean,")  # the columns of `gsnmf choose` and `gsnmf crosscheck`
CROSSCHECK = {"about", "reference", "invariants", "diagnostics", "summary", "sentences"}  # keys of crosscheck.json
SVG = re.compile(rb"<dc:creator>\s*<cc:Agent>\s*<dc:title>gsnmf</dc:title>")
LONGEST = 255  # bytes of a name of a file, on all common systems
HEAD = 1 << 20  # bytes of a file that are looked at


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add the option --force."""
    parser.add_argument("--force", action="store_true", help="replace files even if gsnmf did not write them")


def check_outputs(files: Iterable[Path], inputs: Iterable[Path | None], force: bool) -> None:
    """Raise before a command would replace its own input, write into it, or replace a file that gsnmf did not write.

    Args:
        files: that will be written.
        inputs: that are read; None for those that were not given.
        force: whether files by others may be replaced; inputs never are.
    """
    files = list(files)
    for file in files:
        if len(os.fsencode(temporary_of(file).name)) > LONGEST:
            raise ValueError(f"expected a shorter name of a file to write; got one of {len(file.name)} characters")
        if file.is_dir():
            raise ValueError(f"expected a file to write; got the folder {file}")
        if file.exists() and not file.is_file():
            raise ValueError(f"expected a file to write; got {file}, which is a device, a pipe or a socket")
    read = {real(path): path for path in inputs if path is not None}
    for file in files:
        for path in (real(file), *real(file).parents):
            if path not in read:
                continue
            if path == real(file) or path.is_file():
                raise _same_as_input(read[path])
            # it would be read as a part of the input the next time, or replace one
            raise ValueError(f"expected files to write outside the folder that is read; got {file} in {read[path]}")
        for path, named in read.items():
            if file.exists() and path.exists() and file.samefile(path):  # other capitals, or a second link
                raise _same_as_input(named)
    for file in files:
        if (file.exists() or file.is_symlink()) and not force and not is_own(file):
            remedy = "choose another --out" if file.suffix == ".jsonl" else "--force replaces it"  # lines are appended
            expected = "expected a new file to write, or one that gsnmf wrote"
            raise ValueError(f"{expected}; got {file}, which exists and was not written by gsnmf ({remedy})")


def _same_as_input(path: Path) -> ValueError:
    return ValueError(f"expected to write a file other than the input; got {path} for both")


def real(path: Path) -> Path:
    """Return where a path leads; unlike Path.resolve, links that lead in a circle raise nothing here."""
    return Path(os.path.realpath(path))


def is_own(file: Path) -> bool:
    """Return whether a file was written by gsnmf: see `OWN`, which says how each kind of file is recognised.

    Args:
        file: that exists.
    """
    try:
        return file.suffix.lower() in OWN and OWN[file.suffix.lower()](file)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile):
        return False


def _is_fit(file: Path) -> bool:
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        if "about.npy" in names:  # of a checkpoint
            return b"gsnmf-checkpoint" in archive.read("about.npy")
    return "elbo.npy" in names and any(name.startswith("posterior.") for name in names)


def _is_description(file: Path) -> bool:
    described = json.loads(file.read_text(encoding="utf-8"))
    return isinstance(described, dict) and (described.get("format") == "gsnmf-fit" or described.keys() >= CROSSCHECK)


def _is_journal(file: Path) -> bool:
    """Return whether a file has results of `reproduce` or `sweep`, or pieces of `choose` or `crosscheck`, or nothing.

    The first line may have been cut off.
    """
    first = _begins(file).partition(b"\n")[0]
    own = (b'{"command": ', b'{"dataset": ', b'{"format": "gsnmf-journal"')
    return first.startswith(own) or any(begin.startswith(first) for begin in own)


def _begins(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(HEAD)


OWN: dict[str, Callable[[Path], bool]] = {
    ".npz": _is_fit,
    ".json": _is_description,
    ".jsonl": _is_journal,
    ".html": lambda file: PAGE in _begins(file),
    ".csv": lambda file: _begins(file).startswith(TABLES),
    ".png": lambda file: b"tEXtSoftware\0gsnmf" in _begins(file)[:4096],  # pictures: metadata of `write_figure`
    ".svg": lambda file: SVG.search(_begins(file)) is not None,
    ".pdf": lambda file: b"/Creator (gsnmf) " in file.read_bytes()[-HEAD:],
}
