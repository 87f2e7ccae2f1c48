"""Runs of sweeps: the loop around them, on the device and on the host, and snapshots of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.priors import Priors
from ..model.special import computed_by
from ..model.types import Array
from . import native
from .compiling import least_memory
from .convergence import Schedule, as_fit
from .hyper import Learn
from .momentum import State, accelerated, plain, without_momentum
from .observations import Observations
from .posterior import Fit

CHUNK = 25  # sweeps between returns to the host: progress, Ctrl-C, checkpoints


class Progress(NamedTuple):
    """Progress of a chunk of sweeps, apart from its state.

    last: the bound before the last sweep.
    n: the number of sweeps in the chunk.
    stop: whether the tolerance was met, or the bound was not finite.
    record: the bound before each sweep.
    optimum: the bound before the first sweep with q(S) at its optimum, as in `Bounds`.
    """

    last: Array
    n: Array
    stop: Array
    record: Array
    optimum: Array


def _advance(
    data: Observations,
    priors: Priors,
    state: State,
    done: Array,
    limit: Array,
    last: Array,
    tol: Array,
    accelerate: bool,
    learn: Learn | None = None,
) -> tuple[State, Progress]:
    """Sweep until `limit`, a small relative change of the bound, or a non-finite bound; at most CHUNK sweeps."""
    one = accelerated if accelerate else plain

    def ongoing(carry: tuple) -> Array:
        _, progress = carry
        return (progress.n < limit - done) & (progress.n < CHUNK) & ~progress.stop

    def body(carry: tuple) -> tuple:
        given, (last, n, _, record, optimum) = carry
        # Without it XLA moves everything that depends on the priors alone out of the loop, and compiles longer.
        held, _ = jax.lax.optimization_barrier((priors, given.momentum))  # type: ignore[no-untyped-call]  # JAX's
        with computed_by(native.log_moments if data.X.is_compiled else None):
            state, (elbo, best) = one(data, held, given, learn)
        first = done + n == 0
        small = (jnp.abs(elbo - last) <= tol * jnp.abs(elbo)) & (given.momentum != 0)  # a dropped sweep changes nothing
        stop = ~first & (~jnp.isfinite(elbo) | small)
        last, optimum = jnp.where(first, jnp.inf, elbo), jnp.where(n == 0, best, optimum)
        return state, Progress(last, n + 1, stop, record.at[n].set(elbo), optimum)

    none = jnp.zeros((), state.bound.dtype)
    begin = Progress(last, jnp.asarray(0), jnp.asarray(False), jnp.zeros(CHUNK, none.dtype), none)
    return jax.lax.while_loop(ongoing, body, (state, begin))


advance = jax.jit(_advance, static_argnames=("accelerate", "learn"))


@cache
def advance_in_place() -> Callable[..., tuple[State, Progress]]:
    """Return the same, for a sparse X with less memory: the arrays of the state become those of the next one."""
    static = ("accelerate", "learn")
    return jax.jit(_advance, static_argnames=static, donate_argnames="state", compiler_options=least_memory())


class Snapshot(NamedTuple):
    """A run between two sweeps, on the host: resumed from it, the run goes on as if it had not been interrupted.

    leaves: the arrays of the state, rows of V in the order of samples.
    last: the bound before the last sweep.
    elbo: the bound before each sweep.
    stop: whether the run had ended.
    """

    leaves: list[np.ndarray]
    last: np.ndarray
    elbo: np.ndarray
    stop: bool

    @property
    def num_steps(self) -> int:
        """The number of sweeps made."""
        return len(self.elbo)


def run_one(
    data: Observations,
    priors: Priors,
    begun: list[State],
    schedule: Schedule,
    callback: Callable[[Fit], object] | None = None,
    checkpoint: Callable[[Callable[[], Snapshot]], object] | None = None,
    resume: Snapshot | None = None,
) -> Fit:
    """Run sweeps from a state, or from a snapshot, until the run has converged or made all its sweeps.

    The state is taken out of its list: if nothing else refers to it, it occupies no memory during the run.
    """
    in_place = data.X.in_place
    each = partial(advance_in_place() if in_place else advance, accelerate=schedule.accelerate, learn=schedule.learn)
    state, last, threshold = _begin(begun.pop(), schedule.tol, schedule.accelerate)
    stage = _Stage(state, last, False, [])
    if resume is not None:
        stage = _Stage(_restored(data, state, resume), jnp.asarray(resume.last, last.dtype), resume.stop, [resume.elbo])
    if in_place:
        stage = stage._replace(state=_own_arrays(stage.state))
    del state

    def fit() -> Fit:
        """Return the result so far. Its last bound is formed first, if X is dense in one more sweep."""
        state, last, stop, elbos, _ = stage.read()
        if in_place:
            optimum, labels = _optimum(data, state)
            factors = state.factors._replace(lam=_own_arrays(state.factors.lam), labels=_own_arrays(labels))
            return as_fit(state._replace(factors=factors), elbos, optimum, stop, schedule)
        after, progress = each(data, priors, without_momentum(state), 0, 1, last, threshold)
        return as_fit(_settled(data, state, after), elbos, progress.optimum, stop, schedule)

    def snapshot() -> Snapshot:
        """Return the run so far, on the host."""
        state, last, stop, elbos, _ = stage.read()
        leaves = [data.labels.off_devices(leaf) for leaf in jax.tree.leaves(state)]
        return Snapshot(leaves, np.asarray(last), np.concatenate(elbos), stop)

    while stage.done < schedule.max_steps and not stage.stop:
        # First what the sweeps will leave, before anybody waits for them: sweeps of a sparse X overwrite the state that
        # they begin from, and an interruption at any moment must leave a stage from which a snapshot can be taken.
        stage = stage.followed(*each(data, priors, stage.state, stage.done, schedule.max_steps, stage.last, threshold))
        stage = stage.read()
        if checkpoint is not None:
            checkpoint(snapshot)
        if callback is not None:
            callback(fit())
    return fit()


class _Stage(NamedTuple):
    """A run between two chunks of sweeps: fields as in `Snapshot`, the bounds in parts.

    ahead: the progress of a chunk that has begun, of which `state` is the state after it and the other fields are not.
    """

    state: State
    last: Array
    stop: bool
    elbos: list[np.ndarray]
    ahead: Progress | None = None

    @property
    def done(self) -> int:
        """The number of sweeps made."""
        return sum(map(len, self.elbos))

    def followed(self, state: State, progress: Progress) -> _Stage:
        """Return the stage of a chunk that has begun."""
        return self._replace(state=state, ahead=progress)

    def read(self) -> _Stage:
        """Wait for a chunk that has begun, and return the stage after it."""
        if self.ahead is None:
            return self
        record = np.asarray(self.ahead.record, float)[: int(self.ahead.n)]
        return _Stage(self.state, self.ahead.last, bool(self.ahead.stop), [*self.elbos, record])


def _restored(data: Observations, state: State, snapshot: Snapshot) -> State:
    """Return the state of a snapshot; raise if it is not one of the same problem and options."""
    leaves, structure = jax.tree.flatten(state)
    if len(leaves) != len(snapshot.leaves):
        raise ValueError(
            f"expected a snapshot of a run with the same options, {len(leaves)} arrays; got {len(snapshot.leaves)}"
        )
    placed = [data.labels.on_devices(new, old) for new, old in zip(snapshot.leaves, leaves, strict=True)]
    for new, old in zip(placed, leaves, strict=True):
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise ValueError(
                f"expected a snapshot of the same problem, with an array of {old.dtype} {old.shape}; "
                f"got {new.dtype} {new.shape}"
            )
    restored: State = jax.tree.unflatten(structure, placed)
    return restored


def run_batch(data: Observations, priors: Priors, state: State, schedule: Schedule, shared: bool) -> list[Fit]:
    """Run several states at once, stacked along a first axis; so are the data, unless they are `shared`."""
    R = len(state.bound)
    one = partial(advance, accelerate=schedule.accelerate, learn=schedule.learn)
    each = jax.vmap(one, in_axes=(None if shared else 0, None, 0, 0, 0, 0, None))
    state, last, threshold = _begin(state, schedule.tol, schedule.accelerate)
    done, stop = np.zeros(R, int), np.zeros(R, bool)
    elbos: list[list[np.ndarray]] = [[] for _ in range(R)]
    while ((done < schedule.max_steps) & ~stop).any():
        limit = np.where(stop, done, schedule.max_steps)  # a fit that has stopped makes no more sweeps
        state, progress = each(data, priors, state, done, limit, last, threshold)
        last, n = progress.last, np.asarray(progress.n)
        for r in range(R):
            elbos[r].append(np.asarray(progress.record[r], float)[: n[r]])
        done, stop = done + n, stop | np.asarray(progress.stop)
    after, progress = each(data, priors, without_momentum(state), 0 * done, 0 * done + 1, last, threshold)
    state = _settled(data, state, after)
    states = [jax.tree.map(lambda x, r=r: x[r], state) for r in range(R)]
    return [as_fit(states[r], elbos[r], progress.optimum[r], bool(stop[r]), schedule) for r in range(R)]


def _own_arrays(tree: Any) -> Any:
    """Return the same values in arrays that nothing else refers to, and that may be overwritten."""
    return jax.tree.map(lambda x: jax.device_put(np.array(x)), tree)


@jax.jit
def _optimum(data: Observations, state: State) -> tuple[Array, Any]:
    """Return the bound with q(S) at its optimum, and the factors of labels, with the q(z) that is found with it."""
    S = data.labels.allocate(data.X, without_momentum(state).moments)
    labels = state.factors.labels if S.labels is None else state.factors.labels._replace(z=S.labels)
    return state.terms + S.log_ratio, labels


def _settled(data: Observations, state: State, after: State) -> State:
    """Return the state with q(z) at its optimum, which in the structured form is the first result of the next sweep."""
    return state._replace(factors=data.labels.settle(state.factors, after.factors))


def _begin(state: State, tol: float | None, accelerate: bool) -> tuple[State, Array, Array]:
    """Return the state with or without a field for momentum, the bound before it, and the tolerance as a number."""
    state = state._replace(reached=state.moments if accelerate else None)
    dtype = state.bound.dtype
    return state, jnp.full(state.bound.shape, jnp.inf, dtype), jnp.full((), -1.0 if tol is None else tol, dtype)
