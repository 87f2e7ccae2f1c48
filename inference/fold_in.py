"""New samples under a learned dictionary: their coefficients in closed form, and their bound under every group.

q(T) and q(λ) stay as they were learned. Each sample x is folded in on its own under every candidate group c:

    q(v | c) = Gamma(a + g_V ∘ (g_Tᵀ ξ), (E_Λ,·c + Σ_ν E_T)⁻¹),   ξ = x / (g_T g_V),

repeatedly, which is coordinate ascent on the sample's own terms of the bound,

    ℒ_τ(c) = Σ_ν [x log M − log Γ(x+1)] − Σ_i E_v,i Σ_ν E_T,νi − E KL(q(v | c) ‖ p(v | λ_c)),   M = g_T g_V.

All sums over ν are over the observed features of the sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.checks import whole
from ..model.compressed import Compressed, is_sparse
from ..model.conjugacy import Rate, expected, negative_kl, require_closed_forms
from ..model.data import Data, as_data
from ..model.groups import SingleGroups
from ..model.indexed import as_membership
from ..model.metadata import Names
from ..model.priors import Gamma, Priors, canonical, is_grouped
from ..model.problem import Problem, require_representable
from ..model.types import Array
from .moments import turned
from .observed import Observed
from .observed.dense import cut_into_tiles
from .observed.segments import rounded_up
from .observed.sparse import Sparse, base_by_row, read_sparse
from .posterior import Fit, Posterior
from .results import factors_of, priors_of, rank_of, warn_of_former_order
from .sweep import update_V


class Folded(NamedTuple):
    """New samples under every candidate group, or under a single one if the prior on V has no groups.

    V: q(v | c), groups × components × samples.
    bound: ℒ_τ(c), samples × groups.
    converged: whether the tolerance was met, samples × groups.
    """

    V: Gamma
    bound: Array
    converged: Array

    def class_posterior(self, shares: Array | None = None, temperature: float = 1.0) -> Array:
        """Return q(z_τ = c) ∝ π_c exp(ℒ_τ(c) / temperature), samples × groups.

        ℒ_τ(c) is a lower bound of log p(x | c), and sums over all features as if they were independent given v: at
        temperature 1 the odds are far too extreme, though their order is useful. Calibrate the temperature, or the
        odds, on samples that were not fitted.

        Args:
            shares: π, the proportions of groups, one positive number each; uniform by default.
            temperature: above 1 for milder odds.
        """
        prior = np.ones(self.bound.shape[1]) if shares is None else np.asarray(shares, float)
        if prior.shape != self.bound.shape[1:] or not ((prior > 0) & np.isfinite(prior)).all():
            raise ValueError(
                f"expected shares to hold {self.bound.shape[1]} positive proportions, one per group; got {shares}"
            )
        if not isinstance(temperature, (int, float, np.number)) or not 0 < temperature < np.inf:
            raise ValueError(f"expected temperature to be a positive number; got {temperature!r}")
        log_prior = jnp.asarray(np.log(prior / prior.sum()), self.bound.dtype)
        return jax.nn.softmax(log_prior[None, :] + self.bound / temperature, axis=1)

    def mean(self, shares: Array | None = None, temperature: float = 1.0) -> Array:
        """Return E[v] = Σ_c q(z = c) E[v | c], components × samples; the arguments are those of `class_posterior`."""
        return jnp.einsum("ckn,nc->kn", self.V.mean, self.class_posterior(shares, temperature))


def fold_in(
    result: Any,
    X: Any,
    priors: Priors | None = None,
    *,
    max_steps: int = 500,
    tol: float = 1e-6,
) -> Folded:
    """Return the coefficients of new samples, and ℒ_τ(c) of every candidate group, with q(T) and q(λ) held fixed.

    Args:
        result: the fit, by `cavi.run` or with Gamma factors by `svi.run`; or its posterior.
        X: features × samples, as `as_data` takes it, with NaN for missing entries; or `Data`, whose groups
            are ignored.
        priors: by default those of the fit. A `Gamma` on V must be the same for all samples.
        max_steps: updates at most.
        tol: a sample is done under a group when its ℒ_τ(c) changes by less than this, relatively.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[9.0, 8.0, 1.0, 0.0], [1.0, 0.0, 8.0, 9.0]], ["a", "a", "b", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma([[1.0, 9.0], [9.0, 1.0]], 1.0)))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), init="groups")
    >>> fold_in(fit, [[7.0], [0.0]]).class_posterior().argmax().item()
    0
    """
    if isinstance(X, (Fit, Posterior)):
        warn_of_former_order("fold_in(result, X, priors)")
        result, X = X, result
    whole("max_steps", max_steps, 1)
    if not isinstance(tol, (int, float, np.number)) or not 0 <= tol < np.inf:
        raise ValueError(f"expected tol to be a number ≥ 0; got {tol!r}")
    learned, priors = factors_of(result), priors_of(result, priors)
    F = np.shape(learned.T[0])[0]
    data = X if isinstance(X, Data) else as_data(X)
    if data.num_features != F:
        raise ValueError(f"expected X with {F} features, as the dictionary has; got {data.num_features}")
    require_representable(data)
    family = canonical(priors).coefficients
    if family.hyperprior is not None and "sample" in family.axes:
        raise ValueError("expected priors whose λ new samples share with fitted ones; got one λ per sample")
    C = np.shape(learned.lam[0])[1] if learned.lam is not None and is_grouped(priors) else 0
    problem = Problem(_candidates(F, C), priors, rank_of(learned))
    require_closed_forms(problem.priors, "folding in")
    kinds = {type(q).__name__ for site, q in learned.sites.items() if site != "V" and not isinstance(q, Gamma)}
    if kinds:
        raise ValueError(f"expected Gamma factors of T and λ for folding in; got {', '.join(sorted(kinds))}")
    if (learned.lam is None) != (problem.priors.coefficients.hyperprior is None):
        with_lam, name = "without" if learned.lam is None else "with", type(problem.priors.coefficients).__name__
        raise ValueError(f"expected priors {with_lam} λ, like the posterior; got {name} coefficients")
    return fold(problem.priors, learned.T, learned.lam, data, max_steps=max_steps, tol=tol)


def fold(priors: Priors, T: Gamma, lam: Gamma | None, data: Data, *, max_steps: int, tol: float) -> Folded:
    """Fold samples in, without validation; see `fold_in`.

    Args:
        priors: of a `Problem`.
        T: q(T), features × components.
        lam: q(λ).
        data: the new samples.
        max_steps: as in `fold_in`.
        tol: as in `fold_in`.
    """
    dtype = jnp.result_type(float)
    held: tuple[Gamma, Any] = jax.tree.map(lambda x: jnp.asarray(x, dtype), (turned(T), lam))
    C = held[1].a.shape[1] if held[1] is not None and is_grouped(priors) else 0
    groups = SingleGroups(jax.device_put(np.eye(C, dtype=dtype)) if C else None)
    if is_sparse(data):
        X = data.X.astype(dtype).rows_along(True)
        X = X if data.mask is not None else _filled_up(X)
        base = jnp.asarray(base_by_row(X), dtype)
        rest = priors, groups, max_steps, jnp.asarray(tol, dtype)
        sparse: Folded = _fold_rows(read_sparse(X, data.mask, by_sample=True), base, *held, *rest)
        N = data.num_samples
        return Folded(Gamma(*(x[:, :, :N] for x in sparse.V)), sparse.bound[:N], sparse.converged[:N])
    X, mask = (None if x is None else jnp.asarray(x, dtype) for x in (data.X, data.mask))
    folded: Folded = _fold((X, mask), *held, priors, groups, max_steps, jnp.asarray(tol, dtype))
    return folded


def _filled_up(X: Compressed) -> Compressed:
    """Return X with empty samples up to a rounded number, for which a program may have been compiled."""
    F, N = X.shape
    more = rounded_up(N) - N
    indptr = np.append(X.indptr, np.full(more, X.indptr[-1]))
    return Compressed(indptr, X.indices, X.values, (F, N + more), True)


def _candidates(num_features: int, num_groups: int) -> Data:
    """Return data with one sample of every group, or one sample without groups, to prepare the prior on V for."""
    N = num_groups or 1
    names = Names(range(num_features), range(N), range(num_groups))
    return Data(np.zeros((num_features, N)), as_membership(range(N), N) if num_groups else None, names)


def _rates(T: Gamma, lam: Any, priors: Priors, groups: SingleGroups) -> Rate:
    """Return E[λ] and what else a prior on V expects, groups × components."""
    rate = expected(priors.coefficients, lam, groups).transpose()
    K, C = T.a.shape[0], 1 if groups.membership is None else len(groups.membership)
    return Rate(*(jnp.broadcast_to(field, (C, K)) for field in rate))


@jax.jit
def _fold(X: tuple, T: Gamma, lam: Any, priors: Priors, groups: SingleGroups, max_steps: Array, tol: Array) -> Folded:
    """Fold all samples in under one group after another: nothing larger than X is formed except the result.

    X is features × samples, with its mask or None.
    """
    each = _rates(T, lam, priors, groups)
    seen = jax.vmap(lambda one: cut_into_tiles(*one))(jax.tree.map(lambda x: x.T[:, :, None], X))
    over_samples = jax.vmap(_fold_one, in_axes=(0, None, None, None, None))
    V, bound, converged = jax.lax.map(lambda of_group: over_samples(seen, T, of_group, max_steps, tol), each)
    return Folded(Gamma(*(jnp.swapaxes(parameter, 1, 2) for parameter in V)), bound.T, converged.T)


def _fold_one(data: Observed, T: Gamma, rate: Rate, max_steps: Array, tol: Array) -> tuple[Gamma, Array, Array]:
    """Fold one sample in under one group; return q(v), its bound, and whether it converged."""
    log_T, exposure = T.log_mean, data.exposure_of_V(T)
    prior = Rate(*(field[None, :] for field in rate))

    def ongoing(carry: tuple) -> Array:
        _, _, bound, last, n = carry
        return (n < max_steps) & ~(jnp.abs(bound - last) <= tol * jnp.abs(bound))

    def body(carry: tuple) -> tuple:
        _, counts, last, _, n = carry
        V = update_V(prior.a, prior.mean, counts, exposure)
        _, counts, log_ratio = data.allocate(log_T, V.log_mean)
        bound = data.base + log_ratio + jnp.sum(negative_kl(V, prior)) - jnp.sum(V.mean * exposure)
        return V.a, counts, bound, last, n + 1

    # At first every component has caused the same number of counts, as far as the prior allows.
    b = update_V(prior.a, prior.mean, jnp.zeros_like(prior.mean), exposure).b
    _, first, _ = data.allocate(log_T, jnp.log(b))
    below = jnp.full((), -jnp.inf, b.dtype)
    a, _, bound, last, _ = jax.lax.while_loop(ongoing, body, (b, first, below, below, 0))
    return Gamma(a[0], b[0]), bound, jnp.abs(bound - last) <= tol * jnp.abs(bound)


@jax.jit
def _fold_rows(
    X: Sparse, base: Array, T: Gamma, lam: Any, priors: Priors, groups: SingleGroups, max_steps: Array, tol: Array
) -> Folded:
    """Fold all samples of a sparse X in together, under one group after another; a sample that is done stays as it is.

    X has samples as rows; base is Σ_ν [x log x − log Γ(x + 1)] of every sample.
    """
    log_T, exposure = T.log_mean.T, X.exposure_of_V(T)

    def done(bound: Array, last: Array) -> Array:
        return jnp.abs(bound - last) <= tol * jnp.abs(bound)

    def of_group(rate: Rate) -> tuple[Gamma, Array, Array]:
        prior = Rate(*(field[None, :] for field in rate))

        def ongoing(carry: tuple) -> Array:
            _, _, bound, last, n = carry
            return (n < max_steps) & ~jnp.all(done(bound, last))

        def body(carry: tuple) -> tuple:
            a, counts, bound, last, n = carry
            V = update_V(prior.a, prior.mean, counts, exposure)
            new, log_ratios = X.entries.row_sums(V.log_mean, log_T)
            reached = base + log_ratios + jnp.sum(negative_kl(V, prior) - V.mean * exposure, axis=1)
            stays = done(bound, last)
            a, counts = (jnp.where(stays[:, None], x, y) for x, y in ((a, V.a), (counts, new)))
            return a, counts, jnp.where(stays, bound, reached), jnp.where(stays, last, bound), n + 1

        # At first every component has caused the same number of counts, as far as the prior allows.
        b = update_V(prior.a, prior.mean, jnp.zeros_like(prior.mean), exposure).b
        b = jnp.broadcast_to(b, (X.num_samples, log_T.shape[1]))
        first, _ = X.entries.row_sums(jnp.log(b), log_T)
        below = jnp.full(X.num_samples, -jnp.inf, b.dtype)
        a, _, bound, last, _ = jax.lax.while_loop(ongoing, body, (b, first, below, below, 0))
        return Gamma(a, b), bound, done(bound, last)

    V, bound, converged = jax.lax.map(of_group, _rates(T, lam, priors, groups))
    return Folded(Gamma(*(jnp.swapaxes(parameter, 1, 2) for parameter in V)), bound.T, converged.T)
