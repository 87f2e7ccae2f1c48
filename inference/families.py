"""Factors of other families than Gamma, for gradient methods: log-normal, correlated log-normal, and points.

Each has `mean`, `log_mean` and `distribution()`, as `Gamma` has, by which a `Posterior` is read.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist

from ..model.priors import Gamma
from ..model.types import Array


class LogNormal(NamedTuple):
    """log x ~ Normal(loc, scale²), independently for every entry.

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
        """Return the NumPyro distribution."""
        return dist.LogNormal(self.loc, self.scale)


class Correlated(NamedTuple):
    """log x = loc + Σ_r w_r factor_r + scale ε: the w are shared by T, V and λ, the ε are not.

    loc, scale: of the factor's shape.
    factor: R × that shape.

    w and ε are standard normal, so log x is normal with a covariance of low rank plus a diagonal. `distribution()` has
    the margin of every entry; `guide(posterior)` draws jointly.
    """

    loc: Array
    scale: Array
    factor: Array

    @property
    def margins(self) -> LogNormal:
        """The margin of every entry: the variance of log x is scale² + Σ_r factor_r²."""
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
        """Return the margins as a NumPyro distribution."""
        return self.margins.distribution()


class Point(NamedTuple):
    """A point mass at one value, such as a MAP estimate."""

    value: Array

    @property
    def mean(self) -> Array:
        """The value."""
        return self.value

    @property
    def log_mean(self) -> Array:
        """The logarithm of the value."""
        return jnp.log(self.value)

    def distribution(self) -> dist.Distribution:
        """Return the NumPyro distribution."""
        return dist.Delta(self.value)


def spread(mean: Array, log_mean: Array) -> Array:
    """Return s = log E[x] − E[log x] ≥ 0: 0 for a point, and larger for wider factors."""
    return jnp.log(mean) - log_mean


def near_gamma(mean: Array, s: Array) -> Gamma:
    """Return the Gamma with this mean whose spread log a − ψ(a) is s to within 2 %; close enough to start from."""
    s = jnp.broadcast_to(s, mean.shape)
    a = (3 - s + jnp.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return Gamma(a, mean / a)


def near_log_normal(mean: Array, s: Array) -> LogNormal:
    """Return the log-normal with this mean and spread: s = scale²/2."""
    return LogNormal(jnp.log(mean) - s, jnp.sqrt(2 * jnp.broadcast_to(s, mean.shape)))
