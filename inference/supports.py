"""Distributions with a given mean and standard deviation, by the support of a quantity."""

from __future__ import annotations

import numpy as np
from scipy import stats


def _normal(tails: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.asarray(stats.norm.ppf(tails, mean, sd))


def _gamma(tails: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.asarray(stats.gamma.ppf(tails, (mean / sd) ** 2, scale=sd * (sd / mean)))


def _beta(tails: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    most = mean * (1 - mean)  # the variance of an indicator, which no other exceeds
    total = most / np.minimum(sd**2, 0.99 * most) - 1
    return np.asarray(stats.beta.ppf(tails, mean * total, (1 - mean) * total))


SUPPORTS = {"real": _normal, "positive": _gamma, "unit": _beta}  # quantiles from probabilities, mean and sd


def within(support: str, plain: np.ndarray, corrected: np.ndarray) -> np.ndarray:
    """Return corrected means, kept within the support: a correction towards an edge by more than half is damped.

    Args:
        support: one of `SUPPORTS`.
        plain: means within the support.
        corrected: the same, corrected.
    """
    if support == "real":
        return corrected
    below: np.ndarray = plain * np.where(
        corrected > plain / 2, corrected / plain, 0.5 * np.exp(2 * corrected / plain - 1)
    )
    if support == "positive":
        return below
    return 1 - within("positive", 1 - plain, 1 - below)
