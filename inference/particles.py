"""A particle filter over parts of X, whose particles are moved by Gibbs sweeps.

At stage n particles (T, V, λ) are weighted by p(ΔX_n | T, V), resampled, and moved by the sweep for X_≤n with exposure
β_n (see `evidence`). Conditionally, one particle keeps to a path that is given: an exact draw, made backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ..model.data import Data
from ..model.problem import Problem
from ..model.types import Array
from ..model.unlabelled import have_single_label, labels_of
from .gibbs import Sites, draw_prior, reverse_sweep, sweep
from .thinning import BLOCK, Group, group_counts

CHUNK = 20  # stages in one compiled program
FEW = 2**12  # units drawn in vain for one particle that cost less than a group of their own
UNITS = 2**22  # counts, or entries of X, of as many particles as are moved at once


class Run(NamedTuple):
    """A filter after its run.

    total: the log of the product of mean weights.
    effective: effective sizes by stage, as shares of the particles.
    spread: the variance of log weights by stage.
    ancestors: the number of distinct ones.
    """

    total: float
    effective: np.ndarray
    spread: np.ndarray
    ancestors: int


class Stage(NamedTuple):
    """Stages of a filter: ΔX and X_≤n, features × samples, with their exposures; the first axis is that of stages."""

    increment: Array
    counts: Array
    share: Array
    exposure: Array


def run_filter(problem: Problem, key: Array, stages: np.ndarray, num_particles: int, truth: Sites | None = None) -> Run:
    """Run one filter; with the truth, one whose first particle is an exact draw of a path."""
    entries = group_counts(problem.data.X, FEW)
    drawn, ahead, back = jax.random.split(key, 3)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chunks: Iterable[Stage] = _split(problem, stages, rng)
    paths = None
    if truth is not None:  # then they are needed twice
        chunks = list(chunks)
        paths = _backwards(problem, entries, chunks, truth, back)
    first = None if paths is None else paths[0]
    particles = _begin(problem, jax.random.split(drawn, num_particles), first)
    ancestors = jnp.arange(num_particles)
    found = []
    for n, chunk in enumerate(chunks):
        path = None if paths is None else paths[n + 1]
        keys = jax.random.split(jax.random.fold_in(ahead, n), CHUNK)
        particles, ancestors, part = _advance(problem, entries, particles, ancestors, chunk, keys, path)
        found.append(np.asarray(part, float))
    logs, effective, spread = np.concatenate(found)[: len(stages)].T
    return Run(float(logs.sum()), effective, spread, len(np.unique(ancestors)))


def _split(problem: Problem, stages: np.ndarray, rng: np.random.Generator) -> Iterator[Stage]:
    """Yield X split at random, `CHUNK` stages at a time; the last are filled up with stages without counts."""
    X = np.asarray(problem.data.X).astype(np.int64)
    left, before = X.copy(), 0.0
    stages = np.concatenate([stages, np.ones(-len(stages) % CHUNK)])
    for begin in range(0, len(stages), CHUNK):
        parts = []
        for beta in stages[begin : begin + CHUNK]:
            share = beta - before
            increment = rng.binomial(left, min(1.0, share / (1 - before))) if share > 0 else np.zeros_like(X)
            left, before = left - increment, beta
            parts.append(Stage(increment, X - left, share, beta))
        yield Stage(*(jnp.asarray(np.stack(x), problem.dtype) for x in zip(*parts, strict=True)))


def known_counts(data: Data) -> Array | None:
    """Return how often each label is known, if π is shared and has a prior."""
    u = None if data.num_unlabelled == 0 else labels_of(data).dirichlet
    if u is None or u.ndim == 2:
        return None
    return have_single_label(data).astype(data.membership.dtype) @ data.membership


@jax.jit
def _begin(problem: Problem, keys: Array, first: Sites | None) -> Sites:
    """Draw particles from the prior, given the known labels; the first is given or not."""
    known = known_counts(problem.data)

    def one(key: Array) -> Sites:
        if known is None:
            return draw_prior(key, problem)
        pi = jax.random.dirichlet(jax.random.fold_in(key, 0), labels_of(problem.data).dirichlet + known)
        return draw_prior(key, problem, {"pi": pi})

    particles = jax.vmap(one)(keys)
    return particles if first is None else jax.tree.map(lambda x, kept: x.at[0].set(kept), particles, first)


@jax.jit
def _advance(
    problem: Problem,
    entries: tuple[Group, ...],
    particles: Sites,
    ancestors: Array,
    stages: Stage,
    keys: Array,
    path: Sites | None,
) -> tuple[Sites, Array, Array]:
    """Make some stages: weigh, resample, move.

    Returns particles, their ancestors, and by stage the log mean weight, the effective size and the variance of logs.
    """
    num = len(ancestors)
    size = _together(problem, entries, num)

    def stage(carry: tuple[Sites, Array], part: tuple[Stage, Array, Sites | None]) -> tuple[tuple[Sites, Array], Array]:
        (particles, ancestors), (now, key, kept) = carry, part
        logs = jax.lax.map(lambda z: _log_weight(problem, now, z), particles, batch_size=size)
        total = logsumexp(logs)
        weights = jnp.exp(logs - total)
        chosen = resample(jax.random.fold_in(key, 0), weights, kept is not None)
        particles = jax.tree.map(lambda x: x[chosen], particles)
        seen = problem.with_data(problem.data._replace(X=now.counts))

        def move(particle: tuple[Array, Sites]) -> Sites:
            key, z = particle
            return sweep(key, seen, z, entries=entries, exposure=now.exposure)

        particles = jax.lax.map(move, (jax.random.split(key, num), particles), batch_size=size)
        if kept is not None:
            particles = jax.tree.map(lambda x, kept: x.at[0].set(kept), particles, kept)
        return (particles, ancestors[chosen]), jnp.stack(
            [total - np.log(num), 1 / (num * (weights**2).sum()), logs.var()]
        )

    (particles, ancestors), found = jax.lax.scan(stage, (particles, ancestors), (stages, keys, path))
    return particles, ancestors, found


def _together(problem: Problem, entries: tuple[Group, ...], num: int) -> int:
    """Return how many particles to move at once, such that memory is bounded."""
    each = problem.size + sum(len(group.rows) * max(problem.rank, BLOCK) for group in entries)
    return int(np.clip(UNITS // each, 1, num))


def _log_weight(problem: Problem, stage: Stage, z: Sites) -> Array:
    """Return Σ Δx log (TV) − Δβ Σ TV over observed entries."""
    M = z["T"] @ z["V"]
    log_M = jnp.where(stage.increment > 0, jnp.log(jnp.maximum(M, np.finfo(M.dtype).tiny)), 0)
    mask = problem.data.mask
    return (stage.increment * log_M).sum() - stage.share * (M if mask is None else mask * M).sum()


def resample(key: Array, weights: Array, keep_first: bool = False) -> Array:
    """Return indices of particles, systematically resampled: each as often as its weight says, to within 1.

    Args:
        key: a JAX key.
        weights: of the particles; their sum is 1.
        keep_first: whether to draw given that the first particle is its own first descendant, as in conditional
            sequential Monte Carlo: u then has a density in proportion to the number of its descendants, of which it is
            any with the same probability (the order of particles matters to systematic resampling).

    >>> resample(jax.random.key(0), jnp.array([0.5, 0.0, 0.25, 0.25])).tolist()
    [0, 0, 2, 3]
    """
    num = weights.shape[0]
    u = jax.random.uniform(key, (), weights.dtype)
    if keep_first:
        expected = num * weights[0]
        fewest = jnp.floor(expected)
        more = expected - fewest  # with u below it, the first has one descendant more
        u = u * expected
        edge = more * (fewest + 1)
        u = jnp.where(u < edge, u / (fewest + 1), more + (u - edge) / jnp.maximum(fewest, 1))
    places = (jnp.arange(num) + u) / num
    chosen = jnp.clip(jnp.searchsorted(jnp.cumsum(weights), places, side="right"), 0, num - 1)
    if not keep_first:
        return chosen
    chosen = chosen.at[0].set(0)
    siblings = (chosen == 0).sum()
    return jnp.roll(chosen, -jax.random.randint(jax.random.fold_in(key, 1), (), 0, siblings))


def _backwards(
    problem: Problem, entries: tuple[Group, ...], chunks: list[Stage], truth: Sites, key: Array
) -> list[Sites]:
    """Return an exact path: z_0, then z_n after each stage, by chunk of stages."""
    paths, z = [], truth
    for n, chunk in reversed(list(enumerate(chunks))):
        keys = jax.random.split(jax.random.fold_in(key, n), CHUNK)
        z, path = _reverse(problem, entries, chunk, z, keys)
        paths.append(path)
    return [z, *reversed(paths)]


@jax.jit
def _reverse(problem: Problem, entries: tuple[Group, ...], stages: Stage, z: Sites, keys: Array) -> tuple[Sites, Sites]:
    """Return z before these stages, and z after each of them, from z after the last."""

    def one(z: Sites, part: tuple[Stage, Array]) -> tuple[Sites, Sites]:
        stage, key = part
        seen = problem.with_data(problem.data._replace(X=stage.counts))
        return reverse_sweep(key, seen, z, entries, stage.exposure), z

    before, after = jax.lax.scan(one, z, (stages, keys), reverse=True)
    return before, after
