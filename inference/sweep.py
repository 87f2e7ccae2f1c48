"""One sweep of coordinate ascent, and the moves that make a run of sweeps faster.

ξ  = X / (g_T g_V)              Σ_T = g_T ∘ (ξ g_Vᵀ)           Σ_V = g_V ∘ (g_Tᵀ ξ)
q(T) = Gamma(aᵗ + Σ_T, (1/bᵗ + Σ_τ E_V)⁻¹)
q(V) = Gamma(1 + Σ_V, (E_Λ Δᵀ + Σ_ν E_T)⁻¹)                    with the new E_T
q(Λ) = Gamma(aˡ + N_c, (1/bˡ + E_V Δ)⁻¹)                       with the new E_V

Of entries that a mask W hides nothing is counted: Σ_τ E_V becomes W E_Vᵀ, and Σ_ν E_T becomes E_Tᵀ W.

T and V lie samples first, features last, as `poisson` says; priors and λ as on paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..model.conjugacy import expected, moves_rates, negative_kl, scaling, update
from ..model.priors import Gamma, Priors
from ..model.types import Array
from .labels.unlabelled import Believed, LabelFactors, Structured, evidence, softmax
from .observed.dense import Allocation, Observed, allocate, exposure_of_T, exposure_of_V
from .posterior import Transposed


class Moments(NamedTuple):
    """All that a sweep reads of the factors before it, in logarithms.

    T: E[log T], components × features.
    V: E[log V], samples × components.
    exposure: log Σ_τ w E[V], of every component, and with a mask of every feature: how much T could have caused.
        In the structured form of unknown labels log E[V], as how much each row counts is not known beforehand.
    lam: log E[λ], components × groups or as the family has it; None without λ.
    log_lam: E[log λ], if there are samples of several labels; None otherwise.
    labels: what is believed about labels that are unknown; None if all are known.
    """

    T: Array
    V: Array
    exposure: Array
    lam: Array | None
    log_lam: Array | None = None
    labels: Believed | None = None


def moments(data: Observed, priors: Priors, q: Transposed) -> Moments:
    """What the next sweep reads of these factors."""
    lam = None if q.lam is None else jnp.log(q.lam.mean)
    log_lam = None if q.lam is None or data.several is None else q.lam.log_mean
    exposure, labels = None, None
    if data.unknown is not None and q.labels is not None:
        rows = None
        if isinstance(data.unknown, Structured):
            prior = expected(priors.coefficients, q.lam, data).transpose()
            rows = jnp.sum(negative_kl(q.V, prior) - q.V.mean * exposure_of_V(data, q.T), axis=1)
            exposure = jnp.log(q.V.mean)
        labels = Believed(data.unknown.log_prior(q.labels.pi), q.labels.z, rows)
    if exposure is None:
        exposure = jnp.log(exposure_of_T(data, q.V))
    return Moments(q.T.log_mean, q.V.log_mean, exposure, lam, log_lam, labels)


def sweep(data: Observed, priors: Priors, m: Moments) -> tuple[Transposed, Allocation]:
    """One sweep of exact coordinate ascent, and the q(S) it began with."""
    dictionary, coefficients = priors.dictionary.transpose(), priors.coefficients
    S = allocate(data, m.T, m.V, m.labels)
    exposure = jnp.exp(m.exposure)
    if S.weights is not None:
        exposure = exposure_of_T(data, Gamma(exposure, S.weights[:, None]))
    T = Gamma(dictionary.a + S.T, 1 / (dictionary.rates() + exposure))
    seen = data if m.labels is None or S.weights is not None else data.with_labels(m.labels.z)
    rates = jnp.transpose(coefficients.rates(None if m.lam is None else jnp.exp(m.lam), seen))
    V = Gamma(jnp.transpose(coefficients.shape) + S.V, 1 / (rates + exposure_of_V(data, T)))
    lam = update(coefficients, V.mean.T, seen, S.weights, m.log_lam)
    return Transposed(T, V, lam, _update_labels(data, priors, m, V, lam, S)), S


def _update_labels(
    data: Observed, priors: Priors, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation
) -> LabelFactors | None:
    """q(z), which in the structured form was found with q(S), and q(π)."""
    if data.unknown is None or m.labels is None or lam is None:
        return None
    M, C = m.labels.z.shape
    if S.weights is not None:
        z = S.weights[-M * C :].reshape(M, C)
    else:
        z = softmax(m.labels.log_prior, evidence(priors.coefficients, lam, V.mean[-M:]), data.unknown.beta)
    return LabelFactors(z, data.unknown.dirichlet(z), data.unknown.membership, data.unknown.flags)


def rescale(data: Observed, priors: Priors, q: Transposed) -> Transposed:
    """The scale step (parameter expansion): (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) with the best γ_i.

    It leaves the likelihood alone, and p(V | λ) where components have their own λ, so that in log γ the bound is
    A log γ − Pγ − Q/γ, concave, with A, P, Q from the priors that it does change. Its maximiser
    γ = (A + √(A² + 4PQ)) / 2P cannot lower it.
    """
    seen, weights = believing(data, q)
    power, rate, inverse = scaling(priors, q.T.transpose(), q.V.transpose(), q.lam, seen, weights)
    root = jnp.abs(power) + jnp.sqrt(power**2 + 4 * rate * inverse)  # of one sign: no digits are lost
    gamma = jnp.where(power > 0, root, 2 * inverse) / jnp.where(power > 0, 2 * rate, root)
    across, along = gamma[None, :], gamma[:, None]  # components are the rows of T and λ, and V's columns
    lam = Gamma(q.lam.a, q.lam.b * along) if q.lam is not None and moves_rates(priors.coefficients) else q.lam
    return Transposed(Gamma(q.T.a, q.T.b * along), Gamma(q.V.a, q.V.b / across), lam, q.labels)


def believing(data: Observed, q: Transposed) -> tuple[Observed, Array | None]:
    """The data with q(z) for the labels that are unknown; in the structured form, how much each row counts by it."""
    if q.labels is None:
        return data, None
    if not isinstance(data.unknown, Structured):
        return data.with_labels(q.labels.z), None
    z = q.labels.z.ravel()
    return data, jnp.concatenate([jnp.ones(len(q.V.a) - len(z), z.dtype), z])


def extrapolate(m: Moments, previous: Moments, ahead: Moments, sweeps: Array) -> Moments:
    """Momentum: the moments x, logarithms all, go on from where the last sweep left them.

    x + w (x − x_previous) + w/5 (x − x_ahead), with w = t/(t + ½) after t sweeps: Nesterov's step, and a little of what
    the sweep itself added to the point ahead that it began from. T, which every sweep makes anew from V first thing,
    goes half as far. The three numbers were found by trying, on faces, digits and generated data.
    """
    weight = sweeps / (sweeps + 0.5)

    def go_on(by: Array) -> Callable[..., Array]:
        return lambda new, old, begun: new + by * ((new - old) + 0.2 * (new - begun))

    T = go_on(0.5 * weight)(m.T, previous.T, ahead.T)
    blank = (x._replace(labels=None) for x in (m, previous, ahead))
    others: Moments = jax.tree.map(go_on(weight), *blank)
    return others._replace(T=T, labels=m.labels)  # what is believed is no line to go on along
