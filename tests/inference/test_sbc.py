"""Simulation-based calibration of Gibbs and NUTS (Talts et al., 2018).

T, V, λ are drawn from the prior and X given them; then the truth is one more draw of the posterior, so that its rank
among draws of a right sampler is uniform, for every statistic. All simulations are one batch. Chains start at other
draws from the prior. A statistic does not depend on the order of components.
"""

import functools

import jax
import numpy as np
import pytest
import scipy.stats
from numpyro.infer import MCMC, NUTS

from gsnmf.inference import gibbs
from gsnmf.inference.sweep import update_lam
from gsnmf.inference.thinning import Group
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, group_sparse_nmf
from gsnmf.model.problem import Problem

F, N, K, GROUPS = 2, 3, 2, np.array([0, 0, 1])
PRIORS = Priors(Gamma(2.0, 2.0), GroupSparse(Gamma(4.0, 0.25)))
SIMULATIONS, DRAWS, BINS = 480, 31, 8  # 60 simulations are expected in each bin of 4 ranks
FAILURE_RATE = 1e-3  # of a right sampler, over all statistics; the seeds are fixed, so it fails always or never
# Warm-up and thinning, so that draws are nearly independent: `test_kept_draws_are_nearly_independent`.
GIBBS, NUTS_ = {"warmup": 400, "thinning": 40}, {"warmup": 300, "thinning": 8}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def prior_draws(rng):
    """The sites and X of every simulation, in NumPy."""
    lam = rng.gamma(PRIORS.coefficients.rate.a, PRIORS.coefficients.rate.b, (SIMULATIONS, K, 2))
    T = rng.gamma(PRIORS.dictionary.a, PRIORS.dictionary.b, (SIMULATIONS, F, K))
    V = rng.exponential(1 / lam[..., GROUPS])
    return {"T": T, "V": V, "lam": lam}, rng.poisson(T @ V).astype(float)


def problem(X, priors=PRIORS):
    whole = Problem(as_data(np.zeros((F, N)), GROUPS), priors, K)
    return Problem.tree_unflatten(K, (whole.data._replace(X=X), whole.priors))


def gibbs_draws(keys, z, X):
    """Simulations × draws of each site, by `gibbs.sweep`."""
    entries = (Group(*np.indices((F, N)).reshape(2, -1), None),)

    def one(key, z, X):
        def kept(z, key):
            z = jax.lax.scan(
                lambda z, k: (gibbs.sweep(k, problem(X), z, entries=entries), None),
                z,
                jax.random.split(key, GIBBS["thinning"]),
            )[0]
            return z, z

        number = GIBBS["warmup"] // GIBBS["thinning"] + DRAWS
        return jax.tree.map(lambda x: x[-DRAWS:], jax.lax.scan(kept, z, jax.random.split(key, number))[1])

    return jax.jit(jax.vmap(one))(keys, z, X)


def nuts_draws(keys, z, X, priors=PRIORS):
    """Simulations × draws of each site, by NumPyro's NUTS on the model, as `mcmc.run_nuts` runs it."""

    def one(key, X):
        options = {"num_warmup": NUTS_["warmup"], "num_samples": DRAWS * NUTS_["thinning"], "progress_bar": False}
        run = MCMC(NUTS(group_sparse_nmf, max_tree_depth=6), thinning=NUTS_["thinning"], **options)
        run.run(key, problem(X, priors))
        return run.get_samples()

    return jax.jit(jax.vmap(one))(keys, X)


def statistics(z, X):
    T, V, lam = z["T"], z["V"], z["lam"]
    M = T @ V
    return {
        "log of an entry of TV": np.log(M[..., 0, 0]),
        "log likelihood": (X * np.log(M) - M).sum((-1, -2)),
        "log ΣT": np.log(T.sum((-1, -2))),
        "log ΣV": np.log(V.sum((-1, -2))),
        "log Σλ": np.log(lam.sum((-1, -2))),
        "Σλv": (lam[..., GROUPS] * V).sum((-1, -2)),
    }


@functools.cache
def simulate(variant):
    """The truth of every statistic, and its draws, simulations × DRAWS."""
    rng = np.random.default_rng(11)
    truth, X = prior_draws(rng)
    begin, _ = prior_draws(rng)
    keys = jax.random.split(jax.random.key(12), SIMULATIONS)
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as bends:
        if variant == "Gibbs, λ counts half a sample more":
            bends.setattr(gibbs, "update_lam", lambda *given: (q := update_lam(*given)) and Gamma(q.a + 0.5, q.b))
        if variant.startswith("Gibbs"):
            drawn = gibbs_draws(keys, begin, X)
        else:
            wrong = PRIORS._replace(dictionary=Gamma(2.5, 2.0))
            drawn = nuts_draws(keys, begin, X, wrong if variant == "NUTS, another prior" else PRIORS)
    return statistics(truth, X), statistics(jax.device_get(drawn), X[:, None])


def p_values(truth, drawn):
    """Of the χ² test that ranks are uniform, for each statistic."""
    ranks = {name: (drawn[name] < truth[name][:, None]).sum(axis=1) for name in truth}
    counts = {name: np.bincount(r * BINS // (DRAWS + 1), minlength=BINS) for name, r in ranks.items()}
    return {name: float(scipy.stats.chisquare(number).pvalue) for name, number in counts.items()}


@pytest.mark.parametrize("sampler", ["Gibbs", "NUTS"])
def test_kept_draws_are_nearly_independent(sampler):
    """Dependent draws would make right ranks too extreme.

    At least nine tenths of them are effective, (1 − ρ)/(1 + ρ) by the autocorrelation ρ of successive draws over all
    simulations, whose error is 0.01.
    """
    for name, draws in simulate(sampler)[1].items():
        centred = draws - draws.mean(axis=1, keepdims=True)
        rho = (centred[:, 1:] * centred[:, :-1]).mean() / (centred**2).mean()
        assert (1 - rho) / (1 + rho) > 0.9, (name, rho)


@pytest.mark.parametrize("sampler", ["Gibbs", "NUTS"])
def test_ranks_of_the_truth_are_uniform(sampler):
    found = p_values(*simulate(sampler))
    assert min(found.values()) > FAILURE_RATE / len(found), found


@pytest.mark.parametrize("biased", ["Gibbs, λ counts half a sample more", "NUTS, another prior"])
def test_ranks_of_a_biased_sampler_are_not(biased):
    found = p_values(*simulate(biased))
    assert min(found.values()) < FAILURE_RATE / len(found) / 100, found


@pytest.mark.parametrize("sampler", ["Gibbs", "NUTS"])
def test_ranks_of_a_sampler_that_is_too_narrow_are_not(sampler):
    """Its draws are moved towards their mean by a third, as a mean field does; `calibration` would let it pass."""
    truth, drawn = simulate(sampler)
    narrow = {name: x + (x.mean(axis=1, keepdims=True) - x) / 3 for name, x in drawn.items()}
    found = p_values(truth, narrow)
    assert max(found.values()) < FAILURE_RATE / len(found), found
