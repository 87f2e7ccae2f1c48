"""What a result expects of single entries of X: (TV)_ντ under draws of T and V."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC

from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import prepare
from ..model.types import Array
from ..model.validation import whole
from .arviz import check_shapes, sampled
from .diagnostics import batch
from .guide import guide
from .posterior import Posterior, factors_of, match, rank_of
from .starts import check_key


def entry_rates(
    result: Any, data: Data, priors: Priors, entries: tuple[Array, Array], *, key: Array | None, num_samples: int
) -> Iterator[np.ndarray]:
    """(T_r V_r)_ντ of these entries, draws × entries, a batch of draws at a time.

    Args:
        result: a `Fit` or `Posterior`, of which draws are made; or a NumPyro `MCMC` that has run, all of whose draws
            are taken.
        data: what it was fitted to.
        priors: those it was fitted with.
        entries: indices of features, and as many of samples.
        key: a JAX key for draws; `jax.random.key(0)` when it is None.
        num_samples: how many draws to make.
    """
    whole("num_samples", num_samples, 1)
    key = jax.random.key(0) if key is None else key
    check_key(key)
    if isinstance(result, MCMC):
        draws, _ = sampled(result)
        check_shapes(draws, data, priors)
        T, V = (draws[site].reshape(-1, *draws[site].shape[2:]) for site in ("T", "V"))
        size = _batch(data, T.shape[-1], entries, len(T))
        for begin in range(0, len(T), size):
            some = np.arange(begin, begin + size) % len(T)  # the last batch is filled up
            yield np.asarray(_at_all(T[some], V[some], *entries), float)[: len(T) - begin]
        return
    q = factors_of(result)
    ready, priors, K = prepare(data, priors, rank_of(q))
    q = match(q, ready, priors, K, tuple)
    size = _batch(data, K, entries, num_samples)
    for n, keys in enumerate(jax.random.split(key, (-(-num_samples // size), size))):
        yield np.asarray(_draw(q, ready, priors, keys, *entries), float)[: num_samples - n * size]


def _batch(data: Data, K: int, entries: tuple[Array, Array], num: int) -> int:
    """How many draws to hold at once; each is T, V, and TV or the rows that few entries need of them."""
    F, N = data.X.shape
    return batch(max((F + N) * K, min(F * N, len(entries[0]) * K)), num)


def _at(T: Array, V: Array, feature: Array, sample: Array) -> Array:
    if len(feature) * T.shape[1] < T.shape[0] * V.shape[1]:  # fewer numbers than in TV
        return (T[feature] * V[:, sample].T).sum(axis=1)
    return (T @ V)[feature, sample]


_at_all = jax.jit(jax.vmap(_at, in_axes=(0, 0, None, None)))


@jax.jit
def _draw(q: Posterior, data: Data, priors: Priors, keys: Array, feature: Array, sample: Array) -> Array:
    def one(key: Array) -> Array:
        drawn = handlers.seed(guide(q, together=True), key)(data, priors, rank=rank_of(q))
        return _at(drawn["T"], drawn["V"], feature, sample)

    return jax.vmap(one)(keys)
