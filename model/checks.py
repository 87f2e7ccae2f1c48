"""Checks that many doors share."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int) -> int:
    """The value, if it is a whole number that is not less.

    >>> whole("rank", 3, 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"expected {name} to be a whole number ≥ {least}; got {value!r}")
    return int(value)
