"""Heads: classifiers that learn from samples as dictionaries represent them.

    head            sees                                               learns
    "lda"           √ proportions of components, all restarts          shrinkage linear discriminants
    "stacked"       the samples themselves, and √ proportions or       classifiers of both (`stacked_terms`), and the
                    the model's class bounds                           weights of their scores, on left-out samples

The others (`prediction.py`) learn nothing more than dictionaries: neighbours by cosine, and the model's class bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from .calibration import smoothed_log_loss
from .projection import class_cosines
from .representation import Represented

LEARNED = ("lda", "stacked")
EQUAL = (1.0, 1.0, 1.0)  # weights of a stacked head before they are fitted
DIRECTIONS = 120  # leading ones that the discriminants of a stacked head see
POWERS = 2  # iterations by which they are found
RIDGE = 1e-8  # added to a covariance, in units of its mean variance: it is 0 if all samples are their class means
PENALTY = 10.0  # C of the linear SVM, for samples of length 1
MARGIN = 0.01  # tolerance of the linear SVM; with 0.0001 accuracies were the same, at twice the price


@dataclass(frozen=True)
class Linear:
    """Discriminants on √ proportions."""

    model: Discriminants

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes."""
        return self.model.decision_function(_points(seen))


@dataclass(frozen=True)
class OnSamples:
    """A linear classifier on the samples themselves, as `Profiles` show them."""

    model: Any
    profiles: Profiles

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes."""
        return decisions(self.model, self.profiles(seen.complete))


@dataclass(frozen=True)
class Nearest:
    """Minus the angle to the nearest training sample of each class, of the samples themselves.

    samples: features × training samples; y: the class of each.
    """

    samples: NDArray[Any]
    y: NDArray[Any]

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes.

        Sparse samples are made dense a few at a time, at most as many as there are training samples, which are dense.
        """
        new, width = seen.complete, len(self.y)
        if not scipy.sparse.issparse(new):
            return minus_angles(class_cosines(self.samples, self.y, new)[0])
        columns = scipy.sparse.csc_array(new)
        blocks = (columns[:, n : n + width].toarray() for n in range(0, max(1, columns.shape[1]), width))
        return minus_angles(np.concatenate([class_cosines(self.samples, self.y, block)[0] for block in blocks]))


@dataclass(frozen=True)
class ClassBounds:
    """The model's own log π_c + ℒ_τ(c)."""

    log_pi: NDArray[Any]

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes."""
        scores: NDArray[np.float64] = seen.bounds + self.log_pi
        return scores


@dataclass(frozen=True)
class Stacked:
    """Σ_k w_k × scores of the k-th term; terms: from `stacked_terms`; weights: w, from `fit_weights`."""

    terms: tuple[Any, ...]
    weights: tuple[float, ...]

    def parts(self, seen: Represented) -> NDArray[np.float64]:
        """Return the scores of all terms without their weights, terms × samples × classes."""
        return np.stack([term.scores(seen) for term in self.terms])

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes."""
        return np.tensordot(self.weights, self.parts(seen), axes=1)


@dataclass(frozen=True)
class Profiles:
    """w_ν log(1 + u x_ντ / Σ_ν x_ντ) of samples, each divided by its length: what they say whatever their total.

    total: u, the median of Σx over training samples.
    weights: w, `rarity` of features among training samples.
    """

    total: float
    weights: NDArray[np.float64]

    def __call__(self, X: Any) -> Any:
        """Return samples × features, in the form that X (features × samples) has, dense or sparse."""
        sums = np.asarray(X.sum(axis=0)).ravel()
        sums = self.total / np.where(sums > 0, sums, 1.0)
        if not scipy.sparse.issparse(X):
            return normalize(np.log1p(X * sums).T * self.weights)
        scaled = scipy.sparse.csr_array(scipy.sparse.csc_array(X) @ scipy.sparse.diags_array(sums))
        return normalize((scipy.sparse.diags_array(self.weights) @ scaled.log1p()).T.tocsr())


def profiles_of(X: Any) -> Profiles:
    """Return how to see samples like these, features × samples."""
    return Profiles(float(np.median(np.asarray(X.sum(axis=0)))) or 1.0, rarity(X))


def rarity(X: Any) -> NDArray[np.float64]:
    """Return 1 + log((1 + N) / (1 + n_ν)), where n_ν of the N samples have feature ν: inverse document frequencies.

    Args:
        X: features × samples.
    """
    number = X.shape[1]
    weights: NDArray[np.float64] = 1 + np.log((1 + number) / (1 + np.asarray((X > 0).sum(axis=1), float).ravel()))
    return weights


