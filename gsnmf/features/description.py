"""One row for each component: top features, groups, size and example samples, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..inference import Posterior
from ..inference.results import factors_of, require_own_data
from ..model import Data, Gamma, Priors
from ..model.checks import whole
from ..model.conjugacy import rate_shape
from ..model.priors import canonical
from ..model.structures import served
from .measures import largest, measures
from .tables import fit_of, names_of


def describe_components(result: Any, data: Data, n: int = 8, *, priors: Priors | None = None) -> pd.DataFrame:
    """Describe every component in a row: what it is made of, which groups it serves, where it is largest.

    Args:
        result: a `Fit`, a `Posterior` or a fitted `GroupSparseNMF`.
        data: the data of the fit, with names.
        n: number of features in each list; a third as many example samples, at least one.
        priors: for the groups that components serve; by default those of the result.

    Returns a table indexed by component, with columns

        share           the component's proportion of Σ TV
        in_use          whether it explains anything
        top             features with the largest probabilities t_νi/Σt, as text
        distinctive     features with the largest FREX (`gsnmf.features.measures`)
        serves          groups for which the prior binds it, "all" for all; empty if the prior does not bind
        group           the group with most of its counts; empty without groups, as `serves`
        group_share     the proportion of its counts in that group (`counts_by_group` has all of them)
        samples         samples with the largest proportion of it, among those with at least the median of counts, as
                        proportions in small samples are uncertain

    >>> from gsnmf.model import Gamma, as_data
    >>> X = np.array([[40.0, 40.0], [30.0, 5.0], [20.0, 5.0], [5.0, 30.0], [5.0, 20.0]])
    >>> data = as_data(X, ["x", "y"], feature_names=["the", "cat", "mouse", "dog", "bone"])
    >>> q = Posterior(Gamma(X, np.ones((5, 2))), Gamma(9 * np.eye(2) + 0.1, np.ones((2, 2))), None)
    >>> describe_components(q, data, 1)[["distinctive", "group"]].to_numpy().tolist()
    [['cat', 'x'], ['dog', 'y']]
    """
    whole("n", n, 1)
    result = fit_of(result)
    posterior = factors_of(result)
    names = names_of(data, posterior)
    _check_samples(posterior, data)
    require_own_data(result, data)
    found = measures(posterior, data)
    best = {"top": largest(found.probability, n, found.probability)}
    best["distinctive"] = largest(found.frex, n, found.probability)
    table = pd.DataFrame({"share": found.share, "in_use": found.used})
    for column, features in best.items():
        table[column] = [_listed(names.feature[f]) for f in features.T]
    own = getattr(result, "priors", None) if priors is None else priors
    table["serves"] = [_served(row, names.group) for row in serves(own, data, len(table))]
    table["group"], table["group_share"] = "", np.nan
    if data.membership is not None:
        shares = counts_by_group(posterior, data).to_numpy()
        table["group"], table["group_share"] = names.group[shares.argmax(axis=1)], shares.max(axis=1)
    examples = example_samples(posterior, max(1, n // 3))
    table["samples"] = [_listed(names.sample[s]) for s in examples]
    return table.rename_axis("component")


def counts_by_group(result: Any, data: Data) -> pd.DataFrame:
    """Return which proportion of each component's expected counts is in each group, components × groups.

        Σ_{τ∈c} E[v_iτ] / Σ_τ E[v_iτ]

    Unlabelled samples count by the probabilities of their labels.

    Args:
        result: a `Fit`, a `Posterior` or a fitted `GroupSparseNMF`.
        data: the data of the fit.
    """
    posterior = factors_of(fit_of(result))
    names_of(data, posterior)
    _check_samples(posterior, data)
    if data.membership is None:
        raise ValueError("expected data with groups, as_data(X, groups); got data without groups")
    z = data.membership if posterior.z is None else posterior.z
    counts = np.asarray(posterior.V.mean, float) @ np.asarray(z, float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return pd.DataFrame(shares, columns=pd.Index(data.names.group, name="group")).rename_axis("component")


def serves(priors: Priors | None, data: Data, K: int) -> NDArray[np.bool_]:
    """Return which groups the prior of λ binds each component to, components × groups; no columns if it binds none.

    Args:
        priors: of the fit, or None.
        data: its data.
        K: number of components.
    """
    family: Any = None if priors is None else canonical(priors).coefficients
    bound = family is not None and family.axes == ("component", "group") and isinstance(family.hyperprior, Gamma)
    if not bound or rate_shape(family, data, K) != (K, data.num_groups):
        return np.zeros((K, 0), bool)
    return served(family.hyperprior, data.group_sizes, K)


def example_samples(posterior: Posterior, n: int) -> list[NDArray[np.intp]]:
    """Return the samples with the largest proportions of each component, of those with at least the median of counts.

    Args:
        posterior: its means count.
        n: number of samples of each component.
    """
    parts = np.asarray(posterior.T.mean, float).sum(axis=0)[:, None] * np.asarray(posterior.V.mean, float)
    totals = parts.sum(axis=0)
    large = np.flatnonzero(totals >= np.median(totals))
    proportions = parts[:, large] / np.maximum(totals[large], np.finfo(float).tiny)
    return [large[order[:n]] for order in np.argsort(-proportions, axis=1, kind="stable")]


def _check_samples(posterior: Posterior, data: Any) -> None:
    N = np.shape(posterior.V.mean)[1]
    if N == 0:
        raise ValueError("expected a fit with coefficients of samples; got one of a stream, which keeps none")
    if not isinstance(data, Data) or data.num_samples != N:
        got = f"{data.num_samples}" if isinstance(data, Data) else type(data).__name__
        raise ValueError(f"expected the data of the fit, with {N} samples; got {got}")


def _served(row: NDArray[np.bool_], groups: NDArray[Any]) -> str:
    return "all" if len(row) > 1 and row.all() else _listed(groups[: len(row)][row])


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
