"""Invariants: quantities that do not depend on the order or scale of components, so that algorithms must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from ..inference import Posterior, invariants
from ..model import Data, Gamma, Priors
from ..model.priors import canonical, is_grouped
from ..model.structures import served

ENTRIES = 2**24  # entries of TV over draws that are held in memory at once


class Invariant(NamedTuple):
    """A quantity with one value for every draw.

    name: its name in files.
    heading: its short name in tables.
    title: its name in sentences and pictures.
    of: a function of the result of `inference.invariants`.
    """

    name: str
    heading: str
    title: str
    of: Callable[[Any], Any]


def choose(data: Data, priors: Priors, posterior: Posterior) -> list[Invariant]:
    """Choose invariants for these data: of TV where X was observed, and of the component that explains most of X.

    Args:
        data: the data of the fits.
        priors: the priors of the fits; they specify the own group of each component, if it has one.
        posterior: CAVI's posterior, to which components are aligned.
    """
    X = np.asarray(data.X, float)
    W = np.ones_like(X) if data.mask is None else np.asarray(data.mask, float)
    f, s = map(int, np.unravel_index(X.argmax(), X.shape))
    counts = np.asarray(posterior.T.mean, float).sum(axis=0) * np.asarray(posterior.V.mean, float).sum(axis=1)
    i = int(counts.argmax())
    peak = int(np.asarray(posterior.T.mean)[:, i].argmax())
    feature, sample = data.names.feature, data.names.sample
    asked = [
        Invariant("total", "Σ TV", "the total Σ TV", lambda x: (x["TV"] * W).sum(("feature", "sample"))),
        Invariant(
            "largest", "TV at max x", f"TV at the largest x (feature {feature[f]}, sample {sample[s]})",
            lambda x: x["TV"].isel(feature=f, sample=s),
        ),
        Invariant("log_likelihood", "log p(X|TV)", "the log likelihood", lambda x: _log_likelihood(X, W, x["TV"])),
        Invariant(
            "peak", "t/Σt", f"the largest t/Σt of component {i} (feature {feature[peak]})",
            lambda x: x["profile"].isel(component=i, feature=peak),
        ),
    ]  # fmt: skip
    own = own_groups(data, priors, len(counts))
    if own is None:
        title = f"the proportion of component {i} in Σ TV"
        share = Invariant("share", "share", title, lambda x: _share(x, component=i))
    else:
        within = np.asarray(own, float) @ np.where(data.known[:, None], np.asarray(data.membership, float), 0).T
        title = "the proportion of Σ TV in components' own groups"
        title += "" if data.known.all() else ", where labels are known"
        share = Invariant("own_share", "own share", title, lambda x: _share(x, within=within))
    asked.append(share)
    rows, columns = canonical(priors).coefficients.axes
    if posterior.lam is not None and rows == "component":  # else λ does not scale with a single component
        where, title = {"sample": s, "all_samples": 0}, f"log λ/Σt of component {i}"
        if is_grouped(priors):
            V = np.asarray(posterior.V.mean)[i]
            where["group"] = c = int((own[i] if own is not None else V @ np.asarray(data.membership)).argmax())
            title += f" in group {data.names.group[c]}"
        at = {"component": i, columns: where[columns]}
        asked.append(Invariant("log_rate", "log λ/Σt", title, lambda x: np.log(x["rate"].isel(at))))
    return asked


def own_groups(data: Data, priors: Priors, rank: int) -> np.ndarray | None:
    """Return whether component i belongs to group c, where λ_ic has its least prior mean; None if all belong to all.

    The result is components × groups, of booleans.
    """
    rate = canonical(priors).coefficients.hyperprior
    if not is_grouped(priors) or not isinstance(rate, Gamma):
        return None
    own = served(rate, data.group_sizes, rank)
    return None if own.all() else own


def evaluate(posterior: Any, asked: list[Invariant]) -> dict[str, np.ndarray]:
    """Evaluate invariants, chains × draws each, in double precision, as many draws at once as memory allows.

    Args:
        posterior: the posterior group of the result of `to_arviz`.
        asked: from `choose`.
    """
    sizes = posterior.sizes
    step = max(1, ENTRIES // (sizes["chain"] * sizes["feature"] * sizes["sample"]))
    parts = []
    for begin in range(0, sizes["draw"], step):
        some = invariants({"posterior": posterior.isel(draw=slice(begin, begin + step)).astype(float)})
        parts.append([q.of(some).transpose("chain", "draw").values for q in asked])
    return {q.name: np.concatenate(x, axis=1) for q, x in zip(asked, zip(*parts, strict=True), strict=True)}


def _log_likelihood(X: np.ndarray, W: np.ndarray, TV: Any) -> Any:
    """Return Σ w [x log TV − TV − log Γ(x + 1)]; 0 log 0 is 0, and x is 0 where w is."""
    log = np.log(np.maximum(TV, np.finfo(float).tiny))
    return (log * X - TV * W).sum(("feature", "sample")) - gammaln(X + 1).sum()


def _share(x: Any, *, within: np.ndarray | None = None, component: int | None = None) -> Any:
    """Return the proportion of Σ_iτ v_iτ Σ_ν t_νi where `within`, components × samples, is 1; or of one component."""
    activation = x["activation"]
    total = activation.sum(("component", "sample"))
    if within is None:
        return activation.isel(component=component).sum("sample") / total
    return (activation * within).sum(("component", "sample")) / total
