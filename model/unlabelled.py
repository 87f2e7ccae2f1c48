"""Unlabelled samples in the generative model: the prior of z, V given z, and V with z summed out.

    z_τ ~ Categorical(π_τ)        v_iτ | z_τ = c  as the family specifies for a sample of group c

A labelled sample has its label with probability 1. A multi-label sample has the average of its groups' rates for
every z, which is then one of its labels, each equally likely.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

from .conjugacy import conditional
from .data import Data
from .labels import Labels
from .types import Array


def unlabelled_samples(data: Data) -> Array:
    """Return the indices of the M unlabelled samples."""
    return jnp.nonzero(labels_of(data).unlabelled, size=data.num_unlabelled)[0]


def have_single_label(data: Data) -> Array:
    """Return whether each sample has exactly one known label."""
    labels = labels_of(data)
    single = jnp.asarray(labels.unlabelled) == 0
    return single if labels.several is None else single & (labels.several == 0)


def labels_of(data: Data) -> Labels:
    """Return `data.labels`; raise if every sample has one known label."""
    if data.labels is None:
        raise ValueError("expected data with unlabelled samples; got data in which every sample has one known label")
    return data.labels


def label_weights(data: Data, pi: Array | None) -> Array:
    """Return Pr(z_τ = c | π), samples × groups.

    Args:
        data: of a `Problem`.
        pi: π by group, or unlabelled samples × groups; None if it is known.
    """
    if pi is None:
        return data.membership
    if pi.ndim == 1:
        return jnp.where(labels_of(data).unlabelled[:, None] > 0, pi, data.membership)
    return data.membership.at[unlabelled_samples(data)].set(pi)


def with_labels(data: Data, z: Array) -> Data:
    """Return the data with these labels for unlabelled samples; other labels stay.

    Args:
        data: of a `Problem`.
        z: the index of a group for every sample, or anything that broadcasts to that.
    """
    one_hot = jax.nn.one_hot(jnp.broadcast_to(z, data.num_samples), data.num_groups, dtype=data.membership.dtype)
    unlabelled = labels_of(data).unlabelled[:, None] > 0
    return data._replace(membership=jnp.where(unlabelled, one_hot, data.membership))


def label_logits(family: Any, lam: Array, pi: Array | None, V: Array, data: Data) -> Array:
    """Return log p(z_τ = c, v_τ | λ, π), samples × groups; its softmax along the groups is p(z | V, λ, π).

    Args:
        family: of V.
        lam: λ.
        pi: as in `label_weights`.
        V: components × samples.
        data: of a `Problem`.
    """
    weights = label_weights(data, pi)
    seen = weights > 0
    log_weights = jnp.where(seen, jnp.log(jnp.where(seen, weights, 1)), -np.inf)  # so that 0 has no derivative

    def of_group(c: Array) -> Array:
        each: Array = conditional(family, lam, with_labels(data, c), V.shape[0]).log_prob(V)
        return each.sum(axis=0)

    return log_weights + jax.vmap(of_group)(jnp.arange(data.num_groups)).T


def given_label(family: Any, lam: Array, z: Array, data: Data, rank: int) -> dist.Distribution:
    """Return the distribution of V given λ and z; for an enumerated z, groups × components × samples.

    Args:
        family: of V.
        lam: λ.
        z: the index of a group for every sample; or groups × 1 × 1, every group for all samples.
        data: of a `Problem`.
        rank: K.
    """
    if jnp.ndim(z) <= 1:
        return conditional(family, lam, with_labels(data, z), rank)
    return Enumerated(family, lam, z, data, rank)


class Enumerated(dist.Distribution):
    """Distribution of V given every group in turn, for any family: groups × components × samples."""

    support = constraints.positive

    def __init__(self, family: Any, lam: Array, z: Array, data: Data, rank: int) -> None:
        self.parts = family, lam, z, data, rank
        super().__init__(batch_shape=(*jnp.shape(z)[:-2], rank, data.num_samples))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Return log densities by group."""
        return self._each(lambda p, x: p.log_prob(x), value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw once for every group."""
        shape = (*sample_shape, *self.batch_shape[-2:])
        return self._each(lambda p, _: p.expand(shape).sample(key), jnp.zeros(self.batch_shape[-2:]))

    def _each(self, of: Any, value: Array) -> Array:
        family, lam, z, data, rank = self.parts
        groups = jnp.ravel(z)
        value = jnp.broadcast_to(value, self.batch_shape).reshape(len(groups), rank, -1)

        def one(c: Array, x: Array) -> Array:
            return of(conditional(family, lam, with_labels(data, c), rank), x)

        return jax.vmap(one)(groups, value).reshape(self.batch_shape)


class SummedOut(dist.Distribution):
    """Distribution of V with z summed out: p(v_τ | λ, π) = Σ_c π_τc Π_i p(v_iτ | λ, z_τ = c).

    Its shape is components × samples, as that of guides: the joint log density of a sample's components is divided
    evenly among them.
    """

    support = constraints.positive

    def __init__(self, family: Any, lam: Array, pi: Array | None, data: Data, rank: int) -> None:
        self.parts = family, lam, pi, data, rank
        super().__init__(batch_shape=(rank, data.num_samples))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Return log p(v_τ | λ, π) / K for every v_iτ."""
        family, lam, pi, data, rank = self.parts
        of_sample = logsumexp(label_logits(family, lam, pi, value, data), axis=1)
        return jnp.broadcast_to(of_sample / rank, self.batch_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw a label for every sample, then V."""
        family, lam, pi, data, rank = self.parts

        def one(key: Array) -> Array:
            key_z, key_V = jax.random.split(key)
            z = dist.Categorical(label_weights(data, pi)).sample(key_z)
            return conditional(family, lam, with_labels(data, z), rank).sample(key_V)

        draws = jax.vmap(one)(jax.random.split(key, int(np.prod(sample_shape))))
        return draws.reshape(*sample_shape, *self.batch_shape)
