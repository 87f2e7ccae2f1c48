"""The generative model, declared in NumPyro."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .compressed import is_sparse, require_dense
from .conjugacy import conditional, rate_shape
from .data import Data
from .priors import Axes, Priors
from .problem import Problem, as_problem, require_counts
from .sparse_poisson import SparsePoisson
from .types import Array
from .unlabelled import SummedOut, given_label, have_single_label, label_weights


def rate_plates(axes: Axes, rows: int, columns: int) -> ExitStack:
    """Return the plates of λ; an axis of length one by nature, such as "all_samples", needs none."""
    plates = ExitStack()
    for axis, length, dim in zip(axes, (rows, columns), (-2, -1), strict=True):
        if not axis.startswith("all_"):
            plates.enter_context(numpyro.plate(axis, length, dim=dim))
    return plates


def group_sparse_nmf(
    data: Data | Problem, priors: Priors | None = None, rank: int | None = None, augmented: bool = False
) -> Array:
    """State X ≈ TV under Poisson noise as a NumPyro model.

        t_νi ~ Gamma(aᵗ_νi, bᵗ_νi)
        λ_ic ~ Gamma(aˡ_ic, bˡ_ic)          v_iτ ~ Exponential(rate λ_{i z_τ})
        x_ντ ~ Poisson(Σ_i t_νi v_iτ)

    Sites T, V, lam and X; plates feature, component, sample and group. Other priors specify other distributions of T,
    λ and V. With `augmented`, the counts s_ντi ~ Poisson(t_νi v_iτ) are a site S too (features × samples ×
    components), and X is their sum; this needs X to be whole numbers.

    With unlabelled samples there is a site z, the index of a group for every sample, z_τ ~ Categorical(π_τ), which
    NumPyro enumerates (`infer={"enumerate": "parallel"}`; this needs funsor, the extra `labels`). For a labelled sample
    its probabilities are 1 at the label; for a multi-label sample, whose rates are an average whatever z is, they are
    even. If π has a Dirichlet prior it is a site pi: either shared by all samples, and then single known labels are
    observed draws from it (a site `known`), or one for each unlabelled sample, in a plate `unlabelled`. Without
    unlabelled samples there is neither.

    X is observed, except for entries that the data's mask hides: these count neither as X nor, if `augmented`, as S. To
    draw all of X instead, as in a prior predictive, uncondition it:

    >>> import jax
    >>> from numpyro.infer import Predictive
    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[1, 0, 2], [0, 3, 1]], ["a", "b", "a"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> prior_predictive = Predictive(numpyro.handlers.uncondition(group_sparse_nmf), num_samples=5)
    >>> prior_predictive(jax.random.key(0), data, priors, rank=2)["X"].shape
    (5, 2, 3)
    """
    problem = as_problem(data, priors, rank)
    require_dense(problem.data, "the NumPyro model")
    return state(problem, augmented, enumerate_labels=True)


def labels_summed_out(data: Data | Problem, priors: Priors | None = None, rank: int | None = None) -> Array:
    """State the same model with z summed out in closed form, for gradients and bounds.

    V is drawn from Π_τ Σ_c π_τc p(v_τ | λ, z_τ = c). With known labels it is the same model.

    Args:
        data: as in `group_sparse_nmf`.
        priors: as in `group_sparse_nmf`.
        rank: as in `group_sparse_nmf`.
    """
    return state(as_problem(data, priors, rank), augmented=False, enumerate_labels=False)


def state(problem: Problem, augmented: bool = False, enumerate_labels: bool = True) -> Array:
    """State the model; a sparse X by its nonzero entries.

    Args:
        problem: the data and priors.
        augmented: as in `group_sparse_nmf`.
        enumerate_labels: whether z is a site, or summed out.
    """
    data, priors, K = problem
    if augmented:
        require_counts(data)
    feature = numpyro.plate("feature", data.num_features, dim=-2)
    sample = numpyro.plate("sample", data.num_samples, dim=-1)
    with feature, numpyro.plate("component", K, dim=-1):
        T: Array = numpyro.sample("T", priors.dictionary.broadcast(data.num_features, K).distribution())
    family, lam = priors.coefficients, None
    size = rate_shape(family, data, K)
    if size is not None:
        with rate_plates(family.axes, *size):
            lam = numpyro.sample("lam", family.hyperprior.broadcast(*size).distribution())
    conditional = _coefficients(family, lam, data, K, sample, enumerate_labels)
    with numpyro.plate("component", K, dim=-2), sample:
        V: Array = numpyro.sample("V", conditional)
    if is_sparse(data):
        return numpyro.sample("X", SparsePoisson(T, V, data.X, data.mask), obs=data.X.values)
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
    """Return the distribution of V given λ and, with unlabelled samples, z, which is drawn here or summed out."""
    if data.num_unlabelled == 0:
        return conditional(family, lam, data, rank)
    pi = _proportions(data, sample)
    if not enumerate_labels:
        return SummedOut(family, lam, pi, data, rank)
    with sample:
        z = numpyro.sample("z", dist.Categorical(label_weights(data, pi)), infer={"enumerate": "parallel"})
    return given_label(family, lam, z, data, rank)


def _proportions(data: Data, sample: numpyro.plate) -> Array | None:
    """Draw π if it has a Dirichlet prior; known single labels are draws from a π that all samples share."""
    labels: Any = data.labels
    if labels.dirichlet is None:
        return None
    if labels.dirichlet.ndim == 2:
        with numpyro.plate("unlabelled", data.num_unlabelled, dim=-1):
            return numpyro.sample("pi", dist.Dirichlet(labels.dirichlet))
    pi: Array = numpyro.sample("pi", dist.Dirichlet(labels.dirichlet))
    with sample, numpyro.handlers.mask(mask=have_single_label(data)):
        numpyro.sample("known", dist.Categorical(pi), obs=jnp.argmax(data.membership, axis=1))
    return pi
