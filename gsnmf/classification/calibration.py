"""Probabilities that come true as often as they say: a temperature for scores, and how far probabilities are off.

Of all samples given a probability p of the class that is predicted, a share p should be of that class.
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
from ..model.validation import whole

LOG_RANGE = (-12.0, 12.0)  # of the temperature in units of the scores' own spread; nothing sensible is outside
SUM_TOLERANCE = 1e-4  # rows of probabilities in single precision


def temper(scores: ArrayLike, temperature: float) -> NDArray[np.float64]:
    """p_τc ∝ exp(s_τc / temperature): the class with the highest score keeps the highest probability.

    Args:
        scores: samples × classes.
        temperature: above 0; the higher, the more alike are the probabilities.

    >>> temper([[0.0, 1.0]], 0.5).round(2).tolist()
    [[0.12, 0.88]]
    """
    if not isinstance(temperature, (int, float, np.number)) or not 0 < temperature < np.inf:
        raise ValueError(f"expected temperature to be a positive number; got {temperature!r}")
    proba: NDArray[np.float64] = softmax(_matrix("scores", scores) / temperature, axis=1)
    return proba


def fit_temperature(scores: ArrayLike, labels: ArrayLike) -> float:
    """The temperature at which `temper` has the lowest log loss on samples whose labels are known.

    Labels count as right with 1 − 1/(N + 2) only, much as Platt has it, and the other classes share the rest: N samples
    that are all predicted well do not show that none ever will be wrong, and the temperature stays above 0.

    Args:
        scores: samples × classes, of samples that had no part in making the scores; two classes or more.
        labels: which column each sample is of.

    >>> fit_temperature([[3.0, 0.0], [0.0, 3.0]], [0, 1]) < fit_temperature([[3.0, 0.0], [0.0, 3.0]], [0, 0])
    True
    """
    S = _matrix("scores", scores)
    index = _columns(labels, S.shape, None)
    N, C = S.shape
    if C < 2:
        raise ValueError("expected scores of two classes or more to calibrate; got 1")
    targets = np.full((N, C), 1 / (N + 2) / (C - 1))
    targets[np.arange(N), index] = 1 - 1 / (N + 2)
    unit = float(np.mean(S.max(axis=1) - S.mean(axis=1))) or 1.0  # scores may be cosines, or bounds in the thousands

    def loss(u: float) -> float:
        return -float(np.mean(np.sum(targets * log_softmax(S * (np.exp(-u) / unit), axis=1), axis=1)))

    return float(unit * np.exp(minimize_scalar(loss, bounds=LOG_RANGE, method="bounded").x))


def reliability(
    proba: ArrayLike, labels: ArrayLike, bins: int = 10, *, classes: ArrayLike | None = None
) -> pd.DataFrame:
    """What a reliability diagram shows: predictions by their probability, and how many of them were right.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: of the samples, as columns of proba, or as `classes` calls them.
        bins: of equal width, from 0 to 1.
        classes: what the columns are called, as in `classes_` of an estimator.

    Returns one row for every bin with `low`, `high`, `count`, and of those in it the mean probability of the class that
    was predicted (`confidence`) and the share that was right (`accuracy`), NaN where there are none.

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
    """The expected calibration error, Σ_b (n_b / N) |accuracy_b − confidence_b|, over the bins of `reliability`.

    Arguments as there.

    >>> round(calibration_error([[0.9, 0.1], [0.3, 0.7]], [0, 0], bins=2), 3)
    0.3
    """
    table = reliability(proba, labels, bins, classes=classes)
    gaps = (table["accuracy"] - table["confidence"]).abs() * table["count"] / table["count"].sum()
    return float(gaps.sum())


def brier_score(proba: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """The mean of Σ_c (p_τc − 1[z_τ = c])²: 0 at best, 2 at worst, 1 − 1/C for equal shares of C classes.

    scikit-learn's `brier_score_loss` takes several classes from 1.7 on and then agrees; for two it reports half of it.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: as in `reliability`; likewise classes.
        classes: what the columns are called.

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
    """Reliability diagram: the share of predictions that were right against their probability, one point for a bin.

    A point's area is in proportion to the samples in it. On the diagonal, probabilities come true; below, they are too
    sure. Bars are two standard errors of a share, as if the probabilities were right. The legend has the expected
    calibration error, ECE.

    Args:
        proba: samples × classes, rows adding up to 1.
        labels: as in `reliability`; likewise bins and classes.
        ax: where to draw; a new figure when left out.
        bins: how many.
        classes: what the columns are called.
        label: for the legend, when several are drawn on one `Axes`.
        title: above it.
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
    ax.set(xlabel="probability of the class that was predicted", ylabel="share that was right")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, float)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(f"expected {name}, samples × classes, finite; got shape {array.shape} or other values")
    return array


def _probabilities(values: ArrayLike) -> NDArray[np.float64]:
    P = _matrix("probabilities", values)
    if P.min() < 0 or np.abs(P.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        raise ValueError("expected probabilities of at least 0, whose rows add up to 1; got others")
    return P


def _columns(labels: ArrayLike, shape: tuple[int, int], classes: ArrayLike | None) -> NDArray[np.intp]:
    """Which column each sample is of."""
    N, C = shape
    names = np.arange(C) if classes is None else np.asarray(classes)
    given = np.asarray(labels)
    if given.shape != (N,) or names.shape != (C,):
        raise ValueError(
            f"expected {N} labels and names of {C} classes, as the scores have; got {given.shape} and {names.shape}"
        )
    found: Any = {name: c for c, name in enumerate(names.tolist())}
    strangers = sorted({str(label) for label in given.tolist() if label not in found})
    if strangers:
        raise ValueError(f"expected labels among the classes {names.tolist()}; got {', '.join(strangers[:5])}")
    return np.array([found[label] for label in given.tolist()], np.intp)
