"""Nonnegative least squares: coefficients of samples under a dictionary, by block principal pivoting."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
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
        return _sparse_nnls(real_matrix("T", T), X)
    T, X = real_matrix("T", T), real_matrix("X", X, nan=True)
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
        t, x = as_divisors(np.sqrt(np.diag(G))), as_divisors(lengths)
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


def as_divisors(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace 0 by 1, for use as a divisor."""
    return np.where(sizes > 0, sizes, 1.0)


def real_matrix(name: str, values: ArrayLike, nan: bool = False) -> NDArray[np.float64]:
    """Return a matrix of floats; raise unless its entries are finite, or NaN where these are allowed.

    Args:
        name: its name, for the message.
        values: as given.
        nan: whether entries may be NaN.
    """
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
