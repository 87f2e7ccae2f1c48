"""Estimators of tests that are not about heads."""

from __future__ import annotations

from typing import Any

from gsnmf import GroupSparseNMF


def nearest_neighbour(*given: Any, **options: Any) -> GroupSparseNMF:
    """Return the estimator with the paper's classifier and one restart, which need no comparison of heads."""
    return GroupSparseNMF(*given, **{"predict_by": "nearest", "n_restarts": 1} | options)
