"""The largest features of components as a table, with intervals whose kind is stated in every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..inference import Fit, LinearResponse, Posterior, cavi, linear_response
from ..inference.families import Point
from ..inference.results import factors_of, require_own_data
from ..intervals import PROB, REFINING, TINY, beta_ends, profiles, proportion_intervals, rows_of, why_not
from ..model import Data, Priors
from ..model.checks import require_flag, require_fraction, whole
from ..model.metadata import Names
from .measures import MEASURES, largest, mean_field_sd, measures

INTERVALS = ("auto", "linear response", "mean field")


def top_features_table(
    result: Any,
    data: Data | Names,
    n: int = 10,
    *,
    by: str = "probability",
    components: ArrayLike | None = None,
    intervals: str = "auto",
    prob: float = PROB,
    refine: bool = True,
    corrected: bool = False,
    priors: Priors | None = None,
) -> pd.DataFrame:
    """Return the largest features of every component, with an interval of each one's probability.

    Args:
        result: a `Fit`, a `Posterior`, a fitted `GroupSparseNMF`, or a `LinearResponse`, so that its work is done once.
        data: the data of the fit, with names; for intervals="mean field", `data.names` suffices.
        n: number of features of each component, all of them if there are fewer.
        by: the measure that ranks features (`gsnmf.features.measures`): "probability", p(ν|i) = t_νi/Σ_ν t_νi; "lift",
            p(ν|i)/p(ν); or "frex", which favours features that are both frequent and exclusive.
        components: numbers of the components; all by default.
        intervals: "linear response", which takes into account that factors depend on each other; "mean field", which
            does not, is too narrow, and costs nothing; "auto" for linear response where it is estimated to take at most
            ten seconds (`gsnmf.intervals.WORK`), else the mean field.
        prob: probability of the intervals, with Beta quantiles.
        refine: for linear response, whether to continue the fit with S summed out first (`cavi.refine`), which removes
            most of its bias. The table is then that of the refined fit.
        corrected: for linear response, whether to correct the means as well; for small problems with all labels known.
        priors: by default those of the result.

    Returns a table with columns component; rank, from 1; feature, its name; probability, lift, frex; lower, upper, sd
    of the probability; width, "linear response", "mean field", or "none" for a point estimate; and mean_field_sd.

    >>> from gsnmf.model import Gamma, as_data
    >>> X = np.array([[40.0, 40.0], [30.0, 5.0], [20.0, 5.0], [5.0, 30.0], [5.0, 20.0]])
    >>> data = as_data(X, feature_names=["the", "cat", "mouse", "dog", "bone"])
    >>> q = Posterior(Gamma(X, np.ones((5, 2))), Gamma(9 * np.eye(2) + 0.1, np.ones((2, 2))), None)
    >>> table = top_features_table(q, data, 1, by="frex")
    >>> table[["component", "feature", "width"]].to_numpy().tolist()
    [[0, 'cat', 'mean field'], [1, 'dog', 'mean field']]
    """
    whole("n", n, 1)
    require_fraction("prob", prob)
    for name, flag in {"refine": refine, "corrected": corrected}.items():
        require_flag(name, flag)
    for name, value, known in (("by", by, MEASURES), ("intervals", intervals, INTERVALS)):
        if value not in known:
            raise ValueError(f"expected {name} to be one of {', '.join(map(repr, known))}; got {value!r}")
    result = fit_of(result)
    posterior = result.posterior if isinstance(result, LinearResponse) else factors_of(result)
    names = names_of(data, posterior)
    if isinstance(data, Data):
        require_own_data(result, data)
    chosen = rows_of(components, np.shape(posterior.T.mean)[1], "components to be numbers")
    response = _response(result, data, priors, min(n, len(names.feature)) * len(chosen), intervals, refine)
    if corrected and response is None:
        raise ValueError("expected intervals by linear response with corrected=True; got the mean field's")
    q = posterior if response is None else response.posterior
    found = measures(q, data if isinstance(data, Data) else None)
    best = largest(getattr(found, by)[:, chosen], n, found.probability[:, chosen])
    f, i = best.T.ravel(), np.repeat(chosen, len(best))
    columns: dict[str, Any] = {
        "component": i,
        "rank": np.tile(np.arange(1, len(best) + 1), len(chosen)),
        "feature": names.feature[f],
    }
    columns |= {name: getattr(found, name)[f, i] for name in MEASURES}
    if response is None:
        return pd.DataFrame(columns | _mean_field(q.T, columns["probability"], f, i, prob))
    table = proportion_intervals(response, profiles(f, i), prob, corrected=corrected)
    columns |= {"probability": table["mean"]} | {name: table[name] for name in ("lower", "upper", "sd")}
    return pd.DataFrame(columns | {"width": "linear response", "mean_field_sd": table["mean_field_sd"]})


def _response(
    result: Any, data: Any, priors: Priors | None, number: int, intervals: str, refine: bool
) -> LinearResponse | None:
    """Return the response to ask for intervals; None for those of the mean field."""
    if intervals == "mean field":
        return None
    if isinstance(result, LinearResponse):
        return result
    if not isinstance(data, Data) and intervals == "linear response":
        raise ValueError(f"expected Data, as made by as_data(X), for linear response; got {type(data).__name__}")
    if intervals == "auto" and (not isinstance(data, Data) or why_not(result, data, priors, number) is not None):
        return None
    if refine and isinstance(result, Fit) and result.bound != "collapsed":
        result = cavi.refine(result, data, priors, **REFINING)
    return linear_response(result, data, priors)


def _mean_field(
    factor: Any, mean: NDArray[np.float64], f: NDArray[np.intp], i: NDArray[np.intp], prob: float
) -> dict[str, Any]:
    """Return the columns about widths in the mean field; a point estimate has no width."""
    if isinstance(factor, Point):
        return dict.fromkeys(("lower", "upper", "sd"), np.nan) | {"width": "none", "mean_field_sd": np.nan}
    sd = mean_field_sd(factor, f, i)
    low, high = beta_ends(np.maximum(mean, TINY), sd, prob)
    return {"lower": low, "upper": high, "sd": sd, "width": "mean field", "mean_field_sd": sd}


def fit_of(result: Any) -> Any:
    """Return the fit of a fitted estimator; any other result as it is."""
    return result._fit if hasattr(result, "posterior_") and hasattr(result, "_fit") else result


def names_of(data: Any, posterior: Posterior) -> Names:
    """Return the names in data, or these names themselves; raise unless there is one for each feature."""
    names = data.names if isinstance(data, Data) else data
    if not isinstance(names, Names):
        raise ValueError(f"expected Data, as made by as_data(X, feature_names=...); got {type(data).__name__}")
    F = np.shape(posterior.T.mean)[0]
    if len(names.feature) != F:
        raise ValueError(f"expected names of {F} features, as in the fit; got {len(names.feature)}")
    return names
