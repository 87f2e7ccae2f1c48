"""Samples in the spaces of several dictionaries: the features from which heads predict classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..inference import Posterior
from ..inference.fold_in import fold_in
from ..model import Priors
from ..model.priors import is_grouped
from .least_squares import nnls

FEW = 0.25  # proportion of nonzeros up to which a dense X is folded in as a sparse one, which gives the same numbers
TOLERANCE = 1e-5  # of fold_in for sparse X: no predicted class differed from that at 1e-6, at half the price
MOST = 1 << 25  # numbers in q(v | c) of the samples that are folded in at once


@dataclass
class Represented:
    """Samples under the dictionaries of several restarts; every quantity is computed once, when a head asks for it.

    posteriors, priors: one of each for every restart.
    by: how coefficients are found, "nnls" or "posterior".
    pi: proportions of classes; None for priors without groups.
    samples: features × samples, dense or sparse; NaN where missing.
    given: the coefficients by restart, if they are known already.
    tol: tolerance of `fold_in` for sparse samples.
    """

    posteriors: Sequence[Posterior]
    priors: Sequence[Priors]
    by: str
    pi: NDArray[Any] | None
    samples: Any
    given: list[NDArray[Any]] | None = None
    tol: float = TOLERANCE

    @cached_property
    def folded(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """By restart: E[v], components × samples, and ℒ_τ(c), samples × classes."""
        pairs = zip(self.posteriors, self.priors, strict=True)
        return [fold_in_parts(q, priors, self.samples, self.pi, self.tol) for q, priors in pairs]

    @cached_property
    def coefficients(self) -> list[NDArray[Any]]:
        """By restart, components × samples."""
        if self.given is not None:
            return self.given
        if self.by == "posterior":
            return [V for V, _ in self.folded]
        return [nnls(q.T.mean, self.samples) for q in self.posteriors]

    @cached_property
    def complete(self) -> Any:
        """The samples themselves, features × samples; missing entries are imputed."""
        if not np.isnan(self.samples.data if scipy.sparse.issparse(self.samples) else self.samples).any():
            return self.samples
        return imputed(self.samples, [q.T.mean for q in self.posteriors], self.coefficients)

    @cached_property
    def bounds(self) -> NDArray[np.float64]:
        """ℒ_τ(c), samples × classes, mean over restarts."""
        mean: NDArray[np.float64] = np.mean([bound for _, bound in self.folded], axis=0)
        return mean

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """Square roots of each component's proportion of a sample's expected counts, of all restarts side by side.

        The proportions are (Σ_ν t_νi) v_iτ / Σ_j (Σ_ν t_νj) v_jτ; samples × (restarts · components).
        """
        counts = [
            np.asarray(q.T.mean, float).sum(axis=0)[:, None] * V
            for q, V in zip(self.posteriors, self.coefficients, strict=True)
        ]
        return np.vstack([root_proportions(some) for some in counts]).T


def imputed(X: Any, dictionaries: Sequence[Any], coefficients: Sequence[NDArray[Any]]) -> Any:
    """Return X with missing entries replaced by Σ_i t_νi v_iτ, mean over dictionaries.

    Args:
        X: features × samples, dense or sparse; NaN where missing.
        dictionaries: each features × components.
        coefficients: of each dictionary, components × samples.
    """
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csc_array(X, dtype=float, copy=True)
        missing = np.isnan(X.data)
        places: Any = X.indices[missing], np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))[missing]
    else:
        X = np.array(X, float)
        places = np.nonzero(np.isnan(X))
    if len(places[0]) == 0:
        return X
    pairs = zip(dictionaries, coefficients, strict=True)
    guess = np.mean([np.sum(np.asarray(T)[places[0]] * V.T[places[1]], axis=1) for T, V in pairs], axis=0)
    if scipy.sparse.issparse(X):
        X.data[missing] = guess
    else:
        X[places] = guess
    return X


def root_proportions(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the square roots of columns divided by their sums; a column of zeros stays as it is."""
    total = counts.sum(axis=0)
    roots: NDArray[np.float64] = np.sqrt(counts / np.where(total > 0, total, 1.0))
    return roots


def fold_in_parts(
    posterior: Posterior, priors: Priors, X: Any, pi: Any, tol: float = TOLERANCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return E[v] averaged over classes, components × samples, and ℒ_τ(c), samples × classes, by `fold_in`.

    Args:
        posterior: of the fit.
        priors: of the fit.
        X: features × samples, some of which are folded in at a time.
        pi: proportions of classes; None for priors without groups, or for equal ones.
        tol: tolerance for sparse X.
    """
    X = scipy.sparse.csc_array(X) if scipy.sparse.issparse(X) else np.asarray(X, float)
    if not scipy.sparse.issparse(X) and not np.isnan(X).any() and np.count_nonzero(X) <= FEW * X.size:
        X = scipy.sparse.csc_array(X)
    tol = tol if scipy.sparse.issparse(X) else 1e-6
    C = np.shape(posterior.lam.mean)[1] if posterior.lam is not None and is_grouped(priors) else 1
    step = max(1, MOST // (C * len(posterior.V.mean)))
    parts = []
    for n in range(0, X.shape[1], step):
        folded = fold_in(posterior, X[:, n : n + step], priors, tol=tol)
        parts.append((np.asarray(folded.mean(pi), float), np.asarray(folded.bound, float)))
    return np.concatenate([V for V, _ in parts], axis=1), np.concatenate([bound for _, bound in parts])
