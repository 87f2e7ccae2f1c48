"""Leaving a sample out: the integral over its coefficients, elpd against exact values, refits and refusals."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import FAMILIES, problem
from scipy.special import gammaln, logsumexp, xlogy
from sklearn.exceptions import ConvergenceWarning

from gsnmf.inference import cavi, leave_one_out, mcmc, to_arviz
from gsnmf.inference.arviz_compat import arviz_loo
from gsnmf.inference.draws import source_of
from gsnmf.inference.families import Point
from gsnmf.inference.integrated import Noise, Proposal, Sample, _draw, draw_noise, log_integral
from gsnmf.inference.pointwise import integrated_likelihood
from gsnmf.inference.posterior import Posterior
from gsnmf.inference.refits import refitter, without
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, as_data
from gsnmf.model.conjugacy import rate_shape
from gsnmf.model.problem import Problem

KEY = jax.random.key(3)


def log_poisson(x, m):
    return xlogy(x, m) - m - gammaln(x + 1)


def small(family, hidden=False):
    """A problem of two components, with a draw of T, V and λ: one chain of one draw."""
    rng = np.random.default_rng(1)
    X = np.array([[4.0, 0.0, 1.0], [3.0, 2.0, 0.0], [0.0, 5.0, 1.0]])
    mask = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0]]) if hidden else None
    of = Problem(as_data(X, ["a", "b", "a"], mask=mask), Priors(Gamma(1.0, 1.0), family), 2)
    draws = {"T": rng.gamma(1.0, 1.0, (1, 1, 3, 2)), "V": rng.gamma(1.0, 1.0, (1, 1, 2, 3))}
    size = rate_shape(of.priors.coefficients, of.data, 2)
    return of, draws | ({} if size is None else {"lam": rng.gamma(2.0, 0.5, (1, 1, *size))})


def by_monte_carlo(of, draws, num=100_000):
    """log p(x_τ | T, λ) from v drawn from its prior, rates of samples' own included."""
    rng, family = np.random.default_rng(2), of.priors.coefficients
    lam = draws["lam"][0, 0] if "lam" in draws else None
    if family.hyperprior is not None and "sample" in family.axes:
        lam = rng.gamma(*map(np.asarray, family.hyperprior), size=(num, *lam.shape))
    rates = np.broadcast_to(1.0 / np.asarray(family.b), (2, 3)) if lam is None else None
    if rates is None:
        rates = lam if lam.ndim == 3 else np.asarray(family.rates(lam, of.data))
    V = rng.gamma(np.broadcast_to(family.shape, (2, 3)), 1 / rates, size=(num, 2, 3))
    seen = np.ones((3, 3)) if of.data.mask is None else np.asarray(of.data.mask)
    log_p = (seen * log_poisson(np.asarray(of.data.X), draws["T"][0, 0] @ V)).sum(axis=1)
    return logsumexp(log_p, axis=0) - np.log(num)


def test_weighted_draws_are_gamma():
    """Σ w / n = 1 and E[g²] = D(D+1), of 400,000 draws to 1 %; without weights the second is 5 % off for D = 0.2."""
    D = jnp.asarray([0.2, 1.0, 30.0])
    noise = draw_noise(KEY, 400_000, 3, D.dtype)
    for n in range(3):
        one, row = jnp.eye(1), slice(n, n + 1)
        e, log_weights = _draw(Proposal(D[row], one, one), Noise(*(x[:, row] for x in noise)))
        weights, g = np.exp(log_weights), np.asarray(D[n] * np.exp(e[:, 0]))
        np.testing.assert_allclose(weights.mean(), 1, rtol=0.002)
        np.testing.assert_allclose((weights * g**2).mean(), D[n] * (D[n] + 1), rtol=0.015)


SLOW = [pytest.param(name, False, marks=pytest.mark.slow) for name in FAMILIES]


