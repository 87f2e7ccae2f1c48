"""Nonnegative least squares for many right-hand sides, against QR once and SciPy's active sets column by column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.optimize
from measure import Options, Row, at_most, clock, milliseconds, rounds

from gsnmf.classification.least_squares import nnls


def column_by_column(T: np.ndarray, X: np.ndarray) -> np.ndarray:
    """‖x − Tv‖² = ‖Qᵀx − Rv‖² + a constant: QR once, then SciPy."""
    Q, R = np.linalg.qr(T)
    columns = [scipy.optimize.nnls(R, x, maxiter=30 * T.shape[1])[0] for x in (Q.T @ X).T]
    return np.stack(columns, axis=1)


def rows(options: Options) -> Iterator[Row]:
    """3000 features, 40 right-hand sides, as many components as on Yale and on ORL; dictionary and X as if learned."""
    for K, limit in [(5, 10.0)] if options.tiny else [(45, 1.0), (160, 0.2)]:
        rng = np.random.default_rng(K)
        T = rng.gamma(0.5, 1.0, (100 if options.tiny else 3000, K))
        X = T @ rng.gamma(0.3, 1.0, (K, 40)) + rng.gamma(0.5, 1.0, (len(T), 40))
        calls = {"ours": clock(lambda T=T, X=X: nnls(T, X)), "QR": clock(lambda T=T, X=X: column_by_column(T, X))}
        times = rounds({}, calls, 2 if options.tiny else 5 if options.quick else 15, f"least squares, K={K}")
        what, target = "nonnegative least squares / QR and SciPy by column", at_most(limit)
        ratio = (times["ours"] / times["QR"]).tolist()
        yield Row(what, f"{len(T)}×40, K={K}", "float64", ratio, target, detail=milliseconds(times))
