"""Accuracy of simple classifiers on raw pixels, next to the paper's and this library's.

Shrinkage LDA after PCA, and the nearest neighbour by cosine and by Euclidean distance, all from scikit-learn and with
nothing tuned. Faces are cut into the stratified folds of `gsnmf reproduce`, digits into the splits of `gsnmf demo`, so
that every row is about the same test images. The rows of nmf_gs are quoted from docs/experiments.md and docs/tour.md,
not computed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from problems import generated
from sklearn.base import ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from gsnmf.demo.digits import Split, splits
from gsnmf.experiments.protocol import parts
from gsnmf.experiments.tables import PAPER
from gsnmf.images.preprocessing import prepared

EPILOG = """examples:
  python benchmarks/simpler.py
  python benchmarks/simpler.py --yale yale_centered.npz --orl"""
DIMENSIONS = 120  # that PCA keeps, where there are so many
TRAINING = 600  # digits to learn from
QUOTED = {  # nmf_gs in docs/experiments.md; digits in docs/tour.md
    "yale": {"mean of the starts": "0.9527 ± 0.0050", "best": "0.9964 ± 0.0020", "blend": "0.9865 ± 0.0048"},
    "orl": {"mean of the starts": "0.9768 ± 0.0022", "best": "0.9895 ± 0.0020", "blend": "0.9810 ± 0.0026"},
    "digits": {"label-driven groups": "0.949", "without labels": "0.953"},
}


class Case(NamedTuple):
    """A dataset, cut into training and test images; images are columns, as in `Split`."""

    name: str
    title: str
    splits: list[Split]


def classifiers(split: Split) -> dict[str, ClassifierMixin]:
    """Classifiers of the images' pixels, none of them tuned."""
    kept = min(DIMENSIONS, len(split.X), len(split.labels) - 1)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    return {
        "shrinkage LDA after PCA": make_pipeline(PCA(kept, svd_solver="full"), lda),
        "1-NN, cosine": KNeighborsClassifier(1, metric="cosine"),
        "1-NN, Euclidean": KNeighborsClassifier(1),
    }


def measure(split: Split) -> dict[str, float]:
    """Return the accuracy of every classifier on the test images of one split."""
    test = split.test.T, split.test_labels
    return {name: model.fit(split.X.T, split.labels).score(*test) for name, model in classifiers(split).items()}


def folds(X: np.ndarray, labels: np.ndarray, runs: int, number: int = 10) -> list[Split]:
    """Cut images into the folds of `gsnmf reproduce`."""

    def one(run: int, fold: int) -> Split:
        train, test = parts(labels, number, run, fold)
        return Split(X[:, train], labels[train], X[:, test], labels[test])

    return [one(run, fold) for run, fold in product(range(runs), range(number))]


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """Yield the datasets asked for, or a toy."""
    if given.tiny:
        data = generated(20, 60, 9, 3).data
        labels = np.asarray(data.membership).argmax(axis=1)
        yield Case("tiny", "tiny: 20 features, 60 samples", folds(np.asarray(data.X, float), labels, given.runs, 5))
        return
    yield Case("digits", f"digits: {TRAINING} training images, 10 splits", splits(TRAINING, 10, seed=0))
    for name, path in {"yale": given.yale, "orl": None}.items():
        if path is not None or (name == "orl" and given.orl):
            X, labels, _, _ = prepared(name, path)
            title = f"{name}: {X.shape[0]} pixels, {X.shape[1]} images, {given.runs} runs of 10 folds"
            yield Case(name, title, folds(np.asarray(X, float), np.asarray(labels), given.runs))


def table(case: Case) -> str:
    """Return measured accuracies with standard errors over splits, and the rows quoted next to them."""
    found = pd.DataFrame([measure(split) for split in case.splits])
    rows: dict[str, Any] = {f"pixels: {name}": f"{found[name].mean():.4f} ± {found[name].sem():.4f}" for name in found}
    for name, accuracy in QUOTED.get(case.name, {}).items():
        rows[f"nmf_gs: {name} (quoted)"] = accuracy
    if case.name in PAPER:
        best, mean, _ = PAPER[case.name]["nmf_gs"]
        rows |= {"nmf_gs in the paper: mean of the starts": f"{mean:.4f}", "nmf_gs in the paper: best": f"{best:.4f}"}
    return f"{case.title}\n{pd.Series(rows).to_string()}"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="simpler.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--tiny", action="store_true", help="a toy, to try the command; the numbers mean nothing")
    result.add_argument("--yale", type=Path, metavar="PATH", help="the Yale faces as gsnmf.datasets.yale takes them")
    result.add_argument("--orl", action="store_true", help="the ORL faces too (pip install 'gsnmf[faces]')")
    result.add_argument("--runs", type=int, default=5, metavar="N", help="of 10 folds of faces (default: %(default)s)")
    return result


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    if given.yale is not None and not given.yale.exists():
        parser().error(f"expected --yale to name a file or folder; got {given.yale}")
    print("accuracy on test images; ± is one standard error over splits")
    for case in cases(given):
        print(f"\n{table(case)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
