"""Validation that several modules share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .types import Array

MOST = 2**31 - 1  # what 32 bits hold, as JAX counts


def whole(name: str, value: Any, least: int, most: int = MOST) -> int:
    """Return the value if it is a whole number ≥ least, and not above most, else raise.

    >>> whole("rank", 3, 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"expected {name} to be a whole number ≥ {least}; got {value!r}")
    if value > most:
        raise ValueError(f"expected {name} to be at most {most}; got {value}")
    return int(value)


def require_fraction(name: str, value: Any) -> None:
    """Raise unless the value is one number between 0 and 1, both excluded.

    >>> require_fraction("prob", 0.9)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < 1:
        raise ValueError(f"expected {name} between 0 and 1; got {value!r}")


def require_flag(name: str, value: Any) -> None:
    """Raise unless the value is True or False.

    >>> require_flag("corrected", True)
    """
    if not isinstance(value, (bool, np.bool)):
        raise ValueError(f"expected {name} to be True or False; got {value!r}")


def require_positive(name: str, values: Array) -> None:
    """Raise unless all values are positive and finite in the precision that JAX is set to."""
    if isinstance(values, jax.core.Tracer):  # under a user's jit: it has no values
        return
    array = np.asarray(values)
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):
        if array.dtype.kind not in "biuf" or not (np.isfinite(array.astype(dtype)) & (array.astype(dtype) > 0)).all():
            shown = np.array2string(array, threshold=6)
            raise ValueError(f"expected {name} to be positive and finite in {dtype.name}; got {shown}")
