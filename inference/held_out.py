"""How well a result predicts entries of X that it was not shown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from ..model.data import Data
from ..model.missing import fingerprint
from ..model.priors import Priors
from ..model.types import Array
from .posterior import Fit
from .predictive import entry_rates


class HeldOutScore(NamedTuple):
    """The log predictive density of the entries that were held out; higher is better.

    value: its sum over entries.
    error: the standard error of that sum over entries, √n times their standard deviation.
    per_entry: of each entry, in the order of `data.held_out`. On the same entries two results are compared by the
        differences of these, which vary less than either.
    """

    value: float
    error: float
    per_entry: np.ndarray

    @property
    def mean(self) -> float:
        """The log predictive density of an entry on average."""
        return self.value / len(self.per_entry)


def held_out_score(
    result: Any, data: Data, priors: Priors, *, key: Array | None = None, num_samples: int = 1000
) -> HeldOutScore:
    """Σ over held-out entries of log (1/R) Σ_r Poisson(x_ντ | (T_r V_r)_ντ), with draws r from the posterior.

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, or a NumPyro `MCMC` that has run,
            whose draws are taken.
        data: what it was fitted to, with entries held out: by `hide`, or by `as_data(X, mask=...)`.
        priors: those it was fitted with.
        key: a JAX key for the draws; `jax.random.key(0)` when left out.
        num_samples: R, draws from a variational posterior.

    >>> import jax
    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data, hide
    >>> data, priors = hide(as_data([[3.0, 1.0], [4.0, 2.0]])), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> held_out_score(fit, data, priors, num_samples=100).per_entry.shape
    (1,)
    """
    held = data.held_out if isinstance(data, Data) else None
    if held is None or len(held) == 0:
        raise ValueError("expected data with entries held out, hide(data) or as_data(X, mask=...); got none")
    if isinstance(result, Fit) and result.data not in (None, fingerprint(data)):
        raise ValueError(
            "expected a fit of these data, with the same entries hidden; got one of others, which may have seen them "
            "(its posterior is taken as it is)"
        )
    x, tiny = np.asarray(held.value, float), np.finfo(float).tiny
    total, number = np.full(len(x), -np.inf), 0
    entries = held.feature, held.sample
    for rates in entry_rates(result, data, priors, entries, key=key, num_samples=num_samples):
        log_density = xlogy(x, np.maximum(rates, tiny)) - rates
        total = np.logaddexp(total, logsumexp(log_density, axis=0))
        number += len(rates)
    per_entry = total - np.log(number) - gammaln(x + 1)
    error = float(per_entry.std(ddof=1) * np.sqrt(len(x))) if len(x) > 1 else np.nan
    return HeldOutScore(float(per_entry.sum()), error, per_entry)
