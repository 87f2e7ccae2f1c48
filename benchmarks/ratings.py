"""Ratings that were hidden: their log predictive density by this library, hpfrec and poismf, on the same splits.

X is films × users, where a film that was not rated counts as 0. Without a mask, which hpfrec and poismf do not have,
hidden entries are zeros for the fit. If a share of all entries is hidden, their predictions are then too small by this
share, so that they are also scored divided by 1 − share. A fit that is Gamma (ours, hpfrec's) predicts by draws from
its posterior, a point estimate by its mean, or by a floor where that is lower, as one 0 would cost everything.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse
from scipy.stats import poisson
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from gsnmf.inference import DeadComponentsWarning, Posterior, cavi, held_out_score
from gsnmf.inference.defaults import MAX_STEPS, TOL
from gsnmf.model import Data, Gamma, Priors, as_data, default_priors, hide

EPILOG = """examples:
  python benchmarks/ratings.py --tiny
  pip install hpfrec poismf && python benchmarks/ratings.py --data movielens100k.npz --ranks 10 20 50"""
DRAWS, FLOOR = 100, 0.01
PENALTIES = 10.0, "auto"  # of poismf: the best of 1, 10, 100, 300, 3000 on seed 100 for 20 components, and its default


class Prediction(NamedTuple):
    """The log density of every hidden entry, and the CPU seconds of the fit."""

    model: str
    per_entry: np.ndarray
    seconds: float


def read(path: Path) -> scipy.sparse.csr_array:
    """Read ratings in CSR form: arrays `data`, `indices`, `indptr`, `shape` of an .npz file."""
    with np.load(path) as file:
        X = scipy.sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    return X.astype(np.float32)


def split(X: scipy.sparse.csr_array, what: str, share: float, seed: int) -> Data:
    """Hide a share of all entries ("entries"), or of those that are not 0 ("ratings")."""
    if what == "entries":
        return hide(as_data(X), share, seed=seed)
    stored = X.tocoo()
    chosen = np.random.default_rng(seed).permutation(stored.nnz)[: max(1, round(share * stored.nnz))]
    at = tuple(index[chosen] for index in stored.coords)
    return as_data(X, hidden=scipy.sparse.csr_array((np.ones(len(chosen)), at), shape=X.shape))


def ours(data: Data, rank: int, seed: int) -> Iterator[Prediction]:
    """Predict with hidden entries left out, and with hidden entries as zeros; default priors and options."""
    for name, seen in {"gsnmf": data, "gsnmf, hidden as 0": as_data(data.X.to_scipy())}.items():
        priors, began = default_priors(seen, rank=rank), time.process_time()
        fit = cavi.run(seen, priors, key=jax.random.key(seed), rank=rank, max_steps=MAX_STEPS, tol=TOL)
        seconds = time.process_time() - began
        yield Prediction(name, draws(fit.posterior, data, priors), seconds)


def draws(posterior: Posterior, data: Data, priors: Priors) -> np.ndarray:
    """Return log (1/R) Σ_r Poisson(x | (T_r V_r)) of hidden entries."""
    return held_out_score(posterior, data, priors, num_samples=DRAWS).per_entry


def by_hpfrec(data: Data, rank: int, seed: int, shrunk: float) -> Iterator[Prediction]:
    """Predict by hierarchical Poisson factorisation, with the package's defaults and 100 iterations."""
    import hpfrec

    X = scipy.sparse.coo_array(data.X.to_scipy())
    table = pd.DataFrame({"UserId": X.coords[1], "ItemId": X.coords[0], "Count": X.data})[X.data > 0]
    settings = {"stop_crit": "maxiter", "maxiter": 100, "check_every": 100, "verbose": False, "keep_all_objs": True}
    began = time.process_time()
    model = hpfrec.HPF(k=rank, ncores=1, reindex=True, random_seed=seed + 1, **settings).fit(table)
    seconds = time.process_time() - began
    T = placed(model.Lambda_shp, model.Lambda_rte, model.item_mapping_, X.shape[0])
    V = placed(model.Gamma_shp, model.Gamma_rte, model.user_mapping_, X.shape[1])
    q = Posterior(T, V.transpose(), None)
    yield Prediction("hpfrec", points(q.T.mean, q.V.mean, data), seconds)
    scales = {"hpfrec, draws": 1.0} | ({"hpfrec, draws, rescaled": shrunk} if shrunk < 1 else {})
    for name, scale in scales.items():
        scaled = q._replace(T=Gamma(q.T.a, q.T.b / scale))
        yield Prediction(name, draws(scaled, data, Priors(Gamma(0.3, 1.0), Gamma(0.3, 1.0))), seconds)


