"""Coordinates of the factors in which the Fisher information of q is about the identity.

A Gamma of shape α and mean m has the Fisher information α for log m and α² ψ'(α) − α, which is between ½ and 1, for
log α, and none between them. So around a point with shapes α₀ and means m₀ every Gamma has the coordinates

    √α₀ (log m − log m₀)        √((1 + α₀)/(1 + 2α₀)) (log α − log α₀),

the second root being within a few per cent of the exact one. In these coordinates a bound is about as curved along one
axis as along another, which is what gradient methods and conjugate gradients need. Concentrations u₀ of q(π) have the
coordinates √(1 + u₀) (log u − log u₀); q(z) has none, as it is at its optimum given the others. In the structured form
of unlabelled samples the coordinates of q(v | z = c) are multiplied by √q(z = c), with which its row counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.priors import Gamma
from ..model.types import Array
from .moments import Transposed

LEAST = 1e-4  # weight of a row below which it is negligible


class Chart(NamedTuple):
    """Coordinates around one point; 0 is the point itself.

    origin: the factors at 0, with a scale for every entry.
    weights: of the rows of V.
    """

    origin: Transposed
    weights: Array

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return int(sum(2 * np.size(gamma.a) for gamma in self.gammas()) + np.size(self.concentrations()))

    @property
    def slack(self) -> Array:
        """1 for coordinates that are negligible, 0 for others: to be added to the diagonal of −∇²ℒ."""
        parts = [jnp.zeros(2 * gamma.a.size) for gamma in self.gammas()]
        rows = jnp.broadcast_to(1 - self.weights[:, None] / self._floored(), self.origin.V.a.shape).ravel()
        parts[1] = jnp.concatenate([rows, rows])
        return jnp.concatenate([*parts, jnp.zeros(self.concentrations().size)]).astype(self.origin.T.a.dtype)

    def at(self, u: Array) -> Transposed:
        """Return the factors at these coordinates."""
        found, begin = [], 0
        for site, gamma in enumerate(self.gammas()):
            n = gamma.a.size
            mean, shape = (u[begin + k * n : begin + (k + 1) * n].reshape(gamma.a.shape) for k in (0, 1))
            weight = jnp.sqrt(self._floored()) if site == 1 else jnp.ones((1, 1), gamma.a.dtype)
            a = gamma.a * jnp.exp(shape / (weight * jnp.sqrt(information_of_shape(gamma.a))))
            found.append(Gamma(a, gamma.mean * jnp.exp(mean / (weight * jnp.sqrt(gamma.a))) / a))
            begin += 2 * n
        q = self.origin._replace(T=found[0], V=found[1], lam=found[2] if len(found) > 2 else None)
        pi = self.concentrations()
        if pi.size:
            moved = pi * jnp.exp(u[begin:].reshape(pi.shape) / jnp.sqrt(1 + pi))
            q = q._replace(labels=q.labels._replace(pi=moved))
        return q

    def gammas(self) -> list[Gamma]:
        """Return the Gamma factors at 0."""
        return gammas_of(self.origin)

    def concentrations(self) -> Array:
        """Return the concentrations of q(π), which are coordinates, too; an empty array if π is known."""
        pi: Any = getattr(self.origin.labels, "pi", None)
        return jnp.zeros(0, self.origin.T.a.dtype) if pi is None else pi

    def _floored(self) -> Array:
        return jnp.maximum(self.weights, LEAST)[:, None]


def gammas_of(q: Transposed) -> list[Gamma]:
    """Return the Gamma factors, T, V and, if there is one, λ."""
    return [gamma for gamma in (q.T, q.V, q.lam) if gamma is not None]


def chart(q: Transposed, weights: Array) -> Chart:
    """Return coordinates around these factors.

    Args:
        q: the factors.
        weights: with which the rows of V count.
    """
    full = {site: getattr(q, site).broadcast(*getattr(q, site).a.shape) for site in ("T", "V")}
    lam = None if q.lam is None else q.lam.broadcast(*q.lam.a.shape)
    return Chart(jax.tree.map(jnp.asarray, q._replace(**full, lam=lam)), weights)


def information_of_shape(a: Array) -> Array:
    """Return (1 + α)/(1 + 2α), about the Fisher information α² ψ'(α) − α for log α."""
    return (1 + a) / (1 + 2 * a)
