"""Mean-field coordinate ascent in closed form (CAVI): the paper's algorithm, plain or with momentum."""

from __future__ import annotations

import logging
from collections.abc import Callable

import jax
import numpy as np

from ..model.data import Data
from ..model.missing import marks_of
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .beginning import Beginning, begin, check_options, problem_for, with_ties
from .bound import bound, paper_bound, paper_bound_gap
from .convergence import Schedule, warn_of
from .engine import Snapshot, run_one
from .hyper import Learn, learn
from .labels.warm_start import Labelling, labelling, labelling_for
from .many import run_many
from .moments import Moments
from .momentum import State, plain
from .observations import observe
from .posterior import Fit, Posterior
from .refinement import refine
from .starts import Start, start, start_at_shape
from .stream import stream, stream_bound

__all__ = [
    "Labelling", "Learn", "Moments", "Snapshot", "State", "bound", "init", "labelling", "labelling_for", "learn",
    "paper_bound", "paper_bound_gap", "refine", "run", "run_many", "start", "start_at_shape", "step", "stream",
    "stream_bound",
]  # fmt: skip
LOG = logging.getLogger("gsnmf")


def init(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    lam_start: str = "prior",
    rank: int | None = None,
    labels: Labelling | None = None,
) -> State:
    """Return the state before the first sweep; the arguments are those of `run`.

    Given means E become exp E[log] = E + 1e-12, as in the paper's program. The factors of the state are not yet
    meaningful: a start has means but no shapes.
    """
    begun = start.posterior if isinstance(start, Fit) else start
    problem = problem_for(data, priors, rank, begun)
    return begin(problem, data, priors, Beginning(key, begun, init, lam_start, labels))[1]


def step(data: Data, priors: Priors, state: State) -> tuple[State, float]:
    """Make one plain sweep; return the next state, and the bound of the state given (meaningless before the first)."""
    if not isinstance(state, State):
        raise ValueError(f"expected a State, as made by cavi.init; got {type(state).__name__}")
    problem = Problem(data, priors, state.moments.T.shape[0])
    seen = observe(problem.data, _form(state.moments))
    state, bounds = jax.jit(plain)(seen, problem.priors, state)
    return state, float(bounds.kept)


def _form(m: Moments) -> str:
    """Return the form of q that moments have; with known labels both are the same."""
    return "mean_field" if m.labels is None or m.labels.rows is None else "structured"


def run(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    lam_start: str = "prior",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
    callback: Callable[[Fit], object] | None = None,
    checkpoint: Callable[[Callable[[], Snapshot]], object] | None = None,
    resume: Snapshot | None = None,
) -> Fit:
    """Fit the mean field by sweeps of coordinate ascent.

    Args:
        data: as made by `as_data`.
        priors: the priors of T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key for the random start; not needed when `start` gives T and V.
        start: means from `cavi.start`, or a `Fit` or `Posterior` to resume from.
        init: the initialisation of what `start` leaves open: "random" (the paper's) or "groups" (T from samples of the
            group that each component is bound to). They lead to different optima.
        lam_start: where λ starts unless `start` gives it: "prior", its prior mean aˡ∘bˡ, as in the paper's program; or
            "shape", aˡ, a far weaker start. These lead to different optima, too.
        rank: the number of components, where the priors' shapes leave it open.
        max_steps: sweeps at most.
        tol: stop when the bound changes by less than this, relatively, in one sweep; None for all sweeps.
        accelerate: momentum on E[log T], E[log V], log Σ E[V] and log E[λ], and the scale step, for several times fewer
            sweeps (`make bench` counts them). A sweep that lowers the bound is dropped and momentum starts again, so
            the bound never falls, except by rounding; a dropped sweep counts as a sweep. `elbo` then holds, except for
            its last entry, the bound with q(S) as the sweep left it: valid, and below the one with q(S) at its optimum.
        learn: hyperparameters to learn with the factors, once a sweep, as made by `cavi.learn`; the fit's `priors` are
            then the learned ones, and the bounds belong to them. None for none.
        labels: how the labels of unlabelled samples are learned, as made by `cavi.labelling`, whose defaults None
            takes. With a warm start, `init` has no effect. The result is in `fit.posterior.z` and
            `fit.posterior.labels`; the sweeps of the warm start are not in `elbo`.
        callback: called with the `Fit` so far about every 25 sweeps, for progress.
        checkpoint: called about every 25 sweeps with a function that returns a `Snapshot`, which it may keep.
        resume: a `Snapshot` of a run with the same arguments, which then goes on as if it had not been interrupted.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> run(data, priors, key=jax.random.key(0), rank=1).converged
    True
    >>> from gsnmf.model import GroupSparse
    >>> data = as_data([[9, 8, 1, 0, 7], [1, 0, 8, 9, 1]], ["a", "a", "b", "b", None])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma([[1.0, 9.0], [9.0, 1.0]], 1.0)))
    >>> run(data, priors, key=jax.random.key(0)).posterior.z[4].argmax().item()
    0

    Returns a `Fit`. With `accelerate=False, tol=None` it is exactly the paper's sweep, `max_steps` times; with
    unlabelled samples, after the warm start of `labels`. A run that does not reach its tolerance says so in `status`,
    `converged`, `message` and one `ConvergenceWarning`; unused components are reported in a `DeadComponentsWarning`
    (see `in_use` and `prune`).
    """
    check_options(max_steps, tol, accelerate, learn, labels)
    for name, given, of in (("callback", callback, "a Fit"), ("checkpoint", checkpoint, "a function")):
        if given is not None and not callable(given):
            raise ValueError(f"expected {name} to be a function of {of}; got {given!r}")
    begun = start.posterior if isinstance(start, Fit) else start
    problem = problem_for(data, priors, rank, begun)
    if resume is not None:  # the values of a start are of no use, only its shapes
        begun = Start(np.ones((data.num_features, problem.rank)), np.ones((problem.rank, data.num_samples)))
        labels = (labelling() if labels is None else labels)._replace(annealing=0)
    LOG.info("JAX compiles the first sweeps of each shape and set of options, which takes seconds")
    seen, state = begin(problem, data, priors, Beginning(key, begun, init, lam_start, labels))
    initial, hyper = [with_ties(problem, seen, state, learn)], problem.priors
    del problem, state  # sweeps read X in their own layout: the copy in the problem is no longer needed
    schedule = Schedule(priors, max_steps, tol, accelerate, learn)
    fit = run_one(seen, hyper, initial, schedule, callback, checkpoint, resume)._replace(**marks_of(data))
    warn_of([fit], [data], tol)
    return fit
