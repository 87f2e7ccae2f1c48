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
from ..model.special import shape_of_gap
from ..model.types import Array
from .labels.unlabelled import LabelFactors, is_unknown, unknown_of

# Gamma; from other families of SVI also LogNormal, Correlated and Point. They share mean, log_mean and distribution(),
# but closed forms read a and b: a union would only move the imprecision into casts at every use.
Factor: TypeAlias = Any


class LabelPosterior(NamedTuple):
    """What a fit says of labels that were unknown.

    z: q(z_τ = c), samples × groups; of samples whose labels are known, these.
    pi: concentrations of q(π), of groups, or of the samples without a label × groups; None if π was known.
    V: q(v_τ | z_τ = c), groups × components × samples without a label; None in the mean field.
    unknown: of every sample, 1 if its label was unknown.
    """

    z: Array
    pi: Array | None
    V: Gamma | None
    unknown: Array


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

    @property
    def labels(self) -> LabelPosterior | None:
        """What is said of labels that were unknown; None if there were none, unlike in a `LabelledPosterior`."""
        return None

    @property
    def z(self) -> Array | None:
        """The probabilities of labels, samples × groups; None if no label was unknown."""
        return None if self.labels is None else self.labels.z

    @property
    def sites(self) -> dict[str, Factor]:
        """The factors of T, V and λ by name, those that there are."""
        return {site: getattr(self, site) for site in ("T", "V", "lam") if getattr(self, site) is not None}

    def with_labels(self, labels: LabelPosterior | None) -> Posterior:
        """The same factors, with what is said of labels that were unknown."""
        T, V, lam = self[:3]
        return Posterior(T, V, lam) if labels is None else LabelledPosterior(T, V, lam, labels)


class LabelledPosterior(Posterior):
    """A posterior of data in which labels are unknown: the mean field, and what is said of labels.

    labels: q(z), q(π) and q(v | z). If V depends on labels there (`labels.V`), the V here has for such a sample Gammas
        with the same E[v] and E[log v] as Σ_c q(z = c) q(v | c).
    """

    _fields = ("T", "V", "lam", "labels")  # type: ignore[assignment]  # one more than it inherits

    def __new__(cls, T: Factor, V: Factor, lam: Factor | None, labels: LabelPosterior) -> LabelledPosterior:  # noqa: D102 (the class says it)
        return tuple.__new__(cls, (T, V, lam, labels))

    @property
    def labels(self) -> LabelPosterior:
        """What is said of labels that were unknown."""
        return tuple.__getitem__(self, 3)  # type: ignore[no-any-return]  # mypy knows three fields

    def _replace(self, **changes: Any) -> LabelledPosterior:  # NamedTuple's own knows three fields
        return LabelledPosterior(**{**dict(zip(self._fields, self, strict=True)), **changes})

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"LabelledPosterior({fields})"


class Transposed(NamedTuple):
    """The same the way round in which sweeps hold them (see `poisson`): samples first, features last.

    T: components × features; its scale may be one number per component.
    V: samples × components; if labels are unknown, in the order that `labels` says.
    lam: components × groups, or as the family of coefficients has it; None for one without λ.
    labels: q(z) and q(π), if labels are unknown; None otherwise.
    """

    T: Gamma
    V: Gamma
    lam: Gamma | None
    labels: LabelFactors | None = None

    @property
    def posterior(self) -> Posterior:
        """As users read them."""
        if self.labels is None:
            return Posterior(_turned(self.T), _turned(self.V), self.lam)
        V, given = _by_sample(self.V, self.labels)
        labels = LabelPosterior(self.labels.full(), self.labels.pi, given, self.labels.unknown)
        return Posterior(_turned(self.T), _turned(V), self.lam).with_labels(labels)


