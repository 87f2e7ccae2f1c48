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


class Allocation(NamedTuple):
    """q(S) at its optimum for given exp E[log T], exp E[log V], as far as anyone needs it.

    T: Σ_T = Σ_τ E[s], features × components.
    V: Σ_V = Σ_ν E[s], components × samples.
    log_ratio: Σ_ντ x log(M/x), small where TV is close to X: single precision keeps its digits.
    """

    T: Array
    V: Array
    log_ratio: Array


def tile(data: Data, size: int = 8 << 20) -> Data:
    """The same data with X cut along the samples: tiles × features × samples per tile, of about `size` bytes each.

    A large X is then read once a sweep and M is never stored whole. The last tile is filled up with empty samples.
    """
    F, N = data.X.shape
    tiles = -(-F * N * data.X.dtype.itemsize // size)
    width = -(-N // tiles)
    X = jnp.pad(data.X, ((0, 0), (0, tiles * width - N)))
    return data._replace(X=jnp.moveaxis(X.reshape(F, tiles, width), 1, 0))


def allocate(data: Data, T: Geometric, V: Geometric) -> Allocation:
    """ξ = X / M,  Σ_T = g_T ∘ (ξ g_Vᵀ),  Σ_V = g_V ∘ (g_Tᵀ ξ), for data made by `tile`.

    All of it is invariant to the shifts of g_T by row and of g_V by column. Rows and columns with disjoint supports can
    have M = 0 all the same; the floor keeps x / M finite there.
    """
    tiles, _, width = data.X.shape
    K, N = V.value.shape
    floor = np.finfo(data.X.dtype).tiny ** (2 / 3)

    def one(X: Array, g_V: Array) -> tuple[Array, Array, Array]:
        M = jnp.maximum(T.value @ g_V, floor)
        xi = X / M
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
    counts = Allocation(T.value * xi_V, V.value * T_xi, log_ratio)
    # Σ_ντ x (shift_ν + shift_τ): the counts' own margins are those of X.
    shifts = jnp.sum(counts.T.sum(axis=1) * T.shift[:, 0]) + jnp.sum(counts.V.sum(axis=0) * V.shift[0])
    return counts._replace(log_ratio=log_ratio + shifts)


def exposure(data: Data, T: Array = None, V: Array = None) -> Array:
    """Σ_τ v_iτ for every t_νi (given V), or Σ_ν t_νi for every v_iτ (given T): how much it could have caused."""
    return T.sum(axis=0)[:, None] if V is None else V.sum(axis=1)[None, :]


def expected_total(data: Data, T: Array, V: Array) -> Array:
    """Σ_ντ E[(TV)_ντ] = Σ_i (Σ_ν E_T)(Σ_τ E_V)."""
    return jnp.sum(T.sum(axis=0) * V.sum(axis=1))


def log_base_measure(data: Data) -> Array:
    """Σ_ντ [x log x − log Γ(x + 1)], the part of the bound that no factor changes."""
    return jnp.sum(jax.scipy.special.xlogy(data.X, data.X) - gammaln(data.X + 1))
