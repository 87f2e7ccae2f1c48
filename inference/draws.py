"""Draws of T, V, λ and labels: the one entrance for fits, posteriors, chains, ArviZ objects and arrays.

A result either holds draws (`MCMC`, ArviZ, arrays by site) or makes them (`Fit`, `Posterior`). All functions get draws
from here, at once (`all_draws`) or a batch at a time (`in_batches`), in the same way for both kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC

from ..model.conjugacy import rate_shape
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .guide import guide
from .posterior import Fit, Posterior
from .results import factors_of, match, problem_of
from .starts import check_key

SITES = ("T", "V", "lam", "pi", "z")
AXIS = {"T": -1, "V": -2, "lam": -2}  # of components
STATS = {"num_steps": "n_steps", "accept_prob": "acceptance_rate", "adapt_state.step_size": "step_size"}  # as in ArviZ
ENTRIES = 2**22  # numbers of arrays of the size of X in memory at once: larger work is done in batches


class Source(NamedTuple):
    """A result as a source of draws of one problem.

    problem: prepared once.
    held: draws that the result holds, chains × draws × ... by site; None if draws are to be made.
    q: the posterior to draw from; None if draws are held.
    num: the number of draws in all.
    """

    problem: Problem
    held: dict[str, np.ndarray] | None
    q: Posterior | None
    num: int


def source_of(result: Any, data: Data | Problem, priors: Priors | None, num_samples: int) -> Source:
    """Return a result as a source of draws; raise if it does not fit the data and priors.

    Args:
        result: a `Fit` or `Posterior`, of which `num_samples` draws are made; or a NumPyro `MCMC` that has run, what
            `to_arviz` returned, or draws by site, all of whose draws are taken.
        data: the data that it was fitted to, or the problem.
        priors: by default those of the result.
        num_samples: the number of draws to make.
    """
    held = held_draws(result)
    if held is not None:
        problem = problem_of(result, data, priors, held["T"].shape[-1])
        check_shapes(held, problem)
        return Source(problem, held, None, held["T"].shape[0] * held["T"].shape[1])
    if not isinstance(result, (Fit, Posterior)):
        raise ValueError(f"expected a Fit, a Posterior or a NumPyro MCMC that has run; got {type(result).__name__}")
    problem = problem_of(result, data, priors)
    return Source(problem, None, match(factors_of(result), problem, tuple), num_samples)


def held_draws(result: Any) -> dict[str, np.ndarray] | None:
    """Return the draws that a result holds, chains × draws × ... by site; None if it holds factors."""
    if isinstance(result, tuple):  # a Fit, a Posterior, or nothing that holds draws
        return None
    if isinstance(result, MCMC):
        try:
            samples = result.get_samples(group_by_chain=True)
        except AssertionError:  # raised by NumPyro before a run
            samples = {}
        if not {"T", "V"} <= set(samples):
            found = sorted(samples) or "no samples"
            raise ValueError(f"expected an MCMC that has run and collected T and V; got {found}")
        return {site: np.asarray(samples[site]) for site in SITES if site in samples}
    if hasattr(result, "children") or hasattr(result, "groups"):  # ArviZ's, of either generation
        found = result["posterior"]
        return _check_draws({site: found[site].values for site in SITES if site in found})
    return _check_draws(result) if isinstance(result, Mapping) else None


def sampler_stats(result: Any) -> dict[str, tuple]:
    """Return the statistics that a sampler recorded for each draw, by ArviZ's names; nothing for other results."""
    if not isinstance(result, MCMC):
        return {}
    extra = result.get_extra_fields(group_by_chain=True)
    if "potential_energy" in extra:
        extra = {"lp": -extra["potential_energy"]} | extra
    fields = {STATS.get(name, name.replace(".", "_")): np.asarray(x) for name, x in extra.items()}
    return {name: (("chain", "draw"), x) for name, x in fields.items() if x.ndim == 2 and x.dtype.kind in "biuf"}


