"""One step of a run: the paper's sweep, the sweep with momentum, and sweeps that anneal labels."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..model.priors import Priors
from ..model.types import Array
from .bound import prior_terms
from .hyper import Learn, relearn
from .moments import Moments, Transposed
from .observations import Observations
from .posterior import Posterior
from .sweep import extrapolate, moments, rescale, sweep


class State(NamedTuple):
    """The state of a run, from which it can resume.

    moments: input of the next sweep; in an accelerated run, extrapolated by momentum.
    factors: the factors after the last sweep.
    reached: the moments of these factors, in an accelerated run; None in a plain run.
    terms: the bound of these factors without Σ x log(M/x), which needs M: in a plain run the next sweep forms M anyway.
    bound: the bound of these factors with the q(S) of the sweep, in an accelerated run; in a plain run, that of the
        state before.
    momentum: sweeps since momentum began: −1 before the first and in a plain run, 0 just after a reset.
    priors: the priors learned so far, which `terms` and `bound` belong to; None if none are learned.
    """

    moments: Moments
    factors: Transposed
    reached: Any
    terms: Array
    bound: Array
    momentum: Array
    priors: Any = None

    @property
    def posterior(self) -> Posterior:
        """The factors as users read them."""
        return self.factors.posterior


class Bounds(NamedTuple):
    """The bound of the state that a sweep began from.

    kept: the bound in that state: in an accelerated run with the q(S) of the sweep before.
    optimum: the bound with q(S) at its optimum, if the sweep began from that state's own moments; else meaningless.
    """

    kept: Array
    optimum: Array


def plain(data: Observations, priors: Priors, state: State, learn: Learn | None = None) -> tuple[State, Bounds]:
    """Make the paper's sweep, which forms M = g_T g_V of the state given and so completes that state's bound.

    Hyperparameters are learned after the sweep; the state's own priors then replace the priors given.
    """
    priors = priors if learn is None else state.priors
    q, S = sweep(data, priors, state.moments)
    elbo = state.terms + S.log_ratio
    m = moments(data, priors, q)
    learned = None if learn is None else relearn(priors, learn, q, m, data.labels.weights_of(q))
    terms = data.X.base + prior_terms(data, learned or priors, q)
    return State(m, q, None, terms, elbo, state.momentum, learned), Bounds(elbo, elbo)


def accelerated(data: Observations, priors: Priors, state: State, learn: Learn | None = None) -> tuple[State, Bounds]:
    """Make a sweep from the moments extrapolated by momentum, then the scale step; keep both if the bound rose.

    The sweep's own q(S) gives a valid bound for its factors without a further product. If this bound is below the last
    one, the sweep is dropped, with its factors and learned priors, and momentum starts again with a plain sweep from
    the last good factors. A plain sweep, the scale step and learning cannot lower the bound, so the bound never falls,
    except by rounding.
    """
    priors = priors if learn is None else state.priors
    q, S = sweep(data, priors, state.moments)
    q = rescale(data, priors, q)
    m = moments(data, priors, q)
    learned = None if learn is None else relearn(priors, learn, q, m, data.labels.weights_of(q))
    terms = data.X.base + prior_terms(data, learned or priors, q)
    elbo = terms + data.labels.moved(S, state.moments, m)
    good = (elbo >= state.bound) | (state.momentum <= 0)
    momentum = jnp.where(good, state.momentum + 1, 0)
    before = state.factors, state.reached, state.terms, state.bound, state.priors
    kept, m, terms, elbo, learned = _choose(data, good, (q, m, terms, elbo, learned), before)
    ahead = extrapolate(m, state.reached, state.moments, momentum)
    return State(ahead, kept, m, terms, elbo, momentum, learned), Bounds(state.bound, state.terms + S.log_ratio)


def _choose(data: Observations, good: Array, new: Any, old: Any) -> Any:
    """Return the new values if they are good, else the old ones.

    For a sparse X entry by entry, which needs one array of the size of V less; a branch is faster if arrays are small.
    """
    if data.X.in_place:
        return jax.tree.map(partial(jnp.where, good), new, old)
    return jax.lax.cond(good, lambda: new, lambda: old)


def without_momentum(state: State) -> State:
    """Return the state with its factors' own moments, without momentum; the next sweep is kept."""
    return state if state.reached is None else state._replace(moments=state.reached, momentum=0 * state.momentum)


@partial(jax.jit, static_argnames="sweeps")
def anneal(data: Observations, priors: Priors, state: State, sweeps: int) -> State:
    """Return the state after plain sweeps with β from 0 towards 1, so that labels do not lock in early."""

    def one(state: State, beta: Array) -> tuple[State, None]:
        return plain(data._replace(labels=data.labels.temper(beta)), priors, state)[0], None

    return jax.lax.scan(one, state, jnp.linspace(0, 1, sweeps, endpoint=False, dtype=state.bound.dtype))[0]
