"""Accuracy of the estimator's default settings next to scikit-learn's classifiers on the same splits.

GroupSparseNMF() in one call, nothing tuned for a dataset, with the head that it chose; and logistic regression,
shrinkage LDA, a linear support vector machine, multinomial naive Bayes, 1-NN and NMF (Kullback–Leibler) with logistic
regression, on log-normalised counts or on pixels (naive Bayes and NMF on counts). Seconds are those of the CPU, which
hardly depend on what else runs; set OMP_NUM_THREADS=1. With --twice, seconds of our fit are those of a second fit of
the same shapes, so that nothing is compiled in them; ± is one standard error over splits.
newsgroups2 and newsgroups10 have labels for 2 and 10 % of the documents; the others take part without theirs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse
from scipy.special import softmax
from sklearn.decomposition import NMF, PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from gsnmf import GroupSparseNMF, datasets
from gsnmf.experiments.protocol import parts
from gsnmf.images.preprocessing import prepared
from gsnmf.inference import cavi
from gsnmf.inference.warning import quiet
from gsnmf.model import as_data, default_priors

EPILOG = """examples:
  python benchmarks/heads.py --sets digits100 digits600
  python benchmarks/heads.py --counts DIR --sets pbmc68k immune_cells reuters_r8
  python benchmarks/heads.py --counts DIR --sets newsgroups2 --number 2 --only "logistic regression" gsnmf
  python benchmarks/heads.py --yale yale_centered.npz --sets yale"""
CELLS, COUNTS = ("pbmc68k", "immune_cells"), ("reuters_r8", "newsgroups2", "newsgroups10", "reuters_topics")
IMAGES = ("digits100", "digits600", "yale", "orl")
GENES, SMALLEST, DIMENSIONS = 2000, 10, 120
ALPHA, EM_STEPS = 0.1, 12  # of naive Bayes
ANNEALING, STEPS = 0, 30  # sweeps of the fit with unlabelled documents


class Split(NamedTuple):
    """Samples × features and labels, for training and for testing; `unlabelled` ones are training samples too."""

    X: Any
    y: np.ndarray
    test_X: Any  # noqa: N815 (X is a matrix)
    test_y: np.ndarray


def read(folder: Path, name: str) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Return counts as CSR, labels, and the set's own training part or None."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        X = scipy.sparse.csr_array((file["data"].astype(float), file["indices"], file["indptr"]), shape=file["shape"])
        return X, file["labels"], file["train"].astype(bool) if "train" in file else None


def log_normalised(X: Any) -> Any:
    """Return log(1 + x · median total / total), in the form of X."""
    total = np.asarray(X.sum(axis=1)).ravel()
    factor = np.median(total) / np.where(total > 0, total, 1)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(factor) @ X).log1p()


def stratified(X: Any, y: np.ndarray, seeds: range, train_size: Any = 0.7) -> Iterator[Split]:
    """Yield stratified splits."""
    for seed in seeds:
        old, new = next(StratifiedShuffleSplit(1, train_size=train_size, random_state=seed).split(X, y))
        yield Split(X[old], y[old], X[new], y[new])


def splits(name: str, given: argparse.Namespace) -> Iterator[Split]:
    """Yield the splits of a dataset: its own, or 70 % five times, or ten folds of faces."""
    seeds = range(given.first, given.first + given.number)
    if name in ("yale", "orl"):
        X, labels, _, _ = prepared(name, given.yale if name == "yale" else None)
        X, y = np.asarray(X, float).T, np.asarray(labels)
        for fold in seeds:
            old, new = parts(y, 10, 0, fold)
            yield Split(X[old], y[old], X[new], y[new])
        return
    if name.startswith("digits"):
        digits = datasets.digits()
        yield from stratified(np.asarray(digits.data, float), digits.labels, seeds, int(name[6:]))
        return
    X, y, own = read(given.counts, "newsgroups20" if name.startswith("newsgroups") else name)
    if name == "immune_cells":
        names, sizes = np.unique(y, return_counts=True)
        kept = np.isin(y, names[sizes >= SMALLEST])
        X, y = X[kept], y[kept]
        L = log_normalised(X)
        spread = np.asarray(L.power(2).mean(axis=0) - np.square(L.mean(axis=0))).ravel()
        X = X[:, np.sort(np.argsort(-spread)[:GENES])]
    if name.startswith("newsgroups"):
        yield from stratified(X, y, seeds, float(name[10:]) / 100)
    elif name == "reuters_topics":
        for seed in seeds:
            old = np.random.default_rng(seed).random(X.shape[0]) < 0.7
            yield Split(X[old], y[old], X[~old], y[~old])
    elif own is not None:
        yield Split(X[own], y[own], X[~own], y[~own])
    else:
        yield from stratified(X, y, seeds)


def baselines(split: Split) -> dict[str, tuple[Any, bool]]:
    """Return untuned classifiers, and whether each sees log-normalised counts (else X itself)."""
    sparse = scipy.sparse.issparse(split.X)
    kept = min(DIMENSIONS, min(split.X.shape) - 1)
    reduce = TruncatedSVD(kept, random_state=0) if sparse else PCA(kept, svd_solver="full")
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    nmf = NMF(
        3 * len(np.unique(split.y)), solver="mu", beta_loss="kullback-leibler", init="nndsvda", max_iter=200, tol=1e-3
    )
    return {
        "logistic regression": (LogisticRegression(max_iter=1000), True),
        "linear SVM": (LinearSVC(C=0.1), True),
        "shrinkage LDA": (make_pipeline(reduce, lda), True),
        "multinomial NB": (MultinomialNB(alpha=0.1), False),
        "1-NN, cosine": (KNeighborsClassifier(1, metric="cosine"), True),
        "NMF(KL) + logistic regression": (make_pipeline(nmf, LogisticRegression(max_iter=1000)), False),
    }


def timed(model: Any, X: Any, y: np.ndarray) -> float:
    """Fit and return CPU seconds."""
    begin = time.process_time()
    model.fit(X, y)
    return time.process_time() - begin


def transductive(split: Split, seed: int, default: bool) -> Iterator[dict[str, Any]]:
    """Yield rows that also learn from documents without labels: naive Bayes by EM and q(z), or the default call."""
    classes, y = np.unique(split.y, return_inverse=True)
    X = scipy.sparse.csc_array(scipy.sparse.vstack([split.X, split.test_X]).T)
    begin = time.process_time()
    if default:
        ours = GroupSparseNMF(random_state=seed).fit(X.T, [*split.y.tolist(), *[None] * len(split.test_y)])
        yield row_of("GroupSparseNMF()", ours.label_distributions_, classes, split, begin)
        return
    z = np.zeros((X.shape[1], len(classes)))
    z[: len(y)] = np.eye(len(classes))[y]
    for _ in range(EM_STEPS):
        words = X @ z + ALPHA
        z[len(y) :] = softmax(split.test_X @ np.log(words / words.sum(axis=0)) + np.log(z.mean(axis=0)), axis=1)
    yield row_of("naive Bayes by EM", z, classes, split, begin)
    begin = time.process_time()
    data = as_data(X, [*y.tolist(), *[None] * len(split.test_y)])
    how = {"labels": cavi.labelling(annealing=ANNEALING), "max_steps": STEPS}
    with quiet():
        fit = cavi.run(data, default_priors(data, per_group=1), key=jax.random.key(seed), **how)
    yield row_of("q(z), one component of each class", fit.posterior.z, classes, split, begin)


def row_of(name: str, z: Any, classes: np.ndarray, split: Split, begin: float) -> dict[str, Any]:
    """Return the row of labels that were learned for the test samples, which come last in z, samples × classes."""
    found = classes[np.asarray(z)[len(split.y) :].argmax(axis=1)]
    return {
        "classifier": name,
        "score": float(np.mean(found == split.test_y)),
        "fit_s": time.process_time() - begin,
    }


def measure(name: str, split: Split, seed: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one row for every classifier."""
    grade: Callable[[Any, Any], float] = lambda y, found: float(np.mean(np.asarray(found) == y))  # noqa: E731 (short)
    if split.y.ndim == 2:
        grade = lambda y, found: float(f1_score(y, found, average="micro"))  # noqa: E731 (short)
        models = {"one-vs-rest logistic regression": (OneVsRestClassifier(LogisticRegression(max_iter=1000)), True)}
    else:
        models = baselines(split)
    if given.only is not None:
        models = {key: model for key, model in models.items() if key in given.only}
    logs = name not in IMAGES
    seen = (log_normalised(split.X), log_normalised(split.test_X)) if logs else (split.X, split.test_X)
    for key, (model, log) in models.items():
        X, new = seen if log else (split.X, split.test_X)
        seconds = timed(model, X, split.y)
        yield {"classifier": key, "score": grade(split.test_y, model.predict(new)), "fit_s": seconds}
    default = given.only is not None and "GroupSparseNMF()" in given.only
    if given.only is not None and "gsnmf" not in given.only and not default:
        return
    if name.startswith("newsgroups"):
        yield from transductive(split, seed, default)
        return
    ours = GroupSparseNMF(random_state=seed)
    first = timed(ours, split.X, split.y)
    seconds = min(first, timed(ours, split.X, split.y)) if given.twice else first
    score = grade(split.test_y, ours.predict(split.test_X))
    yield {"classifier": "GroupSparseNMF()", "score": score, "fit_s": seconds, "head": ours.predictor_}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="heads.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--sets", nargs="+", choices=(*CELLS, *COUNTS, *IMAGES), default=["digits100"])
    result.add_argument("--counts", type=Path, metavar="DIR", help="folder of pbmc68k.npz and others, as CSR")
    result.add_argument("--yale", type=Path, metavar="FILE", help="the Yale faces as gsnmf.datasets.yale takes them")
    result.add_argument("--number", type=int, default=5, help="splits or folds (default: %(default)s)")
    result.add_argument("--first", type=int, default=0, help="seed of the first split (default: %(default)s)")
    result.add_argument(
        "--only",
        nargs="+",
        help="names of classifiers; gsnmf for ours, GroupSparseNMF() for its default call with unlabelled samples",
    )
    result.add_argument("--twice", action="store_true", help="fit ours twice, so that fit_s is without compilation")
    result.add_argument("--out", type=Path, help="append all rows to this CSV file")
    return result


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    warnings.simplefilter("ignore")  # of baselines that do not converge
    for name in given.sets:
        rows = []
        for k, split in enumerate(splits(name, given)):
            for row in measure(name, split, given.first + k, given):
                rows.append({"set": name, "split": given.first + k, **row})
                print(" ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in rows[-1].values()), flush=True)
                if given.out is not None:
                    pd.DataFrame(rows[-1:]).to_csv(given.out, mode="a", header=False, index=False)
        table = pd.DataFrame(rows).groupby("classifier", sort=False)
        print(table[["score", "fit_s"]].agg(["mean", "sem"]).round(4).to_string(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
