"""One sweep of coordinate ascent, and the moves that make a run of sweeps faster.

ξ  = X / (g_T g_V)              Σ_T = g_T ∘ (ξ g_Vᵀ)           Σ_V = g_V ∘ (g_Tᵀ ξ)
q(T) = Gamma(aᵗ + Σ_T, (1/bᵗ + Σ_τ E_V)⁻¹)
q(V) = Gamma(1 + Σ_V, (E_Λ Δᵀ + Σ_ν E_T)⁻¹)                    with the new E_T
q(Λ) = Gamma(aˡ + N_c, (1/bˡ + E_V Δ)⁻¹)                       with the new E_V

Hidden entries do not count: with a mask W, Σ_τ E_V becomes W E_Vᵀ, and Σ_ν E_T becomes E_Tᵀ W.

T and Λ are global, updated from sums over samples (`update_T`, `update_lam`); V and labels are local to samples
(`update_V`). T and V have samples first, features last, as in `observed`; priors and λ as on paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..model.conjugacy import moves_rates, scaling, stand_in
from ..model.groups import Groups
from ..model.priors import Gamma, Priors
from ..model.types import Array
from .moments import Moments, Transposed
from .observations import Observations
from .observed import Allocation


def moments(data: Observations, priors: Priors, q: Transposed) -> Moments:
    """Return the moments of these factors that the next sweep reads."""
    X, labels = data
    exposure, believed = labels.read(X, priors, q)
    lam = None if q.lam is None else jnp.log(q.lam.mean)
    log_lam = None if q.lam is None else labels.groups.log_lam(q.lam)
    return Moments(q.T.log_mean, q.V.log_mean, exposure, lam, log_lam, believed)


def sweep(data: Observations, priors: Priors, m: Moments) -> tuple[Transposed, Allocation]:
    """Return the factors after one sweep of exact coordinate ascent, and the q(S) it began with."""
    X, labels = data
    family = priors.coefficients
    S = labels.allocate(X, m)
    T = update_T(priors.dictionary.transpose(), S.T, labels.exposure(X, m, S))
    groups = labels.groups_in_sweep(m, S)
    rates = jnp.transpose(family.rates(None if m.lam is None else jnp.exp(m.lam), groups))
    V = update_V(jnp.transpose(family.shape), rates, S.V, X.exposure_of_V(T))
    lam = update_lam(family, rate_sums(family, V.mean.T, groups, m.log_lam))
    return Transposed(T, V, lam, labels.update(family, m, V, lam, S)), S


def update_T(prior: Gamma, counts: Array, exposure: Array) -> Gamma:
    """Return q(T) = Gamma(aᵗ + Σ_T, (1/bᵗ + Σ_τ E_V)⁻¹): a global step, from sums over samples."""
    return Gamma(prior.a + counts, 1 / (prior.rates() + exposure))


def update_V(shape: Array, rates: Array, counts: Array, exposure: Array) -> Gamma:
    """Return q(V) = Gamma(1 + Σ_V, (E_Λ Δᵀ + Σ_ν E_T)⁻¹): the local step, of any samples."""
    return Gamma(shape + counts, 1 / (rates + exposure))


class RateSums(NamedTuple):
    """Sums over samples from which λ is updated, in the shape of λ.

    shapes: Σ shape of the v of each λ, for `GroupSparse` N_c.
    coefficients: Σ E[v] of the v of each λ.
    """

    shapes: Array
    coefficients: Array


def rate_sums(family: Any, V: Array, groups: Groups, log_lam: Array | None = None) -> RateSums | None:
    """Return the sums over samples that λ needs; those of parts of the samples add up. None for a family without λ.

    Args:
        family: with closed forms.
        V: E[V], components × samples; or V itself, for the full conditional of λ.
        groups: the membership of samples.
        log_lam: the current E[log λ], which decides how a multi-label sample counts for its groups; None for evenly.
    """
    if family.hyperprior is None:
        return None
    alike = family.axes[0] == "component" and jnp.ndim(family.shape) == 0  # then one row stands for all components
    shapes = jnp.broadcast_to(jnp.asarray(family.shape, V.dtype), (1 if alike else V.shape[0], V.shape[1]))
    coefficients = groups.collect(family, V)
    return RateSums(jnp.broadcast_to(groups.tally(family, shapes, log_lam), coefficients.shape), coefficients)


def update_lam(family: Any, sums: RateSums | None) -> Gamma | None:
    """Return q(λ) = Gamma(a + Σ shape, (1/b + Σ E[v])⁻¹): a global step, from sums over samples.

    For `GroupSparse` it is Gamma(aˡ + N_c, (1/bˡ + Σ_{τ∈c} E[v_iτ])⁻¹). If the prior of λ is not a Gamma, `stand_in`
    takes its place: the result is then only a starting point.
    """
    if sums is None:
        return None
    prior = stand_in(family.hyperprior)
    a = prior.a + sums.shapes
    return Gamma(a, jnp.broadcast_to(1 / (1 / prior.b + sums.coefficients), a.shape))


def rescale(data: Observations, priors: Priors, q: Transposed) -> Transposed:
    """Return the factors after the scale step: (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) with the best γ_i.

    This is parameter expansion. It changes neither the likelihood nor p(V | λ) if components have their own λ, so that
    in log γ the bound is A log γ − Pγ − Q/γ, concave, with A, P, Q from the priors that it does change. Its maximiser
    γ = (A + √(A² + 4PQ)) / 2P cannot lower it.
    """
    groups = data.labels.groups_of(q)
    power, rate, inverse = scaling(priors, q.T.transpose(), q.V.transpose(), q.lam, groups)
    root = jnp.abs(power) + jnp.sqrt(power**2 + 4 * rate * inverse)  # both terms are positive: no digits are lost
    gamma = jnp.where(power > 0, root, 2 * inverse) / jnp.where(power > 0, 2 * rate, root)
    across, along = gamma[None, :], gamma[:, None]  # components are the rows of T and λ, and V's columns
    lam = Gamma(q.lam.a, q.lam.b * along) if q.lam is not None and moves_rates(priors.coefficients) else q.lam
    return Transposed(Gamma(q.T.a, q.T.b * along), Gamma(q.V.a, q.V.b / across), lam, q.labels)


def extrapolate(m: Moments, previous: Moments, ahead: Moments, sweeps: Array) -> Moments:
    """Return the moments, all logarithms, extrapolated by momentum after the last sweep.

    x + w (x − x_previous) + w/5 (x − x_ahead), with w = t/(t + ½) after t sweeps: Nesterov's step, and a little of what
    the sweep itself added to the point ahead from which it began. T, which every sweep computes from V first, goes half
    as far. The three numbers were found by trial, on faces, digits and generated data.
    """
    weight = sweeps / (sweeps + 0.5)

    def go_on(by: Array) -> Callable[..., Array]:
        return lambda new, old, begun: new + by * ((new - old) + 0.2 * (new - begun))

    T = go_on(0.5 * weight)(m.T, previous.T, ahead.T)
    blank = (x._replace(labels=None) for x in (m, previous, ahead))
    others: Moments = jax.tree.map(go_on(weight), *blank)
    return others._replace(T=T, labels=m.labels)  # probabilities of labels are not extrapolated
