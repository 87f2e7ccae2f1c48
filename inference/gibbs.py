"""Gibbs sampling of the augmented model, as a NumPyro kernel.

s_ν·τ | T, V    ~ Multinomial(x_ντ, t_νi v_iτ / (TV)_ντ)
t_νi  | S, V    ~ Gamma(aᵗ + Σ_τ s, (1/bᵗ + Σ_τ v)⁻¹)
v_iτ  | S, T, λ ~ Gamma(1 + Σ_ν s, (λ_{i z_τ} + Σ_ν t)⁻¹)
λ_ic  | V       ~ Gamma(aˡ + N_c, (1/bˡ + Σ_{τ∈c} v)⁻¹)
γ_i             ~ γ^(A−1) exp(−Pγ − Q/γ),  (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ)

Labels of unlabelled samples are drawn first in a sweep, and stand in Δ for the rest of it; π, if it has a prior, with
the others:

z_τ   | V, λ, π ∝ π_τc Π_i p(v_iτ | λ_ic)
π     | z       ~ Dirichlet(u + Σ_τ Δ_τ) if all samples share it, else π_τ | z_τ ~ Dirichlet(u_τ + Δ_τ)

A multi-label sample has v_iτ ~ Exponential(Σ_c m_c λ_ic), the least of independent Exponential(m_c λ_ic). The index
w_iτ of the least depends on λ alone, w_iτ = c with probability ∝ m_c λ_ic. Given w, v_iτ counts for λ_ic with c = w_iτ,
and is in the sums of all groups of the sample:

λ_ic  | V, w    ~ Gamma(aˡ + Σ_τ [w_iτ = c], (1/bˡ + Σ_τ m_τc v_iτ)⁻¹)

which is exact for coefficients of shape 1; other shapes are refused.

Hidden entries of X have no s, and Σ_τ v and Σ_ν t leave them out.

The update of γ is the scale move, generalised Gibbs on the group of scales with its Haar measure dγ/γ: it does not
change the likelihood, and without it a chain mixes slowly along that direction. A, P and Q come from the priors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from ..model.checks import require_flag
from ..model.compressed import Places
from ..model.conjugacy import moves_rates, require_closed_forms, scaling
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.priors import Gamma, Priors
from ..model.problem import Problem, as_problem, require_counts
from ..model.types import Array
from ..model.unlabelled import with_labels
from .draws import SITES
from .gammas import draw_gammas
from .gibbs_labels import concentrations, draw_labels, first_labels, least_groups, require_exponential
from .scale import draw_scale
from .sweep import rate_sums, update_lam
from .thinning import Prepared, prepare, thin

Sites = dict[str, Array]


class GibbsState(NamedTuple):
    """The state of a chain.

    i: the number of sweeps.
    z: the values of T, V and, if the family has λ, lam; with unlabelled samples also z, the index of a group for every
        sample, and pi, if it has a prior.
    rng_key: for the next sweep.
    entries: the entries of X, from `prepare`; the same in all sweeps, and for all chains.
    """

    i: Array
    z: Sites
    rng_key: Array
    entries: Prepared


class Gibbs(MCMCKernel):
    """Conjugate Gibbs sampling as a kernel of NumPyro's `MCMC`, which takes the arguments of the model.

    Args:
        scale_move: whether every sweep ends with the scale move.

    A chain starts at `init_params`, values of the sites as they are, or at a draw from the prior. S is drawn, used and
    forgotten: the sites are those of the marginal model, which is `model`.

        mcmc = numpyro.infer.MCMC(Gibbs(), num_warmup=500, num_samples=1000)
        mcmc.run(jax.random.key(0), data, priors)

    `mcmc.run_gibbs` does this from a better start.
    """

    sample_field = "z"

    def __init__(self, scale_move: bool = True) -> None:
        require_flag("scale_move", scale_move)
        self.scale_move = scale_move

    @property
    def model(self) -> Any:
        """The marginal model, from whose posterior the draws are."""
        return group_sparse_nmf

    @staticmethod
    def problem(
        data: Data | Problem, priors: Priors | None = None, rank: int | None = None, augmented: bool = True
    ) -> Problem:
        """Return the problem from the arguments of the model; S is drawn for either value of `augmented`."""
        return as_problem(data, priors, rank)

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Sites | None, model_args: tuple, model_kwargs: dict
    ) -> GibbsState:
        """Return the state of one chain, or of several for several keys."""
        problem = self.problem(*model_args, **model_kwargs)
        require_closed_forms(problem.priors, "Gibbs sampling")
        require_counts(problem.data)
        require_exponential(problem)

        def one(key: Array, z: Sites | None) -> tuple[Sites, Array]:
            begin, ahead = jax.random.split(key)
            return draw_prior(begin, problem) if not z else first_labels(problem.data) | z, ahead

        single = is_prng_key(rng_key)
        sites, ahead = one(rng_key, init_params) if single else jax.vmap(one)(rng_key, init_params)
        number = jnp.zeros(() if single else ahead.shape[:1], int)
        return GibbsState(number, sites, ahead, prepare(problem.data.X))

    def sample(self, state: GibbsState, model_args: tuple, model_kwargs: dict) -> GibbsState:
        """Make one sweep of one chain, or of all that the state holds."""
        problem = self.problem(*model_args, **model_kwargs)

        def one(key: Array, z: Sites) -> tuple[Sites, Array]:
            now, ahead = jax.random.split(key)
            return sweep(now, problem, z, self.scale_move, state.entries), ahead

        one = one if is_prng_key(state.rng_key) else jax.vmap(one)
        z, ahead = one(state.rng_key, state.z)
        return GibbsState(state.i + 1, z, ahead, state.entries)


def sweep(
    key: Array,
    problem: Problem,
    z: Sites,
    scale_move: bool = True,
    entries: Prepared | None = None,
    exposure: Array | float = 1.0,
) -> Sites:
    """Draw S, T, V and λ, each given the others, then make the scale move.

    Args:
        key: a JAX key.
        problem: X holds whole numbers, which are read here because S splits them.
        z: the values of the sites.
        scale_move: whether to end with the scale move.
        entries: X's entries, from `prepare`; by default it is called here. If X is traced, as within a
            function that JAX compiles, `entries` from outside make the draw of S many times faster.
        exposure: β, for X ~ Poisson(βTV).
    """
    priors = problem.priors
    dictionary, coefficients = priors
    thinning, units, scale = jax.random.split(key, 3)
    labels, data = draw_labels(jax.random.fold_in(key, 3), problem.data, coefficients, z)
    T, V, *rest = _units((thinning, units, jax.random.fold_in(key, 4)), data, priors, z, entries, labels.get("pi"))
    T = _draw_T(T, dictionary, data, z["V"], exposure)
    V = _draw_V(V, coefficients, z.get("lam"), data, T, exposure)
    lam = update_lam(coefficients, rate_sums(coefficients, V, data.groups))
    z = {"T": T, "V": V} | ({} if lam is None else {"lam": keep_positive(rest[0] * lam.b)})
    z = rescale(scale, data, priors, z) if scale_move else z
    return z | labels | ({"pi": _normalised(rest[-1])} if "pi" in labels else {})


def reverse_sweep(
    key: Array, problem: Problem, z: Sites, entries: Prepared | None = None, exposure: Array | float = 1.0
) -> Sites:
    """Make the draws of `sweep` in the reverse order: in equilibrium, what a chain looks like that runs backwards.

    Every draw from a conditional distribution is reversible, and so is the scale move: π, the scale move, λ, S, V, T, z
    is the time reversal of z, S, T, V, λ, the scale move, π.

    Args:
        key: a JAX key.
        problem: as in `sweep`.
        z: the values of the sites.
        entries: as in `sweep`.
        exposure: as in `sweep`.
    """
    dictionary, coefficients = problem.priors
    thinning, units, scale = jax.random.split(key, 3)
    data, labels = problem.data, {}
    if data.num_unlabelled > 0:
        data, labels = with_labels(problem.data, z["z"]), concentrations(problem.data, z["z"])
    z = rescale(scale, data, problem.priors, z)
    T, V, *rest = _units(
        (thinning, units, jax.random.fold_in(key, 4)), data, problem.priors, z, entries, labels.get("pi")
    )
    q = update_lam(coefficients, rate_sums(coefficients, z["V"], data.groups))
    lam = None if q is None else keep_positive(rest[0] * q.b)
    V = _draw_V(V, coefficients, lam, data, z["T"], exposure)
    T = _draw_T(T, dictionary, data, V, exposure)
    z = z | {"T": T, "V": V} | ({} if lam is None else {"lam": lam})
    z |= {"pi": _normalised(rest[-1])} if labels else {}
    drawn = draw_labels(jax.random.fold_in(key, 3), problem.data, coefficients, z)[0]
    return z | ({"z": drawn["z"]} if drawn else {})


def _units(
    keys: tuple[Array, Array, Array],
    data: Data,
    priors: Priors,
    z: Sites,
    entries: Prepared | None,
    pi: Array | None,
) -> list[Array]:
    """Draw S, and Gamma(a, 1) for T, V, for λ if there is one, and for π of these concentrations if it has a prior.

    The shapes a depend on S and on how many samples there are, not on the values of T, V and λ. So one call draws for
    all, and the scales are put in one after the other.
    """
    thinning, units, least = keys
    dictionary, coefficients = priors
    S = thin(thinning, data.X, z["T"], z["V"], entries)
    lam = update_lam(coefficients, rate_sums(coefficients, z["V"], data.groups))
    shapes = [dictionary.shape + S.T, coefficients.shape + S.V]
    shapes += [] if lam is None else [lam.a + least_groups(least, data, coefficients, z["lam"])]
    return _standard_gammas(units, shapes + ([] if pi is None else [pi]))


def _draw_T(unit: Array, dictionary: Any, data: Data, V: Array, exposure: Array | float) -> Array:
    """Return t_νi | S, V: a draw of Gamma(a, 1) over its rate 1/bᵗ + β Σ_τ v."""
    return keep_positive(unit / (dictionary.rates() + exposure * _observed_sums(data.mask, V.T)))


def _draw_V(unit: Array, coefficients: Any, lam: Array | None, data: Data, T: Array, exposure: Array | float) -> Array:
    """Return v_iτ | S, T, λ: a draw of Gamma(a, 1) over its rate λ_{i z_τ} + β Σ_ν t."""
    return keep_positive(unit / (coefficients.rates(lam, data) + exposure * _observed_sums(_turned(data.mask), T).T))


def _normalised(gammas: Array) -> Array:
    """Return a draw of a Dirichlet: Gammas over their sum."""
    gammas = keep_positive(gammas)
    return gammas / gammas.sum(axis=-1, keepdims=True)


def rescale(key: Array, data: Data, priors: Priors, z: Sites) -> Sites:
    """Make the scale move: (t_·i, v_i·, λ_i·) → (γt, v/γ, γλ) with γ_i from its exact conditional.

    A component stays if the move would overflow or underflow one of its numbers: the move is still exact, for the
    posterior on the numbers that the precision has.
    """
    T, V, lam = z["T"], z["V"], z.get("lam")
    gamma = draw_scale(key, *scaling(priors, _point(T), _point(V), None if lam is None else _point(lam), data.groups))
    moved = moves_rates(priors.coefficients)

    def move(gamma: Array) -> Sites:
        across, along = gamma[None, :], gamma[:, None]  # components are T's columns, and the rows of V and λ
        return {"T": T * across, "V": V / along} | ({"lam": lam * along} if moved else {})

    info = np.finfo(T.dtype)
    inside = {site: (x >= info.tiny) & (x <= info.max) for site, x in move(gamma).items()}
    fits = jnp.stack([x.all(axis=0 if site == "T" else 1) for site, x in inside.items()]).all(axis=0)
    return z | move(jnp.where(fits, gamma, 1))


def draw_prior(key: Array, problem: Problem, given: Sites | None = None) -> Sites:
    """Draw the sites of the model from the prior; or the others, if some are given."""
    model = handlers.substitute(handlers.seed(group_sparse_nmf, key), given or {})
    trace = handlers.trace(model).get_trace(problem)
    return {name: trace[name]["value"] for name in SITES if name in trace}


def _observed_sums(mask: Any, values: Array) -> Array:
    """Return the sum of observed rows of values for every row of the mask; one row for all without a mask."""
    if mask is None:
        return values.sum(axis=0, keepdims=True)
    if isinstance(mask, Places):
        hidden = jnp.zeros((mask.shape[0], values.shape[1]), values.dtype).at[mask.feature].add(values[mask.sample])
        return jnp.maximum(values.sum(axis=0, keepdims=True) - hidden, 0)
    return mask @ values


def _turned(mask: Any) -> Any:
    if isinstance(mask, Places):
        return Places(mask.sample, mask.feature, mask.shape[::-1])
    return None if mask is None else mask.T


def _point(values: Array) -> Gamma:
    """Return exact values as a Gamma with these means."""
    return Gamma(values, jnp.ones_like(values))


def keep_positive(values: Array) -> Array:
    """Return values above 0: a Gamma of small shape underflows to 0, where its density is infinite."""
    return jnp.maximum(values, np.finfo(values.dtype).tiny)


def _standard_gammas(key: Array, shapes: list[Array]) -> list[Array]:
    """Draw a matrix of Gamma(a, 1) for each matrix of a."""
    flat = draw_gammas(key, jnp.concatenate([a.ravel() for a in shapes]))
    parts = jnp.split(flat, np.cumsum([a.size for a in shapes])[:-1])
    return [part.reshape(a.shape) for part, a in zip(parts, shapes, strict=True)]
