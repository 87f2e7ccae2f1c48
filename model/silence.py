"""Warnings that can be silenced in one thread only.

The filters of `warnings` belong to all threads: several of them would restore each other's filters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of odd choices, and of fits that did not converge or have unused components."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn(message: str, category: type[Warning], stacklevel: int) -> None:
    """Warn unless within `quiet`.

    Args:
        message: of the warning.
        category: of the warning.
        stacklevel: as in `warnings.warn`, counted from the caller.
    """
    if not _silent.get():
        warnings.warn(message, category, stacklevel=stacklevel + 1)
