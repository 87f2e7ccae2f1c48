"""Warnings of fits that explain nothing or predict one class for everything, and of samples without counts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..inference.warning import DeadComponentsWarning
from .prediction import Memory, class_scores

BY_COSINES = ("nearest", "vote", "cosine", "blend")
LIVE = 0.5  # proportion of components in use below which a fit is suspect
LEAST = 0.5  # proportion of the counts in X that a dictionary should explain
EARLY = 10  # sweeps below which no warning is given
ENOUGH = 200  # samples whose predicted classes are looked at
COUNTS = 1.0  # mean of the largest entries of samples, in counts, below which X hardly holds information


def warn_of_pointless(model: Any, memory: Memory, X: Any, y: NDArray[Any] | None) -> None:
    """Warn once if X is all zero or hardly explained, components are dead, or one class is predicted for everything.

    Args:
        model: the fitted estimator.
        memory: what it predicts from.
        X: features × samples, in the unit of the fit.
        y: the class of each sample as an index, −1 for an unlabelled sample; None without labels.
    """
    found = _symptom(model, memory, X, y)
    if found:
        warnings.warn(f"{found} {_advice(model, X)}", DeadComponentsWarning, stacklevel=3)


def undecided(scores: NDArray[np.float64], samples: Any, predict_by: str) -> NDArray[np.float64]:
    """Return scores, equal for all classes where a sample has no observed count; warn once of these samples.

    Args:
        scores: samples × classes.
        samples: features × samples.
        predict_by: as in the estimator; only heads that compare coefficients are concerned.
    """
    if predict_by not in BY_COSINES:
        return scores
    positive = (samples > 0).sum(axis=0)  # NaN is not
    empty = np.ravel(positive) == 0
    if not empty.any():
        return scores
    warnings.warn(
        f"{empty.sum()} of {len(empty)} samples have no observed count: all classes are equally probable for them.",
        stacklevel=4,
    )
    return np.where(empty[:, None], 0.0, scores)


def _symptom(model: Any, memory: Memory, X: Any, y: NDArray[Any] | None) -> str | None:
    largest = np.nanmax(np.append(X.data if scipy.sparse.issparse(X) else np.ravel(X), 0.0))
    if not largest > 0:
        return "All entries of X are 0: nothing can be learned from them."
    if model.n_iter_ < EARLY:
        return None
    explained = _explained(model, X)
    if explained < LEAST:
        return f"The components explain {100 * explained:.2g} % of the counts in X: the prior on V outweighs the data."
    live, rank = int(model.in_use_.sum()), len(model.in_use_)
    if live < LIVE * rank and (y is None or live < len(model.classes_)):
        return f"{rank - live} of {rank} components are dead: the dictionary explains little of X or nothing."
    if y is None or y.ndim == 2 or len(model.classes_) < 2:
        return None
    known = np.flatnonzero(y >= 0)
    some = known[:: max(1, len(known) // ENOUGH)]
    classes, first = np.unique(y[some], return_index=True)
    if len(classes) < 2:
        return None
    for looked_at in (some[first], some):  # usually one sample of each class is enough
        predicted = np.unique(class_scores(memory, model.predictor_, X[:, looked_at]).argmax(axis=1))
        if len(predicted) > 1:
            return None
    return f"All of {len(some)} training samples are predicted to be of class {model.classes_[predicted[0]]}."


def _explained(model: Any, X: Any) -> float:
    """Return Σ E[t] E[v] / Σ x, about 1 for any fit that the data decide."""
    q = model.posterior_
    expected = float(np.asarray(q.T.mean, float).sum(axis=0) @ np.asarray(q.V.mean, float).sum(axis=1))
    return expected / float(np.nansum(X.data if scipy.sparse.issparse(X) else X))


def _advice(model: Any, X: Any) -> str:
    """Return what to change, by the size of X and the strength of the prior."""
    top = X.nanmax(axis=0).toarray() if scipy.sparse.issparse(X) else np.nanmax(np.nan_to_num(X), axis=0, initial=0)
    if not top.any():
        return "Check how X was read."
    if float(np.mean(top)) < COUNTS:
        return "X is read as counts and its entries are far below 1: pass counts= (the mean entry in counts, e.g. 128)."
    return "Weaken the prior (smaller `large` and `small`, or prior='relative'), or ask for fewer components."
