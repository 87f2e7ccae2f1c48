"""What processes tell each other; every function has to be called by all processes."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather


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
    """Return the bytes of every process, of any length."""
    if jax.process_count() == 1:
        return [content]
    lengths = process_allgather(np.array([len(content)], np.int32)).ravel()
    padded = np.zeros(lengths.max(), np.uint8)
    padded[: len(content)] = content
    return [row[:n] for row, n in zip(process_allgather(padded), lengths, strict=True)]
