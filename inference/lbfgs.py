"""L-BFGS, compiled: for a smooth function whose curvature is about the same in all directions.

Line searches halve the step until it raises the function by at least a ten-thousandth of what its slope promises
(Armijo). Near the optimum the rise drowns in the rounding of the function, but not in that of its gradient: then the
slope along the step decides, which must not have turned round (Hager and Zhang, 2005), and the run ends when half of
the promised rise, which is what a step of Newton's method gains, is small. Pairs of steps and gradients that would
spoil the curvature are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.types import Array

MEMORY = 10  # pairs of steps and gradients
HALVINGS = 20  # of a step at most
ENOUGH = 1e-4  # of the promised rise


class Ascent(NamedTuple):
    """The state of a run.

    u: the point.
    value: the function there.
    slope: its gradient.
    steps: past steps, MEMORY × coordinates, the last one last.
    bends: the changes of minus the gradient that went with them.
    stop: 1 when the tolerance was met, 2 when no step could raise the function, else 0.
    """

    u: Array
    value: Array
    slope: Array
    steps: Array
    bends: Array
    stop: Array


def begin(f: Callable[[Array], tuple[Array, Array]], u: Array) -> Ascent:
    """Return the state before the first step; f returns its value and gradient."""
    value, slope = f(u)
    empty = jnp.zeros((MEMORY, u.size), u.dtype)
    return Ascent(u, value, slope, empty, empty, jnp.zeros((), int))


def advance(
    f: Callable[[Array], tuple[Array, Array]], state: Ascent, tol: Array, limit: Array, most: int
) -> tuple[Ascent, Array, Array]:
    """Make `limit` steps, or fewer if one of them ends the run; return also the value after each, and their number.

    Args:
        f: returns its value and gradient.
        state: to go on from.
        tol: the rise that a step promises, relative to f, below which the run ends.
        limit: the number of steps.
        most: the largest limit, which is compiled.
    """

    def go_on(carry: tuple[Ascent, Array, Array]) -> Array:
        state, _, n = carry
        return (n < limit) & (state.stop == 0)

    def one(carry: tuple[Ascent, Array, Array]) -> tuple[Ascent, Array, Array]:
        state, record, n = carry
        state = _step(f, state, tol)
        return state, record.at[n].set(state.value), n + 1

    record = jnp.zeros(most, state.value.dtype)
    return jax.lax.while_loop(go_on, one, (state, record, jnp.zeros((), int)))


def _step(f: Callable[[Array], tuple[Array, Array]], state: Ascent, tol: Array) -> Ascent:
    way = direction(state)
    promise = way @ state.slope
    way = jnp.where(promise > 0, way, state.slope)
    promise = jnp.where(promise > 0, promise, state.slope @ state.slope)
    rounding = 8 * np.finfo(way.dtype).eps * jnp.abs(state.value)
    # Before anything is known of the curvature, a step of length 1 at most: the coordinates are of that order.
    known = (state.bends[-1] @ state.steps[-1]) > 0
    length = jnp.where(known, 1, 1 / jnp.maximum(1, jnp.sqrt(promise))).astype(way.dtype)

    def too_long(search: tuple[Any, ...]) -> Array:
        length, value, slope, n = search
        rises = value >= state.value + ENOUGH * length * promise
        level = (jnp.abs(value - state.value) <= rounding) & (way @ slope >= -(1 - 2 * ENOUGH) * promise)
        return ~((rises | level) & jnp.isfinite(slope).all()) & (n < HALVINGS)

    def halve(search: tuple[Any, ...]) -> tuple[Any, ...]:
        length, _, _, n = search
        return length / 2, *f(state.u + length / 2 * way), n + 1

    found = jax.lax.while_loop(too_long, halve, (length, *f(state.u + length * way), 0))
    length, value, slope, n = found
    failed = n >= HALVINGS
    step, bend = length * way, state.slope - slope
    keep = ~failed & (step @ bend > 1e-10 * (bend @ bend))

    def remembered(old: Array, new: Array) -> Array:
        return jnp.where(keep, jnp.concatenate([old[1:], new[None]]), old)

    after = Ascent(
        state.u + step, value, slope, remembered(state.steps, step), remembered(state.bends, bend), state.stop
    )
    gain = direction(after) @ slope / 2
    after = after._replace(stop=(gain <= tol * jnp.abs(value)).astype(int))
    stay = state._replace(stop=jnp.full((), 2))
    found_state: Ascent = jax.tree.map(lambda x, y: jnp.where(failed, x, y), stay, after)
    return found_state


def direction(state: Ascent) -> Array:
    """Return the step of Newton's method with the Hessian of L-BFGS, by its two loops over past steps."""
    products = jnp.sum(state.steps * state.bends, axis=1)
    inverse = jnp.where(products > 0, 1 / jnp.where(products > 0, products, 1), 0)

    def backward(way: Array, pair: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        s, y, rho = pair
        alpha = rho * (s @ way)
        return way - alpha * y, alpha

    pairs = state.steps, state.bends, inverse
    way, alphas = jax.lax.scan(backward, state.slope, pairs, reverse=True)
    square = state.bends[-1] @ state.bends[-1]
    way = way * jnp.where(products[-1] > 0, products[-1] / jnp.where(square > 0, square, 1), 1)

    def forward(way: Array, pair: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
        s, y, rho, alpha = pair
        return way + s * (alpha - rho * (y @ way)), None

    way, _ = jax.lax.scan(forward, way, (*pairs, alphas))
    return way
