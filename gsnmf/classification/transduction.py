"""Label spreading: labels of unlabelled samples from their neighbours in the spaces of several dictionaries.

The model's own q(z) judges each sample by how well every class explains it. Its odds are far too sure, and on images it
is less often right than the neighbours are (docs/labels.md). Here q(z) serves only to learn dictionaries; labels spread
from neighbour to neighbour, through unlabelled samples too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading

from ..model.checks import require_fraction, whole
from .least_squares import nnls
from .projection import unit
from .representation import imputed

TINY = 1e-12  # squared distance of samples that are the same up to rounding


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
    """Spread the known labels over a graph of neighbours and return distributions over classes for all samples.

    Every sample is joined to its neighbours by `affinities` of its `views`. With S the affinities, divided by the roots
    of both samples' sums, and Y the known labels, the distributions are F = α S F + (1 − α) Y with rows divided by
    their sums (scikit-learn's LabelSpreading).

    Args:
        X: features × samples, nonnegative; NaN where entries are missing.
        index: the class of every sample, from 0; −1 for an unlabelled sample.
        num_classes: number of classes.
        dictionaries: E[T] of one restart or several, each features × components: of fits to the labelled samples, or to
            all of them.
        refit: a function from a class for every sample, known or most probable, to dictionaries learned with these
            classes as labels, which replace the previous dictionaries; None to keep the dictionaries given.
        rounds: number of calls of `refit`. Only known labels spread, in every round.
        neighbours: number of neighbours of each sample, at most all the others: first with the dictionaries given and
            in all rounds except the last, then in the last round of `refit`.
        alpha: how far labels spread, between 0 and 1: the weight of a sample's neighbours.
        samples: the weight, among the views, of the samples as they are: a pair of numbers for the same rounds as
            `neighbours`. Dictionaries that were learned from spread labels repeat these labels; the samples do not.

    Returns samples × classes, rows adding up to 1. Known labels stay; a sample that no label reaches gets the
    proportions of classes among the known labels.

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
    require_fraction("alpha", alpha)
    if np.shape(samples) != (2,) or not all(0 <= weight < 1 for weight in samples):
        raise ValueError(f"expected samples to be two weights from 0 to below 1; got {samples!r}")
    if np.shape(X)[1:] != labels.shape:
        raise ValueError(
            f"expected X, features × samples, and one index per sample; got shape {np.shape(X)} and {len(labels)}"
        )

    def verdict(dictionaries: Sequence[ArrayLike], last: bool) -> NDArray[np.float64]:
        graph = affinities(views(X, dictionaries, samples[last]), neighbours[last])
        return spread_labels(graph, labels, num_classes, alpha)

    shares = verdict(dictionaries, False)
    if refit is not None:
        for left in reversed(range(rounds)):
            shares = verdict(refit(shares.argmax(axis=1)), left == 0)
    return shares


def spread_labels(graph: csr_array, labels: NDArray[np.int64], num_classes: int, alpha: float) -> NDArray[np.float64]:
    """Return F = α S F + (1 − α) Y, rows divided by their sums, on a graph of affinities.

    The arguments are those of `transduce`.
    """
    model = LabelSpreading(kernel=lambda *_: graph, alpha=alpha, max_iter=10_000, tol=1e-6)
    found = model.fit(np.zeros((len(labels), 1)), labels)  # the kernel already knows the samples
    known = labels >= 0
    shares: NDArray[np.float64] = np.zeros((len(labels), num_classes))
    shares[:, found.classes_] = found.label_distributions_
    shares[~shares.any(axis=1)] = np.bincount(labels[known], minlength=num_classes) / known.sum()
    shares[known] = np.eye(num_classes)[labels[known]]
    return shares


def views(X: ArrayLike, dictionaries: Sequence[ArrayLike], samples: float = 1 / 3) -> Any:
    """Map samples to points whose inner products are mean cosines of coefficients, of their roots and of the samples.

    Args:
        X: features × samples, dense or sparse; missing entries are imputed by the dictionaries' reconstructions.
        dictionaries: each features × components.
        samples: the weight of the cosine of samples; coefficients by every dictionary, and their roots, share the rest.

    Returns samples × coordinates, of length 1, unless a sample is 0 in a view.
    """
    if len(dictionaries) == 0:
        raise ValueError("expected at least one dictionary; got 0")
    coefficients = [nnls(T, X) for T in dictionaries]
    parts = [unit(part) for V in coefficients for part in (V, np.sqrt(V))]
    points = [np.sqrt((1 - samples) / len(parts)) * part for part in parts]
    if samples == 0:
        return np.vstack(points).T
    complete: Any = imputed(X, dictionaries, coefficients)
    if not scipy.sparse.issparse(complete):
        return np.vstack([*points, np.sqrt(samples) * unit(complete)]).T
    lengths = scipy.sparse.linalg.norm(complete, axis=0)
    complete = complete @ scipy.sparse.diags_array(np.sqrt(samples) / np.where(lengths > 0, lengths, 1))
    return scipy.sparse.hstack([scipy.sparse.csr_array(np.vstack(points).T), complete.T], format="csr")


def affinities(points: Any, neighbours: int) -> csr_array:
    """Return w_στ = exp(−d²_στ / (r_σ r_τ)) if σ or τ is among the other's nearest neighbours, else 0.

    r_τ is the distance from τ to the last of its nearest neighbours.

    Args:
        points: samples × coordinates, dense or sparse.
        neighbours: number of nearest neighbours of each sample, at most all the others.
    """
    N = points.shape[0]
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
        raise ValueError(
            f"expected index to be one whole number per sample; got {labels.dtype} of shape {labels.shape}"
        )
    if len(labels) and not (labels.min() >= -1 and labels.max() < num_classes):
        raise ValueError(
            f"expected index from −1 (unlabelled) to {num_classes - 1}; got {labels.min()} to {labels.max()}"
        )
    if not (labels >= 0).any():
        raise ValueError(f"expected at least one labelled sample; got {len(labels)} unlabelled samples")
    return labels.astype(np.int64)
