"""Markov chain Monte Carlo: NUTS on the marginal model, Gibbs on the augmented one."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.hmc import HMCState
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import unconstrain_fn

from ..model.checks import require_fraction, whole
from ..model.compressed import require_dense
from ..model.conjugacy import require_closed_forms
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.priors import Gamma, Priors
from ..model.problem import Problem, require_counts
from ..model.types import Array
from .chains import Chains, GibbsChains, Keep, keeper
from .gibbs import Gibbs, Sites, keep_positive
from .gibbs_labels import first_labels, require_exponential
from .guide import guide
from .labels.warm_start import label_posterior
from .posterior import Fit, Posterior
from .results import match, rank_of
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
    dense_mass: bool | list[tuple[str, ...]] = False,
    target_accept_prob: float = 0.8,
    max_tree_depth: int | tuple[int, int] = 10,
    extra_fields: Sequence[str] = (),
    keep: Keep | None = None,
) -> MCMC:
    """Run NumPyro's No-U-Turn sampler on the marginal model `group_sparse_nmf`, S summed out; X may have fractions.

    Args:
        data: as made by `as_data`.
        priors: the priors of T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open.
        start: a `Fit` or `Posterior`, such as CAVI's: every chain starts at its own draw from it. Chains then begin
            with the same order of components, at different points, though less spread out than the posterior. Or
            means from `cavi.start`, at which all chains start. None for random starts.
        init: the initialisation of what `start` leaves open, as in `cavi.run`, separately for every chain; λ starts at
            its conditional mean given V.
        num_warmup: warm-up draws, discarded, during which step size and mass matrix adapt.
        num_samples: draws of each chain after warm-up.
        num_chains: the number of chains.
        thinning: keep every n-th draw after warm-up.
        progress_bar: whether NumPyro shows its progress.
        chain_method: "vectorized", all chains at once on one device; "sequential"; or "parallel", which takes a device
            for each chain.
        dense_mass: whether the mass matrix is full; it has (FK + KN + KC)² entries (KC is the size of λ). Or a list of
            tuples of sites, each of which has a full block.
        target_accept_prob: the acceptance rate to which the step size adapts; larger for smaller steps.
        max_tree_depth: a trajectory has at most 2 to this power steps; a pair for warm-up and afterwards.
        extra_fields: fields of NumPyro's `HMCState` to record, such as "potential_energy".
        keep: the sites of which draws are stored, such as ["lam"], or functions of the sites of one draw by name, such
            as {"total": lambda z: (z["T"] @ z["V"]).sum()}, so that memory need not grow with the size of T or V
            times the number of draws. By default all sites, which `to_arviz` and all other functions of chains expect.

    Returns a NumPyro `MCMC` object after its run, with sites T, V and, if the family has λ, lam; functions of results
    use its attribute `priors` by default.

    Labels of unlabelled samples are summed out by NumPyro, which needs funsor, the extra `labels`; π, if it has a
    Dirichlet prior, is a site pi. `label_probabilities` and `to_arviz` recover z from p(z | V, λ, π) of every draw.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3, 1], [0, 2]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> options = {"num_warmup": 10, "num_samples": 20, "num_chains": 1, "progress_bar": False}
    >>> mcmc = run_nuts(data, priors, key=jax.random.key(0), rank=1, **options)
    >>> mcmc.get_samples(group_by_chain=True)["T"].shape
    (1, 20, 2, 1)
    """
    options = _options(num_warmup, num_samples, num_chains, thinning, chain_method, progress_bar)
    _check_nuts(dense_mass, target_accept_prob, max_tree_depth, extra_fields)
    beginning = _begin(data, priors, key, rank, start, init, num_chains)
    problem = beginning.problem
    require_dense(problem.data, "NUTS")
    if problem.data.num_unlabelled > 0:
        _require_funsor()
    settings: dict[str, Any] = {"dense_mass": dense_mass, "target_accept_prob": target_accept_prob}
    settings["max_tree_depth"] = tuple(max_tree_depth) if isinstance(max_tree_depth, list) else max_tree_depth
    kernel = NUTS(group_sparse_nmf, **settings)

    def free(z: Sites) -> Sites:
        """Return the values without constraints, as NUTS needs them; the seed is for z, which has no value."""
        return cast(Sites, unconstrain_fn(handlers.seed(group_sparse_nmf, 0), (problem,), {}, z))

    kept = keeper(keep, beginning.one)
    options["postprocess_fn"] = kept and (lambda z: kept(kernel.postprocess_fn((problem,), {})(z)))
    beginning = beginning._replace(z=jax.jit(jax.vmap(free))(beginning.z))
    return _run(kernel, beginning, options, priors, settings, extra_fields)


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
    keep: Keep | None = None,
) -> MCMC:
    """Run conjugate Gibbs sampling of the augmented model, by the kernel `Gibbs`; X must hold whole numbers.

    Args:
        data: as made by `as_data`.
        priors: the priors of T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key.
        rank: as in `run_nuts`.
        start: as in `run_nuts`.
        init: as in `run_nuts`.
        num_warmup: warm-up sweeps, discarded; nothing adapts.
        num_samples: as in `run_nuts`.
        num_chains: as in `run_nuts`.
        thinning: as in `run_nuts`.
        progress_bar: as in `run_nuts`.
        chain_method: as in `run_nuts`.
        scale_move: whether every sweep ends with the exact scale move, which costs little and gives many times the
            effective draws of quantities that depend on the scale of T.
        keep: as in `run_nuts`.

    Returns a NumPyro `MCMC` object after its run, as `run_nuts` does, with sites T, V and, if the family has λ, lam;
    with unlabelled samples also z, the index of a group for every sample, and pi if it has a Dirichlet prior.
    Multi-label samples need coefficients of shape 1, as in `GroupSparse`: for other shapes λ has no known conditional.

    >>> from gsnmf.model import Gamma, GroupSparse, Priors, as_data
    >>> data = as_data([[3, 1, 0], [0, 2, 5]], ["a", "b", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> options = {"num_warmup": 10, "num_samples": 20, "progress_bar": False}
    >>> mcmc = run_gibbs(data, priors, key=jax.random.key(0), rank=1, **options)
    >>> mcmc.get_samples(group_by_chain=True)["lam"].shape
    (2, 20, 1, 2)
    """
    options = _options(num_warmup, num_samples, num_chains, thinning, chain_method, progress_bar)
    beginning = _begin(data, priors, key, rank, start, init, num_chains)
    require_closed_forms(beginning.problem.priors, "Gibbs sampling")
    require_counts(data)
    require_exponential(beginning.problem)
    options["postprocess_fn"] = keeper(keep, first_labels(beginning.problem.data) | beginning.one)
    return _run(Gibbs(scale_move), beginning, options, priors, {"scale_move": scale_move})


def _require_funsor() -> None:
    if importlib.util.find_spec("funsor") is None:
        raise ValueError(
            "expected the package funsor, by which NumPyro sums labels out; got none installed: "
            "pip install 'gsnmf[labels]', or mcmc.run_gibbs, which draws them"
        )


class Beginning(NamedTuple):
    """Start of chains, validated.

    problem: data, priors and rank.
    key: for the chains.
    z: values of the sites, with a first axis of chains.
    """

    problem: Problem
    key: Array
    z: Sites

    @property
    def one(self) -> Sites:
        """The values of the sites of the first chain."""
        return {site: values[0] for site, values in self.z.items()}


def _begin(
    data: Data,
    priors: Priors,
    key: Array,
    rank: int | None,
    start: Start | Posterior | Fit | None,
    init: str,
    num_chains: int,
) -> Beginning:
    """Validate the arguments, and find a start for every chain."""
    begun = start.posterior if isinstance(start, Fit) else start
    if isinstance(begun, Posterior) and rank is None:
        rank = rank_of(begun)
    problem = Problem(data, priors, rank)
    check_key(key)
    ahead, *keys = jax.random.split(key, 1 + num_chains)
    pi = {site: values for site, values in first_labels(problem.data).items() if site == "pi"}
    if isinstance(begun, Posterior):
        q = match(begun, problem, tuple)
        if problem.data.num_unlabelled > 0 and q.labels is None:
            q = q.with_labels(label_posterior(problem.data))
        chains = [pi | _drawn(k, q, problem) for k in keys]
    else:
        filled = (fill(begun, data, problem.priors, problem.rank, k, init) for k in keys)
        chains = [pi | _filled(means, begun, problem) for means in filled]
    return Beginning(problem, ahead, jax.tree.map(lambda *z: jnp.asarray(np.stack(z)), *chains))


def _drawn(key: Array, q: Posterior, problem: Problem) -> Sites:
    """Return a draw from q, from Gammas by NumPy: single and double precision start from the same point."""
    if not isinstance(q.T, Gamma):
        drawn = handlers.seed(guide(q), key)(problem)
        return {site: keep_positive(drawn[site]) for site in ("T", "V", "lam", "pi") if site in drawn}
    rng = np.random.default_rng(np.asarray(check_key(key)))
    return {site: keep_positive(jnp.asarray(rng.gamma(*f), f.a.dtype)) for site, f in q.sites.items()}


def _filled(means: Start, given: Start | None, problem: Problem) -> Sites:
    """Return the means as positive values; λ, unless it was given, follows from V."""
    z = {site: jnp.asarray(E, problem.dtype) + 1e-12 for site, E in means._asdict().items() if E is not None}
    lam = first_rates(problem.priors, z["V"], problem.data)
    return z if lam is None or (given is not None and given.lam is not None) else z | {"lam": lam.mean}


def _run(
    kernel: MCMCKernel,
    begin: Beginning,
    options: dict[str, Any],
    priors: Priors,
    settings: dict[str, Any],
    extra_fields: Sequence[str] = (),
) -> MCMC:
    """Run the chains; a single one has no axis of chains in NumPyro."""
    mcmc = (GibbsChains if isinstance(kernel, Gibbs) else Chains)(kernel, **options)  # type: ignore[no-untyped-call]  # NumPyro's
    mcmc.priors, mcmc.settings = priors, settings
    z = begin.z if options["num_chains"] > 1 else begin.one
    mcmc.run(begin.key, begin.problem, init_params=z, extra_fields=tuple(extra_fields))  # type: ignore[no-untyped-call]
    return mcmc


def _check_nuts(dense_mass: Any, target_accept_prob: Any, max_tree_depth: Any, extra_fields: Any) -> None:
    """Raise for options of NUTS that NumPyro would refuse late, or not at all."""
    require_fraction("target_accept_prob", target_accept_prob)
    both = max_tree_depth if isinstance(max_tree_depth, (list, tuple)) else (max_tree_depth,) * 2
    if len(both) != 2:
        raise ValueError(
            f"expected max_tree_depth to be a whole number, or two, during warm-up and after; got {max_tree_depth!r}"
        )
    for depth in both:
        whole("max_tree_depth", depth, 1)
    if not isinstance(dense_mass, (bool, np.bool, list)):
        raise ValueError(f"expected dense_mass to be True, False, or a list of tuples of sites; got {dense_mass!r}")
    if isinstance(extra_fields, str) or not isinstance(extra_fields, (list, tuple)):
        raise ValueError(f"expected extra_fields to be a sequence of names; got {extra_fields!r}")
    for name in extra_fields:
        first = name.removeprefix("~z.") if isinstance(name, str) else name  # "~z.T" leaves T out
        known = first != name or (isinstance(name, str) and name.partition(".")[0] in HMCState._fields)
        if not known:
            raise ValueError(f"expected extra_fields to be some of {', '.join(HMCState._fields)}; got {name!r}")


def _options(
    num_warmup: int, num_samples: int, num_chains: int, thinning: int, chain_method: str, progress_bar: bool
) -> dict[str, Any]:
    """Return the options of NumPyro's `MCMC`, validated."""
    numbers = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains, "thinning": thinning}
    numbers = {name: whole(name, value, 0 if name == "num_warmup" else 1) for name, value in numbers.items()}
    if thinning > num_samples:
        raise ValueError(f"expected thinning ≤ num_samples={num_samples}, so that a draw is kept; got {thinning}")
    if chain_method not in METHODS:
        raise ValueError(f"expected chain_method to be one of {', '.join(map(repr, METHODS))}; got {chain_method!r}")
    return {**numbers, "chain_method": chain_method, "progress_bar": progress_bar}
