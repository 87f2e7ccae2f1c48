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
from ..inference import Fit, cavi, held_out_score, in_use, leave_one_out, psis, to_arviz
from ..inference import evidence as log_evidence
from ..inference.arviz_compat import arviz_loo
from ..inference.diagnostics import estimate, log_weights
from ..inference.leave_one_out import FEWEST, MAX_K
from ..inference.results import divergence
from ..inference.starts import check_key
from ..inference.warning import quiet
from ..model import Data, Gamma, GroupSparse
from ..model.checks import whole
from ..model.conjugacy import require_closed_forms
from ..model.missing import with_nan
from ..model.problem import require_counts
from .checks import (
    Candidate,
    Trial,
    can_refit,
    check_by,
    check_flags,
    check_model,
    check_test,
    has_held_out,
    leaves_out,
    named,
)
from .summary import RANKED, Comparison, arranged, remarks

MOST = 400  # draws for LOO, which needs fewer than bounds
Restarts: TypeAlias = Fit | Sequence[Fit]


def compare(
    fits: Mapping[Any, Restarts] | Sequence[Restarts],
    data: Data,
    *,
    by: str = "collapsed",
    key: Any = None,
    num_samples: int = 1000,
    loo: bool | None = None,
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
            of whole samples left out, by `leave_one_out`; "conditional_loo", the same given the coefficients of each
            sample, by `az.loo`, which is not reliable (its Pareto k are shown) and not computed otherwise.
        key: a JAX key for draws, the same for all models; `jax.random.key(0)` by default.
        num_samples: number of draws from each posterior.
        loo: whether to leave out samples and judge q by k̂; it takes most of the time: every model is fitted again
            without each sample. By default for a dense X; samples of a sparse X are never left out. Models without
            closed forms have no value.
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
    check_flags(loo, printed, evidence)
    loo = leaves_out(loo, by, data)
    check_by(by, data, loo)
    trial = check_test(test, labels, data)
    given = named(fits)
    models = {name: check_model(name, some, data) for name, some in given.items()}
    _check_judges(by, evidence, models, data)
    draws: dict[str, Any] = {"key": key, "num_samples": num_samples}
    rows, terms = {}, {}
    for name, some in models.items():
        best = _choose(some, draws)
        terms[name] = _terms(best, data, draws)
        rows[name] = {"augmented_bound": best.augmented, "restarts": len(given[name])}
        rows[name] |= _looks(best, data, trial, printed) | _measures(best, draws, terms[name], by, loo, evidence)
    table = pd.DataFrame.from_dict(rows, orient="index")
    if loo and all(can_refit(some[0]) for some in models.values()):
        table["loo_weight"] = stacking_weights(
            np.array([terms[name]["loo"] for name in table.index]) / data.num_samples
        )
    table = table.sort_values(RANKED[by], ascending=False, kind="stable").rename_axis("model")
    table = arranged(table.join(_differences(table.index, terms)))
    return Comparison(table, by, remarks(table, by))


def _check_judges(by: str, evidence: bool, models: Mapping[Any, Sequence[Any]], data: Data) -> None:
    """Raise for a measure that some model does not have."""
    lacking = [str(name) for name, some in models.items() if any(np.isnan(one.augmented) for one in some)]
    if by == "augmented" and lacking:
        raise ValueError(
            "expected Gamma factors and conjugate priors for by='augmented', as augmented and collapsed bounds are "
            f"never mixed (by='collapsed' ranks all models); got only a collapsed bound for {', '.join(lacking)}"
        )
    without = [str(name) for name, some in models.items() if not can_refit(some[0])]
    if by == "loo" and without:
        got = f"priors without closed forms for {', '.join(without)}"
        raise ValueError(f"expected priors with closed forms for by='loo'; got {got}")
    if evidence:
        require_counts(data)
        for some in models.values():
            require_closed_forms(some[0].problem.priors, "the evidence")


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


def _measures(
    one: Candidate, draws: dict[str, Any], terms: dict[str, NDArray[np.float64]], by: str, loo: bool, evidence: bool
) -> dict[str, Any]:
    """Return the columns that need draws, and add the terms of samples left out."""
    columns: dict[str, Any] = {}
    if evidence:
        found = log_evidence(one.problem.data, one.problem.priors, key=draws["key"], rank=one.problem.rank)
        columns |= {"evidence": found.value, "evidence_se": found.error}
    if loo:
        columns["k_hat"] = psis(one.fit, one.problem, **draws)
        columns |= _leave_samples_out(one, draws, terms)
    if by == "conditional_loo":
        columns |= _conditionally(one, draws, terms)
    for measure, values in terms.items():
        columns[measure], columns[f"{measure}_se"] = estimate(values)
    return columns


def _leave_samples_out(one: Candidate, draws: dict[str, Any], terms: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return the columns of `leave_one_out`, and add its terms; NaN for a model without closed forms."""
    if not can_refit(one):
        terms["loo"] = np.full(one.problem.data.num_samples, np.nan)
        return {"loo_worst_k": np.nan, "loo_bad_k": np.nan}
    num = max(FEWEST, min(draws["num_samples"], MOST))
    with quiet():  # the table has k̂
        found = leave_one_out(one.fit, one.problem, key=draws["key"], num_samples=num)
    terms["loo"] = len(found.elpd) * found.elpd  # whose mean is the sum
    return {"loo_worst_k": found.pareto_k.max(), "loo_bad_k": int(found.unreliable.sum())}


def _conditionally(one: Candidate, draws: dict[str, Any], terms: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return the columns of `az.loo` given the coefficients of each sample, and add its terms."""
    options: dict[str, Any] = {"log_likelihood": "sample", "posterior_predictive": False, "align": None}
    found = arviz_loo(to_arviz(one.fit, one.problem, **draws, **options))
    terms["conditional_loo"] = len(found.elpd) * found.elpd
    return {"conditional_loo_bad_k": int((found.pareto_k > MAX_K).sum())}


def stacking_weights(elpd: NDArray[np.float64], steps: int = 5000) -> NDArray[np.float64]:
    """Return the weights of the mixture of models that best predicts the samples left out: max Σ_τ log Σ_m w_m p_mτ.

    Args:
        elpd: log p_mτ, models × samples.
        steps: of EM, which never lowers the maximand.

    >>> stacking_weights(np.log([[0.5, 0.5], [0.1, 0.1]])).round(3).tolist()
    [1.0, 0.0]
    """
    p = np.exp(elpd - elpd.max(axis=0))
    weights = np.full(len(p), 1 / len(p))
    for _ in range(steps):
        weights = weights * (p / (weights @ p)).mean(axis=1)
    return weights


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
