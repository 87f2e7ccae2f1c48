"""The evidence log p(X), by a particle filter over parts of X.

X is split at random into increments ΔX_1, ..., ΔX_m, multinomially with shares Δβ_n: given T and V they are independent
Poisson(Δβ_n TV). Particles (T, V, λ) begin as draws from the prior. At stage n they are weighted by p(ΔX_n | T, V),
resampled, and moved by the Gibbs sweep for X_≤n = ΔX_1 + … + ΔX_n with exposure β_n = Δβ_1 + … + Δβ_n, which leaves
their distribution invariant. The product of mean weights is unbiased for p(ΔX_1, ..., ΔX_m), and

    log p(X) = log p(ΔX_1, ..., ΔX_m) − Σ log Multinomial(Δx_1, ..., Δx_m | x, Δβ)
             = Σ_n log mean exp(Σ Δx_n log (TV) − Δβ_n Σ TV) − Σ log x!

in which everything that particles have in common cancels, and sums are over observed entries.

Several independent filters, each with its own split of X, are averaged: exp(value) is unbiased for p(X), hence the
value is below log p(X) on average, by about half of its variance.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning

from ..model.checks import whole
from ..model.conjugacy import require_closed_forms
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem, has_counts
from ..model.types import Array
from ..model.unlabelled import have_single_label, labels_of
from .gibbs import Sites, draw_prior, require_exponential, reverse_sweep, sweep
from .starts import check_key
from .thinning import BLOCK, Group, group_counts

FEWEST = 8  # particles; fewer have no effective size to speak of
CHUNK = 20  # stages in one compiled program
PILOT = 60  # stages of the run that places them
SPREAD = 1.0  # the variance of log weights at a stage: an effective size of 0.37 of the particles
FEW = 2**12  # units drawn in vain for one particle that cost less than a group of their own
APART = 3.0  # standard deviation of filters, in nats, above which they are warned of
UNITS = 2**22  # counts, or entries of X, of as many particles as are moved at once


class Evidence(NamedTuple):
    """An estimate of log p(X).

    value: the estimate, from all filters.
    error: its standard error, by the jackknife over filters; NaN for a single filter. If the filters are nats apart,
        neither can be trusted: a `ConvergenceWarning` says so.
    filters: the estimate of every filter.
    effective: effective sizes, filters × stages, as shares of the particles.
    ancestors: for every filter, how many of its first particles have descendants at the end.
    stages: β_1, ..., β_m = 1, the share of X that has been seen after each stage.
    """

    value: float
    error: float
    filters: np.ndarray
    effective: np.ndarray
    ancestors: np.ndarray
    stages: np.ndarray


def evidence(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    num_particles: int = 256,
    num_stages: int | None = None,
    num_filters: int = 4,
) -> Evidence:
    """Estimate log p(X), with an error.

    Args:
        data: as made by `as_data`; X must hold whole numbers.
        priors: the priors of T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open.
        num_particles: particles of every filter. The variance of a filter, about twice the number of stages that are
            placed by default over num_particles, should be below 2: an average over filters does not help otherwise.
        num_stages: the number of stages, at β_n = (n/num_stages)⁴. By default a filter of 60 stages is run first, and
            stages are placed so that log weights have a variance of 1 at each of them. The filters that follow keep to
            these stages, so that the choice does not bias them.
        num_filters: independent filters, from which the error is found; from four it is itself uncertain by a half.

    With shared unknown proportions π of labels, known labels are observations too: it is log p(X, known labels), as in
    `collapsed_bound`.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3, 1], [0, 2]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> z = evidence(data, priors, key=jax.random.key(0), rank=1, num_particles=64, num_stages=10)
    >>> bool(abs(z.value + 8.53) < 0.5)  # -8.53 from a million draws of the prior
    True
    """
    problem, num_filters = _prepare(data, priors, key, rank, num_particles, num_stages, num_filters)
    stages = _place(problem, key, num_particles, num_stages)
    keys = jax.random.split(jax.random.fold_in(key, 1), num_filters)
    runs = [_filter(problem, key, stages, num_particles) for key in keys]
    return _gather(runs, stages, problem, 1)


def upper_evidence(
    data: Data,
    priors: Priors,
    truth: Sites,
    *,
    key: Array,
    rank: int | None = None,
    num_particles: int = 256,
    num_stages: int | None = None,
    num_filters: int = 4,
) -> Evidence:
    """Estimate log p(X) from above, for data drawn from the model with known T, V and λ.

    Args:
        data: drawn from the model.
        priors: as in `evidence`.
        truth: by site, the T, V, lam, and with unlabelled samples z and pi, with which X was drawn.
        key: as in `evidence`.
        rank: as in `evidence`.
        num_particles: as in `evidence`.
        num_stages: as in `evidence`.
        num_filters: as in `evidence`.

    The truth is an exact draw from the posterior. From it, the Gibbs sweeps run backwards (`reverse_sweep`), stage by
    stage, give an exact draw of the whole path of a particle given X: a sweep leaves p(· | X_≤n) invariant, so

        p(z_0) Π_n w_n(z_(n−1)) K_n(z_(n−1), z_n) = p(ΔX) p(z_m | X) Π_n K̃_n(z_n, z_(n−1)),    K̃ the reversal of K

    A filter that keeps this path as one of its particles (conditional sequential Monte Carlo) has the density of an
    ordinary filter times Ẑ / p(X), Ẑ its estimate. Hence E[1/Ẑ] = 1/p(X), and by Jensen's inequality −log of a mean of
    1/Ẑ is above log p(X) on average. Where it meets `evidence`, both are right (bidirectional Monte Carlo).

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3, 1], [0, 2]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> truth = {"T": jnp.array([[1.5], [1.0]]), "V": jnp.array([[1.5, 1.0]])}
    >>> z = upper_evidence(data, priors, truth, key=jax.random.key(0), num_particles=64, num_stages=10)
    >>> bool(abs(z.value + 8.53) < 0.5)  # -8.53 from a million draws of the prior
    True
    """
    if not isinstance(truth, dict) or any((np.asarray(x) <= 0).any() for site, x in truth.items() if site != "z"):
        raise ValueError(f"expected the truth as positive values of T, V, ... by site; got {truth!r}")
    rank = int(np.shape(truth["T"])[-1]) if "T" in truth and rank is None else rank
    problem, num_filters = _prepare(data, priors, key, rank, num_particles, num_stages, num_filters)
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(lambda: draw_prior(jax.random.key(0), problem)))
    found = {site: np.shape(values) for site, values in truth.items()}
    if found != shapes:
        raise ValueError(f"expected the truth to have sites of shapes {shapes}; got {found}")
    exact = {site: jnp.asarray(x, int if site == "z" else problem.dtype) for site, x in truth.items()}
    stages = _place(problem, key, num_particles, num_stages)
    keys = jax.random.split(jax.random.fold_in(key, 2), num_filters)
    runs = [_filter(problem, key, stages, num_particles, exact) for key in keys]
    return _gather(runs, stages, problem, -1)


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


def _prepare(
    data: Data,
    priors: Priors,
    key: Array,
    rank: int | None,
    num_particles: int,
    num_stages: int | None,
    num_filters: int,
) -> tuple[Problem, int]:
    """Validate the arguments."""
    check_key(key)
    whole("num_particles", num_particles, FEWEST)
    num_filters = whole("num_filters", num_filters, 1)
    if num_stages is not None:
        whole("num_stages", num_stages, 1)
    problem = Problem(data, priors, rank)
    require_closed_forms(problem.priors, "the evidence")
    require_exponential(problem)
    if not has_counts(data):
        raise ValueError(
            "expected X to hold whole numbers, which the evidence splits into parts; got fractions: round X, in a unit "
            "that suits it, or compare models by collapsed_bound or leave_one_out, which take fractions"
        )
    return problem, num_filters


def _gather(runs: list[Run], stages: np.ndarray, problem: Problem, sign: int) -> Evidence:
    """Return log mean Ẑ, or −log mean 1/Ẑ, of the filters, with its jackknife error."""
    X = np.asarray(problem.data.X, float)
    logs = np.array([run.total for run in runs]) - gammaln(X + 1).sum() + _known_labels(problem)
    R = len(logs)

    def mean(logs: np.ndarray) -> float:
        return float(sign * (np.logaddexp.reduce(sign * logs) - np.log(len(logs))))

    without = np.array([mean(np.delete(logs, r)) for r in range(R)]) if R > 1 else np.array([np.nan])
    error = float(np.sqrt((R - 1) * ((without - without.mean()) ** 2).mean())) if R > 1 else float("nan")
    effective = np.stack([run.effective for run in runs])
    if R > 1 and logs.std(ddof=1) > APART:
        warnings.warn(
            f"The filters are {np.ptp(logs):.1f} nats apart, from {logs.min():.1f} to {logs.max():.1f}: neither their "
            "average nor its error can be trusted. Take more particles.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Evidence(mean(logs), error, logs, effective, np.array([run.ancestors for run in runs]), stages)


def _place(problem: Problem, key: Array, num_particles: int, num_stages: int | None) -> np.ndarray:
    """Return β_1, ..., β_m: as asked for, or so that log weights have the same variance at every stage.

    The sum of the variances is about Σ x ∫ Var(log (TV) | X_≤β) dβ, however many stages there are: increments are
    random, so that fewer or more of them carry the same information. A short filter therefore measures it. For a given
    number of sweeps, stages times particles, the error is least with a variance of 1 to 2 at every stage.
    """
    if num_stages is not None:
        return (np.arange(1, num_stages + 1) / num_stages) ** 4
    fine = (np.arange(PILOT + 1) / PILOT) ** 4
    pilot = _filter(problem, jax.random.fold_in(key, 0), fine[1:], num_particles)
    spread = np.concatenate([[0.0], np.cumsum(pilot.spread + 1e-3)])
    number = CHUNK * int(np.ceil(spread[-1] / SPREAD / CHUNK))
    roots = np.interp(np.arange(1, number + 1) / number, spread / spread[-1], np.arange(PILOT + 1) / PILOT)
    return roots**4


def _filter(problem: Problem, key: Array, stages: np.ndarray, num_particles: int, truth: Sites | None = None) -> Run:
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


def _known_labels(problem: Problem) -> float:
    """Return log p(known labels) where they are draws of a π that all samples share, else 0: Dirichlet-multinomial."""
    counts = _known_counts(problem.data)
    if counts is None:
        return 0.0
    u, n = (np.asarray(x, float) for x in (labels_of(problem.data).dirichlet, counts))
    return float((gammaln(u + n) - gammaln(u)).sum() + gammaln(u.sum()) - gammaln((u + n).sum()))


def _known_counts(data: Data) -> Array | None:
    """Return how often each label is known, if π is shared and has a prior."""
    u = None if data.num_unlabelled == 0 else labels_of(data).dirichlet
    if u is None or u.ndim == 2:
        return None
    return have_single_label(data).astype(data.membership.dtype) @ data.membership


@jax.jit
def _begin(problem: Problem, keys: Array, first: Sites | None) -> Sites:
    """Draw particles from the prior, given the known labels; the first is given or not."""
    known = _known_counts(problem.data)

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
