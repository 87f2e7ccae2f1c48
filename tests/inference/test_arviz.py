"""Every kind of result as ArviZ reads it; run on both of its generations by `make test-matrix`."""

import functools
import warnings

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from results import COUNTS, DATA, PRIORS, K, cavi_fit, gibbs, made, nuts, svi_fit
from scipy import stats
from scipy.special import gammaln

from gsnmf.inference import align, invariants, to_arviz
from gsnmf.inference.alignment import permute
from gsnmf.inference.arviz_compat import diagnose
from gsnmf.model import Gamma, Priors, as_data

DRAWS = 150
SITES = {"T": ("feature", "component"), "V": ("component", "sample"), "lam": ("component", "group")}
RUN = {"cavi": cavi_fit, "svi": svi_fit, "nuts": nuts, "gibbs": gibbs}  # by an algorithm; the others by hand
RESULTS = (*RUN, "normal", "correlated", "point")
CHAINS = ("nuts", "gibbs")


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def result(kind):
    return RUN[kind]() if kind in RUN else made(kind)


def data(kind):
    return COUNTS if kind == "gibbs" else DATA


@functools.cache
def converted(kind, **options):
    return to_arviz(result(kind), data(kind), PRIORS, num_samples=DRAWS, key=jax.random.key(6), **options)


@pytest.mark.parametrize("kind", RESULTS)
def test_groups_dims_and_labels(kind):
    draws = converted(kind)
    chains = 2 if kind in CHAINS else 1
    for site, dims in SITES.items():
        x = draws["posterior"][site]
        assert x.dims == ("chain", "draw", *dims)
        assert (x.sizes["chain"], x.sizes["draw"]) == (chains, DRAWS)
        assert (x.values > 0).all()
    for group in ("posterior_predictive", "log_likelihood"):
        assert draws[group]["X"].dims == ("chain", "draw", "feature", "sample")
    names = {"feature": list("wxyz"), "sample": [f"s{n}" for n in range(6)], "group": ["a", "b"], "component": [0, 1]}
    for site, dims in SITES.items():
        for dim in dims:
            assert draws["posterior"][site].coords[dim].values.tolist() == names[dim]
    np.testing.assert_array_equal(draws["observed_data"]["X"], data(kind).X)


@pytest.mark.parametrize("kind", RESULTS)
def test_draws_are_of_the_posterior(kind):
    draws = converted(kind, log_likelihood=None, posterior_predictive=False)["posterior"]
    if kind in CHAINS:
        wanted = align(result(kind).get_samples(group_by_chain=True), None, data(kind), PRIORS)
        np.testing.assert_array_equal(draws["V"], wanted["V"])
        return
    for site, q in result(kind).posterior.sites.items():
        x = draws[site].values[0]
        # The largest of 14 |z|: 5 leaves less than 1 in 100,000; a point has no spread.
        assert (abs(x.mean(axis=0) - q.mean) <= 5 * x.std(axis=0) / np.sqrt(DRAWS) + 1e-12).all()


@pytest.mark.parametrize("kind", ["cavi", "nuts", "gibbs"])
def test_log_likelihood_is_the_generalised_poissons(kind):
    draws = converted(kind)
    mean = np.asarray(draws["posterior"]["T"]) @ np.asarray(draws["posterior"]["V"])
    X = data(kind).X
    by_hand = X * np.log(mean) - mean - gammaln(X + 1)
    np.testing.assert_allclose(draws["log_likelihood"]["X"], by_hand, rtol=1e-9)
    whole = converted(kind, log_likelihood="sample")["log_likelihood"]["X"]
    assert whole.dims == ("chain", "draw", "sample")
    np.testing.assert_allclose(whole, by_hand.sum(axis=-2), rtol=1e-9)
    # New X about TV: the largest of 24 |z| below 5.
    new = np.asarray(draws["posterior_predictive"]["X"], float)
    z = (new - mean).mean(axis=(0, 1)) / np.sqrt(mean.mean(axis=(0, 1)) / new.shape[0] / DRAWS)
    assert abs(z).max() < 5


def test_traces_keep_the_name_of_their_bound():
    for kind, name in (("cavi", "augmented_bound"), ("normal", "collapsed_bound"), ("point", "log_joint")):
        trace = converted(kind, log_likelihood=None, posterior_predictive=False)["sample_stats"]
        assert list(trace.data_vars) == [name]
        np.testing.assert_array_equal(trace[name], result(kind).elbo)
        assert trace[name].dims == ("step",)
    recorded = converted("nuts")["sample_stats"]
    assert {"diverging", "acceptance_rate", "lp"} <= set(recorded.data_vars)
    assert recorded["diverging"].dims == ("chain", "draw")


def test_the_log_joint_density_stands_in_where_a_sampler_records_nothing():
    draws = converted("gibbs")
    assert list(draws["sample_stats"].data_vars) == ["lp"]
    (a, b), (al, bl) = PRIORS.dictionary, PRIORS.coefficients.rate
    T, V, lam = (draws["posterior"][site].values[1, 7] for site in SITES)
    rates = lam @ COUNTS.membership.T
    by_hand = stats.gamma.logpdf(T, a, scale=b).sum() + stats.gamma.logpdf(lam, al, scale=bl).sum()
    by_hand += stats.expon.logpdf(V, scale=1 / rates).sum() + stats.poisson.logpmf(COUNTS.X, T @ V).sum()
    np.testing.assert_allclose(draws["sample_stats"]["lp"].values[1, 7], by_hand, rtol=1e-9)


