"""A dense X, read in tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ...model.priors import Gamma
from ...model.special import gammaln
from ...model.types import Array

TILE = 8 << 20  # bytes of X, or of M, in one tile


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """A dense X of which everything was observed.

    tiles: tiles × samples per tile × features, filled up with empty samples. A large X is read tile by tile, once a
        sweep, and M is never stored whole.
    totals: Σ_τ x of every feature, followed by Σ_ν x of every sample.
    base: as in `Observed`.
    """

    tiles: Array
    totals: Array
    base: Array

    @property
    def num_samples(self) -> int:
        """The number of samples, without padding."""
        return int(self.totals.shape[0] - self.tiles.shape[2])

    @property
    def in_place(self) -> bool:
        """As in `Observed`."""
        return False

    @property
    def is_compiled(self) -> bool:
        """As in `Observed`."""
        return False

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, Σ_V and Σ x log(M/x); see `allocate`."""
        return allocate(self, T, V)

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ E[v_iτ], components × 1."""
        return V.total(axis=0)[:, None]

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν E[t_νi], 1 × components."""
        return T.total(axis=1)[None, :]

    def expected_log_ratios(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ν x (E[log m] − log x) of every sample, m = (TV)_ντ; see `expected_log`."""
        tiles, width, _ = self.tiles.shape
        V = Gamma(*(_cut(x, tiles, width) for x in V.broadcast(*V.a.shape)))
        rows = jax.lax.map(lambda tile: _log_ratios(tile[0], T, tile[1]), (self.tiles, V))
        return rows.reshape(-1)[: self.num_samples]

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return (Σ_ν E_T)(Σ_τ E_V) of every component."""
        return T.total(axis=1) * V.total(axis=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaskedDense(Dense):
    """A dense X with hidden entries, which are 0 in it.

    mask: samples × features, 1 where x was observed and 0 where it is hidden.
    """

    mask: Array

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ w_ντ E[v_iτ], components × features."""
        return jnp.maximum(V.mean.T @ self.mask, np.finfo(self.mask.dtype).tiny)  # so that it has a logarithm

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν w_ντ E[t_νi], samples × components."""
        return self.mask @ T.mean.T

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ντ w_ντ E[t_νi v_iτ] of every component, by a product that the next sweep's moments share."""
        return (T.mean * self.exposure_of_T(V)).sum(axis=1)


def cut_into_tiles(X: Array, mask: Array | None, copies: int = 1) -> Dense:
    """Return X, features × samples, as sweeps read it.

    Args:
        X: features × samples.
        mask: of the same shape; None when everything was observed.
        copies: rows of V for each sample; tiles are smaller by that factor.
    """
    F, N = X.shape
    number = max(1, -(-F * N * copies * X.dtype.itemsize // TILE))
    width = max(1, -(-N // number))
    number = max(1, -(-N // width))
    tiles = jnp.pad(X.T, ((0, number * width - N), (0, 0))).reshape(number, width, F)
    totals = jnp.concatenate([X.sum(axis=1), X.sum(axis=0)])
    if mask is None:
        return Dense(tiles, totals, base_of(tiles))
    return MaskedDense(tiles, totals, base_of(tiles), mask.T)


def base_of(tiles: Array) -> Array:
    """Return Σ_ντ [x log x − log Γ(x + 1)], a tile at a time."""
    return jax.lax.map(lambda x: jnp.sum(jax.scipy.special.xlogy(x, x) - gammaln(x + 1)), tiles).sum()


def allocate(data: Dense, T: Array, V: Array) -> tuple[Array, Array, Array]:
    """Return Σ_T = g_T ∘ (ξ g_Vᵀ), Σ_V = g_V ∘ (g_Tᵀ ξ) and Σ x log(M/x), where ξ = X / M.

    All of it is invariant to shifts of E[log T] by feature and of E[log V] by sample: the largest value along the
    components is subtracted, because exp ψ(a) alone is 0 in single precision for a below 0.01. If both factors are so
    sparse that a feature and a sample with x > 0 have no component in common, M is 0 all the same: the floor keeps
    x / M finite there, the entry is left out of the counts, and its part of the bound is too high. Coefficients of
    shape 1 or more, as with `GroupSparse`, cannot get there.

    Args:
        data: X in tiles.
        T: E[log T], components × features.
        V: E[log V], samples × components.
    """
    tiles, width, _ = data.tiles.shape
    N, K = V.shape
    g_T, shift_T = exp_scaled(T, axis=0)
    g_V, shift_V = exp_scaled(V, axis=1)

    def one(X: Array, g_V: Array) -> tuple[Array, Array, Array]:
        xi, x_log_xi = ratios(X, g_V @ g_T)
        return g_V.T @ xi, xi @ g_T.T, -jnp.sum(x_log_xi)

    def add(total: tuple[Array, Array], tile: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        V_xi, xi_T, log_ratio = one(*tile)
        return (total[0] + V_xi, total[1] + log_ratio), xi_T

    if tiles == 1:
        V_xi, xi_T, log_ratio = one(data.tiles[0], g_V)
    else:
        cut = _cut(g_V, tiles, width)
        zero = jnp.zeros_like(g_T), jnp.zeros((), data.tiles.dtype)
        (V_xi, log_ratio), xi_T = jax.lax.scan(add, zero, (data.tiles, cut))
        xi_T = xi_T.reshape(tiles * width, K)[:N]
    shifted = data.totals @ jnp.concatenate([shift_T[0], shift_V[:, 0]])
    return g_T * V_xi, g_V * xi_T, log_ratio + shifted


def _cut(rows: Array, tiles: int, width: int) -> Array:
    """Return rows of V, or of its parameters, by tile; filled up with 1."""
    padding = ((0, tiles * width - rows.shape[0]), (0, 0))
    return jnp.pad(rows, padding, constant_values=1).reshape(tiles, width, rows.shape[1])


def expected_log(T: Gamma, V: Gamma) -> Array:
    """Return E[log m] of every m = Σ_i t_i v_i, about, as if m were log-normal: log μ − ½ log(1 + s²/μ²).

    μ = E_V E_T and s² = Var m = Σ_i [E[v]² (1 + 1/α_v) E[t]²/α_t + E[v]²/α_v E[t]²] are exact. The second-order term of
    the Taylor series alone, −s²/(2μ²), would fall without bound where μ is small.

    Args:
        T: components × features.
        V: samples × components.
    """
    E_T, E_V = T.mean, V.mean
    variance = (E_V**2 * (1 + 1 / V.a)) @ (E_T**2 / T.a) + (E_V**2 / V.a) @ E_T**2
    return expected_log_of(E_V @ E_T, variance)


def expected_log_of(mean: Array, variance: Array) -> Array:
    """Return E[log m] of a log-normal m with this mean μ and variance s²: log μ − ½ log(1 + s²/μ²)."""
    mu = jnp.maximum(mean, np.finfo(mean.dtype).tiny ** 0.25)  # so that μ² does not underflow where x is 0
    return jnp.log(mu) - 0.5 * jnp.log1p(variance / mu**2)


def _log_ratios(X: Array, T: Gamma, V: Gamma) -> Array:
    """Return Σ_ν x (E[log m] − log x) of every row of V; X has as many rows, or broadcasts to them."""
    return jnp.sum(X * (expected_log(T, V) - jnp.log(jnp.where(X > 0, X, 1))), axis=-1)


def exp_scaled(log_x: Array, axis: int) -> tuple[Array, Array]:
    """Return exp(log_x − shift) and the shift, the largest value along an axis, on which no result depends."""
    shift = jax.lax.stop_gradient(log_x.max(axis=axis, keepdims=True))
    return jnp.exp(log_x - shift), shift


@jax.custom_jvp
def ratios(X: Array, M: Array) -> tuple[Array, Array]:
    """Return ξ = x/M and x log ξ, both kept from underflow: where x is 0 the logarithm needs a floor.

    Their derivatives, −ξ/M and −ξ by M, are written without powers of M, which overflow where M is small.
    """
    floor = np.finfo(M.dtype).tiny ** (2 / 3)
    xi = jnp.maximum(X / jnp.maximum(M, floor), floor)
    return xi, X * jnp.log(xi)


@partial(ratios.defjvp, symbolic_zeros=True)
def _ratios_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[tuple[Array, Array], Any]:
    X, M = primals
    dX, dM = tangents
    xi, x_log_xi = ratios(X, M)
    above = jnp.maximum(M, np.finfo(M.dtype).tiny ** (2 / 3))
    d_xi, d_log = jnp.zeros_like(M), jnp.zeros_like(M)
    if not isinstance(dM, SymbolicZero):
        d_xi, d_log = -xi * (dM / above), -xi * dM
    if not isinstance(dX, SymbolicZero):
        d_xi, d_log = d_xi + dX / above, d_log + dX * (jnp.log(xi) + 1)
    return (xi, x_log_xi), (d_xi, d_log)
