"""Projection of samples onto a learned dictionary, and the paper's classifier in that space."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

PATIENCE = 3  # exchanges of all infeasible variables that may fail to lower their number, before single ones
FEW = 256  # columns of a sparse X with missing rows that are made dense at once
COMBINED = ("vote", "cosine", "blend")  # ways in which `combine` joins several restarts


def nnls(T: ArrayLike, X: ArrayLike) -> NDArray[np.float64]:
    """Return argmin_{V ≥ 0} ‖X − TV‖², every column on its own, by block principal pivoting.

    With T's and X's columns at length 1, G = TᵀT and D = TᵀX, a column v is the solution when v ≥ 0, its gradient
    w = Gv − d ≥ 0, and vᵢwᵢ = 0. Every variable is either free (w = 0) or held at 0; as long as some are infeasible,
    all infeasible variables are exchanged at once. Columns that do not converge, as may happen if T lacks full rank,
    are solved by SciPy's active-set method.

    Args:
        T: features × components, the dictionary.
        X: features × columns, the samples to project, dense or sparse. Rows that are NaN are left out of a column's
            problem; columns with the same missing rows are solved together.

    Returns components × columns, 0 for a column of NaN alone.

    >>> nnls([[1.0, 0.0], [0.0, 2.0]], [[3.0, -1.0], [4.0, 4.0]]).tolist()
    [[3.0, 0.0], [2.0, 2.0]]
    """
    if scipy.sparse.issparse(X):
        return _sparse_nnls(_matrix("T", T), X)
    T, X = _matrix("T", T), _matrix("X", X, nan=True)
    if T.shape[0] != X.shape[0]:
        raise ValueError(f"expected T and X with the same number of features; got {T.shape[0]} and {X.shape[0]}")
    if T.shape[0] == 0 or T.shape[1] == 0:
        raise ValueError(f"expected T with at least one feature and one component; got shape {T.shape}")
    missing = np.isnan(X)
    if missing.any():
        V = np.zeros((T.shape[1], X.shape[1]))
        for columns in _alike(missing):
            seen = ~missing[:, columns[0]]
            if seen.any():
                V[:, columns] = nnls(T[seen], X[seen][:, columns])
        return V
    T_unit, X_unit = (np.abs(matrix).max(initial=0) or 1.0 for matrix in (T, X))  # squares stay within the range
    T, X = T / T_unit, X / X_unit
    return _solve_all(T, X, np.linalg.norm(X, axis=0), X_unit / T_unit)


def _sparse_nnls(T: NDArray[np.float64], X: Any) -> NDArray[np.float64]:
    """Solve the columns of a sparse X; those with NaN, which are stored, are made dense some at a time."""
    if T.shape[0] != X.shape[0]:
        raise ValueError(f"expected T and X with the same number of features; got {T.shape[0]} and {X.shape[0]}")
    X = scipy.sparse.csc_array(X, dtype=float)
    unknown = np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))[np.isnan(X.data)]
    V = np.zeros((T.shape[1], X.shape[1]))
    whole, partial = np.setdiff1d(np.arange(X.shape[1]), unknown), np.unique(unknown)
    for n in range(0, len(partial), FEW):
        V[:, partial[n : n + FEW]] = nnls(T, X[:, partial[n : n + FEW]].toarray())
    if len(whole):
        rest = X if len(partial) == 0 else X[:, whole]
        T_unit, X_unit = (np.abs(values).max(initial=0) or 1.0 for values in (T, rest.data))
        rest = rest / X_unit
        V[:, whole] = _solve_all(T / T_unit, rest, scipy.sparse.linalg.norm(rest, axis=0), X_unit / T_unit)
    return V


def _solve_all(T: NDArray[np.float64], X: Any, lengths: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Solve all columns of X, dense or sparse, whose lengths are given; return `unit` times the solutions."""
    with _one_thread():  # these factorisations are too small to share among threads
        G = T.T @ T
        t, x = _positive(np.sqrt(np.diag(G))), _positive(lengths)
        V, arrived = _pivot(G / np.outer(t, t), (T.T @ X) / np.outer(t, x))
        if not arrived.all():  # ‖x − Tv‖² = ‖Qᵀx − Rv‖² + a constant: the problems shrink from F rows to at most K
            Q, R = np.linalg.qr(T / t)
            for tau in np.flatnonzero(~arrived):
                V[:, tau] = scipy.optimize.nnls(R, Q.T @ X[:, [tau]].sum(axis=1) / x[tau], maxiter=30 * len(V))[0]
    return V * (unit * x / t[:, None])


