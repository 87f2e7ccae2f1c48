"""Sentences about fits that explain nothing or predict one class for everything, and of samples without counts."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..inference import Fit, Posterior, fold_in, in_use
from ..inference.warning import DeadComponentsWarning, warn
from ..model import Data, Gamma, as_data
from .prediction import Memory, class_scores

BY_COSINES = ("nearest", "vote", "cosine", "blend")
LIVE = 0.5  # proportion of components in use below which a fit is suspect
LEAST = 0.5  # proportion of the counts in X that a dictionary should explain
EARLY = 10  # sweeps below which no warning is given
ENOUGH = 200  # samples whose predicted classes are looked at
NOTHING = "All entries of X are 0: nothing can be learned from them."
LOOKED_AT = 64  # samples of a stream
REMEDY = "pass counts= (the mean entry in counts, e.g. 128)"
MULTIPLY = "multiply X by a constant so that they are counts"
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
        warn(f"{found} {_advice(_top(X), REMEDY)}", DeadComponentsWarning, stacklevel=3)


def warn_of_pointless_stream(fit: Fit, X: Any) -> None:
    """Warn if the first batch of a stream is all zero or so small that the prior outweighs it.

    Whether the prior is too strong for larger counts shows only after several batches.
    """
    largest = np.nanmax(np.append(X.data if scipy.sparse.issparse(X) else np.ravel(X), 0.0))
    if largest < COUNTS and (found := said_of_stream(fit, X)):
        warn(found, DeadComponentsWarning, stacklevel=3)


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


def said_of_zeros(data: Data) -> str | None:
    """Return that X is all 0, before it is fitted; None if it is not."""
    return None if data.matrix.total() > 0 else f"{NOTHING} {_advice(0.0, MULTIPLY)}"


def said_of_fit(fit: Fit, data: Data) -> str | None:
    """Return what is wrong with a fit that explains nothing, and what to change; None for others."""
    X, V = data.matrix, np.asarray(fit.posterior.V.mean, float)
    enough = data.num_groups or math.inf
    used = in_use(fit.posterior, data)
    found = _unexplained(fit.posterior, V, X.total(), fit.num_steps) or _dead(used, enough)
    return found and f"{found} {_advice(X.largest(), MULTIPLY)}"


def said_of_stream(fit: Fit, X: Any) -> str | None:
    """Return the same of a stream, from some of its samples.

    Args:
        fit: the stream.
        X: features × samples, of which a few are read.
    """
    N = X.shape[1]
    looked_at = as_data(X[:, np.unique(np.linspace(0, N - 1, min(N, LOOKED_AT)).astype(int))])
    if found := said_of_zeros(looked_at):
        return found
    part = looked_at.matrix
    folded = fold_in(fit, part.with_nan())
    likely, n = np.asarray(folded.bound).argmax(axis=1), np.arange(part.shape[1])
    q = Posterior(fit.posterior.T, Gamma(*(np.asarray(leaf)[likely, :, n].T for leaf in folded.V)), None)
    enough = folded.bound.shape[1] if folded.bound.shape[1] > 1 else math.inf
    found = _unexplained(q, np.asarray(q.V.mean, float), part.total(), EARLY) or _dead(in_use(q), enough)
    return found and f"{found} {_advice(part.largest(), MULTIPLY)}"


def _symptom(model: Any, memory: Memory, X: Any, y: NDArray[Any] | None) -> str | None:
    q, total = model.posterior_, float(np.nansum(X.data if scipy.sparse.issparse(X) else X))
    enough = math.inf if y is None else len(model.classes_)
    found = _unexplained(q, np.asarray(q.V.mean, float), total, model.n_iter_)
    if found or (model.n_iter_ >= EARLY and (found := _dead(model.in_use_, enough))):
        return found
    if model.n_iter_ < EARLY or y is None or y.ndim == 2 or len(model.classes_) < 2:
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


def _unexplained(q: Posterior, V: NDArray[Any], total: float, steps: int) -> str | None:
    """Return a sentence if X is 0, or if Σ E[t] E[v] / Σ x, about 1 for any fit that the data decide, is small.

    Args:
        q: the posterior.
        V: coefficients of the samples, components × samples.
        total: Σ x of the same samples.
        steps: sweeps of the fit.
    """
    if not total > 0:
        return NOTHING
    explained = float(np.asarray(q.T.mean, float).sum(axis=0) @ V.sum(axis=1)) / total
    if steps < EARLY or explained >= LEAST:
        return None
    return f"The components explain {100 * explained:.2g} % of the counts in X: the prior on V outweighs the data."


def _dead(used: NDArray[np.bool_], enough: float) -> str | None:
    """Return a sentence if most components are dead, and fewer live than are enough."""
    live, rank = int(used.sum()), len(used)
    if live >= LIVE * rank or live >= enough:
        return None
    return f"{rank - live} of {rank} components are dead: the dictionary explains little of X or nothing."


def _advice(largest: float, remedy: str) -> str:
    """Return what to change, by the size of X and the strength of the prior.

    Args:
        largest: entry of a sample.
        remedy: for entries that are too small.
    """
    if not largest > 0:
        return "Check how X was read."
    if largest < COUNTS:
        return f"X is read as counts and its entries are far below 1: {remedy}."
    return "Weaken the prior (smaller `large` and `small`, or prior='relative'), or ask for fewer components."


def _top(X: Any) -> float:
    """Return the mean over samples of the largest entry."""
    top = X.nanmax(axis=0).toarray() if scipy.sparse.issparse(X) else np.nanmax(np.nan_to_num(X), axis=0, initial=0)
    return float(np.mean(top))
