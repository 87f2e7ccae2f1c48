"""A tenth, three tenths, half of the labels known: how many of the others are found, and by what.

Compared on samples without a label: the nearest labelled sample (cosine) in the space of a dictionary that
was learned from the labelled samples alone; scikit-learn's LabelSpreading on pixels; the model's own label posterior,
in both forms; and `gsnmf.classification.transduction`, with dictionaries of the labelled samples, of all samples, and
learned again from its own verdicts. Splits are random and stratified, with a label of every class at least.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from problems import Problem, digits, generated, yale
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.semi_supervised import LabelSpreading
from tqdm import tqdm

from gsnmf.classification.projection import both_cosines, combine, nearest_cosine, nnls, unit
from gsnmf.classification.transduction import affinities, spread_labels, transduce
from gsnmf.inference import DeadComponentsWarning, Fit, cavi
from gsnmf.model import GroupSparse, Priors, as_data, label_driven

EPILOG = """examples:
  python benchmarks/labels.py
  python benchmarks/labels.py --yale yale_centered.npz --out labels.jsonl   # again, to go on where it was stopped
  python benchmarks/labels.py --yale yale_centered.npz --quick"""
NEAREST, KNN, RBF = "1-NN, labelled dictionary", "LabelSpreading knn, pixels", "LabelSpreading rbf, pixels"
ALONE = "our graph, pixels alone"
LABELLED, AGAIN = "transduce, labelled dictionaries", "transduce, labelled, then again"
ALL, ALL_AGAIN = "transduce, structured fit", "transduce, structured, then again"
SHARES = (0.1, 0.3, 0.5)
PER_CLASS = 3


class Case(NamedTuple):
    """A problem with what its fits need.

    shapes: of λ, small and large; of every sample of a class, if `relative`.
    neighbours, gamma: of LabelSpreading, gamma in units of 1 / the median squared distance. They were chosen for each
        problem by its accuracy on five splits with seeds from 100; our settings are the same for both.
    sweeps: of fits to samples whose labels are known, accelerated or not.
    """

    problem: Problem
    shapes: tuple[float, float]
    relative: bool
    neighbours: int
    gamma: float
    sweeps: int
    accelerate: bool

    @property
    def X(self) -> np.ndarray:
        """Features × samples."""
        return np.asarray(self.problem.data.X, float)

    @property
    def labels(self) -> np.ndarray:
        """The class of every sample, from 0."""
        return np.asarray(self.problem.data.membership).argmax(axis=1)

    def priors(self, samples: int) -> Priors:
        """Return the priors of a fit to so many samples."""
        C = self.problem.data.num_groups
        small, large = (shape * (samples / C if self.relative else 1) for shape in self.shapes)
        return self.problem.priors._replace(coefficients=GroupSparse(label_driven(PER_CLASS, C, small, large)))

    def fit(self, samples: np.ndarray, classes: np.ndarray, seed: int, **options: Any) -> Fit:
        """A fit to some samples, λ starting at its shape; classes of −1 are unknown."""
        names = range(self.problem.data.num_groups)
        data = as_data(self.X[:, samples], [None if c < 0 else int(c) for c in classes], group_names=names)
        priors = self.priors(len(samples))
        start = cavi.start_at_shape(data, priors)
        return cavi.run(data, priors, key=jax.random.key(seed), start=start, tol=None, **options)

    def supervised(self, samples: np.ndarray, labels: np.ndarray, seeds: list[int]) -> list[np.ndarray]:
        """Dictionaries of fits to samples all of whose labels are given."""
        how = {"max_steps": self.sweeps, "accelerate": self.accelerate}
        return [np.asarray(self.fit(samples, labels, seed, **how).posterior.T.mean, float) for seed in seeds]


def cases(given: argparse.Namespace) -> list[Case]:
    """Digits, and the faces if there are any; or a toy."""
    if given.tiny:
        return [Case(generated(20, 60, 9, 3, name="tiny"), (1.0, 10.0), True, 5, 30.0, 20, True)]
    found = [Case(digits(), (1.0, 10.0), True, 7, 100.0, 100, True)]
    if given.yale is not None:
        found.append(Case(yale(given.yale), (32.0, 8192.0), False, 10, 10.0, 300, False))
    return found


def split(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """The class of every sample, −1 where it is to be unknown."""
    size = max(len(np.unique(labels)), round(share * len(labels)))
    known, _ = next(StratifiedShuffleSplit(1, train_size=size, random_state=seed).split(labels, labels))
    index = np.full(len(labels), -1)
    index[known] = labels[known]
    return index


def spreading(case: Case, index: np.ndarray, kernel: str) -> np.ndarray:
    """What scikit-learn's LabelSpreading makes of pixels between 0 and 1."""
    pixels = case.X.T / case.X.max()
    gamma = case.gamma / np.median(pairwise_distances(pixels, metric="sqeuclidean"))
    model = LabelSpreading(kernel=kernel, n_neighbors=case.neighbours, gamma=gamma, max_iter=1000)
    found: np.ndarray = model.fit(pixels, index).transduction_
    return found


