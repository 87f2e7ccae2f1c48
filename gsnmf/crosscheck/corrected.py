"""Draws of a refined fit whose widths and means are corrected by linear response."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..inference import Fit, linear_response
from ..model.problem import Problem
from ..model.types import Array


class Corrected(NamedTuple):
    """The response of a fit, as far as it can be had.

    draws: 1 × draws × ... by site; None if the mean field's own draws have to do.
    log_evidence: about log p(X), by fluctuations around the optimum; not a bound. NaN without draws.
    note: a sentence on why there are no draws, or about the draws; empty if all is well.
    """

    draws: dict[str, np.ndarray] | None
    log_evidence: float = math.nan
    note: str = ""


def corrected_draws(fit: Fit, problem: Problem, num_samples: int, key: Array) -> Corrected:
    """Draw with the covariance and the corrected means of linear response.

    Args:
        fit: of `cavi.refine`, at its optimum.
        problem: the problem of the fit.
        num_samples: the number of draws.
        key: a JAX key.
    """
    if problem.data.num_unlabelled > 0:
        return Corrected(None, note=f"draws need all labels, and {problem.data.num_unlabelled} are unknown")
    response = linear_response(fit, problem)
    if not response.is_dense:
        return Corrected(None, note=f"the Hessian of {response.size:,} coordinates does not fit in memory")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            draws = response.draws(num_samples, key=key, corrected=True)
        except ValueError as error:  # the bound curves upwards: not at its optimum
            return Corrected(None, note=str(error))
        value = response.log_evidence()
    late = [str(warning.message) for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    return Corrected(draws, value, late[0] if late else "")
