"""Draws of labels in a Gibbs sweep: z and π of unlabelled samples, and w of multi-label samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..model.data import Data
from ..model.problem import Problem
from ..model.types import Array
from ..model.unlabelled import have_single_label, label_logits, labels_of, unlabelled_samples, with_labels


def draw_labels(key: Array, data: Data, family: Any, z: dict[str, Array]) -> tuple[dict[str, Array], Data]:
    """Draw z | V, λ, π; return it, the concentrations of π | z, and the data with these labels."""
    if data.num_unlabelled == 0:
        return {}, data
    drawn = jax.random.categorical(key, label_logits(family, z["lam"], z.get("pi"), z["V"], data), axis=1)
    return {"z": drawn} | concentrations(data, drawn), with_labels(data, drawn)


def concentrations(data: Data, z: Array) -> dict[str, Array]:
    """Return u + Σ_τ Δ_τ over samples of one label, known or drawn; or u_τ + Δ_τ of each. Nothing if π is known."""
    labels = labels_of(data)
    u = labels.dirichlet
    if u is None:
        return {}
    membership = with_labels(data, z).membership
    if u.ndim == 2:
        return {"pi": u + membership[unlabelled_samples(data)]}
    counts = (have_single_label(data) | (labels.unlabelled > 0)).astype(u.dtype)
    return {"pi": u + counts @ membership}


def least_groups(key: Array, data: Data, family: Any, lam: Array) -> Array:
    """Return Σ_τ ([w_iτ = c] − m_τc) over multi-label samples, in the shape of λ: `rate_sums` counts these evenly."""
    if data.several is None:
        return jnp.zeros((), lam.dtype)
    C, several = data.num_groups, data.several > 0

    def of_group(c: Array) -> Data:
        return data._replace(membership=jax.nn.one_hot(jnp.full(data.num_samples, c), C, dtype=lam.dtype))

    rates = jax.vmap(lambda c: family.rates(lam, of_group(c)))(jnp.arange(C))  # groups × components × samples
    share = jnp.where(several, data.membership.T, 1)[:, None, :] * rates
    w = jax.random.categorical(key, jnp.log(share), axis=0)

    def counted(c: Array) -> Array:
        return family.collect(jnp.where(several, (w == c).astype(lam.dtype), 0), of_group(c))

    evenly = family.collect(jnp.where(several, jnp.ones_like(w, lam.dtype), 0), data)
    return jax.vmap(counted)(jnp.arange(C)).sum(axis=0) - evenly


def first_labels(data: Data) -> dict[str, Array]:
    """Return the start of z and π, with unlabelled samples: a sweep draws z first, given π."""
    if data.num_unlabelled == 0:
        return {}
    z = jnp.argmax(data.membership, axis=1)
    return {"z": z} | {site: u / u.sum(axis=-1, keepdims=True) for site, u in concentrations(data, z).items()}


def require_exponential(problem: Problem) -> None:
    """Raise for multi-label samples whose coefficients are not exponential: λ has no known conditional there."""
    family = problem.priors.coefficients
    several = problem.data.several is not None
    if several and family.hyperprior is not None and not (np.asarray(family.shape) == 1).all():
        raise ValueError(
            "expected coefficients of shape 1 for Gibbs sampling with multi-label samples; got "
            f"{type(family).__name__} of shape {np.asarray(family.shape).ravel()[0]:g}: mcmc.run_nuts takes it"
        )