def measure(case: Case, share: float, seed: int, restarts: int, posterior: bool) -> dict[str, float]:
    """The share of unknown labels each method has right; the model's own posterior, if asked for, from one start."""
    X, truth, C = case.X, case.labels, case.problem.data.num_groups
    index = split(truth, share, seed)
    everyone, known = np.arange(len(truth)), np.flatnonzero(index >= 0)
    seeds = [1000 * seed + restart for restart in range(restarts)]

    def right(found: np.ndarray) -> float:
        return float(np.mean(found[index < 0] == truth[index < 0]))

    labelled = case.supervised(known, index[known], seeds)
    V = [nnls(T, X) for T in labelled]
    blend = combine(np.array([both_cosines(v[:, known], index[known], v) for v in V]), "blend")
    ours, again = partial(transduce, X, index, C), partial(case.supervised, everyone, seeds=seeds)
    found = {
        NEAREST: float(np.mean([right(nearest_cosine(v[:, known], index[known], v)) for v in V])),
        "1-NN, blend of restarts": right(blend.argmax(axis=1)),
        KNN: right(spreading(case, index, "knn")),
        RBF: right(spreading(case, index, "rbf")),
        ALONE: right(spread_labels(affinities(unit(X).T, 7), index, C, 0.9).argmax(axis=1)),
        LABELLED: right(ours(labelled).argmax(axis=1)),
        AGAIN: right(ours(labelled, refit=again).argmax(axis=1)),
    }
    if posterior:
        for form in ("mean_field", "structured"):
            fit = case.fit(everyone, index, seeds[0], max_steps=30, labels=cavi.labelling(form))
            found[f"q(z), {form}"] = right(np.asarray(fit.posterior.z).argmax(axis=1))
        mixed = [np.asarray(fit.posterior.T.mean, float)]
        found[ALL] = right(ours(mixed).argmax(axis=1))
        found[ALL_AGAIN] = right(ours(mixed, refit=again).argmax(axis=1))
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="labels.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--tiny", action="store_true", help="a toy, to try the command; the numbers mean nothing")
    result.add_argument("--yale", type=Path, metavar="PATH", help="the Yale faces as gsnmf.datasets.yale takes them")
    result.add_argument("--splits", type=int, default=10, metavar="N", help="of each share (default: %(default)s)")
    result.add_argument("--first", type=int, default=0, metavar="SEED", help="of the splits (default: %(default)s)")
    result.add_argument("--restarts", type=int, default=2, metavar="N", help="of every fit (default: %(default)s)")
    result.add_argument(
        "--posteriors",
        type=int,
        default=3,
        metavar="N",
        help="splits of each share on which samples without a label are fitted too (default: %(default)s)",
    )
    result.add_argument("--quick", action="store_true", help="2 splits of each share")
    result.add_argument(
        "--out", type=Path, metavar="FILE", help="a line of JSON per split; those in it are not done again"
    )
    return result


def read(file: Path | None) -> list[dict[str, Any]]:
    """Splits that were done before."""
    if file is None or not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(runs: pd.DataFrame) -> str:
    """Means and standard errors over splits; what `AGAIN` is ahead of each by, split by split."""
    lines = []
    for problem, rows in runs.groupby("problem", sort=False):
        lines.append(f"{problem}: share of unknown labels found; ± is one standard error over splits")
        shown: dict[str, dict[str, str]] = {}
        for share, own in rows.groupby("share"):
            found = own.drop(columns=["problem", "share", "seed", "restarts"])
            ahead = found.rsub(found[AGAIN], axis=0)
            for method in found:
                of = f" ({n} splits)" if (n := found[method].count()) < len(own) else ""
                mean, error = found[method].mean(), found[method].sem()
                shown.setdefault(method, {})[f"{share:.0%}, {len(own)} splits"] = f"{mean:.3f} ± {error:.3f}{of}"
                gain = f"{ahead[method].mean():+.3f} ± {ahead[method].sem():.3f}"
                shown[method][f"{share:.0%}, gain"] = "" if method == AGAIN else gain
        lines.append(pd.DataFrame(shown).T.to_string())
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    if given.yale is not None and not given.yale.exists():
        parser().error(f"expected --yale to name a file or folder; got {given.yale}")
    seeds = range(given.first, given.first + (2 if given.quick else given.splits))
    rows = read(given.out)
    done = {(row["problem"], row["share"], row["seed"], row["restarts"]) for row in rows}
    todo = [(case, share, seed) for case in cases(given) for share in SHARES for seed in seeds]
    for case, share, seed in tqdm(todo, unit="split", disable=None):
        task = {"problem": case.problem.size, "share": share, "seed": seed, "restarts": given.restarts}
        if tuple(task.values()) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a number of sweeps, as in the paper
            warnings.simplefilter("ignore", DeadComponentsWarning)
            rows.append(task | measure(case, share, seed, given.restarts, seed < given.first + given.posteriors))
        if given.out is not None:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(pd.DataFrame(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
