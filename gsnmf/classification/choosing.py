"""The comparison of heads by cross-validation within the training part: predict_by="auto"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from ..inference.warning import quiet
from ..model.priors import is_grouped
from .calibration import fit_temperature, smoothed_log_loss
from .heads import EQUAL, LEARNED, Stacked, fit_head, fit_weights
from .prediction import LearningPlan, Memory, class_scores, even, learn_dictionaries
from .restarts import ROUGH

AUTO = "auto"
DENSE = ("nearest", "blend", "lda", "stacked")  # from simple to complex: the first of equals is chosen
SPARSE = ("nearest", "blend", "model", "lda", "stacked")  # the class bounds of dense samples would take far longer
FOLDS = 3
MANY = 300  # labelled samples, from which on one part is enough


class HeadComparison(NamedTuple):
    """Heads compared on samples that neither the head nor the dictionary has seen.

    chosen: the name of the head with the lowest log loss, the simplest of equals.
    table: head, accuracy, its standard error, and `smoothed_log_loss` at the best temperature; from simple to complex.
    reason: the choice in words.
    scores: of the chosen head for the samples that were left out, on the scale of its temperature.
    y: the classes of these samples.
    weights: of a stacked head.
    """

    chosen: str
    table: pd.DataFrame
    reason: str
    scores: NDArray[np.float64] | None
    y: NDArray[Any]
    weights: tuple[float, ...]


def candidates(X: Any, priors: Any) -> tuple[str, ...]:
    """Return the heads that "auto" compares for such samples, features × samples.

    Args:
        X: dense or sparse.
        priors: of the estimator; None for the default ones, which distinguish classes.
    """
    names = SPARSE if scipy.sparse.issparse(X) else DENSE
    return names if priors is None or is_grouped(priors) else tuple(name for name in names if name != "model")


def compare_heads(plan: LearningPlan, X: Any, y: NDArray[Any], classes: Any, names: tuple[str, ...]) -> HeadComparison:
    """Compare heads on parts of the labelled samples that are left out of dictionaries and heads in turn.

    Args:
        plan: as in `learn`; restarts are as many as in the fit itself.
        X: features × samples, of which only labelled ones are used.
        y: the class of each sample as an index, −1 for an unlabelled sample.
        classes: names of the classes.
        names: the heads, from simple to complex.
    """
    known = np.flatnonzero(y >= 0)
    parts = left_out_parts(y[known], plan.part_seed)
    if len(classes) < 2 or not parts:
        why = "there is one class only" if len(classes) < 2 else "no class has two labelled samples to compare heads on"
        return HeadComparison(
            names[0], _table({}, np.array([], int)), f"{names[0]}: {why}", None, np.array([], int), EQUAL
        )
    X, y = X[:, known], y[known]
    plan = plan._replace(recipe=plan.recipe.roughly(), select="bound")
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for part in parts:
        old = np.setdiff1d(np.arange(len(y)), part)
        with quiet():
            _, memory = learn_dictionaries(plan, X[:, old], y[old], classes)
        seen, new = (memory.seen(X[:, some], tol=ROUGH) for some in (old, part))
        if {"nearest", "blend"} & {*names}:
            memory.coefficients.update(zip(memory.sound, seen.coefficients, strict=True))
        for name in names:
            found[name].append(_scores(name, memory, seen, new, y[old]))
    truth = y[np.concatenate(parts)]
    scores = {name: np.concatenate(each, axis=-2) for name, each in found.items()}
    weights: tuple[float, ...] = EQUAL
    if "stacked" in scores:
        weights = fit_weights(scores["stacked"], truth)
        scores["stacked"] = np.tensordot(weights, scores["stacked"], axes=1)
    scores = {name: even(S, name) for name, S in scores.items()}
    table = _table(scores, truth)
    chosen = str(table["head"][table["log_loss"].argmin()])  # the first of equals
    return HeadComparison(chosen, table, _reason(chosen, table, len(truth)), scores[chosen], truth, weights)


def _scores(name: str, memory: Memory, seen: Any, new: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the scores of one head for new samples; of a stacked one, its parts."""
    if name not in LEARNED:
        return class_scores(memory, name, new)
    head = fit_head(name, seen, y, EQUAL)
    return head.parts(new) if isinstance(head, Stacked) else head.scores(new)


def left_out_parts(y: NDArray[Any], seed: int) -> list[NDArray[Any]]:
    """Return parts of equal size that are left out in turn, stratified; a class with one sample is in none of them.

    Every part, and what is left without it, has the same number of samples: programs are compiled once for all.

    Args:
        y: the class of each sample.
        seed: of the draw.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    order = order[np.bincount(y)[y[order]] > 1]
    size = len(order) // FOLDS
    if size == 0:
        return [order[:1]] if len(order) else []
    parts = [np.sort(order[k : size * FOLDS : FOLDS]) for k in range(FOLDS)]
    return parts[:1] if len(y) >= MANY else parts


def _table(scores: dict[str, NDArray[np.float64]], y: NDArray[Any]) -> pd.DataFrame:
    rows = []
    for name, S in scores.items():
        right = float(np.mean(S.argmax(axis=1) == y))
        loss = smoothed_log_loss(S / fit_temperature(S, y), y)
        rows.append((name, right, np.sqrt(right * (1 - right) / len(y)), loss))
    return pd.DataFrame(rows, columns=["head", "accuracy", "standard_error", "log_loss"])


def _reason(chosen: str, table: pd.DataFrame, number: int) -> str:
    rows = {row.head: row for row in table.itertuples()}
    own = rows.pop(chosen)
    others = "".join(f"; {row.head} {row.log_loss:.3f} ({row.accuracy:.3f})" for row in rows.values())
    return f"{chosen}: log loss {own.log_loss:.3f} (accuracy {own.accuracy:.3f}) on {number} left-out samples{others}"
