"""Label strategies for samples sharded over devices, with padding rows of weight 0.

Rows of V, and one row of q(z) for each unlabelled sample, are on their devices. A padding row stands for no
sample: its terms of the bound are left out or 0, and its label is the first group for certain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model.conjugacy import expected, negative_kl
from ...model.data import Data
from ...model.groups import Groups, WeightedGroups, as_groups
from ...model.priors import Gamma, Priors
from ...model.types import Array
from ..moments import Moments, Transposed, by_component
from ..observed import Allocation, Observed
from ..observed.sharded import Layout, Sharded
from ..posterior import Posterior
from .known import Known, NoLabelFactors
from .mean_field import MeanField
from .structured import Structured
from .unlabelled import Believed, LabelFactors, LabelPrior, label_prior


class SpreadFactors(NamedTuple):
    """The factors of known labels: there are none, but the layout of V's rows.

    layout: rows on devices.
    """

    layout: Layout

    def posterior(self, T: Gamma, V: Gamma, lam: Gamma | None) -> Posterior:
        """Return the posterior as users read it, whole in every process: all processes must ask for it."""
        rows = Gamma(*(by_sample(self.layout, self.layout.gather(jnp.broadcast_to(x, V.a.shape))) for x in V))
        return NoLabelFactors().posterior(*_on_host((T, rows, lam)))


class SpreadLabelFactors(NamedTuple):
    """q(z) and q(π) as in `LabelFactors`, rows of q(z) on their devices.

    layout: rows on devices.
    """

    z: Array
    pi: Array | None
    membership: Array
    unlabelled: Array
    layout: Layout

    def posterior(self, T: Gamma, V: Gamma, lam: Gamma | None) -> Posterior:
        """Return the posterior as users read it, whole in every process: all processes must ask for it."""
        gather = self.layout.gather
        rows = Gamma(*(gather(jnp.broadcast_to(x, V.a.shape)) for x in V))
        pi = self.pi if self.pi is None or self.pi.ndim == 1 else gather(self.pi)
        factors = LabelFactors(gather(self.z), pi, self.membership, self.unlabelled)
        T, rows, lam = _on_host((T, rows, lam))
        whole: LabelFactors = _on_host(factors)
        return whole.posterior(T, rows, lam)


def _on_host(tree: Any) -> Any:
    """Return arrays that are the same in every process as arrays of this process alone."""
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)), tree)


def by_sample(layout: Layout, rows: np.ndarray) -> np.ndarray:
    """Return rows of the host, one for each sample, in the order of samples."""
    ordered = np.empty_like(rows)
    ordered[np.append(*layout.samples)] = rows
    return ordered


class SpreadPrior(NamedTuple):
    """The prior of the labels of unlabelled samples on their devices; the methods are those of `LabelPrior`.

    prior: with a row for each place; a padding place has the first group for certain.
    valid: 1 for unlabelled samples, 0 for padding.
    """

    prior: LabelPrior
    valid: Array

    @property
    def log_weights(self) -> Array:
        """The logarithm of π."""
        return self.prior.log_weights

    def log_prior(self, pi: Array | None) -> Array:
        """Return E[log π]."""
        return jnp.where(self.valid[:, None] > 0, self.prior.log_prior(pi), self.prior.log_weights)

    def dirichlet(self, z: Array) -> Array | None:
        """Return the concentrations of q(π), or of every q(π_τ)."""
        return self.prior.dirichlet(z * self.valid[:, None])

    def dirichlet_terms(self, pi: Array | None) -> Array:
        """Return −KL(q(π) ‖ p(π)) plus the expected log probability of known labels."""
        return self.prior.dirichlet_terms(pi)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OnDevices(Known):
    """What strategies of labels share if rows are on devices: the way there and back.

    weights: 1 for rows of samples, 0 for padding rows.
    layout: rows on devices.
    """

    weights: Array
    layout: Layout = field(metadata={"static": True})

    def parts(self, rows: Array, others: int) -> tuple[Array, ...]:
        """Return the rows of labelled samples and those of unlabelled ones."""
        return self.layout.split(rows)

    def joined(self, known: Array, others: Array) -> Array:
        """Return rows of labelled and of unlabelled samples as rows of all."""
        return self.layout.join(known, others)

    def factors(self, z: Array) -> Any:
        """Return q(z) and the q(π) that is best for it."""
        z, pi, membership, unlabelled = super().factors(z)  # type: ignore[misc]  # of `Unlabelled`
        return SpreadLabelFactors(z, pi, membership, unlabelled, self.layout)

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps, rows on their devices."""
        full = posterior._replace(V=posterior.V.broadcast(*posterior.V.a.shape))
        q = super().hold(full)
        labels = q.labels
        pi = labels.pi if labels.pi is None or labels.pi.ndim == 1 else self.layout.spread(labels.pi, others=True)
        z = self.layout.spread(labels.z, others=True)
        placed = SpreadLabelFactors(z, pi, labels.membership, labels.unlabelled, self.layout)
        return q._replace(V=Gamma(*map(self.layout.spread, q.V)), labels=placed)

    def blank(self, shapes: Transposed) -> Transposed:
        """Return factors of these shapes, before the first sweep, rows on their devices."""
        blank = super().blank(shapes)
        placed = jax.tree.map(self._blank, (blank.V, blank.labels))
        return blank._replace(V=placed[0], labels=placed[1])

    def _blank(self, leaf: Array) -> Array:
        layout = self.layout
        if leaf.ndim < 2 or len(leaf) not in (layout.num_rows, layout.widths[1] * len(layout.counts)):
            return leaf
        others = len(leaf) != layout.num_rows
        number = len(layout.others if others else layout.rows)
        return layout.spread(np.ones((number, *leaf.shape[1:]), leaf.dtype), others=others)

    def off_devices(self, leaf: Array) -> np.ndarray:
        """Return an array of the state on the host, as one device would have it; all processes must ask for it."""
        return self.layout.gather(leaf) if self.layout.is_spread(leaf) else np.asarray(leaf)

    def on_devices(self, leaf: np.ndarray, like: Array) -> Array:
        """Return an array of the state on the devices; padding rows, which the host has not, as in `like`."""
        if not self.layout.is_spread(like):
            return super().on_devices(leaf, like)
        others = len(like) != self.layout.num_rows
        number = len(self.layout.others if others else self.layout.rows)
        leaf = np.broadcast_to(leaf, (number, *like.shape[1:]))  # one device may have one row for all
        valid = self.layout.spread(np.ones((number, *like.shape[1:]), bool), fill=False, others=others)
        return jnp.where(valid, self.layout.spread(leaf, others=others), like)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weighted(OnDevices):
    """Strategies with one row for each sample: rows count with their weights."""

    def groups_in_sweep(self, m: Moments, S: Allocation) -> Groups:
        """Return the membership of rows with their weights."""
        return WeightedGroups(super().groups_in_sweep(m, S), self.weights)

    def groups_of(self, q: Transposed) -> Groups:
        """Return the membership of rows with their weights."""
        return WeightedGroups(super().groups_of(q), self.weights)

    def sample_terms(self, X: Observed, priors: Priors, q: Transposed) -> tuple[Array, Array]:
        """Return −E KL(q(V) ‖ p(V | λ)) over samples and Σ_ντ w (E_T E_V)_ντ by component."""
        prior = expected(priors.coefficients, q.lam, self.groups_of(q)).transpose()
        kl = negative_kl(q.V, prior) * self.weights[:, None]
        return by_component(kl, axis=0), X.expected_totals(q.T, q.V)

    def weights_of(self, q: Transposed) -> Array:
        """Return 1 for rows of samples, 0 for others."""
        return self.weights

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Any]:
        """Return E[log V] on the devices, the exposure and beliefs."""
        V, exposure, believed = super().first(V, exposure)
        return self.layout.spread(V), exposure, believed


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread(Weighted):
    """Known labels of rows on devices; on the host, rows are in the order of samples."""

    def update(self, family: Any, m: Moments, V: Gamma, lam: Gamma | None, S: Allocation) -> Any:
        """Return the layout."""
        return SpreadFactors(self.layout)

    def hold(self, posterior: Posterior) -> Transposed:
        """Return the factors in the layout of sweeps, V's rows on their devices."""
        q = Known.hold(self, posterior._replace(V=posterior.V.broadcast(*posterior.V.a.shape)))
        return q._replace(V=Gamma(*map(self._spread, q.V)), labels=SpreadFactors(self.layout))

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Any]:
        """Return E[log V] on the devices, the exposure and no beliefs."""
        return self._spread(V), exposure, None

    def off_devices(self, leaf: Array) -> np.ndarray:
        """Return an array of the state on the host; all processes must ask for it."""
        host = super().off_devices(leaf)
        return by_sample(self.layout, host) if self.layout.is_spread(leaf) else host

    def on_devices(self, leaf: np.ndarray, like: Array) -> Array:
        """Return an array of the state on the devices, rows on theirs if those of another one are."""
        if self.layout.is_spread(like) and len(leaf) == len(self.layout.rows):
            leaf = leaf[np.append(*self.layout.samples)]
        return super().on_devices(leaf, like)

    def _spread(self, values: Any) -> Array:
        return self.layout.spread(np.asarray(values)[np.append(*self.layout.samples)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpreadMeanField(Weighted, MeanField):
    """The mean field of unlabelled samples on devices."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpreadStructured(OnDevices, Structured):
    """The structured form of unlabelled samples on devices."""

    def read(self, X: Any, priors: Priors, q: Transposed) -> tuple[Array, Believed]:
        """Return log E[V], and beliefs with the terms of the bound that belong to rows, 0 for padding rows."""
        mean, believed = super().read(X, priors, q)
        return mean, believed._replace(rows=believed.rows * self.weights)

    def _weights(self, z: Any, rows: int) -> Array:
        known, others = self.layout.split(self.weights)
        return self.layout.join(known, z.ravel() * others)

    def first(self, V: Array, exposure: Array) -> tuple[Array, Array, Believed]:
        """Return E[log V] of rows, the same as log E[V], and beliefs of a start, on the devices."""
        rows, _, believed = super().first(V, exposure)
        placed = self.layout.spread(rows)
        return placed, placed, believed._replace(rows=self.layout.spread(believed.rows))


def spread(data: Data, X: Sharded, form: str) -> tuple[Sharded, Known]:
    """Return X and the strategy of labels for rows on devices.

    Args:
        data: of a `Problem`; labels and membership of the samples of all processes.
        X: these samples on their devices.
        form: of q for unlabelled samples, one of `labels.FORMS`.
    """
    structured = form == "structured" and data.num_unlabelled > 0
    X = X.with_copies(data.num_groups if structured else 1)
    layout, (known, others) = X.layout, X.layout.samples
    samples = np.append(known, np.repeat(others, layout.copies))
    membership, several = (None if x is None else np.asarray(x)[samples] for x in (data.membership, data.several))
    if structured and membership is not None:
        membership[len(known) :] = np.tile(np.eye(data.num_groups), (len(others), 1))
    groups = as_groups(*(None if x is None else layout.spread(x) for x in (membership, several)))
    if data.num_unlabelled == 0:
        return X, Spread(groups, X.weights, layout)
    log_weights, u, counts = label_prior(data)
    first = np.where(np.arange(data.num_groups) == 0, 0, -np.inf)
    u = u if u is None or u.ndim == 1 else layout.spread(u, others=True)
    prior = LabelPrior(layout.spread(log_weights, fill=first, others=True), u, counts)
    valid = layout.spread(np.ones(len(others), X.weights.dtype), fill=0, others=True)
    flags = data.labels.unlabelled if data.labels is not None else None
    about = SpreadPrior(prior, valid), jnp.ones((), X.weights.dtype), data.membership, flags
    return X, (SpreadStructured if structured else SpreadMeanField)(groups, *about, X.weights, layout)
