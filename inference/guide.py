"""The closed-form posterior as a NumPyro guide."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ..model.data import Data
from ..model.priors import Gamma, Priors
from ..model.problem import require_counts
from ..model.types import Array
from .posterior import Posterior, rank_of


def guide(posterior: Posterior) -> Callable[..., dict[str, Array]]:
    """The mean field q(T) q(V) q(λ) as a NumPyro guide for `group_sparse_nmf`, with the same sites and plates.

    Its parameters `T_a, T_b, V_a, V_b, lam_a, lam_b` (shapes and scales) start at the posterior's: `Trace_ELBO`,
    `Predictive` and `psis_diagnostic` see the posterior as it is, and `SVI` goes on from it. For the augmented model it
    also carries q(s_ν·τ) = Multinomial(x_ντ, g_T ∘ g_V / M) with g = exp E[log ·] of the same parameters.

    Args:
        posterior: as in `Fit.posterior`; the guide takes the arguments of the model.

    >>> import jax, numpyro
    >>> from gsnmf.model import Gamma, Priors, as_data, group_sparse_nmf
    >>> from gsnmf.inference import cavi
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> elbo = numpyro.infer.Trace_ELBO(num_particles=1000)
    >>> loss = elbo.loss(jax.random.key(1), {}, group_sparse_nmf, guide(fit.posterior), data, priors, rank=1)
    >>> bool(abs(-loss - fit.elbo[-1]) < 0.3)
    True
    """
    K = rank_of(posterior)
    F, N = np.shape(posterior.T.a)[0], np.shape(posterior.V.a)[1]

    def mean_field(data: Data, priors: Priors, rank: int | None = None, augmented: bool = False) -> dict[str, Array]:
        if data.X.shape != (F, N):
            raise ValueError(f"expected data of {F} features × {N} samples, as the posterior's; got {data.X.shape}")
        lam = None if posterior.lam is None else _param("lam", posterior.lam)
        q = Posterior(_param("T", posterior.T), _param("V", posterior.V), lam)
        feature, sample = numpyro.plate("feature", F, dim=-2), numpyro.plate("sample", N, dim=-1)
        draws = {}
        with feature, numpyro.plate("component", K, dim=-1):
            draws["T"] = numpyro.sample("T", q.T.distribution())
        with numpyro.plate("component", K, dim=-2):
            if q.lam is not None:
                with numpyro.plate("group", q.lam.a.shape[1], dim=-1):
                    draws["lam"] = numpyro.sample("lam", q.lam.distribution())
            with sample:
                draws["V"] = numpyro.sample("V", q.V.distribution())
        if augmented:
            with feature, sample:
                draws["S"] = numpyro.sample("S", _counts(data, q))
        return draws

    return mean_field


def _param(site: str, factor: Gamma) -> Gamma:
    """The factor as NumPyro parameters."""
    a, b = factor
    positive = constraints.positive
    return Gamma(numpyro.param(f"{site}_a", a, constraint=positive), numpyro.param(f"{site}_b", b, constraint=positive))


class Thinning(dist.MultinomialProbs):
    """NumPyro's multinomial, drawn by conditional binomials: it needs no array of counts × features × samples."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Counts in the precision of the probabilities."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        trials = jnp.broadcast_to(self.total_count, shape[:-1]).astype(self.probs.dtype)
        return jax.random.multinomial(key, trials, jnp.broadcast_to(self.probs, shape), shape=shape)


def _counts(data: Data, q: Posterior) -> dist.Distribution:
    """q(S), features × samples × components: the one place that forms such an array, for checking on small problems."""
    require_counts(data)
    logits = q.T.log_mean[:, None, :] + q.V.log_mean.T[None, :, :]
    return Thinning(jax.nn.softmax(logits, axis=-1), jnp.asarray(data.X, int))
