"""Differences between ArviZ 0.23 (InferenceData) and 1.x (xarray's DataTree), all in one place."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np


class Diagnosis(NamedTuple):
    """Convergence diagnostics of the chains of one quantity, by ArviZ.

    r_hat: rank-normalised split R-hat; needs two chains.
    ess_bulk, ess_tail: effective sample sizes for the centre and for the 5 and 95 % quantiles.
    mcse: the Monte Carlo standard error of the mean.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float
    mcse: float


def diagnose(draws: np.ndarray) -> Diagnosis:
    """Return R-hat, effective sample sizes and the error of the mean, from a matrix, which both versions of ArviZ take.

    Args:
        draws: chains × draws.
    """
    az, draws = _arviz(), np.asarray(draws, float)
    sizes = az.ess(draws, method="bulk"), az.ess(draws, method="tail", prob=(0.05, 0.95))  # 1.x has no default
    return Diagnosis(*map(float, (az.rhat(draws), *sizes, az.mcse(draws))))


class LeftOut(NamedTuple):
    """PSIS-LOO of one set of draws, by the part of X left out.

    elpd: the log density of each part given the others.
    pareto_k: the reliability of each estimate, good up to 0.7.
    """

    elpd: np.ndarray
    pareto_k: np.ndarray


def arviz_loo(draws: Any, reff: float | None = None) -> LeftOut:
    """Run `az.loo` on a result of `to_arviz`; high Pareto k are returned as values, without a warning.

    Args:
        draws: as returned by `to_arviz`, with a group log_likelihood.
        reff: the effective proportion of the draws; by default ArviZ computes it from the group posterior.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _arviz().loo(draws, pointwise=True, reff=reff)
    pointwise = found.loo_i if hasattr(found, "loo_i") else found.elpd_i
    return LeftOut(np.asarray(pointwise, float), np.asarray(found.pareto_k, float))


def likelihood_tree(log_p: np.ndarray) -> Any:
    """Return log densities as an object for `arviz_loo`, with themselves as draws of which effective sizes are taken.

    Args:
        log_p: chains × draws × parts of X.
    """
    import xarray

    X = xarray.Dataset({"X": (("chain", "draw", "part"), log_p)})
    return gather({"posterior": X, "log_likelihood": X})


def gather(groups: dict[str, Any]) -> Any:
    """Return datasets by group as the object that the installed ArviZ works with."""
    if _generation() < 1:
        return _arviz().InferenceData(**groups)
    import xarray

    return xarray.DataTree.from_dict(groups)


def dataset(draws: Any, group: str) -> Any:
    """Return one group as an `xarray.Dataset`, which is inside a tree in 1.x."""
    found = draws[group]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def _generation() -> int:
    return int(_arviz().__version__.split(".")[0])


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.x at every first import
        import arviz

    return arviz
