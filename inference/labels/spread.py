"""Known labels of samples that are spread over devices, among rows that fill up and have no weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...model.conjugacy import expected, negative_kl
from ...model.groups import Groups, WeightedGroups
from ...model.priors import Gamma, Priors
from ...model.types import Array
from ..moments import Moments, Transposed, by_component, turned
from ..observed import Allocation, Observed
from ..observed.sharded import Layout
from ..posterior import Posterior
from .known import Known


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpreadFactors:
    """The factors of known labels: there are none, but the layout of V's rows.

    layout: rows on devices.
    """

    layout: Layout = field(metadata={"static": True})

    def posterior(self, T: Gamma, V: Gamma, lam: Gamma | None) -> Posterior:
        """Return the posterior as users read it, whole in every process: all processes must ask for it."""
        whole = Gamma(*(self.layout.gather(jnp.broadcast_to(x, V.a.shape)).T for x in V))
        factors = jax.tree.map(lambda x: jax.device_put(np.asarray(x)), (T, whole, lam))
        return Posterior(*factors)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread(Known):
    """Known labels of rows on devices; the methods are explained in the package's docstring.

    layout: rows on devices.
    """

    layout: Layout = field(metadata={"static": True})

    @property
    def _weights(self) -> Array:
        groups: Any = self.groups  # `spread` gives weights to all rows
        weights: Array = groups.weights
        return weights

    def update(self, family: Any, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation) -> Any:
        """Return the layout."""
        return SpreadFactors(self.layout)

    def sample_terms(self, X: Observed, priors: Priors, q: Transposed) -> tuple[Array, Array]:
        """Return −E KL(q(V) ‖ p(V | λ)) over samples and Σ_ντ w (E_T E_V)_ντ by component."""
        prior = expected(priors.coefficients, q.lam, self.groups_of(q)).transpose()
        kl = negative_kl(q.V, prior) * self._weights[:, None]
        return by_component(kl, axis=0), X.expected_totals(q.T, q.V)

    def weights_of(self, q: Transposed) -> Array:
        """Return 1 for rows of samples, 0 for others."""
        return self._weights

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps, V's rows on their devices."""
        V = Gamma(*(self.layout.spread(np.asarray(x).T) for x in posterior.V.broadcast(*posterior.V.a.shape)))
        return Transposed(turned(posterior.T), V, posterior.lam, SpreadFactors(self.layout))

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Any]:
        """Return E[log V] on the devices, the exposure and no beliefs."""
        return self.layout.spread(V), exposure, None

    def blank(self, shapes: Transposed) -> Transposed:
        """Return factors of these shapes, before the first sweep, V's rows on their devices."""
        rows = Gamma(*(self.layout.spread(np.ones((sum(self.layout.counts), *x.shape[1:]), x.dtype)) for x in shapes.V))
        return super().blank(shapes)._replace(V=rows)

    def off_devices(self, leaf: Array) -> np.ndarray:
        """Return an array of the state on the host, rows in the order of samples; all processes must ask for it."""
        return self.layout.gather(leaf) if self._has_rows(leaf) else np.asarray(leaf)

    def on_devices(self, leaf: np.ndarray, like: Array) -> Array:
        """Return an array of the state on the devices, rows on theirs if those of another one are."""
        return self.layout.spread(leaf) if self._has_rows(like) else jax.device_put(leaf)

    def _has_rows(self, leaf: Array) -> bool:
        return bool(leaf.ndim == 2 and leaf.sharding.is_equivalent_to(self.layout.sharding(True), 2))


def spread(groups: Groups, weights: Array, layout: Layout) -> Spread:
    """Return the strategy of labels for rows on devices.

    Args:
        groups: the membership of all rows.
        weights: 1 for rows of samples, 0 for others.
        layout: rows on devices.
    """
    return Spread(WeightedGroups(groups, weights), layout)
