"""Warnings of fits, and a context manager that silences them in one thread only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sklearn.exceptions import ConvergenceWarning

__all__ = ["ConvergenceWarning", "DeadComponentsWarning", "quiet", "warn"]

_silent: ContextVar[bool] = ContextVar("silent", default=False)


class DeadComponentsWarning(UserWarning):
    """A warning that some components explain nothing."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of fits that did not converge or have unused components.

    The filters of `warnings` belong to all threads: fits in several of them would restore each other's filters.
    """
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn(message: str, category: type[Warning], stacklevel: int) -> None:
    """Warn of a fit unless within `quiet`.

    Args:
        message: of the warning.
        category: `ConvergenceWarning` or `DeadComponentsWarning`.
        stacklevel: as in `warnings.warn`, counted from the caller.
    """
    if not _silent.get():
        warnings.warn(message, category, stacklevel=stacklevel + 1)
