"""Unknown labels in a run of sweeps: two forms of q for a sample without a label, and how q(z) is updated.

Mean field, as in the paper's appendix: one q(v_τ) whatever the label, and

    q(z_τ = c) ∝ exp( E[log π_c] + β Σ_i (a L_Λ,ic − E_Λ,ic E_V,iτ) ),

which stands for Δ_τc wherever that stood. Structured: a q(v_τ | z_τ = c) for every candidate c, and

    q(z_τ = c) ∝ exp( E[log π_c] + β ℒ_τ(c) ),    ℒ_τ(c) the sample's own terms of the bound under group c.

There a sample without a label is one row for every candidate group, which counts with weight q(z_τ = c) for T and λ.
β is 1, and less while a run warms up. The bound gains Σ_τ [ Σ_c q(z_τ = c) E[log π_c] + H(q(z_τ)) ], and with a
Dirichlet prior −KL(q(π) ‖ p(π)), where

    q(π) = Dirichlet(u + Σ_τ Δ_τ)  if all share it,      q(π_τ) = Dirichlet(u_τ + q(z_τ))  of each its own.

As sweeps hold them, samples whose labels are known come first, those without a label last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import entr

from ...model.conjugacy import Rate, expected
from ...model.data import Data
from ...model.labels import Labels
from ...model.priors import Gamma
from ...model.special import digamma, gammaln
from ...model.types import Array

FORMS = ("structured", "mean_field")


class Unknown(NamedTuple):
    """What is believed beforehand about the samples without a label; `MeanField` and `Structured` say how q goes on.

    log_weights: log π, of these samples × groups.
    u: of a Dirichlet prior: of groups, if all share it, or of these samples × groups; None if π is known.
    counts: of every group, how many samples are of it for certain, and of it alone.
    beta: β.
    membership: of all samples × groups, as in `Data`; flags: of all samples, 1 for those without a label.
    """

    log_weights: Array
    u: Array | None
    counts: Array
    beta: Array
    membership: Array
    flags: Array

    def log_prior(self, pi: Array | None) -> Array:
        """Π = E[log π], of these samples × groups; pi as `dirichlet` has it."""
        if pi is None:
            return self.log_weights
        return jnp.broadcast_to(jnp.atleast_2d(_expected_log(pi)), self.log_weights.shape)

    def dirichlet(self, z: Array) -> Array | None:
        """The concentrations of q(π), or of every q(π_τ): Υ in the paper's appendix; None if π is known."""
        if self.u is None:
            return None
        return self.u + (self.counts + z.sum(axis=0) if self.is_shared else z)

    def dirichlet_terms(self, pi: Array | None) -> Array:
        """−KL(q(π) ‖ p(π)), and what q(π) expects of the labels that are known."""
        if pi is None or self.u is None:
            return jnp.zeros((), self.log_weights.dtype)
        log_pi = _expected_log(pi)

        def log_beta(u: Array) -> Array:
            return jnp.sum(gammaln(u)) - jnp.sum(gammaln(u.sum(axis=-1)))

        terms = jnp.sum((self.u - pi) * log_pi) - log_beta(self.u) + log_beta(pi)
        return terms + jnp.sum(self.counts * log_pi) if self.is_shared else terms

    @property
    def is_shared(self) -> bool:
        """Whether one π is shared by all."""
        return self.u is not None and self.u.ndim == 1


def _expected_log(u: Array) -> Array:
    """E[log π] = ψ(u) − ψ(Σ_c u_c) under Dirichlet(u)."""
    return digamma(u) - digamma(u.sum(axis=-1, keepdims=True))


class MeanField(Unknown):
    """One q(v_τ) whatever the label."""


class Structured(Unknown):
    """A q(v_τ | z_τ = c) for every group c."""


class Believed(NamedTuple):
    """What a sweep reads about the labels that are unknown.

    log_prior: E[log π].
    z: q(z), of the samples without a label × groups; in the structured form that of the sweep before.
    rows: of every row, Σ_i [−E KL(q(v) ‖ p(v | λ)) − E_v Σ_ν E_t], in the structured form; None in the mean field.
    """

    log_prior: Array
    z: Array
    rows: Any


