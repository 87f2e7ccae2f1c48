"""Leave-one-out cross-validation by sample, with the sample's own coefficients integrated out.

For draws s of T, λ and π from the posterior of all samples, or from that of a fit without x_τ,

    elpd_τ = log p(x_τ | x_−τ) = −log mean_s 1 / p(x_τ | T_s, λ_s), smoothed by PSIS, or log mean_s p(x_τ | T_s, λ_s),

where p(x_τ | T, λ) = ∫ Poisson(x_τ; Tv) p(v | λ) dv (see `integrated`). Given v_τ as well, which is known from x_τ
alone, these weights would be useless.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammaln, logsumexp
from sklearn.exceptions import ConvergenceWarning

from ..model.checks import whole
from ..model.compressed import require_dense
from ..model.data import Data
from ..model.priors import Gamma, Priors
from ..model.problem import Problem
from ..model.types import Array
from .arviz_compat import arviz_loo, likelihood_tree
from .draws import Source, all_draws, default_key, source_of
from .families import Point
from .pointwise import integrated_likelihood, require_integrable
from .posterior import Fit, Posterior
from .refits import refitter, without
from .results import factors_of, require_own_data
from .starts import check_key

FEWEST = 50  # draws, of which the ten largest weights make the tail of k̂
MAX_K = 0.7


class LeaveOneOut(NamedTuple):
    """The log predictive density of every sample given the others.

    elpd: log p(x_τ | x_−τ), by sample.
    pareto_k: k̂ of the weights 1/p(x_τ | T_s, λ_s) of draws, by sample; for refitted samples of the terms whose mean is
        taken. An elpd is reliable up to 0.7.
    ess: the effective number of draws by these weights, by sample.
    integration: the effective proportion of the draws of v, the mean over draws of T and λ, by sample.
    refitted: whether the model was fitted again without the sample, by sample.
    names: of the samples.

    All four numbers are 0 for a sample without observed entries: there is nothing to predict.
    """

    elpd: np.ndarray
    pareto_k: np.ndarray
    ess: np.ndarray
    integration: np.ndarray
    refitted: np.ndarray
    names: np.ndarray

    @property
    def total(self) -> float:
        """Σ_τ elpd_τ."""
        return float(self.elpd.sum())

    @property
    def se(self) -> float:
        """The standard error of the total over samples, √N times the standard deviation of elpd_τ."""
        return float(self.elpd.std(ddof=1) * np.sqrt(len(self.elpd)))

    @property
    def unreliable(self) -> np.ndarray:
        """True for samples with k̂ above 0.7."""
        return ~np.asarray(self.pareto_k <= MAX_K)  # NaN included


def leave_one_out(
    result: Any,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array | None = None,
    num_samples: int = 400,
    num_integration: int = 256,
    refit: str | bool | Callable[[Data], Any] | None = None,
) -> LeaveOneOut:
    """Return log p(x_τ | x_−τ) of every sample, v_τ integrated out, by Pareto-smoothed importance sampling or refits.

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, or a NumPyro `MCMC` that has run.
        data: the data that it was fitted to.
        priors: by default those of the result. The prior of V needs closed forms.
        key: a JAX key; `jax.random.key(0)` by default.
        num_samples: draws of T and λ: made, or chosen evenly among those of chains, if they have more.
        num_integration: draws of v for each sample and draw of T and λ; a quarter of it for refits, as a mean over
            draws needs fewer than a mean of inverses.
        refit: the samples to leave out by fitting again: "all"; True for those with k̂ above 0.7; or False for none. By
            default "all" for a fit, which `cavi.run` continues without x_τ (and `cavi.refine`, if it was refined), and
            False for chains. True runs chains of the same length by the same sampler with the same settings. Or a
            function of data that hide one sample which returns a result for them, such as `lambda part: cavi.run(part,
            priors, start=fit)`; it is called for all samples of a fit, and for those with k̂ above 0.7 of chains.

    A fit is too sure of T for importance sampling: on data drawn from the model, weights of its draws gave a total 11
    nats above that of exact refits, where refitting by `cavi.run` was within 1. If draws of a fit are weighted
    (refit=False), they are taken for draws of the posterior.

    If k̂ stays above 0.7 for some samples, a `ConvergenceWarning` says so.

    Only x_τ is left out: the label of the sample stays known. Labels of unlabelled samples are summed out, and rates λ
    that belong to a single sample are integrated out.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[9, 1, 7, 0, 8], [0, 8, 1, 9, 1]])
    >>> fit = cavi.run(data, Priors(Gamma(1.0, 1.0), Gamma(1.0, 5.0)), key=jax.random.key(0), rank=2)
    >>> loo = leave_one_out(fit, data)
    >>> loo.elpd.shape, bool(loo.total < 0)
    ((5,), True)
    """
    sizes = Sizes(whole("num_samples", num_samples, FEWEST), whole("num_integration", num_integration, 16))
    key, key_refit = jax.random.split(default_key(key))
    named = isinstance(refit, str) and refit == "all"
    if refit is not None and not (named or isinstance(refit, (bool, np.bool)) or callable(refit)):
        raise ValueError(f'expected refit to be "all", True, False or a function of Data; got {refit!r}')
    require_own_data(result, data)
    source = checked_source(result, data, priors, num_samples)
    require_dense(source.problem.data, "leaving samples out")
    seen, N = observed_samples(source.problem.data), source.problem.data.num_samples
    if N < 2:
        raise ValueError(f"expected two samples or more to leave one out; got {N}")
    every = named or (source.held is None and (refit is None or callable(refit)))
    again = refit if callable(refit) else refitter(result, source, key_refit) if every or refit else None
    columns = np.zeros((len(Left._fields), N))
    if not every:
        columns[:, seen] = _weigh(source, key, sizes, np.nonzero(seen)[0])
    refitted = np.zeros(N, bool) if again is None else seen if every else ~(columns[1] <= MAX_K)
    if again is not None:
        for n in np.nonzero(refitted)[0].tolist():
            part = checked_source(again(without(source.problem.data, n)), source.problem.data, None, num_samples)
            columns[:, n] = _average(part, source, key, sizes, n)
    elpd, k, ess, integration = columns
    found = LeaveOneOut(elpd, k, ess, integration, refitted, np.asarray(source.problem.data.names.sample))
    _warn_of_unreliable(found)
    return found


def _warn_of_unreliable(found: LeaveOneOut) -> None:
    """Warn once of samples whose k̂ is above 0.7 after all that was asked for."""
    late = found.unreliable
    if late.any():
        cure = (
            "Fit again without them: refit=True."
            if not found.refitted[late].all()
            else "They were refitted; take more draws (num_samples), or look at these samples: no other predicts them."
        )
        warnings.warn(
            f"k̂ is above {MAX_K} for {late.sum()} of {len(late)} samples, {found.pareto_k.max():.2f} at most: their "
            f"elpd, and the total, cannot be trusted. {cure}",
            ConvergenceWarning,
            stacklevel=3,
        )


class Sizes(NamedTuple):
    """Numbers of draws: of T and λ, and of v for each of them."""

    samples: int
    integration: int


class Left(NamedTuple):
    """The first fields of `LeaveOneOut`, for some of the samples."""

    elpd: Any
    pareto_k: Any
    ess: Any
    integration: Any


def _weigh(source: Source, key: Array, sizes: Sizes, samples: np.ndarray) -> Left:
    """Return −log mean_s 1 / p(x_τ | T_s, λ_s) by PSIS, for draws of the posterior of all samples."""
    options: dict[str, Any] = {"num_integration": sizes.integration, "samples": samples}
    draws = global_draws(source, key, sizes.samples)
    log_p, integration = integrated_likelihood(draws, source.problem, key=jax.random.fold_in(key, 1), **options)
    found = arviz_loo(likelihood_tree(log_p), reff=None if source.held is not None else 1.0)
    return Left(found.elpd, found.pareto_k, effective(-log_p), integration.mean(axis=(0, 1)))


def _average(part: Source, source: Source, key: Array, sizes: Sizes, n: int) -> Left:
    """Return log mean_s p(x_τ | T_s, λ_s), for draws of the posterior without sample n.

    Of Gamma factors half of the draws are from q, the fit of all samples, and all have weights q₋ / (½ q₋ + ½ q): p is
    largest near draws of q, which has seen x_τ, and few draws of q₋ come there.
    """
    options: dict[str, Any] = {"num_integration": sizes.integration // 4, "samples": [n]}
    draws, log_weights = global_draws(part, key, sizes.samples), np.zeros(())
    if has_gammas(part) and has_gammas(source):
        others = global_draws(source, jax.random.fold_in(key, 2), sizes.samples)
        half = sizes.samples // 2
        for site in shared_sites(part):
            draws[site][:, :half] = others[site][:, :half]
        excess = np.asarray(sum(_log_ratio(source.q, part.q, site, draws[site]) for site in shared_sites(part)))
        share = half / sizes.samples
        log_weights = -np.logaddexp(np.log1p(-share), np.log(share) + excess)[..., None]
    log_p, integration = integrated_likelihood(draws, part.problem, key=jax.random.fold_in(key, 1), **options)
    terms = log_p + log_weights
    k = arviz_loo(likelihood_tree(-terms), reff=1.0).pareto_k[0]
    return Left(logsumexp(terms) - np.log(terms.size), k, effective(terms)[0], integration.mean())


def has_gammas(source: Source) -> bool:
    """Return whether draws are to be made from Gamma factors."""
    return source.q is not None and all(isinstance(factor, Gamma) for factor in source.q.sites.values())


def shared_sites(source: Source) -> list[str]:
    """Return the sites that all samples share: T and, unless every sample has its own, λ."""
    family = source.problem.priors.coefficients
    return ["T"] if family.hyperprior is None or "sample" in family.axes else ["T", "lam"]


def _log_ratio(q: Any, other: Any, site: str, x: np.ndarray) -> np.ndarray:
    """Return log q(x) − log other(x) of a site with Gamma factors, chains × draws."""
    (a, b), (c, d) = (map(partial(np.asarray, dtype=float), getattr(each, site)) for each in (q, other))
    constant = gammaln(c) + c * np.log(d) - gammaln(a) - a * np.log(b)
    x = np.asarray(x, float)
    return np.asarray(((a - c) * np.log(x) - x * (1 / b - 1 / d) + constant).sum(axis=(2, 3)))


def checked_source(result: Any, data: Data | Problem, priors: Priors | None, num_samples: int) -> Source:
    """Return a result as a source of draws whose coefficients can be integrated out; raise if it is not."""
    if isinstance(result, (Fit, Posterior)) and isinstance(factors_of(result).T, Point):
        raise ValueError("expected a posterior with draws; got a point (a MAP estimate), whose draws are all the same")
    source = source_of(result, data, priors, num_samples)
    if source.num < FEWEST:
        raise ValueError(f"expected at least {FEWEST} draws to leave samples out; got {source.num}")
    require_integrable(source.problem.priors.coefficients)
    return source


def global_draws(source: Source, key: Array, num: int) -> dict[str, np.ndarray]:
    """Return at most `num` draws, evenly spaced along every chain; Gamma factors are drawn by NumPy, V is at its mean.

    V only starts the search for modes: its draws would take most of the time.
    """
    q: Any = source.q
    if not has_gammas(source):
        draws = all_draws(source, key)
        chains, length = draws["T"].shape[:2]
        at = np.linspace(0, length - 1, min(length, max(1, num // chains))).round().astype(int)
        return {site: x[:, at] for site, x in draws.items()}
    rng, tiny = np.random.default_rng(np.asarray(check_key(key)).ravel()), np.finfo(source.problem.dtype).tiny
    drawn = {site: rng.gamma(f.a, f.b, size=(1, num, *f.a.shape)) for site, f in q.sites.items() if site != "V"}
    drawn = {site: np.maximum(x, tiny).astype(source.problem.dtype) for site, x in drawn.items()}
    drawn["V"] = np.broadcast_to(np.asarray(q.V.mean), (1, num, *q.V.a.shape))
    if q.labels is not None and q.labels.pi is not None and q.labels.pi.ndim == 1:
        drawn["pi"] = rng.dirichlet(np.asarray(q.labels.pi, float), size=(1, num)).astype(source.problem.dtype)
    return drawn


def observed_samples(data: Data) -> np.ndarray:
    """Return whether each sample has an observed entry."""
    return np.ones(data.num_samples, bool) if data.mask is None else np.asarray(np.asarray(data.mask).any(axis=0))


def effective(log_weights: np.ndarray) -> np.ndarray:
    """Return (Σ w)² / Σ w² over chains and draws, by sample."""
    total, squares = (logsumexp(power * log_weights, axis=(0, 1)) for power in (1, 2))
    return np.asarray(np.exp(2 * total - squares))
