"""The run of a stream: its options, step sizes, progress and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from ...model.checks import whole
from ...model.data import Data
from ...model.priors import Gamma, Priors, canonical
from ...model.problem import Problem
from ...model.types import Array
from ..labels.warm_start import Labelling, labelling
from ..moments import turned
from ..posterior import Fit, Posterior, StreamMark, StreamState
from ..starts import Start, check_lam_start, check_method
from ..warning import warn
from .batches import Labelled, Source, open_batches
from .begin import first_factors, held, observe_batch, problem_of_batch
from .marks import checksum_of_priors, require_same_stream
from .step import Globals, Outcome, Weights, step

CHUNK = 25  # batches between checkpoints
LATE = 4  # power of n by which batch n counts in the average: the last fifth has most of the weight
SHOWN = 100  # batches whose mean estimate of the bound is shown


class StreamSchedule(NamedTuple):
    """Options of a stream: arguments of `stream` by the same names."""

    passes: int
    delay: float
    decay: float
    local_steps: int
    local_tol: float
    accelerate: bool
    average: bool
    labels: Labelling

    def rho(self, n: int) -> float:
        """Return ρ_n = (τ₀ + n)^(−κ)."""
        return float((self.delay + n) ** -self.decay)

    def recent(self, n: int) -> float:
        """Return the weight of the factors after batch n in the average."""
        return (LATE + 1) / (LATE + 1 + n) if self.average else 1.0

    def beta(self, n: int) -> float:
        """Return the weight of the evidence for labels, which grows from 0 to 1 while the stream anneals."""
        return min(1.0, n / self.labels.annealing) if self.labels.annealing else 1.0


class StreamProgress(NamedTuple):
    """The state of a stream between two batches.

    q: the global factors.
    average: their average.
    samples: the number of samples that it has learned from.
    groups: the same by group; None without groups.
    elbo: the estimates of the bound, one for each batch.
    pending: the outcome of the last step, if it may still be computed, and the size of its batch.
    """

    q: Globals
    average: Globals
    samples: float
    groups: np.ndarray | None
    elbo: list[float]
    pending: tuple[Outcome, int] | None = None


def stream(
    batches: Any,
    priors: Priors,
    *,
    groups: Any = None,
    key: Array | None = None,
    num_samples: int | None = None,
    group_names: Sequence[Any] | None = None,
    label_prior: Array | None = None,
    batch_size: int | None = None,
    block: int | None = None,
    passes: int = 1,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    lam_start: str = "prior",
    rank: int | None = None,
    delay: float = 1.0,
    decay: float = 0.51,
    local_steps: int = 20,
    local_tol: float = 1e-3,
    accelerate: bool = True,
    average: bool = True,
    labels: Labelling | None = None,
    progress_bar: bool = False,
    callback: Callable[[Fit], object] | None = None,
) -> Fit:
    """Fit the mean field to batches of samples, by stochastic variational inference in closed form.

    Args:
        batches: a matrix, features × samples: an array, a memory map, a SciPy sparse matrix, or anything with a `shape`
            that returns columns by `X[:, rows]`; or `Data`. Batches are drawn from it in random order, a new one in
            every pass. Or an iterable of batches, `Data` or pairs (X, groups); or a function without arguments that
            returns such an iterable, once for every pass. These are taken in their order, which should be random.
        priors: of T and V, the same for all samples; their shapes fix the rank, or `rank` does.
        groups: one label per column of a matrix, as `as_data` takes them.
        key: a JAX key for the random start and the order of samples.
        num_samples: N, the size of the collection that an iterable's batches come from. By default, the number of
            samples so far in the first pass, and all of them in later passes.
        group_names: all groups in their order; needed with pairs (X, groups), as a batch may lack some of them.
        label_prior: weights of groups for unlabelled samples, as in `as_data`.
        batch_size: samples of a batch that is drawn from a matrix; by default a 32nd of all, but from 64 to 512.
        block: consecutive samples of a matrix that stay together, for files that are read faster in blocks. By default
            the matrix's own `block`; a batch, for a memory map by rows; else 1.
        passes: the number of passes over the samples.
        start: means from `cavi.start`, without V; or a `Posterior` or `Fit`, of which V is not read. A fit of a stream
            is resumed: batches that it has learned from are skipped, unless `batches` is an iterator, which goes on. Of
            a matrix, samples, groups, key, batch size and priors must then be those of the fit.
        init: as in `cavi.run`, from the samples of the first batch.
        lam_start: as in `cavi.run`.
        rank: the number of components, where the priors' shapes leave it open.
        delay: τ₀ ≥ 1 in the step size (τ₀ + n)^(−κ); the larger, the less early batches count.
        decay: κ, above ½ and at most 1: how fast step sizes fall.
        local_steps: updates of V for every batch, at most.
        local_tol: these end when E[V] changes by less than this, relatively, on average.
        accelerate: the scale step after each batch, as in `cavi.run`, for families whose λ belong to components.
        average: whether the result is an average of the factors over batches, the later the more, or the last ones.
        labels: how labels of unlabelled samples are learned, as made by `cavi.labelling`; annealing takes as many
            batches, and there is no warm start.
        progress_bar: whether to show progress, in samples a second, and the mean of the last estimates of the bound.
        callback: called with the `Fit` so far every 25 batches, for checkpoints.

    >>> from gsnmf.model import Gamma, GroupSparse, Priors
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.poisson([[9.0, 1.0] * 50, [1.0, 9.0] * 50]), ["a", "b"] * 50
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma([[1.0, 9.0], [9.0, 1.0]], 1.0)))
    >>> fit = stream(X, priors, groups=groups, key=jax.random.key(0), batch_size=20, passes=2)
    >>> fit.num_steps, fit.posterior.T.mean.shape, fit.posterior.V.mean.shape
    (10, (2, 2), (2, 0))

    Returns a `Fit` with q(T) and q(λ). No q(V) is kept, and `posterior.V` has no samples: `fold_in(fit, X)` gives the
    coefficients of these or other samples, and `stream_bound` the bound. `elbo` has an estimate for each batch, made
    with the factors before it; as a stream has no tolerance, `converged` is false. A fit is also a checkpoint: with
    `start=fit` and the other arguments as before, the result is the same as without interruption, bit by bit.
    """
    labels = labelling() if labels is None else labels
    how = StreamSchedule(passes, delay, decay, local_steps, local_tol, accelerate, average, labels)
    _check_options(how, callback)
    check_method(init)
    check_lam_start(lam_start)
    source = open_batches(batches, groups, key, Labelled(group_names, label_prior), batch_size, block)
    source = _with_size(source, num_samples)
    _require_repeatable(source, passes, batches)
    done = start if isinstance(start, Fit) and start.stream is not None else None
    mark = None if source.mark is None else source.mark._replace(priors=checksum_of_priors(canonical(priors)))
    require_same_stream(done, mark)
    rest = _read(source, passes, done)
    first = next(rest, None)
    if first is None:
        if done is None:
            raise ValueError("expected at least one batch; got none")
        return done  # it has learned from all batches already
    N, data = first
    begun = start.posterior if isinstance(start, Fit) else start
    problem = problem_of_batch(data, priors, rank, begun)
    q = first_factors(problem, data, priors, begun, N, key, init, lam_start)
    state = StreamProgress(q, q, 0.0, np.zeros(data.num_groups) if data.num_groups else None, [])
    state = state if done is None else _resumed(problem, done, q)
    seen = None if callback is None else lambda state: callback(_fit(state, priors, mark))
    with _progress(progress_bar, source, passes, int(state.samples)) as bar:
        state = _learn(problem, state, chain([first], rest), source.group_sizes, how, bar, seen)
    fit = _fit(state, priors, mark)
    if not fit.is_finite:
        warn(fit.message, ConvergenceWarning, stacklevel=2)
    return fit


def _check_options(how: StreamSchedule, callback: Any) -> None:
    whole("passes", how.passes, 1)
    whole("local_steps", how.local_steps, 1)
    for name, value, least, most in (
        ("delay", how.delay, 1, np.inf),
        ("local_tol", how.local_tol, 0, np.inf),
        ("decay", how.decay, 0.5, 1),
    ):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not (least <= value <= most and np.isfinite(value)) or (name == "decay" and value <= least):
            said = "above 0.5 and at most 1" if name == "decay" else f"a number ≥ {least}"
            raise ValueError(f"expected {name} to be {said}; got {value!r}")
    for name in ("accelerate", "average"):
        if not isinstance(getattr(how, name), (bool, np.bool)):
            raise ValueError(f"expected {name} to be True or False; got {getattr(how, name)!r}")
    if not isinstance(how.labels, Labelling):
        raise ValueError(f"expected labels to be None or made by cavi.labelling; got {how.labels!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"expected callback to be a function of a Fit; got {callback!r}")


def _with_size(source: Source, num_samples: int | None) -> Source:
    """Return the source with the number of samples that the user gave, if it has none of its own."""
    if num_samples is None:
        return source
    whole("num_samples", num_samples, 1)
    if source.num_samples not in (None, num_samples):
        raise ValueError(f"expected no num_samples, or the {source.num_samples} of the matrix; got {num_samples}")
    return source._replace(num_samples=num_samples)


def _require_repeatable(source: Source, passes: int, batches: Any) -> None:
    """Raise for several passes over an iterator."""
    if passes > 1 and not source.repeatable:
        raise ValueError(
            f"expected batches that can be read again, or a function that returns them, for passes={passes}; got an "
            f"iterator, {type(batches).__name__}, which is used up by one pass"
        )


def _read(source: Source, passes: int, done: Fit | None) -> Iterator[tuple[int, Data]]:
    """Yield the number of samples in the collection, or so far, and a batch, after those that `done` has seen."""
    skipped = done.num_steps if done is not None and source.repeatable else 0
    before = int(done.stream.samples) if done is not None and done.stream and not source.repeatable else 0
    size, n = source.num_samples, 0
    for number in range(passes):
        count = before
        for get in source.read(number):
            n += 1
            if n <= skipped and size is not None:
                continue
            data = get()
            count += data.num_samples
            if n > skipped:
                yield count if size is None else size, data
        size = count if size is None else size


def _resumed(problem: Problem, done: Fit, average: Globals) -> StreamProgress:
    """Return the state of a stream from its last fit."""
    stood: Any = done.stream
    q = held(problem, Posterior(stood.T, done.posterior.V, stood.lam))
    groups = None if stood.groups is None else np.asarray(stood.groups, float)
    return StreamProgress(q, average, float(stood.samples), groups, list(map(float, done.elbo)))


def _learn(
    problem: Problem,
    state: StreamProgress,
    batches: Iterable[tuple[int, Data]],
    sizes: np.ndarray | None,
    how: StreamSchedule,
    bar: Any,
    callback: Callable[[StreamProgress], object] | None,
) -> StreamProgress:
    """Make a step from every batch, until the bound is not finite."""
    for N, data in batches:  # a batch is read while the step before it is computed
        state = _settle(state, bar)
        if callback is not None and state.elbo and len(state.elbo) % CHUNK == 0:
            callback(state)
        if state.elbo and not np.isfinite(state.elbo[-1]):
            break
        state = _advance(problem, state, data, N, sizes, how)
    return _settle(state, bar)


def _advance(
    problem: Problem, state: StreamProgress, data: Data, N: int, sizes: np.ndarray | None, how: StreamSchedule
) -> StreamProgress:
    """Begin a step; its outcome is pending."""
    n, size = len(state.elbo), data.num_samples
    groups, seen, own = (state.groups, state.samples, 1) if sizes is None else (sizes, N, 0)
    groups = np.zeros(0) if groups is None else groups
    numbers = how.rho(n), how.recent(n), N, size, groups, seen, own, how.beta(n), how.local_tol
    weights = Weights(*(np.asarray(x, problem.dtype) for x in numbers))
    batch = observe_batch(problem, data, how.labels.form)
    steps, accelerate = how.local_steps, bool(how.accelerate)
    q, average, outcome = step(batch, problem.priors, state.q, state.average, weights, steps, accelerate)
    return state._replace(q=q, average=average, pending=(outcome, size))


def _settle(state: StreamProgress, bar: Any) -> StreamProgress:
    """Return the state with the outcome of its last step."""
    if state.pending is None:
        return state
    (bound, present, _), size = state.pending
    groups = None if state.groups is None else state.groups + np.asarray(present, float)
    state.elbo.append(float(bound))
    bar.update(size)
    bar.set_postfix_str(f"bound {np.mean(state.elbo[-SHOWN:]):.6g}", refresh=False)
    return state._replace(samples=state.samples + size, groups=groups, pending=None)


def _progress(shown: bool, source: Source, passes: int, done: int) -> Any:
    total = None if source.num_samples is None else passes * source.num_samples
    return tqdm(total=total, initial=done, disable=None if shown else True, desc="stream", unit="sample")


def _fit(state: StreamProgress, priors: Priors, mark: StreamMark | None) -> Fit:
    """Return the result so far."""
    elbo = np.asarray(state.elbo)
    finite = np.isfinite(elbo)
    message = f"The stream has made a step from each of {len(elbo)} batches, {state.samples:.0f} samples in all."
    if not finite.all():
        message = f"The bound became {elbo[~finite][0]} at batch {np.argmin(finite) + 1}."
    (T, lam), last = state.average, state.q
    none = jax.device_put(np.zeros((len(T.a), 0), T.a.dtype))
    stood = StreamState(turned(last.T), last.lam, state.samples, state.groups, mark)
    return Fit(
        Posterior(turned(T), Gamma(none, none), lam), elbo, len(elbo), False, message, priors=priors, stream=stood
    )
