"""Prediction: scores and probabilities of classes under the dictionaries of several restarts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.model_selection import StratifiedKFold

from ..inference import Posterior
from ..inference.warning import quiet
from ..model import Priors
from ..model.priors import is_grouped
from .calibration import fit_temperature, temper
from .heads import EQUAL, LEARNED, fit_head, minus_angles
from .projection import both_cosines, class_cosines, combine
from .representation import Represented
from .restarts import Found, Recipe, by_bound, by_validation, hold_out
from .transduction import transduce

MOST = 2000  # training samples that are compared with all others for a temperature; more would not change it


class LearningPlan(NamedTuple):
    """Everything that determines what is learned, except the data: recipe, restarts and method of prediction."""

    recipe: Recipe
    keys: list[Any]
    select: str
    fraction: float
    part_seed: int
    transform_by: str
    predict_by: str
    verbose: int
    weights: tuple[float, ...] = EQUAL  # of a stacked head


class Memory(NamedTuple):
    """A fitted classifier: dictionaries, and the training samples that new samples are compared with.

    posteriors, priors: one of each for every restart.
    best: the index of the restart that was kept; sound: the indices of restarts with finite bounds.
    by: how samples are mapped into the space of a dictionary, "nnls" or "posterior".
    shares: proportions of classes among the known labels; None for priors without groups.
    classes: the class of every labelled training sample, as an index.
    coefficients: by restart, components × labelled training samples, mapped in the same way as new samples: E[V] of
        the fit has seen their labels.
    """

    posteriors: list[Posterior]
    priors: list[Priors]
    best: int
    sound: list[int]
    by: str
    shares: NDArray[Any] | None
    classes: NDArray[Any]
    coefficients: dict[int, NDArray[Any]]
    heads: dict[str, Any]

    def represent(self, samples: NDArray[Any], restart: int, by: str) -> NDArray[Any]:
        """Return the coefficients of samples (features × samples), components × samples."""
        return self._seen(samples, [restart], by).coefficients[0]

    def seen(self, samples: Any, predict_by: str = "blend", **options: Any) -> Represented:
        """Return samples (features × samples) under the restarts that take part in predictions."""
        return self._seen(samples, self.voters(predict_by), self.by, **options)

    def _seen(self, samples: Any, restarts: list[int], by: str, **options: Any) -> Represented:
        factors, priors = [self.posteriors[r] for r in restarts], [self.priors[r] for r in restarts]
        return Represented(factors, priors, by, self.shares, samples, **options)

    def voters(self, predict_by: str) -> list[int]:
        """Return the restarts that take part in predictions: all, except for the paper's nearest neighbour."""
        return [self.best] if predict_by == "nearest" else self.sound


def learn(plan: LearningPlan, X: NDArray[Any], y: NDArray[Any] | None, classes: Any) -> tuple[Found, Memory]:
    """Fit dictionaries and the head; return the fits, and the memory that predictions need.

    The arguments are those of `learn_dictionaries`.
    """
    if plan.predict_by == "stacked" and y is not None and len(classes) == 1:
        raise ValueError("expected two classes or more for predict_by='stacked'; got 1")
    found, memory = learn_dictionaries(plan, X, y, classes)
    known = np.flatnonzero(y >= 0) if y is not None else np.array([], int)
    if len(known) and plan.predict_by != "stacked":
        stored = "nearest" if plan.predict_by == "model" else plan.predict_by
        seen = memory.seen(X[:, known], stored)
        memory.coefficients.update(zip(memory.voters(stored), seen.coefficients, strict=True))
    if len(known) and plan.predict_by in LEARNED:
        given = None if plan.predict_by == "stacked" else [memory.coefficients[r] for r in memory.sound]
        seen = memory.seen(X[:, known], given=given)
        memory.heads[plan.predict_by] = fit_head(plan.predict_by, seen, memory.classes, plan.weights)
    return found, memory


