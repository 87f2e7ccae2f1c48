"""All that differs between ArviZ 0.23 (InferenceData) and 1.x (xarray's DataTree)."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np


class Diagnosis(NamedTuple):
    """What ArviZ says of the chains of one quantity.

    r_hat: the rank-normalised, split one; needs two chains.
    ess_bulk, ess_tail: effective draws for the centre and for the 5 and 95 % quantiles.
    mcse: the Monte Carlo standard error of the mean.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float
    mcse: float


def diagnose(draws: np.ndarray) -> Diagnosis:
    """R-hat, effective sizes and the error of the mean; a matrix is what both generations take.

    Args:
        draws: chains × draws.
    """
    az, draws = _arviz(), np.asarray(draws, float)
    sizes = az.ess(draws, method="bulk"), az.ess(draws, method="tail", prob=(0.05, 0.95))  # 1.x has no default
    return Diagnosis(*map(float, (az.rhat(draws), *sizes, az.mcse(draws))))


def gather(groups: dict[str, Any]) -> Any:
    """Datasets by group as the object that the installed ArviZ works with."""
    az = _arviz()
    if int(az.__version__.split(".")[0]) < 1:
        return az.InferenceData(**groups)
    import xarray

    return xarray.DataTree.from_dict(groups)


def dataset(draws: Any, group: str) -> Any:
    """One group as an `xarray.Dataset`, which 1.x has within a tree."""
    found = draws[group]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.x at every first import
        import arviz

    return arviz
