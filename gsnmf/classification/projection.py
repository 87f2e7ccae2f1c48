"""Projection of samples onto a learned dictionary, and the paper's classifier in that space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .least_squares import as_divisors, nnls, real_matrix

__all__ = [
    *("COMBINED", "accuracy", "both_cosines", "class_cosines", "combine", "nearest_other"),
    *("nearest_cosine", "nnls", "unit", "vote_shares"),
]

COMBINED = ("vote", "cosine", "blend")  # ways in which `combine` joins several restarts


def class_cosines(
    train_V: ArrayLike, train_labels: ArrayLike, test_V: ArrayLike, itself: ArrayLike | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the largest cosine between each test sample and the training samples of every class.

    Args:
        train_V: components × training samples.
        train_labels: one per training sample.
        test_V: components × test samples.
        itself: the index of each test sample among the training samples, if it is one of them: it is then not its own
            neighbour.

    Returns the cosines, test samples × classes, and the classes in sorted order. The cosine is 0 for a sample that is 0
    everywhere, and for a class that has no other sample.

    >>> class_cosines([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], [[3.0], [4.0]])[0].round(3).tolist()
    [[0.6, 0.8]]
    """
    train_V, test_V, labels = real_matrix("train_V", train_V), real_matrix("test_V", test_V), np.asarray(train_labels)
    if train_V.shape[0] != test_V.shape[0]:
        raise ValueError(
            "expected as many components in both, training and test samples; "
            f"got {train_V.shape[0]} and {test_V.shape[0]}"
        )
    if labels.shape != train_V.shape[1:] or len(labels) == 0:
        raise ValueError(f"expected one label for each of {train_V.shape[1]} samples; got shape {labels.shape}")
    order = np.argsort(labels, kind="stable")
    cosines = unit(test_V).T @ unit(train_V)[:, order]
    if itself is not None:
        cosines[np.arange(len(cosines)), np.argsort(order)[np.asarray(itself)]] = -np.inf
    classes, begin = np.unique(labels[order], return_index=True)
    nearest = np.maximum.reduceat(cosines, begin, axis=1)
    return np.where(np.isneginf(nearest), 0.0, nearest), classes


def nearest_cosine(train_V: ArrayLike, train_labels: ArrayLike, test_V: ArrayLike) -> NDArray[Any]:
    """Return the label of each test sample's nearest training sample by cosine distance: the paper's classifier.

    Args:
        train_V: components × training samples.
        train_labels: one per training sample.
        test_V: components × test samples.

    >>> nearest_cosine([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], [[0.2], [5.0]]).tolist()
    ['b']
    """
    cosines, classes = class_cosines(train_V, train_labels, test_V)
    predicted: NDArray[Any] = classes[cosines.argmax(axis=1)]
    return predicted


def nearest_other(V: ArrayLike, labels: ArrayLike) -> NDArray[Any]:
    """Return the label of each sample's nearest other sample by cosine distance.

    Args:
        V: components × samples, two or more.
        labels: one per sample.

    >>> nearest_other([[1.0, 0.9, 0.0], [0.0, 0.1, 1.0]], ["a", "b", "c"]).tolist()
    ['b', 'a', 'b']
    """
    if len(np.asarray(labels)) < 2:
        raise ValueError(f"expected two samples or more, with one label each; got {len(np.asarray(labels))} labels")
    cosines, classes = class_cosines(V, labels, V, itself=np.arange(np.shape(V)[1]))
    others: NDArray[Any] = classes[cosines.argmax(axis=1)]
    return others


def accuracy(T: ArrayLike, X: ArrayLike, labels: ArrayLike, new_X: ArrayLike, new_labels: ArrayLike) -> float:
    """Return the accuracy of the paper's classifier on new samples; all samples are projected onto T by `nnls`.

    Args:
        T: features × components, the dictionary.
        X: features × labelled samples.
        labels: one per labelled sample.
        new_X: features × new samples.
        new_labels: the true labels of the new samples.

    >>> accuracy([[1.0, 0.0], [0.0, 1.0]], [[9.0, 1.0], [1.0, 9.0]], ["a", "b"], [[5.0, 5.0], [1.0, 2.0]], ["a", "b"])
    0.5
    """
    return float(np.mean(nearest_cosine(nnls(T, X), labels, nnls(T, new_X)) == np.asarray(new_labels)))


def both_cosines(
    train_V: ArrayLike, train_labels: ArrayLike, test_V: ArrayLike, itself: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return `class_cosines` of coefficients, the paper's measure, and of their square roots if none is negative.

    Square roots keep a few large coefficients from deciding alone.

    Args:
        train_V: components × training samples.
        train_labels: one per training sample.
        test_V: components × test samples.
        itself: as in `class_cosines`.

    Returns measures × test samples × classes, classes in sorted order.

    >>> both_cosines([[16.0, 0.0], [0.0, 1.0]], ["a", "b"], [[9.0], [16.0]]).round(2).tolist()
    [[[0.49, 0.87]], [[0.6, 0.8]]]
    """
    pair = real_matrix("train_V", train_V), real_matrix("test_V", test_V)
    pairs = [pair] if min(V.min(initial=0) for V in pair) < 0 else [pair, (np.sqrt(pair[0]), np.sqrt(pair[1]))]
    return np.array([class_cosines(old, train_labels, new, itself)[0] for old, new in pairs])


def combine(cosines: ArrayLike, by: str) -> NDArray[np.float64]:
    """Combine several restarts into scores of classes; the class with the highest score is the prediction.

    Args:
        cosines: restarts × measures × samples × classes, as from `both_cosines` with each restart's dictionary.
        by: "vote", the majority of restarts by the first measure, `vote_shares`; "cosine", the mean over restarts of
            the first measure; "blend", the mean over restarts and all measures.

    Returns samples × classes.

    >>> combine([[[[0.9, 0.8]]], [[[0.1, 0.7]]]], "cosine").tolist()
    [[0.5, 0.75]]
    """
    stack = np.asarray(cosines, float)
    if stack.ndim != 4:
        raise ValueError(f"expected restarts × measures × samples × classes; got shape {stack.shape}")
    if by not in COMBINED:
        raise ValueError(f"expected by to be one of {', '.join(map(repr, COMBINED))}; got {by!r}")
    if by == "vote":
        return vote_shares(stack[:, 0])
    means: NDArray[np.float64] = stack[:, 0].mean(axis=0) if by == "cosine" else stack.mean(axis=(0, 1))
    return means


def vote_shares(cosines: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[np.float64]:
    """Return the proportion of restarts that vote for each class, plus a sliver of the mean cosine, which breaks ties.

    Args:
        cosines: restarts × samples × classes, as from `class_cosines` with each restart's dictionary.

    Returns samples × classes, rows adding up to 1.

    >>> vote_shares([[[0.9, 0.8]], [[0.1, 0.7]]]).argmax(axis=1).tolist()
    [1]
    """
    stack = np.asarray(cosines, float)
    votes = (stack.argmax(axis=2)[..., None] == np.arange(stack.shape[2])).mean(axis=0)
    votes = votes + 1e-6 * np.clip(stack.mean(axis=0), 0, None)
    shares: NDArray[np.float64] = votes / votes.sum(axis=1, keepdims=True)
    return shares


def unit(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale every column to length 1; a column of zeros stays as it is."""
    matrix = matrix / as_divisors(np.abs(matrix).max(axis=0, initial=0))  # squares stay within the range
    scaled: NDArray[np.float64] = matrix / as_divisors(np.linalg.norm(matrix, axis=0))
    return scaled
