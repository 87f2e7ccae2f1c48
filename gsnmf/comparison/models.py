"""A table of models: bounds, predictive scores and descriptions of the fits.

Bounds are comparable between fits of the same data that had the same chance of finding a high bound: the same
algorithm, starts and number of restarts. `Comparison` documents the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..classification.projection import accuracy
from ..inference import Fit, cavi, held_out_score, in_use, psis, to_arviz
from ..inference import evidence as log_evidence
from ..inference.arviz_compat import LeftOut, leave_one_out, stacking_weights
from ..inference.diagnostics import estimate, log_weights
from ..inference.results import divergence
from ..inference.starts import check_key
from ..model import Data, Gamma, GroupSparse
from ..model.checks import whole
from ..model.missing import with_nan
from .checks import Candidate, Trial, check_by, check_model, check_test, has_held_out, named
from .summary import RANKED, Comparison, arranged, remarks

Restarts: TypeAlias = Fit | Sequence[Fit]


def compare(
    fits: Mapping[Any, Restarts] | Sequence[Restarts],
    data: Data,
    *,
    by: str = "collapsed",
    key: Any = None,
    num_samples: int = 1000,
    loo: bool = True,
    test: tuple[ArrayLike, Sequence[Any]] | None = None,
    labels: Sequence[Any] | None = None,
    printed: bool = False,
    evidence: bool = False,
) -> Comparison:
    """Compare fits of the same data under different priors, best first.

    Args:
        fits: by name, or a list, whose names are 0, 1, ...; for each model a `Fit` of CAVI or SVI, or a list of fits
            from several starts, of which the fit with the highest bound represents the model.
        data: the data of all fits. Held-out entries, as by `hide`, are scored.
        by: the ranking measure: "collapsed" or "augmented", bounds on log p(X) with S summed out or not, which are
            never mixed; "held_out", the log predictive density of held-out entries; "loo", the log predictive density
            of whole samples left out.
        key: a JAX key for draws, the same for all models; `jax.random.key(0)` by default.
        num_samples: number of draws from each posterior.
        loo: whether to leave out samples and judge q by k̂; it takes most of the time, and keeps draws of T and V in
            memory.
        test: new samples (features × samples) and their labels, for the accuracy of the paper's classifier in the space
            of each dictionary.
        labels: labels of the samples of `data`, for `test`; their groups by default.
        printed: whether to show the paper's printed bound and its excess over the valid bound. It is not a valid bound,
            and never ranks.
        evidence: whether to estimate log p(X) itself, by `gsnmf.inference.evidence` with its defaults, which may take
            minutes for each model and needs whole numbers and conjugate priors.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[9.0, 1.0, 7.0, 0.0], [0.0, 8.0, 1.0, 9.0]])
    >>> priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 5.0))
    >>> fits = {K: cavi.run(data, priors, key=jax.random.key(0), rank=K) for K in (1, 2)}
    >>> compare(fits, data, num_samples=100, loo=False).best
    2
    """
    key = jax.random.key(0) if key is None else key
    check_key(key)
    whole("num_samples", num_samples, 25)
    check_by(by, data, loo)
    trial = check_test(test, labels, data)
    given = named(fits)
    models = {name: check_model(name, some, data) for name, some in given.items()}
    lacking = [str(name) for name, some in models.items() if any(np.isnan(one.augmented) for one in some)]
    if by == "augmented" and lacking:
        raise ValueError(
            "expected Gamma factors and conjugate priors for by='augmented', as augmented and collapsed bounds are "
            f"never mixed (by='collapsed' ranks all models); got only a collapsed bound for {', '.join(lacking)}"
        )
    draws: dict[str, Any] = {"key": key, "num_samples": num_samples}
    rows, terms, left_out = {}, {}, {}
    for name, some in models.items():
        best = _choose(some, draws)
        terms[name] = _terms(best, data, draws)
        rows[name] = {"augmented_bound": best.augmented, "restarts": len(given[name])}
        rows[name] |= _looks(best, data, trial, printed)
        if evidence:
            found = log_evidence(best.problem.data, best.problem.priors, key=key, rank=best.problem.rank)
            rows[name] |= {"evidence": found.value, "evidence_se": found.error}
        if loo:
            rows[name]["k_hat"] = psis(best.fit, best.problem, **draws)
            left_out[name] = _leave_samples_out(best, draws)
            terms[name]["loo"] = len(left_out[name].elpd) * left_out[name].elpd  # whose mean is the sum
        for measure, values in terms[name].items():
            rows[name][measure], rows[name][f"{measure}_se"] = estimate(values)
    table = pd.DataFrame.from_dict(rows, orient="index")
    if loo:
        table = table.join(_trust(left_out))
    table = table.sort_values(RANKED[by], ascending=False, kind="stable").rename_axis("model")
    table = arranged(table.join(_differences(table.index, terms)))
    return Comparison(table, by, remarks(table, by))


def _differences(order: pd.Index, terms: Mapping[Any, dict[str, NDArray[np.float64]]]) -> pd.DataFrame:
    """Return differences of all measures from the first model, paired by draw, entry or sample, and standard errors."""
    first, columns = terms[order[0]], {}
    for measure in first:
        gaps = [estimate(terms[name][measure] - first[measure]) for name in order]
        columns[f"{measure}_diff"], columns[f"{measure}_diff_se"] = zip(*gaps, strict=True)
    return pd.DataFrame(columns, index=order)


def _terms(one: Candidate, data: Data, draws: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return the terms whose means are the measures: log w of draws, log predictive density of held-out entries."""
    terms = {"collapsed_bound": np.asarray(log_weights(one.fit, one.problem, **draws), float)}
    if has_held_out(data):
        terms["held_out"] = held_out_score(one.fit, one.problem, **draws).per_entry
    return terms


