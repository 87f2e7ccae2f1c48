"""The generative story, declared in NumPyro."""

from __future__ import annotations

from contextlib import nullcontext

import numpyro
import numpyro.distributions as dist

from .data import Data
from .priors import Priors
from .problem import prepare, require_counts
from .types import Array


def group_sparse_nmf(data: Data, priors: Priors, rank: int | None = None, augmented: bool = False) -> Array:
    """X ≈ TV under Poisson noise, as a NumPyro model.

        t_νi ~ Gamma(aᵗ_νi, bᵗ_νi)
        λ_ic ~ Gamma(aˡ_ic, bˡ_ic)          v_iτ ~ Exponential(rate λ_{i z_τ})
        x_ντ ~ Poisson(Σ_i t_νi v_iτ)

    Sites T, V, lam and X; plates feature, component, sample and group. With another family of coefficients V is
    drawn as that family says. With `augmented`, the counts s_ντi ~ Poisson(t_νi v_iτ) are a site S too (features ×
    samples × components), and X is their sum; this needs X to be whole numbers.

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
    if augmented:
        require_counts(data)
    data, priors, K = prepare(data, priors, rank)
    feature = numpyro.plate("feature", data.num_features, dim=-2)
    sample = numpyro.plate("sample", data.num_samples, dim=-1)
    with feature, numpyro.plate("component", K, dim=-1):
        T: Array = numpyro.sample("T", priors.dictionary.broadcast(data.num_features, K).distribution())
    lam = priors.coefficients.sample_rate(data, K)
    with numpyro.plate("component", K, dim=-2), sample:
        V: Array = numpyro.sample("V", priors.coefficients.conditional(lam, data, K))
    seen = nullcontext() if data.mask is None else numpyro.handlers.mask(mask=data.mask.astype(bool))
    with feature, sample, seen:
        if augmented:
            S: Array = numpyro.sample("S", dist.Poisson(T[:, None, :] * V.T[None, :, :]).to_event(1))
            return numpyro.sample("X", dist.Delta(S.sum(-1)), obs=data.X)
        # X need not be whole numbers (pixels): the density stays defined, only NumPyro's check would complain.
        return numpyro.sample("X", dist.Poisson(T @ V, validate_args=False), obs=data.X)
