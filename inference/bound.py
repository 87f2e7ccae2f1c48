"""The bounds on log p(X): the valid one, and the one the paper prints.

Both are *augmented* bounds: S is part of the model, and q(S) stands at its optimum. A *collapsed* bound, with S
summed out as in NumPyro's `Trace_ELBO` on the marginal model, is at least as high for the same factors; the two are not
comparable with each other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..model.conjugacy import expected, negative_kl, require_closed_forms
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import prepare
from ..model.special import digamma
from ..model.types import Array
from .labels.unlabelled import form_of, label_terms
from .observed.dense import Allocation, Observed, allocate, expected_totals, observe
from .posterior import Posterior, Transposed, match, rank_of, transposed
from .sweep import Moments, believing, moments


def prior_terms(data: Observed, priors: Priors, q: Transposed) -> Array:
    """The bound less Σ x log(M/x) and less Σ [x log x − log Γ(x+1)]: everything that needs no product of the size of X.

    −Σ_ντ w (E_T E_V)_ντ − KL(q(T) ‖ p(T)) − E KL(q(V) ‖ p(V | λ)) − KL(q(λ) ‖ p(λ)), and what `labels` says of unknown
    labels. In the structured form of these all that has to do with samples is left to `allocate`.
    """
    terms = _by_component(negative_kl(q.T, expected(priors.dictionary).transpose()), axis=1)
    seen, weights = believing(data, q)
    if weights is None:
        terms += _by_component(negative_kl(q.V, expected(priors.coefficients, q.lam, seen).transpose()), axis=0)
        terms -= expected_totals(data, q.T, q.V)
    total = jnp.sum(terms)
    if q.lam is not None:
        total += jnp.sum(negative_kl(q.lam, expected(priors.coefficients.hyperprior)))
    if data.unknown is not None and q.labels is not None:
        total += data.unknown.dirichlet_terms(q.labels.pi)
        if weights is None:
            total += label_terms(q.labels.z, data.unknown.log_prior(q.labels.pi))
    return total


def moved_log_ratio(S: Allocation, old: Moments, new: Moments) -> Array:
    """What stands in for Σ x log(M/x) when q(S) is as the old moments made it, not at its optimum for the new.

    Σ x log(M/x) of the old, plus Σ Σ_T ∘ (L_T − L_T of the old) + Σ Σ_V ∘ (L_V − L_V of the old): no further product.
    Where samples have weights, what else `allocate` said of them goes along.
    """
    T, by_V = _by_component(S.T * (new.T - old.T), axis=1), S.V * (new.V - old.V)
    if S.weights is None or old.labels is None or new.labels is None:
        return S.log_ratio + jnp.sum(T + _by_component(by_V, axis=0))
    rows = jnp.sum(by_V, axis=1) + new.labels.rows - old.labels.rows
    z = new.labels.z
    moved_prior = jnp.where(z > 0, z * (new.labels.log_prior - old.labels.log_prior), 0)
    return S.log_ratio + jnp.sum(T) + S.weights @ rows + jnp.sum(moved_prior)


def _by_component(matrix: Array, axis: int) -> Array:
    """Σ along an axis, as a product with ones: so XLA computes what is summed in one parallel loop."""
    ones = jnp.ones(matrix.shape[axis], matrix.dtype)
    return matrix @ ones if axis == 1 else ones @ matrix


@jax.jit
def _bound(data: Observed, priors: Priors, q: Transposed) -> Array:
    m = moments(data, priors, q)
    return data.base + allocate(data, m.T, m.V, m.labels).log_ratio + prior_terms(data, priors, q)


def bound(data: Data, priors: Priors, posterior: Posterior) -> float:
    """The valid augmented bound ℒ ≤ log p(X), with q(S) at its optimum for these factors.

        ℒ = Σ w [x log M − log Γ(x+1) − (E_T E_V)] − KL(q(T)‖p(T)) − KL(q(Λ)‖p(Λ))
            + Σ_iτ [L_ΛΔᵀ − (E_ΛΔᵀ) ∘ E_V] + Σ_iτ H(q(v_iτ)),    M = exp(L_T) exp(L_V),

    where w is 1, or 0 at entries that a mask hides. In the structured form of unknown labels q(z) is put at its
    optimum, too, and `posterior.z` is not read.

    Args:
        data: as made by `as_data`.
        priors: the same that the factors were fitted with, or others to compare.
        posterior: the factors, as in `Fit.posterior`.
    """
    data, priors, K = prepare(data, priors, rank_of(posterior))
    require_closed_forms(priors, "the augmented bound")
    q = match(posterior, data, priors, K)
    form = form_of(q, data)
    return float(_bound(observe(data, form), priors, transposed(q, form)))


def paper_bound(data: Data, priors: Priors, posterior: Posterior) -> float:
    """What the paper's (14) and its program compute: the valid bound plus `paper_bound_gap`. **Not a lower bound.**

    They put log E[λ] where E[log λ] belongs (the other misprints of (14) are mended here; see the errata page). It
    is kept to reproduce the paper's figures, never to compare models.
    """
    return bound(data, priors, posterior) + paper_bound_gap(data, posterior)


def paper_bound_gap(data: Data, posterior: Posterior) -> float:
    """Σ_ic N_c (log α_ic − ψ(α_ic)) ≥ 0 with α the shapes of q(λ): by how much `paper_bound` exceeds the valid bound.

    Constant over the sweeps of a fit, but different between priors, ranks and class sizes. Of labels that are unknown
    N_c is what q(z) expects, and then it is not constant.
    """
    if posterior.lam is None:
        return 0.0
    if data.several is not None:
        raise ValueError("expected one label per sample, as the paper has; got samples with several")
    alpha, K = posterior.lam.a, rank_of(posterior)
    if alpha.shape != (K, data.num_groups):
        raise ValueError(
            f"expected a λ for each of {K} components in each of the {data.num_groups} groups, as the paper has; "
            f"got shape {alpha.shape}"
        )
    sizes = data.group_sizes if posterior.z is None else jnp.sum(posterior.z, axis=0)
    return float(jnp.sum(jnp.asarray(sizes, alpha.dtype)[None, :] * (jnp.log(alpha) - digamma(alpha))))
