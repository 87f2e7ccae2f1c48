"""Intervals of a report: corrected by linear response, and the mean field's.

They are those of the fit continued with S summed out, whose means are less biased than those of CAVI.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..inference import Fit, Posterior, cavi, linear_response
from ..intervals import PROB, REFINING, beta_ends, profiles, proportion_intervals, proportions, totals, why_not
from ..model.types import Array
from .markup import percent
from .summary import Summary

Key = tuple[str, int, int]


class Width(NamedTuple):
    """A proportion of the refined fit: its mean, its interval by linear response, and that of the mean field."""

    mean: float
    low: float
    high: float
    own_low: float
    own_high: float

    def __str__(self) -> str:
        own = f"{percent(self.own_low)} to {percent(self.own_high)}"
        return f"{percent(PROB)} interval {percent(self.low)} to {percent(self.high)} (mean field: {own})"


class Widths(NamedTuple):
    """The intervals of a page.

    found: by ("feature", ν, i), t_νi/Σt; by ("sample", i, τ), the component's proportion of a sample; by ("total", i,
        0), its proportion of Σ TV.
    note: a sentence on what they are, or on why there are none.
    """

    found: dict[Key, Width]
    note: str

    def tip(self, *key: Any) -> str:
        """Return words for a tip; empty without this interval."""
        return f"; {self.found[key]}" if key in self.found else ""


MARKS = (
    " Line and point: interval and mean. Pale band: the mean field's interval, which ignores that factors depend on "
    "each other."
)


def none(why: str) -> Widths:
    """Return no intervals, and the reason."""
    return Widths({}, f"Intervals are left out: {why}.")


def find_widths(s: Summary, features: Sequence[tuple[int, int]], samples: Sequence[tuple[int, int]]) -> Widths:
    """Return intervals, where they can be had and do not take long.

    Args:
        s: the fit in numbers.
        features: pairs of a feature and a component.
        samples: pairs of a component and a sample.
    """
    why = why_not(s.fit, s.data, s.priors, len(features) + len(samples) + s.rank)
    if why is not None:
        return none(why)
    try:
        return _ask(s, features, samples)
    except ValueError as error:
        return none(str(error))


def _ask(s: Summary, features: Sequence[tuple[int, int]], samples: Sequence[tuple[int, int]]) -> Widths:
    of_features = profiles(*np.array(features, int).reshape(-1, 2).T)
    of_samples = proportions(*np.array(samples, int).reshape(-1, 2).T)

    def all_of(q: Posterior) -> Array:
        return jnp.concatenate([of_features(q), of_samples(q), totals(q)])

    refined = s.fit if s.fit.bound == "collapsed" else _refine(s)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        table = proportion_intervals(linear_response(refined, s.data, s.priors), all_of, PROB)
    own = beta_ends(table["mean"].to_numpy(), table["mean_field_sd"].to_numpy(), PROB)
    columns = [*table[["mean", "lower", "upper"]].to_numpy().T, *own]
    keys: list[Key] = [("feature", *pair) for pair in features] + [("sample", *pair) for pair in samples]
    keys += [("total", k, 0) for k in range(s.rank)]
    found = {key: Width(*map(float, row)) for key, row in zip(keys, zip(*columns, strict=True), strict=True)}
    late = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return Widths(found, _note(s.fit, late))


def _refine(s: Summary) -> Fit:
    return cavi.refine(s.fit, s.data, s.priors, **REFINING)


def _note(fit: Fit, late: bool) -> str:
    at = "this fit"
    if fit.bound != "collapsed":
        at += " continued with S summed out (cavi.refine), whose means may differ from those shown"
    said = f"{percent(PROB)} intervals come from linear response at {at}; they belong to the mode that the fit is in."
    return f"{said} The fit is not quite at its optimum, so that widths are rough." if late else said
