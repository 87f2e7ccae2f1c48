"""log p(x_τ | T, λ, π) of every sample and draw, with v_τ, labels and rates of the sample's own integrated out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, xlogy

from ..model.conjugacy import rate_shape
from ..model.data import Data
from ..model.priors import Gamma, Given
from ..model.problem import Problem
from ..model.types import Array
from ..model.unlabelled import label_weights, with_labels
from .draws import ENTRIES, cut_batches
from .integrated import Sample, draw_noise, log_integral

BATCH = 32  # draws in one call


class Pointwise(NamedTuple):
    """Log densities of samples given draws, chains × draws × samples.

    log_p: log p(x_τ | T, λ, π).
    integration: the effective proportion of the draws of v.
    """

    log_p: np.ndarray
    integration: np.ndarray


class Cases(NamedTuple):
    """Integrals to compute: one for a labelled sample, one for every group for an unlabelled sample.

    sample: the index of the sample.
    group: 0 for a sample with known labels, c + 1 for an unlabelled sample under group c.
    """

    sample: np.ndarray
    group: np.ndarray


def integrated_likelihood(
    draws: Mapping[str, np.ndarray],
    problem: Problem,
    *,
    key: Array,
    num_integration: int,
    samples: Sequence[int] | np.ndarray | None = None,
) -> Pointwise:
    """Return log p(x_τ | T, λ, π) of samples, all by default, for every draw.

    Args:
        draws: chains × draws × ... by site.
        problem: whose prior of V has closed forms.
        key: a JAX key.
        num_integration: draws of v for each.
        samples: indices of samples, in ascending order.
    """
    chains, length = draws["T"].shape[:2]
    chosen = np.arange(problem.data.num_samples) if samples is None else np.asarray(samples)
    cases = _cases(problem.data, chosen)
    tile = max(1, ENTRIES // 2 // (num_integration * problem.data.num_features))
    made = []
    for n, (some, many) in enumerate(cut_batches(draws, min(BATCH, chains * length))):
        keys = jax.random.split(jax.random.fold_in(key, n), len(some["T"]))
        sites = {site: x for site, x in some.items() if site != "z"}
        found = _integrals(sites, problem, keys, cases, num_integration, tile)
        made.append([np.asarray(x, float)[:many] for x in found])
    each, sizes = (np.concatenate(parts) for parts in zip(*made, strict=True))
    begin = np.searchsorted(cases.sample, chosen)  # of a sample's groups, which are next to each other
    log_p = np.logaddexp.reduceat(each, begin, axis=1)
    share = np.exp(each - np.repeat(log_p, np.diff([*begin, len(cases.sample)]), axis=1))  # of each group in this sum
    integration = np.add.reduceat(share * sizes, begin, axis=1)
    log_p += _constants(problem.data)[chosen]
    return Pointwise(*(x.reshape(chains, length, len(chosen)) for x in (log_p, integration)))


def require_integrable(family: Any) -> None:
    """Raise unless v given λ is Gamma, and rates that belong to single samples have Gamma priors."""
    own = family.hyperprior is not None and "sample" in family.axes
    if not hasattr(family, "rates") or (own and not isinstance(family.hyperprior, Gamma)):
        name = f"{family.name} on V" if isinstance(family, Given) else f"{type(family).__name__} on V"
        raise ValueError(f"expected a prior of V with closed forms to integrate coefficients out; got {name}")


def _cases(data: Data, chosen: np.ndarray) -> Cases:
    known = np.asarray(data.known)[chosen]
    groups = [[0] if labelled else list(range(1, data.num_groups + 1)) for labelled in known]
    return Cases(np.repeat(chosen, list(map(len, groups))), np.concatenate(groups).astype(int))


def _constants(data: Data) -> np.ndarray:
    """Return Σ_ν log Poisson(x; x) over observed entries, by sample; `log_integral` leaves it out."""
    x = np.asarray(data.X, float)
    return np.asarray((xlogy(x, x) - x - gammaln(x + 1)).sum(axis=0))  # 0 for hidden entries, where x = 0


@partial(jax.jit, static_argnames=("num", "tile"))
def _integrals(
    draws: dict[str, Array], problem: Problem, keys: Array, cases: Cases, num: int, tile: int
) -> tuple[Array, Array]:
    """Return log π_c + log p(x_τ | T, λ, c) and the effective proportions, draws × cases."""
    K = problem.rank

    def of_draw(given: tuple[dict[str, Array], Array]) -> tuple[Array, Array]:
        draw, key = given
        rows, log_weights = _rows(draw, problem, cases)
        noise = draw_noise(key, num, K, problem.dtype)
        value, size = jax.lax.map(lambda row: log_integral(row, draw["T"], noise), rows, batch_size=tile)
        return value + log_weights, size

    found: tuple[Array, Array] = jax.lax.map(of_draw, (draws, keys), batch_size=max(1, tile // len(cases.sample)))
    return found


def _rows(draw: dict[str, Array], problem: Problem, cases: Cases) -> tuple[Sample, Array]:
    """Return the samples of the cases, cases first, and the log weights of their groups."""
    (data, priors, K), (n, c) = problem, cases
    family, N = priors.coefficients, data.num_samples
    seen = None if data.mask is None else data.mask.T[n].astype(problem.dtype)
    x, a, v = data.X.T[n], jnp.broadcast_to(family.shape, (K, N)).T[n], draw["V"].T[n]
    a = a.astype(problem.dtype)
    if family.hyperprior is not None and "sample" in family.axes:
        size = rate_shape(family, data, K)
        own = Gamma(*(jnp.broadcast_to(p, size).T[n] for p in family.hyperprior))
        return Sample(x, seen, a, None, own, v), jnp.zeros(len(n), problem.dtype)

    def rates(grouped: Data) -> Array:
        return jnp.broadcast_to(family.rates(draw.get("lam"), grouped), (K, N)).T

    if data.num_unlabelled == 0:
        return Sample(x, seen, a, rates(data)[n], None, v), jnp.zeros(len(n), problem.dtype)
    under = jax.vmap(lambda group: rates(with_labels(data, group)))(jnp.arange(data.num_groups))
    each = jnp.concatenate([rates(data)[None], under])
    pi = draw.get("pi")
    weights = label_weights(data, None if pi is None or pi.ndim == 2 else pi)  # π of the sample's own: by its prior
    log_weights = jnp.where(c == 0, 0, jnp.log(weights[n, jnp.maximum(c - 1, 0)]))
    return Sample(x, seen, a, each[c, n], None, v), log_weights
