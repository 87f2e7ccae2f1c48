"""Prior families of T and V.

The prior of the dictionary T is a `Gamma`, or any NumPyro distribution on the positive numbers. The prior of V is
one of these or a family. A family has only the members below, so that a new one is easily added; `conjugacy` derives
everything else from them.

    hyperprior              the prior of λ, a Gamma or a NumPyro distribution; None without λ
    axes                    names of the rows and columns of λ, from "component" or "all_components" and from "group",
                            "sample" or "all_samples"

and either the distribution of V given λ, which is enough for SVI and NUTS,

    conditional(lam, data)  a NumPyro distribution that broadcasts to components × samples

or closed forms, which with a Gamma as hyperprior serve every algorithm: v_iτ ~ Gamma with this shape and rate, where
the rate of every v is one of the λ (or known, without λ), or the average over λ with the weights of `data.membership`.

    shape                   of v
    rates(lam, data)        the rate of each v; broadcasts to components × samples
    collect(V, data)        Σ of all v with the same λ, in the shape of λ
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import PowerTransform

from .checks import require_positive
from .data import Data
from .distributions import require_on_positive, unexpanded
from .special import digamma
from .types import Array

Axes: TypeAlias = tuple[str, str]


class Grouped(Protocol):
    """Membership of samples, the only part of the data that closed forms need: `Data`, or the `Groups` of a sweep."""

    @property
    def membership(self) -> Array: ...  # noqa: D102 (as in `Data`)


class Gamma(NamedTuple):
    """Gamma(a, b): shape a and **scale** b, as in the paper's Appendix A; mean ab.

    It is a prior on T, on λ, or on V (then the model is Cemgil's, without groups and without λ), and the class of the
    factors of a `Posterior`. The parameters broadcast: scalars, or any shape that NumPy broadcasts to the matrix.

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
        """Return Σ E[x] along an axis; a scale that is constant along it is taken out of the sum."""
        if self.b.shape[axis] == 1:
            return self.a.sum(axis) * self.b.squeeze(axis)
        return self.mean.sum(axis)

    def transpose(self) -> Gamma:
        """Return the same with its two axes exchanged."""
        return Gamma(*map(jnp.transpose, self))

    def broadcast(self, *shape: int) -> Gamma:
        """Return the same with parameters of this shape."""
        return Gamma(*(jnp.broadcast_to(parameter, shape) for parameter in self))

    def distribution(self) -> dist.Distribution:
        """Return the NumPyro distribution, which takes a rate."""
        return dist.Gamma(self.a, 1 / jnp.asarray(self.b))

    @property
    def hyperprior(self) -> None:
        """None: there is no λ."""

    @property
    def axes(self) -> Axes:
        """Names of the axes on V: components × samples."""
        return "component", "sample"

    @property
    def shape(self) -> Array:
        """The shape a."""
        return self.a

    def rates(self, lam: Array | None = None, data: Grouped | None = None) -> Array:
        """Return the rate 1/b, the same for all groups."""
        return 1 / self.b


class Given(NamedTuple):
    """A prior that is a NumPyro distribution on the positive numbers; it has no closed forms.

    Users pass the distribution itself wherever a `Gamma` is accepted; `canonical` wraps it in this class.
    """

    prior: dist.Distribution

    @property
    def name(self) -> str:
        """NumPyro's name of the distribution."""
        return type(unexpanded(self.prior)).__name__

    def broadcast(self, *shape: int) -> Given:
        """Return the same expanded to this shape."""
        return Given(self.prior.expand(shape))

    def distribution(self) -> dist.Distribution:
        """Return the distribution."""
        return self.prior

    @property
    def hyperprior(self) -> None:
        """None: there is no λ."""

    @property
    def axes(self) -> Axes:
        """Names of the axes on V: components × samples."""
        return "component", "sample"

    def conditional(self, lam: None, data: Data) -> dist.Distribution:
        """Return the distribution, the same for all groups."""
        return self.prior


class GroupSparse(NamedTuple):
    """v_iτ ~ Exponential(rate λ_ic) for a sample τ of group c, λ_ic ~ `rate`: the paper's prior on V.

    rate: a Gamma, or any NumPyro distribution on the positive numbers; components × groups, or a shape that broadcasts
        to it. `by_scale` turns a prior of 1/λ into one of λ.
    """

    rate: Any

    @property
    def hyperprior(self) -> Any:
        """The prior of λ."""
        return self.rate

    @property
    def axes(self) -> Axes:
        """Components × groups."""
        return "component", "group"

    @property
    def shape(self) -> float:
        """The shape 1 of an exponential."""
        return 1.0

    def rates(self, lam: Array, data: Grouped) -> Array:
        """Return r_iτ = Σ_c λ_ic Δ_τc: the λ of the sample's group, or the average over its groups."""
        return lam @ data.membership.T

    def collect(self, V: Array, data: Grouped) -> Array:
        """Return Σ_τ v_iτ Δ_τc: the sum over the samples of the group."""
        return V @ data.membership


class Relevance(NamedTuple):
    """v_iτ ~ Exponential(rate λ_i), λ_i ~ `rate`: automatic relevance determination, without groups.

    rate: a Gamma or NumPyro distribution, components × 1.
    """

    rate: Any

    @property
    def hyperprior(self) -> Any:
        """The prior of λ."""
        return self.rate

    @property
    def axes(self) -> Axes:
        """Components × 1."""
        return "component", "all_samples"

    @property
    def shape(self) -> float:
        """The shape 1 of an exponential."""
        return 1.0

    def rates(self, lam: Array, data: Grouped) -> Array:
        """Return λ_i, the same for all samples."""
        return lam

    def collect(self, V: Array, data: Grouped) -> Array:
        """Return Σ_τ v_iτ."""
        return V.sum(axis=1, keepdims=True)


class Exponential(NamedTuple):
    """v_iτ ~ Exponential(rate), with a known rate, or with one λ for all entries, which is learned.

    rate: a number, or an array that broadcasts to components × samples: the same as `Gamma(1, 1/rate)`, on T or on V.
        Or, on V, a Gamma or NumPyro distribution: the prior of λ.
    """

    rate: Any

    @property
    def hyperprior(self) -> Any:
        """The prior of λ."""
        return self.rate

    @property
    def axes(self) -> Axes:
        """1 × 1."""
        return "all_components", "all_samples"

    @property
    def shape(self) -> float:
        """The shape 1 of an exponential."""
        return 1.0

    def rates(self, lam: Array, data: Grouped) -> Array:
        """Return λ, the same for all components and samples."""
        return lam

    def collect(self, V: Array, data: Grouped) -> Array:
        """Return Σ_iτ v_iτ."""
        return V.sum(keepdims=True)


class Family(Protocol):
    """Members that every prior on V has; see the top of this file. Closed forms are in `Conjugate`."""

    @property
    def hyperprior(self) -> Any: ...  # noqa: D102 (documented at the top of the file)
    @property
    def axes(self) -> Axes: ...  # noqa: D102 (as above)


class Conjugate(Family, Protocol):
    """Members of a family with closed forms."""

    @property
    def shape(self) -> Array: ...  # noqa: D102 (as above)
    def rates(self, lam: Array, data: Grouped) -> Array: ...  # noqa: D102 (as above)
    def collect(self, V: Array, data: Grouped) -> Array: ...  # noqa: D102 (as above)


class Priors(NamedTuple):
    """The priors of the two factors of X ≈ TV.

    dictionary: on T, features × components: `Gamma`, or any NumPyro distribution on the positive numbers.
    coefficients: on V, components × samples: `GroupSparse`, `Relevance`, `Exponential`, `Gamma`, a family of your own,
        or a NumPyro distribution on the positive numbers.

    With a `Gamma` dictionary and a family that has closed forms every algorithm works; with other priors only `svi.run`
    and `mcmc.run_nuts` do. NumPyro's Gamma and Exponential are taken as the library's own.

    >>> Priors(dictionary=Gamma(0.6, 20.0), coefficients=Gamma(1.0, 1.0)).dictionary.a
    0.6
    """

    dictionary: Any
    coefficients: Any


def by_scale(prior: dist.Distribution) -> Any:
    """Return the prior of λ = 1/θ for θ with this prior: for group *scales*, the means of V.

    An inverse Gamma on scales is a Gamma on rates, the conjugate prior; other priors work with SVI and NUTS only.

    Args:
        prior: a NumPyro distribution on the positive numbers.

    >>> by_scale(dist.InverseGamma(2.0, 4.0))
    Gamma(a=2.0, b=0.25)
    """
    require_on_positive("the prior of scales", prior)
    base = unexpanded(prior)
    if isinstance(base, dist.InverseGamma):
        rates = Gamma(base.concentration, 1 / base.rate)
        return rates if base is prior else rates.broadcast(*prior.batch_shape)
    return dist.TransformedDistribution(prior, PowerTransform(-1.0))


def canonical(priors: Any) -> Priors:
    """Return the priors in the library's families: NumPyro distributions become a `Gamma` if possible, else `Given`."""
    if not isinstance(priors, Priors):
        raise ValueError(f"expected Priors(dictionary=Gamma(...), coefficients=...); got {type(priors).__name__}")
    dictionary, coefficients = (_canonical(f"the {name}", prior) for name, prior in priors._asdict().items())
    if not isinstance(dictionary, (Gamma, Given)):
        raise ValueError(f"expected the dictionary to be a Gamma or a NumPyro distribution; got {priors.dictionary!r}")
    stated = hasattr(coefficients, "conditional") or (hasattr(coefficients, "rates") and hasattr(coefficients, "shape"))
    if isinstance(coefficients, type) or not hasattr(coefficients, "axes") or not stated:
        raise ValueError(
            "expected coefficients to be GroupSparse, Relevance, Exponential, Gamma, another family of V or a NumPyro "
            f"distribution; got {priors.coefficients!r}"
        )
    return Priors(dictionary, coefficients)


def is_grouped(priors: Priors) -> bool:
    """Return whether V depends on the group of a sample."""
    family = canonical(priors).coefficients
    return family.hyperprior is not None and "group" in family.axes


def _canonical(name: str, prior: Any) -> Any:
    if isinstance(prior, GroupSparse) and prior.rate is None:
        raise ValueError("expected GroupSparse(rate) with a Gamma or a NumPyro distribution; got None")
    if isinstance(prior, dist.Distribution):
        require_on_positive(name, prior)
        base = unexpanded(prior)
        if isinstance(base, dist.Gamma):
            return Gamma(base.concentration, 1 / base.rate).broadcast(*prior.batch_shape)
        if isinstance(base, dist.Exponential):
            return Gamma(1.0, 1 / base.rate).broadcast(*prior.batch_shape)
        return Given(prior)
    if isinstance(prior, Exponential) and not isinstance(prior.rate, (Gamma, Given, dist.Distribution)):
        require_positive(f"the rate of {name}", prior.rate)
        rate = prior.rate if isinstance(prior.rate, jax.Array) else np.asarray(prior.rate, float)
        return Gamma(1.0, 1 / rate)
    if hasattr(prior, "_asdict") and not isinstance(prior, (Gamma, Given, type)):
        return type(prior)(*(_canonical(f"the {field} of {name}", value) for field, value in prior._asdict().items()))
    return prior
