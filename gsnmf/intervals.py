"""Intervals of what most readers look at: features of components, and proportions of components in samples.

Both are proportions, which do not depend on the scale of a component:

    t_νi / Σ_ν t_νi                    of a feature in a component
    v_iτ Σ_ν t_νi / Σ_iν t_νi v_iτ     of a component in a sample

Their widths come from linear response; the mean field's, as if factors were independent, stand next to them.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .inference import Fit, LinearResponse, Posterior, linear_response
from .inference.linear_response import DENSE, PRODUCTS
from .inference.statistics import Statistic
from .inference.supports import SUPPORTS, within
from .model import Data, Gamma, Priors
from .model.checks import require_flag, require_fraction
from .model.types import Array

REFINING: dict[str, Any] = {"max_steps": 1000, "tol": 1e-12}  # linear response needs the very optimum
PROB = 0.9  # probability of an interval
TINY = np.finfo(np.float32).tiny
MOST = 1000  # intervals at once by conjugate gradients, some 50 products with the Hessian each
WORK = 1e9  # products with the Hessian × stored entries of X × components: about ten seconds


def proportion_intervals(
    response: LinearResponse, f: Statistic, prob: float = PROB, *, corrected: bool = False
) -> pd.DataFrame:
    """Return mean, lower, upper, sd and mean_field_sd of proportions, a row for each entry of f in C order.

    Args:
        response: from `linear_response`.
        f: a function of a `Posterior` to proportions, between 0 and 1.
        prob: probability of the intervals, which have Beta quantiles with the mean and standard deviation.
        corrected: whether to correct means, as in `LinearResponse.mean`.
    """
    require_fraction("prob", prob)
    require_flag("corrected", corrected)
    plain = response.mean(f).ravel()
    require_affordable(response, len(plain))
    mean, sd = np.clip(plain, TINY, 1.0), response.sd(f).ravel()
    inside = mean < 1  # else one component alone makes up all of it
    if corrected and inside.any():
        better = response.mean(f, corrected=True).ravel()
        mean[inside] = within("unit", mean[inside], better[inside])
    low, high = beta_ends(mean, sd, prob)
    own = response.mean_field_sd(f).ravel()
    return pd.DataFrame({"mean": mean, "lower": low, "upper": high, "sd": sd, "mean_field_sd": own})


def beta_ends(mean: NDArray[Any], sd: NDArray[Any], prob: float) -> NDArray[np.float64]:
    """Return the lower and the upper ends of central intervals of proportions, 2 × proportions.

    Args:
        mean: above 0; a proportion of 1 has no width.
        sd: standard deviations.
        prob: probability of the intervals.
    """
    inside, tails = mean < 1, np.array([[(1 - prob) / 2], [(1 + prob) / 2]])
    ends = np.stack([mean, mean]).astype(float)
    ends[:, inside] = SUPPORTS["unit"](tails, mean[None, inside], np.maximum(sd[None, inside], TINY))
    return ends


def profiles(features: ArrayLike, components: ArrayLike) -> Statistic:
    """Return the function of a `Posterior` to t_νi / Σ_ν t_νi, for pairs of features and components."""
    f, i = np.asarray(features), np.asarray(components)

    def of(q: Posterior) -> Array:
        return q.T.mean[f, i] / q.T.mean.sum(axis=0)[i]

    return of


def proportions(components: ArrayLike, samples: ArrayLike) -> Statistic:
    """Return the function of a `Posterior` to v_iτ Σ_ν t_νi / Σ_iν t_νi v_iτ, for pairs of components and samples."""
    i, n = np.asarray(components), np.asarray(samples)

    def of(q: Posterior) -> Array:
        parts = q.T.mean.sum(axis=0)[:, None] * q.V.mean
        return parts[i, n] / parts.sum(axis=0)[n]

    return of


def totals(q: Posterior) -> Array:
    """Return each component's proportion of Σ TV."""
    parts = q.T.mean.sum(axis=0) * q.V.mean.sum(axis=1)
    return parts / jnp.sum(parts)


def rows_of(samples: ArrayLike | None, N: int, what: str = "samples to be row numbers") -> NDArray[np.intp]:
    """Return row numbers, all N by default; raise if they are not whole numbers from 0 to N − 1.

    Args:
        samples: the numbers.
        N: how many there are.
        what: what they are, for the message.
    """
    if samples is None:
        return np.arange(N)
    rows = np.atleast_1d(np.asarray(samples))
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size or rows.min() < 0 or rows.max() >= N:
        raise ValueError(f"expected {what} from 0 to {N - 1}; got {samples!r}")
    return rows


def require_affordable(response: LinearResponse, number: int) -> None:
    """Raise if there are more statistics than conjugate gradients can be asked for."""
    if not response.is_dense and number > MOST:
        raise ValueError(
            f"expected at most {MOST} intervals at once in a problem of {response.size:,} coordinates, whose Hessian "
            f"is not factorised; got {number:,}: ask for fewer samples or features"
        )


def why_not(result: Fit | Posterior, data: Data, priors: Priors | None, number: int) -> str | None:
    """Return why intervals by linear response cannot be had or would take long; None if neither holds.

    Args:
        result: a fit or its posterior.
        data: the data that it was fitted to.
        priors: by default those of the fit.
        number: of intervals.
    """
    if priors is None and getattr(result, "priors", None) is None:
        return "the priors of this fit are not known"
    posterior = result.posterior if isinstance(result, Fit) else result
    gammas = all(isinstance(q, Gamma) for q in posterior.sites.values())
    if getattr(result, "bound", "augmented") == "log_joint" or not gammas:
        return "linear response needs Gamma factors"
    if data.num_unlabelled > 0:  # by conjugate gradients, which take long to compile there
        return "with unlabelled samples they would take long: ask linear_response for the ones you need"
    if np.shape(posterior.V.mean)[1] != data.num_samples:
        return "linear response needs the coefficients of all samples"
    sizes = [int(np.prod(np.shape(q.mean))) for q in posterior.sites.values()]
    size, border = 2 * sum(sizes), 2 * (sum(sizes) - max(sizes[:2]))  # as in `LinearResponse`, before any work
    K = int(np.shape(posterior.T.mean)[1])
    products = border + 2 * K if size * border <= DENSE else PRODUCTS * number
    if products * data.matrix.stored().size * K > WORK:
        return f"with {size:,} coordinates they would take long: ask linear_response for the ones you need"
    try:
        linear_response(result, data, priors)  # prepares and checks, no more
    except ValueError as error:
        return str(error)
    return None
