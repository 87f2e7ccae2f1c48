"""Labels that are unknown, in the generative story: what z is beforehand, what V is given z, and V with z summed out.

    z_τ ~ Categorical(π_τ)        v_iτ | z_τ = c  as the family says of a sample of group c

A sample whose label is known has it for certain. One of several labels has V by the average of their rates whatever
z says, which is then one of them, each as likely.
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
from .types import Array


def num_unlabelled(data: Data) -> int:
    """M, how many labels are unknown."""
    return 0 if data.labels is None else data.labels.num_unknown


def samples_without_label(data: Data) -> Array:
    """Which they are: M indices."""
    return jnp.nonzero(data.labels.unknown, size=num_unlabelled(data))[0]  # type: ignore[union-attr]  # there are some


def have_single_label(data: Data) -> Array:
    """Of every sample, whether it has one label that is known."""
    labels: Any = data.labels
    single = jnp.asarray(labels.unknown) == 0
    return single if labels.several is None else single & (labels.several == 0)


def label_weights(data: Data, pi: Array | None) -> Array:
    """Pr(z_τ = c | π), samples × groups.

    Args:
        data: as `prepare` leaves them.
        pi: π of groups, or of the samples without a label × groups; None if it is known.
    """
    if pi is None:
        return data.membership
    if pi.ndim == 1:
        return jnp.where(data.labels.unknown[:, None] > 0, pi, data.membership)  # type: ignore[union-attr]  # as above
    return data.membership.at[samples_without_label(data)].set(pi)


def with_labels(data: Data, z: Array) -> Data:
    """The data as if labels that are unknown were these; others stay as they are.

    Args:
        data: as `prepare` leaves them.
        z: of every sample the index of a group, or what broadcasts to it.
    """
    one_hot = jax.nn.one_hot(jnp.broadcast_to(z, data.num_samples), data.num_groups, dtype=data.membership.dtype)
    unknown: Array = data.labels.unknown[:, None] > 0  # type: ignore[union-attr]  # as above
    return data._replace(membership=jnp.where(unknown, one_hot, data.membership))


def label_logits(family: Any, lam: Array, pi: Array | None, V: Array, data: Data) -> Array:
    """log p(z_τ = c, v_τ | λ, π), samples × groups: softmax along the groups is p(z | V, λ, π).

    Args:
        family: of V.
        lam: λ.
        pi: as in `label_weights`.
        V: components × samples.
        data: as `prepare` leaves them.
    """
    weights = label_weights(data, pi)
    seen = weights > 0
    log_weights = jnp.where(seen, jnp.log(jnp.where(seen, weights, 1)), -np.inf)  # so that 0 has no derivative

    def of_group(c: Array) -> Array:
        each: Array = conditional(family, lam, with_labels(data, c), V.shape[0]).log_prob(V)
        return each.sum(axis=0)

    return log_weights + jax.vmap(of_group)(jnp.arange(data.num_groups)).T


def given_label(family: Any, lam: Array, z: Array, data: Data, rank: int) -> dist.Distribution:
    """V given λ and z; if z is enumerated, groups × components × samples.

    Args:
        family: of V.
        lam: λ.
        z: of every sample the index of a group; or groups × 1 × 1, every group for all samples.
        data: as `prepare` leaves them.
        rank: K.
    """
    if jnp.ndim(z) <= 1:
        return conditional(family, lam, with_labels(data, z), rank)
    return Enumerated(family, lam, z, data, rank)


class Enumerated(dist.Distribution):
    """V given every group in turn, for any family: groups × components × samples."""

    support = constraints.positive

    def __init__(self, family: Any, lam: Array, z: Array, data: Data, rank: int) -> None:
        self.parts = family, lam, z, data, rank
        super().__init__(batch_shape=(*jnp.shape(z)[:-2], rank, data.num_samples))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """By group."""
        return self._each(lambda law, x: law.log_prob(x), value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One draw for every group."""
        shape = (*sample_shape, *self.batch_shape[-2:])
        return self._each(lambda law, _: law.expand(shape).sample(key), jnp.zeros(self.batch_shape[-2:]))

    def _each(self, of: Any, value: Array) -> Array:
        family, lam, z, data, rank = self.parts
        groups = jnp.ravel(z)
        value = jnp.broadcast_to(value, self.batch_shape).reshape(len(groups), rank, -1)

        def one(c: Array, x: Array) -> Array:
            return of(conditional(family, lam, with_labels(data, c), rank), x)

        return jax.vmap(one)(groups, value).reshape(self.batch_shape)


class SummedOut(dist.Distribution):
    """V with z summed out: p(v_τ | λ, π) = Σ_c π_τc Π_i p(v_iτ | λ, z_τ = c).

    Components × samples, as guides have it: a sample's log density, which its components have together, is shared out
    among them evenly.
    """

    support = constraints.positive

    def __init__(self, family: Any, lam: Array, pi: Array | None, data: Data, rank: int) -> None:
        self.parts = family, lam, pi, data, rank
        super().__init__(batch_shape=(rank, data.num_samples))

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """log p(v_τ | λ, π) / K for every v_iτ."""
        family, lam, pi, data, rank = self.parts
        of_sample = logsumexp(label_logits(family, lam, pi, value, data), axis=1)
        return jnp.broadcast_to(of_sample / rank, self.batch_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """A label for every sample, then V."""
        family, lam, pi, data, rank = self.parts

        def one(key: Array) -> Array:
            key_z, key_V = jax.random.split(key)
            z = dist.Categorical(label_weights(data, pi)).sample(key_z)
            return conditional(family, lam, with_labels(data, z), rank).sample(key_V)

        draws = jax.vmap(one)(jax.random.split(key, int(np.prod(sample_shape))))
        return draws.reshape(*sample_shape, *self.batch_shape)
