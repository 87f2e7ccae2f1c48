"""Markov chains whose limit is the posterior itself: NUTS on the marginal model, Gibbs on the augmented one."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import unconstrain_fn

from ..model.conjugacy import require_closed_forms
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.priors import Gamma, Priors
from ..model.problem import prepare, require_counts
from ..model.types import Array
from ..model.unlabelled import num_unlabelled
from ..model.validation import whole
from .gibbs import Gibbs, Sites, first_labels, positive, require_exponential
from .guide import guide
from .labels.warm_start import label_posterior
from .posterior import Fit, Posterior, match, rank_of
from .starts import Start, check_key, fill, first_rates

__all__ = ["Gibbs", "run_gibbs", "run_nuts"]

METHODS = ("vectorized", "sequential", "parallel")


def run_nuts(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    num_warmup: int = 500,
    num_samples: int = 1000,
    num_chains: int = 2,
    thinning: int = 1,
    progress_bar: bool = True,
    chain_method: str = "vectorized",
    dense_mass: bool = False,
    target_accept_prob: float = 0.8,
    max_tree_depth: int = 10,
    extra_fields: Sequence[str] = (),
) -> MCMC:
    """NumPyro's No-U-Turn sampler on the marginal model `group_sparse_nmf`, S summed out; X may have fractions.

    Args:
        data: as made by `as_data`.
        priors: what is believed about T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open.
        start: a `Fit` or `Posterior`, such as CAVI's: every chain starts at its own draw from it. Chains then begin
            with the same order of components, and apart from each other, if less far than the posterior is wide. Or
            means from `cavi.start`, where all chains start. None for random starts.
        init: how what `start` leaves open is filled, as in `cavi.run`, for every chain anew; λ starts at its
            conditional mean given V.
        num_warmup: draws made first and thrown away, by which step size and mass matrix adapt.
        num_samples: draws made then, by each chain.
        num_chains: how many chains.
        thinning: keep every n-th of those draws.
        progress_bar: whether NumPyro shows its progress.
        chain_method: "vectorized", all chains at once on one device; "sequential"; or "parallel", which takes a device
            for each chain.
        dense_mass: whether the mass matrix is full; it has (FK + KN + KC)² entries, or in place of KC as
            many as the family has λ.
        target_accept_prob: towards which the step size adapts; larger for smaller steps.
        max_tree_depth: a trajectory has at most 2 to this power steps.
        extra_fields: what of NumPyro's `HMCState` to record, such as "potential_energy".

    Returns the NumPyro `MCMC` object after its run, with sites T, V and, if the family has it, lam.

    Labels that are unknown are summed out by NumPyro, for which it needs funsor, the extra `labels`; π, if it has a
    Dirichlet prior, is a site pi. `label_probabilities` and `to_arviz` find z again, from p(z | V, λ, π) of every draw.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3, 1], [0, 2]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> options = {"num_warmup": 10, "num_samples": 20, "num_chains": 1, "progress_bar": False}
    >>> mcmc = run_nuts(data, priors, key=jax.random.key(0), rank=1, **options)
    >>> mcmc.get_samples(group_by_chain=True)["T"].shape
    (1, 20, 2, 1)
    """
    options = _options(num_warmup, num_samples, num_chains, thinning, chain_method, progress_bar)
    problem = _begin(data, priors, key, rank, start, init, num_chains)
    if num_unlabelled(problem.data) > 0:
        _require_funsor()
    kernel = NUTS(
        group_sparse_nmf,
        dense_mass=dense_mass,
        target_accept_prob=target_accept_prob,
        max_tree_depth=max_tree_depth,
    )

    def free(z: Sites) -> Sites:
        """Where NUTS moves: without constraints."""
        args, kwargs = (problem.data, problem.priors), {"rank": problem.rank}
        return cast(Sites, unconstrain_fn(handlers.seed(group_sparse_nmf, 0), args, kwargs, z))  # z has a value to have

    problem = problem._replace(z=jax.jit(jax.vmap(free))(problem.z))
    return _run(kernel, problem, options, extra_fields)


def run_gibbs(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    num_warmup: int = 500,
    num_samples: int = 1000,
    num_chains: int = 2,
    thinning: int = 1,
    progress_bar: bool = True,
    chain_method: str = "vectorized",
    scale_move: bool = True,
) -> MCMC:
    """Conjugate Gibbs sampling of the augmented model, by the kernel `Gibbs`; X must hold whole numbers.

    Args:
        data: as made by `as_data`.
        priors: what is believed about T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key.
        rank: as in `run_nuts`; likewise start, init, num_samples, num_chains, thinning, progress_bar, chain_method.
        start: as in `run_nuts`.
        init: as in `run_nuts`.
        num_warmup: sweeps made first and thrown away; nothing adapts.
        num_samples: as in `run_nuts`.
        num_chains: as in `run_nuts`.
        thinning: as in `run_nuts`.
        progress_bar: as in `run_nuts`.
        chain_method: as in `run_nuts`.
        scale_move: whether every sweep ends with the exact scale move, for little more time and many times the
            effective draws of what depends on the scale of T.

    Returns the NumPyro `MCMC` object after its run, with sites T, V and, if the family has it, lam; where labels are
    unknown also z, of every sample the index of its group, and pi if it has a Dirichlet prior. Several labels per
    sample need coefficients of shape 1, as those of `GroupSparse`: of others λ has no conditional to draw from.

    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[3, 1, 0], [0, 2, 5]], ["a", "b", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> options = {"num_warmup": 10, "num_samples": 20, "progress_bar": False}
    >>> mcmc = run_gibbs(data, priors, key=jax.random.key(0), rank=1, **options)
    >>> mcmc.get_samples(group_by_chain=True)["lam"].shape
    (2, 20, 1, 2)
    """
    options = _options(num_warmup, num_samples, num_chains, thinning, chain_method, progress_bar)
    problem = _begin(data, priors, key, rank, start, init, num_chains)
    require_closed_forms(problem.priors, "Gibbs sampling")
    require_counts(data)
    require_exponential(problem.data, problem.priors)
    return _run(Gibbs(scale_move), problem, options)


def _require_funsor() -> None:
    if importlib.util.find_spec("funsor") is None:
        raise ValueError(
            "expected the package funsor, by which NumPyro sums unknown labels out; got none: "
            "pip install 'gsnmf[labels]', or mcmc.run_gibbs, which draws them"
        )


class _Problem(NamedTuple):
    """What a run begins with: all of it checked, `z` with a first axis of chains."""

    data: Data
    priors: Priors
    rank: int
    key: Array
    z: Sites


def _begin(
    data: Data,
    priors: Priors,
    key: Array,
    rank: int | None,
    start: Start | Posterior | Fit | None,
    init: str,
    num_chains: int,
) -> _Problem:
    """Check what came in, and find a start for every chain."""
    begun = start.posterior if isinstance(start, Fit) else start
    if isinstance(begun, Posterior) and rank is None:
        rank = rank_of(begun)
    ready, hyper, K = prepare(data, priors, rank)
    check_key(key)
    ahead, *keys = jax.random.split(key, 1 + num_chains)
    if isinstance(begun, Posterior):
        q = match(begun, ready, hyper, K, tuple)
        if num_unlabelled(ready) > 0 and q.labels is None:
            q = q.with_labels(label_posterior(ready))
        chains = [_shares(ready) | _drawn(k, q, ready, hyper) for k in keys]
    else:
        chains = [_shares(ready) | _filled(fill(begun, data, hyper, K, k, init), begun, ready, hyper) for k in keys]
    return _Problem(ready, hyper, K, ahead, jax.tree.map(lambda *z: jnp.asarray(np.stack(z)), *chains))


def _drawn(key: Array, q: Posterior, data: Data, priors: Priors) -> Sites:
    """A draw from q; of Gammas NumPy's, so that single and double precision start from the same point."""
    if not isinstance(q.T, Gamma):
        drawn = handlers.seed(guide(q), key)(data, priors, rank=rank_of(q))
        return {site: positive(drawn[site]) for site in ("T", "V", "lam", "pi") if site in drawn}
    rng = np.random.default_rng(np.asarray(check_key(key)))
    return {site: positive(jnp.asarray(rng.gamma(*f), f.a.dtype)) for site, f in q.sites.items()}


def _shares(data: Data) -> Sites:
    """Where π starts, if it has a prior."""
    return {site: values for site, values in first_labels(data).items() if site == "pi"}


def _filled(means: Start, given: Start | None, data: Data, priors: Priors) -> Sites:
    """The means as values, positive; λ, unless it was given, is made to fit V."""
    z = {site: jnp.asarray(E, data.X.dtype) + 1e-12 for site, E in means._asdict().items() if E is not None}
    lam = first_rates(priors, z["V"], data)
    return z if lam is None or (given is not None and given.lam is not None) else z | {"lam": lam.mean}


def _run(kernel: MCMCKernel, problem: _Problem, options: dict[str, Any], extra_fields: Sequence[str] = ()) -> MCMC:
    """The chains; a single one has no axis of chains in NumPyro."""
    mcmc = MCMC(kernel, **options)
    z = problem.z if options["num_chains"] > 1 else {site: values[0] for site, values in problem.z.items()}
    mcmc.run(
        problem.key, problem.data, problem.priors, rank=problem.rank, init_params=z, extra_fields=tuple(extra_fields)
    )
    return mcmc


def _options(
    num_warmup: int, num_samples: int, num_chains: int, thinning: int, chain_method: str, progress_bar: bool
) -> dict[str, Any]:
    """What NumPyro's `MCMC` is told, checked."""
    numbers = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains, "thinning": thinning}
    numbers = {name: whole(name, value, 0 if name == "num_warmup" else 1) for name, value in numbers.items()}
    if thinning > num_samples:
        raise ValueError(f"expected thinning ≤ num_samples={num_samples}, lest no draw be kept; got {thinning}")
    if chain_method not in METHODS:
        raise ValueError(f"expected chain_method to be one of {', '.join(map(repr, METHODS))}; got {chain_method!r}")
    return {**numbers, "chain_method": chain_method, "progress_bar": progress_bar}
