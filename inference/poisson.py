"""What inference sees of X: how q(S) shares its counts among components, and nothing else.

q(s_ν·τ) is multinomial with x_ντ trials and probabilities g_T,νi g_V,iτ / M_ντ, where g = exp E[log ·] and M = g_T g_V.
Nothing here, or anywhere, forms an array of F×K×N.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from ..model.data import Data
from ..model.special import gammaln
from ..model.types import Array


class Allocation(NamedTuple):
    """q(S) at its optimum for given E[log T], E[log V], as far as anyone needs it.

    T: Σ_T = Σ_τ E[s], features × components.
    V: Σ_V = Σ_ν E[s], components × samples.
    x_log_M: Σ_ντ x log M.
    """

    T: Array
    V: Array
    x_log_M: Array


def allocate(data: Data, log_T: Array, log_V: Array) -> Allocation:
    """ξ = X / M,  Σ_T = g_T ∘ (ξ g_Vᵀ),  Σ_V = g_V ∘ (g_Tᵀ ξ).

    All of it is invariant to a shift of log T by row and of log V by column, so each is taken relative to its
    maximum: exp E[log t] is 0 in single precision for shapes below 0.01. Rows and columns with disjoint supports can
    still have M = 0; the floor keeps x / M finite there.
    """
    X = data.X
    row, column = log_T.max(axis=1, keepdims=True), log_V.max(axis=0, keepdims=True)
    g_T, g_V = jnp.exp(log_T - row), jnp.exp(log_V - column)
    M = jnp.maximum(g_T @ g_V, jnp.finfo(X.dtype).tiny ** (2 / 3))
    xi = X / M
    x_log_M = jnp.sum(X * jnp.log(M)) + jnp.sum(X * row) + jnp.sum(X * column)
    return Allocation(g_T * (xi @ g_V.T), g_V * (g_T.T @ xi), x_log_M)


def exposure(data: Data, T: Array | None = None, V: Array | None = None) -> Array:
    """Σ_τ v_iτ for every t_νi (given V), or Σ_ν t_νi for every v_iτ (given T): how much it could have caused."""
    return V.sum(axis=1)[None, :] if T is None else T.sum(axis=0)[:, None]


def expected_total(data: Data, T: Array, V: Array) -> Array:
    """Σ_ντ E[(TV)_ντ] = Σ_i (Σ_ν E_T)(Σ_τ E_V)."""
    return jnp.sum(T.sum(axis=0) * V.sum(axis=1))


def log_base_measure(data: Data) -> Array:
    """−Σ_ντ log Γ(x + 1), the part of the bound that no factor changes."""
    return -jnp.sum(gammaln(data.X + 1))
