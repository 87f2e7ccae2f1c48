"""Demonstration of partial labels: handwritten digits, most of whose labels are hidden."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from ..classification.calibration import brier_score, calibration_error, plot_reliability
from ..drawing.axes import save
from ..drawing.montage import dictionary_montage
from ..estimator import GroupSparseNMF
from ..inference.warning import quiet
from .digits import IMAGE_SHAPE, Split, splits

SIZE, LEAST, MOST = 600, 0.05, 0.95  # training images; proportions that leave every digit some labels, known and hidden
NEIGHBOUR, ALONE, PARTLY, ALL = (
    "labelled images alone, 1-NN", "labelled images alone", "labels partly known", "all labels known"
)  # fmt: skip
OPTIONS: dict[str, Any] = {"n_restarts": 3, "predict_by": "blend"}


def hide_labels(labels: NDArray[Any], share: float, seed: int) -> NDArray[Any]:
    """Replace labels by −1, except for a stratified random proportion of them.

    Args:
        labels: whole numbers ≥ 0.
        share: the proportion of labels to keep.
        seed: of the choice.
    """
    check_share(share)
    known, _ = train_test_split(np.arange(len(labels)), train_size=share, stratify=labels, random_state=seed)
    partly = np.full(len(labels), -1)
    partly[known] = labels[known]
    return partly


def check_share(share: float) -> None:
    """Raise ValueError for a proportion that leaves some digit without known labels, or without hidden ones."""
    if not isinstance(share, (int, float, np.number)) or isinstance(share, bool) or not LEAST <= share <= MOST:
        raise ValueError(f"expected a share of labels from {LEAST} to {MOST}; got {share!r}")


def run_labels_demo(out: Path, share: float, seed: int = 0, *, draws: int = 3, max_iter: int = 150) -> pd.DataFrame:
    """Fit digits with some of their labels, print a table and write pictures into a folder.

    Args:
        out: the folder, created if it does not exist.
        share: the proportion of labels that are known, `LEAST` to `MOST`.
        seed: of the splits, of the hidden labels and of the random initialisations.
        draws: number of splits.
        max_iter: sweeps at most.

    Returns the table of all runs, one row for each split and model.
    """
    check_share(share)
    rows: list[dict[str, Any]] = []
    pooled: dict[str, list[Any]] = {name: [] for name in (NEIGHBOUR, ALONE, PARTLY, ALL)}
    plain: list[Any] = []  # uncalibrated probabilities of PARTLY
    model = None
    with tqdm(total=4 * draws, unit="model", disable=None) as progress:
        for draw, split in enumerate(splits(SIZE, draws, seed)):
            given = hide_labels(split.labels, share, seed + draw)
            for name, data in _contestants(split, given).items():
                progress.set_description(name)
                begin = time.perf_counter()
                fitted = _fit(name, *data, seed + draw, max_iter)
                seconds = time.perf_counter() - begin
                proba = fitted.predict_proba(split.test.T)
                pooled[name].append(proba)
                hidden = _hidden(name, fitted, split, given)
                row = {"model": name, "draw": draw, "hidden": hidden}
                rows.append(row | {"new": fitted.score(split.test.T, split.test_labels), "seconds": seconds})
                if name == PARTLY:
                    plain.append(fitted.set_params(calibrate=None).predict_proba(split.test.T))
                    model = model or fitted
                progress.update()
    labels = np.concatenate([split.test_labels for split in splits(SIZE, draws, seed)])
    runs = pd.DataFrame(rows)
    print(_report(runs, {name: np.concatenate(parts) for name, parts in pooled.items()}, labels, share, draws))
    for path in _figures(out, np.concatenate(pooled[PARTLY]), np.concatenate(plain), labels, model):
        print(f"  {path}")
    return runs


def _contestants(split: Split, given: NDArray[Any]) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Return X (samples × features) and labels for each model that is compared."""
    images = split.X.T
    alone = images[given >= 0], given[given >= 0]
    return {NEIGHBOUR: alone, ALONE: alone, PARTLY: (images, given), ALL: (images, split.labels)}


def _fit(name: str, X: NDArray[Any], y: NDArray[Any], seed: int, max_iter: int) -> GroupSparseNMF:
    options = {**OPTIONS, "predict_by": "nearest"} if name == NEIGHBOUR else OPTIONS
    with quiet():  # only accuracies are compared here
        return GroupSparseNMF(**options, max_iter=max_iter, unlabelled=-1, random_state=seed).fit(X, y)


def _hidden(name: str, fitted: GroupSparseNMF, split: Split, given: NDArray[Any]) -> float:
    """Return the proportion of hidden labels that were recovered; NaN if none was hidden."""
    hidden = given < 0
    if name == ALL:
        return float("nan")
    found = fitted.transduction_[hidden] if name == PARTLY else fitted.predict(split.X.T[hidden])
    return float(np.mean(found == split.labels[hidden]))


def _report(runs: pd.DataFrame, pooled: dict[str, Any], labels: NDArray[Any], share: float, draws: int) -> str:
    table = runs.groupby("model", sort=False).agg({"hidden": "mean", "new": "mean", "seconds": "median"})
    table.insert(2, "ECE", [calibration_error(pooled[name], labels) for name in table.index])
    table.insert(3, "Brier", [brier_score(pooled[name], labels) for name in table.index])
    formats = {"hidden": "{:.3f}", "new": "{:.3f}", "ECE": "{:.3f}", "Brier": "{:.3f}", "seconds": "{:.1f}"}
    words = {name: form.format for name, form in formats.items()}
    wide = runs.pivot(index="draw", columns="model", values="hidden")
    gain = wide[PARTLY] - wide[NEIGHBOUR]
    return "\n".join(
        [
            f"\nDigits, {SIZE} training images, {share:.0%} of them with labels, mean of {draws} random splits:\n",
            table.to_string(formatters=words, na_rep="–"),
            "\nGain in recovered labels from unlabelled images, compared with 1-NN, split by split: "
            + ", ".join(f"{value:+.3f}" for value in gain),
            "\nhidden: accuracy on the training images whose labels were hidden. new: accuracy on test images.",
            "ECE, Brier: expected calibration error (10 bins) and Brier score of predict_proba on them, all splits.",
            f"Each has 3 × 10 components and {OPTIONS['n_restarts']} restarts, which are combined by mean cosines",
            f"(predict_by={OPTIONS['predict_by']!r}), except 1-NN, which uses the one with the highest bound.",
            "seconds: median over splits, all restarts included.",
            "\nPictures of the fits with labels partly known:",
        ]
    )


def _figures(out: Path, proba: Any, plain: Any, labels: NDArray[Any], model: Any) -> list[Path]:
    """Draw the reliability diagram on test images, and the dictionary of the first fit."""
    out.mkdir(parents=True, exist_ok=True)
    ax = plot_reliability(plain, labels, label="uncalibrated")
    plot_reliability(proba, labels, ax, label="calibrated", title="digits: reliability of predictions")
    T, used = model.components_.T, np.flatnonzero(model.in_use_)
    groups = np.arange(T.shape[1]) // model.per_class
    axes = {"reliability": ax}
    if len(used):
        axes["dictionary"] = dictionary_montage(
            T, IMAGE_SHAPE, order=used, groups=groups, title="dictionary, in negative"
        )
    for name, one in axes.items():
        save(one, out / f"{name}.png")
    return [out / f"{name}.png" for name in axes]
