"""Bounds on log p(X): the valid one, and the one that the paper prints.

Both are *augmented* bounds: S is part of the model, and q(S) is at its optimum. A *collapsed* bound, with S summed out
as in NumPyro's `Trace_ELBO` on the marginal model, is at least as high for the same factors; the two are not
comparable with each other.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..model.conjugacy import expected, negative_kl, require_closed_forms
from ..model.data import Data
from ..model.matrix import is_traced
from ..model.priors import Gamma, Priors
from ..model.problem import Problem
from ..model.special import digamma
from ..model.types import Array
from .moments import Transposed, by_component
from .observations import Observations, form_of, observe
from .results import factors_of, match, problem_of, rank_of, warn_of_former_order
from .sweep import moments


def prior_terms(data: Observations, priors: Priors, q: Transposed) -> Array:
    """Return the bound less Σ x log(M/x) and Σ [x log x − log Γ(x+1)]: the part without products of the size of X.

    −Σ_ντ w (E_T E_V)_ντ − KL(q(T) ‖ p(T)) − E KL(q(V) ‖ p(V | λ)) − KL(q(λ) ‖ p(λ)), and the terms of labels.
    """
    X, labels = data
    kl_V, totals = labels.sample_terms(X, priors, q)
    total = jnp.sum(dictionary_terms(priors, q.T) + kl_V - totals)
    if q.lam is not None:
        total += rate_terms(priors, q.lam)
    return total + labels.terms(q)


def dictionary_terms(priors: Priors, T: Gamma) -> Array:
    """Return −KL(q(T) ‖ p(T)) by component, from T in the layout of sweeps."""
    return by_component(negative_kl(T, expected(priors.dictionary).transpose()), axis=1)


def rate_terms(priors: Priors, lam: Gamma) -> Array:
    """Return −KL(q(λ) ‖ p(λ))."""
    return jnp.sum(negative_kl(lam, expected(priors.coefficients.hyperprior)))


def augmented_bound(data: Observations, priors: Priors, q: Transposed) -> Array:
    """Return ℒ with q(S) at its optimum: twice differentiable in the parameters of every factor."""
    m = moments(data, priors, q)
    return data.X.base + data.labels.allocate(data.X, m).log_ratio + prior_terms(data, priors, q)


_bound = jax.jit(augmented_bound)


def bound(result: Any, data: Any, priors: Any = None) -> Any:
    """Return the valid augmented bound ℒ ≤ log p(X), with q(S) at its optimum for these factors.

        ℒ = Σ w [x log M − log Γ(x+1) − (E_T E_V)] − KL(q(T)‖p(T)) − KL(q(Λ)‖p(Λ))
            + Σ_iτ [L_ΛΔᵀ − (E_ΛΔᵀ) ∘ E_V] + Σ_iτ H(q(v_iτ)),    M = exp(L_T) exp(L_V),

    where w is 1, or 0 at hidden entries. In the structured form of unlabelled samples q(z) is at its optimum, too, and
    `posterior.z` is not read.

    Args:
        result: a `Fit` of CAVI, or a `Posterior` of Gamma factors.
        data: the data that it was fitted to.
        priors: by default those of the fit.

    It can be differentiated by JAX twice with respect to the parameters of the factors, and is then an array:

    >>> from gsnmf.inference import Posterior, cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> T, V = Gamma(jnp.ones((2, 1)), jnp.ones((2, 1))), Gamma(jnp.ones((1, 2)), jnp.ones((1, 2)))
    >>> jax.grad(lambda a: cavi.bound(Posterior(T._replace(a=a), V, None), data, priors))(T.a).shape
    (2, 1)
    """
    if isinstance(result, Data):
        warn_of_former_order("cavi.bound(posterior, data, priors)")
        result, data, priors = priors, result, data
    problem = problem_of(result, data, priors)
    require_closed_forms(problem.priors, "the augmented bound")
    q = match(factors_of(result), problem)
    observed = observe(problem.data, form_of(q, problem.data))
    value = _bound(observed, problem.priors, observed.labels.hold(q))
    return value if is_traced(value) else float(value)


def paper_bound(result: Any, data: Any, priors: Any = None) -> float:
    """Return the value of the paper's (14) and its program: the valid bound plus `paper_bound_gap`.

    **It is not a lower bound**: it has log E[λ] in place of E[log λ] (the other misprints of (14) are corrected here;
    see the errata page). It is kept to reproduce the paper's figures, never to compare models.

    Args:
        result: as in `bound`.
        data: as in `bound`.
        priors: as in `bound`.
    """
    if isinstance(result, Data):
        warn_of_former_order("cavi.paper_bound(posterior, data, priors)")
        result, data, priors = priors, result, data
    return float(bound(result, data, priors)) + paper_bound_gap(result, data)


def paper_bound_gap(result: Any, data: Any) -> float:
    """Return Σ_ic N_c (log α_ic − ψ(α_ic)) ≥ 0, the amount by which `paper_bound` exceeds the valid bound.

    α are the shapes of q(λ). The gap is constant over the sweeps of a fit, but differs between priors, ranks and class
    sizes. With unlabelled samples N_c is what q(z) expects, and the gap is not constant.

    Args:
        result: as in `bound`.
        data: as in `bound`.
    """
    if isinstance(result, Data):
        warn_of_former_order("cavi.paper_bound_gap(posterior, data)")
        result, data = data, result
    posterior = factors_of(result)
    data = data.data if isinstance(data, Problem) else data
    if posterior.lam is None:
        return 0.0
    if data.several is not None:
        raise ValueError("expected one label per sample, as in the paper; got multi-label samples")
    alpha, K = posterior.lam.a, rank_of(posterior)
    if alpha.shape != (K, data.num_groups):
        raise ValueError(
            f"expected a λ for each of {K} components in each of the {data.num_groups} groups, as in the paper; "
            f"got shape {alpha.shape}"
        )
    sizes = data.group_sizes if posterior.z is None else jnp.sum(posterior.z, axis=0)
    return float(jnp.sum(jnp.asarray(sizes, alpha.dtype)[None, :] * (jnp.log(alpha) - digamma(alpha))))
