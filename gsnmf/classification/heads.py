"""Heads: classifiers that learn from samples as dictionaries represent them.

    head            sees                                               learns
    "lda"           √ proportions of components, all restarts          shrinkage linear discriminants
    "svm"           √ proportions of components, all restarts          a support vector machine, Gaussian kernel
    "stacked"       the samples themselves, and √ proportions or       classifiers of both (`stacked_terms`), and the
                    the model's class bounds                           weights of their scores, on left-out samples

The others (`prediction.py`) learn nothing more than dictionaries: neighbours by cosine, and the model's class bounds.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.decomposition import TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from .calibration import smoothed_log_loss
from .projection import class_cosines
from .representation import Represented

LEARNED = ("lda", "svm", "stacked")
EQUAL = (1.0, 1.0, 1.0)  # weights of a stacked head before they are fitted
DISCRIMINANTS = 1  # their index among the terms of a stacked head
DIRECTIONS, DIRECTIONS_OF_COUNTS = 120, 40  # leading ones that the discriminants of a stacked head see: dense, sparse X
PENALTY = 10.0  # C of the linear machine, for samples of mean square length 1
GAMMA, COST = 1.0, 10.0  # of the Gaussian kernel, for points of length 1


@dataclass(frozen=True)
class Linear:
    """A scikit-learn classifier on √ proportions; its scores are those of the decision function."""

    model: Any

    def scores(self, seen: Represented) -> NDArray[np.float64]:
        """Return scores of classes, samples × classes."""
        return decisions(self.model, _points(seen))


@dataclass(frozen=True)
class OnSamples:
    """A scikit-learn classifier on the samples themselves, log-normalised."""

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
    """log(1 + u x / Σx) of samples, divided by s: what counts of samples say whatever their number.

    total: u, the median of Σx over training samples.
    length: s, the root mean square length of training samples.
    """

    total: float
    length: float

    def __call__(self, X: Any) -> Any:
        """Return samples × features, in the form that X (features × samples) has, dense or sparse."""
        return _log_proportions(X, self.total) / self.length


def profiles_of(X: Any) -> Profiles:
    """Return how to see samples like these, features × samples."""
    total = float(np.median(np.asarray(X.sum(axis=0)))) or 1.0
    L = _log_proportions(X, total)
    squares = L.power(2).sum() if scipy.sparse.issparse(L) else np.sum(L**2)
    return Profiles(total, float(np.sqrt(squares / L.shape[0])) or 1.0)


def _log_proportions(X: Any, total: float) -> Any:
    sums = np.asarray(X.sum(axis=0)).ravel()
    sums = total / np.where(sums > 0, sums, 1.0)
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(scipy.sparse.csc_array(X) @ scipy.sparse.diags_array(sums)).log1p().T.tocsr()
    return np.log1p(X * sums).T


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
    if name == "svm":
        return Linear(SVC(gamma=GAMMA, C=COST).fit(_points(seen), y))
    return Linear(_fitted(make_pipeline(StandardScaler(), _lda()), _points(seen), y))


def stacked_terms(seen: Represented, y: NDArray[Any]) -> tuple[Any, Any, Any]:
    """Train the three terms of a stacked head: two see the samples, one sees them through the dictionaries.

    For dense samples they are the nearest sample by cosine, discriminants of log-normalised samples on leading
    directions, and "lda". For sparse samples, a linear support vector machine takes the place of the nearest sample,
    and the model's class bounds that of "lda" if the priors distinguish classes; discriminants are optional there, see
    `fit_weights`.

    Args:
        seen: the samples.
        y: the class of each, from 0.
    """
    profiles = profiles_of(seen.complete)
    points = profiles(seen.complete)
    directions = DIRECTIONS_OF_COUNTS if scipy.sparse.issparse(points) else DIRECTIONS
    leading = TruncatedSVD(max(1, min(directions, min(points.shape) - 1)), random_state=0)
    discriminants = OnSamples(_fitted(make_pipeline(leading, _lda()), points, y), profiles)
    if not scipy.sparse.issparse(points):
        return Nearest(seen.complete, y), discriminants, fit_head("lda", seen, y, EQUAL)
    machine = OnSamples(LinearSVC(C=PENALTY, random_state=0).fit(points, y), profiles)
    if seen.pi is None:
        return machine, discriminants, fit_head("lda", seen, y, EQUAL)
    return machine, discriminants, ClassBounds(np.log(np.asarray(seen.pi, float)))


def _fitted(model: Any, points: Any, y: NDArray[Any]) -> Any:
    """Return a fitted model; a class with one sample has no covariance of its own, which shrinkage takes care of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Only one sample available")
        return model.fit(points, y)


def _lda() -> LinearDiscriminantAnalysis:
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def decisions(model: Any, points: Any) -> NDArray[np.float64]:
    """Return scikit-learn's decision function as one score for each class, also of two classes."""
    found = np.asarray(model.decision_function(points), float)
    return np.stack([-found / 2, found / 2], axis=1) if found.ndim == 1 else found


def minus_angles(cosines: NDArray[Any]) -> NDArray[np.float64]:
    """Return −arccos of cosines: differences of cosines near 1 are crowded, those of their angles are not."""
    angles: NDArray[np.float64] = np.arccos(np.clip(cosines, -1, 1))
    return -angles


def fit_weights(parts: NDArray[np.float64], y: NDArray[Any], optional: int | None = None) -> tuple[float, ...]:
    """Return the weights of a stacked head with the lowest log loss on samples that no part was learned from.

    Log loss alone may give much weight to a term whose scores are good log probabilities, though classes are told apart
    better without it. So one term may be optional: its weight is 0 unless accuracy on these samples is higher with it.

    Args:
        parts: terms × samples × classes.
        y: the class of each sample, from 0.
        optional: the index of the optional term; None if there is none.
    """
    units = np.array([np.mean(S.max(axis=1) - S.mean(axis=1)) or 1.0 for S in parts])

    def loss(log_weights: NDArray[Any]) -> float:
        return smoothed_log_loss(np.tensordot(np.exp(log_weights) / units, parts, axes=1), y)

    best = minimize(loss, np.ones(len(parts)), bounds=[(-6, 6)] * len(parts))
    weights = np.exp(best.x) / units
    if optional is not None:
        without = np.insert(fit_weights(np.delete(parts, optional, axis=0), y), optional, 0.0)
        right = [np.mean(np.tensordot(w, parts, axes=1).argmax(axis=1) == y) for w in (weights, without)]
        weights = weights if right[0] > right[1] else without
    return tuple(weights.tolist())


def _points(seen: Represented) -> NDArray[np.float64]:
    """Return √ proportions, samples × (restarts · components), each sample of length 1."""
    points: NDArray[np.float64] = seen.roots / np.sqrt(len(seen.posteriors))
    return points
