"""Factors that gradient methods fit besides Gammas: log-normal ones, points, and ones that go together.

Each has what a `Posterior` is read by, as `Gamma` has: `mean`, `log_mean` and `distribution()`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist

from ..model.priors import Gamma
from ..model.types import Array


class LogNormal(NamedTuple):
    """log x ~ Normal(loc, scale²), every entry on its own.

    >>> LogNormal(0.0, 1.0).log_mean
    0.0
    """

    loc: Array
    scale: Array

    @property
    def mean(self) -> Array:
        """E[x] = exp(loc + scale²/2)."""
        return jnp.exp(self.loc + self.scale**2 / 2)

    @property
    def log_mean(self) -> Array:
        """E[log x] = loc."""
        return self.loc

    def distribution(self) -> dist.Distribution:
        """The same in NumPyro."""
        return dist.LogNormal(self.loc, self.scale)


class Correlated(NamedTuple):
    """log x = loc + Σ_r w_r factor_r + scale ε: the w are shared by T, V and λ, the ε are not.

    loc, scale: of the factor's shape. factor: R × that shape. w and ε are standard normal, so log x is normal with a
    covariance of low rank plus a diagonal. `distribution()` is the margin of every entry on its own; for joint draws,
    `guide(posterior)`.
    """

    loc: Array
    scale: Array
    factor: Array

    @property
    def margins(self) -> LogNormal:
        """Every entry on its own: the variance of log x is scale² + Σ_r factor_r²."""
        return LogNormal(self.loc, jnp.sqrt(self.scale**2 + (self.factor**2).sum(axis=0)))

    @property
    def mean(self) -> Array:
        """E[x]."""
        return self.margins.mean

    @property
    def log_mean(self) -> Array:
        """E[log x] = loc."""
        return self.loc

    def distribution(self) -> dist.Distribution:
        """The margins in NumPyro."""
        return self.margins.distribution()


class Point(NamedTuple):
    """All mass at one value, as of a MAP estimate."""

    value: Array

    @property
    def mean(self) -> Array:
        """The value."""
        return self.value

    @property
    def log_mean(self) -> Array:
        """Its logarithm."""
        return jnp.log(self.value)

    def distribution(self) -> dist.Distribution:
        """The same in NumPyro."""
        return dist.Delta(self.value)


def spread(mean: Array, log_mean: Array) -> Array:
    """S = log E[x] − E[log x] ≥ 0: 0 for a point, and the larger the wider."""
    return jnp.log(mean) - log_mean


def near_gamma(mean: Array, s: Array) -> Gamma:
    """The Gamma of this mean whose spread log a − ψ(a) is s to within 2 %; close enough to start from."""
    s = jnp.broadcast_to(s, mean.shape)
    a = (3 - s + jnp.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return Gamma(a, mean / a)


def near_log_normal(mean: Array, s: Array) -> LogNormal:
    """The log-normal of this mean and spread: s = scale²/2."""
    return LogNormal(jnp.log(mean) - s, jnp.sqrt(2 * jnp.broadcast_to(s, mean.shape)))
