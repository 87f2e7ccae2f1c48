import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood
from numpyro.infer.util import log_density

from gsnmf.model import Gamma, GroupSparse, Priors, as_data, group_sparse_nmf

F, N, K, C = 4, 5, 2, 3
X = np.random.default_rng(0).poisson(3.0, size=(F, N))
Z = np.array([2, 0, 1, 0, 2])
DATA = as_data(X, Z)
RATE = Gamma(np.arange(1.0, K * C + 1).reshape(K, C), 0.5)
PRIORS = Priors(Gamma(0.8, 2.0), GroupSparse(RATE))


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def values(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"T": (F, K), "V": (K, N), "lam": (K, C)}
    return {site: jnp.asarray(rng.gamma(1.0, size=shape)) for site, shape in shapes.items()}


def test_log_density_is_the_generative_story():
    """Against SciPy, one factor of the joint density at a time."""
    at = values()
    joint, trace = log_density(group_sparse_nmf, (DATA, PRIORS), {}, at)
    T, V, lam = (np.asarray(at[site]) for site in ("T", "V", "lam"))
    expected = scipy.stats.gamma.logpdf(T, 0.8, scale=2.0).sum()
    expected += scipy.stats.gamma.logpdf(lam, RATE.a, scale=RATE.b).sum()
    expected += scipy.stats.expon.logpdf(V, scale=1 / lam[:, Z]).sum()
    expected += scipy.stats.poisson.logpmf(X, T @ V).sum()
    np.testing.assert_allclose(joint, expected, rtol=1e-12)
    assert {name for name, site in trace.items() if site["type"] == "sample"} == {"T", "V", "lam", "X"}
    assert {name for name, site in trace.items() if site["type"] == "plate"} == {
        "feature", "component", "sample", "group",
    }  # fmt: skip


def test_augmented_log_density_splits_the_counts():
    at = values()
    S = np.random.default_rng(1).multinomial(X, np.full(K, 1 / K))
    joint, trace = log_density(group_sparse_nmf, (DATA, PRIORS), {"augmented": True}, {**at, "S": jnp.asarray(S)})
    marginal, _ = log_density(group_sparse_nmf, (DATA, PRIORS), {}, at)
    means = at["T"][:, None, :] * at["V"].T[None]
    counts = scipy.stats.poisson.logpmf(S, means).sum() - scipy.stats.poisson.logpmf(X, means.sum(-1)).sum()
    np.testing.assert_allclose(joint - marginal, counts, rtol=1e-10)
    assert trace["S"]["value"].shape == (F, N, K)
    wrong, _ = log_density(group_sparse_nmf, (DATA, PRIORS), {"augmented": True}, {**at, "S": jnp.asarray(S + 1)})
    assert wrong == -np.inf


def test_gamma_coefficients_have_no_lambda():
    priors = Priors(Gamma(0.8, 2.0), Gamma(1.5, np.ones((K, N))))
    at = values()
    joint, trace = log_density(group_sparse_nmf, (as_data(X), priors), {}, {"T": at["T"], "V": at["V"]})
    assert "lam" not in trace
    expected = scipy.stats.gamma.logpdf(at["T"], 0.8, scale=2.0).sum()
    expected += scipy.stats.gamma.logpdf(at["V"], 1.5).sum()
    expected += scipy.stats.poisson.logpmf(X, at["T"] @ at["V"]).sum()
    np.testing.assert_allclose(joint, expected, rtol=1e-12)


@pytest.mark.parametrize("augmented", [False, True])
def test_prior_predictive_has_the_priors_means(augmented):
    priors = Priors(Gamma(2.0, 1.5), GroupSparse(Gamma(20.0, 0.05)))
    model = handlers.uncondition(group_sparse_nmf)
    draws = Predictive(model, num_samples=4000)(jax.random.key(0), DATA, priors, rank=K, augmented=augmented)
    assert draws["X"].shape == (4000, F, N)
    assert draws["lam"].shape == (4000, K, C)
    # E t = 3, E λ = 1, E v = E 1/λ = 20/19, E x = K E t E v; |z| < 4 on the mean over independent draws.
    for site, mean in {"T": 3.0, "lam": 1.0, "V": 20 / 19, "X": K * 3 * 20 / 19}.items():
        average = np.asarray(draws[site]).reshape(4000, -1).mean(axis=1)
        assert abs(average.mean() - mean) < 4 * average.std() / np.sqrt(4000), site
    if augmented:
        np.testing.assert_array_equal(draws["S"].sum(-1), draws["X"])


def test_condition_and_log_likelihood():
    at = values()
    conditioned = handlers.condition(group_sparse_nmf, {"T": at["T"]})
    draws = Predictive(handlers.uncondition(conditioned), num_samples=3)(jax.random.key(0), DATA, PRIORS)
    np.testing.assert_array_equal(
        handlers.trace(handlers.seed(conditioned, 0)).get_trace(DATA, PRIORS)["T"]["value"], at["T"]
    )
    assert draws["V"].shape == (3, K, N)
    samples = {site: value[None] for site, value in at.items()}
    likelihood = log_likelihood(group_sparse_nmf, samples, DATA, PRIORS)["X"]
    np.testing.assert_allclose(likelihood[0], scipy.stats.poisson.logpmf(X, at["T"] @ at["V"]), rtol=1e-10)


def test_render_model_draws_sites_and_plates():
    source = numpyro.render_model(group_sparse_nmf, (DATA, PRIORS)).source
    for edge in ("lam -> V", "T -> X", "V -> X", "cluster_feature", "cluster_group", "X [label=X fillcolor=grey"):
        assert edge in source
    assert "S -> X" in numpyro.render_model(group_sparse_nmf, (DATA, PRIORS, None, True)).source


def test_fractions_are_fine_unless_augmented():
    data = as_data(X + 0.5, Z)
    joint, _ = log_density(group_sparse_nmf, (data, PRIORS), {}, values())
    assert np.isfinite(joint)
    with pytest.raises(ValueError, match="whole numbers for the augmented model; got fractions"):
        log_density(group_sparse_nmf, (data, PRIORS), {"augmented": True}, values())


def test_nuts_runs_on_it():
    mcmc = MCMC(NUTS(group_sparse_nmf), num_warmup=20, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), DATA, PRIORS)
    assert mcmc.get_samples()["V"].shape == (10, K, N)


def test_the_model_checks_its_input():
    with pytest.raises(ValueError, match="expected rank"):
        handlers.seed(group_sparse_nmf, 0)(DATA, Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)))
