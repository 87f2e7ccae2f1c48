"""Mean-field coordinate ascent in closed form: the paper's algorithm, and the same with momentum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.data import Data
from ..model.priors import Geometric, Priors
from ..model.problem import prepare
from ..model.types import Array
from .bound import bound, bound_terms, bound_with, paper_bound, paper_bound_gap, prior_terms
from .poisson import log_base_measure, tile
from .posterior import Fit, Posterior
from .starts import Start, fill, start
from .sweep import Moments, extrapolate, moments, rescale, sweep

__all__ = [
    "Moments",
    "State",
    "bound",
    "init",
    "paper_bound",
    "paper_bound_gap",
    "run",
    "run_many",
    "start",
    "step",
    "sweep",
]

CHUNK = 25  # sweeps between two looks by the host: progress, Ctrl-C, checkpoints


class State(NamedTuple):
    """Where a run stands, and all it needs to go on.

    moments: what the next sweep reads.
    posterior: the factors after the last sweep.
    ahead: the factors that momentum made of them, whose moments these are; None in a plain run.
    bound: theirs. In a plain run still without Σ x log(M/x), which the next sweep forms anyway.
    momentum: sweeps since momentum began: −1 before the first, 0 where it was just lost.
    """

    moments: Moments
    posterior: Posterior
    ahead: Any
    bound: Array
    momentum: Array


def init(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    rank: int | None = None,
) -> State:
    """The state before the first sweep; the arguments are those of `run`.

    Given means E become exp E[log] = E + 1e-12, as in the paper's program. The factors of the state are not yet
    meaningful: a start has means but no shapes.
    """
    data, priors, K = prepare(data, priors, rank)
    if isinstance(start, Fit):
        start = start.posterior
    if isinstance(start, Posterior):
        m = moments(jax.tree.map(jnp.asarray, start))
    else:
        means = fill(start, data, priors, K, key, init)
        T, V, lam = jax.tree.map(lambda E: jnp.asarray(E, data.X.dtype), means)
        g_T = Geometric(T + 1e-12, jnp.zeros((data.num_features, 1), T.dtype))
        g_V = Geometric(V + 1e-12, jnp.zeros((1, data.num_samples), V.dtype))
        m = Moments(g_T, g_V, V, lam)
    shapes, _ = jax.eval_shape(sweep, tile(data), priors, m)
    placeholder = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), shapes)
    return State(m, placeholder, None, jnp.zeros((), data.X.dtype), -jnp.ones((), data.X.dtype))


def step(data: Data, priors: Priors, state: State) -> tuple[State, float]:
    """One plain sweep: the next state, and the bound of the state given (meaningless before the first sweep)."""
    data, priors, _ = prepare(data, priors, state.moments.g_T.value.shape[1])
    state, elbo = jax.jit(_plain)(tile(data), priors, log_base_measure(data), state)
    return state, float(elbo)


def _plain(data: Data, priors: Priors, base: Array, state: State) -> tuple[State, Array]:
    """The paper's sweep. M = g_T g_V of the state given is formed by it, and completes that state's bound."""
    q, S = sweep(data, priors, state.moments)
    terms = base + prior_terms(data, priors, q)
    return State(moments(q), q, None, terms, state.momentum + 2), state.bound + S.log_ratio


def _accelerated(data: Data, priors: Priors, base: Array, state: State) -> tuple[State, Array]:
    """A sweep from where momentum carried the factors, the scale step, and a look whether the bound rose.

    The sweep's own q(S) gives a valid bound for its factors without a further product. If that is below the last
    one, the sweep is dropped, its factors with it, and momentum begins anew with a plain sweep from the last good
    ones. A plain sweep and the scale step cannot lower the bound, so what is kept never falls.
    """
    q, S = sweep(data, priors, state.moments)
    q = rescale(data, priors, q)
    elbo = base + bound_with(S, state.moments, data, priors, q)
    good = (elbo >= state.bound) | (state.momentum <= 0)
    momentum = jnp.where(good, state.momentum + 1, 0)
    kept, elbo = jax.tree.map(lambda new, old: jnp.where(good, new, old), (q, elbo), (state.posterior, state.bound))
    ahead = extrapolate(kept, state.posterior, state.ahead, momentum)
    return State(moments(ahead), kept, ahead, elbo, momentum), state.bound


@partial(jax.jit, static_argnames="accelerate")
def _advance(
    data: Data, priors: Priors, state: State, done: Array, limit: Array, last: Array, tol: Array, accelerate: bool
) -> tuple:
    """Sweep until `limit`, a small relative change of the bound, or a non-finite bound; at most CHUNK sweeps.

    Row n of the record is the bound before sweep `done` + n; the bound after the last is owed one more product.
    """
    base, data = log_base_measure(data), tile(data)
    one = _accelerated if accelerate else _plain

    def ongoing(carry: tuple) -> Array:
        _, _, n, stop, _ = carry
        return (n < limit - done) & (n < CHUNK) & ~stop

    def body(carry: tuple) -> tuple:
        given, last, n, _, record = carry
        state, elbo = one(data, priors, base, given)
        first = done + n == 0
        small = (jnp.abs(elbo - last) <= tol * jnp.abs(elbo)) & (given.momentum != 0)  # a dropped sweep changes nothing
        stop = ~first & (~jnp.isfinite(elbo) | small)
        return state, jnp.where(first, jnp.inf, elbo), n + 1, stop, record.at[n].set(elbo)

    record = jnp.zeros(CHUNK, state.bound.dtype)
    state, last, n, stop, record = jax.lax.while_loop(ongoing, body, (state, last, 0, False, record))
    return state, last, n, stop, record, base + bound_terms(data, priors, state.posterior)


def run(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    callback: Callable[[Fit], object] | None = None,
) -> Fit:
    """Fit the mean field by sweeps of coordinate ascent.

    Args:
        data: as made by `as_data`.
        priors: what is believed about T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key for the random start; not needed when `start` gives T and V.
        start: means from `cavi.start`, or a `Fit` or `Posterior` to go on from.
        init: how what `start` leaves open is filled: "random" (the paper's) or "groups" (T from samples of the
            group each component is bound to: a better bound, often a worse classifier).
        rank: the number of components, where the priors' shapes leave it open.
        max_steps: sweeps at most.
        tol: stop when the bound changes by less than this, relatively, in one sweep; None for all sweeps.
        accelerate: momentum on the logarithms of the factors' parameters, and the scale step: about a tenth of the
            sweeps. A sweep after which the bound is lower is dropped and momentum begins anew, so what is kept never
            falls; a dropped sweep counts as a sweep. `elbo` then holds, but for its last entry, the bound with q(S)
            as the sweep left it, which is valid and a little below the one with q(S) at its optimum.
        callback: called with the `Fit` so far about every 25 sweeps, for progress and checkpoints.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> run(data, priors, key=jax.random.key(0), rank=1).converged
    True

    Returns a `Fit`. With `accelerate=False, tol=None` it is exactly the paper's sweep, `max_steps` times. A run that
    does not reach its tolerance says so in `converged`, `message` and one `ConvergenceWarning`.
    """
    _check_stops(max_steps, tol)
    state = _init(data, priors, key=key, start=start, init=init, rank=rank)
    data, priors, _ = prepare(data, priors, state.moments.g_T.value.shape[1])
    fit = _run(data, priors, state, max_steps, tol, accelerate, callback)
    if tol is not None and not fit.converged:
        warnings.warn(fit.message, ConvergenceWarning, stacklevel=2)
    return fit


_init = init  # `run` has an argument of that name


def run_many(
    data: Data | Sequence[Data],
    priors: Priors,
    *,
    keys: Array,
    start: Start | None = None,
    init: str = "random",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    batch: bool | None = None,
) -> list[Fit]:
    """One fit for each key: restarts on the same data, or folds of equal shape.

    Args:
        data: one for all keys, or one for each, all of the same shape with the same groups.
        priors: the same for all.
        keys: JAX keys, as from `jax.random.split`.
        start: as in `run`, the same for all; likewise init, rank, max_steps, tol and accelerate.
        init: as in `run`.
        rank: as in `run`.
        max_steps: as in `run`.
        tol: as in `run`.
        accelerate: as in `run`.
        batch: whether all fits are one batch under `jax.vmap`, each sweep one call for all of them, or are made one
            after another. None takes what is cheapest: a batch on accelerators, one after another on CPUs, where
            the products of one fit occupy all cores already and a batch has to be compiled anew for every size
            (`make bench` shows both).

    Returns the fits in the order of the keys. All that did not converge give one warning together.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fits = run_many(data, priors, keys=jax.random.split(jax.random.key(0), 3), rank=1)
    >>> max(fits, key=lambda fit: fit.elbo[-1]).posterior.T.mean.shape
    (2, 1)
    """
    _check_stops(max_steps, tol)
    if np.ndim(keys) == 0 or len(keys) == 0:
        raise ValueError(f"expected several keys, jax.random.split(key, n); got {keys!r}")
    datas = [data] * len(keys) if isinstance(data, Data) else list(data)
    if len(datas) != len(keys) or len({(d.X.shape, d.num_groups) for d in datas}) > 1:
        shapes = [(*d.X.shape, d.num_groups) for d in datas]
        raise ValueError(f"expected one Data, or {len(keys)} of one shape (features, samples, groups); got {shapes}")
    states = [_init(d, priors, key=k, start=start, init=init, rank=rank) for d, k in zip(datas, keys, strict=True)]
    K = states[0].moments.g_T.value.shape[1]
    ready = [prepare(d, priors, K)[0] for d in (datas[:1] if isinstance(data, Data) else datas)]
    _, priors, _ = prepare(datas[0], priors, K)
    if jax.default_backend() != "cpu" if batch is None else batch:
        fits = _run_batch(ready, priors, states, max_steps, tol, accelerate)
    else:
        ready = ready * len(keys) if len(ready) == 1 else ready
        fits = [_run(d, priors, s, max_steps, tol, accelerate) for d, s in zip(ready, states, strict=True)]
    if tol is not None and not all(fit.converged for fit in fits):
        late = [fit.message for fit in fits if not fit.converged]
        warnings.warn(f"{len(late)} of {len(fits)} fits did not converge. {late[0]}", ConvergenceWarning, stacklevel=2)
    return fits


def _run(
    data: Data,
    priors: Priors,
    state: State,
    max_steps: int,
    tol: float | None,
    accelerate: bool,
    callback: Callable[[Fit], object] | None = None,
) -> Fit:
    """Sweep from this state; data and priors are prepared."""
    state = state._replace(ahead=state.posterior if accelerate else None)
    done, last, elbos, stop = 0, jnp.full((), jnp.inf, data.X.dtype), [], False
    threshold = jnp.full((), -1.0 if tol is None else tol, data.X.dtype)
    while done < max_steps and not stop:
        state, last, n, stop, record, now = _advance(data, priors, state, done, max_steps, last, threshold, accelerate)
        done += int(n)
        elbos.append(np.asarray(record, float)[: int(n)])
        if callback is not None:
            callback(_fit(state, elbos, now, tol, bool(stop)))
    return _fit(state, elbos, now, tol, bool(stop))


def _run_batch(
    datas: list[Data], priors: Priors, states: list[State], max_steps: int, tol: float | None, accelerate: bool
) -> list[Fit]:
    """The same for several states at once; one Data for all, or one for each."""
    R, dtype = len(states), datas[0].X.dtype
    data, in_axis = (datas[0], None) if len(datas) == 1 else (_stack(datas), 0)
    advance = jax.vmap(partial(_advance, accelerate=accelerate), in_axes=(in_axis, None, 0, 0, 0, 0, None))
    state, last = _stack(states), jnp.full(R, jnp.inf, dtype)
    state = state._replace(ahead=state.posterior if accelerate else None)
    threshold = jnp.full((), -1.0 if tol is None else tol, dtype)
    done, stop = np.zeros(R, int), np.zeros(R, bool)
    elbos: list[list[np.ndarray]] = [[] for _ in range(R)]
    while ((done < max_steps) & ~stop).any():
        limit = np.where(stop, done, max_steps)  # who has stopped makes no more sweeps
        state, last, n, stopped, record, now = advance(data, priors, state, done, limit, last, threshold)
        for r in range(R):
            elbos[r].append(np.asarray(record[r], float)[: int(n[r])])
        done, stop = done + np.asarray(n), stop | np.asarray(stopped)
    each = [jax.tree.map(lambda x, r=r: x[r], state) for r in range(R)]
    return [_fit(each[r], elbos[r], now[r], tol, bool(stop[r])) for r in range(R)]


def _stack(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _check_stops(max_steps: int, tol: float | None) -> None:
    if not isinstance(max_steps, (int, np.integer)) or max_steps < 1:
        raise ValueError(f"expected max_steps to be a whole number ≥ 1; got {max_steps!r}")
    if tol is not None and not 0 <= tol < np.inf:
        raise ValueError(f"expected tol to be None or a number ≥ 0; got {tol!r}")


def _fit(state: State, elbos: list[np.ndarray], now: Array, tol: float | None, stop: bool) -> Fit:
    """The result so far: the bounds before every sweep but the first, and the one now."""
    T, V, lam = state.posterior
    q = Posterior(T.broadcast(*T.a.shape), V, lam)  # within a run the scale of T may be one number per component
    elbo = np.append(np.concatenate(elbos)[1:], float(now))
    finite = bool(np.isfinite(elbo).all())
    converged = stop and finite
    if not finite:
        message = f"The bound became {elbo[~np.isfinite(elbo)][0]} at sweep {np.argmin(np.isfinite(elbo)) + 1}."
    elif converged:
        message = f"The bound changed by at most {tol:g} of itself at sweep {len(elbo)}."
    elif tol is None:
        message = f"All {len(elbo)} sweeps were made."
    else:
        change = abs(elbo[-1] - elbo[-2]) / abs(elbo[-1]) if len(elbo) > 1 else np.inf
        message = f"After {len(elbo)} sweeps the bound still changed by {change:.1e} of itself, above tol={tol:g}."
    return Fit(q, elbo, len(elbo), converged, message)
