"""Unlabelled samples: the prior of their labels, and q(z) and q(π), in both forms of q.

The bound gains Σ_τ [ Σ_c q(z_τ = c) E[log π_c] + H(q(z_τ)) ], and with a Dirichlet prior −KL(q(π) ‖ p(π)), where

    q(π) = Dirichlet(u + Σ_τ Δ_τ)  if all samples share it,      q(π_τ) = Dirichlet(u_τ + q(z_τ))  if each has its own.

In the layout of sweeps labelled samples come first, unlabelled ones last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.data import Data
from ...model.matrix import is_traced
from ...model.priors import Gamma
from ...model.special import digamma, gammaln, shape_of_gap
from ...model.types import Array
from ...model.unlabelled import labels_of
from ..moments import turned
from ..posterior import LabelPosterior, Posterior
from .known import Known


class LabelPrior(NamedTuple):
    """The prior of the labels of unlabelled samples.

    log_weights: log π, unlabelled samples × groups.
    u: of a Dirichlet prior: by group if all samples share π, else unlabelled samples × groups; None if π is known.
    counts: by group, the number of samples with this as their single known label.
    """

    log_weights: Array
    u: Array | None
    counts: Array

    def log_prior(self, pi: Array | None) -> Array:
        """Return Π = E[log π], unlabelled samples × groups, from the concentrations of q(π)."""
        if pi is None:
            return self.log_weights
        return jnp.broadcast_to(jnp.atleast_2d(_expected_log(pi)), self.log_weights.shape)

    def dirichlet(self, z: Array) -> Array | None:
        """Return the concentrations of q(π), or of every q(π_τ): the paper's Υ; None if π is known."""
        if self.u is None:
            return None
        return self.u + (self.counts + z.sum(axis=0) if self.is_shared else z)

    def dirichlet_terms(self, pi: Array | None) -> Array:
        """Return −KL(q(π) ‖ p(π)) plus the expected log probability of known labels."""
        if pi is None or self.u is None:
            return jnp.zeros((), self.log_weights.dtype)
        log_pi = _expected_log(pi)

        def log_beta(u: Array) -> Array:
            return jnp.sum(gammaln(u)) - jnp.sum(gammaln(u.sum(axis=-1)))

        terms = jnp.sum((self.u - pi) * log_pi) - log_beta(self.u) + log_beta(pi)
        return terms + jnp.sum(self.counts * log_pi) if self.is_shared else terms

    @property
    def is_shared(self) -> bool:
        """True if all samples share one π."""
        return self.u is not None and self.u.ndim == 1


def _expected_log(u: Array) -> Array:
    """Return E[log π] = ψ(u) − ψ(Σ_c u_c) under Dirichlet(u)."""
    return digamma(u) - digamma(u.sum(axis=-1, keepdims=True))


def label_prior(data: Data) -> LabelPrior:
    """Return the prior of the labels of unlabelled samples.

    Args:
        data: of a `Problem`, with unlabelled samples.
    """
    labels = labels_of(data)
    single = 1 - labels.unlabelled - (0 if labels.several is None else labels.several)
    return LabelPrior(jnp.log(labels.weights), labels.dirichlet, single @ data.membership)


class Believed(NamedTuple):
    """Beliefs about labels that a sweep reads.

    log_prior: E[log π], unlabelled samples × groups.
    z: q(z), unlabelled samples × groups; in the structured form that of the sweep before.
    rows: Σ_i [−E KL(q(v) ‖ p(v | λ)) − E_v Σ_ν E_t] of every row, in the structured form; None in the mean field.
    """

    log_prior: Array
    z: Array
    rows: Array | None


class LabelFactors(NamedTuple):
    """q(z) and q(π), and the samples they belong to.

    z: q(z), unlabelled samples × groups.
    pi: concentrations of q(π); None if π is known.
    membership: all samples × groups, as in `Data`.
    unlabelled: 1 for unlabelled samples.
    """

    z: Array
    pi: Array | None
    membership: Array
    unlabelled: Array

    def posterior(self, T: Gamma, V: Gamma, lam: Gamma | None) -> Posterior:
        """Return the posterior as users read it; T in their layout, V in that of sweeps."""
        columns, given, z = _by_sample(V, self)
        labels = LabelPosterior(z, self.pi, given, self.unlabelled)
        return Posterior(T, turned(columns), lam).with_labels(labels)


