"""Exact draws of many Gammas at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..model.types import Array
from . import native

MOST = 200  # proposals at most: as many are rejected in a row only if the shape is NaN


def draw_gammas(key: Array, shape: Array) -> Array:
    """Draw from Gamma(a, 1) for every a, by the method of Marsaglia and Tsang (2000).

    With d = a − 1/3, a standard normal x, y = x/√(9d) and v = (1 + y)³, the proposal dv is accepted with probability
    exp(x²/2 − d(v − 1 − log v)), at least 0.95 on average for a ≥ 1. If a < 1, a draw for a + 1 is multiplied by
    u^(1/a), which underflows to 0 for the smallest a. Proposals are made for all a at once until every one has been
    accepted, a few times for thousands of them: jax.random.gamma takes several times as long. Where there is a compiled
    kernel (`native.gamma`) it draws instead, by the same method from other random numbers.

    Args:
        key: a JAX key.
        shape: the shapes a > 0, an array of any shape.

    >>> draw_gammas(jax.random.key(0), jnp.array([0.1, 2.0, 300.0])).shape
    (3,)
    """
    if native.is_available():
        return native.gamma(key, shape)
    small = shape < 1
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    ahead, boost = jax.random.split(key)

    def propose(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        n, key, drawn, done = carry
        key, normal, exponential = jax.random.split(key, 3)
        x = jax.random.normal(normal, d.shape, d.dtype)
        y = x / jnp.sqrt(9 * d)
        fits = y > -1
        y = jnp.where(fits, y, 0)
        loss = d * (3 * (y - jnp.log1p(y)) + y * y * (3 + y))  # d(v − 1 − log v), without cancellation at large d
        fits &= jax.random.exponential(exponential, d.shape, d.dtype) > loss - x * x / 2
        return n + 1, key, jnp.where(done, drawn, d * (1 + y) ** 3), done | fits

    start = jnp.asarray(0), ahead, d, jnp.zeros(d.shape, bool)
    drawn = jax.lax.while_loop(lambda carry: ~carry[3].all() & (carry[0] < MOST), propose, start)[2]
    return jnp.where(small, drawn * jnp.exp(-jax.random.exponential(boost, d.shape, d.dtype) / shape), drawn)
