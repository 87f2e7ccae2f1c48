"""Density of a sample with its own coefficients integrated out: p(x | T, λ) = ∫ Poisson(x; Tv) p(v | λ) dv.

It is estimated by importance sampling. In u = log v the integrand has its mode at u*, where its negative Hessian is

    P = diag(a) + D_v Tᵀ diag(x/m²) T D_v = L D Lᵀ,   m = Tv,   L lower triangular with unit diagonal.

Three quarters of the draws come from Gammas in place of the Gaussian of Laplace's approximation, with the same mode and
curvature,

    Lᵀ (u − u*) = e,   e_i = log(g_i / D_i),   g_i ~ Gamma(D_i, 1),

which is exact if no two components share a feature. The others come from independent Gammas with the same modes and
shapes of a + (P_ii − a)/10, for the tails: where another component can explain the counts of component i, v_i may be 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import logsumexp

from ..model.priors import Gamma
from ..model.special import gammaln
from ..model.types import Array

STEPS = {"em": 5, "newton": 8}
TAIL = 4  # one of so many draws is for the tails


class Sample(NamedTuple):
    """One sample and the prior of its coefficients.

    x: by feature; 0 where it is hidden.
    seen: 1 where x was observed, 0 where it is hidden, by feature; None if everything was observed.
    a: the shapes of v, by component.
    rate: the rates of v, by component; None if the sample has rates of its own.
    own: the prior of rates that belong to this sample alone, one for each component or one for all, which are
        integrated out; None otherwise.
    v: coefficients to start from, by component.
    """

    x: Array
    seen: Array | None
    a: Array
    rate: Array | None
    own: Gamma | None
    v: Array


class Noise(NamedTuple):
    """Random numbers from which Gammas are made, draws × components: normal ones, and minus exponential ones."""

    normal: Array
    log_uniform: Array


class Proposal(NamedTuple):
    """u = mode + L⁻ᵀ e, e_i = log(g_i / shape_i), g_i ~ Gamma(shape_i, 1).

    shape: by component.
    L: unit lower triangular; its inverse.
    """

    shape: Array
    L: Array
    inverse: Array


def draw_noise(key: Array, num: int, rank: int, dtype: Any) -> Noise:
    """Return random numbers for `num` draws of v, which samples may share."""
    key_z, key_u = jax.random.split(key)
    shape = num, rank
    return Noise(jax.random.normal(key_z, shape, dtype), -jax.random.exponential(key_u, shape, dtype))


def log_integral(sample: Sample, T: Array, noise: Noise) -> tuple[Array, Array]:
    """Return log ∫ Π_ν (m/x)^x e^(x−m) p(v) dv, m = Tv, and the effective proportion of the draws.

    It is log p(x | T, λ) − Σ_ν log Poisson(x; x), smaller numbers for single precision.

    Args:
        sample: the sample.
        T: features × components.
        noise: as from `draw_noise`.
    """
    T = T if sample.seen is None else T * sample.seen[:, None]
    total, num = T.sum(axis=0), len(noise.normal)
    v = _mode(sample, T, total)
    mode, proposals = jnp.log(v), _proposals(sample, _precision(sample, T, v))
    cuts = [slice(0, num - num // TAIL), slice(num - num // TAIL, num)]
    drawn = [_draw(q, Noise(*(x[cut] for x in noise))) for q, cut in zip(proposals, cuts, strict=True)]
    u, log_ratio = mode[None] + jnp.concatenate([e for e, _ in drawn]), jnp.concatenate([w for _, w in drawn])
    log_each = jnp.stack([_log_density(q, u - mode[None]) for q in proposals])
    part = jnp.asarray([(cut.stop - cut.start) / num for cut in cuts], u.dtype)
    v, x = jnp.exp(u), sample.x[None]
    m = v @ T.T
    log_m = jnp.log(jnp.where(x > 0, m / jnp.where(x > 0, x, 1), 1))
    log_p = (x * log_m + x - m).sum(axis=1) + _log_prior(sample, u, v)
    weights = log_p - logsumexp(log_each, axis=0, b=part[:, None]) + log_ratio
    mean = logsumexp(weights) - jnp.log(num)
    return mean, jnp.exp(2 * mean - logsumexp(2 * weights) + jnp.log(num))


def _mode(sample: Sample, T: Array, total: Array) -> Array:
    """Return v at the mode of u: a few steps of EM, which cannot fail, then some of Newton's method."""
    tiny = np.finfo(T.dtype).tiny

    def caused(v: Array) -> Array:
        return v * ((sample.x / jnp.maximum(T @ v, tiny)) @ T)

    def em(_: int, v: Array) -> Array:
        return (sample.a + caused(v)) / (total + _rates(sample, v))

    def newton(_: int, v: Array) -> Array:
        gradient = sample.a + caused(v) - v * (total + _rates(sample, v))
        step = cho_solve((jnp.linalg.cholesky(_precision(sample, T, v)), True), gradient)
        return v * jnp.exp(step / jnp.maximum(1, jnp.abs(step).max()))

    near = jax.lax.fori_loop(0, STEPS["em"], em, jnp.maximum(sample.v, tiny))
    found = jax.lax.fori_loop(0, STEPS["newton"], newton, near)
    return jnp.where(jnp.isfinite(found).all() & (found > 0).all(), found, near)


