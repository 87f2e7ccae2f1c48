"""Measures by which features of a component are ranked, features × components each.

    probability     p(ν|i) = t_νi / Σ_ν t_νi
    lift            p(ν|i) / p(ν),  p(ν) = Σ_i p(ν|i) p(i),  p(i) the component's proportion of Σ TV
    frex            harmonic mean of the ranks of ν within i, by p(ν|i) and by p(ν|i) / Σ_j p(ν|j)

The largest probabilities are often those of features that all components share; lift and FREX (Bischof and Airoldi,
2012) favour features that distinguish a component. Lift is largest for rare features, FREX balances both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from ..inference import Posterior, in_use
from ..model import Data, Gamma

Matrix = NDArray[np.float64]
MEASURES = ("probability", "lift", "frex")
WEIGHT = 0.5  # of exclusivity in FREX


class Measures(NamedTuple):
    """All measures of a posterior.

    probability, lift, frex: features × components.
    share: p(i), by component.
    used: whether each component explains anything.
    """

    probability: Matrix
    lift: Matrix
    frex: Matrix
    share: NDArray[np.float64]
    used: NDArray[np.bool_]


def measures(posterior: Posterior, data: Data | None = None) -> Measures:
    """Return all measures of a posterior.

    Components of a stream, which keeps no coefficients, count equally and are all taken to be in use.

    Args:
        posterior: its means count.
        data: as in `in_use`.
    """
    T, V = (np.asarray(q.mean, float) for q in (posterior.T, posterior.V))
    P = probabilities(T)
    used = in_use(posterior, data) if V.shape[1] else np.ones(T.shape[1], bool)
    share = T.sum(axis=0) * V.sum(axis=1) if V.shape[1] else np.ones(T.shape[1])
    share = share / share.sum()
    return Measures(P, lift(P, share), frex(P, used), share, used)


def probabilities(T_mean: ArrayLike) -> Matrix:
    """Return p(ν|i) = t_νi / Σ_ν t_νi.

    Args:
        T_mean: features × components.
    """
    T = np.asarray(T_mean, float)
    return np.asarray(T / np.maximum(T.sum(axis=0), np.finfo(float).tiny))


def lift(probability: Matrix, share: ArrayLike) -> Matrix:
    """Return p(ν|i) / Σ_i p(ν|i) p(i).

    Args:
        probability: p(ν|i), features × components.
        share: p(i), one for each component.

    >>> lift(np.array([[0.9, 0.5], [0.1, 0.5]]), [0.5, 0.5]).round(2).tolist()
    [[1.29, 0.71], [0.33, 1.67]]
    """
    overall = probability @ np.asarray(share, float)
    return np.asarray(probability / np.maximum(overall, np.finfo(float).tiny)[:, None])


def frex(probability: Matrix, used: NDArray[np.bool_] | None = None, weight: float = WEIGHT) -> Matrix:
    """Return FREX = (w/F(e_νi) + (1 − w)/F(p(ν|i)))⁻¹, e_νi = p(ν|i) / Σ_j p(ν|j).

    F is the empirical distribution function over the features of component i: the proportion of features with a value
    at most as large.

    Args:
        probability: p(ν|i), features × components.
        used: components j that count in the sum; a dead component, whose profile is flat, would make rare features look
            shared. None for all. (Adding i itself, if it is dead, would not change ranks.)
        weight: w, between 0 and 1, of exclusivity e.

    >>> P = np.array([[0.4, 0.4], [0.3, 0.05], [0.2, 0.05], [0.05, 0.3], [0.05, 0.2]])
    >>> P.argmax(axis=0).tolist(), frex(P).argmax(axis=0).tolist()
    ([0, 0], [1, 3])
    """
    kept = np.ones(probability.shape[1], bool) if used is None else used
    total = probability[:, kept].sum(axis=1, keepdims=True)
    exclusivity = probability / np.maximum(total, np.finfo(float).tiny)
    ranks = [rankdata(x, method="max", axis=0) / len(x) for x in (exclusivity, probability)]
    return np.asarray(1 / (weight / ranks[0] + (1 - weight) / ranks[1]))


def largest(measure: Matrix, n: int, probability: Matrix) -> NDArray[np.intp]:
    """Return the n features of every component with the largest measure, n × components; ties by probability.

    Args:
        measure: features × components.
        n: number of features, all of them if there are fewer.
        probability: p(ν|i).
    """
    return np.asarray(np.lexsort((-probability, -measure), axis=0)[:n])


def mean_field_sd(factor: Any, features: NDArray[np.intp], components: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the standard deviation of p(ν|i), linearised, as if all entries of T were independent.

        s² Var(p) = (1 − 2p) Var(t_νi) + p² Σ_μ Var(t_μi),    s = Σ_μ E[t_μi]

    Args:
        factor: q(T), features × components.
        features: of each pair.
        components: of each pair.
    """
    mean = np.asarray(factor.mean, float)
    spread = mean * np.asarray(factor.b) if isinstance(factor, Gamma) else factor.distribution().variance
    variance = np.broadcast_to(np.asarray(spread, float), mean.shape)
    s = mean.sum(axis=0)[components]
    p, own = mean[features, components] / s, variance[features, components]
    return np.asarray(np.sqrt(np.maximum((1 - 2 * p) * own + p**2 * variance.sum(axis=0)[components], 0)) / s)
