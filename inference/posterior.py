"""What every algorithm returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.data import Data
from ..model.priors import Gamma, Priors


class Posterior(NamedTuple):
    """The mean field q(T) q(V) q(λ), Gamma factors named as the model's sites.

    T: features × components.
    V: components × samples.
    lam: components × groups; None for a family of coefficients without λ.
    """

    T: Gamma
    V: Gamma
    lam: Gamma | None


class Transposed(NamedTuple):
    """The same the way round in which sweeps hold them (see `poisson`): samples first, features last.

    T: components × features; its scale may be one number per component.
    V: samples × components.
    lam: components × groups; None for a family of coefficients without λ.
    """

    T: Gamma
    V: Gamma
    lam: Gamma | None

    @property
    def posterior(self) -> Posterior:
        """As users read them."""
        return Posterior(_turned(self.T), _turned(self.V), self.lam)


def transposed(posterior: Posterior) -> Transposed:
    """As sweeps hold them."""
    return Transposed(_turned(posterior.T), _turned(posterior.V), posterior.lam)


def _turned(gamma: Gamma) -> Gamma:
    """With its axes exchanged; by NumPy where there are values: JAX would compile that for every new shape."""
    if isinstance(gamma.a, jax.core.Tracer):
        return gamma.broadcast(*gamma.a.shape).transpose()
    return Gamma(*(jax.device_put(np.broadcast_to(parameter, gamma.a.shape).T) for parameter in gamma))


class Fit(NamedTuple):
    """A fitted posterior and how it was reached.

    posterior: the factors.
    elbo: the valid augmented bound after each sweep. The last entry, and every entry of a plain run, has q(S) at its
        optimum for those factors; the others of an accelerated run have it as the sweep left it, which is lower.
    num_steps: how many sweeps were made.
    converged: whether the tolerance was met.
    message: why it stopped, in a sentence.
    """

    posterior: Posterior
    elbo: np.ndarray
    num_steps: int
    converged: bool
    message: str


def rank_of(posterior: Any) -> int:
    """K; also the check that this is a `Posterior` at all."""
    if not isinstance(posterior, Posterior) or np.ndim(posterior.T.a) != 2:
        raise ValueError(f"expected a Posterior, as in fit.posterior; got {type(posterior).__name__}")
    return int(np.shape(posterior.T.a)[1])


def match(posterior: Posterior, data: Data, priors: Priors, rank: int) -> Posterior:
    """The posterior in the precision of the data, if its shapes are those of the problem."""
    shapes = {"T": (data.num_features, rank), "V": (rank, data.num_samples)}
    if priors.coefficients.hyperprior is not None:
        shapes["lam"] = (rank, data.num_groups)
    found = {site: np.broadcast_shapes(*map(np.shape, q)) for site, q in posterior._asdict().items() if q is not None}
    if found != shapes:
        raise ValueError(f"expected a posterior of shapes {shapes} for these data and priors; got {found}")
    cast: Posterior = jax.tree.map(lambda x: jnp.asarray(x, data.X.dtype), posterior)
    return cast
