"""Mean-field coordinate ascent in closed form (CAVI): the paper's algorithm, plain or with momentum."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.checks import whole
from ..model.compressed import is_sparse
from ..model.conjugacy import rate_shape, require_closed_forms
from ..model.data import Data, with_several
from ..model.missing import marks_of
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .bound import bound, paper_bound, paper_bound_gap
from .components import warn_of_dead
from .convergence import Schedule, find_fall
from .engine import Snapshot, run_batch, run_one
from .hyper import Learn, learn, tie
from .labels.warm_start import Labelling, begins_warm, joined, label_posterior, labelled, labelling, labelling_for
from .moments import Moments, Transposed
from .momentum import State, anneal, plain
from .observations import Observations, form_of, observe
from .posterior import Fit, Posterior
from .refinement import refine
from .results import match, rank_of
from .sharding import ShardedMatrix, require_alike
from .starts import Start, check_lam_start, check_method, fill, first_moments, start, start_at_shape
from .stream import stream, stream_bound
from .sweep import moments, sweep
from .warning import quiet

__all__ = [
    "Labelling", "Learn", "Moments", "Snapshot", "State", "bound", "init", "labelling", "labelling_for", "learn",
    "paper_bound", "paper_bound_gap", "refine", "run", "run_many", "start", "start_at_shape", "step", "stream",
    "stream_bound",
]  # fmt: skip
LOG = logging.getLogger("gsnmf")


class Beginning(NamedTuple):
    """Start of a run; the fields are the arguments of `run` by the same names.

    start: means, a posterior, or None.
    """

    key: Array | None
    start: Start | Posterior | None
    init: str
    lam_start: str
    labels: Labelling | None


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
    problem = _problem(data, priors, rank, begun)
    return _begin(problem, data, priors, Beginning(key, begun, init, lam_start, labels))[1]


def _problem(data: Data, priors: Priors, rank: int | None, start: Any) -> Problem:
    problem = Problem(data, priors, rank_of(start) if isinstance(start, Posterior) and rank is None else rank)
    require_closed_forms(problem.priors, "coordinate ascent")
    if isinstance(data.X, ShardedMatrix):
        require_alike(problem.priors)
    return problem


def _begin(
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
        seen, state = _begin(part, some, priors, alone)
        fit = run_one(seen, part.priors, [state], Schedule(priors, 300, 1e-5, True, None))
    return joined(problem, fit)


def _placeholder(data: Observations, priors: Priors, m: Moments) -> Transposed:
    """Return factors of the shapes that a sweep gives them: their scales are only as large as the priors make them."""
    shapes, _ = jax.eval_shape(sweep, data, priors, m)
    return data.labels.blank(shapes)


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


def _with_ties(problem: Problem, seen: Observations, state: State, learn: Learn | None) -> State:
    """Return the state with fields for learned hyperparameters."""
    if learn is None:
        return state
    data, priors, K = problem
    of_V = rate_shape(priors.coefficients, data, K) or (K, data.num_samples)
    tied = tie(priors, learn, {"dictionary": (data.num_features, K), "coefficients": of_V})
    return state._replace(factors=_placeholder(seen, tied, state.moments), priors=tied)


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
    problem = _problem(data, priors, rank, begun)
    if resume is not None:  # the values of a start are of no use, only its shapes
        begun = Start(np.ones((data.num_features, problem.rank)), np.ones((problem.rank, data.num_samples)))
        labels = (labelling() if labels is None else labels)._replace(annealing=0)
    LOG.info("JAX compiles the first sweeps of each shape and set of options, which takes seconds")
    seen, state = _begin(problem, data, priors, Beginning(key, begun, init, lam_start, labels))
    initial, hyper = [_with_ties(problem, seen, state, learn)], problem.priors
    del problem, state  # sweeps read X in their own layout: the copy in the problem is no longer needed
    schedule = Schedule(priors, max_steps, tol, accelerate, learn)
    fit = run_one(seen, hyper, initial, schedule, callback, checkpoint, resume)._replace(**marks_of(data))
    _warn([fit], [data], tol)
    return fit


def run_many(
    data: Data | Sequence[Data],
    priors: Priors,
    *,
    keys: Array | Sequence[Array],
    start: Start | None = None,
    init: str = "random",
    lam_start: str = "prior",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
    batch: bool | None = None,
) -> list[Fit]:
    """Fit once for each key: restarts on the same data, or folds of equal shape.

    Args:
        data: one for all keys, or one for each, all of the same shape with the same groups.
        priors: the same for all.
        keys: JAX keys, as from `jax.random.split`.
        start: as in `run`, the same for all.
        init: as in `run`.
        lam_start: as in `run`.
        rank: as in `run`.
        max_steps: as in `run`.
        tol: as in `run`.
        accelerate: as in `run`.
        learn: as in `run`; each fit learns its own.
        labels: as in `run`.
        batch: whether all fits are one batch under `jax.vmap`, each sweep one call for all of them, or are made one
            after another. None takes the cheaper way: a batch on accelerators, one after another on CPUs, where the
            products of one fit occupy all cores already and a batch has to be compiled for every size (`make bench`
            shows both). Fits of a sparse X are always made one after another.

    Returns the fits in the order of the keys. One warning covers all that did not converge, and one all with unused
    components.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fits = run_many(data, priors, keys=jax.random.split(jax.random.key(0), 3), rank=1)
    >>> max(fits, key=lambda fit: fit.elbo[-1]).posterior.T.mean.shape
    (2, 1)
    """
    check_options(max_steps, tol, accelerate, learn, labels)
    several = list(keys) if isinstance(keys, (list, tuple)) or getattr(keys, "ndim", 0) > 0 else []
    if not several:
        raise ValueError(f"expected several keys, jax.random.split(key, n); got {keys!r}")
    keys = several
    shared = isinstance(data, Data)
    given = _check_datas(data, len(keys))
    datas = _alike(given)
    batched = _in_one_batch(given, batch)
    begun: Any = start.posterior if isinstance(start, Fit) else start
    problems = [_problem(d, priors, rank, begun) for d in datas]
    observed: list[Observations] = []
    states: list[State] = []
    for n, key in enumerate(keys):
        one = 0 if shared else n
        beginning = Beginning(key, begun, init, lam_start, labels)
        ready = observed[one] if len(observed) > one else None
        seen, state = _begin(problems[one], datas[one], priors, beginning, ready)
        observed += [seen] if len(observed) <= one else []
        states.append(_with_ties(problems[one], seen, state, learn))
    hyper = problems[0].priors
    del problems
    schedule = Schedule(priors, max_steps, tol, accelerate, learn)
    if batched:
        together = observed[0] if shared else _stack(observed)
        fits = run_batch(together, hyper, _stack(states), schedule, shared)
    else:
        pairs = zip(observed * len(keys) if shared else observed, states, strict=True)
        fits = [run_one(seen, hyper, [state], schedule) for seen, state in pairs]
    of = given * len(keys) if shared else given
    marks = [marks_of(d) for d in given] * (len(keys) if shared else 1)
    fits = [fit._replace(**mark) for fit, mark in zip(fits, marks, strict=True)]
    _warn(fits, of, tol)
    return fits


def _check_datas(data: Any, number: int) -> list[Data]:
    """Return one `Data`, or one for each key if all have one shape."""
    datas: list[Any] = [data] if isinstance(data, Data) else list(data) if isinstance(data, (list, tuple)) else [None]
    if not all(isinstance(d, Data) for d in datas):
        raise ValueError(f"expected Data, as made by as_data, or a list of them; got {type(data).__name__}")
    shapes = {(*d.matrix.shape, tuple(d.names.group.tolist()), d.num_unlabelled, _prior_of_labels(d)) for d in datas}
    if not isinstance(data, Data) and (len(datas) != number or len(shapes) > 1):
        raise ValueError(
            f"expected one Data, or {number} of one shape with the same groups (features, samples, groups, unlabelled "
            f"samples, the prior of labels); got {len(datas)} of {sorted(shapes, key=str)}"
        )
    return datas


def _in_one_batch(datas: list[Data], batch: bool | None) -> bool:
    """Return whether all fits are one batch."""
    if not any(map(is_sparse, datas)):
        return jax.default_backend() != "cpu" if batch is None else batch
    if batch:
        raise ValueError(f"expected batch=False for a sparse X, whose fits are made in turn; got batch={batch}")
    return False


def _alike(datas: list[Data]) -> list[Data]:
    """Return the data such that all have a mask, and state multi-label samples, if one does."""
    if len({d.mask is None for d in datas}) > 1 and not any(map(is_sparse, datas)):
        datas = [d if d.mask is not None else d._replace(mask=np.ones(d.matrix.shape, bool)) for d in datas]
    if len({d.several is None for d in datas}) > 1:
        datas = [d._replace(labels=with_several(d)) for d in datas]
    return datas


def _prior_of_labels(data: Data) -> str:
    """Return the kind of prior of unlabelled samples, in words."""
    u = None if data.labels is None else data.labels.dirichlet
    return "weights" if u is None else f"Dirichlet of {np.shape(u)}"


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def check_options(
    max_steps: int,
    tol: float | None,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
) -> None:
    """Raise for options of `run` that are not what they should be."""
    whole("max_steps", max_steps, 1)
    if tol is not None and not (isinstance(tol, (int, float, np.number)) and 0 <= tol < np.inf):
        raise ValueError(f"expected tol to be None or a number ≥ 0; got {tol!r}")
    if not isinstance(accelerate, (bool, np.bool)):
        raise ValueError(f"expected accelerate to be True or False; got {accelerate!r}")
    if learn is not None and not isinstance(learn, Learn):
        raise ValueError(f"expected learn to be None or made by cavi.learn; got {learn!r}")
    if labels is not None and not isinstance(labels, Labelling):
        raise ValueError(f"expected labels to be None or made by cavi.labelling; got {labels!r}")


def _fell(fit: Fit) -> bool:
    """Return whether the bound fell by more than rounding."""
    return find_fall(fit.elbo, np.dtype(fit.posterior.T.a.dtype).itemsize) is not None


def _warn(fits: list[Fit], datas: list[Data], tol: float | None) -> None:
    """Warn once of fits that did not reach their tolerance or are not finite, and once of unused components."""
    late = [fit for fit in fits if not (fit.converged if tol is not None else fit.is_finite and not _fell(fit))]
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        warnings.warn(count + late[0].message, ConvergenceWarning, stacklevel=3)
    warn_of_dead(fits, datas, stacklevel=3)
