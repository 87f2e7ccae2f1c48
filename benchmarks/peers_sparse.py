"""Sparse X: a sweep with its bound compared with what else can be run on the same matrix, in one table.

python benchmarks/run.py --only peers

- SciPy: one pass of CAVI over the nonzeros, the rows of a CSR matrix in chunks
- scHPF's pass: q(S) stored as an array of nonzeros × K, by Numba if it is installed, else by NumPy
- scikit-learn's NMF (multiplicative updates, Kullback–Leibler), hpfrec and poismf: a whole iteration, which is the
  difference of two fits with more and fewer iterations

Times are CPU seconds on one thread; ours are of a whole sweep with its bound. hpfrec and poismf optimise other
objectives (gamma priors on every rate; a penalised point estimate) at a similar cost class.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from kernel import cpu, with_threads
from measure import Clock, Options, Row, at_most, milliseconds, rounds
from scipy.special import psi
from sparse import by_jax, chunk, generate, iteration

from gsnmf.inference import engine, native

SIZES = [(4000, 2000, 20), (20_000, 5000, 50), (1_000_000, 1000, 30)]  # samples, features, components
JUDGED = SIZES[1]
LIMITS = {"scikit-learn": 1 / 20, "hpfrec": 1 / 100, "SciPy CSR, chunks": 1 / 5}
TOGETHER = 2**18  # numbers in a chunk's arrays, so that they stay in a cache
MOST = 2**28  # numbers in an array of nonzeros × K: the largest size would take 2.4 GB, several times
ADVICE = "pip install hpfrec poismf (they need a C compiler) adds it"


class ScipyPass:
    """The sums of q(S) as a SciPy user would write them: see `observed.dense.allocate`."""

    def __init__(self, X: scipy.sparse.csr_array, K: int) -> None:
        rng, rows = np.random.default_rng(0), max(1, TOGETHER * X.shape[0] // (K * X.nnz))
        self.parts = [X[first : first + rows] for first in range(0, X.shape[0], rows)]
        self.starts = range(0, X.shape[0], rows)
        self.V, self.T = (rng.gamma(1.0, size=(n, K)).astype(X.dtype) for n in X.shape)  # exp E[log ·]

    def __call__(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Σ_ν E[s], Σ_τ E[s] and Σ x log(M/x)."""
        S_V, S_T, log_ratio = np.empty_like(self.V), np.zeros_like(self.T), 0.0
        for first, X in zip(self.starts, self.parts, strict=True):
            V = self.V[first : first + X.shape[0]]
            M = np.einsum("nk,nk->n", np.repeat(V, np.diff(X.indptr), axis=0), self.T[X.indices])
            log_ratio += float(X.data @ np.log(M / X.data))
            xi = scipy.sparse.csr_array((X.data / M, X.indices, X.indptr), X.shape)
            S_V[first : first + X.shape[0]] = V * (xi @ self.T)
            S_T += xi.T @ V
        return S_V, S_T * self.T, log_ratio


class StoredPass:
    """The same with q(S) stored as nonzeros × K in double precision and a softmax for each nonzero, as scHPF does."""

    def __init__(self, X: scipy.sparse.csr_array, K: int) -> None:
        rng, coo = np.random.default_rng(0), X.tocoo()
        self.row, self.column, self.x = coo.coords[0], coo.coords[1], coo.data.astype(float)
        self.log_V, self.log_T = (psi(rng.gamma(1.0, size=(n, K)) + 1) for n in X.shape)
        ones = np.ones(X.nnz)
        self.by_row, self.by_column = (
            scipy.sparse.csr_array((ones, (index, np.arange(X.nnz))), (n, X.nnz))
            for index, n in zip((self.row, self.column), X.shape, strict=True)
        )
        self.compiled = compile_stored() if importlib.util.find_spec("numba") else None

    def __call__(self) -> tuple[np.ndarray, np.ndarray]:
        """Σ_ν E[s] and Σ_τ E[s]."""
        if self.compiled is not None:
            sums: tuple[np.ndarray, np.ndarray] = self.compiled(self.x, self.row, self.column, self.log_V, self.log_T)
            return sums
        s = self.log_V[self.row] + self.log_T[self.column]
        s = np.exp(s - s.max(axis=1, keepdims=True))
        s *= (self.x / s.sum(axis=1))[:, None]
        return self.by_row @ s, self.by_column @ s