class LabelFactors(NamedTuple):
    """q(z) and q(π), and whose they are.

    z: q(z), of the samples without a label × groups.
    pi: concentrations of q(π); None if π is known.
    membership: of all samples × groups, as in `Data`.
    unknown: of all samples, 1 for those without a label.
    """

    z: Array
    pi: Array | None
    membership: Array
    unknown: Array

    def full(self) -> Array:
        """q(z) of all samples × groups, membership where it is known."""
        return self.membership.at[without_label(self.unknown, len(self.z))].set(self.z)


def without_label(unknown: Array, M: int) -> Array:
    """Which samples they are, M indices."""
    return jnp.nonzero(unknown, size=M)[0]


def order(labels: Labels, N: int, form: str) -> Array:
    """Of every row of a sweep, its sample: known labels first, then those without, C rows each if structured."""
    M, C = labels.weights.shape
    known = jnp.nonzero(jnp.asarray(labels.unknown) == 0, size=N - M)[0]
    return jnp.concatenate([known, jnp.repeat(without_label(labels.unknown, M), C if form == "structured" else 1)])


def is_unknown(data: Data) -> bool:
    """Whether there are samples without a label."""
    return data.labels is not None and data.labels.num_unknown > 0


def form_of(posterior: Any, data: Data) -> str:
    """The form of q that a posterior has for samples without a label."""
    if is_unknown(data) and posterior.labels is None:
        raise ValueError("expected a posterior of data in which labels are unknown, with z; got one without")
    return "mean_field" if posterior.labels is None or posterior.labels.V is None else "structured"


def unknown_of(data: Data, form: str) -> Unknown:
    """What sweeps read of `data.labels`, in which some are unknown; β is 1."""
    labels: Labels = data.labels  # type: ignore[assignment]  # there are some
    single = 1 - labels.unknown - (0 if labels.several is None else labels.several)
    kind = Structured if form == "structured" else MeanField
    counts = single @ data.membership
    beta = jnp.ones((), counts.dtype)
    return kind(jnp.log(labels.weights), labels.dirichlet, counts, beta, data.membership, labels.unknown)


def rows_of_groups(data: Data, form: str) -> Array:
    """Membership by row; of a candidate, its group."""
    M, C = data.labels.weights.shape  # type: ignore[union-attr]  # there are some
    membership = data.membership[order(data.labels, data.num_samples, form)]  # type: ignore[arg-type]
    if form != "structured":
        return membership
    return membership.at[data.num_samples - M :].set(jnp.tile(jnp.eye(C, dtype=membership.dtype), (M, 1)))


def softmax(log_prior: Array, evidence: Array, beta: Array) -> Array:
    """q(z) ∝ exp(log π + β evidence), rows adding up to 1."""
    return jax.nn.softmax(log_prior + beta * evidence, axis=1)


def label_terms(z: Array, log_prior: Array) -> Array:
    """Σ_τ [ Σ_c q(z_τ = c) E[log π_c] + H(q(z_τ)) ]; a group that cannot be counts nothing."""
    return jnp.sum(jnp.where(z > 0, z * log_prior, 0) + entr(z))


class Candidates(NamedTuple):
    """One sample of every group, to who asks what V would be there."""

    membership: Array
    several: None = None


def evidence(family: Any, lam: Gamma, V_mean: Array) -> Array:
    """Σ_i (a L_Λ,ic − E_Λ,ic E_V,iτ), samples × groups, from E[V], samples × components."""
    size = V_mean.shape[1], lam.a.shape[1]
    rate = Rate(
        *(jnp.broadcast_to(x, size) for x in expected(family, lam, Candidates(jnp.eye(size[1], dtype=lam.a.dtype))))
    )
    return jnp.sum(rate.a * rate.log_mean, axis=0)[None, :] - V_mean @ rate.mean
