"""The values that pass from one sweep to the next: factors as sweeps hold them, and the moments that a sweep reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.matrix import is_traced
from ..model.priors import Gamma
from ..model.types import Array
from .posterior import Posterior


class Moments(NamedTuple):
    """Moments of the factors that the next sweep reads, in logarithms.

    T: E[log T], components × features.
    V: E[log V], samples × components.
    exposure: log Σ_τ w E[V], by component and, with a mask, by feature. In the structured form of unlabelled samples it
        is log E[V], because the weights of rows are not known yet.
    lam: log E[λ], components × groups or as the family specifies; None without λ.
    log_lam: E[log λ], with multi-label samples; None otherwise.
    labels: beliefs about the labels of unlabelled samples; None without any.
    """

    T: Array
    V: Array
    exposure: Array
    lam: Array | None
    log_lam: Array | None = None
    labels: Any = None


class Transposed(NamedTuple):
    """Factors in the layout of sweeps (see `observed`): samples first, features last.

    T: components × features; its scale may be one number per component.
    V: samples × components; with unlabelled samples, in the order of the labels' strategy.
    lam: components × groups, or as the family of coefficients specifies; None for a family without λ.
    labels: the factors of the labels' strategy, such as q(z) and q(π).
    """

    T: Gamma
    V: Gamma
    lam: Gamma | None
    labels: Any

    @property
    def posterior(self) -> Posterior:
        """The factors in the layout of users."""
        posterior: Posterior = self.labels.posterior(turned(self.T), self.V, self.lam)
        return posterior


def turned(gamma: Gamma) -> Gamma:
    """Return a factor with its axes exchanged; by NumPy if possible: JAX would compile that for every new shape."""
    if is_traced(*gamma):
        return gamma.broadcast(*gamma.a.shape).transpose()
    return Gamma(*(jax.device_put(np.broadcast_to(parameter, gamma.a.shape).T) for parameter in gamma))


def by_component(matrix: Array, axis: int) -> Array:
    """Return Σ along an axis as a product with ones: then XLA computes the summands in one parallel loop."""
    ones = jnp.ones(matrix.shape[axis], matrix.dtype)
    return matrix @ ones if axis == 1 else ones @ matrix
