"""Initialisation of a stream from its first batch, and validation of later batches."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...model.conjugacy import require_closed_forms, stand_in
from ...model.data import Data
from ...model.priors import Gamma, Priors, canonical
from ...model.problem import Problem
from ...model.types import Array
from ..moments import turned
from ..observations import Observations, observe
from ..posterior import Posterior
from ..results import match, rank_of
from ..starts import Start, fill
from .batches import rounded
from .step import Globals


def problem_of_batch(data: Data, priors: Priors, rank: int | None, start: Any) -> Problem:
    """Return the problem of one batch; raise for priors that a stream cannot have."""
    given = canonical(priors)
    require_closed_forms(given, "streams")
    family = given.coefficients
    numbers = family if family.hyperprior is None else ()
    if (family.hyperprior is not None and "sample" in family.axes) or any(
        np.shape(x)[1:] not in ((), (1,)) for x in numbers
    ):
        raise ValueError("expected priors that are the same for all samples, in a stream; got numbers by sample")
    return Problem(data, priors, rank_of(start) if isinstance(start, Posterior) and rank is None else rank)


def observe_batch(problem: Problem, data: Data, form: str) -> Observations:
    """Return a batch as steps read it; raise if it does not fit the first one."""
    F, names = problem.data.num_features, problem.data.names.group.tolist()
    if data.num_features != F or data.names.group.tolist() != names:
        raise ValueError(
            f"expected every batch to have {F} features and the groups {names}; got {data.num_features} features and "
            f"{data.names.group.tolist()}"
        )
    if data.labels is not None and data.labels.dirichlet is not None:
        raise ValueError("expected weights of groups for unlabelled samples in a stream; got a Dirichlet")
    ready = Problem(rounded(data), problem.priors, problem.rank).data
    return observe(ready, "mean_field" if data.num_groups == 1 else form)  # of one group, labels carry no information


def first_factors(
    problem: Problem, data: Data, priors: Priors, start: Any, N: int, key: Array | None, init: str, lam_start: str
) -> Globals:
    """Return the global factors to begin with.

    Means become Gammas that weigh as much as the counts of a component in N samples do; with τ₀ = 1 the first step
    replaces them.
    """
    if isinstance(start, Posterior):
        return held(problem, start)
    if isinstance(start, Start) and start.V is not None:
        raise ValueError("expected a start without V, which belongs to samples, in a stream; got one with V")
    if isinstance(start, Start) and start.T is not None:  # then nothing is random
        start = start._replace(V=np.ones((problem.rank, data.num_samples)))
    means = fill(start, data, priors, problem.rank, key, init, lam_start)
    T = np.asarray(means.T, float).T + 1e-12
    a = np.full_like(T, 1 + N * data.observed_mean / problem.rank)
    lam = None
    if means.lam is not None:
        mean = np.maximum(np.asarray(means.lam, float), 1e-30)
        shape = np.broadcast_to(np.asarray(stand_in(canonical(priors).coefficients.hyperprior).a, float), mean.shape)
        lam = Gamma(shape, mean / shape)
    q: Globals = jax.tree.map(lambda x: jax.device_put(np.asarray(x, problem.dtype)), Globals(Gamma(a, T / a), lam))
    return q


def held(problem: Problem, posterior: Posterior) -> Globals:
    """Return the global factors of a posterior, in the layout of sweeps."""
    blank = np.ones((problem.rank, problem.data.num_samples))
    T, _, lam = match(Posterior(posterior.T, Gamma(blank, blank), posterior.lam), problem)
    return Globals(turned(T), lam)