def learn_dictionaries(
    plan: LearningPlan, X: NDArray[Any], y: NDArray[Any] | None, classes: Any
) -> tuple[Found, Memory]:
    """Fit from several starts; return the fits, and a memory without coefficients and heads.

    Args:
        plan: recipe, restarts and method of prediction.
        X: features × samples.
        y: the class of each sample as an index, −1 for an unlabelled sample; None without labels.
        classes: names of the classes.
    """
    if plan.select == "validation" and y is not None:
        part = hold_out(y, classes, plan.fraction, plan.part_seed)
        found = by_validation(plan.recipe, X, y, part, plan.keys, plan.verbose)
    else:
        found = by_bound(plan.recipe, X, y, plan.keys, plan.verbose)
    posteriors = [fit.posterior for fit in found.fits]
    priors: list[Any] = [fit.priors for fit in found.fits]  # learned by each, or the same
    known = np.flatnonzero(y >= 0) if y is not None else np.array([], int)
    index = y[known] if y is not None else known
    shares = np.bincount(index) / len(index) if len(index) and is_grouped(priors[found.best]) else None
    return found, Memory(posteriors, priors, found.best, found.sound, plan.transform_by, shares, index, {}, {})


def class_scores(memory: Memory, predict_by: str, samples: Any) -> NDArray[np.float64]:
    """Return scores of classes, samples × classes; the class with the highest score is the prediction.

    Scores are mean cosines for "nearest", "cosine" and "blend", proportions of votes for "vote", log π_c + the mean of
    ℒ_τ(c) over restarts for "model", and those of the head otherwise.

    Args:
        memory: from `learn`.
        predict_by: as in the estimator.
        samples: features × samples; or what `memory.seen` returned for them, so that its work is done once.
    """
    voters = memory.voters(predict_by)
    seen = samples if isinstance(samples, Represented) else memory.seen(samples, predict_by)
    if predict_by == "model":
        bounds: NDArray[np.float64] = seen.bounds + np.log(np.asarray(memory.shares, float))
        return bounds
    lacks = predict_by not in memory.heads if predict_by in LEARNED else not memory.coefficients.keys() >= {*voters}
    if lacks and predict_by in LEARNED:
        trained = ", ".join(map(repr, memory.heads)) or "none"
        raise ValueError(
            f"expected predict_by={predict_by!r} at fit, which trains it; got a fit that trained {trained}"
        )
    if lacks:
        raise ValueError(
            f"expected predict_by={predict_by!r} at fit, to keep all {len(voters)} restarts; "
            f"got a fit that kept {len(memory.coefficients)}"
        )
    if predict_by in LEARNED:
        return memory.heads[predict_by].scores(seen)  # type: ignore[no-any-return]  # of a dictionary of heads
    known = voters if len(seen.posteriors) == len(voters) else memory.sound
    return _neighbours(memory, predict_by, dict(zip(known, seen.coefficients, strict=True)), None)


def _neighbours(memory: Memory, predict_by: str, new: dict[int, NDArray[Any]], itself: Any) -> NDArray[np.float64]:
    """Return scores by cosines between coefficients; `new` has those of new samples by restart."""
    voters = memory.voters(predict_by)
    if predict_by == "nearest":
        return class_cosines(memory.coefficients[memory.best], memory.classes, new[memory.best], itself)[0]
    cosines = np.array([both_cosines(memory.coefficients[r], memory.classes, new[r], itself) for r in voters])
    return combine(cosines, predict_by)


def shares_of(scores: NDArray[np.float64], predict_by: str) -> NDArray[np.float64]:
    """Return uncalibrated probabilities: 1 for the nearest class, normalised cosines or votes, else exp(score)."""
    if predict_by in ("model", *LEARNED):
        odds: NDArray[np.float64] = softmax(scores, axis=1)
        return odds
    if predict_by == "nearest":
        scores = np.eye(scores.shape[1])[scores.argmax(axis=1)] * scores.any(axis=1, keepdims=True)
    scores = np.where(scores.any(axis=1, keepdims=True), scores, 1.0)  # a sample of zeros is equally near to all
    shares: NDArray[np.float64] = scores / scores.sum(axis=1, keepdims=True)
    return shares


def calibrated(scores: NDArray[np.float64], predict_by: str, temperature: float) -> NDArray[np.float64]:
    """Return p_τc ∝ exp(−angle / temperature) where scores are cosines, else p_τc ∝ exp(score / temperature)."""
    return temper(even(scores, predict_by), temperature)


