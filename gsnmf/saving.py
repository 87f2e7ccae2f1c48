"""Saved fits: arrays in an .npz, everything else in a .json next to it. Nothing is ever pickled."""

from __future__ import annotations

import glob
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import __version__
from .inference import Fit
from .model import Data, Names, Priors
from .packing import Saved, pack, unpack
from .reading import PathLike
from .reading.matrix import as_path
from .writing import folder_locked, write_whole

__all__ = ["Saved", "load_fit", "pair", "save_fit"]

# 2: the kind of bound, and factors other than Gammas; 3: more priors; 4: the data, and the shape of images;
# 5: sparse X, and the state of a stream; 6: one checksum over both files; 7: the mark of a stream
FORMAT, FORMAT_VERSION = "gsnmf-fit", 7


def save_fit(
    path: PathLike,
    fit: Fit,
    priors: Priors | None,
    names: Names | Data,
    *,
    image_shape: Any = None,
    seconds: float | None = None,
) -> Path:
    """Write the arrays to `path`.npz and everything else, readable by people, to `path`.json; return the first path.

    Each file appears whole or not at all; one checksum over both shows `load_fit` whether they belong together and
    are as they were saved. docs/saved.md describes the format.

    Files of these names are replaced, whatever they are; `gsnmf fit` refuses that.

    Args:
        path: with or without .npz; its folder must exist.
        fit: from `cavi.run` or `svi.run`; any precision, restored bit by bit.
        priors: None for those of the fit; others are refused.
        names: `data.names`; or the data, which are then saved with the fit, so that a report needs nothing else.
        image_shape: height and width if samples are images, or height × width of booleans, true at the pixels that
            are features.
        seconds: duration of the fit.
    """
    npz, text = pair(path)
    content, about = pack(fit, priors, names, image_shape=image_shape, seconds=seconds)
    if not npz.parent.is_dir():
        raise ValueError(f"expected a folder that exists; got {npz.parent}")
    described = {"format": FORMAT, "format_version": FORMAT_VERSION, "gsnmf_version": __version__} | about
    described["sha256"] = _checksum(content, described)
    write_whole({npz: content, text: (json.dumps(described, indent=1) + "\n").encode()})
    return npz


def load_fit(path: PathLike) -> Saved:
    """Load a fit saved by `save_fit`, with NumPy arrays throughout.

    Args:
        path: with or without .npz.
    """
    npz, text = pair(path)
    left = sorted(text.parent.glob(f".{glob.escape(text.name)}.*.tmp"))  # by a process killed between the two files
    for file in (npz, text):
        if not file.is_file() and not (left and file == text):
            raise ValueError(f"expected a saved fit in {npz} and {text.name}; got no file {file}")
    content, description = _read_pair(npz, text, left)
    if not _belongs(content, description):  # perhaps they are just being replaced: once more, while nobody writes
        with folder_locked(npz.parent):
            content, description = _read_pair(npz, text, left)
    if not _belongs(content, description):
        raise ValueError(
            f"expected {npz} and {text.name} as they were saved; got contents with SHA-256 "
            f"{_checksum(content, description)[:12]}…: one of them is from another fit, was edited or is damaged"
        )
    try:
        return unpack(content, description)
    except Exception as error:  # of other arrays and descriptions: from zipfile, zlib, tokenize, struct, NumPyro, …
        raise ValueError(f"expected {text} to describe the arrays of {npz.name}; got {error!r}") from None


def _read_pair(npz: Path, text: Path, left: list[Path]) -> tuple[bytes, dict[str, Any]]:
    """Return the arrays, and the description that belongs to them, also from files that a killed process left."""
    content = npz.read_bytes()
    description = _read_description(text if text.is_file() else left[0])
    if not _belongs(content, description):
        description = next((d for d in map(_readable, left) if d and _belongs(content, d)), description)
    return content, description


def _belongs(content: bytes, description: dict[str, Any]) -> bool:
    """Return whether the checksum in a description is that of these arrays and of itself."""
    if description["format_version"] < 6:
        return bool(hashlib.sha256(content).hexdigest() == description.get("sha256_of_npz"))
    return _checksum(content, description) == description.get("sha256")


def _readable(text: Path) -> dict[str, Any] | None:
    with suppress(ValueError, OSError):
        return _read_description(text)
    return None


def _read_description(text: Path) -> dict[str, Any]:
    """Return the description, in a version that is known."""
    try:
        description = json.loads(text.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected {text} to be JSON written by save_fit; got {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        got = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise ValueError(f"expected {text} to have format {FORMAT!r}; got {got!r}")
    version = description.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"expected {text} in format version {FORMAT_VERSION} or older; got {version!r}, "
            f"written by gsnmf {description.get('gsnmf_version')} (this is {__version__})"
        )
    return description


def _checksum(npz: bytes, description: dict[str, Any]) -> str:
    """Return the SHA-256 of the arrays and of everything in the description except the checksum itself."""
    rest = {key: value for key, value in description.items() if key != "sha256"}
    return hashlib.sha256(hashlib.sha256(npz).digest() + json.dumps(rest, sort_keys=True).encode()).hexdigest()


def pair(path: PathLike) -> tuple[Path, Path]:
    """Return the two files of a fit; only .npz and .json count as suffixes, so that fit.v2 becomes fit.v2.npz."""
    path = as_path(path)
    stem = path.stem if path.suffix in (".npz", ".json") else path.name
    if not stem or path.name == "..":
        raise ValueError(f"expected the name of a file; got {str(path)!r}")
    return path.with_name(f"{stem}.npz"), path.with_name(f"{stem}.json")
