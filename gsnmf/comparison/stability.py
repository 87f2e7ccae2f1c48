"""Stability of components over restarts: which of them come back, and how well they are told apart.

Every restart has K components, whose profiles t_i/‖t_i‖ are compared by their cosines. A cluster has one component of
each restart: components are assigned to clusters by the Hungarian method, within their block (the components with the
same prior, such as those bound to one group), and clusters move to the mean of their members, until none changes.

A component that explains nothing (`in_use`) has a flat profile, which resembles that of any other dead component. It is
not a finding that comes back: it belongs to no cluster, and counts as not recovered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import silhouette_samples

from ..inference import Fit, Posterior, in_use, prune
from ..inference.alignment import assignment, blocks
from ..inference.results import factors_of, priors_of
from ..model import Data, Priors
from ..model.checks import require_fraction
from ..model.priors import is_grouped
from ..model.problem import Problem

THRESHOLD = 0.9  # cosine from which two profiles are the same component
SHARE = 0.5  # of the other restarts, in which a stable component comes back
MOST = 50  # moves of the clusters


class Consensus(NamedTuple):
    """Result of `consensus`.

    table: one row for each component of the reference, with columns in_use; comes_back, the share of the other restarts
        in which its cluster has a component with a cosine above the threshold; cosine, the mean over the other
        restarts (0 where the component is dead); silhouette, the mean over its cluster, 0 for dead components.
    profiles: features × components, the median over each cluster of t_νi/Σ_ν t_νi, scaled to sum to 1; 0 for a
        component that is dead in all restarts.
    members: restarts × components, the number that each component of the reference has in each restart; −1 where it is
        dead there.
    reference: the number of the reference among the restarts, the one with the highest bound.
    threshold: of cosines.
    """

    table: pd.DataFrame
    profiles: NDArray[np.float64]
    members: NDArray[np.intp]
    reference: int
    threshold: float

    @property
    def comes_back(self) -> float:
        """The mean of `comes_back` over components."""
        return float(self.table["comes_back"].mean())

    @property
    def silhouette(self) -> float:
        """The mean silhouette of the clusters, from −1 to 1; NaN for one component, which has no other cluster."""
        return float(self.table["silhouette"].mean(skipna=False))

    def stable(self, share: float = SHARE) -> NDArray[np.bool_]:
        """Return which components of the reference come back in at least this share of the other restarts.

        Args:
            share: above 0, at most 1.
        """
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)) or not 0 < share <= 1:
            raise ValueError(f"expected share above 0, at most 1; got {share!r}")
        return np.asarray(self.table["comes_back"] >= share)

    def prune(self, fit: Fit, data: Data, share: float = SHARE) -> Fit:
        """Return the reference without the components that do not come back, as `gsnmf.inference.prune` does.

        Args:
            fit: the reference, fits[consensus.reference].
            data: the data that it was fitted to.
            share: as in `stable`.
        """
        return prune(fit, data, self.stable(share))


def consensus(
    fits: Sequence[Fit | Posterior],
    data: Data | None = None,
    *,
    priors: Priors | None = None,
    threshold: float = THRESHOLD,
) -> Consensus:
    """Match the components of several restarts, and say how often each one comes back.

    Args:
        fits: two or more, of one model with the same number of components, from different random starts; or their
            posteriors, such as `restarts_` of the estimator.
        data: the data of the fits. Components with different priors, such as those bound to different groups, are then
            never matched; needed if the priors have groups.
        priors: by default those of the first fit that has any.
        threshold: cosine of profiles from which two components are taken for the same.

    >>> from gsnmf.model import Gamma
    >>> a = np.array([[9.0, 1.0], [1.0, 5.0], [2.0, 8.0]])
    >>> one, other = (Posterior(Gamma(t, 1.0), Gamma(np.full((2, 4), 9.0), 1.0), None) for t in (a, a[:, ::-1]))
    >>> consensus([one, other]).table["comes_back"].tolist()
    [1.0, 1.0]
    """
    posteriors = _check(fits, threshold)
    K = np.shape(posteriors[0].T.mean)[1]
    block = _blocks(fits, data, priors, K)
    used = np.stack([_used(q, data) for q in posteriors])
    T = np.stack([np.asarray(q.T.mean, float) for q in posteriors])
    unit = T / np.maximum(np.linalg.norm(T, axis=1, keepdims=True), np.finfo(float).tiny) * used[:, None, :]
    best = _reference(fits)
    orders = _clusters(unit, block, best)
    matched = np.take_along_axis(unit, orders[:, None, :], axis=2)
    alive = np.take_along_axis(used, orders, axis=1)
    cosines = np.delete((matched * matched[best]).sum(axis=1), best, axis=0)
    table = pd.DataFrame({"in_use": used[best], "comes_back": (cosines >= threshold - 1e-9).mean(axis=0)})
    table["cosine"], table["silhouette"] = cosines.mean(axis=0), _silhouettes(matched, alive)
    members = np.where(alive, orders, -1)
    return Consensus(table.rename_axis("component"), _profiles(T, orders, alive), members, best, threshold)


def _clusters(unit: NDArray[Any], block: NDArray[Any], best: int) -> NDArray[np.intp]:
    """Return the order of each restart's components that puts members of a cluster at one place, as in the reference.

    Args:
        unit: restarts × features × components, of length 1, or 0 for dead components.
        block: a number for every component.
        best: the number of the reference.
    """
    centre, orders = unit[best], np.zeros((len(unit), unit.shape[2]), np.intp)
    for _ in range(MOST):
        found = np.stack([assignment(centre.T @ one, block) for one in unit])
        found[best] = np.arange(unit.shape[2])  # its components name the clusters
        if (found == orders).all():
            break
        orders = found
        centre = np.take_along_axis(unit, orders[:, None, :], axis=2).sum(axis=0)
        centre = centre / np.maximum(np.linalg.norm(centre, axis=0), np.finfo(float).tiny)
    return orders


def _silhouettes(matched: NDArray[Any], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the mean silhouette of each cluster by cosine distance, with 0 for dead components; NaN for one cluster.

    Args:
        matched: restarts × features × components, members of a cluster at one place.
        alive: restarts × components.
    """
    R, _, K = matched.shape
    if K == 1:
        return np.full(1, np.nan)
    columns = np.moveaxis(matched, 1, 2)[alive]
    label, values = np.broadcast_to(np.arange(K), (R, K))[alive], np.zeros((R, K))
    if 2 <= len(np.unique(label)) < len(label):
        distance = np.maximum(1 - columns @ columns.T, 0)
        np.fill_diagonal(distance, 0)
        values[alive] = silhouette_samples(distance, label, metric="precomputed")
    return np.asarray(values.mean(axis=0))


