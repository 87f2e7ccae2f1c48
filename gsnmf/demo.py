"""What it is for, in half a minute: handwritten digits, with and without labels in the prior."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from .inference import Fit, cavi
from .model import Data, Gamma, GroupSparse, Priors, as_data, label_driven
from .plots import bound_trace, save_figures
from .projection import nearest_cosine, nnls

PER_GROUP, MAX_STEPS, TOL, IMAGE_SHAPE = 5, 300, 1e-6, (8, 8)
DICTIONARY = Gamma(0.6, 20.0)  # the paper's
# Chosen for each model by 3-fold cross-validation of the training part with two starts: shapes (small, large) from
# {1, 10, 32} × {300, 1000, 3000}, the single shape from {0.1, 1, 4, 10, 32, 100}. The test part had no say.
SMALL, LARGE, SINGLE, SCALE = 10.0, 1000.0, 10.0, 1e6


class Split(NamedTuple):
    """Digits, features × samples, cut into a training and a test part, always the same cut."""

    train_X: NDArray[Any]
    test_X: NDArray[Any]
    train_labels: NDArray[Any]
    test_labels: NDArray[Any]


def digits() -> Split:
    """scikit-learn's digits: 64 pixels × 1,797 images, counts 0 to 16; three tenths of each class for testing."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.3, stratify=labels, random_state=0)
    return Split(parts[0].T, parts[1].T, parts[2], parts[3])


def models(split: Split) -> dict[str, tuple[Data, Priors]]:
    """The two contestants: one group per label, and all samples in one group."""
    X, labels = split.train_X, split.train_labels
    num_groups = len(np.unique(labels))
    driven = label_driven(PER_GROUP, num_groups, SMALL, LARGE, SCALE)
    single = label_driven(PER_GROUP * num_groups, 1, SINGLE, SINGLE, SCALE)
    return {
        "label-driven groups": (as_data(X, labels), Priors(DICTIONARY, GroupSparse(driven))),
        "without labels": (as_data(X, np.zeros_like(labels)), Priors(DICTIONARY, GroupSparse(single))),
    }


def accuracy(fit: Fit, split: Split) -> float:
    """Share of test images whose nearest training image, by cosine of coefficients, has the same label.

    Both parts enter the space by the same map, nonnegative least squares.
    """
    T = np.asarray(fit.posterior.T.mean, float)
    predicted = nearest_cosine(nnls(T, split.train_X), split.train_labels, nnls(T, split.test_X))
    return float(np.mean(predicted == split.test_labels))


def run_demo(out: Path, seed: int = 0, *, starts: int = 5, max_steps: int = MAX_STEPS) -> pd.DataFrame:
    """Fit both models from several random starts, print a table, write pictures into a folder.

    Args:
        out: the folder, made when it is not there.
        seed: of the first start; the others follow it.
        starts: how many random starts are averaged.
        max_steps: sweeps at most.

    Returns the table of all runs, one row each.
    """
    out.mkdir(parents=True, exist_ok=True)
    split, rows, first = digits(), [], {}
    contestants = models(split)
    with tqdm(total=starts * len(contestants) * max_steps, unit="sweep", disable=None) as progress:
        for name, (data, priors) in contestants.items():
            for start in range(seed, seed + starts):
                progress.set_description(f"{name}, start {start - seed + 1}/{starts}")
                before, begin = progress.n, time.perf_counter()
                fit = _fit(data, priors, start, max_steps, progress)
                seconds = time.perf_counter() - begin
                progress.update(before + max_steps - progress.n)
                first.setdefault(name, fit)
                bound = float(fit.elbo[-1])
                rows.append((name, start, accuracy(fit, split), bound, fit.num_steps, seconds))
    runs = pd.DataFrame(rows, columns=["model", "seed", "accuracy", "bound", "sweeps", "seconds"])
    print(_report(runs, split, starts))
    for path in _figures(out, first, contestants["label-driven groups"][0]):
        print(f"  {path}")
    return runs


def _fit(data: Data, priors: Priors, seed: int, max_steps: int, progress: tqdm[Any]) -> Fit:
    assert priors.coefficients.hyperprior is not None
    begin = progress.n

    def advance(fit: Fit) -> None:
        progress.update(begin + fit.num_steps - progress.n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says how many sweeps were made
        return cavi.run(
            data,
            priors,
            key=jax.random.key(seed),
            start=cavi.start(lam=priors.coefficients.hyperprior.a),
            max_steps=max_steps,
            tol=TOL,
            callback=advance,
        )


def _report(runs: pd.DataFrame, split: Split, starts: int) -> str:
    by_model = runs.groupby("model", sort=False)
    table = by_model.agg(
        accuracy=("accuracy", "mean"),
        lowest=("accuracy", "min"),
        highest=("accuracy", "max"),
        bound=("bound", "mean"),
        sweeps=("sweeps", "mean"),
        seconds=("seconds", "median"),
    )
    formats = dict.fromkeys(("accuracy", "lowest", "highest"), "{:.4f}".format)
    formats |= {"bound": "{:,.0f}".format, "sweeps": "{:.0f}".format, "seconds": "{:.2f}".format}
    K, C = PER_GROUP * len(np.unique(split.train_labels)), len(np.unique(split.train_labels))
    return (
        f"\nDigits, {len(split.train_labels)} training and {len(split.test_labels)} test images; "
        f"mean over {starts} random {'start' if starts == 1 else 'starts'}:\n\n"
        f"{table.to_string(formatters=formats, index_names=False)}\n\n"
        f"The same in both: {K} components, the prior of the dictionary, the scale of λ's prior and where λ starts,\n"
        f"the random starts, the tolerance, the projection, the classifier (1-NN, cosine). Different: {C} groups with\n"
        f"shapes {SMALL:g} and {LARGE:g}, or one group with shape {SINGLE:g}, each chosen by cross-validation of the training part.\n"
        "seconds: median per fit. bound: the augmented bound; these are different priors, and a higher bound does\n"
        "not mean a higher accuracy.\n\nPictures:"
    )


def _figures(out: Path, fits: dict[str, Fit], data: Data) -> list[Path]:
    """The pictures of the label-driven fit, with both bounds in one."""
    paths = save_figures(out, fits["label-driven groups"], data, IMAGE_SHAPE)
    ax = None
    for name, fit in fits.items():
        ax = bound_trace(fit.elbo, ax, label=name)
    assert ax is not None
    ax.figure.savefig(out / "bound.png")
    return paths