def even(scores: NDArray[np.float64], predict_by: str) -> NDArray[np.float64]:
    """Return scores on a scale where differences are comparable: of cosines, their angles."""
    return scores if predict_by in ("vote", "model", *LEARNED) else minus_angles(scores)


def transduced(
    plan: LearningPlan, memory: Memory, X: NDArray[Any], y: NDArray[Any], num_classes: int
) -> NDArray[np.float64]:
    """Return probabilities of classes for all training samples, by q(z) or by `transduce`.

    For sparse X they are q(z), mean over restarts: on counts it is right more often than neighbours are, and a graph of
    neighbours takes long. For dense X, and if the priors do not distinguish classes, labels spread between neighbours
    in the spaces of dictionaries that are learned by this plan.

    Args:
        plan: as in `learn`.
        memory: from `learn`.
        X: features × samples.
        y: the class of each sample as an index, −1 for an unlabelled sample.
        num_classes: number of classes.
    """

    def refit(labels: NDArray[Any]) -> list[Any]:
        with quiet():  # the fit that is kept has warned already
            found = by_bound(plan.recipe, X, labels, plan.keys, 0)
        return [found.fits[r].posterior.T.mean for r in found.sound]

    sound = [memory.posteriors[r] for r in memory.sound]
    if scipy.sparse.issparse(X) and memory.shares is not None:
        mean: NDArray[np.float64] = np.mean([np.asarray(q.z, float) for q in sound], axis=0)
        return mean
    dictionaries = [q.T.mean for q in sound]
    return transduce(X, y, num_classes, dictionaries, refit=refit)


def temperature_on_training(memory: Memory, predict_by: str, X: NDArray[Any], seed: int) -> float | None:
    """Fit the temperature to the labelled training samples, none of which is its own neighbour.

    This needs no further fits, but the dictionaries have seen these samples, so that probabilities are a little too
    sure. With predict_by "model" there are no neighbours: the samples are folded in like new samples.

    Args:
        memory: from `learn`.
        predict_by: as in the estimator.
        X: the labelled samples, features × samples.
        seed: seed of the random subset, if there are more than `MOST` samples.

    Returns None if no class has two labelled samples, or if there is only one class.
    """
    index = memory.classes
    often = np.flatnonzero(np.bincount(index)[index] > 1) if predict_by != "model" else np.arange(len(index))
    if len(often) == 0 or index.max() == 0:
        return None
    if len(often) > MOST:
        often = np.sort(np.random.default_rng(seed).choice(often, MOST, replace=False))
    if predict_by == "model":
        scores = class_scores(memory, predict_by, X[:, often])
    else:
        new = {r: memory.coefficients[r][:, often] for r in memory.voters(predict_by)}
        scores = _neighbours(memory, predict_by, new, often)
    return fit_temperature(even(scores, predict_by), index[often])


def temperature_on_folds(
    plan: LearningPlan, X: NDArray[Any], y: NDArray[Any], classes: Any, folds: int
) -> float | None:
    """Fit the temperature by cross-validation: labelled samples are scored by dictionaries learned without them.

    Args:
        plan: as in `learn`.
        X: features × samples.
        y: the class of each sample as an index, −1 for an unlabelled sample; unlabelled samples are in every fold's
            fit.
        classes: names of the classes.
        folds: number of parts, which are left out in turn.
    """
    known = np.flatnonzero(y >= 0)
    if len(classes) < 2:
        return None
    sizes = np.bincount(y[known])
    if sizes.min() < folds:
        few = classes[sizes.argmin()]
        raise ValueError(
            f"expected {folds} labelled samples or more of every class for calibrate={folds}; got "
            f"{sizes.min()} of class {few}"
        )
    scores = np.zeros((len(known), len(classes)))
    cuts = StratifiedKFold(folds, shuffle=True, random_state=plan.part_seed)
    for _, new in cuts.split(known, y[known]):
        old = np.setdiff1d(np.arange(len(y)), known[new])
        _, memory = learn(plan, X[:, old], y[old], classes)
        scores[new] = class_scores(memory, plan.predict_by, X[:, known[new]])
    return fit_temperature(even(scores, plan.predict_by), y[known])
