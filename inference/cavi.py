"""Mean-field coordinate ascent in closed form: the paper's algorithm.

One sweep updates q(S), q(T), q(V), q(λ) in turn, each to its exact maximiser given the others:

    ξ  = X / (g_T g_V)              Σ_T = g_T ∘ (ξ g_Vᵀ)           Σ_V = g_V ∘ (g_Tᵀ ξ)
    q(T) = Gamma(aᵗ + Σ_T, (1/bᵗ + Σ_τ E_V)⁻¹)
    q(V) = Gamma(1 + Σ_V, (E_Λ Δᵀ + Σ_ν E_T)⁻¹)                    with the new E_T
    q(Λ) = Gamma(aˡ + N_c, (1/bˡ + E_V Δ)⁻¹)                       with the new E_V
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.data import Data
from ..model.priors import Gamma, Geometric, Priors
from ..model.problem import prepare
from ..model.types import Array
from .bound import bound, paper_bound, paper_bound_gap, prior_terms
from .poisson import Allocation, allocate, exposure, log_base_measure, tile
from .posterior import Fit, Posterior
from .starts import Start, fill, start

__all__ = ["Moments", "State", "bound", "init", "paper_bound", "paper_bound_gap", "run", "start", "step"]

CHUNK = 25  # sweeps between two looks by the host: progress, Ctrl-C, checkpoints


class Moments(NamedTuple):
    """All that a sweep reads of the factors before it: exp E[log T], exp E[log V], E[V], E[λ]."""

    g_T: Geometric
    g_V: Geometric
    V: Array
    lam: Array | None


class State(NamedTuple):
    """Where a run stands, and all it needs to go on.

    moments: what the next sweep reads.
    posterior: the factors after the last sweep.
    terms: their part of the bound that needs no product; the next sweep forms the rest anyway.
    """

    moments: Moments
    posterior: Posterior
    terms: Array


def moments(q: Posterior) -> Moments:
    """What the next sweep reads of these factors."""
    lam = None if q.lam is None else q.lam.mean
    return Moments(q.T.geometric_mean(axis=1), q.V.geometric_mean(axis=0), q.V.mean, lam)


def sweep(data: Data, priors: Priors, m: Moments) -> tuple[Posterior, Allocation]:
    """One sweep of exact coordinate ascent, and the q(S) it began with."""
    dictionary, coefficients = priors
    S = allocate(data, m.g_T, m.g_V)
    T = Gamma(dictionary.a + S.T, 1 / (1 / dictionary.b + exposure(data, V=m.V)))
    V = Gamma(coefficients.shape + S.V, 1 / (coefficients.rates(m.lam, data) + exposure(data, T=T.mean)))
    return Posterior(T, V, coefficients.update(V.mean, data)), S


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
    return State(m, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes), jnp.zeros((), data.X.dtype))


def step(data: Data, priors: Priors, state: State) -> tuple[State, float]:
    """One sweep: the next state, and the bound of the state given (meaningless before the first sweep)."""
    data, priors, _ = prepare(data, priors, state.moments.g_T.value.shape[1])
    state, elbo = jax.jit(_step)(tile(data), priors, log_base_measure(data), state)
    return state, float(elbo)


def _step(data: Data, priors: Priors, base: Array, state: State) -> tuple[State, Array]:
    q, S = sweep(data, priors, state.moments)
    return State(moments(q), q, base + prior_terms(data, priors, q)), state.terms + S.x_log_M


@jax.jit
def _advance(data: Data, priors: Priors, state: State, done: Array, limit: Array, last: Array, tol: Array) -> tuple:
    """Sweep until `limit`, a small relative change of the bound, or a non-finite bound; at most CHUNK sweeps.

    Row n of the record is the bound before sweep `done` + n.
    """
    base, data = log_base_measure(data), tile(data)

    def ongoing(carry: tuple) -> Array:
        _, _, n, stop, _ = carry
        return (n < limit - done) & (n < CHUNK) & ~stop

    def body(carry: tuple) -> tuple:
        state, last, n, _, record = carry
        state, elbo = _step(data, priors, base, state)
        first = done + n == 0
        stop = ~first & (~jnp.isfinite(elbo) | (jnp.abs(elbo - last) <= tol * jnp.abs(elbo)))
        return state, jnp.where(first, jnp.inf, elbo), n + 1, stop, record.at[n].set(elbo)

    record = jnp.zeros(CHUNK, data.X.dtype)
    return jax.lax.while_loop(ongoing, body, (state, last, 0, False, record))


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
        max_steps: sweeps at most.
        tol: stop when the bound changes by less than this, relatively, in one sweep; None for all sweeps.
        callback: called with the `Fit` so far about every 25 sweeps, for progress and checkpoints.

    Returns a `Fit`. With `accelerate=False, tol=None` it is exactly the paper's sweep, `max_steps` times. A run that
    does not reach its tolerance says so in `converged`, `message` and one `ConvergenceWarning`.
    """
    if not isinstance(max_steps, (int, np.integer)) or max_steps < 1:
        raise ValueError(f"expected max_steps to be a whole number ≥ 1; got {max_steps!r}")
    if tol is not None and not 0 <= tol < np.inf:
        raise ValueError(f"expected tol to be None or a number ≥ 0; got {tol!r}")
    state = _init(data, priors, key=key, start=start, init=init, rank=rank)
    data, priors, _ = prepare(data, priors, state.moments.g_T.value.shape[1])
    done, last, elbos, stop = 0, jnp.full((), jnp.inf, data.X.dtype), [], False
    threshold = jnp.full((), -1.0 if tol is None else tol, data.X.dtype)
    while done < max_steps and not stop:
        state, last, n, stop, record = _advance(data, priors, state, done, max_steps, last, threshold)
        done += int(n)
        elbos.append(np.asarray(record, float)[: int(n)])
        if callback is not None:
            callback(_fit(data, priors, state, elbos, tol, bool(stop)))
    fit = _fit(data, priors, state, elbos, tol, bool(stop))
    if tol is not None and not fit.converged:
        warnings.warn(fit.message, ConvergenceWarning, stacklevel=2)
    return fit


_init = init  # `run` has an argument of that name


def _fit(data: Data, priors: Priors, state: State, elbos: list[np.ndarray], tol: float | None, stop: bool) -> Fit:
    """The result so far; the bound of the last sweep is owed one product."""
    F, N, K = *data.X.shape, state.moments.g_T.value.shape[1]
    q = Posterior(state.posterior.T.broadcast(F, K), state.posterior.V.broadcast(K, N), state.posterior.lam)
    elbo = np.append(np.concatenate(elbos)[1:], bound(data, priors, q))
    finite = bool(np.isfinite(elbo).all())
    converged = stop and finite
    if not finite:
        message = f"The bound became {elbo[~np.isfinite(elbo)][0]} at sweep {np.argmin(np.isfinite(elbo)) + 1}."
    elif converged:
        message = f"The bound changed by less than {tol:g} of itself at sweep {len(elbo)}."
    elif tol is None:
        message = f"All {len(elbo)} sweeps were made."
    else:
        change = abs(elbo[-1] - elbo[-2]) / abs(elbo[-1]) if len(elbo) > 1 else np.inf
        message = f"After {len(elbo)} sweeps the bound still changed by {change:.1e} of itself, above tol={tol:g}."
    return Fit(q, elbo, len(elbo), converged, message)
