"""New samples in the space of a learned dictionary, and the paper's classifier there."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray


def nnls(T: ArrayLike, X: ArrayLike) -> NDArray[np.float64]:
    """argmin_{V ≥ 0} ‖X − TV‖², every column on its own.

    Args:
        T: features × components, the dictionary.
        X: features × columns, what is to be projected.

    Returns components × columns.

    >>> nnls([[1.0, 0.0], [0.0, 2.0]], [[3.0, -1.0], [4.0, 4.0]]).tolist()
    [[3.0, 0.0], [2.0, 2.0]]
    """
    T, X = _matrix("T", T), _matrix("X", X)
    if T.shape[0] != X.shape[0]:
        raise ValueError(f"expected T and X with the same number of features; got {T.shape[0]} and {X.shape[0]}")
    if T.shape[0] == 0 or T.shape[1] == 0:
        raise ValueError(f"expected T with at least one feature and one component; got shape {T.shape}")
    # ‖x − Tv‖² = ‖Qᵀx − Rv‖² + a constant: the problems shrink from F rows to at most K.
    Q, R = np.linalg.qr(T)
    V = np.zeros((T.shape[1], X.shape[1]))
    for tau, target in enumerate((Q.T @ X).T):
        V[:, tau] = scipy.optimize.nnls(R, target, maxiter=30 * T.shape[1])[0]
    return V


def nearest_cosine(train_V: ArrayLike, train_labels: ArrayLike, test_V: ArrayLike) -> NDArray[Any]:
    """The label of the nearest training sample by cosine distance, for every test sample: the paper's classifier.

    Args:
        train_V: components × training samples.
        train_labels: one per training sample.
        test_V: components × test samples.

    >>> nearest_cosine([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], [[0.2], [5.0]]).tolist()
    ['b']
    """
    from sklearn.neighbors import KNeighborsClassifier

    train_V, test_V, labels = _matrix("train_V", train_V), _matrix("test_V", test_V), np.asarray(train_labels)
    if train_V.shape[0] != test_V.shape[0]:
        raise ValueError(f"expected as many components in both; got {train_V.shape[0]} and {test_V.shape[0]}")
    if labels.shape != train_V.shape[1:]:
        raise ValueError(f"expected one label for each of {train_V.shape[1]} samples; got shape {labels.shape}")
    classifier = KNeighborsClassifier(n_neighbors=1, metric="cosine").fit(train_V.T, labels)
    predicted: NDArray[Any] = classifier.predict(test_V.T)
    return predicted


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"expected {name} with 2 dimensions; got {array.ndim} (shape {array.shape})")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected {name} to hold real numbers; got dtype {array.dtype}")
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ValueError(f"expected {name} to be finite; got {array[~np.isfinite(array)][0]}")
    return array
