"""Streams: stochastic variational inference in natural parameters, from batches of samples (Hoffman et al., 2013).

q(T) and q(λ) are global. For a batch B of N samples, q(V) of its samples is iterated under the current q(T) and q(λ),
as in `fold_in`. If all samples were like those of the batch, coordinate ascent would then find

    Â_t = aᵗ + (N/|B|) Σ_T(B)         B̂_t⁻¹ = 1/bᵗ + (N/|B|) Σ_{τ∈B} E_V
    Â_λ = aˡ + N_c                    B̂_λ⁻¹ = 1/bˡ + (N_c/|B_c|) Σ_{τ∈B_c} E_V        for groups c in the batch,

and the natural parameters (A − 1, −1/B) go a part ρ_n = (τ₀ + n)^(−κ) of the way there. A batch of all samples with
ρ = 1 is a sweep in which V was iterated. Nothing of the size of V is kept: memory does not grow with N.

With ρ_n that fall slowly, factors move far but stay noisy. Their average, in natural parameters too and with weights
that favour late batches, has little of that noise (Polyak and Juditsky, 1992; Shamir and Zhang, 2013): it is the
result.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...model.conjugacy import moves_rates, scaling
from ...model.groups import Groups
from ...model.priors import Gamma, GroupSparse, Priors
from ...model.types import Array
from ..bound import dictionary_terms, rate_terms
from ..moments import Moments, Transposed
from ..observations import Observations
from ..observed import Allocation
from ..sweep import RateSums, moments, rate_sums, update_lam, update_T, update_V


class Globals(NamedTuple):
    """The factors that all samples share.

    T: q(T), components × features, both parameters in full.
    lam: q(λ); None for a family without λ.
    """

    T: Gamma
    lam: Gamma | None


class Weights(NamedTuple):
    """Numbers that a step needs besides its batch.

    rho: ρ, the part of the way that natural parameters go.
    recent: the weight of the new factors in the average.
    num_samples: N.
    size: |B|.
    counted: N_c by group if they are known; otherwise, the number of samples of each group before this batch.
    seen: the sum of these samples, with or without groups.
    own: 0 if N_c are known; 1 if the batch itself counts, too: N_c = N (counted + |B_c|) / (seen + |B|).
    beta: the weight of the evidence for labels of unlabelled samples.
    tol: local updates end when E[V] changes by less than this, relatively, on average.
    """

    rho: Array
    recent: Array
    num_samples: Array
    size: Array
    counted: Array
    seen: Array
    own: Array
    beta: Array
    tol: Array


class Local(NamedTuple):
    """A batch under fixed global factors.

    factors: the global ones, with q(V) and q(z) of the batch.
    moments: of these factors.
    S: q(S) at its optimum for them.
    updates: the number of local updates that were made.
    """

    factors: Transposed
    moments: Moments
    S: Allocation
    updates: Array


class Outcome(NamedTuple):
    """Result of one step on its batch.

    bound: an estimate of the bound of the global factors before the step, with N/|B| times the terms of the batch.
    present: |B_c| by group, unlabelled samples by q(z); None without groups.
    updates: the number of local updates that were made.
    """

    bound: Array
    present: Array | None
    updates: Array


def iterate_V(data: Observations, priors: Priors, q: Globals, max_steps: Array, tol: Array) -> Local:
    """Iterate q(V) of a batch under fixed global factors, from its prior on.

    Args:
        data: the batch.
        priors: of a `Problem`.
        q: the global factors.
        max_steps: updates at most.
        tol: as in `Weights`.
    """
    X, labels = data
    family = priors.coefficients
    log_T, exposure = q.T.log_mean, X.exposure_of_V(q.T)
    mean_lam = None if q.lam is None else q.lam.mean

    def read(factors: Transposed) -> tuple[Moments, Allocation]:
        m = moments(data, priors, factors)._replace(T=log_T)  # which the loop need not compute again
        return m, labels.allocate(X, m)

    def update(groups: Groups, counts: Array) -> Gamma:
        rates = jnp.transpose(family.rates(mean_lam, groups))
        return update_V(jnp.transpose(family.shape), rates, counts, exposure).broadcast(*counts.shape)

    def ongoing(carry: tuple) -> Array:
        _, change, n = carry
        return (n < max_steps) & (change > tol)

    def body(carry: tuple) -> tuple:
        factors, _, n = carry
        m, S = read(factors)
        V = update(labels.groups_in_sweep(m, S), S.V)
        change = jnp.sum(jnp.abs(V.mean - factors.V.mean)) / jnp.sum(V.mean)
        return factors._replace(V=V, labels=labels.update(family, m, V, q.lam, S)), change, n + 1

    membership = labels.groups.membership
    nothing = jnp.zeros((X.num_samples if membership is None else len(membership), len(q.T.a)), log_T.dtype)
    begin = Transposed(q.T, update(labels.groups, nothing), q.lam, labels.prior_factors())
    factors, _, n = jax.lax.while_loop(ongoing, body, (begin, jnp.full((), jnp.inf, log_T.dtype), 0))
    return Local(factors, *read(factors), n)


def local_terms(data: Observations, priors: Priors, local: Local) -> Array:
    """Return the terms of the bound that belong to the samples of a batch; those of parts of the samples add up."""
    kl_V, totals = data.labels.sample_terms(data.X, priors, local.factors)
    return data.X.base + local.S.log_ratio + jnp.sum(kl_V - totals) + data.labels.terms(local.factors)


def global_terms(priors: Priors, q: Globals) -> Array:
    """Return −KL(q(T) ‖ p(T)) − KL(q(λ) ‖ p(λ))."""
    total = jnp.sum(dictionary_terms(priors, q.T))
    return total if q.lam is None else total + rate_terms(priors, q.lam)


@partial(jax.jit, static_argnames="accelerate")
def step(
    data: Observations,
    priors: Priors,
    q: Globals,
    average: Globals,
    weights: Weights,
    max_steps: Array,
    accelerate: bool,
) -> tuple[Globals, Globals, Outcome]:
    """Make one step: iterate q(V) of a batch, then move q(T) and q(λ) towards what the batch asks for.

    Args:
        data: the batch.
        priors: of a `Problem`.
        q: the global factors.
        average: their average so far.
        weights: the numbers of this step.
        max_steps: updates of q(V) at most.
        accelerate: whether the scale step follows.
    """
    data = data._replace(labels=data.labels.temper(weights.beta))
    X, labels = data
    local = iterate_V(data, priors, q, max_steps, weights.tol)
    factors, m, S, _ = local
    more = weights.num_samples / weights.size
    groups = labels.groups_in_sweep(m, S)
    present = None if groups.membership is None else _count(groups, m.V)
    bound = more * local_terms(data, priors, local) + global_terms(priors, q)
    T = update_T(priors.dictionary.transpose(), more * S.T, more * labels.exposure(X, m, S))
    lam, family = q.lam, priors.coefficients
    if lam is not None:
        sums: Any = rate_sums(family, factors.V.mean.T, groups, m.log_lam)
        times, rho = _by_group(weights, present) if "group" in family.axes else (more, weights.rho)
        lam = blend(lam, update_lam(family, RateSums(*(times * x for x in sums))), rho)
    q = Globals(blend(q.T, T, weights.rho), lam)
    q = rescale(priors, q) if accelerate else q
    lam = None if average.lam is None else blend(average.lam, q.lam, weights.recent)
    return q, Globals(blend(average.T, q.T, weights.recent), lam), Outcome(bound, present, local.updates)


@jax.jit
def evaluate(data: Observations, priors: Priors, q: Globals, max_steps: Array, tol: Array) -> Array:
    """Return the terms of the bound that belong to a batch, with q(V) iterated; the arguments are those of `step`."""
    return local_terms(data, priors, iterate_V(data, priors, q, max_steps, tol))


def _count(groups: Groups, rows: Array) -> Array:
    """Return |B_c|, the number of samples by group."""
    return groups.collect(GroupSparse(None), jnp.ones((1, len(rows)), rows.dtype))[0]


def _by_group(weights: Weights, present: Any) -> tuple[Array, Array]:
    """Return N_c/|B_c| and ρ of every group, 0 for groups that are not in the batch.

    If, by q(z), a group has less than one sample in the batch, its ρ is less: 1 − (1 − ρ)^|B_c|.
    """
    own = weights.own
    N_c = weights.num_samples * (weights.counted + own * present) / (weights.seen + own * weights.size)
    rho = 1 - (1 - weights.rho) ** jnp.minimum(present, 1)
    here = present > 0
    return (N_c / jnp.where(here, present, 1))[None, :], jnp.where(here, rho, 0)[None, :]


def blend(old: Gamma, new: Any, rho: Array) -> Gamma:
    """Return the Gamma whose natural parameters (A − 1, −1/B) are (1 − ρ) old + ρ new; the same bits where ρ is 0."""
    a = (1 - rho) * old.a + rho * new.a
    b = 1 / ((1 - rho) / old.b + rho / new.b)
    return Gamma(*(jnp.where(rho > 0, x, y) for x, y in zip((a, b), old, strict=True)))


def rescale(priors: Priors, q: Globals) -> Globals:
    """Return the global factors after the scale step of `sweep.rescale`, for families whose λ go along with it.

    The coefficients of all samples, which are not kept, are taken to be divided by γ: their terms do not change.
    """
    if not moves_rates(priors.coefficients) or q.lam is None:
        return q
    nothing: Any = None  # V and groups are not read where λ moves
    power, rate, _ = scaling(priors, q.T.transpose(), nothing, q.lam, nothing)
    gamma = (power / rate)[:, None]
    return Globals(Gamma(q.T.a, q.T.b * gamma), Gamma(q.lam.a, q.lam.b * gamma))
