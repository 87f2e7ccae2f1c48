"""NumPyro distributions as priors, and their validation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist


def unexpanded(law: dist.Distribution) -> dist.Distribution:
    """Return the distribution before it was expanded to a larger shape."""
    return unexpanded(law.base_dist) if isinstance(law, dist.ExpandedDistribution) else law


def check_law(name: str, law: Any) -> None:
    """Raise unless this is a NumPyro distribution of single numbers with support (0, ∞)."""
    if not isinstance(law, dist.Distribution):
        raise ValueError(f"expected {name} to be a NumPyro distribution; got {law!r}")
    try:
        support = jax.tree.map(lambda x: x, law).support  # flattened and rebuilt, as in algorithms
    except Exception as error:  # a distribution that is not a valid pytree may raise anything
        raise ValueError(
            f"expected {name} to pass through JAX; got {type(law).__name__}, which fails: {error!r}"
        ) from None
    lowest = getattr(support, "lower_bound", None)
    # Under a user's jit the bound may be a tracer without a value.
    from_zero = lowest is not None and (isinstance(lowest, jax.core.Tracer) or bool(np.all(np.equal(lowest, 0))))
    on_half_line = from_zero and not hasattr(support, "upper_bound")
    if law.event_shape or law.is_discrete or not on_half_line:
        raise ValueError(
            f"expected {name} to be a distribution of single numbers on all of (0, ∞); got {type(law).__name__} with "
            f"support {support}" + (f" and event shape {law.event_shape}" if law.event_shape else "")
        )
