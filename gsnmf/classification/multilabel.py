"""Several labels per sample: one dictionary for all, and one yes-or-no classifier for each label.

A classifier sees √ proportions of the components, and the samples themselves, log-normalised: proportions alone are not
enough to tell related labels apart (docs/classification.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

from ..inference import Posterior, fold_in
from ..inference.warning import quiet
from ..model import Gamma, Priors, as_data
from ..model.labels import SEVERAL, check_kinds, is_matrix
from .heads import MARGIN, Profiles, profiles_of
from .prediction import LearningPlan, Memory
from .representation import TOLERANCE, root_proportions
from .restarts import Found, by_bound

PENALTY = 5.0  # C of the classifiers
SHARE = 0.5  # weight of √ proportions; samples have length 1
LEAST = 0.001  # proportion of a component below which it counts as 0: SVMs on sparse points are faster
THRESHOLDS = np.linspace(-0.6, 0.4, 21)  # of margins, one for all labels
LEFT_OUT = 0.25  # proportion of samples that the threshold is chosen on


class Several(NamedTuple):
    """Classifiers of all labels.

    model: one-vs-rest, for the labels that some training samples have and others do not.
    profiles: how it sees samples themselves.
    threshold: the margin above which a label is predicted, with the highest micro-F1 on samples that were left out.
    constant: −∞ for labels that no training sample has, ∞ for those that all have, NaN for those of the model.
    """

    model: Any
    profiles: Profiles
    threshold: float
    constant: NDArray[np.float64]

    def margins(self, memory: Memory, X: Any) -> NDArray[np.float64]:
        """Return margins above the threshold, samples × labels."""
        found, learned = np.tile(self.constant, (X.shape[1], 1)), np.isnan(self.constant)
        if learned.any():
            margins = np.asarray(self.model.decision_function(_points(memory, X, self.profiles)), float)
            found[:, learned] = margins.reshape(X.shape[1], -1)
        return found - self.threshold

    def probabilities(self, memory: Memory, X: Any) -> NDArray[np.float64]:
        """Return 1 / (1 + exp(−4 margin)), samples × labels; not calibrated, ½ at the threshold.

        A label that no training sample has gets 0, one that all have gets 1.
        """
        odds: NDArray[np.float64] = expit(4 * self.margins(memory, X))
        return odds


def learn_several(plan: LearningPlan, X: Any, Y: NDArray[Any]) -> tuple[Found, Memory, Several]:
    """Fit dictionaries to samples with several labels, and the classifiers.

    Args:
        plan: as in `prediction.learn`.
        X: features × samples.
        Y: samples × labels, 0 or 1; a sample without a label is unlabelled for the dictionary.
    """
    found = by_bound(plan.recipe, X, Y, plan.keys, plan.verbose)
    memory = _memory(found, Y)
    order = np.random.default_rng(plan.part_seed).permutation(len(Y))
    number = int(LEFT_OUT * len(Y))
    threshold = 0.0
    if number:
        new, old = np.sort(order[:number]), np.sort(order[number:])
        with quiet():
            other = _memory(by_bound(plan.recipe, X[:, old], Y[old], plan.keys[:1], 0), Y[old])
        margins = _classify(other, X[:, old], Y[old]).margins(other, X[:, new])
        scores = [f1_score(Y[new], margins > t, average="micro", zero_division=0.0) for t in THRESHOLDS]
        threshold = float(THRESHOLDS[int(np.argmax(scores))]) if max(scores) > 0 else 0.0
    return found, memory, _classify(memory, X, Y)._replace(threshold=threshold)


def _memory(found: Found, Y: NDArray[Any]) -> Memory:
    sizes = np.maximum(Y.sum(axis=0), 0.5)
    posteriors, priors = [fit.posterior for fit in found.fits], [fit.priors for fit in found.fits]
    return Memory(posteriors, priors, found.best, found.sound, "posterior", sizes / sizes.sum(), np.array([]), {}, {})  # type: ignore[arg-type]  # fits of cavi.run have priors


def _classify(memory: Memory, X: Any, Y: NDArray[Any]) -> Several:
    profiles = profiles_of(X)
    constant = np.where(Y.all(axis=0), np.inf, np.where(Y.any(axis=0), np.nan, -np.inf))
    machine = OneVsRestClassifier(LinearSVC(C=PENALTY, tol=MARGIN, random_state=0))
    varying = Y[:, np.isnan(constant)]
    if varying.shape[1]:
        machine.fit(_points(memory, X, profiles), varying)
    return Several(machine, profiles, 0.0, constant)


def _points(memory: Memory, X: Any, profiles: Profiles) -> Any:
    """Return samples themselves and √ proportions of all restarts side by side, sparse if X is."""
    each = [shared_coefficients(memory.posteriors[r], memory.priors[r], X, memory.shares) for r in memory.sound]
    roots = np.vstack([root_proportions(V) for V in each]).T
    roots = np.where(roots**2 < LEAST, 0.0, roots) * (SHARE / np.sqrt(len(each)))
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([profiles(X), scipy.sparse.csr_array(roots)], format="csr")
    return np.hstack([profiles(X), roots])


def shared_coefficients(posterior: Posterior, priors: Priors, X: Any, pi: Any) -> NDArray[np.float64]:
    """Return (Σ_ν t_νi) E[v_iτ], components × samples, under one prior for all samples whatever their labels.

    v has the exponential prior whose mean is Σ_c π_c / E[λ_ic], the mean of v over labels.

    Args:
        posterior: of the fit.
        priors: of the fit.
        X: features × samples.
        pi: proportions of labels.
    """
    T = np.asarray(posterior.T.mean, float)
    if posterior.lam is None:
        folded = fold_in(posterior, X, priors, tol=TOLERANCE)
    else:
        mean = np.broadcast_to(1 / np.asarray(posterior.lam.mean, float), (T.shape[1], len(pi))) @ pi
        shared = Priors(priors.dictionary, Gamma(1.0, mean[:, None]))
        folded = fold_in(posterior._replace(lam=None), as_data(X), shared, tol=TOLERANCE)
    counts: NDArray[np.float64] = T.sum(axis=0)[:, None] * np.asarray(folded.V.mean, float)[0]
    return counts


def as_indicator(y: Any) -> tuple[NDArray[np.int64], NDArray[Any]] | None:
    """Return samples × labels of 0 and 1, and the names of labels; None if samples have one label each.

    Args:
        y: a matrix of 0 and 1, dense or sparse, with two columns or more; or what `label_sets` reads.
    """
    if scipy.sparse.issparse(y):
        y = y.toarray()
    rows = [list(row) if isinstance(row, np.ndarray) else row for row in y] if isinstance(y, (list, tuple)) else []
    if rows and is_matrix(rows):
        y = np.asarray(rows)
    if hasattr(y, "ndim") and y.ndim == 2 and y.shape[1] > 1:
        Y = np.asarray(y)
        if Y.dtype.kind not in "biuf" or not np.isin(Y, (0, 1)).all():
            raise ValueError(
                f"expected multi-label y as a matrix of 0 and 1, samples × labels; got y of shape {Y.shape} with "
                f"values {np.array2string(Y.ravel()[:6], separator=', ')}"
            )
        return Y.astype(np.int64), np.asarray(getattr(y, "columns", np.arange(Y.shape[1])))
    sets = label_sets(y)
    if sets is None:
        return None
    binarizer = MultiLabelBinarizer()
    return binarizer.fit_transform(sets), binarizer.classes_


def label_sets(y: Any) -> list[set[Any]] | None:
    """Return the set of labels of every sample; None if samples have one label each, or y is a matrix.

    Args:
        y: a list, an object array or a Series. It has several labels if any of its items is a set, a list or a tuple;
            items that are neither are then single labels, as `gsnmf.reading.read_labels` returns them. Lists of one
            label each are a column of single labels, and lists of numbers of equal length are rows of a matrix.
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    if isinstance(y, (str, bytes)) or getattr(y, "ndim", 1) != 1 or kind != "O":
        return None
    items = [row.tolist() if isinstance(row, np.ndarray) else row for row in y] if hasattr(y, "__len__") else []
    if not any(isinstance(row, SEVERAL) for row in items) or _are_rows(items, column=not hasattr(y, "dtype")):
        return None
    try:
        sets = [set(row) if isinstance(row, SEVERAL) else {row} for row in items]
    except TypeError as error:
        raise ValueError(f"expected a set of labels for every sample; got labels of another kind ({error})") from None
    odd = next((row for row, labels in zip(items, sets, strict=True) if any(map(pd.isna, labels))), ...)
    if odd is not ...:
        raise ValueError(f"expected a set of labels for every sample, empty for none; got {odd!r} among sets")
    check_kinds(set().union(*sets))
    return sets


def _are_rows(items: list[Any], column: bool) -> bool:
    """Return whether lists of equal length are a matrix of numbers, or a column of single labels if that may be."""
    if not all(isinstance(row, (list, tuple)) for row in items) or len({len(row) for row in items}) != 1:
        return False
    if len(items[0]) == 1:
        return column
    return all(isinstance(x, (bool, int, float, np.bool, np.number)) for row in items for x in row)
