"""Entries of a sparse X on the host: sums, checks and selections, at the price of its nonzero entries."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import numpy as np
from scipy.special import xlogy

from .compressed import Compressed, Places, refuse
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
            checksum = zlib.crc32(np.ascontiguousarray(part).view(np.uint8), checksum)
        return checksum

    def with_nan(self) -> NoReturn:
        """Raise: X with NaN for hidden entries is dense."""
        refuse("this", self.shape, self.X.dtype)

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) = Σ x log(x/m) − x + m over observed entries."""
        everywhere = float(T.sum(axis=0) @ V.sum(axis=1)) - self.total()
        near = sum(float((xlogy(x, x) - xlogy(x, m)).sum()) for x, m in self._pairs(T, V))
        if self.mask is None:
            return near + everywhere
        return near + everywhere - sum(m.sum() for m in products(T, V, self.mask.feature, self.mask.sample))

    def _pairs(self, T: np.ndarray, V: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield nonzero entries of X and the same entries of TV, some at a time."""
        entries = self.X.to_scipy().tocoo()
        means = products(T, V, *entries.coords)
        for n, m in enumerate(means):
            yield np.asarray(entries.data[n * CHUNK : (n + 1) * CHUNK], float), m


def products(T: np.ndarray, V: np.ndarray, feature: Array, sample: Array) -> Iterator[np.ndarray]:
    """Yield (TV)_ντ at these places, some at a time."""
    across = np.ascontiguousarray(V.T)
    for n in range(0, len(feature), CHUNK):
        chosen = slice(n, n + CHUNK)
        yield np.einsum("ek,ek->e", T[np.asarray(feature[chosen])], across[np.asarray(sample[chosen])])
