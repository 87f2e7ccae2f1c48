"""What inference sees of X: how q(S) shares its counts among components, and nothing else.

q(s_ν·τ) is multinomial with x_ντ trials and probabilities g_T,νi g_V,iτ / M_ντ, where g = exp E[log ·] and M = g_T g_V.
Nothing here, or anywhere, forms an array of F×K×N.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.data import Data
from ..model.priors import Geometric
from ..model.special import gammaln
from ..model.types import Array


class Observed(NamedTuple):
    """The data as sweeps read them, made once a run by `observe`.

    X: tiles × features × samples per tile. A large X is read tile by tile, once a sweep, and M is never stored whole.
    by_feature: Σ_τ x.
    by_sample: Σ_ν x.
    base: Σ_ντ [x log x − log Γ(x + 1)], the part of the bound that no factor changes.
    membership: samples × groups; None without groups.
    """

    X: Array
    by_feature: Array
    by_sample: Array
    base: Array
    membership: Array

    @property
    def group_sizes(self) -> Array:
        """N_c = Σ_τ Δ_τc."""
        return self.membership.sum(axis=0)


@jax.jit
def observe(data: Data) -> Observed:
    """Cut X along the samples and sum what stays the same; the last tile is filled up with empty samples."""
    return _observe(data, tile_bytes=8 << 20)


def _observe(data: Data, tile_bytes: int) -> Observed:
    X, (F, N) = data.X, data.X.shape
    width = -(-N // -(-F * N * X.dtype.itemsize // tile_bytes))
    tiles = -(-N // width)
    cut = jnp.moveaxis(jnp.pad(X, ((0, 0), (0, tiles * width - N))).reshape(F, tiles, width), 1, 0)
    base = jax.lax.map(lambda x: jnp.sum(jax.scipy.special.xlogy(x, x) - gammaln(x + 1)), cut)  # a tile at a time
    return Observed(cut, X.sum(axis=1), X.sum(axis=0), base.sum(), data.membership)


class Allocation(NamedTuple):
    """q(S) at its optimum for given exp E[log T], exp E[log V], as far as anyone needs it.

    T: Σ_T = Σ_τ E[s], features × components.
    V: Σ_V = Σ_ν E[s], components × samples.
    log_ratio: Σ_ντ x log(M/x), small where TV is close to X: single precision keeps its digits.
    """

    T: Array
    V: Array
    log_ratio: Array


def allocate(data: Observed, T: Geometric, V: Geometric) -> Allocation:
    """ξ = X / M,  Σ_T = g_T ∘ (ξ g_Vᵀ),  Σ_V = g_V ∘ (g_Tᵀ ξ).

    All of it is invariant to the shifts of g_T by row and of g_V by column. If both factors are so sparse that a row
    and a column with x > 0 have no component in common, M is 0 all the same: the floor keeps x / M finite there, the
    entry is left out of the counts, and its part of the bound is too high. Coefficients of shape 1 and more, as with
    `GroupSparse`, cannot get there.
    """
    tiles, _, width = data.X.shape
    K, N = V.value.shape
    floor = np.finfo(data.X.dtype).tiny ** (2 / 3)

    def one(X: Array, g_V: Array) -> tuple[Array, Array, Array]:
        xi = X / jnp.maximum(T.value @ g_V, floor)
        return xi @ g_V.T, T.value.T @ xi, -jnp.sum(X * jnp.log(jnp.maximum(xi, floor)))

    def add(total: tuple[Array, Array], tile: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        xi_V, T_xi, log_ratio = one(*tile)
        return (total[0] + xi_V, total[1] + log_ratio), T_xi

    if tiles == 1:
        xi_V, T_xi, log_ratio = one(data.X[0], V.value)
    else:
        g_V = jnp.pad(V.value, ((0, 0), (0, tiles * width - N)), constant_values=1)
        g_V = jnp.moveaxis(g_V.reshape(K, tiles, width), 1, 0)
        zero = jnp.zeros_like(T.value), jnp.zeros((), data.X.dtype)
        (xi_V, log_ratio), T_xi = jax.lax.scan(add, zero, (data.X, g_V))
        T_xi = jnp.moveaxis(T_xi, 0, 1).reshape(K, tiles * width)[:, :N]
    shifts = jnp.sum(data.by_feature * T.shift[:, 0]) + jnp.sum(data.by_sample * V.shift[0])
    return Allocation(T.value * xi_V, V.value * T_xi, log_ratio + shifts)


def exposure_of_T(data: Observed, V: Array) -> Array:
    """Σ_τ v_iτ for every t_νi: how much it could have caused."""
    return V.sum(axis=1)[None, :]


def exposure_of_V(data: Observed, T: Array) -> Array:
    """Σ_ν t_νi for every v_iτ: how much it could have caused."""
    return T.sum(axis=0)[:, None]


def expected_total(data: Observed, T: Array, V: Array) -> Array:
    """Σ_ντ E[(TV)_ντ] = Σ_i (Σ_ν E_T)(Σ_τ E_V)."""
    return jnp.sum(T.sum(axis=0) * V.sum(axis=1))
