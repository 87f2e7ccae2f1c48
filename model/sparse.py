"""Entries of a sparse X on the host: sums, checks and selections, at the price of its nonzero entries."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import xlogy

from .compressed import Compressed, Places
from .matrix import hashed, multipliers
from .types import Array

CHUNK = 1 << 16  # nonzeros at a time, whose rows of T and V are gathered


class SparseMatrix(NamedTuple):
    """Entries of a sparse X; the methods are those of `Matrix`.

    X: in compressed rows, without hidden entries.
    mask: the hidden places; None when everything was observed.
    """

    X: Compressed
    mask: Places | None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of samples."""
        return self.X.shape

    @property
    def num_observed(self) -> int:
        """The number of observed entries, zeros included."""
        return self.X.size - (0 if self.mask is None else len(self.mask))

    def stored(self) -> np.ndarray:
        """Return the nonzero entries."""
        return np.asarray(self.X.values)

    def total(self) -> float:
        """Return Σ x over observed entries."""
        return float(np.sum(self.stored(), dtype=float))

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ x of every feature and of every sample."""
        X = self.X.to_scipy().astype(float)
        return np.asarray(X.sum(axis=1)), np.asarray(X.sum(axis=0))

    def mean(self) -> float:
        """Return the mean of the observed entries."""
        return self.total() / self.num_observed

    def largest(self) -> float:
        """Return the largest entry."""
        return float(self.stored().max(initial=0))

    def is_whole(self) -> bool:
        """Return whether all entries are whole numbers."""
        values = self.stored()
        return bool((np.round(values) == values).all())

    def observed_counts(self, axis: int) -> np.ndarray:
        """Return the numbers of observed entries, by sample for axis 0 and by feature for axis 1."""
        F, N = self.shape
        length, most = (N, F) if axis == 0 else (F, N)
        return np.full(length, most) - (0 if self.mask is None else self.mask.counts(axis))

    def take(self, samples: Array) -> tuple[Compressed, Places | None]:
        """Return X and its hidden places for these samples."""
        return self.X.take(samples), None if self.mask is None else self.mask.take(samples)

    def fingerprint(self) -> int:
        """Return a checksum of shape, nonzero entries and hidden places; that of the same matrix, dense, differs."""
        parts = [self.X.indptr, self.X.indices, np.asarray(self.X.values, float)]
        parts += [] if self.mask is None else [self.mask.feature, self.mask.sample]
        checksum = zlib.crc32(f"sparse {self.shape}".encode())
        for part in parts:
            checksum = zlib.crc32(np.ascontiguousarray(part).tobytes(), checksum)
        return checksum

    def checksum(self, samples: np.ndarray, number: int) -> int:
        """Return Σ h(x_ν) a_f b_τ modulo 2⁶⁴, as for a dense X."""
        of_feature, of_sample = multipliers(self.shape[0], number)
        of_sample = of_sample[samples]
        rows = self.X.with_values(hashed(self.X.values)).to_scipy() @ of_sample
        feature, sample = self.hidden()
        hidden = of_feature[feature] * of_sample[sample]
        return (int((rows * of_feature).sum()) + int(hidden.sum())) % 2**64

    def with_nan(self) -> Any:
        """Return X in SciPy's form, with NaN, which are stored, for hidden entries."""
        return self.filled(np.full(len(self.hidden()[0]), np.nan))

    def hidden(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of hidden entries, of features and of samples."""
        none = np.zeros(0, np.int32)
        return (none, none) if self.mask is None else (np.asarray(self.mask.feature), np.asarray(self.mask.sample))

    def filled(self, values: np.ndarray) -> Any:
        """Return X, in SciPy's form, with these values at hidden entries, in the order of `hidden`."""
        X = self.X.to_scipy().astype(float)
        return X + type(X)(scipy.sparse.coo_array((values, self.hidden()), shape=self.shape))

    def columns(self, samples: Array) -> np.ndarray:
        """Return some samples as a dense array, with NaN for hidden entries."""
        X, mask = self.take(np.atleast_1d(samples))
        dense: np.ndarray = X.to_scipy().toarray().astype(float)
        if mask is not None:
            dense[np.asarray(mask.feature), np.asarray(mask.sample)] = np.nan
        return dense[:, 0] if np.ndim(samples) == 0 else dense

    def divergences(self, T: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return KL(x ‖ TV) = Σ_ν x log(x/m) − x + m of every sample over observed entries."""
        entries = self.X.to_scipy().tocoo()
        feature, sample = entries.coords
        totals: np.ndarray = T.sum(axis=0) @ V
        for n, m in products(T, V, feature, sample):
            x = np.asarray(entries.data[n], float)
            totals += np.bincount(sample[n], xlogy(x, x) - xlogy(x, m) - x, len(totals))
        for n, m in products(T, V, *self.hidden()):
            totals -= np.bincount(self.hidden()[1][n], m, len(totals))
        return np.asarray(np.maximum(totals, 0))

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) over observed entries."""
        return float(self.divergences(T, V).sum())


def products(T: np.ndarray, V: np.ndarray, feature: Array, sample: Array) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (TV)_ντ at these places, some of them at a time, and which."""
    across = np.ascontiguousarray(V.T)
    for n in range(0, len(feature), CHUNK):
        some = slice(n, n + CHUNK)
        yield some, np.einsum("ek,ek->e", T[np.asarray(feature[some])], across[np.asarray(sample[some])])
