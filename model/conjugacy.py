"""Prior families as algorithms use them: V given λ and, with closed forms, q(λ), terms of the bound and scale steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .data import Data
from .distributions import require_on_positive
from .groups import Groups
from .priors import Family, Gamma, Given, Priors
from .special import gammaln, log_entropy
from .types import Array


class Rate(NamedTuple):
    """A Gamma prior with shape a and an uncertain rate r: a, E[r] and E[log r]."""

    a: Array
    mean: Array
    log_mean: Array

    def transpose(self) -> Rate:
        """Return the same with its two axes exchanged."""
        return Rate(*map(jnp.transpose, self))


def rate_shape(family: Family, data: Data, rank: int) -> tuple[int, int] | None:
    """Return the numbers of rows and columns of λ; None for a family without λ."""
    if family.hyperprior is None:
        return None
    length = {"component": rank, "group": data.num_groups, "sample": data.num_samples}
    rows, columns = (length.get(axis, 1) for axis in family.axes)
    return rows, columns


def conditional(family: Any, lam: Array | None, data: Data, rank: int) -> dist.Distribution:
    """Return the distribution of V given λ, components × samples: the family's own, or a Gamma by its closed forms."""
    size = rank, data.num_samples
    if hasattr(family, "conditional"):
        own = family.conditional(lam, data)
        require_on_positive(f"V given λ, as {type(family).__name__} specifies it,", own)
        full: dist.Distribution = own.expand(size)
        return full
    rates = jnp.broadcast_to(family.rates(lam, data), size)
    if isinstance(family.shape, float) and family.shape == 1:  # faster to compile and to draw
        return dist.Exponential(rates)
    return dist.Gamma(jnp.broadcast_to(family.shape, size), rates)


def stated_of_V(family: Any, data: Data) -> dict[str, Array]:
    """Return what a family specifies for V itself: its shape and, without λ, its rates; nothing for a distribution."""
    if not hasattr(family, "rates"):
        return {}
    return {"shape": family.shape} | ({"rates": family.rates(None, data)} if family.hyperprior is None else {})


def expected(family: Any, lam: Gamma | None = None, groups: Groups | None = None) -> Rate:
    """Return the prior of V under q(λ): the rate of every v is one of the λ, so its E[log] is that of the λ.

    For an unlabelled sample E[log] is the average over q(z); for multi-label samples see `SeveralGroups`.

    Args:
        family: with closed forms; or a Gamma.
        lam: q(λ); None for a family without λ.
        groups: the membership of samples.
    """
    if lam is None:
        rates = family.rates(None, groups)
        return Rate(family.shape, rates, jnp.log(rates))
    log_mean = family.rates(lam.log_mean, groups) if groups is None else groups.log_rates(family, lam.log_mean)
    return Rate(family.shape, family.rates(lam.mean, groups), log_mean)


def scaling(priors: Priors, T: Gamma, V: Gamma, lam: Gamma | None, groups: Groups) -> tuple[Array, Array, Array]:
    """Return how (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) changes E[log p(T, V, λ)]: A, P, Q of A log γ − Pγ − Q/γ.

    The likelihood does not change. If every component has its own λ, p(V | λ) does not change either, and p(λ) changes
    by A = Σ_c aˡ, P = Σ_c E_Λ/bˡ. Otherwise λ stays, and p(V | λ) changes by A = −Σ_τ a, Q = Σ_τ E[r] E[v], sums over
    samples with their weights.
    """
    a, b = priors.dictionary
    family, hyperprior = priors.coefficients, priors.coefficients.hyperprior
    power = jnp.broadcast_to(a, T.a.shape).sum(axis=0)
    rate, inverse = Gamma(T.a, T.b / b).total(axis=0), jnp.zeros_like(power)
    if moves_rates(family) and lam is not None:
        power += jnp.broadcast_to(hyperprior.a, lam.a.shape).sum(axis=1)
        rate += (lam.mean / hyperprior.b).sum(axis=1)
    else:
        power -= groups.total(jnp.broadcast_to(family.shape, V.a.shape))
        inverse += groups.total(family.rates(None if lam is None else lam.mean, groups) * V.mean)
    return power, rate, inverse


def moves_rates(family: Family) -> bool:
    """Return whether λ is rescaled along with its component."""
    return family.hyperprior is not None and family.axes[0] == "component"


def negative_kl(q: Gamma, prior: Rate) -> Array:
    """Return −KL(q ‖ p) = E log p + H(q), elementwise, averaged over an uncertain rate r of p.

    a (E[log x] + E[log r]) − E[r] E[x] − log Γ(a) + h(α) for p = Gamma(a, 1/r), q = Gamma(α, β), where
    h(α) = H(q) − E[log x] = α + log Γ(α) − α ψ(α). Within `special.computed_by` h(α) is averaged along the last axis,
    and only sums along this axis are exact.
    """
    # E[r] β first: both are often constant along an axis.
    return prior.a * (q.log_mean + prior.log_mean) - (prior.mean * q.b) * q.a - gammaln(prior.a) + log_entropy(q.a)


def stand_in(prior: Gamma | Given) -> Gamma:
    """Return a Gamma prior itself, or an exponential in place of another distribution: to start from, never to infer.

    The mean of the exponential is the distribution's median, as a half-Cauchy has no mean.
    """
    if isinstance(prior, Gamma):
        return prior
    draws = prior.distribution().sample(jax.random.key(0), (99,))  # few NumPyro distributions have quantiles
    median = jnp.median(draws, axis=0)
    return Gamma(jnp.ones_like(median), median)


def prior_mean(prior: Gamma | Given) -> np.ndarray:
    """Return the mean of a prior, or the median of a prior without closed forms, in double precision."""
    a, b = stand_in(prior)
    with np.errstate(over="ignore"):
        mean = np.asarray(np.asarray(a, float) * np.asarray(b, float))
    if np.isinf(mean).any() and np.isfinite(a).all() and np.isfinite(b).all():
        largest = f"{np.max(a):g} × {np.max(b):g}"
        raise ValueError(f"expected a prior with a finite mean; got a shape and a scale of up to {largest}")
    return mean


def require_closed_forms(priors: Priors, what: str) -> None:
    """Raise for priors without closed forms, and name the algorithms that take them; `priors` are `canonical`."""
    dictionary, family = priors
    missing = []
    if not isinstance(dictionary, Gamma):
        missing.append(f"{dictionary.name} on T")
    if isinstance(family, Given):
        missing.append(f"{family.name} on V")
    elif not hasattr(family, "rates") or not (family.hyperprior is None or hasattr(family, "collect")):
        missing.append(f"{type(family).__name__} on V")
    elif not isinstance(family.hyperprior, (Gamma, type(None))):
        missing.append(f"{family.hyperprior.name} on λ")
    if missing:
        raise ValueError(
            f"expected priors with closed forms for {what}, Gamma on T and on λ and a conjugate family on V; got "
            f"{' and '.join(missing)}: svi.run and mcmc.run_nuts take these priors"
        )
