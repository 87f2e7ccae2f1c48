"""The generative story, declared in NumPyro."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .conjugacy import conditional, rate_shape
from .data import Data
from .priors import Axes, Priors
from .problem import prepare, require_counts
from .types import Array
from .unlabelled import SummedOut, given_label, have_single_label, label_weights, num_unlabelled


def rate_plates(axes: Axes, rows: int, columns: int) -> ExitStack:
    """The plates of λ; an axis of which there is but one, such as "all_samples", needs none."""
    plates = ExitStack()
    for axis, length, dim in zip(axes, (rows, columns), (-2, -1), strict=True):
        if not axis.startswith("all_"):
            plates.enter_context(numpyro.plate(axis, length, dim=dim))
    return plates


def group_sparse_nmf(data: Data, priors: Priors, rank: int | None = None, augmented: bool = False) -> Array:
    """X ≈ TV under Poisson noise, as a NumPyro model.

        t_νi ~ Gamma(aᵗ_νi, bᵗ_νi)
        λ_ic ~ Gamma(aˡ_ic, bˡ_ic)          v_iτ ~ Exponential(rate λ_{i z_τ})
        x_ντ ~ Poisson(Σ_i t_νi v_iτ)

    Sites T, V, lam and X; plates feature, component, sample and group. With other priors T, λ and V are drawn as
    those say. With `augmented`, the counts s_ντi ~ Poisson(t_νi v_iτ) are a site S too (features ×
    samples × components), and X is their sum; this needs X to be whole numbers.

    Labels that are unknown are a site z, of every sample the index of a group, z_τ ~ Categorical(π_τ), which NumPyro
    enumerates (`infer={"enumerate": "parallel"}`; by funsor, which is the extra `labels`). What is known of labels
    stands in its probabilities: it is the label where that is known, and where a sample has several, by whose average
    its rates are whatever z, one of these. If π has a Dirichlet prior it is a site pi: one that all samples share, and
    that single labels which are known (a site `known`) have their say in; or one of each sample without a label, in
    a plate `unlabelled`. With all labels known there is neither.

    X is observed, but for entries that the data's mask hides: those count neither as X nor, `augmented`, as S. To draw
    all of X instead, as in a prior predictive, uncondition it:

    >>> import jax
    >>> from numpyro.infer import Predictive
    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[1, 0, 2], [0, 3, 1]], ["a", "b", "a"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> prior_predictive = Predictive(numpyro.handlers.uncondition(group_sparse_nmf), num_samples=5)
    >>> prior_predictive(jax.random.key(0), data, priors, rank=2)["X"].shape
    (5, 2, 3)
    """
    return _story(data, priors, rank, augmented, enumerate_labels=True)


def labels_summed_out(data: Data, priors: Priors, rank: int | None = None) -> Array:
    """The same model without the site z, which is summed out in closed form: what gradients and bounds are taken of.

    V is drawn from Π_τ Σ_c π_τc p(v_τ | λ, z_τ = c). With known labels it is the same model.

    Args:
        data: as in `group_sparse_nmf`.
        priors: as in `group_sparse_nmf`.
        rank: as in `group_sparse_nmf`.
    """
    return _story(data, priors, rank, augmented=False, enumerate_labels=False)


def _story(data: Data, priors: Priors, rank: int | None, augmented: bool, enumerate_labels: bool) -> Array:
    if augmented:
        require_counts(data)
    data, priors, K = prepare(data, priors, rank)
    feature = numpyro.plate("feature", data.num_features, dim=-2)
    sample = numpyro.plate("sample", data.num_samples, dim=-1)
    with feature, numpyro.plate("component", K, dim=-1):
        T: Array = numpyro.sample("T", priors.dictionary.broadcast(data.num_features, K).distribution())
    family, lam = priors.coefficients, None
    size = rate_shape(family, data, K)
    if size is not None:
        with rate_plates(family.axes, *size):
            lam = numpyro.sample("lam", family.hyperprior.broadcast(*size).distribution())
    law = _coefficients(family, lam, data, K, sample, enumerate_labels)
    with numpyro.plate("component", K, dim=-2), sample:
        V: Array = numpyro.sample("V", law)
    seen = nullcontext() if data.mask is None else numpyro.handlers.mask(mask=data.mask.astype(bool))
    with feature, sample, seen:
        if augmented:
            S: Array = numpyro.sample("S", dist.Poisson(T[:, None, :] * V.T[None, :, :]).to_event(1))
            return numpyro.sample("X", dist.Delta(S.sum(-1)), obs=data.X)
        # X need not be whole numbers (pixels): the density stays defined, only NumPyro's check would complain.
        return numpyro.sample("X", dist.Poisson(T @ V, validate_args=False), obs=data.X)


def _coefficients(
    family: Any, lam: Array | None, data: Data, rank: int, sample: numpyro.plate, enumerate_labels: bool
) -> dist.Distribution:
    """V given λ and, where labels are unknown, z, which is drawn before; or with z summed out."""
    if num_unlabelled(data) == 0:
        return conditional(family, lam, data, rank)
    pi = _shares(data, sample)
    if not enumerate_labels:
        return SummedOut(family, lam, pi, data, rank)
    with sample:
        z = numpyro.sample("z", dist.Categorical(label_weights(data, pi)), infer={"enumerate": "parallel"})
    return given_label(family, lam, z, data, rank)


def _shares(data: Data, sample: numpyro.plate) -> Array | None:
    """π, if it has a Dirichlet prior; single labels that are known are draws from one that all share."""
    labels: Any = data.labels
    if labels.dirichlet is None:
        return None
    if labels.dirichlet.ndim == 2:
        with numpyro.plate("unlabelled", num_unlabelled(data), dim=-1):
            return numpyro.sample("pi", dist.Dirichlet(labels.dirichlet))
    pi: Array = numpyro.sample("pi", dist.Dirichlet(labels.dirichlet))
    with sample, numpyro.handlers.mask(mask=have_single_label(data)):
        numpyro.sample("known", dist.Categorical(pi), obs=jnp.argmax(data.membership, axis=1))
    return pi
