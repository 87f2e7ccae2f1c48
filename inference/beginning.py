"""The preparation of a run of sweeps: its options, problem and first state."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import jax
import numpy as np

from ..model.checks import whole
from ..model.conjugacy import rate_shape, require_closed_forms
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .convergence import Schedule
from .engine import run_one
from .hyper import Learn, tie
from .labels.warm_start import Labelling, begins_warm, joined, label_posterior, labelled, labelling
from .moments import Moments, Transposed
from .momentum import State, anneal
from .observations import Observations, form_of, observe
from .posterior import Posterior
from .results import match, rank_of
from .sharding import ShardedMatrix, require_alike
from .starts import Start, check_lam_start, check_method, fill, first_moments
from .sweep import moments, sweep
from .warning import quiet

LOG = logging.getLogger("gsnmf")


class Beginning(NamedTuple):
    """Start of a run; the fields are the arguments of `cavi.run` by the same names.

    start: means, a posterior, or None.
    """

    key: Array | None
    start: Start | Posterior | None
    init: str
    lam_start: str
    labels: Labelling | None


def check_options(
    max_steps: int,
    tol: float | None,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
) -> None:
    """Raise for options of `cavi.run` that are not what they should be."""
    whole("max_steps", max_steps, 1)
    if tol is not None and not (isinstance(tol, (int, float, np.number)) and 0 <= tol < np.inf):
        raise ValueError(f"expected tol to be None or a number ≥ 0; got {tol!r}")
    if not isinstance(accelerate, (bool, np.bool)):
        raise ValueError(f"expected accelerate to be True or False; got {accelerate!r}")
    if learn is not None and not isinstance(learn, Learn):
        raise ValueError(f"expected learn to be None or made by cavi.learn; got {learn!r}")
    if labels is not None and not isinstance(labels, Labelling):
        raise ValueError(f"expected labels to be None or made by cavi.labelling; got {labels!r}")


def problem_for(data: Data, priors: Priors, rank: int | None, start: Any) -> Problem:
    """Return the problem of a run; its rank is that of the start, if nothing else is said."""
    problem = Problem(data, priors, rank_of(start) if isinstance(start, Posterior) and rank is None else rank)
    require_closed_forms(problem.priors, "coordinate ascent")
    if isinstance(data.X, ShardedMatrix):
        require_alike(problem.priors)
    return problem


def begin(
    problem: Problem, data: Data, priors: Priors, how: Beginning, seen: Observations | None = None
) -> tuple[Observations, State]:
    """Return the data as sweeps read them and the first state.

    Args:
        problem: of data and priors.
        data: as the user gave them, for random starts in double precision at any setting of JAX.
        priors: as the user gave them, for the same reason.
        how: the start of the run.
        seen: the data as sweeps read them, if they are there already.
    """
    check_method(how.init)
    check_lam_start(how.lam_start)
    begun, labels = how.start, labelling() if how.labels is None else how.labels
    if problem.data.num_unlabelled == 0:
        labels = labels._replace(annealing=0)
    elif isinstance(begun, Posterior):
        if how.labels is None and begun.labels is not None:
            labels = labels._replace(form=form_of(begun, problem.data))
        begun = begun if begun.labels is not None else begun.with_labels(label_posterior(problem.data))
        labels = labels._replace(annealing=0)
    elif begins_warm(labels, data, begun):
        begun = _warm(problem, data, priors, how, labels)
    if problem.data.num_groups == 1:  # then a label carries no information
        labels = labels._replace(form="mean_field")
    seen = observe(problem.data, labels.form) if seen is None else seen
    if isinstance(begun, Posterior):
        m = jax.jit(moments)(seen, problem.priors, seen.labels.hold(match(begun, problem)))
    else:
        means = fill(begun, data, priors, problem.rank, how.key, how.init, how.lam_start)
        m = first_moments(means, problem.data, seen.labels)
    zero, before = (jax.device_put(np.asarray(x, problem.dtype)) for x in (0, -1))
    state = State(m, _placeholder(seen, problem.priors, m), None, zero, zero, before)
    return seen, anneal(seen, problem.priors, state, labels.annealing) if labels.annealing else state


def _warm(problem: Problem, data: Data, priors: Priors, how: Beginning, labels: Labelling) -> Posterior:
    """Return a fit to the labelled samples, and the unlabelled ones folded in under it."""
    LOG.info("warm start: the labelled samples are fitted first, then the %s others are added", data.num_unlabelled)
    some, part = labelled(data), problem.with_data(labelled(problem.data))
    alone = how._replace(init=str(labels.warm_start), labels=None)
    with quiet():  # a start need not have converged, and the run itself will warn of unused components
        seen, state = begin(part, some, priors, alone)
        fit = run_one(seen, part.priors, [state], Schedule(priors, 300, 1e-5, True, None))
    return joined(problem, fit)


def _placeholder(data: Observations, priors: Priors, m: Moments) -> Transposed:
    """Return factors of the shapes that a sweep gives them: their scales are only as large as the priors make them."""
    shapes, _ = jax.eval_shape(sweep, data, priors, m)
    return data.labels.blank(shapes)


def with_ties(problem: Problem, seen: Observations, state: State, learn: Learn | None) -> State:
    """Return the state with fields for learned hyperparameters."""
    if learn is None:
        return state
    data, priors, K = problem
    of_V = rate_shape(priors.coefficients, data, K) or (K, data.num_samples)
    tied = tie(priors, learn, {"dictionary": (data.num_features, K), "coefficients": of_V})
    return state._replace(factors=_placeholder(seen, tied, state.moments), priors=tied)
