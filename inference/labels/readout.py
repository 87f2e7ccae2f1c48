"""What a result says of labels that were unknown: p(z | V, λ, π) of every draw, and the average over draws."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC

from ...model.data import Data
from ...model.priors import Priors
from ...model.problem import prepare
from ...model.types import Array
from ...model.unlabelled import label_logits, num_unlabelled
from ...model.validation import whole
from ..diagnostics import batch
from ..guide import guide
from ..posterior import Posterior, factors_of, match, rank_of
from ..starts import check_key

NEEDED = ("V", "lam", "pi")  # by p(z | V, λ, π)


def label_probabilities(
    result: Any, data: Data, priors: Priors, *, key: Array | None = None, num_samples: int = 1000
) -> np.ndarray:
    """E[p(z_τ = c | V, λ, π)], samples × groups: less noisy than how often z was drawn; known labels as they are.

    Args:
        result: a NumPyro `MCMC` of NUTS or Gibbs that has run, whose draws are taken; or a `Fit` of CAVI or SVI or its
            `Posterior`, of which draws are made. What CAVI's q(z) itself says is `fit.posterior.z`.
        data: what it was fitted to, with labels that are unknown.
        priors: those it was fitted with.
        key: a JAX key for draws; `jax.random.key(0)` when left out.
        num_samples: how many draws to make.

    >>> from gsnmf.inference import mcmc
    >>> from gsnmf.model import Gamma, GroupSparse, as_data
    >>> data = as_data([[9, 1, 0], [0, 2, 5]], ["a", None, "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> chains = mcmc.run_gibbs(data, priors, key=jax.random.key(0), rank=1, num_samples=20, progress_bar=False)
    >>> label_probabilities(chains, data, priors)[[0, 2]].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    whole("num_samples", num_samples, 1)
    key = jax.random.key(0) if key is None else key
    check_key(key)
    if isinstance(result, MCMC):
        draws = {site: np.asarray(x) for site, x in result.get_samples().items() if site in NEEDED}
        rank, num = draws["V"].shape[1], len(draws["V"])
    else:
        rank, num = rank_of(factors_of(result)), num_samples
    ready, priors, K = prepare(data, priors, rank)
    if num_unlabelled(ready) == 0:
        raise ValueError("expected data with labels that are unknown, and priors with groups; got none to infer")
    size = batch(ready.num_samples * ready.num_groups * K, num)
    total = np.zeros((ready.num_samples, ready.num_groups))
    for begin in range(0, num, size):
        many = min(size, num - begin)
        if isinstance(result, MCMC):
            some = {site: x[np.arange(begin, begin + size) % num] for site, x in draws.items()}  # the last is filled up
        else:
            q = match(factors_of(result), ready, priors, K, tuple)
            some = _drawn(q, ready, priors, jax.random.split(jax.random.fold_in(key, begin), size))
        total += np.asarray(jax.nn.softmax(_logits(some, ready, priors), axis=2), float)[:many].sum(axis=0)
    return total / num


@jax.jit
def _logits(draws: dict[str, Array], data: Data, priors: Priors) -> Array:
    """Of every draw, log p(z, V | λ, π), samples × groups."""

    def one(draw: dict[str, Array]) -> Array:
        return label_logits(priors.coefficients, draw["lam"], draw.get("pi"), draw["V"], data)

    return jax.vmap(one)(draws)


@jax.jit
def _drawn(q: Posterior, data: Data, priors: Priors, keys: Array) -> dict[str, Array]:
    def one(key: Array) -> dict[str, Array]:
        drawn = handlers.seed(guide(q, together=True), key)(data, priors, rank=rank_of(q))
        return {site: drawn[site] for site in NEEDED if site in drawn}

    return jax.vmap(one)(keys)


def with_drawn_labels(draws: dict[str, np.ndarray], data: Data, priors: Priors, *, key: Array) -> dict[str, np.ndarray]:
    """The draws, chains × draws × ..., with z from p(z | V, λ, π), if labels are unknown and it is not there."""
    data, priors, _ = prepare(data, priors, draws["T"].shape[-1])
    if num_unlabelled(data) == 0 or "z" in draws:
        return draws
    chains, length = draws["V"].shape[:2]
    num = chains * length
    flat = {site: draws[site].reshape(num, *draws[site].shape[2:]) for site in NEEDED if site in draws}
    size = batch(data.num_samples * data.num_groups * draws["T"].shape[-1], num)
    z = []
    for begin in range(0, num, size):
        some = {site: x[np.arange(begin, begin + size) % num] for site, x in flat.items()}
        logits = _logits(some, data, priors)
        z.append(np.asarray(jax.random.categorical(jax.random.fold_in(key, begin), logits, axis=2)))
    return draws | {"z": np.concatenate(z)[:num].reshape(chains, length, -1)}


def shapes_of_labels(data: Data, priors: Priors, draws: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes that π has to have, and z if it is among the draws."""
    ready, _, _ = prepare(data, priors, draws["T"].shape[-1])
    if num_unlabelled(ready) == 0:
        return {}
    u: Any = ready.labels.dirichlet  # type: ignore[union-attr]  # there are some
    wanted: dict[str, tuple[int, ...]] = {} if u is None else {"pi": u.shape}
    return wanted | ({"z": (data.num_samples,)} if "z" in draws else {})