def _profiles(T: NDArray[Any], orders: NDArray[np.intp], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    P = np.take_along_axis(T / T.sum(axis=1, keepdims=True), orders[:, None, :], axis=2)
    found = np.zeros(P.shape[1:])
    for k in np.flatnonzero(alive.any(axis=0)):
        found[:, k] = np.median(P[alive[:, k], :, k], axis=0)
    return np.asarray(found / np.maximum(found.sum(axis=0), np.finfo(float).tiny))


def _reference(fits: Sequence[Any]) -> int:
    """Return the number of the fit with the highest bound, the first of posteriors."""
    return int(np.argmax([fit.elbo[-1] if isinstance(fit, Fit) else 0.0 for fit in fits]))


def _used(posterior: Posterior, data: Data | None) -> NDArray[np.bool_]:
    """Return the components in use; all for a stream, which keeps no coefficients."""
    if np.shape(posterior.V.mean)[1] == 0:
        return np.ones(np.shape(posterior.T.mean)[1], bool)
    return in_use(posterior, data)


def _blocks(fits: Sequence[Any], data: Data | None, priors: Priors | None, K: int) -> NDArray[Any]:
    """Return a number for every component, the same for those that may be matched."""
    owner = next((fit for fit in fits if getattr(fit, "priors", None) is not None), None)
    priors = priors if owner is None else priors_of(owner, priors)
    if data is None and priors is not None and is_grouped(priors):
        raise ValueError("expected data, as components are matched within their groups; got data=None")
    if data is None or priors is None:
        return np.zeros(K, int)
    return blocks(Problem(data, priors, K), bool(getattr(owner, "learned", False)))


def _check(fits: Any, threshold: float) -> list[Posterior]:
    """Return the posteriors; raise unless there are two or more with finite factors of one shape."""
    require_fraction("threshold", threshold)
    if isinstance(fits, (Fit, Posterior)) or not isinstance(fits, (list, tuple)) or len(fits) < 2:
        several = isinstance(fits, (list, tuple)) and not isinstance(fits, (Fit, Posterior))
        got = f"{len(fits)}" if several else type(fits).__name__
        raise ValueError(f"expected two or more fits, from different starts; got {got}")
    posteriors = [factors_of(fit) for fit in fits]
    shapes = {np.shape(q.T.mean) for q in posteriors}
    if len(shapes) > 1:
        raise ValueError(f"expected fits with T of one shape, before any are pruned; got {sorted(shapes)}")
    if not all(np.isfinite(np.asarray(q.T.mean)).all() for q in posteriors):
        raise ValueError("expected fits whose factors are finite; got a failed fit among them")
    return posteriors