def is_chains(result: Any) -> bool:
    """Return whether a result is a sampler's, whose chains may need alignment."""
    return isinstance(result, MCMC)


def all_draws(source: Source, key: Array) -> dict[str, np.ndarray]:
    """Return all draws, chains × draws × ... by site; draws that are made form one chain."""
    if source.held is not None:
        return source.held
    size = batch(source.problem.size, source.num)
    parts = [jax.device_get(some) for some, _ in in_batches(source, key, size)]
    kept = {site: np.concatenate([part[site] for part in parts]) for site in SITES if site in parts[0]}
    return {site: x[None, : source.num] for site, x in kept.items()}


def in_batches(source: Source, key: Array, size: int) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield draws by site, `size` at a time, and how many of them count: the last batch is filled up.

    Args:
        source: of the draws.
        key: a JAX key for draws that are made.
        size: draws in a batch, as from `batch`.
    """
    if source.held is None:
        for n, keys in enumerate(jax.random.split(key, (-(-source.num // size), size))):
            yield _draw(source.q, source.problem, keys), min(size, source.num - n * size)
        return
    yield from cut_batches(source.held, size)


def cut_batches(draws: Mapping[str, np.ndarray], size: int) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    """Yield draws, chains × draws × ... by site, a batch at a time, as `in_batches` does."""
    num = draws["T"].shape[0] * draws["T"].shape[1]
    flat = {site: x.reshape(num, *x.shape[2:]) for site, x in draws.items()}
    for begin in range(0, num, size):
        some = np.arange(begin, begin + size) % num
        yield {site: x[some] for site, x in flat.items()}, min(size, num - begin)


@jax.jit
def _draw(q: Posterior, problem: Problem, keys: Array) -> dict[str, Array]:
    def one(key: Array) -> dict[str, Array]:
        drawn: dict[str, Array] = handlers.seed(guide(q, together=True), key)(problem)
        return drawn

    return jax.vmap(one)(keys)


def batch(entries: int, num: int) -> int:
    """Return how many of `num` draws to hold at once, each with an array of so many entries; only powers of 2."""
    return 1 << (max(1, min(256, num, ENTRIES // max(entries, 1))).bit_length() - 1)


def default_key(key: Array | None) -> Array:
    """Return the key, or `jax.random.key(0)` by default; raise if it is not a key."""
    key = jax.random.key(0) if key is None else key
    check_key(key)
    return key


def check_shapes(draws: Mapping[str, np.ndarray], problem: Problem) -> None:
    """Raise if draws, chains × draws × rows × columns by site, belong to other data or priors; z may be left out."""
    data, priors, K = problem
    wanted: dict[str, tuple[int, ...]] = {"T": (data.num_features, K), "V": (K, data.num_samples)}
    size = rate_shape(priors.coefficients, data, K)
    wanted |= {} if size is None else {"lam": size}
    if data.num_unlabelled > 0:
        u: Any = data.labels.dirichlet if data.labels is not None else None
        wanted |= {} if u is None else {"pi": u.shape}
        wanted |= {"z": (data.num_samples,)} if "z" in draws else {}
    found = {site: x.shape[2:] for site, x in draws.items()}
    if found != wanted:
        raise ValueError(f"expected draws of shapes {wanted} for these data and priors; got {found}")


def _check_draws(draws: Mapping[str, Array]) -> dict[str, np.ndarray]:
    sites = {site: np.asarray(draws[site]) for site in SITES if site in draws}
    shapes = {site: x.shape for site, x in sites.items() if site in AXIS}
    if not {"T", "V"} <= set(sites) or any(len(shape) != 4 for shape in shapes.values()):
        raise ValueError(f"expected draws of T and V, chains × draws × rows × columns; got shapes {shapes}")
    of = {(shape[:2], shape[AXIS[site]]) for site, shape in shapes.items() if site != "lam" or shape[AXIS[site]] > 1}
    if len(of) > 1:
        raise ValueError(f"expected as many chains, draws and components in all sites; got shapes {shapes}")
    return sites