@jax.jit
def _by_sample(rows: Gamma, labels: LabelFactors) -> tuple[Gamma, Gamma | None]:
    """q(V), samples × components in their own order, and q(v | z) of those without a label, if the rows have it."""
    (M, C), N, K = labels.z.shape, len(labels.unknown), rows.a.shape[1]
    known, without = (jnp.nonzero(labels.unknown == flag, size=n)[0] for flag, n in ((0, N - M), (1, M)))
    rows = rows.broadcast(*rows.a.shape)
    last, given = Gamma(*(x[N - M :] for x in rows)), None
    if len(rows.a) == N - M + M * C and C > 1:
        given = Gamma(*(x.reshape(M, C, K) for x in last))
        last = matched(given, labels.z)
        given = Gamma(*(jnp.transpose(x, (1, 2, 0)) for x in given))
    empty, both = jnp.zeros((N, K), rows.a.dtype), zip(rows, last, strict=True)
    return Gamma(*(empty.at[known].set(x[: N - M]).at[without].set(y) for x, y in both)), given


def matched(given: Gamma, z: Array) -> Gamma:
    """The Gammas with the E[v] and E[log v] of Σ_c q(z = c) q(v | c): of all the nearest to it, by KL(· ‖ Gamma).

    given: samples × groups × components; z: samples × groups.
    """
    E, L = (jnp.einsum("mck,mc->mk", x, z) for x in (given.mean, given.log_mean))
    a = shape_of_gap(jnp.maximum(jnp.log(E) - L, np.finfo(E.dtype).eps))
    return Gamma(a, E / a)


def transposed(posterior: Posterior, form: str = "structured") -> Transposed:
    """As sweeps hold them, in this form if labels are unknown.

    Args:
        posterior: Gamma factors.
        form: one of `labels.FORMS`; a structured one is made of a mean field by taking its q(v) for every group.
    """
    if posterior.labels is None:
        return Transposed(_turned(posterior.T), _turned(posterior.V), posterior.lam)
    known, without = (np.flatnonzero(np.asarray(posterior.labels.unknown) == flag) for flag in (0, 1))
    (z, pi, given, unknown), V = posterior.labels, _turned(posterior.V)
    C = z.shape[1]

    def rows(of_sample: Array, of_candidate: Array | None) -> Array:
        last = np.repeat(of_sample[without], C if form == "structured" else 1, axis=0)
        if form == "structured" and of_candidate is not None:
            last = np.transpose(of_candidate, (2, 0, 1)).reshape(last.shape)
        return jax.device_put(np.concatenate([of_sample[known], last]))

    each = (rows(np.asarray(x), None if given is None else np.asarray(y)) for x, y in zip(V, given or V, strict=True))
    factors = LabelFactors(z[without], pi, z, unknown)
    return Transposed(_turned(posterior.T), Gamma(*each), posterior.lam, factors)


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
    other = {type(q).__name__ for q in posterior.sites.values() if not isinstance(q, kind)}
    if other:
        raise ValueError(
            f"expected Gamma factors, which closed forms need; got {', '.join(sorted(other))} "
            "(the means will do: start=cavi.start(T=posterior.T.mean, V=..., lam=...))"
        )
    shapes = {"T": (data.num_features, rank), "V": (rank, data.num_samples)}
    size = rate_shape(priors.coefficients, data, rank)
    if size is not None:
        shapes["lam"] = size
    found = {site: np.shape(q.mean) for site, q in posterior.sites.items()}
    if found != shapes:
        raise ValueError(f"expected a posterior of shapes {shapes} for these data and priors; got {found}")
    said = posterior.labels
    if said is not None and (
        np.asarray(said.unknown, bool).tolist() != (~data.known).tolist() or said.z.shape[1] != data.num_groups
    ):
        raise ValueError("expected a posterior of data in which the same labels are unknown; got another")
    cast: Posterior = jax.tree.map(lambda x: jnp.asarray(x, data.X.dtype), posterior)
    if cast.labels is None or not is_unknown(data):
        return cast
    prior = unknown_of(data, "structured")
    said_of_pi, due = (None if x is None else x.shape for x in (cast.labels.pi, prior.u))
    if said_of_pi != due:  # it was made with another prior of labels
        pi = prior.dirichlet(cast.labels.z[~data.known])
        cast = cast.with_labels(cast.labels._replace(pi=pi))
    return cast