def _precision(sample: Sample, T: Array, v: Array) -> Array:
    """Return P at v."""
    scaled = T * v[None] / jnp.maximum(T @ v, np.finfo(T.dtype).tiny)[:, None]
    return jnp.diag(sample.a) + (scaled * sample.x[:, None]).T @ scaled


def _proposals(sample: Sample, P: Array) -> tuple[Proposal, Proposal]:
    lower, one = jnp.linalg.cholesky(P), jnp.eye(len(P), dtype=P.dtype)
    root = jnp.diagonal(lower)
    L = lower / root[None]
    near = Proposal(root**2, L, solve_triangular(L, one, lower=True, unit_diagonal=True))
    return near, Proposal(sample.a + (jnp.diagonal(P) - sample.a) / 10, one, one)


def _draw(q: Proposal, noise: Noise) -> tuple[Array, Array]:
    """Return draws of u − mode, and log weights by which their g are exactly Gamma.

    g = d w³ U^{1/D}, w = 1 + z/√(9d), d = D + 2/3, with z normal and U uniform, is very nearly Gamma(D): Marsaglia and
    Tsang (2000) reject some draws instead, which takes loops.
    """
    (z, log_uniform), D = noise, q.shape[None]
    d = D + 2 / 3
    t = z / jnp.sqrt(9 * d)
    log_w = jnp.log1p(jnp.where(t > -1, t, 0))
    # Gamma(D + 1)'s density of g = d w³, times dg/dz, over that of z; terms of the size of D cancel before they round.
    constant = (D + 0.5) * jnp.log1p(2 / (3 * D)) - 2 / 3 - 0.5 * jnp.log(D / (2 * jnp.pi)) - _stirling(D)
    log_ratio = constant + d * (3 * (log_w - t) + 1.5 * t**2 - t**3)
    e = jnp.log1p(2 / (3 * D)) + 3 * log_w + log_uniform / D
    return e @ q.inverse, jnp.where(t > -1, log_ratio, -jnp.inf).sum(axis=1)


def _log_density(q: Proposal, u: Array) -> Array:
    """Return the log density of draws u − mode; the determinant of L is 1."""
    e, D = u @ q.L, q.shape[None]
    return (D * (e - jnp.expm1(e)) - _stirling(D)).sum(axis=1)


def _stirling(D: Array) -> Array:
    """Return log Γ(D) − D log D + D, of order log D, from its series where D is large."""
    series = 0.5 * jnp.log(2 * jnp.pi / D) + 1 / (12 * D) - 1 / (360 * D**3)
    return jnp.where(D > 20, series, gammaln(D) - D * jnp.log(D) + D)  # the next term is below 3e-10


def _log_prior(sample: Sample, u: Array, v: Array) -> Array:
    """Return the log density of u = log v under the prior, rates of the sample's own integrated out, by draw."""
    log_p = (sample.a[None] * u - gammaln(sample.a)[None]).sum(axis=1)
    if sample.own is None:
        rate: Any = sample.rate
        return log_p + (sample.a * jnp.log(rate)).sum() - v @ rate
    a, b = sample.own.a[None], sample.own.b[None]
    shapes = a + _by_rate(sample.own, sample.a)
    terms = gammaln(shapes) - gammaln(a) - a * jnp.log(b) - shapes * jnp.log(1 / b + _by_rate(sample.own, v))
    return log_p + terms.sum(axis=1)


def _rates(sample: Sample, v: Array) -> Array:
    """Return the rates of v; those of the sample's own are replaced by E[λ | v]."""
    if sample.own is None:
        return sample.rate
    a, b = sample.own.a[None], sample.own.b[None]
    mean = (a + _by_rate(sample.own, sample.a)) / (1 / b + _by_rate(sample.own, v))
    return jnp.broadcast_to(mean[0], v.shape)


def _by_rate(own: Gamma, v: Array) -> Array:
    """Return the sums of coefficients with the same rate, draws × rates."""
    v = jnp.atleast_2d(v)
    return v if own.a.shape[0] == v.shape[1] else v.sum(axis=1, keepdims=True)
