"""Communication between processes; all processes must call each function."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

PIECE = 1 << 30  # bytes that are sent at once


def all_processes(value: Any) -> list[Any]:
    """Return a value, anything that JSON can hold, of every process; all processes must call it."""
    text = np.frombuffer(json.dumps(value, default=lambda x: x.item()).encode(), np.uint8)
    return [json.loads(bytes(part)) for part in _ragged(text)]


def concatenated(values: Any) -> np.ndarray:
    """Return the arrays of all processes one after the other, bit by bit; all processes must call it."""
    values = np.ascontiguousarray(values)
    parts = [np.frombuffer(bytes(part), values.dtype) for part in _ragged(values.reshape(-1).view(np.uint8))]
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def _ragged(content: np.ndarray) -> list[np.ndarray]:
    """Return the bytes of every process, of any length: lengths have 64 bits, and long contents are sent in pieces."""
    if jax.process_count() == 1:
        return [content]
    halves = np.array([len(content)], np.int64).view(np.uint32)  # without x64, JAX would halve an int64 silently
    lengths = np.ascontiguousarray(process_allgather(halves)).view(np.int64).ravel()
    parts: list[list[np.ndarray]] = [[] for _ in lengths]
    for begin in range(0, int(lengths.max()), PIECE):
        padded = np.zeros(min(PIECE, int(lengths.max()) - begin), np.uint8)
        own = content[begin : begin + PIECE]
        padded[: len(own)] = own
        for part, row, n in zip(parts, process_allgather(padded), lengths, strict=True):
            part.append(row[: max(0, n - begin)])
    return [np.concatenate([np.zeros(0, np.uint8), *part]) for part in parts]