def fit_head(name: str, seen: Represented, y: NDArray[Any], weights: tuple[float, ...]) -> Linear | Stacked:
    """Train a head on labelled samples.

    Args:
        name: one of `LEARNED`.
        seen: the samples.
        y: the class of each, from 0; two classes or more.
        weights: of a stacked head, from `fit_weights`.
    """
    if name == "stacked":
        return Stacked(stacked_terms(seen, y), weights)
    return Linear(discriminants(_points(seen), y))


def stacked_terms(seen: Represented, y: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Train the three terms of a stacked head: two see the samples, one sees them through the dictionaries.

    For dense samples they are the nearest sample by cosine, discriminants of log-normalised samples on leading
    directions, and "lda". For sparse samples, a linear support vector machine takes the place of the nearest sample,
    and the model's class bounds that of "lda" if the priors distinguish classes.

    Args:
        seen: the samples.
        y: the class of each, from 0.
    """
    profiles = profiles_of(seen.complete)
    points = profiles(seen.complete)
    leading = OnSamples(discriminants(points, y, DIRECTIONS), profiles)
    if not scipy.sparse.issparse(points):
        return Nearest(seen.complete, y), leading, fit_head("lda", seen, y, EQUAL)
    machine = OnSamples(LinearSVC(C=PENALTY, tol=MARGIN, random_state=0).fit(points, y), profiles)
    if seen.pi is None:
        return machine, leading, fit_head("lda", seen, y, EQUAL)
    return machine, leading, ClassBounds(np.log(np.asarray(seen.pi, float)))


@dataclass(frozen=True)
class Discriminants:
    """Linear scores of classes, x @ slopes + offsets; slopes: coordinates × classes."""

    slopes: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def decision_function(self, points: Any) -> NDArray[np.float64]:
        """Return scores, samples × classes."""
        scores: NDArray[np.float64] = points @ self.slopes + self.offsets
        return scores


def discriminants(points: Any, y: NDArray[Any], directions: int | None = None) -> Discriminants:
    """Return linear discriminants: scores xᵀΣ⁻¹μ_c − μ_cᵀΣ⁻¹μ_c / 2 + log π_c, one covariance for all classes.

    Σ is Ledoit and Wolf's estimate from samples minus the mean of their class. scikit-learn's shrinkage discriminants
    have one estimate for each class instead, in which a coordinate that hardly varies within a class keeps a variance
    near 0.

    Args:
        points: samples × coordinates.
        y: the class of each, from 0.
        directions: how many leading directions of the points to use, all by default.
    """
    axes = None
    if directions is not None and directions < points.shape[1]:
        leading = TruncatedSVD(min(directions, max(1, len(y) - 1)), n_iter=POWERS, random_state=0)
        points, axes = leading.fit_transform(points), leading.components_
    sizes = np.bincount(y)
    means = np.stack([points[y == c].mean(axis=0) for c in range(len(sizes))])
    covariance, _ = ledoit_wolf(points - means[y], assume_centered=True)
    ridge = RIDGE * (np.trace(covariance) / len(covariance) or 1.0)
    slopes = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), means.T)
    offsets = np.log(sizes / len(y)) - np.sum(means.T * slopes, axis=0) / 2
    return Discriminants(slopes if axes is None else axes.T @ slopes, offsets)


def decisions(model: Any, points: Any) -> NDArray[np.float64]:
    """Return scikit-learn's decision function as one score for each class, also of two classes."""
    found = np.asarray(model.decision_function(points), float)
    return np.stack([-found / 2, found / 2], axis=1) if found.ndim == 1 else found


def minus_angles(cosines: NDArray[Any]) -> NDArray[np.float64]:
    """Return −arccos of cosines: differences of cosines near 1 are crowded, those of their angles are not."""
    angles: NDArray[np.float64] = np.arccos(np.clip(cosines, -1, 1))
    return -angles


def fit_weights(parts: NDArray[np.float64], y: NDArray[Any]) -> tuple[float, ...]:
    """Return the weights of a stacked head with the lowest log loss on samples that no part was learned from.

    Args:
        parts: terms × samples × classes.
        y: the class of each sample, from 0.
    """
    units = np.array([np.mean(S.max(axis=1) - S.mean(axis=1)) or 1.0 for S in parts])

    def loss(log_weights: NDArray[Any]) -> float:
        return smoothed_log_loss(np.tensordot(np.exp(log_weights) / units, parts, axes=1), y)

    best = minimize(loss, np.ones(len(parts)), bounds=[(-6, 6)] * len(parts))
    return tuple((np.exp(best.x) / units).tolist())


def _points(seen: Represented) -> NDArray[np.float64]:
    """Return √ proportions, samples × (restarts · components), each sample of length 1."""
    points: NDArray[np.float64] = seen.roots / np.sqrt(len(seen.posteriors))
    return points
