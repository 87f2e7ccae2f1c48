"""The curvature of a bound at its optimum: solutions of −∇²ℒ x = g, and the log determinant with its gradient.

Coordinates are those of `coordinates`, in which −∇²ℒ has eigenvalues about 1 and below: conjugate gradients need few
products with it, and no preconditioner. Blocks on its diagonal would be the identity if q(S) were fixed; what is below
1 is information that the counts S, which are not observed, would add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..model.priors import Priors
from ..model.special import polygamma
from ..model.types import Array
from .coordinates import Chart, gammas_of, information_of_shape
from .posterior import Posterior
from .refinement import Located, with_best_labels

MOST = 5000  # products at most for one block of right-hand sides
BATCH = 64  # directions at once


class Solved(NamedTuple):
    """Solutions by conjugate gradients.

    x: right-hand sides × coordinates.
    steps: the number of products for each.
    residual: |g − (−∇²ℒ) x| / |g| of each.
    is_convex: whether every direction met was one of positive curvature.
    """

    x: Array
    steps: Array
    residual: Array
    is_convex: Array


@partial(jax.jit, static_argnames="kind")
def conjugate_gradients(kind: str, optimum: Located, sides: Array, tol: Array) -> Solved:
    """Solve −∇²ℒ x = g for each of several g, until the residual is below tol |g|.

    Args:
        kind: of the bound.
        optimum: the point.
        sides: right-hand sides × coordinates.
        tol: the relative residual.
    """
    _, product = jax.linearize(jax.grad(optimum.bound(kind)), optimum.zero)
    slack = optimum.around.slack

    def one(g: Array) -> Solved:
        def go_on(state: tuple[Any, ...]) -> Array:
            _, _, _, square, n, convex = state
            return (square > tol**2 * (g @ g)) & (n < MOST) & convex

        def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
            x, r, p, square, n, _ = state
            image = slack * p - product(p)
            curvature = p @ image
            length = square / curvature
            r = r - length * image
            after = r @ r
            return x + length * p, r, r + after / square * p, after, n + 1, curvature > 0

        begin = jnp.zeros_like(g), g, g, g @ g, jnp.zeros((), int), jnp.ones((), bool)
        x, _, _, square, n, convex = jax.lax.while_loop(go_on, step, begin)
        return Solved(x, n, jnp.sqrt(square / jnp.maximum(g @ g, np.finfo(g.dtype).tiny)), convex)

    found: Solved = jax.lax.map(one, sides)  # one after another: products of several at once leave the caches
    return found


@partial(jax.jit, static_argnames="kind")
def slope(kind: str, optimum: Located) -> Array:
    """Return the gradient of the bound, 0 at the optimum."""
    return jax.grad(optimum.bound(kind))(optimum.zero)


class Blocks(NamedTuple):
    """The coordinates of T and V by how they meet in the bound.

    Given V and λ, the bound is a sum over features; given T and λ, over samples. So −∇²ℒ is an arrow: a block for every
    feature, or every sample, and a border of the others.

    each: blocks × coordinates of a block.
    border: the other coordinates.
    """

    each: np.ndarray
    border: np.ndarray


def blocks_of(around: Chart) -> Blocks:
    """Return blocks of features if there are more features than samples, else of samples; all labels are known."""
    (K, F), (N, _) = around.origin.T.a.shape, around.origin.V.a.shape
    T, V = np.arange(2 * K * F).reshape(2, K, F), 2 * K * F + np.arange(2 * N * K).reshape(2, N, K)
    each = T.transpose(2, 0, 1).reshape(F, 2 * K) if F > N else V.transpose(1, 0, 2).reshape(N, 2 * K)
    return Blocks(each, np.setdiff1d(np.arange(around.size), each.ravel()))


class Factorised(NamedTuple):
    """−∇²ℒ in memory, in double precision, by Cholesky factors of its blocks A and of S = G − Σ Bᵀ A⁻¹ B.

    blocks: the coordinates of the blocks, and of the border G.
    lower: the factor of S.
    lowers: the factor of every block A.
    across: A⁻¹ B of every block, block × its coordinates × border.
    """

    blocks: Blocks
    lower: np.ndarray
    lowers: np.ndarray
    across: np.ndarray

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return int(self.blocks.each.size + self.blocks.border.size)

    def solve(self, sides: np.ndarray) -> np.ndarray:
        """Return x with −∇²ℒ x = g for each of several g, right-hand sides × coordinates."""
        each, border = self.blocks
        within = sides[:, each]  # sides × blocks × coordinates of a block
        x = np.empty_like(sides)
        rest = sides[:, border] - np.tensordot(within, self.across, 2)
        x[:, border] = cho_solve((self.lower, True), rest.T, check_finite=False).T
        alone = np.linalg.solve(self.lowers, np.moveaxis(within, 0, 2))
        alone = np.moveaxis(np.linalg.solve(np.swapaxes(self.lowers, 1, 2), alone), 2, 0)
        x[:, each] = alone - np.einsum("bkg,sg->sbk", self.across, x[:, border], optimize=True)
        return x

    def half(self, z: np.ndarray) -> np.ndarray:
        """Return C z for several z, z × coordinates, C Cᵀ = (−∇²ℒ)⁻¹: draws, if z is standard normal."""
        each, border = self.blocks
        x = np.empty_like(z)
        x[:, border] = solve_triangular(self.lower, z[:, border].T, trans="T", lower=True, check_finite=False).T
        alone = np.linalg.solve(np.swapaxes(self.lowers, 1, 2), np.moveaxis(z[:, each], 0, 2))
        x[:, each] = np.moveaxis(alone, 2, 0) - np.einsum("bkg,sg->sbk", self.across, x[:, border], optimize=True)
        return x

    def directions(self, together: bool = False) -> Iterator[np.ndarray]:
        """Yield w_j with Σ_j w_j w_jᵀ = (−∇²ℒ)⁻¹, some at a time, w_j × coordinates; the last are filled up with 0.

        Args:
            together: whether to add up w_j of different blocks. That is exact for second derivatives of functions in
                which blocks do not meet, such as the bound, and takes far fewer.
        """
        each, border = self.blocks
        rows = [np.full(1, j) for j in border]
        rows += list(each.T) if together else [np.full(1, j) for j in each.ravel()]
        for begin in range(0, len(rows), BATCH):
            z = np.zeros((BATCH, self.size))
            for n, columns in enumerate(rows[begin : begin + BATCH]):
                z[n, columns] = 1
            yield self.half(z)

    @property
    def log_det(self) -> float:
        """log det(−∇²ℒ)."""
        logs = np.log(np.diagonal(self.lowers, axis1=1, axis2=2)).sum() + np.log(np.diag(self.lower)).sum()
        return float(2 * logs)


def factorised(kind: str, optimum: Located) -> Factorised | None:
    """Return −∇²ℒ factorised; None if it is not positive definite, so that this is not an optimum."""
    blocks = blocks_of(optimum.around)
    each, border = blocks
    A = np.stack([rows[each] for rows in _images(kind, optimum, list(each.T))], axis=1)
    B, G = np.empty((*each.shape, border.size)), np.empty((border.size, border.size))
    for j, image in enumerate(_images(kind, optimum, list(border))):
        B[:, :, j], G[j] = image[each], image[border]
    try:
        lowers = np.linalg.cholesky((A + np.swapaxes(A, 1, 2)) / 2)
        across = np.linalg.solve(np.swapaxes(lowers, 1, 2), np.linalg.solve(lowers, B))
        S = (G + G.T) / 2 - np.tensordot(B, across, ((0, 1), (0, 1)))
        return Factorised(blocks, np.linalg.cholesky(S), lowers, across)
    except np.linalg.LinAlgError:
        return None


def _images(kind: str, optimum: Located, columns: list[Any]) -> Iterator[np.ndarray]:
    """Yield sums of columns of −∇²ℒ, for each index or array of indices."""
    for begin in range(0, len(columns), BATCH):
        units = np.zeros((BATCH, optimum.around.size), optimum.zero.dtype)
        for n, some in enumerate(columns[begin : begin + BATCH]):
            units[n, some] = 1
        yield from np.asarray(_products(kind, optimum, units), float)[: len(columns) - begin]


@partial(jax.jit, static_argnames="kind")
def _products(kind: str, optimum: Located, ways: Array) -> Array:
    """Return −∇²ℒ w for several w; one after another, as batches of products leave the caches."""
    _, product = jax.linearize(jax.grad(optimum.bound(kind)), optimum.zero)
    return -jax.lax.map(product, ways)


def fluctuation(optimum: Located, factor: Factorised) -> float:
    """Return −½ log det(−∇²ℒ) relative to the Fisher information of q: what Gaussian fluctuations add to the bound.

    Args:
        optimum: the point.
        factor: of −∇²ℒ there.
    """
    return -0.5 * (factor.log_det - float(_log_information(optimum.around, optimum.zero)))


def fluctuation_slope(kind: str, optimum: Located, factor: Factorised) -> np.ndarray:
    """Return the gradient of `fluctuation` by the coordinates: ½ Σ_j ∇ (wⱼᵀ ∇²ℒ wⱼ) with Σ_j wⱼ wⱼᵀ = (−∇²ℒ)⁻¹.

    Args:
        kind: of the bound.
        optimum: the point.
        factor: of −∇²ℒ there.
    """
    total = 0.5 * np.asarray(jax.jit(jax.grad(_log_information, 1))(optimum.around, optimum.zero), float)
    for ways in factor.directions(together=True):
        total += 0.5 * np.asarray(_third(kind, optimum, jnp.asarray(ways, optimum.zero.dtype)), float)
    return total


@partial(jax.jit, static_argnames="kind")
def _third(kind: str, optimum: Located, ways: Array) -> Array:
    """Return ∇ Σ_j wⱼᵀ ∇²ℒ wⱼ at the optimum."""
    bound = optimum.bound(kind)
    slopes = jax.lax.map(lambda w: jax.grad(lambda u: curved(bound, u, w))(optimum.zero), ways)
    return slopes.sum(axis=0)


def curved(f: Callable[[Array], Array], u: Array, w: Array) -> Array:
    """Return the second derivative of f at u along w."""
    return jax.jvp(lambda u: jax.jvp(f, (u,), (w,))[1], (u,), (w,))[1]


def as_statistic(f: Callable[[Posterior], Any], kind: str, optimum: Located, u: Array) -> Array:
    """Return f of the factors at these coordinates, with q(z) at its optimum."""
    data, priors, around = optimum
    q = around.at(u)
    if hasattr(q.labels, "z"):
        q = with_best_labels(kind, data, priors, q)
    return jnp.asarray(f(q.posterior))


@partial(jax.jit, static_argnames=("f", "kind"))
def bend(f: Callable[[Posterior], Any], kind: str, optimum: Located, ways: Array) -> Array:
    """Return Σ_j of the second derivatives of f along w_j at the optimum."""

    def of(u: Array) -> Array:
        return as_statistic(f, kind, optimum, u)

    return jax.vmap(lambda w: curved(of, optimum.zero, w))(ways).sum(axis=0)


@partial(jax.jit, static_argnames="kind")
def by_priors(kind: str, optimum: Located, solved: Array) -> Priors:
    """Return xᵀ ∂²ℒ/∂η∂α for every hyperparameter α and each of several x, x × coordinates."""

    def one(x: Array) -> Priors:
        def along(priors: Priors) -> Array:
            return jax.jvp(optimum._replace(priors=priors).bound(kind), (optimum.zero,), (x,))[1]

        slopes: Priors = jax.grad(along)(optimum.priors)
        return slopes

    found: Priors = jax.lax.map(one, solved)
    return found


def _log_information(around: Chart, u: Array) -> Array:
    """Return the log determinant of the Fisher information of q in these coordinates, known labels only."""
    q = around.at(u)
    total = jnp.zeros((), u.dtype)
    for now, origin in zip(gammas_of(q), around.gammas(), strict=True):
        exact = _exact_information_of_shape(now.a)
        total += jnp.sum(jnp.log(now.a / origin.a) + jnp.log(exact / information_of_shape(origin.a)))
    return total


def _exact_information_of_shape(a: Array) -> Array:
    """Return α² ψ'(α) − α; above 8 by its series, as both terms are large and their difference is about ½."""
    small, large = jnp.minimum(a, 8), jnp.maximum(a, 8)
    series = 0.5 + 1 / (6 * large) - 1 / (30 * large**3) + 1 / (42 * large**5)
    return jnp.where(a < 8, small**2 * polygamma(1, small) - small, series)
