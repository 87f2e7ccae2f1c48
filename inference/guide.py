"""The closed-form posterior as a NumPyro guide."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ..model.data import Data
from ..model.generative import rate_plates
from ..model.priors import Gamma, Priors
from ..model.problem import Problem, as_problem, require_counts
from ..model.types import Array
from .families import Correlated
from .observations import form_of
from .posterior import Factor, Fit, LabelPosterior, Posterior
from .results import factors_of


def guide(posterior: Posterior | Fit, *, together: bool = False) -> Callable[..., dict[str, Array]]:
    """Return the mean field q(T) q(V) q(λ) as a NumPyro guide for `group_sparse_nmf`, with the same sites and plates.

    Its parameters `T_a, T_b, V_a, V_b, lam_a, lam_b` (shapes and scales) start at the posterior's: `Trace_ELBO`,
    `Predictive` and `psis_diagnostic` see the posterior itself, and `SVI` resumes from it. For the augmented model it
    also has the site S, q(s_ν·τ) = Multinomial(x_ντ, g_T ∘ g_V / M) with g = exp E[log ·] of the same parameters.

    With unlabelled samples z is drawn from q(z) and π, if it has a Dirichlet prior, from q(π), with the parameter
    `pi_u`; q(z) is not a parameter, so gradients of the others are right. In the structured form V and S are drawn
    given z, and the parameters `V_given_a` and `V_given_b` replace those of V for unlabelled samples.

    Factors of other kinds have their own fields as parameters, such as `T_loc` and `T_scale`.

    Args:
        posterior: a `Fit` or its posterior; the guide takes the arguments of the model.
        together: draw all entries of all sites in one call: T, V and λ are functions of one auxiliary site. The same q,
            which compiles faster, as JAX's Gamma sampler compiles slowly, and cannot underflow to 0; but an ELBO that
            needs the sites' own distributions, such as `TraceMeanField_ELBO`, finds point masses. `Correlated` factors
            are always drawn together.

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
    posterior = factors_of(posterior)
    (F, K), N = np.shape(posterior.T[0]), np.shape(posterior.V[0])[1]

    def mean_field(
        data: Data | Problem, priors: Priors | None = None, rank: int | None = None, augmented: bool = False
    ) -> dict[str, Array]:
        shape = (data.data if isinstance(data, Problem) else data).matrix.shape
        if shape != (F, N):
            raise ValueError(f"expected data of {F} features × {N} samples, as in the posterior; got {shape}")
        problem = as_problem(data, priors, K)
        form_of(posterior, problem.data)  # raises if the posterior has no q(z) for unlabelled samples
        lam = None if posterior.lam is None else _param("lam", posterior.lam)
        q = Posterior(_param("T", posterior.T), _param("V", posterior.V), lam)
        feature, sample = numpyro.plate("feature", F, dim=-2), numpyro.plate("sample", N, dim=-1)
        draws: dict[str, Array] = {}
        if posterior.labels is not None:
            draws |= draw_proportions(posterior.labels)
            with sample:
                draws["z"] = numpyro.sample("z", dist.Categorical(posterior.labels.z))
            if posterior.labels.V is not None:
                given = _param("V_given", posterior.labels.V)
                q = q._replace(V=_given(q.V, given, posterior.labels.unlabelled, draws["z"]))
        sites = q.sites
        if isinstance(q.T, Correlated) or (together and isinstance(q.T, Gamma)):
            each = _together(sites)
        else:
            each = {site: factor.distribution() for site, factor in sites.items()}
        with feature, numpyro.plate("component", K, dim=-1):
            draws["T"] = numpyro.sample("T", each["T"])
        if q.lam is not None:
            with rate_plates(problem.priors.coefficients.axes, *q.lam[0].shape):
                draws["lam"] = numpyro.sample("lam", each["lam"])
        with numpyro.plate("component", K, dim=-2), sample:
            draws["V"] = numpyro.sample("V", each["V"])
        if augmented:
            with feature, sample:
                draws["S"] = numpyro.sample("S", _counts(problem.data, q))
        return draws

    return mean_field