def placed(shape: np.ndarray, rate: np.ndarray, names: Any, size: int) -> Gamma:
    """Return a factor in the order of the data; what has no training entry gets shape 0.3, hpfrec's, and mean rates."""
    a, b = np.full((size, shape.shape[1]), 0.3), np.tile(1 / rate.mean(axis=0), (size, 1))
    a[np.asarray(names, int)], b[np.asarray(names, int)] = shape, 1 / rate
    return Gamma(jax.numpy.asarray(a), jax.numpy.asarray(b))


def by_poismf(data: Data, rank: int, seed: int, shrunk: float) -> Iterator[Prediction]:
    """Predict by penalised Poisson factorisation, a point estimate."""
    import poismf

    X = scipy.sparse.coo_matrix(data.X.to_scipy().T)
    X.eliminate_zeros()
    for penalty in PENALTIES:
        began = time.process_time()
        model = poismf.PoisMF(k=rank, l2_reg=penalty, nthreads=1, reindex=False, random_state=seed + 1).fit(X)
        seconds, name = time.process_time() - began, f"poismf, l2_reg={penalty}"
        yield Prediction(name, points(model.B, model.A.T, data), seconds)
        if shrunk < 1:
            yield Prediction(f"{name}, rescaled", points(model.B / shrunk, model.A.T, data), seconds)


def points(T: Any, V: Any, data: Data) -> np.ndarray:
    """Return log Poisson(x | max(TV, floor)) of hidden entries."""
    held = data.held_out
    assert held is not None  # for mypy: `split` has hidden some
    mean = np.einsum("nk,nk->n", np.asarray(T, float)[held.feature], np.asarray(V, float).T[held.sample])
    return np.asarray(poisson.logpmf(np.asarray(held.value), np.maximum(mean, FLOOR)))


def measure(X: scipy.sparse.csr_array, what: str, share: float, rank: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every model that is installed."""
    data = split(X, what, share, seed)
    assert data.held_out is not None  # for mypy
    shrunk, rated = 1 - share if what == "entries" else 1.0, np.asarray(data.held_out.value) > 0
    predictions = list(ours(data, rank, seed))
    for name, peer in {"hpfrec": by_hpfrec, "poismf": by_poismf}.items():
        if importlib.util.find_spec(name):
            predictions += peer(data, rank, seed, shrunk)
        else:
            print(f"{name}: left out, not installed", file=sys.stderr)
    for model, per_entry, seconds in predictions:
        means = {"all": per_entry.mean(), "rated": per_entry[rated].mean()}
        yield {"model": model, "K": rank, "seed": seed, **means, "seconds": seconds}


def table(rows: list[dict[str, Any]]) -> str:
    """Return means over seeds and their standard errors; the loss is the difference to "gsnmf" on the same split."""
    runs = pd.DataFrame(rows)
    best = runs[runs.model == "gsnmf"].set_index(["K", "seed"])["all"]
    runs["loss"] = best.loc[pd.MultiIndex.from_frame(runs[["K", "seed"]])].to_numpy() - runs["all"]
    by = runs.groupby(["K", "model"], sort=False)[["all", "loss", "rated", "seconds"]]
    mean, error = by.mean(), by.sem()
    cells = {name: [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean[name], error[name], strict=True)] for name in mean}
    cells["seconds"] = [f"{m:.1f}" for m in mean["seconds"]]
    return pd.DataFrame(cells, mean.index).to_string()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="ratings.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--tiny", action="store_true", help="a toy, to try the command; the numbers mean nothing")
    result.add_argument("--data", type=Path, metavar="FILE", help="ratings, films × users, CSR arrays in an .npz file")
    result.add_argument("--hide", choices=["entries", "ratings"], default="entries", help="(default: %(default)s)")
    result.add_argument("--share", type=float, default=0.1, help="of them that is hidden (default: %(default)s)")
    result.add_argument("--ranks", type=int, nargs="+", default=[20], metavar="K")
    result.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], metavar="N", help="of split and start")
    result.add_argument("--rows", type=Path, metavar="CSV", help="where to keep the rows behind the table")
    return result


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    if not given.tiny and (given.data is None or not given.data.exists()):
        parser().error(f"expected --data to name a file; got {given.data}")
    toy = np.random.default_rng(0).poisson(0.5, (12, 15))
    X = scipy.sparse.csr_array(toy, dtype=np.float32) if given.tiny else read(given.data)
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DeadComponentsWarning)
        for rank in given.ranks:
            for seed in tqdm(given.seeds, desc=f"K = {rank}", disable=None):
                rows += measure(X, given.hide, given.share, rank, seed)
                if given.rows is not None:
                    pd.DataFrame(rows).to_csv(given.rows, index=False)
    print(f"log predictive density of a hidden entry, {given.share:.0%} of {given.hide} hidden; CPU seconds of a fit")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
