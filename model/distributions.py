"""NumPyro distributions as priors, and their validation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist


def unexpanded(prior: dist.Distribution) -> dist.Distribution:
    """Return the distribution before it was expanded to a larger shape."""
    return unexpanded(prior.base_dist) if isinstance(prior, dist.ExpandedDistribution) else prior


def require_on_positive(name: str, prior: Any) -> None:
    """Raise unless this is a NumPyro distribution of single numbers with support (0, ∞)."""
    if not isinstance(prior, dist.Distribution):
        raise ValueError(f"expected {name} to be a NumPyro distribution; got {prior!r}")
    try:
        support = jax.tree.map(lambda x: x, prior).support  # flattened and rebuilt, as in algorithms
    except Exception as error:  # a distribution that is not a valid pytree may raise anything
        raise ValueError(
            f"expected {name} to pass through JAX; got {type(prior).__name__}, which fails: {error!r}"
        ) from None
    lowest = getattr(support, "lower_bound", None)
    # Under a user's jit the bound may be a tracer without a value.
    from_zero = lowest is not None and (isinstance(lowest, jax.core.Tracer) or bool(np.all(np.equal(lowest, 0))))
    on_half_line = from_zero and not hasattr(support, "upper_bound")
    if prior.event_shape or prior.is_discrete or not on_half_line:
        raise ValueError(
            f"expected {name} to be a distribution of single numbers on all of (0, ∞); got {type(prior).__name__} with "
            f"support {support}" + (f" and event shape {prior.event_shape}" if prior.event_shape else "")
        )
