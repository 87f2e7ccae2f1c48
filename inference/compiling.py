"""Options of XLA that this package sets, where the installed version has them."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

# Loops are ordered such that few arrays are needed at a time, not such that loops can run at the same time.
LEAST_MEMORY: dict[str, Any] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


@cache
def least_memory() -> dict[str, Any]:
    """Return the options of `jax.jit` for programs whose memory counts; none if XLA, at another version, refuses them.

    >>> set(least_memory()) <= set(LEAST_MEMORY)
    True
    """
    try:
        jax.jit(lambda: 0, compiler_options=LEAST_MEMORY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return LEAST_MEMORY
