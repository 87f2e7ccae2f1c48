"""Results of every algorithm: factors, bounds and convergence."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..model.priors import Gamma, Priors
from ..model.types import Array

# Gamma; from other families of SVI also LogNormal, Correlated and Point. They share mean, log_mean and distribution(),
# but closed forms read a and b: a union would only move the imprecision into casts at every use.
Factor: TypeAlias = Any


class LabelPosterior(NamedTuple):
    """The labels of unlabelled samples in a fit.

    z: q(z_τ = c), samples × groups; membership for labelled samples.
    pi: concentrations of q(π), by group, or unlabelled samples × groups; None if π was known.
    V: q(v_τ | z_τ = c), groups × components × unlabelled samples; None in the mean field.
    unlabelled: 1 for unlabelled samples, 0 for others.
    """

    z: Array
    pi: Array | None
    V: Gamma | None
    unlabelled: Array


class Posterior(NamedTuple):
    """The mean field q(T) q(V) q(λ), Gamma factors named as the model's sites.

    T: features × components.
    V: components × samples.
    lam: components × groups, or as the family of coefficients specifies; None for a family without λ.

    The other families of `svi.run` have other factors (see `families`), which are read in the same way.
    """

    T: Factor
    V: Factor
    lam: Factor | None

    @property
    def labels(self) -> LabelPosterior | None:
        """The labels of unlabelled samples; None here, but not in a `LabelledPosterior`."""
        return None

    @property
    def z(self) -> Array | None:
        """The probabilities of labels, samples × groups; None without unlabelled samples."""
        return None if self.labels is None else self.labels.z

    @property
    def sites(self) -> dict[str, Factor]:
        """The factors of T, V and, if there is one, λ by name."""
        return {site: getattr(self, site) for site in ("T", "V", "lam") if getattr(self, site) is not None}

    def with_labels(self, labels: LabelPosterior | None) -> Posterior:
        """Return the same factors with these labels of unlabelled samples."""
        T, V, lam = self[:3]
        return Posterior(T, V, lam) if labels is None else LabelledPosterior(T, V, lam, labels)


class LabelledPosterior(Posterior):
    """A posterior of data with unlabelled samples: the mean field, and their labels.

    labels: q(z), q(π) and q(v | z). If V depends on labels there (`labels.V`), the V here has Gammas with the same E[v]
        and E[log v] as Σ_c q(z = c) q(v | c) for unlabelled samples.
    """

    _fields = ("T", "V", "lam", "labels")  # type: ignore[assignment]  # one more than it inherits

    def __new__(cls, T: Factor, V: Factor, lam: Factor | None, labels: LabelPosterior) -> LabelledPosterior:  # noqa: D102 (the class says it)
        return tuple.__new__(cls, (T, V, lam, labels))

    @property
    def labels(self) -> LabelPosterior:
        """The labels of unlabelled samples."""
        return tuple.__getitem__(self, 3)  # type: ignore[no-any-return]  # mypy knows three fields

    def _replace(self, **changes: Any) -> LabelledPosterior:  # NamedTuple's own knows three fields
        return LabelledPosterior(**{**dict(zip(self._fields, self, strict=True)), **changes})

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"LabelledPosterior({fields})"


class Status(Enum):
    """Outcomes of a run, each with a sentence."""

    CONVERGED = "The tolerance was met."
    STOPPED = "All steps were made before the tolerance was met."
    NOT_FINITE = "The bound became infinite or not a number."


class StreamMark(NamedTuple):
    """Numbers that identify a stream from a matrix: another one cannot resume it.

    features, samples: of X.
    values: a checksum of the first samples.
    names, labels: checksums of the groups and of the labels; 0 without groups.
    key: a checksum of the key, on which the order of samples depends.
    batch_size, block: of the batches.
    priors: a checksum.
    """

    features: int
    samples: int
    values: int
    names: int
    labels: int
    key: int
    batch_size: int
    block: int
    priors: int


class StreamState(NamedTuple):
    """State of a stream: with the rest of its `Fit`, everything needed to resume it.

    T: q(T) after the last batch; the posterior has an average over batches.
    lam: the same of q(λ); None for a family without λ.
    samples: the number of samples that it has learned from, counted in every pass.
    groups: the same by group, unlabelled samples by q(z); None without groups.
    mark: identifies the stream; None for batches of an iterable, and in files of older versions.
    """

    T: Gamma
    lam: Gamma | None
    samples: float
    groups: np.ndarray | None
    mark: StreamMark | None = None


class Fit(NamedTuple):
    """A fitted posterior, with its bound, priors and convergence.

    posterior: the factors.
    elbo: the bound after each sweep. From CAVI it is the valid augmented one: the last entry, and every entry of a
        plain run, has q(S) at its optimum for the factors; the other entries of an accelerated run have the q(S)
        of the sweep and are below the optimum. From SVI it is minus the loss of each step, and from a stream the
        bound before each step with the terms of its batch scaled up: noisy estimates.
    num_steps: the number of sweeps, steps or batches.
    converged: whether the tolerance was met; from SVI, whether the bound no longer changed beyond its noise.
    message: the reason why it stopped, in a sentence.
    bound: the kind of `elbo`: "augmented" (CAVI), "collapsed" (SVI; S summed out, at least as high for the same
        factors), or "log_joint" (MAP; not a bound). Never compare one with another.
    priors: as they were given; with `cavi.learn`, as they were learned. Functions that take a fit use them.
    data: a checksum that identifies X (`fingerprint`).
    learned: whether `priors` were learned, by `cavi.learn`.
    labels: a checksum that identifies the labels of samples (`label_fingerprint`); None for fits of older versions.
    stream: the state from which a stream resumes; None in other fits.
    """

    posterior: Posterior
    elbo: np.ndarray
    num_steps: int
    converged: bool
    message: str
    bound: str = "augmented"
    priors: Priors | None = None
    data: int | None = None
    learned: bool = False
    labels: int | None = None
    stream: StreamState | None = None

    @property
    def status(self) -> Status:
        """The outcome of the run."""
        if not np.isfinite(self.elbo).all():
            return Status.NOT_FINITE
        return Status.CONVERGED if self.converged else Status.STOPPED

    @property
    def is_finite(self) -> bool:
        """True if the bound was finite throughout; otherwise the factors are useless."""
        return self.status is not Status.NOT_FINITE