@functools.cache
def _threads() -> ThreadpoolController:
    """Find the thread pools, once: finding them takes longer than a small problem."""
    return ThreadpoolController()


_limiting = threading.Lock()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the limit is per process, so that only one call at a time sets and restores it.

    If several threads set it, one could read the limit of another and restore that in the end. Nor can the last thread
    restore the limit for the first: threadpoolctl heeds only the thread that set it. Other threads use the limit they
    find.
    """
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _threads().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


def _pivot(G: NDArray[np.float64], D: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return columns v ≥ 0 with gradient w = Gv − d ≥ 0 and vᵢwᵢ = 0, and whether pivoting converged for each."""
    K, N = D.shape
    V, free, arrived = np.zeros((K, N)), D > 0, np.zeros(N, bool)
    fewest, patience, todo = np.full(N, K + 1), np.full(N, PATIENCE), np.arange(N)
    for _ in range(5 * K + 20):
        solved = _solve(G, D, free, todo, V)
        todo = todo[solved]
        v, is_free = V[:, todo], free[:, todo]
        w = G @ v - D[:, todo]
        rounding = 1e-13 * (1 + np.abs(v).sum(axis=0))  # columns of T and X have length 1
        wrong = np.where(is_free, v < 0, w < -rounding)
        count = wrong.sum(axis=0)
        arrived[todo] = (count == 0) & (np.abs(np.where(is_free, w, 0)).max(axis=0) < 100 * rounding)
        better = count < fewest[todo]
        fewest[todo] = np.where(better, count, fewest[todo])
        patience[todo] = np.where(better, PATIENCE, patience[todo] - 1)
        for n in np.flatnonzero(patience[todo] < 0):  # Murty's rule, which cannot cycle: the last of them only
            wrong[: np.flatnonzero(wrong[:, n])[-1:].max(initial=0), n] = False
        free[:, todo] ^= wrong
        todo = todo[count > 0]
        if len(todo) == 0:
            break
    return V, arrived


def _solve(
    G: NDArray[np.float64], D: NDArray[np.float64], free: NDArray[np.bool_], todo: NDArray[np.intp], V: NDArray[Any]
) -> NDArray[np.bool_]:
    """Set V's columns `todo` to the solutions of Gv = d on their free variables, 0 elsewhere; return which exist."""
    solved = np.ones(len(todo), bool)
    V[:, todo] = 0
    for members in _alike(free[:, todo]):  # one factorisation for all columns with the same free variables
        columns = todo[members]
        rows = np.flatnonzero(free[:, columns[0]])
        if len(rows):
            _, solution, failed = lapack.dposv(G[rows[:, None], rows], D[rows[:, None], columns])
            solved[members] = not failed
            V[rows[:, None], columns] = solution
    return solved


def _alike(truths: NDArray[np.bool_]) -> list[list[int]]:
    """Group equal columns: return lists of their indices."""
    found: dict[bytes, list[int]] = {}
    for n, key in enumerate(np.packbits(truths, axis=0).T):
        found.setdefault(key.tobytes(), []).append(n)
    return list(found.values())


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
    train_V, test_V, labels = _matrix("train_V", train_V), _matrix("test_V", test_V), np.asarray(train_labels)
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


def leave_one_out(V: ArrayLike, labels: ArrayLike) -> NDArray[Any]:
    """Return the label of each sample's nearest other sample by cosine distance.

    Args:
        V: components × samples, two or more.
        labels: one per sample.

    >>> leave_one_out([[1.0, 0.9, 0.0], [0.0, 0.1, 1.0]], ["a", "b", "c"]).tolist()
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
    pair = _matrix("train_V", train_V), _matrix("test_V", test_V)
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
    matrix = matrix / _positive(np.abs(matrix).max(axis=0, initial=0))  # squares stay within the range
    scaled: NDArray[np.float64] = matrix / _positive(np.linalg.norm(matrix, axis=0))
    return scaled


def _positive(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace 0 by 1, for use as a divisor."""
    return np.where(sizes > 0, sizes, 1.0)


def _matrix(name: str, values: ArrayLike, nan: bool = False) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"expected {name} with 2 dimensions; got {array.ndim} (shape {array.shape})")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected {name} to hold real numbers; got dtype {array.dtype}")
    array = array.astype(float, copy=False)
    bad = ~np.isfinite(array) & ~(np.isnan(array) & nan)
    if bad.any():
        raise ValueError(f"expected {name} to be finite; got {array[bad][0]}")
    return array