def draw_proportions(labels: LabelPosterior) -> dict[str, Array]:
    """Draw the site pi if π has a Dirichlet prior."""
    if labels.pi is None:
        return {}
    u: Array = numpyro.param("pi_u", labels.pi, constraint=constraints.positive)
    with nullcontext() if u.ndim == 1 else numpyro.plate("unlabelled", len(u), dim=-1):
        return {"pi": numpyro.sample("pi", dist.Dirichlet(u))}


def _given(V: Gamma, given: Gamma, unlabelled: Array, z: Array) -> Gamma:
    """Return q(V | z): for unlabelled samples, the factors of the group that z names."""
    M = given.a.shape[2]
    without = jnp.nonzero(unlabelled, size=M)[0]
    chosen = (x[z[without], :, jnp.arange(M)].T for x in given)
    return Gamma(*(x.at[:, without].set(y) for x, y in zip(V.broadcast(*V.a.shape), chosen, strict=True)))


def _param(site: str, factor: Factor) -> Factor:
    """Return the factor as NumPyro parameters, positive except for locations and loadings."""
    domain = {"loc": constraints.real, "factor": constraints.real}
    parameters = (
        numpyro.param(f"{site}_{name}", x, constraint=domain.get(name, constraints.positive))
        for name, x in factor._asdict().items()
    )
    return type(factor)(*parameters)


class Standard(dist.Gamma):
    """Gamma(a, 1), whose draws of small shapes underflow to the least y for which b y is positive, not to 0."""

    pytree_data_fields = ("least",)

    def __init__(self, a: Array, b: Array) -> None:
        self.least = np.finfo(a.dtype).tiny * jnp.maximum(1, 2 / b)
        super().__init__(a, 1.0)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw values with a finite density."""
        return jnp.maximum(super().sample(key, sample_shape), self.least)


def _together(sites: dict[str, Factor]) -> dict[str, dist.Distribution]:
    """Draw once for all sites; each site is then a point mass at x, with the density of x under the joint draw.

    Gamma: x = b y, y ~ Gamma(a, 1).    Correlated: x = exp y, y ~ Normal(loc, factorᵀ factor + diag(scale²)).
    """

    def flat(name: str) -> Array:
        return jnp.concatenate([jnp.broadcast_to(getattr(f, name), f[0].shape).ravel() for f in sites.values()])

    if all(isinstance(factor, Gamma) for factor in sites.values()):
        joint: dist.Distribution = Standard(flat("a"), flat("b")).to_event(1)
    else:
        loadings = [factor.factor.reshape(len(factor.factor), -1) for factor in sites.values()]
        joint = dist.LowRankMultivariateNormal(flat("loc"), jnp.concatenate(loadings, axis=1).T, flat("scale") ** 2)
    drawn: Array = numpyro.sample("_together", joint, infer={"is_auxiliary": True})
    points: dict[str, dist.Distribution] = {}
    begin = 0
    for site, factor in sites.items():
        y = drawn[begin : begin + factor[0].size].reshape(factor[0].shape)
        begin += factor[0].size
        if isinstance(factor, Gamma):
            points[site] = dist.Delta(factor.b * y, log_density=-jnp.log(factor.b) * jnp.ones_like(y))
        else:
            points[site] = dist.Delta(jnp.exp(y), log_density=-y)
    return points


class Thinning(dist.MultinomialProbs):
    """NumPyro's multinomial, drawn by conditional binomials: it needs no array of counts × features × samples."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw counts in the precision of the probabilities."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        trials = jnp.broadcast_to(self.total_count, shape[:-1]).astype(self.probs.dtype)
        # no `shape`: before JAX 0.12 it counts the categories, later it does not
        return jax.random.multinomial(key, trials, jnp.broadcast_to(self.probs, shape))


def _counts(data: Data, q: Posterior) -> dist.Distribution:
    """Return q(S), features × samples × components: an array for checks of the augmented model on small problems."""
    require_counts(data)
    logits = q.T.log_mean[:, None, :] + q.V.log_mean.T[None, :, :]
    return Thinning(jax.nn.softmax(logits, axis=-1), jnp.asarray(data.X, int))
