"""The numbers that a report shows, computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri

from ..classification.least_squares import nnls
from ..classification.projection import nearest_other
from ..drawing.plots import component_order, mean_by_group
from ..inference import Fit, in_use
from ..inference.families import Correlated, LogNormal
from ..intervals import PROB
from ..model import Data, Gamma, Priors
from ..model.priors import canonical

if TYPE_CHECKING:
    from .widths import Width, Widths

MOST = 2000  # samples that are classified, and that a heat map draws


class Interval(NamedTuple):
    """E[λ] and the ends of a central interval, each of the shape of λ."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Guesses(NamedTuple):
    """Labels of samples by their nearest neighbours.

    matrix: confusion matrix, true groups × guessed groups, in numbers of samples.
    classified: number of samples in the matrix.
    possible: number of samples with a single known label.
    """

    matrix: NDArray[np.int_]
    classified: int
    possible: int

    @property
    def accuracy(self) -> float:
        """The proportion of samples on the diagonal."""
        return float(np.trace(self.matrix) / self.classified)


class Summary(NamedTuple):
    """A fit in numbers.

    T, V: E[T], features × components, and E[V], components × samples.
    membership: samples × groups, probabilities for unlabelled samples; None without groups.
    means: groups × components, mean coefficients; None without groups.
    home: the group in which each component is most active; None without groups.
    share: each component's proportion of Σ TV.
    used: whether each component explains anything.
    orders: orders of the components, by sorting criterion.
    misfit: KL(x ‖ TV) of every sample.
    lam: mean and interval of λ; None for a family without λ.
    lam_axes: names of the rows and columns of λ.
    widths: intervals of proportions; None if they were not asked for.
    """

    fit: Fit
    data: Data
    priors: Priors | None
    T: NDArray[np.float64]
    V: NDArray[np.float64]
    membership: NDArray[np.float64] | None
    means: NDArray[np.float64] | None
    home: NDArray[np.intp] | None
    share: NDArray[np.float64]
    used: NDArray[np.bool_]
    orders: dict[str, list[int]]
    misfit: NDArray[np.float64]
    lam: Interval | None
    lam_axes: tuple[str, str]
    widths: Widths | None = None

    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
        return [str(name) for name in self.data.names.group]

    @property
    def rank(self) -> int:
        """The number of components, K."""
        return len(self.share)

    @property
    def label_index(self) -> NDArray[np.intp]:
        """The group of every sample, the most probable group for an unlabelled sample; −1 for all without groups."""
        if self.membership is None:
            return np.full(self.data.num_samples, -1)
        index: NDArray[np.intp] = self.membership.argmax(axis=1)
        return index

    def width(self, *key: Any) -> Width | None:
        """Return the interval of a proportion (see `Widths`), if it is known."""
        return None if self.widths is None else self.widths.found.get(key)

    def shown(self, sample: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a sample, with NaN where entries are missing or held out, and its reconstruction E[T] E[V]."""
        return np.asarray(self.data.matrix.columns(sample), float), self.T @ self.V[:, sample]

    def top_features(self, component: int, most: int = 8) -> NDArray[np.intp]:
        """Return the features with the largest E[t] of a component."""
        return np.argsort(-self.T[:, component], kind="stable")[:most]

    def made_of(self, sample: int, most: int = 4) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the components that explain most of a sample, and their proportions of it."""
        parts = self.T.sum(axis=0) * self.V[:, sample]
        best = np.argsort(-parts, kind="stable")[:most]
        shares = parts[best] / (parts.sum() or 1)
        return best[shares >= 0.02], shares[shares >= 0.02]

    def belongs(self, component: int) -> str:
        """Return the name of the component's group; empty without groups."""
        return "" if self.home is None else self.groups[self.home[component]]


def summarise(fit: Fit, data: Data, priors: Priors | None) -> Summary:
    """Compute all numbers of a fit; the arguments are those of `report`, after validation."""
    T, V = (np.asarray(q.mean, float) for q in fit.posterior[:2])
    sizes = T.sum(axis=0) * V.sum(axis=1)
    orders = {"size": np.argsort(-sizes, kind="stable").tolist(), "number": list(range(len(sizes)))}
    membership = means = home = None
    if data.membership is not None:
        z = fit.posterior.z
        membership = np.asarray(data.membership if z is None else z, float)
        means = mean_by_group(V, membership)
        home, orders = means.argmax(axis=0), {"class": component_order(V, membership).tolist()} | orders
    lam = fit.posterior.lam
    family = None if priors is None else canonical(priors).coefficients
    axes = ("component", "group") if family is None else family.axes
    return Summary(
        fit=fit,
        data=data,
        priors=priors,
        T=T,
        V=V,
        membership=membership,
        means=means,
        home=home,
        share=sizes / (sizes.sum() or 1),
        used=in_use(fit.posterior, data),
        orders=orders,
        misfit=data.matrix.divergences(T, V),
        lam=None if lam is None else interval(lam),
        lam_axes=axes,
    )


def interval(factor: Any, prob: float = PROB) -> Interval:
    """Return the mean and marginal quantiles of every entry.

    Args:
        factor: a factor of a posterior; a point estimate has no width.
        prob: probability of the interval.

    >>> interval(Gamma(np.array([[1.0]]), np.array([[2.0]]))).high.round(2).tolist()  # −2 log 0.05
    [[5.99]]
    """
    ends = np.array([(1 - prob) / 2, (1 + prob) / 2])[:, None, None]
    mean = np.atleast_2d(np.asarray(factor.mean, float))
    if isinstance(factor, Gamma):
        a, b = (np.broadcast_to(np.asarray(x, float), mean.shape) for x in factor)
        return Interval(mean, *(gammaincinv(a, ends) * b))
    if isinstance(factor, (LogNormal, Correlated)):
        distribution = factor.margins if isinstance(factor, Correlated) else factor
        return Interval(
            mean, *np.exp(np.asarray(distribution.loc, float) + np.asarray(distribution.scale, float) * ndtri(ends))
        )
    return Interval(mean, mean, mean)


def guesses(s: Summary, most: int = MOST) -> Guesses | None:
    """Classify samples by leave-one-out nearest neighbours; return None without two classes of known labels.

    Coefficients are argmin_{v ≥ 0} ‖x − E[T] v‖², over the observed entries: they do not use labels.

    Args:
        s: the fit in numbers.
        most: maximum number of samples to classify, drawn at random (seed 0) if there are more.
    """
    if s.data.membership is None:
        return None
    labels = s.data.labels
    several = np.zeros(s.data.num_samples, bool)
    if labels is not None and labels.several is not None:
        several = np.asarray(labels.several, bool)
    able = np.flatnonzero(s.data.known & ~several & (s.data.matrix.observed_counts(0) > 0))
    chosen = np.sort(np.random.default_rng(0).permutation(able)[:most])
    truth = np.asarray(s.data.membership).argmax(axis=1)[chosen]
    if len(np.unique(truth)) < 2:
        return None
    found = nearest_other(nnls(s.T, s.data.matrix.columns(chosen)), truth)
    C = s.data.num_groups
    matrix = np.bincount(truth * C + found, minlength=C * C).reshape(C, C)
    return Guesses(matrix, len(chosen), len(able))


def examples(s: Summary, most: int = 16, worst: int = 2) -> tuple[list[int], list[int]]:
    """Choose samples to show: the sample of median misfit in every group, and the samples of the largest misfit.

    Args:
        s: the fit in numbers.
        most: maximum number of the typical samples; without groups, they are at quantiles of the misfit.
        worst: number of samples of the largest misfit.
    """
    ranked = np.argsort(s.misfit, kind="stable")
    poor = ranked[::-1][:worst].tolist()
    rest = ranked[: len(ranked) - len(poor)] if len(ranked) > len(poor) + 1 else ranked
    if s.membership is None:
        places = np.linspace(0, len(rest) - 1, min(most // 2 + 1, len(rest))).round().astype(int)
        return list(dict.fromkeys(rest[places].tolist())), poor
    of = s.label_index[rest]
    members = [rest[of == c] for c in range(len(s.groups))]
    typical = [int(some[len(some) // 2]) for some in members if len(some)]
    step = max(1, -(-len(typical) // most))
    return typical[::step], poor
