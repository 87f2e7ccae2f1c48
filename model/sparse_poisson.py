"""The Poisson likelihood of a sparse X, as a NumPyro distribution of its nonzero entries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from .compressed import Compressed, Places
from .special import gammaln
from .types import Array

BLOCK = 8192  # entries at a time, whose rows of T and V are gathered


class SparsePoisson(dist.Distribution):
    """x_ντ ~ Poisson((TV)_ντ), of which only nonzero entries are stored; it cannot be drawn from.

    log p(X) = Σ_{x > 0} [x log m − log Γ(x + 1)] − Σ_ντ w m, m = (TV)_ντ, the last sum by those of T and V.

    Args:
        T: features × components.
        V: components × samples.
        X: the places of nonzero entries; its values are not read.
        hidden: hidden places; None when everything was observed.
    """

    support = constraints.independent(constraints.nonnegative, 1)

    def __init__(self, T: Array, V: Array, X: Compressed, hidden: Places | None) -> None:
        self.T, self.V, self.X, self.hidden = T, V, X, hidden
        super().__init__(event_shape=(X.nnz,), validate_args=False)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Raise: a draw would have other nonzero entries."""
        raise NotImplementedError("a sparse X cannot be drawn")

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Return log p(X) from the nonzero entries, in the order of `Compressed`."""
        X = self.X
        row = jnp.searchsorted(X.indptr, jnp.arange(X.nnz), side="right") - 1
        feature, sample = (X.indices, row) if X.by_sample else (row, X.indices)
        total = -(self.T.sum(axis=0) @ self.V.sum(axis=1)) - gammaln(value + 1).sum()

        def log_terms(m: Array, x: Array) -> Array:
            floor = np.finfo(m.dtype).tiny
            return jnp.sum(jnp.where(x > 0, x * jnp.log(jnp.maximum(m, floor)), 0))

        total += self._sum(log_terms, feature, sample, value)
        if self.hidden is None:
            return total
        weights = jnp.ones(len(self.hidden), value.dtype)
        return total + self._sum(lambda m, w: jnp.sum(m * w), self.hidden.feature, self.hidden.sample, weights)

    def _sum(self, terms: Any, feature: Array, sample: Array, weights: Array) -> Array:
        """Return Σ terms(m, weight) over places, some at a time; places that fill up a block have weight 0."""
        size = len(weights)
        block = min(BLOCK, max(size, 1))
        blocks = -(-size // block)
        cut = (
            jnp.pad(jnp.asarray(x), (0, blocks * block - size)).reshape(blocks, block)
            for x in (feature, sample, weights)
        )
        across = self.V.T

        def add(total: Array, places: tuple[Array, Array, Array]) -> tuple[Array, None]:
            feature, sample, weight = places
            m = jnp.einsum("ek,ek->e", self.T[feature], across[sample])
            return total + terms(m, weight), None

        return jax.lax.scan(jax.checkpoint(add), jnp.zeros((), self.T.dtype), tuple(cut))[0]
