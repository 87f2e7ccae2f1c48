"""The mean field for unlabelled samples, as in the paper's appendix: one q(v_τ) for all labels, and

    q(z_τ = c) ∝ exp( E[log π_c] + β Σ_i (a L_Λ,ic − E_Λ,ic E_V,iτ) ),

which takes the place of Δ_τc everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...model.conjugacy import Rate, expected
from ...model.groups import Groups, SingleGroups
from ...model.matrix import is_traced
from ...model.priors import Gamma, Priors
from ...model.types import Array
from ..moments import Moments, Transposed, turned
from ..observed import Allocation, Observed
from ..posterior import LabelPosterior, Posterior
from .unlabelled import Believed, LabelFactors, Unlabelled, label_terms


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MeanField(Unlabelled):
    """One q(v_τ) for an unlabelled sample; rows are samples, labelled ones first."""

    def groups_in_sweep(self, m: Moments, S: Allocation) -> Groups:
        """Return membership with the q(z) of the moments."""
        return self._with(m.labels.z)

    def groups_of(self, q: Transposed) -> Groups:
        """Return membership with q(z) for unlabelled samples."""
        return self._with(q.labels.z)

    def _with(self, z: Array) -> Groups:
        groups: Any = self.groups
        membership = self.joined(self.parts(groups.membership, len(z))[0], z)
        return groups._replace(membership=membership)  # type: ignore[no-any-return]  # a NamedTuple of either kind

    def update(self, family: Any, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation) -> LabelFactors:
        """Return q(z) and q(π)."""
        others = self.parts(V.mean, len(m.labels.z))[1]
        return self.factors(self.softmax(m.labels.log_prior, label_evidence(family, lam, others)))

    def read(self, X: Observed, priors: Priors, q: Transposed) -> tuple[Array, Believed]:
        """Return log Σ_τ w E[V] and beliefs about labels."""
        exposure, _ = super().read(X, priors, q)
        return exposure, Believed(self.prior.log_prior(q.labels.pi), q.labels.z, None)

    def terms(self, q: Transposed) -> Array:
        """Return the terms of q(z) and q(π)."""
        z, pi = q.labels.z, q.labels.pi
        return self.prior.dirichlet_terms(pi) + label_terms(z, self.prior.log_prior(pi))

    def optimum(self, priors: Priors, q: Transposed) -> Transposed:
        """Return the factors with the q(z) that is best for the others."""
        among = label_evidence(priors.coefficients, q.lam, self.parts(q.V.mean, len(q.labels.z))[1])
        return q._replace(labels=q.labels._replace(z=self.softmax(self.prior.log_prior(q.labels.pi), among)))

    def temper(self, beta: Array) -> MeanField:
        """Return the strategy at this β."""
        return replace(self, beta=beta)

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps."""
        labels = require_labels(posterior)
        known, without = self.split()
        V = rows_of(turned(posterior.V), join([known, without]))
        factors = LabelFactors(labels.z[without], labels.pi, labels.z, labels.unlabelled)
        return Transposed(turned(posterior.T), V, posterior.lam, factors)

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Believed]:
        """Return E[log V], the exposure and beliefs of a start, in which q(z) is the prior."""
        weights = jnp.exp(self.prior.log_weights)
        return V[join(self.split())], exposure, Believed(self.prior.log_weights, weights, None)


def require_labels(posterior: Posterior) -> LabelPosterior:
    """Return the labels of a posterior; raise if it has none."""
    if posterior.labels is None:
        raise ValueError("expected a posterior of data with unlabelled samples, with q(z); got one without q(z)")
    return posterior.labels


def rows_of(V: Gamma, rows: Array) -> Gamma:
    """Return these rows of a factor; by NumPy if possible, which compiles nothing."""
    if is_traced(*V, rows):
        return Gamma(*(jnp.asarray(x)[rows] for x in V))
    return Gamma(*(jax.device_put(np.asarray(x)[rows]) for x in V))


def join(parts: Sequence[Array]) -> Array:
    """Return the parts one after another; by NumPy if possible, which compiles nothing."""
    return (jnp if is_traced(*parts) else np).concatenate(parts)


def label_evidence(family: Any, lam: Gamma | None, V_mean: Array) -> Array:
    """Return Σ_i (a L_Λ,ic − E_Λ,ic E_V,iτ), samples × groups, from E[V], samples × components."""
    if lam is None:
        raise ValueError(f"expected coefficients with λ of groups for unlabelled samples; got {type(family).__name__}")
    size = V_mean.shape[1], lam.a.shape[1]
    one_of_each = SingleGroups(jnp.eye(size[1], dtype=lam.a.dtype))
    rate = Rate(*(jnp.broadcast_to(x, size) for x in expected(family, lam, one_of_each)))
    return jnp.sum(rate.a * rate.log_mean, axis=0)[None, :] - V_mean @ rate.mean
