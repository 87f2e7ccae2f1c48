"""Calibration of class probabilities: temperature scaling, reliability diagrams, calibration error and Brier score.

Probabilities are calibrated if a proportion p of the samples whose predicted class has probability p are of that class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from ..drawing.axes import new_axes
from ..model.checks import whole

LOG_RANGE = (-12.0, 12.0)  # of the temperature in units of the scores' own spread; nothing sensible is outside
SUM_TOLERANCE = 1e-4  # rows of probabilities in single precision


def temper(scores: ArrayLike, temperature: float) -> NDArray[np.float64]:
    """Return p_τc ∝ exp(s_τc / temperature); the class with the highest score keeps the highest probability.

    Args:
        scores: samples × classes.
        temperature: above 0; the higher, the closer the probabilities are to uniform.

    >>> temper([[0.0, 1.0]], 0.5).round(2).tolist()
    [[0.12, 0.88]]
    """
    if not isinstance(temperature, (int, float, np.number)) or not 0 < temperature < np.inf:
        raise ValueError(f"expected temperature to be a positive number; got {temperature!r}")
    proba: NDArray[np.float64] = softmax(_matrix("scores", scores) / temperature, axis=1)
    return proba


def smoothed_log_loss(scores: NDArray[np.float64], index: NDArray[Any]) -> float:
    """Return the mean over samples of −Σ_c target_c log p_c, where p_c ∝ exp(score_c).

    The target of a sample's own class is 1 − 1/(N + 2), much as in Platt scaling, and the other classes share the rest:
    N correct predictions do not show that no prediction will ever be wrong.

    Args:
        scores: samples × classes, two classes or more.
        index: the column of each sample's class.
    """
    N, C = scores.shape
    targets = np.full((N, C), 1 / (N + 2) / (C - 1))
    targets[np.arange(N), index] = 1 - 1 / (N + 2)
    return -float(np.mean(np.sum(targets * log_softmax(scores, axis=1), axis=1)))


def fit_temperature(scores: ArrayLike, labels: ArrayLike) -> float:
    """Fit the temperature at which `temper` has the lowest log loss on labelled samples.

    The loss is `smoothed_log_loss`, so that the temperature stays above 0.

    Args:
        scores: samples × classes, for samples that were not used to make the scores; two classes or more.
        labels: the column of each sample's class.

    >>> fit_temperature([[3.0, 0.0], [0.0, 3.0]], [0, 1]) < fit_temperature([[3.0, 0.0], [0.0, 3.0]], [0, 0])
    True
    """
    S = _matrix("scores", scores)
    index = _columns(labels, S.shape, None)
    if S.shape[1] < 2:
        raise ValueError(f"expected scores of two classes or more to calibrate; got {S.shape[1]}")
    unit = float(np.mean(S.max(axis=1) - S.mean(axis=1))) or 1.0  # scores may be cosines, or bounds in the thousands

    def loss(u: float) -> float:
        return smoothed_log_loss(S * (np.exp(-u) / unit), index)

    return float(unit * np.exp(minimize_scalar(loss, bounds=LOG_RANGE, method="bounded").x))


def reliability(
    proba: ArrayLike, labels: ArrayLike, bins: int = 10, *, classes: ArrayLike | None = None
) -> pd.DataFrame:
    """Tabulate a reliability diagram: predictions binned by their probability, and the proportion correct in each bin.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: one per sample: a column of proba, or a name from `classes`.
        bins: number of bins of equal width, from 0 to 1.
        classes: names of the columns, as in `classes_` of an estimator.

    Returns one row for every bin with `low`, `high` and `count`, the mean probability of the predicted class
    (`confidence`) and the proportion of correct predictions (`accuracy`); the last two are NaN for an empty bin.

    >>> reliability([[0.9, 0.1], [0.3, 0.7]], [0, 0], bins=2)[["count", "confidence", "accuracy"]].values.tolist()
    [[0.0, nan, nan], [2.0, 0.8, 0.5]]
    """
    P = _probabilities(proba)
    right = P.argmax(axis=1) == _columns(labels, P.shape, classes)
    edges = np.linspace(0, 1, whole("bins", bins, 1) + 1)
    confidence = P.max(axis=1)
    where = np.clip(np.digitize(confidence, edges[1:-1], right=True), 0, bins - 1)
    found = pd.DataFrame({"confidence": confidence, "accuracy": right.astype(float)}).groupby(where).mean()
    table = pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": np.bincount(where, minlength=bins)})
    return table.join(found)


def calibration_error(
    proba: ArrayLike, labels: ArrayLike, bins: int = 10, *, classes: ArrayLike | None = None
) -> float:
    """Return the expected calibration error, Σ_b (n_b / N) |accuracy_b − confidence_b|, over the bins of `reliability`.

    The arguments are those of `reliability`.

    >>> round(calibration_error([[0.9, 0.1], [0.3, 0.7]], [0, 0], bins=2), 3)
    0.3
    """
    table = reliability(proba, labels, bins, classes=classes)
    gaps = (table["accuracy"] - table["confidence"]).abs() * table["count"] / table["count"].sum()
    return float(gaps.sum())


def brier_score(proba: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """Return the mean of Σ_c (p_τc − 1[z_τ = c])²: 0 at best, 2 at worst, 1 − 1/C for uniform probabilities.

    scikit-learn's `brier_score_loss` takes several classes from 1.7 on and then agrees; for two it reports half of it.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: one per sample: a column of proba, or a name from `classes`.
        classes: names of the columns.

    >>> brier_score([[0.75, 0.25]], [1])
    1.125
    """
    P = _probabilities(proba)
    return float(np.mean(np.sum((P - np.eye(P.shape[1])[_columns(labels, P.shape, classes)]) ** 2, axis=1)))


def plot_reliability(
    proba: ArrayLike,
    labels: ArrayLike,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    classes: ArrayLike | None = None,
    label: str | None = None,
    title: str = "reliability",
) -> Axes:
    """Draw a reliability diagram: the proportion of correct predictions against their probability, one point per bin.

    A point's area is proportional to the number of samples in its bin. Points on the diagonal are calibrated; points
    below it are overconfident. Bars are two standard errors of a proportion, under the hypothesis that the
    probabilities are right. The legend shows the expected calibration error, ECE.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: one per sample: a column of proba, or a name from `classes`.
        ax: axes to draw on; a new figure by default.
        bins: number of bins of equal width, from 0 to 1.
        classes: names of the columns.
        label: entry in the legend, for several curves on one `Axes`.
        title: title of the axes.
    """
    table = reliability(proba, labels, bins, classes=classes).dropna()
    error = calibration_error(proba, labels, bins, classes=classes)
    ax = new_axes(5, 5) if ax is None else ax
    if not ax.lines:
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    p, n = table["confidence"].to_numpy(), table["count"].to_numpy()
    said = f"ECE {error:.3f}"
    bars = ax.errorbar(p, table["accuracy"], 2 * np.sqrt(p * (1 - p) / n), linewidth=1, capsize=2)
    color = bars.lines[0].get_color()
    ax.scatter(p, table["accuracy"], 10 + 190 * n / n.sum(), color=color, label=f"{label}: {said}" if label else said)
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", title=title)
    ax.set(xlabel="probability of the predicted class", ylabel="proportion correct")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, float)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"expected {name}, samples × classes, finite; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"expected {name}, samples × classes, finite; got {array[~np.isfinite(array)][0]}")
    return array


def _probabilities(values: ArrayLike) -> NDArray[np.float64]:
    P = _matrix("probabilities", values)
    if P.min() < 0 or np.abs(P.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        sums = P.sum(axis=1)
        got = f"{P.min():g}" if P.min() < 0 else f"a row that adds up to {sums[np.abs(sums - 1).argmax()]:g}"
        raise ValueError(f"expected probabilities of at least 0, whose rows add up to 1; got {got}")
    return P


def _columns(labels: ArrayLike, shape: tuple[int, int], classes: ArrayLike | None) -> NDArray[np.intp]:
    """Return the column of each sample's class."""
    N, C = shape
    names = np.arange(C) if classes is None else np.asarray(classes)
    given = np.asarray(labels)
    if given.shape != (N,) or names.shape != (C,):
        raise ValueError(
            f"expected {N} labels and names of {C} classes, like the scores; got shapes {given.shape} and {names.shape}"
        )
    found: Any = {name: c for c, name in enumerate(names.tolist())}
    strangers = sorted({str(label) for label in given.tolist() if label not in found})
    if strangers:
        raise ValueError(f"expected labels among the classes {names.tolist()}; got {', '.join(strangers[:5])}")
    return np.array([found[label] for label in given.tolist()], np.intp)
