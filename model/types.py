"""The one type that every module shares."""

from __future__ import annotations

from typing import Any, TypeAlias

# NumPy and JAX arrays, traced or not, and plain numbers: whatever `jnp` accepts. JAX's own `ArrayLike` has no
# arithmetic, so a precise alias would only move the imprecision into casts at every use.
Array: TypeAlias = Any
