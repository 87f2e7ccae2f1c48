"""New samples under a learned dictionary: their coefficients in closed form, and which group they look like.

q(T) and q(λ) stay as they were learned. A sample x is folded in under every candidate group c, on its own:

    q(v | c) = Gamma(a + g_V ∘ (g_Tᵀ ξ), (E_Λ,·c + Σ_ν E_T)⁻¹),   ξ = x / (g_T g_V),

again and again, which is coordinate ascent on the sample's own terms of the bound,

    ℒ_τ(c) = Σ_ν [x log M − log Γ(x+1)] − Σ_i E_v,i Σ_ν E_T,νi − E KL(q(v | c) ‖ p(v | λ_c)),   M = g_T g_V.

All sums over ν are over the features of the sample that were seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.conjugacy import Rate, expected, negative_kl, require_closed_forms
from ..model.data import Data, as_data
from ..model.metadata import Names
from ..model.priors import Gamma, Priors, canonical, is_grouped
from ..model.problem import prepare
from ..model.types import Array
from ..model.validation import whole
from .observed.dense import Observed, allocate, exposure_of_V, observe
from .posterior import Fit, Posterior, factors_of, rank_of, transposed


class Folded(NamedTuple):
    """New samples under every candidate group; under a single one, if the prior on V knows no groups.

    V: q(v | c), groups × components × samples.
    bound: ℒ_τ(c), samples × groups.
    converged: whether the tolerance was met, samples × groups.
    """

    V: Gamma
    bound: Array
    converged: Array

    def class_posterior(self, shares: Array | None = None, temperature: float = 1.0) -> Array:
        """q(z_τ = c) ∝ π_c exp(ℒ_τ(c) / temperature), samples × groups.

        ℒ_τ(c) bounds log p(x | c) from below, and sums over all features as if they were independent given v: at
        temperature 1 the odds are far too sure, though their order is of use. Calibrate the temperature, or the odds,
        on samples that were not fitted.

        Args:
            shares: π, one positive number per group; uniform when left out.
            temperature: above 1 for milder odds.
        """
        prior = np.ones(self.bound.shape[1]) if shares is None else np.asarray(shares, float)
        if prior.shape != self.bound.shape[1:] or not ((prior > 0) & np.isfinite(prior)).all():
            raise ValueError(f"expected {self.bound.shape[1]} positive shares, one per group; got {shares}")
        if not isinstance(temperature, (int, float, np.number)) or not 0 < temperature < np.inf:
            raise ValueError(f"expected temperature to be a positive number; got {temperature!r}")
        log_prior = jnp.asarray(np.log(prior / prior.sum()), self.bound.dtype)
        return jax.nn.softmax(log_prior[None, :] + self.bound / temperature, axis=1)

    def mean(self, shares: Array | None = None, temperature: float = 1.0) -> Array:
        """E[v] = Σ_c q(z = c) E[v | c], components × samples; the arguments are those of `class_posterior`."""
        return jnp.einsum("ckn,nc->kn", self.V.mean, self.class_posterior(shares, temperature))


def fold_in(
    X: Array | Data, posterior: Posterior | Fit, priors: Priors, *, max_steps: int = 500, tol: float = 1e-6
) -> Folded:
    """The coefficients of new samples, and ℒ_τ(c) of every candidate group, with q(T) and q(λ) held.

    Args:
        X: features × samples, as `as_data` takes it, NaN where entries are missing; or the `Data` it makes, whose
            groups do not matter.
        posterior: what was learned, by `cavi.run` or as Gamma factors by `svi.run`.
        priors: those it was learned with. A `Gamma` on V must be the same for all samples.
        max_steps: updates at most.
        tol: a sample is done under a group when its ℒ_τ(c) changes by less than this, relatively.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[9.0, 8.0, 1.0, 0.0], [1.0, 0.0, 8.0, 9.0]], ["a", "a", "b", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma([[1.0, 9.0], [9.0, 1.0]], 1.0)))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), init="groups")
    >>> fold_in([[7.0], [0.0]], fit, priors).class_posterior().argmax().item()
    0
    """
    whole("max_steps", max_steps, 1)
    if not isinstance(tol, (int, float, np.number)) or not 0 <= tol < np.inf:
        raise ValueError(f"expected tol to be a number ≥ 0; got {tol!r}")
    learned = factors_of(posterior)
    F = np.shape(learned.T[0])[0]
    data = X if isinstance(X, Data) else as_data(X)
    if data.num_features != F:
        raise ValueError(f"expected X with {F} features, as the dictionary has; got {data.num_features}")
    family = canonical(priors).coefficients
    if family.hyperprior is not None and "sample" in family.axes:
        raise ValueError("expected priors whose λ new samples share with those that were fitted; got one λ per sample")
    candidates = _candidates(F, np.shape(learned.lam[0])[1] if learned.lam is not None and is_grouped(priors) else 0)
    candidates, priors, _ = prepare(candidates, priors, rank_of(learned))
    require_closed_forms(priors, "folding in")
    gammas = all(isinstance(q, Gamma) for q in (learned.T, learned.lam or learned.T))
    if (learned.lam is None) != (priors.coefficients.hyperprior is None) or not gammas:
        raise ValueError("expected the priors that the posterior was learned with, and Gamma factors; got others")
    dtype = candidates.X.dtype
    T, lam = jax.tree.map(lambda x: jnp.asarray(x, dtype), (transposed(learned).T, learned.lam))
    samples, mask = (None if x is None else jnp.asarray(np.asarray(x, dtype).T) for x in (data.X, data.mask))
    folded: Folded = _fold((samples, mask), T, priors, lam, candidates, max_steps, jnp.asarray(tol, dtype))
    return folded


def _candidates(num_features: int, num_groups: int) -> Data:
    """One sample of every group, or one without any: what a prior on V can say of a sample that is yet to come."""
    N = num_groups or 1
    names = Names(range(num_features), range(N), range(num_groups))
    return Data(np.zeros((num_features, N)), np.eye(num_groups) if num_groups else None, names)


@jax.jit
def _fold(X: tuple, T: Gamma, priors: Priors, lam: Any, candidates: Data, max_steps: Array, tol: Array) -> Folded:
    """All samples at once under one group after another: nothing larger than X is formed but what is returned.

    X is samples × features, with its mask or None.
    """
    rate = expected(priors.coefficients, lam, candidates).transpose()
    K, C = T.a.shape[0], candidates.num_samples
    each = Rate(*(jnp.broadcast_to(field, (C, K)) for field in rate))
    seen = jax.vmap(lambda one: observe(Data(one[0], None, candidates.names, one[1])))(
        jax.tree.map(lambda x: x[:, :, None], X)
    )
    over_samples = jax.vmap(_fold_one, in_axes=(0, None, None, None, None))
    V, bound, converged = jax.lax.map(lambda of_group: over_samples(seen, T, of_group, max_steps, tol), each)
    return Folded(Gamma(*(jnp.swapaxes(parameter, 1, 2) for parameter in V)), bound.T, converged.T)


def _fold_one(data: Observed, T: Gamma, rate: Rate, max_steps: Array, tol: Array) -> tuple[Gamma, Array, Array]:
    """One sample under one group: q(v), its bound, and whether it converged."""
    log_T, exposure = T.log_mean, exposure_of_V(data, T)
    prior = Rate(*(field[None, :] for field in rate))
    b = 1 / (prior.mean + exposure)

    def ongoing(carry: tuple) -> Array:
        _, _, bound, last, n = carry
        return (n < max_steps) & ~(jnp.abs(bound - last) <= tol * jnp.abs(bound))

    def body(carry: tuple) -> tuple:
        _, counts, last, _, n = carry
        V = Gamma(prior.a + counts, b)
        S = allocate(data, log_T, V.log_mean)
        bound = data.base + S.log_ratio + jnp.sum(negative_kl(V, prior)) - jnp.sum(V.mean * exposure)
        return V.a, S.V, bound, last, n + 1

    # At first every component has caused the same number of counts, as far as the prior lets it.
    first = allocate(data, log_T, jnp.log(b)).V
    below = jnp.full((), -jnp.inf, b.dtype)
    a, _, bound, last, _ = jax.lax.while_loop(ongoing, body, (b, first, below, below, 0))
    return Gamma(a[0], b[0]), bound, jnp.abs(bound - last) <= tol * jnp.abs(bound)