@pytest.mark.parametrize(("name", "hidden"), [("group sparse", True), ("gamma", False), ("from outside", True), *SLOW])
def test_the_integral_is_that_of_draws_from_the_prior(name, hidden):
    """100,000 draws from the prior are good to 0.02 here, and 4000 from the proposal to 0.015."""
    of, draws = small(FAMILIES[name], hidden)
    found = integrated_likelihood(draws, of, key=KEY, num_integration=4000)
    np.testing.assert_allclose(found.log_p[0, 0], by_monte_carlo(of, draws), atol=0.06)
    assert (found.integration > 0.3).all()


def test_draws_are_efficient_where_components_share_no_feature():
    """Three quarters of the draws are then from the posterior of v itself, and the integral has a closed form."""
    rng, own = np.random.default_rng(0), np.repeat(np.eye(2), 3, axis=0)
    a, rate, T = np.ones(2), np.array([0.5, 2.0]), 20 * rng.gamma(2.0, size=6)
    x = rng.poisson(T)
    sample = Sample(jnp.asarray(x), None, jnp.asarray(a), jnp.asarray(rate), None, jnp.ones(2))
    noise = draw_noise(KEY, 400, 2, jnp.float64)
    found, efficiency = jax.jit(log_integral)(sample, jnp.asarray(T[:, None] * own), noise)
    n, total = x @ own, T @ own
    expected = gammaln(a + n) - gammaln(a) + a * np.log(rate) - (a + n) * np.log(total + rate)
    expected = expected.sum() + (xlogy(x, T) - xlogy(x, x) + x).sum()
    assert efficiency > 0.7  # 0.75 at least, up to noise; 0.03 with the prior's precision in place of the posterior's
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt((1 / 0.7 - 1) / 400))  # five standard errors


@pytest.mark.parametrize("learned", [False, True])
def test_labels_are_summed_out(learned):
    """log Σ_c π_c p(x | c), with π known or drawn."""
    X, family = [[4.0, 0.0, 1.0], [3.0, 2.0, 0.0]], GroupSparse(Gamma(2.0, 0.5))
    rng, priors = np.random.default_rng(1), Priors(Gamma(1.0, 1.0), family)
    draws = {
        "T": rng.gamma(1.0, 1.0, (1, 1, 2, 2)),
        "V": np.ones((1, 1, 2, 3)),
        "lam": rng.gamma(2.0, 1.0, (1, 1, 2, 2)),
    }
    pi = np.array([0.3, 0.7])
    prior, more = (Dirichlet(np.ones(2)), {"pi": pi[None, None]}) if learned else (pi, {})
    options = {"key": KEY, "num_integration": 64}
    of = Problem(as_data(X, ["a", "b", None], label_prior=prior), priors, 2)
    found = integrated_likelihood(draws | more, of, **options)
    each = [integrated_likelihood(draws, Problem(as_data(X, ["a", "b", c]), priors, 2), **options) for c in "ab"]
    labelled = np.array([one.log_p[0, 0] for one in each])  # samples share random numbers: equal to rounding
    np.testing.assert_allclose(found.log_p[0, 0, :2], labelled[0, :2], rtol=1e-10)
    np.testing.assert_allclose(found.log_p[0, 0, 2], logsumexp(labelled[:, 2] + np.log(pi)), rtol=1e-10)


# One feature and one component: everything is an integral over one t.
COUNTS = np.array([3.0, 5.0, 0.0, 8.0, 4.0, 2.0, 24.0])
SCALAR = Priors(Gamma(2.0, 3.0), Gamma(3.0, 0.5))
GRID = np.linspace(1e-4, 60.0, 60_000)


def log_given(x):
    """log ∫ Poisson(x; tv) Gamma(v; 3, rate 2) dv on the grid of t: negative binomial."""
    t, a, r = GRID, 3.0, 2.0
    return xlogy(x, t) + a * np.log(r) + gammaln(a + x) - gammaln(a) - gammaln(x + 1) - (a + x) * np.log(r + t)


