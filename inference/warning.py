"""Warnings of fits, and a context manager that silences them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.exceptions import ConvergenceWarning


class DeadComponentsWarning(UserWarning):
    """A warning that some components explain nothing."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of fits that did not converge or have unused components."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DeadComponentsWarning)
        yield
