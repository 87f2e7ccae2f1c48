"""Entries of X on the host: sums, checks and selections that need no algorithm.

Only this file, `compressed`, `sparse`, `as_data`, `missing` and `inference/observed/` read entries of X. The exceptions
give their reason: the NumPyro model observes X itself, Gibbs sampling splits its counts, and predictions of entries
look them up.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from scipy.special import kl_div

from .types import Array


class Matrix(Protocol):
    """Entries of X, features × samples, with some of them hidden or none."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of samples."""

    @property
    def num_observed(self) -> int:
        """The number of observed entries."""

    def stored(self) -> np.ndarray:
        """Return the entries that are stored, in an array of any shape: all, or the nonzero ones of a sparse X."""

    def observed_counts(self, axis: int) -> np.ndarray:
        """Return the numbers of observed entries, by sample for axis 0 and by feature for axis 1."""

    def total(self) -> float:
        """Return Σ x over observed entries."""

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ x of every feature and of every sample."""

    def mean(self) -> float:
        """Return the mean of the observed entries."""

    def largest(self) -> float:
        """Return the largest entry."""

    def is_whole(self) -> bool:
        """Return whether all entries are whole numbers."""

    def take(self, samples: Array) -> tuple[Array, Array | None]:
        """Return X and its mask for these samples."""

    def fingerprint(self) -> int:
        """Return a checksum of shape, observed entries and mask."""

    def checksum(self, samples: np.ndarray, number: int) -> int:
        """Return a checksum of observed entries and mask, modulo 2⁶⁴; those of several processes add up to that of all.

        Args:
            samples: the indices of these samples among those of all processes.
            number: of the samples of all processes.
        """

    def with_nan(self) -> Any:
        """Return X with NaN for hidden entries, dense or in SciPy's form as it is."""

    def hidden(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of hidden entries, of features and of samples."""

    def filled(self, values: np.ndarray) -> Any:
        """Return X, dense or sparse as it is, with these values at hidden entries, in the order of `hidden`."""

    def columns(self, samples: Array) -> np.ndarray:
        """Return some samples as a dense array, with NaN for hidden entries."""

    def divergences(self, T: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return KL(x ‖ TV) of every sample over observed entries."""

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) over observed entries."""


class DenseMatrix(NamedTuple):
    """Entries of a dense X.

    X: features × samples; 0 where it is hidden.
    mask: features × samples, true where X was observed; None when all of it was.
    """

    X: Array
    mask: Array | None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of samples."""
        F, N = self.X.shape
        return int(F), int(N)

    @property
    def num_observed(self) -> int:
        """The number of observed entries."""
        return int(np.size(self.X) if self.mask is None else np.asarray(self.mask).sum())

    def stored(self) -> np.ndarray:
        """Return all entries."""
        return np.asarray(self.X)

    def observed_counts(self, axis: int) -> np.ndarray:
        """Return the numbers of observed entries, by sample for axis 0 and by feature for axis 1."""
        if self.mask is None:
            return np.full(self.shape[1 - axis], self.shape[axis])
        return np.asarray(np.asarray(self.mask, bool).sum(axis=axis))

    def total(self) -> float:
        """Return Σ x over observed entries."""
        return float(np.sum(np.asarray(self.X), dtype=float))

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ x of every feature and of every sample."""
        X = np.asarray(self.X, float)
        return X.sum(axis=1), X.sum(axis=0)

    def mean(self) -> float:
        """Return the mean of the observed entries."""
        if self.mask is None:
            return float(np.mean(np.asarray(self.X), dtype=float))
        return self.total() / self.num_observed

    def largest(self) -> float:
        """Return the largest entry."""
        return float(np.asarray(self.X).max())

    def is_whole(self) -> bool:
        """Return whether all entries are whole numbers."""
        X = np.asarray(self.X)
        return bool((np.round(X) == X).all())

    def take(self, samples: Array) -> tuple[Array, Array | None]:
        """Return X and its mask for these samples."""
        return self.X[:, samples], None if self.mask is None else self.mask[:, samples]

    def fingerprint(self) -> int:
        """Return a checksum of shape, observed entries and mask."""
        X = np.ascontiguousarray(self.X, float)
        seen = b"" if self.mask is None else np.packbits(np.asarray(self.mask, bool)).tobytes()
        return zlib.crc32(seen, zlib.crc32(X.tobytes(), zlib.crc32(str(X.shape).encode())))

    def checksum(self, samples: np.ndarray, number: int) -> int:
        """Return Σ h(x_ν) a_f b_τ modulo 2⁶⁴, with `multipliers` a and b and the `hashed` entry, or 1 if hidden."""
        of_feature, of_sample = multipliers(self.shape[0], number)
        rows = np.zeros(self.shape[0], np.uint64)
        for f, x in enumerate(np.asarray(self.X)):  # row by row, for the memory
            bits = hashed(x) if self.mask is None else np.where(np.asarray(self.mask[f], bool), hashed(x), np.uint64(1))
            rows[f] = (bits * of_sample[samples]).sum()
        return int((rows * of_feature).sum())

    def with_nan(self) -> np.ndarray:
        """Return X with NaN for hidden entries."""
        X = np.asarray(self.X)
        return X if self.mask is None else np.where(np.asarray(self.mask, bool), X, np.nan)

    def hidden(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of hidden entries, of features and of samples."""
        feature, sample = np.nonzero(np.zeros(self.shape, bool) if self.mask is None else ~np.asarray(self.mask, bool))
        return feature, sample

    def filled(self, values: np.ndarray) -> np.ndarray:
        """Return X with these values at hidden entries, in the order of `hidden`."""
        X = np.array(self.X, float)
        X[self.hidden()] = values
        return X

    def columns(self, samples: Array) -> np.ndarray:
        """Return some samples, with NaN for hidden entries."""
        return self.with_nan()[:, samples]

    def divergences(self, T: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return KL(x ‖ TV) of every sample over observed entries."""
        return np.asarray(np.nansum(kl_div(np.asarray(self.with_nan(), float), T @ V), axis=0))

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) = Σ x log(x/m) − x + m over observed entries."""
        seen = True if self.mask is None else np.asarray(self.mask, bool)
        return float(kl_div(np.asarray(self.X, float), T @ V).sum(where=seen))


def multipliers(num_features: int, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return fixed odd numbers below 2⁶⁴ for each feature and each sample, for `Matrix.checksum`."""
    draws = (np.random.default_rng(n).integers(1 << 63, size=m) for n, m in enumerate((num_features, num_samples)))
    of_feature, of_sample = (draw.astype(np.uint64) * np.uint64(2) + np.uint64(1) for draw in draws)
    return of_feature, of_sample


def hashed(values: Array) -> np.ndarray:
    """Return the bits of numbers in double precision, with the upper half also in the lower half; 0 for 0.

    The lower bits of small whole numbers are 0, and would make the lower bits of a sum of products 0.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return np.asarray(bits ^ (bits >> np.uint64(32)))


def is_traced(*values: Any) -> bool:
    """Return whether any array in these values is a tracer, under a user's jit or grad, without values."""
    return any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(values))
