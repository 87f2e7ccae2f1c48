"""What we believe before seeing X: the prior families, and the paper's prior (11).

To the rest of the library a family of coefficients V is the few things below, and no more; the dictionary T has a
`Gamma` prior. A prior on V that is swapped is swapped here.

    hyperparameters(data)         the Gamma that holds its numbers, and how many columns that broadcasts to
    sample_rate(data, rank)       its NumPyro statement for λ; None when it has no such site
    conditional(lam, data, rank)  V given λ, as a NumPyro distribution
    shape, rates(lam, data)       the same: Gamma with this shape and this rate, which is linear in λ
    expected(lam, data)           the same under q(λ), as a `Rate`: what the bound needs of it
    hyperprior                    the Gamma prior of λ
    update(V, data)               q(λ) given E[V]; with V itself, the full conditional of λ
    scaling(V, lam)               its part of what the scale step needs to know, by component
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .data import Data
from .special import digamma, gammaln, log_entropy
from .types import Array


class Grouped(Protocol):
    """Data as far as closed forms need them: `Data`, or what inference makes of it."""

    @property
    def membership(self) -> Array: ...  # noqa: D102 (as in `Data`)
    @property
    def group_sizes(self) -> Array: ...  # noqa: D102 (as in `Data`)


class Rate(NamedTuple):
    """A Gamma prior with shape a and an uncertain rate r: a, E[r] and E[log r]."""

    a: Array
    mean: Array
    log_mean: Array

    def transpose(self) -> Rate:
        """The same with its two axes exchanged."""
        return Rate(*map(jnp.transpose, self))


class Gamma(NamedTuple):
    """Gamma(a, b): shape a and **scale** b, as in the paper's Appendix A; mean ab.

    A prior on T or on V (then the model is Cemgil's, without groups and without λ), and every factor of a
    `Posterior`. The parameters broadcast: scalars, or any shape that NumPy broadcasts to the matrix.

    >>> float(Gamma(2.0, 3.0).mean)
    6.0
    """

    a: Array
    b: Array

    @property
    def mean(self) -> Array:
        """E[x] = a b."""
        return self.a * self.b

    @property
    def log_mean(self) -> Array:
        """E[log x] = ψ(a) + log b."""
        return digamma(self.a, self.b)

    def total(self, axis: int) -> Array:
        """Σ E[x] along an axis; a scale that is constant along it is taken out of the sum."""
        if self.b.shape[axis] == 1:
            return self.a.sum(axis) * self.b.squeeze(axis)
        return self.mean.sum(axis)

    def transpose(self) -> Gamma:
        """The same with its two axes exchanged."""
        return Gamma(*map(jnp.transpose, self))

    def broadcast(self, *shape: int) -> Gamma:
        """The same with parameters of this shape."""
        return Gamma(*(jnp.broadcast_to(parameter, shape) for parameter in self))

    def distribution(self) -> dist.Distribution:
        """The same in NumPyro, which takes a rate."""
        return dist.Gamma(self.a, 1 / jnp.asarray(self.b))

    @property
    def hyperprior(self) -> None:
        """There is no λ, so no prior of it."""

    def hyperparameters(self, data: Data) -> tuple[Gamma, int]:
        """Itself, components × samples."""
        return self, data.num_samples

    def sample_rate(self, data: Data, rank: int) -> None:
        """A Gamma prior has no λ."""

    @property
    def shape(self) -> Array:
        """The shape a."""
        return self.a

    def rates(self, lam: Array | None = None, data: Grouped | None = None) -> Array:
        """The rate 1/b, whatever the group."""
        return 1 / self.b

    def conditional(self, lam: Array | None, data: Data, rank: int) -> dist.Distribution:
        """v_iτ ~ Gamma(a, b), whatever the group."""
        return self.broadcast(rank, data.num_samples).distribution()

    def expected(self, lam: Gamma | None = None, data: Grouped | None = None) -> Rate:
        """The rate is known: 1/b."""
        return Rate(self.a, 1 / self.b, -jnp.log(self.b))

    def update(self, V: Array, data: Grouped) -> None:
        """There is no q(λ)."""

    def scaling(self, V: Gamma, lam: Gamma | None) -> tuple[Array, Array, Array]:
        """v → v/γ changes log p(V) by A log γ − Pγ − Q/γ on average: A = −Σ_τ a, P = 0, Q = Σ_τ E_V/b."""
        power = -jnp.broadcast_to(self.a, V.a.shape).sum(axis=1)
        return power, jnp.zeros_like(power), (V.mean / self.b).sum(axis=1)


class GroupSparse(NamedTuple):
    """v_iτ ~ Exponential(rate λ_ic) for a sample τ of group c, λ_ic ~ `rate`: the paper's prior on V.

    rate: a Gamma, components × groups (or whatever broadcasts to that).
    """

    rate: Gamma

    @property
    def hyperprior(self) -> Gamma:
        """The prior of λ."""
        return self.rate

    def hyperparameters(self, data: Data) -> tuple[Gamma, int]:
        """The rate's, components × groups."""
        if data.num_groups == 0:
            raise ValueError("expected data with groups, as_data(X, groups), for a GroupSparse prior; got data without")
        return self.rate, data.num_groups

    def sample_rate(self, data: Data, rank: int) -> Array:
        """λ_ic ~ Gamma(aˡ_ic, bˡ_ic)."""
        with numpyro.plate("component", rank, dim=-2), numpyro.plate("group", data.num_groups, dim=-1):
            return numpyro.sample("lam", self.rate.broadcast(rank, data.num_groups).distribution())

    @property
    def shape(self) -> float:
        """1: exponential."""
        return 1.0

    def rates(self, lam: Array, data: Grouped) -> Array:
        """r_iτ = Σ_c λ_ic Δ_τc."""
        return lam @ data.membership.T

    def conditional(self, lam: Array, data: Data, rank: int) -> dist.Distribution:
        """v_iτ ~ Exponential(rate r_iτ)."""
        return dist.Exponential(self.rates(lam, data))

    def expected(self, lam: Any, data: Grouped) -> Rate:
        """E[r] = E_Λ Δᵀ and E[log r] = L_Λ Δᵀ: an equality, as every sample has one group."""
        return Rate(self.shape, self.rates(lam.mean, data), self.rates(lam.log_mean, data))

    def update(self, V: Array, data: Grouped) -> Gamma:
        """q(λ_ic) = Gamma(aˡ + N_c, (1/bˡ + Σ_{τ∈c} E[v_iτ])⁻¹)."""
        a = self.rate.a + data.group_sizes[None, :]
        b = 1 / (1 / self.rate.b + V @ data.membership)
        return Gamma(jnp.broadcast_to(a, b.shape), b)

    def scaling(self, V: Gamma, lam: Any) -> tuple[Array, Array, Array]:
        """(v, λ) → (v/γ, γλ) leaves p(V | λ) alone, and changes log p(λ) by A = Σ_c aˡ, P = Σ_c E_Λ/bˡ, Q = 0."""
        power = jnp.broadcast_to(self.rate.a, lam.a.shape).sum(axis=1)
        return power, (lam.mean / self.rate.b).sum(axis=1), jnp.zeros_like(power)


class Coefficients(Protocol):
    """What the library asks of a conjugate family on V; see the top of this file."""

    @property
    def hyperprior(self) -> Gamma | None: ...  # noqa: D102 (documented at the top of the file)
    def hyperparameters(self, data: Data) -> tuple[Gamma, int]: ...  # noqa: D102 (as above)
    def sample_rate(self, data: Data, rank: int) -> Array | None: ...  # noqa: D102 (as above)
    @property
    def shape(self) -> Array: ...  # noqa: D102 (as above)
    def rates(self, lam: Array, data: Grouped) -> Array: ...  # noqa: D102 (as above)
    def conditional(self, lam: Array, data: Data, rank: int) -> dist.Distribution: ...  # noqa: D102 (as above)
    def expected(self, lam: Gamma | None, data: Grouped) -> Rate: ...  # noqa: D102 (as above)
    def update(self, V: Array, data: Grouped) -> Gamma | None: ...  # noqa: D102 (as above)
    def scaling(self, V: Gamma, lam: Gamma | None) -> tuple[Array, Array, Array]: ...  # noqa: D102 (as above)


class Priors(NamedTuple):
    """The priors of the two factors of X ≈ TV.

    dictionary: `Gamma` on T, features × components.
    coefficients: `GroupSparse` or `Gamma` on V.

    >>> Priors(dictionary=Gamma(0.6, 20.0), coefficients=Gamma(1.0, 1.0)).dictionary.a
    0.6
    """

    dictionary: Gamma
    coefficients: Coefficients

    def scaling(self, T: Gamma, V: Gamma, lam: Gamma | None) -> tuple[Array, Array, Array]:
        """By how much (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) changes log p(T, V, λ) on average: A log γ − Pγ − Q/γ.

        Returns A, P and Q of every component; the likelihood does not see such a change.
        """
        a, b = self.dictionary
        power, rate, inverse = self.coefficients.scaling(V, lam)
        return power + jnp.broadcast_to(a, T.a.shape).sum(axis=0), rate + Gamma(T.a, T.b / b).total(axis=0), inverse


def negative_kl(q: Gamma, prior: Rate) -> Array:
    """−KL(q ‖ p) = E log p + H(q), elementwise, averaged over an uncertain rate r of p.

    a (E[log x] + E[log r]) − E[r] E[x] − log Γ(a) + h(α) for p = Gamma(a, 1/r), q = Gamma(α, β), where
    h(α) = H(q) − E[log x] = α + log Γ(α) − α ψ(α).
    """
    # E[r] β first: both are often constant along an axis.
    return prior.a * (q.log_mean + prior.log_mean) - (prior.mean * q.b) * q.a - gammaln(prior.a) + log_entropy(q.a)
