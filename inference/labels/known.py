"""Known labels: the paper's case, and multi-label samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.conjugacy import expected, negative_kl
from ...model.groups import Groups
from ...model.priors import Gamma, Priors
from ...model.types import Array
from ..moments import Moments, Transposed, by_component, turned
from ..observed import Allocation, Observed
from ..posterior import Posterior


class NoLabelFactors(NamedTuple):
    """The factors of known labels: there are none."""

    def posterior(self, T: Gamma, V: Gamma, lam: Gamma | None) -> Posterior:
        """Return the posterior as users read it; T in their layout, V in that of sweeps."""
        return Posterior(T, turned(V), lam)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Known:
    """Labels that are all known, or a model without groups; the methods are explained in the package's docstring.

    groups: the membership of the rows that stand for samples.
    """

    groups: Groups

    def allocate(self, X: Observed, m: Moments) -> Allocation:
        """Return q(S)."""
        return Allocation(*X.allocate(m.T, m.V))

    def exposure(self, X: Observed, m: Moments, S: Allocation) -> Array:
        """Return Σ_τ w E[V] of the moments."""
        return jnp.exp(m.exposure)

    def groups_in_sweep(self, m: Moments, S: Allocation) -> Groups:
        """Return the membership of samples."""
        return self.groups

    def groups_of(self, q: Transposed) -> Groups:
        """Return the membership of samples."""
        return self.groups

    def update(self, family: Any, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation) -> Any:
        """Return no factors."""
        return NoLabelFactors()

    def read(self, X: Observed, priors: Priors, q: Transposed) -> tuple[Array, Any]:
        """Return log Σ_τ w E[V] and no beliefs."""
        return jnp.log(X.exposure_of_T(q.V)), None

    def sample_terms(self, X: Observed, priors: Priors, q: Transposed) -> tuple[Array, Array]:
        """Return −E KL(q(V) ‖ p(V | λ)) and Σ_ντ w (E_T E_V)_ντ by component."""
        prior = expected(priors.coefficients, q.lam, self.groups_of(q)).transpose()
        return by_component(negative_kl(q.V, prior), axis=0), X.expected_totals(q.T, q.V)

    def terms(self, q: Transposed) -> Array:
        """Return 0: known labels have no terms."""
        return jnp.zeros((), q.T.a.dtype)

    def moved(self, S: Allocation, old: Moments, new: Moments) -> Array:
        """Return Σ x log(M/x) of the old moments + Σ Σ_T ∘ (L_T − old L_T) + Σ Σ_V ∘ (L_V − old L_V)."""
        T, V = by_component(S.T * (new.T - old.T), axis=1), by_component(S.V * (new.V - old.V), axis=0)
        return S.log_ratio + jnp.sum(T + V)

    def settle(self, q: Transposed, after: Transposed) -> Transposed:
        """Return the factors as they are."""
        return q

    def optimum(self, priors: Priors, q: Transposed) -> Transposed:
        """Return the factors as they are."""
        return q

    def weigh(self, X: Observed, priors: Priors, q: Transposed, log_ratios: Array) -> tuple[Array, Transposed]:
        """Return Σ of the log ratios of rows, and the factors as they are."""
        return jnp.sum(log_ratios), q

    def temper(self, beta: Array) -> Known:
        """Return the same strategy: there is nothing to anneal."""
        return self

    def weights_of(self, q: Transposed) -> Array:
        """Return 1 for every row: each is a sample."""
        return jnp.ones(len(q.V.a), q.V.a.dtype)

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps."""
        return Transposed(turned(posterior.T), turned(posterior.V), posterior.lam, NoLabelFactors())

    def prior_factors(self) -> Any:
        """Return no factors."""
        return NoLabelFactors()

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Any]:
        """Return E[log V], the exposure and beliefs of a start."""
        return V, exposure, None

    def blank(self, shapes: Transposed) -> Transposed:
        """Return factors of these shapes, before the first sweep."""
        factors: Transposed = jax.tree.map(lambda s: jax.device_put(np.ones(s.shape, s.dtype)), shapes)
        return factors

    def off_devices(self, leaf: Array) -> np.ndarray:
        """Return a copy of an array of the state on the host: sweeps may overwrite the state."""
        return np.array(leaf)

    def on_devices(self, leaf: np.ndarray, like: Array) -> Array:
        """Return an array of the state on the devices, as another one is: several devices have no row for all."""
        return jax.device_put(leaf[:1] if like.ndim == 2 and len(like) == 1 else leaf)
