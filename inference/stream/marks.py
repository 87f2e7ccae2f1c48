"""Marks of streams: a saved stream resumes with the same samples, labels, order and priors only."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from ..posterior import Fit, StreamMark

FEW = 16  # samples whose values stand for those of all: a stream is not read as a whole in advance
WORDS = {
    "features": "number of features",
    "samples": "number of samples",
    "values": "X",
    "names": "groups",
    "labels": "labels of samples",
    "key": "key or seed",
    "batch_size": "batch size",
    "block": "block",
    "priors": "priors",
}
CHECKSUMS = ("values", "names", "labels", "key", "priors")


def checksum(content: bytes) -> int:
    """Return a number of 31 bits, which every integer type of JAX holds."""
    return zlib.crc32(content) & 0x7FFFFFFF


def checksum_of_values(values: Any) -> int:
    """Return a checksum of the same bits for dense and sparse matrices; 0 for what is not numbers."""
    values = values.toarray() if hasattr(values, "toarray") else values
    try:
        return checksum(np.ascontiguousarray(values, float).tobytes())
    except (TypeError, ValueError):  # `as_data` says what is wrong with them
        return 0


def checksum_of_names(names: Iterable[Any]) -> int:
    """Return a checksum of names as text."""
    return checksum("\x1f".join(map(str, names)).encode())


def checksum_of_priors(priors: Any) -> int:
    """Return a checksum of families and numbers."""
    arrays = [np.ascontiguousarray(leaf, float) for leaf in jax.tree.leaves(priors)]
    shapes = str([type(part).__name__ for part in priors] + [array.shape for array in arrays])
    return checksum(shapes.encode() + b"".join(array.tobytes() for array in arrays))


def require_same_stream(done: Fit | None, mark: StreamMark | None) -> None:
    """Raise if a stream would resume with something else; streams without a mark are taken as they are.

    Args:
        done: the stream so far; None for a new one.
        mark: of the stream that resumes it; None for iterables, of which nothing is known in advance.
    """
    before = None if done is None or done.stream is None else done.stream.mark
    if before is None or mark is None:
        return
    for name, old, new in zip(StreamMark._fields, before, mark, strict=True):
        if int(old) != int(new):
            said = "another one" if name in CHECKSUMS else f"{new}"
            was = "" if name in CHECKSUMS else f", {int(old)}"
            raise ValueError(f"expected the {WORDS[name]} of the stream that is resumed{was}; got {said}")