def log_posterior(left=None):
    terms = [log_given(x) for n, x in enumerate(COUNTS) if n != left]
    return np.log(GRID) - GRID / 3 + sum(terms)


EXACT = np.array([logsumexp(log_posterior()) - logsumexp(log_posterior(n)) for n in range(len(COUNTS))])


def exact_draws(left=None, num=4000):
    """Draws of t from the posterior on the grid, as two chains; V is only a start."""
    p = np.exp(log_posterior(left) - logsumexp(log_posterior(left)))
    T = np.random.default_rng(5).choice(GRID, size=(2, num // 2, 1, 1), p=p)
    return {"T": T, "V": np.ones((2, num // 2, 1, len(COUNTS)))}


@functools.cache
def scalar():
    data = as_data(COUNTS[None], sample_names=list("abcdefg"))
    return data, cavi.run(data, SCALAR, key=jax.random.key(0), rank=1)


def test_elpd_of_exact_draws_is_the_exact_one():
    """With 4000 draws; what is left is the error of weights, larger for the outlier, whose k̂ shows it."""
    data, _ = scalar()
    loo = leave_one_out(exact_draws(), data, SCALAR, num_samples=4000)
    np.testing.assert_allclose(loo.elpd[:-1], EXACT[:-1], atol=0.02)
    assert loo.pareto_k[-1] == loo.pareto_k.max()
    assert loo.ess[-1] == loo.ess.min()
    assert not loo.refitted.any()
    assert loo.names.tolist() == list("abcdefg")
    np.testing.assert_allclose([loo.total, loo.se], [loo.elpd.sum(), loo.elpd.std(ddof=1) * np.sqrt(7)])


def test_arviz_gets_the_same():
    data, _ = scalar()
    tree = to_arviz(exact_draws(), data, SCALAR, log_likelihood="integrated", posterior_predictive=False)
    X = tree["log_likelihood"]["X"]
    assert X.dims == ("chain", "draw", "sample")
    assert X.coords["sample"].values.tolist() == list("abcdefg")
    np.testing.assert_allclose(arviz_loo(tree).elpd[:-1], EXACT[:-1], atol=0.02)


def test_samples_of_high_k_are_fitted_again():
    data, _ = scalar()
    asked = []

    def refit(part):
        left = int(np.nonzero(~np.asarray(part.mask, bool)[0])[0][0])
        asked.append(left)
        assert part.X[0, left] == 0
        return Chain(exact_draws(left))

    class Chain(dict):
        priors = SCALAR

    few = {site: x[:, ::40] for site, x in exact_draws().items()}
    few["T"][0, 0] = 1.0  # far below the others: where counts are high, this draw outweighs them all
    with pytest.warns(ConvergenceWarning, match=r"k̂ is above 0.7 for \d of 7 samples, .* refit=True"):
        before = leave_one_out(few, data, SCALAR)
    bad = before.pareto_k > 0.7
    assert 0 < bad.sum() < 7
    with warnings.catch_warnings(action="error"):
        loo = leave_one_out(few, data, SCALAR, refit=refit)
    assert asked == np.nonzero(bad)[0].tolist() == np.nonzero(loo.refitted)[0].tolist()
    np.testing.assert_allclose(loo.elpd[bad], EXACT[bad], atol=0.1)
    np.testing.assert_array_equal(loo.elpd[~bad], before.elpd[~bad])


def test_a_fit_is_fitted_again_without_each_sample():
    """A fit of one number is nearly exact: each sample to 0.15, the outlier to 1, as its tail is too thin."""
    data, fit = scalar()
    loo = leave_one_out(fit, data)
    assert loo.refitted.all()
    np.testing.assert_allclose(loo.elpd[:-1], EXACT[:-1], atol=0.15)
    np.testing.assert_allclose(loo.elpd[-1], EXACT[-1], atol=1.0)
    weighted = leave_one_out(fit, data, refit=False)
    assert not weighted.refitted.any()
    assert weighted.elpd[-1] > loo.elpd[-1] + 0.2  # it has seen the outlier, and is too sure of it
    same = leave_one_out(fit.posterior, data, SCALAR, refit=lambda part: cavi.run(part, SCALAR, start=fit))
    np.testing.assert_allclose(same.elpd, loo.elpd, rtol=1e-10)


def test_hidden_samples_have_nothing_to_predict():
    data, priors = problem(0, F=5, N=6, K=2, hidden=True)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=3, tol=None)
    loo = leave_one_out(fit, data, num_samples=50, num_integration=64)
    hidden = ~np.asarray(data.mask).any(axis=0)
    assert hidden.any()
    assert (loo.elpd[hidden] == 0).all()
    assert (loo.pareto_k[hidden] == 0).all()
    assert not loo.refitted[hidden].any()
    assert (loo.elpd[~hidden] < 0).all()
    assert np.asarray(without(data, 1).mask)[:, [0, 1]].sum(axis=0).tolist() == [data.mask[:, 0].sum(), 0]


@pytest.mark.parametrize("options", [{"scale_move": False}, {"dense_mass": True, "target_accept_prob": 0.9}])
def test_chains_are_run_again_with_their_settings(monkeypatch, options):
    data, _ = scalar()
    name = "run_gibbs" if "scale_move" in options else "run_nuts"
    few = {"num_warmup": 1, "num_samples": 2, "num_chains": 1, "progress_bar": False}
    chains = getattr(mcmc, name)(data, SCALAR, key=jax.random.key(0), rank=1, **few, **options)
    asked = {}
    monkeypatch.setattr(mcmc, name, lambda *_, **given: asked.update(given))
    refitter(chains, source_of(chains, data, None, 2), jax.random.key(1))(data)
    assert asked.items() >= (few | options).items()


def other():
    return as_data(COUNTS[None] + 1)


def point(fit):
    return fit._replace(posterior=Posterior(*(f and Point(f.mean) for f in fit.posterior[:3])), bound="log_joint")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"result": point}, r"got a point \(a MAP estimate\)"),
        (
            {"result": lambda _: {s: x[:, :20] for s, x in exact_draws().items()}},
            "expected at least 50 draws .* got 40",
        ),
        ({"result": lambda _: exact_draws(), "refit": True}, "expected a fit, or chains of mcmc, to fit again"),
        ({"num_samples": 20}, "expected num_samples to be a whole number ≥ 50; got 20"),
        ({"num_integration": 3}, "expected num_integration to be a whole number ≥ 16; got 3"),
        ({"refit": "some"}, "expected refit to be \"all\", True, False or a function of Data; got 'some'"),
        ({"refit": np.array([True, False])}, "expected refit to be .*; got array"),
        ({"key": 1}, "expected key to be a JAX key"),
        ({"data": other}, "expected the data of the fit; got other data"),
        ({"data": lambda: as_data(np.ones((2, 7)))}, "expected the data of the fit"),
    ],
)
def test_bad_input_is_refused(change, message):
    data, fit = scalar()
    given = {"result": lambda fit: fit, "data": lambda: data} | change
    result, data = given.pop("result")(fit), given.pop("data")()
    with pytest.raises(ValueError, match=message):
        leave_one_out(result, data, SCALAR, **given)


def test_priors_without_closed_forms_are_refused():
    import numpyro.distributions as dist

    data, fit = scalar()
    priors = Priors(Gamma(2.0, 3.0), dist.HalfNormal(1.0))
    for call in (leave_one_out, functools.partial(to_arviz, log_likelihood="integrated")):
        with pytest.raises(ValueError, match=r"expected a prior of V with closed forms .* got HalfNormal on V"):
            call(fit.posterior, data, priors)