def _leave_samples_out(one: Candidate, draws: dict[str, Any]) -> LeftOut:
    options: dict[str, Any] = {"log_likelihood": "sample", "posterior_predictive": False, "align": None}
    return leave_one_out(to_arviz(one.fit, one.problem, **draws, **options))


def _trust(left_out: Mapping[Any, LeftOut]) -> pd.DataFrame:
    """Return stacking weights, and the Pareto k that show how far to trust them."""
    numbered = {str(n): one for n, one in enumerate(left_out.values())}  # names need not be text
    columns = {
        "loo_weight": list(map(stacking_weights(numbered).get, numbered)),
        "loo_worst_k": [one.pareto_k.max() for one in left_out.values()],
        "loo_bad_k": [int((one.pareto_k > 0.7).sum()) for one in left_out.values()],
    }
    return pd.DataFrame(columns, index=list(left_out))


def _looks(one: Candidate, data: Data, trial: Trial | None, printed: bool) -> dict[str, Any]:
    """Return the columns that need no draws."""
    fit, q, used = one.fit, one.fit.posterior, in_use(one.fit.posterior, data)
    looks: dict[str, Any] = {"divergence": divergence(fit, data), "components": len(used), "in_use": int(used.sum())}
    if trial is not None:
        looks["accuracy"] = accuracy(q.T.mean, with_nan(data), trial.labels, trial.new, trial.new_labels)
    looks |= {"sweeps": fit.num_steps, "converged": fit.converged, "optimised": fit.bound}
    if printed:
        paper = isinstance(one.problem.priors.coefficients, (GroupSparse, Gamma)) and not np.isnan(one.augmented)
        gap = cavi.paper_bound_gap(q, data) if paper else np.nan  # only for the paper's model and Cemgil's
        looks |= {"paper_bound": one.augmented + gap, "paper_bound_gap": gap}
    return looks


def _choose(some: Sequence[Candidate], draws: dict[str, Any]) -> Candidate:
    """Return the restart with the highest bound, of the kind that it maximised."""
    if len(some) == 1:
        return some[0]

    def bound(one: Candidate) -> float:
        if one.fit.bound == "augmented":
            return float(one.fit.elbo[-1])
        return float(log_weights(one.fit, one.problem, **draws).mean())

    return max(some, key=bound)
