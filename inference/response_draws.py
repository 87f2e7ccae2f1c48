"""Draws with the covariance of linear response.

They are made of quantities that do not depend on the scale of a component, which the data leave nearly open:

    v_iτ Σ_ν t_νi        t_νi / Σ_ν t_νi        λ_ic / Σ_ν t_νi        log Σ_ν t_νi

Each of the first three is a Gamma with its mean and standard deviation, the last is normal, and the correlations are
those of a Gaussian copula. Log-normal draws would be simpler, but coefficients near 0 are skewed the other way: the
total Σ TV of such draws was several standard deviations too large.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special

from ..model.types import Array
from .posterior import Posterior
from .supports import SUPPORTS


def scale_free(q: Posterior, moves_rates: bool) -> tuple[Array, Array]:
    """Return the positive quantities above as one vector, and log Σ_ν t_νi.

    Args:
        q: a posterior.
        moves_rates: whether λ has a row for every component; otherwise it is taken as it is.
    """
    total = q.T.mean.sum(axis=0)
    parts = [q.V.mean * total[:, None], q.T.mean / total[None, :]]
    if q.lam is not None:
        parts.append(q.lam.mean / total[:, None] if moves_rates else q.lam.mean)
    return jnp.concatenate([x.ravel() for x in parts]), jnp.log(total)


def quantiles_of_normals(z: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return Gamma variables with these means and standard deviations that are as far out as standard normals z."""
    found = SUPPORTS["positive"](special.ndtr(z), mean, sd)
    return np.asarray(np.maximum(found, np.finfo(np.float32).tiny))


def sites(positive: np.ndarray, logs: np.ndarray, q: Posterior, moves_rates: bool) -> dict[str, np.ndarray]:
    """Return draws by site, 1 × draws × ..., from the quantities of `scale_free`, draws × entries.

    Args:
        positive: draws of the positive quantities.
        logs: draws of log Σ_ν t_νi.
        q: the posterior, for its shapes.
        moves_rates: as in `scale_free`.
    """
    (F, K), N = q.T.mean.shape, q.V.mean.shape[1]
    num, total = len(positive), np.exp(logs)
    activation, profile, rates = np.split(positive, [K * N, K * N + F * K], axis=1)
    profile = profile.reshape(num, F, K)
    profile = profile / profile.sum(axis=1, keepdims=True)
    found: dict[str, Any] = {
        "T": profile * total[:, None, :],
        "V": activation.reshape(num, K, N) / total[:, :, None],
    }
    if q.lam is not None:
        lam = rates.reshape(num, *q.lam.mean.shape)
        found["lam"] = lam * total[:, :, None] if moves_rates else lam
    return {site: x[None] for site, x in found.items()}
