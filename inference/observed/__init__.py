"""X as sweeps read it: the only part of inference that sees entries of X.

q(s_ν·τ) is multinomial with x_ντ trials and probabilities g_T,νi g_V,iτ / M_ντ, where g = exp E[log ·] and M = g_T g_V.
Nothing here, or anywhere, forms an array of F×K×N.

Here and in the sweep all matrices are the transposes of those on paper, samples first, Xᵀ ≈ VᵀTᵀ: X is samples ×
features, V samples × components, T components × features. `benchmarks/` measures its fastest sweep in this layout.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...model.compressed import is_sparse
from ...model.data import Data
from ...model.priors import Gamma
from ...model.types import Array
from .dense import Dense, MaskedDense, cut_into_tiles
from .sparse import MaskedSparse, Sparse, read_sparse

__all__ = ["Allocation", "Dense", "MaskedDense", "MaskedSparse", "Observed", "Sparse", "observe_matrix"]


class Allocation(NamedTuple):
    """Sums of q(S) at its optimum for given exp E[log T] and exp E[log V].

    T: Σ_T = Σ_τ E[s], components × features.
    V: Σ_V = Σ_ν E[s], samples × components.
    log_ratio: Σ_ντ x log(M/x), which is small where TV is close to X: single precision keeps its digits.
    labels: q(z) in the structured form; None with known labels and in the mean field.
    """

    T: Array
    V: Array
    log_ratio: Array
    labels: Array | None = None


class Observed(Protocol):
    """X, or some samples of it, as sweeps read it.

    base: Σ_ντ [x log x − log Γ(x + 1)], the part of the bound that does not depend on the factors.
    in_place: whether sweeps should overwrite the state that they begin from, which needs less memory.
    is_compiled: whether a compiled kernel reads the entries.
    """

    @property
    def base(self) -> Array: ...  # noqa: D102 (documented above)

    @property
    def in_place(self) -> bool: ...  # noqa: D102 (documented above)

    @property
    def is_compiled(self) -> bool: ...  # noqa: D102 (documented above)

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, Σ_V and Σ x log(M/x) from E[log T] and E[log V]."""

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ w_ντ E[v_iτ] for every t_νi, components × features or × 1."""

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν w_ντ E[t_νi] for every v_iτ, samples × components or 1 × components."""

    def expected_log_ratios(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ν x (E[log m] − log x) of every row of V, m = (TV)_ντ, with S summed out: about, not exactly."""

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ντ w_ντ E[t_νi v_iτ] of every component."""


def observe_matrix(data: Data, rows: Array | None = None, copies: int | None = None) -> Dense | Sparse:
    """Return X as sweeps read it: cut into tiles of samples or into its nonzero entries, with sums that stay the same.

    Args:
        data: of a `Problem`; a sparse X is arranged on the host, and cannot be traced.
        rows: samples to take, in their order; None for all.
        copies: rows of V for each sample, as many as candidate groups: tiles are smaller by that factor, and rows of a
            sparse X are samples. None without candidates.
    """
    X, mask = (data.X, data.mask) if rows is None else data.matrix.take(rows)
    if is_sparse(data):
        return read_sparse(X, mask, None if copies is None else True)
    return cut_into_tiles(X, mask, 1 if copies is None else copies)