def compile_stored() -> Callable[..., Any]:
    """The pass as scHPF has it, in Numba's loops."""
    import numba

    def stored(x: Any, row: Any, column: Any, log_V: Any, log_T: Any) -> Any:
        s = np.empty((x.size, log_V.shape[1]))
        for n in range(x.size):
            logs = log_V[row[n]] + log_T[column[n]]
            logs = np.exp(logs - logs.max())
            s[n] = logs * (x[n] / logs.sum())
        S_V, S_T = np.zeros_like(log_V), np.zeros_like(log_T)
        for n in range(x.size):
            S_V[row[n]] += s[n]
            S_T[column[n]] += s[n]
        return S_V, S_T

    compiled: Callable[..., Any] = numba.njit(stored)
    return compiled


def more(fit: Callable[[int], object], few: int = 1, many: int = 3) -> Clock:
    """CPU seconds of an iteration: a fit with many, less one with few."""

    def spent(iterations: int) -> float:
        began = time.process_time()
        fit(iterations)
        return time.process_time() - began

    return lambda: (spent(many) - spent(few)) / (many - few)


def hpfrec(X: scipy.sparse.csr_array, K: int) -> Clock:
    """An iteration of Poisson factorisation by hpfrec."""
    import hpfrec
    import pandas as pd

    coo = X.tocoo()
    table = pd.DataFrame({"UserId": coo.coords[0], "ItemId": coo.coords[1], "Count": coo.data})
    settings: dict[str, Any] = {"stop_crit": "maxiter", "ncores": 1, "reindex": False, "verbose": False}
    settings |= {"a": 0.3, "c": 0.3, "keep_data": False, "random_seed": 1}
    return more(lambda n: hpfrec.HPF(k=K, maxiter=n, check_every=n, **settings).fit(table.copy()))


def poismf(X: scipy.sparse.csr_array, K: int) -> Clock:
    """An iteration of penalised Poisson factorisation by poismf, with its default optimiser."""
    import poismf

    coo = scipy.sparse.coo_matrix(X)
    settings: dict[str, Any] = {"method": "tncg", "l2_reg": 1e-2, "nthreads": 1, "reindex": False}
    return more(lambda n: poismf.PoisMF(k=K, niter=n, **settings).fit(coo))


def clocks(X: scipy.sparse.csr_array, K: int) -> tuple[dict[str, Clock], dict[str, Clock]]:
    """Our sweeps, and the peers that are there; a line on stderr for each that is not."""
    ours = {"JAX alone": cpu(by_jax(X, K), engine.CHUNK)}
    if native.is_available():
        ours = {"kernel": with_threads(cpu(chunk(X, K), engine.CHUNK), 1)} | ours
    stored = "scHPF's pass, " + ("Numba" if importlib.util.find_spec("numba") else "NumPy")
    peers = {"SciPy CSR, chunks": cpu(ScipyPass(X, K)), "scikit-learn": iteration(X, K)}
    if X.nnz * K <= MOST:
        peers[stored] = cpu(StoredPass(X, K))
    else:
        print(f"{stored}: left out, nonzeros × K is {8e-9 * X.nnz * K:.1f} GB", file=sys.stderr)
    for name, peer in {"hpfrec": hpfrec, "poismf": poismf}.items():
        if importlib.util.find_spec(name):
            peers[name] = peer(X, K)
        else:
            print(f"{name}: left out, not installed; {ADVICE}", file=sys.stderr)
    return ours, peers


def rows(options: Options) -> Iterator[Row]:
    """Milliseconds of each at every size, and the ratios that have a target."""
    sizes = [(60, 40, 4)] if options.tiny else SIZES[: 2 if options.quick else None]
    for shape in sizes:
        (N, F, K), X = shape, generate(*shape[:2])
        size, ours_and_peers = f"{N}×{F}, 1 %, K={K}", clocks(X, K)
        count = 2 if options.tiny or shape == SIZES[2] else 3 if options.quick else 5
        times = rounds(*ours_and_peers, count, f"peers, {size}")
        detail = milliseconds(times)
        for name, seconds in times.items():
            what = f"sparse sweep with bound, {name}" if name in ours_and_peers[0] else f"sparse, {name}"
            yield Row(what, size, "float32", (1e3 * seconds).tolist(), unit="ms", detail=detail)
        for name, limit in LIMITS.items():
            if name in times and "kernel" in times:
                ratios, target = (times["kernel"] / times[name]).tolist(), at_most(limit) if shape == JUDGED else None
                yield Row(f"sparse sweep with bound / {name}", size, "float32", ratios, target, detail=detail)
