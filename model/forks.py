"""Processes forked after JAX has started: its threads do not exist there, and a computation would wait for ever."""

from __future__ import annotations

import os

from jax._src import xla_bridge  # JAX has no public way to ask whether it has started

_forked_late = False


def _remember() -> None:
    global _forked_late
    _forked_late = _forked_late or xla_bridge.backends_are_initialized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_remember)


def require_own_threads() -> None:
    """Raise in a process that was forked after JAX had started."""
    if _forked_late:
        raise RuntimeError(
            "expected a process in which JAX can run; got one that was forked after JAX had started, where it would "
            "hang: start processes by spawn or forkserver, or use joblib's loky backend or threads"
        )
