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
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning

from ..model.checks import whole
from ..model.compressed import require_dense
from ..model.conjugacy import require_closed_forms
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem, has_counts
from ..model.types import Array
from ..model.unlabelled import labels_of
from .gibbs import Sites, draw_prior
from .gibbs_labels import require_exponential
from .particles import CHUNK, Run, known_counts, run_filter
from .starts import check_key

FEWEST = 8  # particles; fewer have no effective size to speak of
PILOT = 60  # stages of the run that places them
SPREAD = 1.0  # the variance of log weights at a stage: an effective size of 0.37 of the particles
APART = 3.0  # standard deviation of filters, in nats, above which they are warned of


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
    runs = [run_filter(problem, key, stages, num_particles) for key in keys]
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
    runs = [run_filter(problem, key, stages, num_particles, exact) for key in keys]
    return _gather(runs, stages, problem, -1)


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
    require_dense(problem.data, "the particle filter of the evidence")
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
    pilot = run_filter(problem, jax.random.fold_in(key, 0), fine[1:], num_particles)
    spread = np.concatenate([[0.0], np.cumsum(pilot.spread + 1e-3)])
    number = CHUNK * int(np.ceil(spread[-1] / SPREAD / CHUNK))
    roots = np.interp(np.arange(1, number + 1) / number, spread / spread[-1], np.arange(PILOT + 1) / PILOT)
    return roots**4


def _known_labels(problem: Problem) -> float:
    """Return log p(known labels) where they are draws of a π that all samples share, else 0: Dirichlet-multinomial."""
    counts = known_counts(problem.data)
    if counts is None:
        return 0.0
    u, n = (np.asarray(x, float) for x in (labels_of(problem.data).dirichlet, counts))
    return float((gammaln(u + n) - gammaln(u)).sum() + gammaln(u.sum()) - gammaln((u + n).sum()))
