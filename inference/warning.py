"""Warnings of fits."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

from ..model.silence import quiet, warn

__all__ = ["ConvergenceWarning", "DeadComponentsWarning", "quiet", "warn"]


class DeadComponentsWarning(UserWarning):
    """A warning that some components explain nothing."""
