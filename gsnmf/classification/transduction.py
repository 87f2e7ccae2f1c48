"""Labels of samples that have none, from those that have: neighbours in the spaces of several dictionaries.

A model's own q(z) judges each sample by how well every class explains it, to odds that are far too sure, and on images
less often right than the neighbours are (docs/labels.md). Here labels go from neighbour to neighbour, over samples
without a label too, where q(z) serves to learn dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading

from ..model.validation import whole
from .projection import nnls, unit

TINY = 1e-12  # squared distance of samples that are the same, but for rounding


def transduce(
    X: ArrayLike,
    index: ArrayLike,
    num_classes: int,
    dictionaries: Sequence[ArrayLike],
    *,
    refit: Callable[[NDArray[np.int64]], Sequence[ArrayLike]] | None = None,
    rounds: int = 2,
    neighbours: tuple[int, int] = (10, 7),
    alpha: float = 0.9,
    samples: tuple[float, float] = (1 / 3, 0.8),
) -> NDArray[np.float64]:
    """Distributions over classes for all samples, by spreading the labels that are known over a graph of neighbours.

    Every sample is joined to its neighbours by `affinities` of its `views`; with S these, divided by the roots of both
    samples' sums, and Y the known labels, the distributions are F = α S F + (1 − α) Y with rows divided by their sums
    (scikit-learn's LabelSpreading).

    Args:
        X: features × samples, nonnegative; NaN where entries are missing.
        index: the class of every sample, from 0; −1 where it is unknown.
        num_classes: how many there are.
        dictionaries: of one restart or several, each features × its components: E[T] of fits to the samples with a
            label, or to all of them.
        refit: from a class for every sample, known or the likeliest, to dictionaries that are learned with these as
            labels and take the place of the ones before; None to leave it at those given.
        rounds: how often it is called. Known labels alone spread in every round.
        neighbours: of each sample, all the others if there are not more; with dictionaries that are learned again, in
            the last round, the second of these.
        alpha: how far labels spread, between 0 and 1: the share a sample takes from its neighbours.
        samples: the weight of the samples as they are, among the views; the second likewise. Dictionaries that are
            learned again repeat what they were told, which the samples do not.

    Returns samples × classes, rows adding up to 1. Labels that are known stay; a sample that no label reaches has the
    shares of classes among the known ones.

    >>> X = [[9.0, 8.0, 0.0, 1.0], [0.0, 1.0, 9.0, 7.0]]
    >>> transduce(X, [0, -1, 1, -1], 2, [np.eye(2)], neighbours=(1, 1)).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    labels = _check_index(index, num_classes)
    whole("rounds", rounds, 0)
    if np.shape(neighbours) != (2,):
        raise ValueError(f"expected neighbours to be two whole numbers; got {neighbours!r}")
    for number in neighbours:
        whole("neighbours", number, 1)
    if not isinstance(alpha, (int, float, np.number)) or not 0 < alpha < 1:
        raise ValueError(f"expected alpha between 0 and 1; got {alpha!r}")
    if np.shape(samples) != (2,) or not all(0 <= weight < 1 for weight in samples):
        raise ValueError(f"expected samples to be two weights from 0 to below 1; got {samples!r}")
    if np.shape(X)[1:] != labels.shape:
        raise ValueError(f"expected X, features × samples, with one index each; got {np.shape(X)} and {len(labels)}")

    def verdict(dictionaries: Sequence[ArrayLike], last: bool) -> NDArray[np.float64]:
        graph = affinities(views(X, dictionaries, samples[last]), neighbours[last])
        return spread(graph, labels, num_classes, alpha)

    shares = verdict(dictionaries, False)
    if refit is not None:
        for left in reversed(range(rounds)):
            shares = verdict(refit(shares.argmax(axis=1)), left == 0)
    return shares


def spread(graph: csr_array, labels: NDArray[np.int64], num_classes: int, alpha: float) -> NDArray[np.float64]:
    """F = α S F + (1 − α) Y, rows divided by their sums, on a graph of affinities; arguments as in `transduce`."""
    model = LabelSpreading(kernel=lambda *_: graph, alpha=alpha, max_iter=10_000, tol=1e-6)
    found = model.fit(np.zeros((len(labels), 1)), labels)  # the kernel has seen the samples
    known = labels >= 0
    shares: NDArray[np.float64] = np.zeros((len(labels), num_classes))
    shares[:, found.classes_] = found.label_distributions_
    shares[~shares.any(axis=1)] = np.bincount(labels[known], minlength=num_classes) / known.sum()
    shares[known] = np.eye(num_classes)[labels[known]]
    return shares


def views(X: ArrayLike, dictionaries: Sequence[ArrayLike], samples: float = 1 / 3) -> NDArray[np.float64]:
    """Samples as points whose inner products are mean cosines: of coefficients, of their roots, of samples themselves.

    Args:
        X: features × samples; what is missing is taken to be what the dictionaries make of the rest.
        dictionaries: each features × components.
        samples: the weight of the cosine of samples; coefficients by every dictionary, and their roots, share the rest.

    Returns samples × coordinates, of length 1, unless a sample is 0 in a view.
    """
    if len(dictionaries) == 0:
        raise ValueError("expected at least one dictionary; got none")
    coefficients = [nnls(T, X) for T in dictionaries]
    parts = [unit(part) for V in coefficients for part in (V, np.sqrt(V))]
    points = [np.sqrt((1 - samples) / len(parts)) * part for part in parts]
    if samples > 0:
        guess = np.mean([np.asarray(T) @ V for T, V in zip(dictionaries, coefficients, strict=True)], axis=0)
        points.append(np.sqrt(samples) * unit(np.where(np.isnan(X), guess, X)))
    return np.vstack(points).T


def affinities(points: NDArray[Any], neighbours: int) -> csr_array:
    """w_στ = exp(−d²_στ / (r_σ r_τ)) if one is among the other's nearest, with r the distance of the last of these.

    Args:
        points: samples × coordinates.
        neighbours: how many each sample has; all the others, if there are not more.
    """
    N = len(points)
    if N < 2:
        raise ValueError(f"expected at least 2 samples; got {N}")
    n = min(neighbours, N - 1)
    distance, nearest = NearestNeighbors(n_neighbors=n).fit(points).kneighbors()
    radius = np.maximum(distance[:, -1], np.sqrt(TINY))
    weights = np.exp(-(distance**2) / (radius[:, None] * radius[nearest]))
    directed = csr_array((weights.ravel(), (np.repeat(np.arange(N), n), nearest.ravel())), shape=(N, N))
    return directed.maximum(directed.T)


def _check_index(index: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    whole("num_classes", num_classes, 1)
    labels = np.asarray(index)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"expected index to be one whole number per sample; got {labels.dtype} of {labels.shape}")
    if len(labels) and not (labels.min() >= -1 and labels.max() < num_classes):
        raise ValueError(f"expected index from −1, unknown, to {num_classes - 1}; got {labels.min()} to {labels.max()}")
    if not (labels >= 0).any():
        raise ValueError("expected at least one label that is known; got none")
    return labels.astype(np.int64)
