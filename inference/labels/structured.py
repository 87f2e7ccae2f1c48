"""The structured form for unlabelled samples: a q(v_τ | z_τ = c) for every candidate group c, and

    q(z_τ = c) ∝ exp( E[log π_c] + β ℒ_τ(c) ),    ℒ_τ(c) the sample's own terms of the bound under group c.

An unlabelled sample has one row for every candidate group, which counts with weight q(z_τ = c) for T and λ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ...model.conjugacy import expected, negative_kl
from ...model.groups import Groups, WeightedGroups
from ...model.priors import Gamma, Priors
from ...model.types import Array
from ..moments import Moments, Transposed, by_component, turned
from ..observed import Allocation
from ..observed.candidates import Candidates
from ..posterior import Posterior
from .mean_field import join, require_labels, rows_of
from .unlabelled import Believed, LabelFactors, Unlabelled, label_terms


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Structured(Unlabelled):
    """A q(v_τ | z_τ = c) for every group c; rows are labelled samples, then the candidates of every other sample."""

    def allocate(self, X: Candidates, m: Moments) -> Allocation:  # type: ignore[override]  # observed with candidates
        """Return q(S), and q(z) at its optimum if β is 1, with which log_ratio has all terms of samples and labels."""
        believed: Believed = m.labels
        M, C = believed.z.shape
        rows: Any = believed.rows
        known, each = self.parts(rows, M * C)

        def weigh(log_ratios: Array, each: Array, log_prior: Array, valid: Array) -> tuple[Array, Array]:
            bounds = each + log_ratios  # ℒ_τ(c)
            z = self.softmax(log_prior, bounds) * valid[:, None]
            return z, jnp.sum(z * bounds) + label_terms(z, log_prior)

        T, V, log_ratio, z = X.allocate_weighted(m.T, m.V, weigh, (each.reshape(M, C), believed.log_prior))
        return Allocation(T, V, jnp.sum(known) + log_ratio, z)

    def exposure(self, X: Candidates, m: Moments, S: Allocation) -> Array:  # type: ignore[override]  # as above
        """Return Σ over rows of weight × E[V]."""
        return X.exposure_of_T(Gamma(jnp.exp(m.exposure), self._weights(S.labels, len(m.V))[:, None]))

    def groups_in_sweep(self, m: Moments, S: Allocation) -> Groups:
        """Return the groups of rows with the weights that were found with q(S)."""
        return WeightedGroups(self.groups, self._weights(S.labels, len(m.V)))

    def groups_of(self, q: Transposed) -> Groups:
        """Return the groups of rows with their weights."""
        return WeightedGroups(self.groups, self.weights_of(q))

    def weights_of(self, q: Transposed) -> Array:
        """Return 1 for labelled samples, and q(z = c) for the candidates of others."""
        return self._weights(q.labels.z, len(q.V.a))

    def _weights(self, z: Any, rows: int) -> Array:
        return jnp.concatenate([jnp.ones(rows - z.size, z.dtype), z.ravel()])

    def update(self, family: Any, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation) -> LabelFactors:
        """Return the q(z) that was found with q(S), and q(π)."""
        return self.factors(S.labels)  # `allocate` has put it there

    def read(self, X: Candidates, priors: Priors, q: Transposed) -> tuple[Array, Believed]:  # type: ignore[override]
        """Return log E[V], and beliefs with the terms of the bound that belong to rows."""
        prior = expected(priors.coefficients, q.lam, self.groups).transpose()
        rows = jnp.sum(negative_kl(q.V, prior) - q.V.mean * X.exposure_of_V(q.T), axis=1)
        return jnp.log(q.V.mean), Believed(self.prior.log_prior(q.labels.pi), q.labels.z, rows)

    def sample_terms(self, X: Any, priors: Priors, q: Transposed) -> tuple[Array, Array]:
        """Return 0 twice: `allocate` has these terms."""
        zero = jnp.zeros(q.T.a.shape[0], q.T.a.dtype)
        return zero, zero

    def terms(self, q: Transposed) -> Array:
        """Return the terms of q(π): `allocate` has those of q(z)."""
        return self.prior.dirichlet_terms(q.labels.pi)

    def moved(self, S: Allocation, old: Moments, new: Moments) -> Array:
        """Return the bound's terms of samples and labels when q(S) and q(z) are older than the factors."""
        z: Any = S.labels
        rows = jnp.sum(S.V * (new.V - old.V), axis=1) + new.labels.rows - old.labels.rows
        moved_prior = z * jnp.where(z > 0, new.labels.log_prior - old.labels.log_prior, 0)
        T = by_component(S.T * (new.T - old.T), axis=1)
        return S.log_ratio + jnp.sum(T) + self._weights(z, len(rows)) @ rows + jnp.sum(moved_prior)

    def settle(self, q: Transposed, after: Transposed) -> Transposed:
        """Return the factors with the q(z) that the next sweep finds first."""
        return q._replace(labels=q.labels._replace(z=after.labels.z))

    def weigh(self, X: Any, priors: Priors, q: Transposed, log_ratios: Array) -> tuple[Array, Transposed]:
        """Return the terms of samples and labels, with the q(z) that is best for the log ratios of rows."""
        _, believed = self.read(X, priors, q)
        M, C = believed.z.shape
        rows: Any = believed.rows
        known, each = self.parts(rows + log_ratios, M * C)
        bounds = each.reshape(M, C)
        z = self.softmax(believed.log_prior, bounds)
        total = jnp.sum(known) + jnp.sum(z * bounds) + label_terms(z, believed.log_prior)
        return total, q._replace(labels=q.labels._replace(z=z))

    def temper(self, beta: Array) -> Structured:
        """Return the strategy at this β."""
        return replace(self, beta=beta)

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps; a mean field's q(v) is taken for every group."""
        labels, V = require_labels(posterior), turned(posterior.V)
        known, without = self.split()
        C = labels.z.shape[1]
        held, last = rows_of(V, known), rows_of(V, jnp.repeat(without, C))
        if labels.V is not None:
            last = Gamma(*(jnp.transpose(x, (2, 0, 1)).reshape(y.shape) for x, y in zip(labels.V, last, strict=True)))
        rows = Gamma(*(jnp.asarray(join([x, y])) for x, y in zip(held, last, strict=True)))
        factors = LabelFactors(labels.z[without], labels.pi, labels.z, labels.unlabelled)
        return Transposed(turned(posterior.T), rows, posterior.lam, factors)

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Believed]:
        """Return E[log V] of rows, the same as log E[V], and beliefs of a start, in which q(z) is the prior."""
        known, without = self.split()
        log_weights = self.prior.log_weights
        rows = V[join([known, jnp.repeat(without, log_weights.shape[1])])]
        return rows, rows, Believed(log_weights, jnp.exp(log_weights), jnp.zeros(len(rows), V.dtype))
