"""The comparison of heads by cross-validation within the training part: predict_by="auto"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from ..inference.warning import quiet
from ..model.priors import is_grouped
from .heads import EQUAL, LEARNED, Stacked, fit_head, fit_weights
from .prediction import LearningPlan, Memory, class_scores, even, learn

AUTO = "auto"
DENSE = ("nearest", "blend", "lda", "svm")  # from simple to complex: the first of equals is chosen
SPARSE = ("nearest", "blend", "model", "lda", "stacked")  # the class bounds of dense samples would take far longer
FOLDS = 3
MANY = 2000  # labelled samples, from which on a single fold is precise enough


class Comparison(NamedTuple):
    """Heads compared on samples that neither the head nor the dictionary has seen.

    chosen: the name of the head with the highest accuracy, the simplest of equals.
    table: head, accuracy and its standard error, in the order of complexity.
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
        X: dense or sparse; with missing entries "stacked" is left out, as it sees the samples themselves.
        priors: of the estimator; None for the default ones, which distinguish classes.
    """
    if not scipy.sparse.issparse(X):
        return DENSE
    grouped = priors is None or is_grouped(priors)
    left_out = ("model", "stacked") if not grouped else ("stacked",) if np.isnan(X.data).any() else ()
    return tuple(name for name in SPARSE if name not in left_out)


def compare(plan: LearningPlan, X: Any, y: NDArray[Any], classes: Any, names: tuple[str, ...]) -> Comparison:
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
        return Comparison(names[0], _table({}, 0), f"{names[0]}: {why}", None, np.array([], int), EQUAL)
    X, y = X[:, known], y[known]
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for part in parts:
        old = np.setdiff1d(np.arange(len(y)), part)
        with quiet():
            _, memory = learn(plan._replace(predict_by=_kept(names), select="bound"), X[:, old], y[old], classes)
        given = [memory.coefficients[r] for r in memory.sound] if _kept(names) == "blend" else None
        seen, new = memory.seen(X[:, old], given=given), memory.seen(X[:, part])
        for name in names:
            found[name].append(_scores(name, memory, seen, new, y[old]))
    truth = y[np.concatenate(parts)]
    scores = {name: np.concatenate(each, axis=-2) for name, each in found.items()}
    weights: tuple[float, ...] = EQUAL
    if "stacked" in scores:
        weights = fit_weights(scores["stacked"], truth)
        scores["stacked"] = np.tensordot(weights, scores["stacked"], axes=1)
    right = {name: float(np.mean(S.argmax(axis=1) == truth)) for name, S in scores.items()}
    chosen = max(names, key=lambda name: right[name])
    reason = _reason(chosen, right, len(truth))
    return Comparison(chosen, _table(right, len(truth)), reason, even(scores[chosen], chosen), truth, weights)


def _kept(names: tuple[str, ...]) -> str:
    """Return the way to predict whose memory serves all these heads."""
    return "blend" if set(names) - {"stacked"} else "stacked"


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
    return parts[:1] if len(y) > MANY else parts


def _table(right: dict[str, float], number: int) -> pd.DataFrame:
    rows = [(name, p, np.sqrt(p * (1 - p) / max(number, 1))) for name, p in right.items()]
    return pd.DataFrame(rows, columns=["head", "accuracy", "standard_error"])


def _reason(chosen: str, right: dict[str, float], number: int) -> str:
    others = [f"{name} {p:.3f}" for name, p in right.items() if name != chosen]
    equal = [name for name, p in right.items() if p == right[chosen] and name != chosen]
    tie = f", as {' and '.join(equal)}, and is the simplest of these" if equal else ""
    against = f"; {', '.join(others)}" if others else ""
    return f"{chosen}: accuracy {right[chosen]:.3f} on {number} left-out training samples{tie}{against}"