@jax.jit
def _by_sample(rows: Gamma, labels: LabelFactors) -> tuple[Gamma, Gamma | None, Array]:
    """Return q(V), samples × components in their own order, q(v | z) if the rows have it, and q(z) of all samples."""
    (M, C), N, K = labels.z.shape, len(labels.unlabelled), rows.a.shape[1]
    known, without = (jnp.nonzero(labels.unlabelled == flag, size=n)[0] for flag, n in ((0, N - M), (1, M)))
    rows = rows.broadcast(*rows.a.shape)
    last, given = Gamma(*(x[N - M :] for x in rows)), None
    if len(rows.a) == N - M + M * C and C > 1:
        given = Gamma(*(x.reshape(M, C, K) for x in last))
        last = matched(given, labels.z)
        given = Gamma(*(jnp.transpose(x, (1, 2, 0)) for x in given))
    empty, both = jnp.zeros((N, K), rows.a.dtype), zip(rows, last, strict=True)
    columns = Gamma(*(empty.at[known].set(x[: N - M]).at[without].set(y) for x, y in both))
    return columns, given, labels.membership.at[without].set(labels.z)


def matched(given: Gamma, z: Array) -> Gamma:
    """Return the Gammas with the E[v] and E[log v] of Σ_c q(z = c) q(v | c), the nearest to it by KL(· ‖ Gamma).

    Args:
        given: samples × groups × components.
        z: samples × groups.
    """
    E, L = (jnp.einsum("mck,mc->mk", x, z) for x in (given.mean, given.log_mean))
    a = shape_of_gap(jnp.maximum(jnp.log(E) - L, np.finfo(E.dtype).eps))
    return Gamma(a, E / a)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unlabelled(Known):
    """Base class of both forms of q for unlabelled samples.

    prior: of the labels of unlabelled samples.
    beta: β, the weight of the evidence for labels: 1, and less while a run anneals.
    membership: all samples × groups, as in `Data`.
    unlabelled: 1 for unlabelled samples.
    """

    prior: Any  # a LabelPrior, or one of rows on devices
    beta: Array
    membership: Array
    unlabelled: Array

    def factors(self, z: Array) -> LabelFactors:
        """Return q(z) and the q(π) that is best for it."""
        return LabelFactors(z, self.prior.dirichlet(z), self.membership, self.unlabelled)

    def prior_factors(self) -> LabelFactors:
        """Return q(z) at the prior of labels, and the q(π) that is best for it."""
        return self.factors(jnp.exp(self.prior.log_weights))

    def parts(self, rows: Array, others: int) -> tuple[Array, ...]:
        """Return the rows of labelled samples and those of unlabelled ones, whose number is `others`."""
        return tuple(jnp.split(rows, [len(rows) - others]))

    def joined(self, known: Array, others: Array) -> Array:
        """Return rows of labelled and of unlabelled samples as rows of all."""
        return jnp.concatenate([known, others])

    def softmax(self, log_prior: Array, evidence: Array) -> Array:
        """Return q(z) ∝ exp(E[log π] + β evidence), rows adding up to 1."""
        return jax.nn.softmax(log_prior + self.beta * evidence, axis=1)

    def split(self) -> tuple[Array, ...]:
        """Return the indices of labelled and of unlabelled samples."""
        if is_traced(self.unlabelled):
            N, M = len(self.unlabelled), len(self.prior.log_weights)
            return tuple(jnp.nonzero(self.unlabelled == flag, size=n)[0] for flag, n in ((0, N - M), (1, M)))
        flags = np.asarray(self.unlabelled, bool)
        return np.flatnonzero(~flags), np.flatnonzero(flags)


def label_terms(z: Array, log_prior: Array) -> Array:
    """Return Σ_τ [ Σ_c q(z_τ = c) E[log π_c] + H(q(z_τ)) ]; groups of probability 0 contribute nothing."""
    # Elsewhere neither logarithm may be differentiated: on the way to the second derivative stands 1/z².
    some = z > np.finfo(z.dtype).tiny ** 0.45
    return jnp.sum(z * (jnp.where(some, log_prior, 0) - jnp.log(jnp.where(some, z, 1))))
