"""What inference sees of X: how q(S) shares its counts among components, and nothing else.

q(s_ν·τ) is multinomial with x_ντ trials and probabilities g_T,νi g_V,iτ / M_ντ, where g = exp E[log ·] and M = g_T g_V.
Nothing here, or anywhere, forms an array of F×K×N.

Here and in the sweep all matrices lie the other way round than on paper, samples first, Xᵀ ≈ VᵀTᵀ: X is samples ×
features, V samples × components, T components × features. It is the way round in which `benchmarks/` finds its floor.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.data import Data
from ...model.priors import Gamma
from ...model.special import gammaln
from ...model.types import Array
from ..labels.unlabelled import (
    Believed,
    Structured,
    Unknown,
    is_unknown,
    label_terms,
    order,
    rows_of_groups,
    softmax,
    unknown_of,
)


class Observed(NamedTuple):
    """The data as sweeps read them, made once a run by `observe`.

    X: tiles × samples per tile × features. A large X is read tile by tile, once a sweep, and M is never stored whole.
    totals: Σ_τ x of every feature, and after them Σ_ν x of every sample.
    base: Σ_ντ [x log x − log Γ(x + 1)], the part of the bound that no factor changes.
    membership: samples × groups; None without groups.
    mask: samples × features, 1 where x was seen and 0 where it is hidden, and is 0 in X; None when all was seen.
    several: of every sample, 1 if it has several labels; None when none has.
    unknown: what is believed about samples without a label, which are then the last of the rows that here stand for
        samples; in the structured form each has one for every group. None when all labels are known.
    """

    X: Array
    totals: Array
    base: Array
    membership: Array
    mask: Array | None
    several: Array | None = None
    unknown: Unknown | None = None

    def with_labels(self, z: Array) -> Observed:
        """With q(z) for the membership of samples without a label, in the mean field."""
        return self._replace(membership=jnp.concatenate([self.membership[: -len(z)], z]))


@partial(jax.jit, static_argnames="form")
def observe(data: Data, form: str = "structured") -> Observed:
    """Cut X along the samples and sum what stays the same; the last tile is filled up with empty samples.

    Args:
        data: as `prepare` leaves them.
        form: of q for samples without a label, one of `labels.FORMS`.
    """
    if not is_unknown(data):
        return _observe(data, tile_bytes=8 << 20)
    rows = order(data.labels, data.num_samples, form)  # type: ignore[arg-type]  # there are some
    mask, several = (None if x is None else x[..., rows] for x in (data.mask, data.several))
    each = data._replace(X=data.X[:, rows], mask=mask, membership=rows_of_groups(data, form))
    # Candidates of one sample are weighed against each other: they must not lie in different tiles.
    seen = _observe(each, tile_bytes=each.X.nbytes if form == "structured" else 8 << 20)
    return seen._replace(base=_base(data.X.T[None]), several=several, unknown=unknown_of(data, form))


def _observe(data: Data, tile_bytes: int) -> Observed:
    X, (F, N) = data.X, data.X.shape
    width = -(-N // -(-F * N * X.dtype.itemsize // tile_bytes))
    tiles = -(-N // width)
    cut = jnp.pad(X.T, ((0, tiles * width - N), (0, 0))).reshape(tiles, width, F)
    totals, mask = jnp.concatenate([X.sum(axis=1), X.sum(axis=0)]), None if data.mask is None else data.mask.T
    return Observed(cut, totals, _base(cut), data.membership, mask, data.several)


def _base(tiles: Array) -> Array:
    """Σ_ντ [x log x − log Γ(x + 1)], a tile at a time."""
    return jax.lax.map(lambda x: jnp.sum(jax.scipy.special.xlogy(x, x) - gammaln(x + 1)), tiles).sum()


class Allocation(NamedTuple):
    """q(S) at its optimum for given exp E[log T], exp E[log V], as far as anyone needs it.

    T: Σ_T = Σ_τ E[s], components × features.
    V: Σ_V = Σ_ν E[s], samples × components.
    log_ratio: Σ_ντ x log(M/x), small where TV is close to X: single precision keeps its digits.

    In the structured form of unknown labels samples count by their weight in T and log_ratio, and the latter has all
    other terms of the bound that have to do with samples or labels, so that q(z) is at its optimum too.

    weights: of samples; None when all are 1.
    """

    T: Array
    V: Array
    log_ratio: Array
    weights: Array | None = None


def allocate(data: Observed, T: Array, V: Array, labels: Believed | None = None) -> Allocation:
    """ξ = X / M,  Σ_T = g_T ∘ (ξ g_Vᵀ),  Σ_V = g_V ∘ (g_Tᵀ ξ), from T = E[log T] and V = E[log V].

    All of it is invariant to shifts of E[log T] by feature and of E[log V] by sample: the largest along the components
    is taken out, for exp ψ(a) alone is 0 in single precision for a below 0.01. If both factors are so sparse that a
    feature and a sample with x > 0 have no component in common, M is 0 all the same: the floor keeps x / M finite
    there, the entry is left out of the counts, and its part of the bound is too high. Coefficients of shape 1 and
    more, as with `GroupSparse`, cannot get there.
    """
    tiles, width, _ = data.X.shape
    N, K = V.shape
    shift_T, shift_V = T.max(axis=0, keepdims=True), V.max(axis=1, keepdims=True)
    g_T, g_V = jnp.exp(T - shift_T), jnp.exp(V - shift_V)
    floor = np.finfo(data.X.dtype).tiny ** (2 / 3)

    def one(X: Array, g_V: Array) -> tuple[Array, Array, Array]:
        xi = jnp.maximum(X / jnp.maximum(g_V @ g_T, floor), floor)  # 0 would have no logarithm
        return g_V.T @ xi, xi @ g_T.T, -jnp.sum(X * jnp.log(xi))

    def add(total: tuple[Array, Array], tile: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        V_xi, xi_T, log_ratio = one(*tile)
        return (total[0] + V_xi, total[1] + log_ratio), xi_T

    if labels is not None and isinstance(data.unknown, Structured):
        X = data.X[0]
        xi = jnp.maximum(X / jnp.maximum(g_V @ g_T, floor), floor)
        log_ratios = X @ shift_T[0] + X.sum(axis=1) * shift_V[:, 0] - jnp.sum(X * jnp.log(xi), axis=1)
        weights, total = _weigh(data.unknown, labels, log_ratios)
        return Allocation(g_T * ((weights[:, None] * g_V).T @ xi), g_V * (xi @ g_T.T), total, weights)
    if tiles == 1:
        V_xi, xi_T, log_ratio = one(data.X[0], g_V)
    else:
        cut = jnp.pad(g_V, ((0, tiles * width - N), (0, 0)), constant_values=1).reshape(tiles, width, K)
        zero = jnp.zeros_like(g_T), jnp.zeros((), data.X.dtype)
        (V_xi, log_ratio), xi_T = jax.lax.scan(add, zero, (data.X, cut))
        xi_T = xi_T.reshape(tiles * width, K)[:N]
    shifted = data.totals @ jnp.concatenate([shift_T[0], shift_V[:, 0]])
    return Allocation(g_T * V_xi, g_V * xi_T, log_ratio + shifted)


def _weigh(unknown: Structured, labels: Believed, log_ratios: Array) -> tuple[Array, Array]:
    """How much every row counts, and what the bound has of samples and labels: q(z) is at its optimum, if β is 1."""
    M, C = labels.z.shape
    known, each = jnp.split(labels.rows + log_ratios, [len(log_ratios) - M * C])  # ℒ_τ, and ℒ_τ(c)
    z = softmax(labels.log_prior, each.reshape(M, C), unknown.beta)
    total = known.sum() + z.ravel() @ each + label_terms(z, labels.log_prior)
    return jnp.concatenate([jnp.ones_like(known), z.ravel()]), total


def exposure_of_T(data: Observed, V: Gamma) -> Array:
    """Σ_τ w_ντ E[v_iτ] for every t_νi: how much it could have caused where X was seen.

    Components × features; one number for all features without a mask.
    """
    if data.mask is None:
        return V.total(axis=0)[:, None]
    return jnp.maximum(V.mean.T @ data.mask, np.finfo(data.mask.dtype).tiny)  # of a hidden feature: it has a logarithm


def exposure_of_V(data: Observed, T: Gamma) -> Array:
    """Σ_ν w_ντ E[t_νi] for every v_iτ: how much it could have caused where X was seen.

    Samples × components; one row for all samples without a mask.
    """
    return T.total(axis=1)[None, :] if data.mask is None else data.mask @ T.mean.T


def expected_totals(data: Observed, T: Gamma, V: Gamma) -> Array:
    """Σ_ντ w_ντ E[t_νi v_iτ] of every component i; without a mask (Σ_ν E_T)(Σ_τ E_V)."""
    if data.mask is None:
        return T.total(axis=1) * V.total(axis=0)
    return (T.mean * exposure_of_T(data, V)).sum(axis=1)  # a product that the next sweep's moments share
