"""Diagnostics of a variational posterior q: bounds with S summed out, by Monte Carlo, and k̂.

With weights w = p(X, T, V, λ) / q(T, V, λ) and draws from q,

    collapsed bound               E log w ≤ log p(X)
    importance-weighted bound     E log (1/R) Σ_r w_r,    higher with every R, and log p(X) in the limit
    k̂                             the tail index of w; above 0.7 no average over it can be trusted

Labels of unlabelled samples are summed out like S, from p and from q: in the mean field q(z) has no part in w, and in
the structured form q(v_τ) = Σ_c q(z_τ = c) q(v_τ | c). π, if it has a prior, is drawn like T, V and λ.

For the same factors the collapsed bound is at least the augmented one that CAVI records. The two are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import psis_diagnostic
from numpyro.infer.util import log_density

from ..model.checks import whole
from ..model.data import Data
from ..model.generative import labels_summed_out
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .draws import ENTRIES, batch
from .families import Point
from .guide import guide
from .posterior import Fit, LabelPosterior, Posterior
from .results import factors_of, match, problem_of
from .starts import check_key


class Estimate(NamedTuple):
    """A Monte Carlo estimate.

    value: the mean over draws.
    error: its standard error.
    """

    value: float
    error: float


def collapsed_bound(
    result: Fit | Posterior,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array,
    num_samples: int = 1000,
    num_importance: int = 1,
) -> Estimate:
    """Return E log (1/R) Σ_r w_r by Monte Carlo, with its standard error; for R = 1 the collapsed bound E log w.

    Args:
        result: a `Fit` of CAVI or SVI, or a `Posterior`; not a MAP estimate, which has no density.
        data: the data that it was fitted to.
        priors: by default those of the fit.
        key: a JAX key. The same key gives differences between results less noise than each alone.
        num_samples: the number of terms that are averaged.
        num_importance: R, draws in each term: it tightens the bound, and takes R times as long.

    The error is meaningful as long as `psis` is below 0.7 or R is 1.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> bound = collapsed_bound(fit, data, key=jax.random.key(1))
    >>> bool(abs(bound.value - fit.elbo[-1]) < 4 * bound.error)  # with one component S = X: the bounds agree
    True
    """
    num_samples = whole("num_samples", num_samples, 2)
    num_importance = whole("num_importance", num_importance, 1)
    weights = log_weights(result, data, priors, key=key, num_samples=num_samples * num_importance)
    terms = logsumexp(weights.reshape(num_samples, num_importance), axis=1) - np.log(num_importance)
    return estimate(np.asarray(terms, float))


def estimate(terms: np.ndarray) -> Estimate:
    """Return the mean of independent terms and its standard error."""
    return Estimate(float(terms.mean()), float(terms.std(ddof=1) / np.sqrt(len(terms))))


def log_weights(
    result: Fit | Posterior, data: Data | Problem, priors: Priors | None = None, *, key: Array, num_samples: int
) -> Array:
    """Return log p(X, T, V, λ) − log q(T, V, λ) of draws from q; the arguments are those of `collapsed_bound`."""
    check_key(key)
    return weights_of(*_ready(result, data, priors), key=key, num_samples=num_samples)


def weights_of(problem: Problem, q: Posterior, *, key: Array, num_samples: int) -> Array:
    """Return the log weights of draws from a posterior that `match` has checked."""
    size = batch(problem.size, num_samples)
    keys = jax.random.split(key, (-(-num_samples // size), size))
    return jnp.concatenate([_log_weights(q, problem, some) for some in keys])[:num_samples]


@jax.jit
def _log_weights(q: Posterior, problem: Problem, keys: Array) -> Array:
    def one(key: Array) -> Array:
        traced = handlers.trace(handlers.seed(_summed_out(q), key)).get_trace(problem)
        drawn = {name: site for name, site in traced.items() if site["type"] == "sample"}
        log_q = sum(site["fn"].log_prob(site["value"]).sum() for site in drawn.values())
        values = {name: site["value"] for name, site in drawn.items()}
        return log_density(labels_summed_out, (problem,), {}, values)[0] - log_q

    return jax.vmap(one)(keys)


def _summed_out(q: Posterior) -> Callable[..., dict[str, Array]]:
    """Return the guide with z summed out: its density of V given z is corrected to that of the mixture."""
    drawing = guide(q, together=True)
    if q.labels is None:
        return drawing

    def without_z(*args: Any, **kwargs: Any) -> dict[str, Array]:
        with handlers.block(hide=["z"]):
            drawn = drawing(*args, **kwargs)
        if q.labels is not None and q.labels.V is not None:
            numpyro.factor("labels", _margin(q.labels, drawn["z"], drawn["V"]))
        return drawn

    return without_z


def _margin(labels: LabelPosterior, z: Array, V: Array) -> Array:
    """Return Σ_τ [log Σ_c q(z_τ = c) q(v_τ | c) − log q(v_τ | z_τ)] over unlabelled samples."""
    given: Any = labels.V
    M = given.a.shape[2]
    without = jnp.nonzero(labels.unlabelled, size=M)[0]
    each = given.distribution().log_prob(V[:, without]).sum(axis=1)  # groups × unlabelled samples
    return jnp.sum(logsumexp(each, axis=0, b=labels.z[without].T) - each[z[without], jnp.arange(M)])


def psis(
    result: Fit | Posterior, data: Data | Problem, priors: Priors | None = None, *, key: Array, num_samples: int = 1000
) -> float:
    """Return k̂ of the weights w by NumPyro's `psis_diagnostic`: below 0.7, importance weights can correct q.

    It judges all of T, V and λ at once, so a mean field over many entries hardly ever passes; it says nothing about a
    single margin.

    Args:
        result: as in `collapsed_bound`.
        data: as in `collapsed_bound`.
        priors: as in `collapsed_bound`.
        key: a JAX key.
        num_samples: the number of draws, at least 25.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> psis(fit, data, key=jax.random.key(1)) > 0
    True
    """
    num_samples = whole("num_samples", num_samples, 25)  # fewer leave less than the five of the tail it needs
    check_key(key)
    problem, q = _ready(result, data, priors)
    size = num_samples if problem.size * num_samples <= ENTRIES else batch(problem.size, num_samples)
    options: dict[str, Any] = {"num_particles": num_samples, "chunk_size": size}
    return float(psis_diagnostic(key, {}, labels_summed_out, _summed_out(q), problem, **options))


def _ready(result: Fit | Posterior, data: Data | Problem, priors: Priors | None) -> tuple[Problem, Posterior]:
    """Return the problem and a posterior that fits it; raise for a point, which has no density."""
    q = factors_of(result)
    if isinstance(q.T, Point):
        raise ValueError("expected a posterior with a density; got a point (a MAP estimate), for which no bound exists")
    problem = problem_of(result, data, priors)
    return problem, match(q, problem, tuple)
