"""The type of arrays, which all modules share."""

from __future__ import annotations

from typing import Any, TypeAlias

# NumPy and JAX arrays, traced or not, and plain numbers: everything that `jnp` accepts. JAX's own `ArrayLike` has no
# arithmetic, so a precise alias would only move the imprecision into casts at every use.
Array: TypeAlias = Any
