"""Why a model's own label posterior is wrong on images: how far ahead the class it takes is, and on which images.

Dictionaries are learned from the labelled samples, the others folded in under every candidate class: what the
structured q(z) starts from. ℒ(c) is a sum over all pixels; a gap of 5 nats between two classes is odds of 150 to 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from labels import SHARES, Case, cases, split
from sklearn.exceptions import ConvergenceWarning

from gsnmf.classification.projection import nearest_cosine, nnls
from gsnmf.classification.transduction import transduce
from gsnmf.datasets import load
from gsnmf.inference import DeadComponentsWarning, fold_in

EPILOG = """examples:
  python benchmarks/label_odds.py
  python benchmarks/label_odds.py --yale yale_centered.npz"""
SIDES = ("leftlight", "rightlight")
TEMPERATURES = np.logspace(0, 6, 121)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="label_odds.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--tiny", action="store_true", help="a toy, to try the command; the numbers mean nothing")
    result.add_argument("--yale", type=Path, metavar="PATH", help="the Yale faces as gsnmf.datasets.yale takes them")
    result.add_argument("--splits", type=int, default=3, metavar="N", help="of each share (default: %(default)s)")
    return result


def measure(case: Case, share: float, seed: int, lit: np.ndarray | None) -> dict[str, float]:
    """How often ℒ(c) and 1-NN are right on one split, and what ℒ(c) claims.

    `lit` is whether a face is lit from the side, of every sample.
    """
    X, truth = case.X, case.labels
    index = split(truth, share, seed)
    known, new = np.flatnonzero(index >= 0), np.flatnonzero(index < 0)
    fit = case.fit(known, index[known], 1000 * seed, max_steps=case.sweeps, accelerate=case.accelerate)
    folded = fold_in(fit, X[:, new], case.priors(len(known)))
    bound = np.asarray(folded.bound, float)
    best = bound.argmax(axis=1)
    right = best == truth[new]
    gap = np.diff(np.sort(bound, axis=1)[:, -2:]).ravel()
    T = np.asarray(fit.posterior.T.mean, float)
    V = np.asarray(folded.V.mean, float)[best, :, np.arange(len(new))].T
    M = T @ V
    near = nearest_cosine(nnls(T, X[:, known]), index[known], nnls(T, X[:, new])) == truth[new]
    found = {
        "right by ℒ": right.mean(),
        "right by 1-NN": near.mean(),
        "gap, right": np.median(gap[right]),
        "gap, wrong": np.median(gap[~right]),
        "wrong, yet > 0.99": np.mean(gap[~right] > np.log(99)),
        "temperature": best_temperature(bound, truth[new]),
        "(x − m)²/m": np.mean((X[:, new] - M) ** 2 / np.maximum(M, 1e-9)),
    }
    if lit is not None:
        side = lit[new]
        ours = transduce(X, index, bound.shape[1], [T]).argmax(axis=1)[new] == truth[new]
        for name, own in {"ℒ": right, "1-NN": near, "transduce": ours}.items():
            found |= {f"side-lit by {name}": own[side].mean(), f"others by {name}": own[~side].mean()}
    return {name: float(value) for name, value in found.items()}


def best_temperature(bound: np.ndarray, truth: np.ndarray) -> float:
    """By which ℒ(c) is to be divided for the highest probability of the labels, on average over their logarithms."""

    def loss(temperature: float) -> Any:
        odds = bound / temperature
        top = odds.max(axis=1)
        total = top + np.log(np.exp(odds - top[:, None]).sum(axis=1))
        return np.mean(total - odds[np.arange(len(truth)), truth])

    return float(min(TEMPERATURES, key=loss))


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    if given.yale is not None and not given.yale.exists():
        parser().error(f"expected --yale to name a file or folder; got {given.yale}")
    for case in cases(given):
        faces = given.yale is not None and case.problem.name == "Yale"
        lit = np.isin(load("yale-condition", given.yale).labels, SIDES) if faces else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a number of sweeps, as in the paper
            warnings.simplefilter("ignore", DeadComponentsWarning)
            rows = {
                f"{share:.0%}": pd.DataFrame([measure(case, share, seed, lit) for seed in range(given.splits)]).mean()
                for share in SHARES
            }
        print(f"{case.problem.size}: means over {given.splits} splits; gaps are medians, in nats")
        print(pd.DataFrame(rows).to_string(float_format="{:.3f}".format), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
