"""One sweep of coordinate ascent, and the moves that make a run of sweeps faster.

ξ  = X / (g_T g_V)              Σ_T = g_T ∘ (ξ g_Vᵀ)           Σ_V = g_V ∘ (g_Tᵀ ξ)
q(T) = Gamma(aᵗ + Σ_T, (1/bᵗ + Σ_τ E_V)⁻¹)
q(V) = Gamma(1 + Σ_V, (E_Λ Δᵀ + Σ_ν E_T)⁻¹)                    with the new E_T
q(Λ) = Gamma(aˡ + N_c, (1/bˡ + E_V Δ)⁻¹)                       with the new E_V
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..model.priors import Gamma, Geometric, Priors
from ..model.types import Array
from .poisson import Allocation, Observed, allocate, exposure_of_T, exposure_of_V
from .posterior import Posterior


class Moments(NamedTuple):
    """All that a sweep reads of the factors before it: exp E[log T], exp E[log V], E[V], E[λ]."""

    g_T: Geometric  # noqa: N815 (the paper's letters)
    g_V: Geometric  # noqa: N815 (the paper's letters)
    V: Array
    lam: Array | None


def moments(q: Posterior) -> Moments:
    """What the next sweep reads of these factors."""
    lam = None if q.lam is None else q.lam.mean
    return Moments(q.T.geometric_mean(axis=1), q.V.geometric_mean(axis=0), q.V.mean, lam)


def sweep(data: Observed, priors: Priors, m: Moments) -> tuple[Posterior, Allocation]:
    """One sweep of exact coordinate ascent, and the q(S) it began with."""
    dictionary, coefficients = priors
    S = allocate(data, m.g_T, m.g_V)
    T = Gamma(dictionary.shape + S.T, 1 / (dictionary.rates() + exposure_of_T(data, m.V)))
    V = Gamma(coefficients.shape + S.V, 1 / (coefficients.rates(m.lam, data) + exposure_of_V(data, T.mean)))
    return Posterior(T, V, coefficients.update(V.mean, data)), S


def rescale(priors: Priors, q: Posterior) -> Posterior:
    """The scale step (parameter expansion): (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) with the best γ_i.

    It leaves the likelihood alone, and p(V | λ) where there is a λ, so that in log γ the bound is A log γ − Pγ − Q/γ,
    concave, with A, P, Q from the priors that it does change. Its maximiser γ = (A + √(A² + 4PQ)) / 2P cannot lower it.
    """
    a, b = priors.dictionary
    F, K = q.T.a.shape
    power, rate, inverse = priors.coefficients.scaling(q.V, q.lam)
    power += jnp.broadcast_to(a, (F, K)).sum(axis=0)
    rate += (q.T.mean / b).sum(axis=0)
    root = jnp.sqrt(power**2 + 4 * rate * inverse)
    gamma = jnp.where(power > 0, (power + root) / (2 * rate), 2 * inverse / (root - power))  # no digits lost
    across, along = gamma[None, :], gamma[:, None]  # components are T's columns, and the rows of V and λ
    lam = None if q.lam is None else Gamma(q.lam.a, q.lam.b * along)
    return Posterior(Gamma(q.T.a, q.T.b * across), Gamma(q.V.a, q.V.b / along), lam)


def extrapolate(q: Posterior, previous: Posterior, ahead: Posterior, sweeps: Array) -> Posterior:
    """Momentum: factors whose shapes and scales x went on, in logarithms, from where the last sweep left them.

    log x + w (log x − log x_previous) + w/5 (log x − log x_ahead), with w = t/(t + ½) after t sweeps: Nesterov's step,
    and a little of what the sweep itself added to the point ahead that it began from. T, which every sweep makes anew
    from V first thing, goes 0.9 of that. The three numbers were found by trying, on faces, digits and generated data.
    """
    weight = sweeps / (sweeps + 0.5)

    def go_on(by: Array) -> Callable[..., Array]:
        return lambda new, old, begun: new * jnp.exp(by * (jnp.log(new / old) + 0.2 * jnp.log(new / begun)))

    T = jax.tree.map(go_on(0.9 * weight), q.T, previous.T, ahead.T)
    return Posterior(T, *jax.tree.map(go_on(weight), q[1:], previous[1:], ahead[1:]))
