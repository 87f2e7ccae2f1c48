"""Labels of unlabelled samples from any result: p(z | V, λ, π) of every draw, and its average over draws."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...model.checks import whole
from ...model.data import Data
from ...model.priors import Priors
from ...model.problem import Problem
from ...model.types import Array
from ...model.unlabelled import label_logits
from ..draws import batch, cut_batches, default_key, in_batches, source_of

NEEDED = ("V", "lam", "pi")  # by p(z | V, λ, π)


def label_probabilities(
    result: Any,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array | None = None,
    num_samples: int = 1000,
) -> np.ndarray:
    """Return E[p(z_τ = c | V, λ, π)], samples × groups, less noisy than frequencies of z; known labels as they are.

    Args:
        result: a NumPyro `MCMC` of NUTS or Gibbs that has run, whose draws are taken; or a `Fit` of CAVI or SVI or its
            `Posterior`, of which draws are made. CAVI's own q(z) is `fit.posterior.z`.
        data: the data that it was fitted to, with unlabelled samples.
        priors: by default those of the result.
        key: a JAX key for draws; `jax.random.key(0)` by default.
        num_samples: the number of draws to make.

    >>> from gsnmf.inference import mcmc
    >>> from gsnmf.model import Gamma, GroupSparse, as_data
    >>> data = as_data([[9, 1, 0], [0, 2, 5]], ["a", None, "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    >>> chains = mcmc.run_gibbs(data, priors, key=jax.random.key(0), rank=1, num_samples=20, progress_bar=False)
    >>> label_probabilities(chains, data)[[0, 2]].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    whole("num_samples", num_samples, 1)
    key = default_key(key)
    source = source_of(result, data, priors, num_samples)
    problem = source.problem
    if problem.data.num_unlabelled == 0:
        raise ValueError("expected data with unlabelled samples, and priors with groups; got 0 unlabelled samples")
    size = batch(problem.data.num_samples * problem.data.num_groups * problem.rank, source.num)
    total = np.zeros((problem.data.num_samples, problem.data.num_groups))
    for some, many in in_batches(source, key, size):
        logits = _logits({site: some[site] for site in NEEDED if site in some}, problem)
        total += np.asarray(jax.nn.softmax(logits, axis=2), float)[:many].sum(axis=0)
    return total / source.num


@jax.jit
def _logits(draws: dict[str, Array], problem: Problem) -> Array:
    """Return log p(z, V | λ, π) of every draw, draws × samples × groups."""

    def one(draw: dict[str, Array]) -> Array:
        return label_logits(problem.priors.coefficients, draw["lam"], draw.get("pi"), draw["V"], problem.data)

    return jax.vmap(one)(draws)


def with_drawn_labels(draws: dict[str, np.ndarray], problem: Problem, *, key: Array) -> dict[str, np.ndarray]:
    """Return the draws, chains × draws × ..., with z drawn from p(z | V, λ, π) if it is missing."""
    if problem.data.num_unlabelled == 0 or "z" in draws:
        return draws
    chains, length = draws["V"].shape[:2]
    size = batch(problem.data.num_samples * problem.data.num_groups * problem.rank, chains * length)
    z = []
    for n, (some, _) in enumerate(cut_batches(draws, size)):
        logits = _logits({site: some[site] for site in NEEDED if site in some}, problem)
        z.append(np.asarray(jax.random.categorical(jax.random.fold_in(key, n * size), logits, axis=2)))
    return draws | {"z": np.concatenate(z)[: chains * length].reshape(chains, length, -1)}
