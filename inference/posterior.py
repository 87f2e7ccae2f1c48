"""What every algorithm returns."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import kl_div

from ..model.conjugacy import rate_shape
from ..model.data import Data
from ..model.priors import Gamma, Priors

# Gamma; from other families of SVI also LogNormal, Correlated and Point. They share mean, log_mean and distribution(),
# but closed forms read a and b: a union would only move the imprecision into casts at every use.
Factor: TypeAlias = Any


class Posterior(NamedTuple):
    """The mean field q(T) q(V) q(λ), Gamma factors named as the model's sites.

    T: features × components.
    V: components × samples.
    lam: components × groups, or as the family of coefficients has it; None for one without λ.

    The other families of `svi.run` have other factors here (see `factors`), read in the same way.
    """

    T: Factor
    V: Factor
    lam: Factor | None


class Transposed(NamedTuple):
    """The same the way round in which sweeps hold them (see `poisson`): samples first, features last.

    T: components × features; its scale may be one number per component.
    V: samples × components.
    lam: components × groups, or as the family of coefficients has it; None for one without λ.
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
    elbo: the bound after each sweep. From CAVI it is the valid augmented one: the last entry, and every entry of a
        plain run, has q(S) at its optimum for those factors; the others of an accelerated run have it as the sweep
        left it, which is lower. From SVI it is minus the loss of each step, a noisy estimate.
    num_steps: how many sweeps or steps were made.
    converged: whether the tolerance was met; from SVI, whether the bound no longer changed beyond its noise.
    message: why it stopped, in a sentence.
    bound: what `elbo` holds: "augmented" (CAVI), "collapsed" (SVI; S summed out, at least as high for the same
        factors), or "log_joint" (MAP; no bound). Never compare one with another.
    priors: those it was made with, as they were given; with `cavi.learn`, as they were learned.
    data: a number by which the data it was made from are known again (`fingerprint`).
    learned: whether `priors` were learned, by `cavi.learn`.
    """

    posterior: Posterior
    elbo: np.ndarray
    num_steps: int
    converged: bool
    message: str
    bound: str = "augmented"
    priors: Priors | None = None
    data: int | None = None
    learned: bool = False


def rank_of(posterior: Any) -> int:
    """K; also the check that this is a `Posterior` at all."""
    if not isinstance(posterior, Posterior) or np.ndim(posterior.T[0]) != 2:
        raise ValueError(f"expected a Posterior, as in fit.posterior; got {type(posterior).__name__}")
    return int(np.shape(posterior.T[0])[1])


def factors_of(result: Any) -> Posterior:
    """The posterior of a `Fit`, or the `Posterior` itself."""
    posterior = result.posterior if isinstance(result, Fit) else result
    rank_of(posterior)
    return posterior


def divergence(result: Any, data: Data) -> float:
    """KL(X ‖ E[T] E[V]) = Σ x log(x/m) − x + m over the entries seen.

    Args:
        result: a `Fit`, or its `Posterior`.
        data: what it was fitted to.
    """
    T, V = (np.asarray(q.mean, float) for q in factors_of(result)[:2])
    seen = True if data.mask is None else np.asarray(data.mask, bool)
    return float(kl_div(np.asarray(data.X, float), T @ V).sum(where=seen))


def match(posterior: Posterior, data: Data, priors: Priors, rank: int, kind: type | tuple = Gamma) -> Posterior:
    """The posterior in the precision of the data, if its factors are of this kind and fit the problem."""
    other = {type(q).__name__ for q in posterior if q is not None and not isinstance(q, kind)}
    if other:
        raise ValueError(
            f"expected Gamma factors, which closed forms need; got {', '.join(sorted(other))} "
            "(the means will do: start=cavi.start(T=posterior.T.mean, V=..., lam=...))"
        )
    shapes = {"T": (data.num_features, rank), "V": (rank, data.num_samples)}
    size = rate_shape(priors.coefficients, data, rank)
    if size is not None:
        shapes["lam"] = size
    found = {site: np.shape(q.mean) for site, q in posterior._asdict().items() if q is not None}
    if found != shapes:
        raise ValueError(f"expected a posterior of shapes {shapes} for these data and priors; got {found}")
    cast: Posterior = jax.tree.map(lambda x: jnp.asarray(x, data.X.dtype), posterior)
    return cast
