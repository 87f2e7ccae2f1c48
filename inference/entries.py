"""Single entries of X: scores of held-out entries, and imputation of missing ones.

This file reads entries of X by their indices, because users ask for single entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from ..model.checks import require_fraction, whole
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .draws import Source, batch, default_key, in_batches, source_of
from .results import other_data, require_own_data
from .starts import check_key

GATHERED = 2**22  # numbers of the rows of T and V that are gathered at once
NUMBERS = 2**29  # draws of entries that may be in memory at once: some gigabytes


class HeldOutScore(NamedTuple):
    """The log predictive density of the entries that were held out; higher is better.

    value: its sum over entries.
    error: the standard error of that sum over entries, √n times their standard deviation.
    per_entry: the score of each entry, in the order of `data.held_out`. Compare two results on the same entries by the
        differences of these scores, which vary less than the scores.
    """

    value: float
    error: float
    per_entry: np.ndarray

    @property
    def mean(self) -> float:
        """The mean log predictive density of an entry."""
        return self.value / len(self.per_entry)


def held_out_score(
    result: Any,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array | None = None,
    num_samples: int = 1000,
) -> HeldOutScore:
    """Return Σ over held-out entries of log (1/R) Σ_r Poisson(x_ντ | (T_r V_r)_ντ), with draws r from the posterior.

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, or a NumPyro `MCMC` that has run,
            whose draws are taken.
        data: the data that it was fitted to, with entries held out: by `hide`, or by `as_data(X, mask=...)`.
        priors: by default those of the result.
        key: a JAX key for the draws; `jax.random.key(0)` by default.
        num_samples: R, draws from a variational posterior.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data, hide
    >>> data, priors = hide(as_data([[3.0, 1.0], [4.0, 2.0]])), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> held_out_score(fit, data, num_samples=100).per_entry.shape
    (1,)
    """
    observed = data.data if isinstance(data, Problem) else data
    held = observed.held_out if isinstance(observed, Data) else None
    if held is None or len(held) == 0:
        raise ValueError("expected data with entries held out, hide(data) or as_data(X, mask=...); got none held out")
    found = other_data(result, data)
    if found is not None:
        raise ValueError(
            f"expected the data of the fit, with the same entries hidden, as it may have seen these; got {found} "
            "(fit.posterior is not checked)"
        )
    whole("num_samples", num_samples, 1)
    key = default_key(key)
    source = source_of(result, data, priors, num_samples)
    x, tiny = np.asarray(held.value, float), np.finfo(float).tiny
    total = np.full(len(x), -np.inf)
    for rates in entry_rates(source, key, (held.feature, held.sample)):
        log_density = xlogy(x, np.maximum(rates, tiny)) - rates
        total = np.logaddexp(total, logsumexp(log_density, axis=0))
    per_entry = total - np.log(source.num) - gammaln(x + 1)
    error = float(per_entry.std(ddof=1) * np.sqrt(len(x))) if len(x) > 1 else np.nan
    return HeldOutScore(float(per_entry.sum()), error, per_entry)


class Imputed(NamedTuple):
    """X completed, features × samples; all three equal X where it was observed, and are sparse if X is.

    mean: E[x] of hidden entries under the posterior predictive distribution.
    low, high: the ends of an interval of about the probability asked for.
    """

    mean: Any
    low: Any
    high: Any


def impute(
    result: Any,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array | None = None,
    num_samples: int = 1000,
    prob: float = 0.9,
) -> Imputed:
    """Return hidden entries by the posterior predictive distribution: x_ντ ~ Poisson((T_r V_r)_ντ), r = 1, ..., R.

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, or a NumPyro `MCMC` that has run,
            whose draws are taken. A variational posterior is narrower than the true one: on data drawn from the model
            90 % intervals of CAVI held 86 % of hidden entries where intervals of Gibbs held 90 %.
        data: the data that it was fitted to, with entries missing or hidden.
        priors: by default those of the result.
        key: a JAX key for the draws; `jax.random.key(0)` by default.
        num_samples: R, draws from a variational posterior.
        prob: of the interval, with as much above it as below. Its ends are whole numbers, as all draws of X are: for
            small counts it holds more than this.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[30.0, 10.0, 20.0], [60.0, float("nan"), 40.0]])
    >>> priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 20.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> mean, low, high = impute(fit, data)
    >>> bool(low[1, 1] < 20 < high[1, 1]), mean[0].tolist()
    (True, [30.0, 10.0, 20.0])
    """
    observed = data.data if isinstance(data, Problem) else data
    if not isinstance(observed, Data) or observed.mask is None:
        raise ValueError("expected data with missing entries, NaN in X or as_data(X, mask=...); got none missing")
    require_own_data(result, data)
    require_fraction("prob", prob)
    whole("num_samples", num_samples, 1)
    key = default_key(key)
    source = source_of(result, data, priors, num_samples)
    feature, sample = observed.matrix.hidden()
    if len(feature) * source.num > NUMBERS:
        raise ValueError(
            f"expected at most {NUMBERS:.1e} draws of hidden entries in all; got {source.num} of {len(feature)}: "
            "take fewer draws"
        )
    rng = np.random.default_rng(np.asarray(check_key(key)).ravel())
    total, drawn = np.zeros(len(feature)), []
    for rates in entry_rates(source, key, (feature, sample)):
        total += rates.sum(axis=0)
        drawn.append(rng.poisson(rates))
    tail = (1 - prob) / 2
    ends = np.quantile(np.concatenate(drawn), [tail, 1 - tail], axis=0, method="inverted_cdf")
    return Imputed(*(observed.matrix.filled(values) for values in (total / source.num, *ends)))


def entry_rates(source: Source, key: Array, entries: tuple[Array, Array]) -> Iterator[np.ndarray]:
    """Yield (T_r V_r)_ντ of these entries, draws × entries, a batch of draws at a time.

    Args:
        source: of the draws.
        key: a JAX key for draws that are made.
        entries: indices of features, and as many of samples.
    """
    (F, N), K = source.problem.data.matrix.shape, source.problem.rank
    # A draw takes T, V, and TV or the rows of them that few entries need, some at a time if there are many.
    size = batch(max((F + N) * K, min(F * N, max(len(entries[0]), min(len(entries[0]) * K, GATHERED)))), source.num)
    for some, many in in_batches(source, key, size):
        yield np.asarray(_at_all(some["T"], some["V"], *entries), float)[:many]


def _at(T: Array, V: Array, feature: Array, sample: Array) -> Array:
    if len(feature) * T.shape[1] >= T.shape[0] * V.shape[1]:  # more numbers than in TV
        return (T @ V)[feature, sample]
    if len(feature) * T.shape[1] <= GATHERED:
        return (T[feature] * V[:, sample].T).sum(axis=1)
    across = V.T
    return jax.lax.map(lambda at: T[at[0]] @ across[at[1]], (feature, sample), batch_size=GATHERED // T.shape[1])


_at_all = jax.jit(jax.vmap(_at, in_axes=(0, 0, None, None)))
