"""Exact draws of the scale of a component (Gamma or generalised inverse Gaussian), for the scale move of Gibbs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..model.types import Array

MOST = 200  # proposals at most: as many are rejected in a row only if they are NaN


def draw_scale(key: Array, power: Array, rate: Array, inverse: Array) -> Array:
    """Draw γ with density ∝ γ^(A−1) exp(−Pγ − Q/γ): Gamma(A, rate P) if Q = 0, else generalised inverse Gaussian.

    Args:
        key: a JAX key.
        power: A, by component; positive where Q = 0.
        rate: P > 0.
        inverse: Q ≥ 0.

    y = log γ has log density Ay − Pe^y − Qe^(−y), which is concave. With p = Pγ and q = Q/γ at its mode, where
    p − q = A, it is f(y) = −p(e^y − 1 − y) − q(e^(−y) − 1 + y) at a distance of y from the mode, relative to the mode.
    The tangents of f on either side and 0 between them lie above f: proposals are uniform in the middle and exponential
    in the tails, and 7 to 10 in ten are accepted. If A, P or Q is NaN, none is, and γ is 1.

    >>> draw_scale(jax.random.key(0), jnp.array([2.0, -3.0]), jnp.array([1.0, 1.0]), jnp.array([0.0, 5.0])).shape
    (2,)
    """
    both = jnp.sqrt(rate) * jnp.sqrt(inverse)  # √(PQ), without forming a product that might overflow
    larger = (jnp.abs(power) + jnp.hypot(power, 2 * both)) / 2
    smaller = both * (both / larger)
    p, q = jnp.where(power > 0, larger, smaller), jnp.where(power > 0, smaller, larger)

    def f(y: Array) -> Array:
        return -_times(p, jnp.expm1(y) - y) - _times(q, jnp.expm1(-y) + y)

    def slope(y: Array) -> Array:
        return _times(q, jnp.expm1(-y)) - _times(p, jnp.expm1(y))

    # The points of tangency: f is between −1 and −5/2 there for all p and q, and any point would be valid.
    right = jnp.minimum(jnp.log1p(_knot(p)), _knot(q))
    left = -jnp.minimum(jnp.log1p(_knot(q)), _knot(p))
    end, tail = right - f(right) / slope(right), -1 / slope(right)
    begin, head = left - f(left) / slope(left), 1 / slope(left)
    area = head + (end - begin) + tail

    def propose(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        n, key, y, done = carry
        key, one, two = jax.random.split(key, 3)
        u = area * jax.random.uniform(one, area.shape, area.dtype)
        proposal = begin + (u - head)
        proposal = jnp.where(u < head, begin + head * jnp.log(u / head), proposal)
        proposal = jnp.where(u > area - tail, end - tail * jnp.log((area - u) / tail), proposal)
        above = jnp.minimum(jnp.minimum((proposal - begin) / head, (end - proposal) / tail), 0)
        kept = jnp.log(jax.random.uniform(two, area.shape, area.dtype)) < f(proposal) - above
        return n + 1, key, jnp.where(done, y, proposal), done | kept

    start = jnp.asarray(0), key, jnp.zeros_like(area), jnp.zeros(area.shape, bool)
    _, _, y, done = jax.lax.while_loop(lambda carry: ~carry[3].all() & (carry[0] < MOST), propose, start)
    return jnp.where(done, p / rate * jnp.exp(y), 1)


def _knot(p: Array) -> Array:
    """Return 1/p + √(2/p), infinite at p = 0: about y for p(y − 1 + e^(−y)) = 1, and e^y − 1 for p(e^y − 1 − y) = 1."""
    return 1 / p + jnp.sqrt(2 / p)


def _times(p: Array, x: Array) -> Array:
    """Return px, and 0 at p = 0 even for an infinite x."""
    return jnp.where(p > 0, p * x, 0)
