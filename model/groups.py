"""Group membership as closed forms read it: the rate of every v from λ, and sums over the v that share a λ.

All classes have the same methods, so that updates and bounds do not depend on the class:

    log_rates(family, log_lam)          E[log rate] of every v, or the bound that stands for it
    tally(family, shapes, log_lam)      Σ shape of the v of each λ
    collect(family, V)                  Σ v of each λ
    total(x)                            Σ over samples
    log_lam(lam)                        E[log λ] if `tally` depends on it, else None
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from .types import Array


class Groups(Protocol):
    """Membership and the sums that follow from it; see the top of this file."""

    @property
    def membership(self) -> Array: ...  # noqa: D102 (samples × groups, as in `Data`)
    def log_rates(self, family: Any, log_lam: Array) -> Array: ...  # noqa: D102 (documented at the top of the file)
    def tally(self, family: Any, shapes: Array, log_lam: Array | None) -> Array: ...  # noqa: D102 (as above)
    def collect(self, family: Any, V: Array) -> Array: ...  # noqa: D102 (as above)
    def total(self, x: Array) -> Array: ...  # noqa: D102 (as above)
    def log_lam(self, lam: Any) -> Array | None: ...  # noqa: D102 (as above)


class SingleGroups(NamedTuple):
    """One group for every sample, known or with the probabilities of q(z).

    membership: samples × groups, rows adding up to 1; None without groups.
    """

    membership: Array

    def log_rates(self, family: Any, log_lam: Array) -> Array:
        """Return E[log λ] of the sample's group; for an unlabelled sample the average over q(z)."""
        return family.rates(log_lam, self)

    def tally(self, family: Any, shapes: Array, log_lam: Array | None) -> Array:
        """Return Σ_τ Δ_τc shape, in the shape of λ."""
        return family.collect(shapes, self)

    def collect(self, family: Any, V: Array) -> Array:
        """Return Σ_τ Δ_τc v_iτ, in the shape of λ."""
        return family.collect(V, self)

    def total(self, x: Array) -> Array:
        """Return Σ_τ x_iτ of every component."""
        return x @ jnp.ones(x.shape[1], x.dtype)

    def log_lam(self, lam: Any) -> None:
        """Return None: a sample counts for its group alone."""


class SeveralGroups(NamedTuple):
    """Multi-label samples among others, with the rate r = Σ_c m_c λ_c, the average over their groups.

    E[log r] ≥ Σ_c w_c (E[log λ_c] + log m_c − log w_c) for any weights w that add up to 1; the best are
    w_c ∝ m_c exp E[log λ_c], and the bound is then log Σ_c m_c exp E[log λ_c].

    membership: samples × groups, 1/n at each of n labels.
    several: 1 for multi-label samples, 0 for others.
    """

    membership: Array
    several: Array

    def log_rates(self, family: Any, log_lam: Array) -> Array:
        """Return E[log λ] of the sample's group, or the bound above for a multi-label sample."""
        g, shift = _scaled(log_lam)
        bounds = shift + jnp.log(self._averages(family, g))
        return jnp.where(self.several[None, :] > 0, bounds, family.rates(log_lam, self))

    def tally(self, family: Any, shapes: Array, log_lam: Array | None) -> Array:
        """Return Σ_τ w_iτc shape, in the shape of λ; evenly over a sample's groups without log_lam."""
        if log_lam is None:
            return family.collect(shapes, self)
        g, _ = _scaled(log_lam)
        many = self.several[None, :] > 0
        shared = jnp.where(many, shapes / self._averages(family, g), 0)
        return family.collect(jnp.where(many, 0, shapes), self) + g * family.collect(shared, self)

    def collect(self, family: Any, V: Array) -> Array:
        """Return Σ_τ m_τc v_iτ, in the shape of λ."""
        return family.collect(V, self)

    def total(self, x: Array) -> Array:
        """Return Σ_τ x_iτ of every component."""
        return x @ jnp.ones(x.shape[1], x.dtype)

    def log_lam(self, lam: Any) -> Array:
        """Return E[log λ], which decides how a multi-label sample counts for its groups."""
        return lam.log_mean

    def _averages(self, family: Any, g: Array) -> Array:
        """Return Σ_c m_τc g_ic, kept above 0."""
        return jnp.maximum(family.rates(g, self), np.finfo(g.dtype).tiny)


class WeightedGroups(NamedTuple):
    """Samples, or candidates of a sample, that count with weights.

    groups: the membership of samples or candidates.
    weights: one number for each of them.
    """

    groups: Groups
    weights: Array

    @property
    def membership(self) -> Array:
        """Samples × groups."""
        return self.groups.membership

    def log_rates(self, family: Any, log_lam: Array) -> Array:
        """Return E[log rate] of every v, which does not depend on its weight."""
        return self.groups.log_rates(family, log_lam)

    def tally(self, family: Any, shapes: Array, log_lam: Array | None) -> Array:
        """Return the weighted sum of shapes, in the shape of λ."""
        return self.groups.tally(family, shapes * self.weights[None, :], log_lam)

    def collect(self, family: Any, V: Array) -> Array:
        """Return the weighted sum of v, in the shape of λ."""
        return self.groups.collect(family, V * self.weights[None, :])

    def total(self, x: Array) -> Array:
        """Return Σ_τ weight_τ x_iτ of every component."""
        return x @ self.weights

    def log_lam(self, lam: Any) -> Array | None:
        """Return E[log λ] if the groups need it."""
        return self.groups.log_lam(lam)


def as_groups(membership: Array, several: Array | None) -> Groups:
    """Return the class for these samples: `SeveralGroups` if some are multi-label.

    Args:
        membership: samples × groups; None without groups.
        several: 1 for multi-label samples; None when there are none.
    """
    return SingleGroups(membership) if several is None else SeveralGroups(membership, several)


def _scaled(log_lam: Array) -> tuple[Array, Array]:
    """Return exp E[log λ] divided by its largest value along the groups, and the logarithm of that value."""
    shift = jax.lax.stop_gradient(log_lam.max(axis=1, keepdims=True))  # the result does not depend on it
    return jnp.exp(log_lam - shift), shift
