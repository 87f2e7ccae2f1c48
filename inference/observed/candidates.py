"""X with a row of V for every candidate group of a sample: the structured form of unlabelled samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from ...model.priors import Gamma
from ...model.types import Array
from .dense import exp_scaled, ratios


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Candidates:
    """Labelled samples with one row of V each, then unlabelled ones with a row for every group.

    X is neither copied nor read more than once for its candidates.

    known: the labelled samples.
    unlabelled: the unlabelled samples, in tiles that are smaller by the number of groups.
    num_groups: C, candidates of an unlabelled sample.
    """

    known: Any  # Dense, or Sparse in the subclass for it
    unlabelled: Any
    num_groups: int = field(metadata={"static": True})

    @property
    def base(self) -> Array:
        """As in `Observed`."""
        return self.known.base + self.unlabelled.base

    @property
    def in_place(self) -> bool:
        """As in `Observed`."""
        return bool(self.known.in_place)

    @property
    def is_compiled(self) -> bool:
        """As in `Observed`."""
        return bool(self.known.is_compiled)

    def allocate_weighted(
        self,
        T: Array,
        V: Array,
        weigh: Callable[[Array, Array, Array, Array], tuple[Array, Array]],
        read: tuple[Array, Array],
    ) -> tuple[Array, Array, Array, Array]:
        """Return Σ_T with weighted candidates, Σ_V, the sum of log ratios and of the terms of `weigh`, and the weights.

        Args:
            T: E[log T], components × features.
            V: E[log V], rows × components.
            weigh: from Σ_ν x log(M/x) of some samples × groups, the two arrays that follow for these samples, and 1 for
                each real sample (0 for padding), to weights of the same shape and terms of the bound.
            read: two arrays, unlabelled samples × groups.
        """
        M, C, K = self.unlabelled.num_samples, self.num_groups, V.shape[1]
        known, each = jnp.split(V, [len(V) - M * C])
        T_known, V_known, log_ratio = self.known.allocate(T, known)
        g_T, shift_T = exp_scaled(T, axis=0)
        tiles, width, _ = self.unlabelled.tiles.shape

        def cut(x: Array) -> Array:
            padding = ((0, tiles * width - M), *((0, 0) for _ in x.shape[1:]))
            return jnp.pad(x, padding).reshape(tiles, width, *x.shape[1:])

        def one(total: tuple[Array, Array], tile: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            X, log_V, first, second, valid = tile
            g_V, shift_V = exp_scaled(log_V, axis=2)
            flat = g_V.reshape(width * C, K)
            xi, x_log_xi = ratios(X[:, None, :], (flat @ g_T).reshape(width, C, -1))
            shifts = (X @ shift_T[0])[:, None] + X.sum(axis=1)[:, None] * shift_V[:, :, 0]
            weights, terms = weigh(shifts - jnp.sum(x_log_xi, axis=2), first, second, valid)
            xi = xi.reshape(width * C, -1)
            V_xi = (weights.reshape(-1, 1) * flat).T @ xi
            return (total[0] + V_xi, total[1] + terms), (g_V * (xi @ g_T.T).reshape(g_V.shape), weights)

        zero = jnp.zeros_like(g_T), jnp.zeros((), T.dtype)
        pieces = cut(each.reshape(M, C, K)), *map(cut, read), cut(jnp.ones(M, T.dtype))
        (V_xi, terms), (V_each, weights) = jax.lax.scan(one, zero, (self.unlabelled.tiles, *pieces))
        V_each, weights = V_each.reshape(-1, C, K)[:M].reshape(M * C, K), weights.reshape(-1, C)[:M]
        return T_known + g_T * V_xi, jnp.concatenate([V_known, V_each]), log_ratio + terms, weights

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, Σ_V and Σ x log(M/x) if each sample has one row, as in the mean field on several devices."""
        n = self.known.num_samples
        parts = self.known.allocate(T, V[:n]), self.unlabelled.allocate(T, V[n:])
        (T_known, V_known, log_known), (T_other, V_other, log_other) = parts
        return T_known + T_other, jnp.concatenate([V_known, V_other]), log_known + log_other

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ντ w_ντ E[t_νi v_iτ] of every component if each sample has one row."""
        return (T.mean * self.exposure_of_T(V)).sum(axis=1)

    def expected_log_ratios(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ν x (E[log m] − log x) of every row; see `Dense.expected_log_ratios`."""
        n, M = self.known.num_samples, self.unlabelled.num_samples
        V = V.broadcast(*V.a.shape)
        known, each = Gamma(*(x[:n] for x in V)), Gamma(*(x[n:].reshape(M, -1, x.shape[1]) for x in V))
        rows = jax.vmap(self.unlabelled.expected_log_ratios, (None, 1), 1)(T, each)  # samples × groups
        return jnp.concatenate([self.known.expected_log_ratios(T, known), rows.ravel()])

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ over rows of w E[v], components × features or × 1."""
        n, M = self.known.num_samples, self.unlabelled.num_samples
        mean = V.mean
        each = mean[n:].reshape(M, -1, mean.shape[1]).sum(axis=1)
        return sum(
            X.exposure_of_T(Gamma(some, jnp.ones_like(some)))
            for X, some in ((self.known, mean[:n]), (self.unlabelled, each))
        )

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν w E[t_νi] for every row, rows × components."""
        each = (
            jnp.broadcast_to(X.exposure_of_V(T), (X.num_samples, T.a.shape[0])) for X in (self.known, self.unlabelled)
        )
        known, unlabelled = each
        return jnp.concatenate([known, jnp.repeat(unlabelled, self.num_groups, axis=0)])