def test_results_of_all_kinds_are_references():
    """The components of a fit, turned round, find back to those of chains, however the chains are given."""
    turned = permute(cavi_fit().posterior, np.array([1, 0]))
    wanted = align(turned, nuts().get_samples(group_by_chain=True), DATA, PRIORS)
    for reference in (nuts(), converted("nuts")):
        np.testing.assert_array_equal(align(turned, reference, DATA, PRIORS).T.a, wanted.T.a)
    chains, samples = align(nuts(), cavi_fit(), DATA, PRIORS), nuts().get_samples(group_by_chain=True)
    np.testing.assert_array_equal(chains["T"], align(samples, cavi_fit(), DATA, PRIORS)["T"])


@pytest.mark.parametrize("kind", RESULTS)
def test_arviz_works_on_it(kind, tmp_path):
    draws = converted(kind)
    with warnings.catch_warnings():
        # ArviZ 0.23 with newer matplotlib and NumPy, high Pareto k of so few draws, constant draws of a point.
        warnings.simplefilter("ignore")
        assert len(az.summary(draws)) == 4 * K + K * 6 + K * 2
        if kind != "point":  # a point is one draw over and over: ArviZ 1.x finds no tail in its weights and says so
            elpd = az.loo(draws, pointwise=True)
            assert np.isfinite(getattr(elpd, "elpd_loo", None) or elpd.elpd)
            ranking = az.compare({"one": draws, "two": converted("cavi")})
            assert set(ranking.index) == {"one", "two"}
        az.plot_trace(draws, var_names=["lam"])
        az.plot_forest(draws, var_names=["V"])
        assert len(az.summary(invariants(draws), var_names=["rate"])) == K * 2
        plt.close("all")
        draws.to_netcdf(str(tmp_path / "draws.nc"))
        back = az.from_netcdf(str(tmp_path / "draws.nc"))
    for group in ("posterior", "posterior_predictive", "log_likelihood", "observed_data", "sample_stats"):
        for name, x in draws[group].data_vars.items():
            np.testing.assert_array_equal(back[group][name], x)
            assert back[group][name].dims == x.dims
    assert back["posterior"]["V"].coords["sample"].values.tolist() == [f"s{n}" for n in range(6)]


def test_loo_by_whole_sample():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # high Pareto k: leaving out a whole sample changes V much
        elpd = az.loo(converted("nuts", log_likelihood="sample"), pointwise=True)
    assert elpd.n_data_points == 6


def test_components_follow_the_reference():
    turned = permute(cavi_fit().posterior, np.array([1, 0]))
    options = {"num_samples": 5, "log_likelihood": None, "posterior_predictive": False}
    mean = np.asarray(cavi_fit().posterior.V.mean)
    assert abs(mean[0] - mean[1]).max() > 1  # or nothing would be seen
    plain = to_arviz(turned, DATA, PRIORS, **options)["posterior"]
    moved = to_arviz(turned, DATA, PRIORS, reference=cavi_fit(), **options)["posterior"]
    for site, axis in (("T", -1), ("V", -2), ("lam", -2)):
        np.testing.assert_array_equal(moved[site], np.flip(plain[site].values, axis))
    left = to_arviz(turned, DATA, PRIORS, reference=cavi_fit(), align=None, **options)["posterior"]
    np.testing.assert_array_equal(left["T"], plain["T"])


def test_names_of_any_kind_and_no_groups(tmp_path):
    names = np.array(["x", 2, None, 3.5], dtype=object)
    data = as_data(DATA.X, feature_names=names, sample_names=range(6))
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    draws = to_arviz(cavi_fit().posterior._replace(lam=None), data, priors, num_samples=5, log_likelihood=None)
    assert "lam" not in draws["posterior"]
    assert draws["posterior"]["T"].coords["feature"].values.tolist() == ["x", "2", "None", "3.5"]
    draws.to_netcdf(str(tmp_path / "draws.nc"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"result": "fit"}, "expected a Fit, a Posterior or a NumPyro MCMC that has run; got str"),
        ({"log_likelihood": "column"}, "expected log_likelihood among"),
        ({"align": "sweep"}, "align among"),
        ({"num_samples": 0}, "expected num_samples to be a whole number ≥ 1; got 0"),
        ({"num_samples": 2**30}, "expected at most 5.4e.08 numbers of log_likelihood and posterior_predictive; got"),
        ({"key": 1}, "expected key to be a JAX key"),
        ({"data": as_data(np.ones((3, 6)), list("abbaab"))}, "expected a posterior of shapes"),
    ],
)
def test_bad_input_is_refused(options, message):
    given = {"result": cavi_fit(), "data": DATA, "priors": PRIORS} | options
    with pytest.raises(ValueError, match=message):
        to_arviz(given.pop("result"), given.pop("data"), given.pop("priors"), **given)


def test_an_mcmc_that_has_not_run_is_refused():
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(NUTS(lambda: None), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match="expected an MCMC that has run"):
        to_arviz(mcmc, DATA, PRIORS)


def test_diagnosis_of_chains():
    """Of 4000 independent draws all are effective, to the 10 % that ESS is good to; the mean's error is 1/√4000."""
    draws = np.random.default_rng(0).normal(size=(4, 1000))
    good = diagnose(draws)
    assert good.r_hat < 1.005
    np.testing.assert_allclose([good.ess_bulk, good.ess_tail], 4000, rtol=0.15)
    np.testing.assert_allclose(good.mcse, 1 / np.sqrt(4000), rtol=0.1)
    draws[0] += 2.0
    assert diagnose(draws).r_hat > 1.2
