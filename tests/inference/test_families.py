"""Swapping priors: every algorithm takes what it can, and says what would work where it cannot."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import reference
from conftest import FAMILIES, Volume
from estimators import nearest_neighbour
from numpyro import handlers
from numpyro.infer.util import log_density
from test_cavi import PLAIN

from gsnmf.crosscheck.invariants import choose, evaluate
from gsnmf.drawing import plots
from gsnmf.inference import Posterior, align, cavi, collapsed_bound, fold_in, guide, invariants, mcmc, svi, to_arviz
from gsnmf.inference.alignment import blocks
from gsnmf.inference.arviz_compat import dataset
from gsnmf.inference.starts import fill
from gsnmf.model import Exponential, Gamma, GroupSparse, Priors, Relevance, as_data, by_scale, group_sparse_nmf
from gsnmf.model.problem import Problem

F, N, K = 5, 6, 2
DATA = as_data(np.random.default_rng(0).poisson(4.0, size=(F, N)), list("aabbcc"))
KEY = jax.random.key(0)
SHORT = {"num_warmup": 5, "num_samples": 5, "num_chains": 2, "progress_bar": False}
STEPS = {"num_steps": 60, "num_samples": 20, "progress_bar": False}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


class HalfNormals(NamedTuple):
    """A family from outside that has no closed forms: v_iτ ~ HalfNormal(scale 1/λ_ic), λ_ic ~ `rate`."""

    rate: Any

    @property
    def hyperprior(self):
        return self.rate

    @property
    def axes(self):
        return "component", "group"

    def conditional(self, lam, data):
        return dist.HalfNormal(1 / (lam @ data.membership.T))


# What has no closed forms, and what the refusal calls it.
OTHERS = {
    "log-normal T": (Priors(dist.LogNormal(0.0, 1.0), Gamma(1.0, 1.0)), "LogNormal on T"),
    "half-Cauchy rates": (Priors(Gamma(1.0, 1.0), GroupSparse(dist.HalfCauchy(1.0))), "HalfCauchy on λ"),
    "log-normal rates": (Priors(Gamma(1.0, 1.0), GroupSparse(dist.LogNormal(0.0, 1.0))), "LogNormal on λ"),
    "half-Cauchy scales": (
        Priors(Gamma(1.0, 1.0), GroupSparse(by_scale(dist.HalfCauchy(1.0)))), "TransformedDistribution on λ",
    ),
    "log-normal relevance": (Priors(Gamma(1.0, 1.0), Relevance(dist.LogNormal(0.0, 1.0))), "LogNormal on λ"),
    "Weibull V": (Priors(Gamma(1.0, 1.0), dist.Weibull(1.0, 2.0)), "Weibull on V"),
    "from outside": (Priors(Gamma(1.0, 1.0), HalfNormals(Gamma(2.0, 1.0))), "HalfNormals on V"),
}  # fmt: skip


def lam_shape(family):
    lengths = {"component": K, "group": 3, "sample": N}
    return None if isinstance(family, Gamma) else tuple(lengths.get(axis, 1) for axis in family.axes)


@functools.cache
def fitted(name):
    priors = Priors(Gamma(0.8, 2.0), FAMILIES[name])
    return cavi.run(DATA, priors, key=KEY, rank=K, max_steps=20, tol=None)


@functools.cache
def drawn(name):
    fit, nothing = fitted(name), {"log_likelihood": None, "posterior_predictive": False}
    return to_arviz(fit, DATA, fit.priors, num_samples=5, **nothing)


@pytest.mark.parametrize("name", FAMILIES)
def test_results_of_every_conjugate_family_are_read_alike(name):
    """CAVI, its guide, the collapsed bound and ArviZ; Gibbs has Geweke's test of each, NUTS the model of each."""
    priors = Priors(Gamma(0.8, 2.0), FAMILIES[name])
    fit = fitted(name)
    size = None if fit.posterior.lam is None else lam_shape(FAMILIES[name])
    assert size is None or fit.posterior.lam.a.shape == size
    bound = collapsed_bound(fit, DATA, priors, key=KEY, num_samples=200)
    assert bound.value > fit.elbo[-1] - 4 * bound.error  # the augmented bound is the lower one
    draws = drawn(name)
    assert ("lam" in draws["posterior"]) == (size is not None)
    if size is not None:
        assert draws["posterior"]["lam"].dims == ("chain", "draw", *FAMILIES[name].axes)
        assert draws["posterior"]["lam"].shape == (1, 5, *size)
        assert ("rate" in invariants(draws)) == (size[0] == K)
    aligned = align(draws, fit, DATA, priors)
    np.testing.assert_array_equal(aligned["V"], draws["posterior"]["V"])


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_made_of_a_fit_asks_for_the_axes_that_lam_has(name, tmp_path, monkeypatch):
    """Numbers to agree on, pictures, the paper's bound: with groups and without, and with as many as λ has columns."""
    monkeypatch.setattr(plots, "save", lambda *_: None)
    priors, fit, grouped = Priors(Gamma(0.8, 2.0), FAMILIES[name]), fitted(name), name == "group sparse"
    draws = dataset(drawn(name), "posterior")
    for labels in [list("aabbcc")] if grouped else [list("aabbcc"), None, ["a"] * N, list("abcdef")]:
        data = as_data(DATA.X, labels)
        numbers = evaluate(draws, choose(data, priors, fit.posterior))
        assert {x.shape for x in numbers.values()} == {(1, 5)}
        assert ("log_rate" in numbers) == (name in ("group sparse", "relevance"))
        pictures = {path.stem for path in plots.save_figures(tmp_path, fit, data)}
        assert ("hinton_lambda" in pictures) == grouped
        if fit.posterior.lam is None or fit.posterior.lam.a.shape == (K, data.num_groups):
            assert cavi.paper_bound_gap(fit.posterior, data) >= 0
        else:
            with pytest.raises(ValueError, match="expected a λ for each of 2 components in each of the"):
                cavi.paper_bound_gap(fit.posterior, data)


def test_gibbs_draws_of_a_rate_that_all_components_share_are_aligned():
    priors = Priors(Gamma(0.8, 2.0), Exponential(Gamma(2.0, 0.5)))
    chain = mcmc.run_gibbs(DATA, priors, key=KEY, rank=K, **SHORT)
    draws = to_arviz(chain, DATA, priors, log_likelihood=None, posterior_predictive=False)["posterior"]
    assert draws["lam"].shape == (2, 5, 1, 1)


@pytest.mark.parametrize("name", OTHERS)
def test_closed_forms_are_refused_where_there_are_none(name):
    priors, said = OTHERS[name]
    means = {"T": np.ones((F, K)), "V": np.ones((K, N))}
    ones = Posterior(*(Gamma(np.ones(np.shape(x)), 1.0) for x in (*means.values(), np.ones((K, 3)))))
    for refused in (
        lambda: cavi.run(DATA, priors, key=KEY, rank=K),
        lambda: mcmc.run_gibbs(DATA, priors, key=KEY, rank=K, **SHORT),
        lambda: cavi.bound(ones, DATA, priors),
        lambda: fold_in(ones, DATA, priors),
        lambda: nearest_neighbour(2, priors=priors).fit(DATA.X.T, list("aabbcc")),
    ):
        with pytest.raises(ValueError, match=f"closed forms for .*got {said}: svi.run and mcmc.run_nuts take these"):
            refused()


GRADIENTS = {name: OTHERS[name][0] for name in ("log-normal T", "half-Cauchy rates", "from outside")}
GRADIENTS["conjugate, from outside"] = Priors(Gamma(1.0, 1.0), Volume(Gamma(2.0, 0.5)))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("from outside", "log-normal T", "half-Cauchy rates")]


@pytest.mark.parametrize("name", ["conjugate, from outside", *SLOW])
def test_gradients_and_nuts_take_priors_with_and_without_closed_forms(name):
    priors = GRADIENTS[name]
    with pytest.warns(UserWarning, match="steps are too few"):
        fit = svi.run(DATA, priors, key=KEY, rank=K, **STEPS)
    assert np.isfinite(fit.elbo).all()
    chain = mcmc.run_nuts(DATA, priors, key=KEY, rank=K, start=fit, **SHORT)
    draws = to_arviz(chain, DATA, priors, posterior_predictive=False)
    assert draws["posterior"]["T"].shape == (2, 5, F, K)
    assert np.isfinite(draws["log_likelihood"]["X"]).all()


@pytest.mark.parametrize("name", OTHERS)
def test_the_model_states_the_prior(name):
    """log p of a prior draw, factor by factor: what the statement says of T, λ and V."""
    priors, _ = OTHERS[name]
    model = handlers.seed(group_sparse_nmf, KEY)
    trace = handlers.trace(model).get_trace(DATA, priors, rank=K)
    T, V, lam = (trace[site]["value"] if site in trace else None for site in ("T", "V", "lam"))
    t = priors.dictionary if isinstance(priors.dictionary, dist.Distribution) else priors.dictionary.distribution()
    expected = t.log_prob(T).sum()
    if lam is None:
        v = priors.coefficients
        expected += (v if isinstance(v, dist.Distribution) else v.distribution()).log_prob(V).sum()
    else:
        rate = priors.coefficients.rate
        expected += (rate if isinstance(rate, dist.Distribution) else rate.distribution()).log_prob(lam).sum()
        r = lam @ DATA.membership.T if lam.shape[1] == 3 else lam
        v = dist.HalfNormal(1 / r) if isinstance(priors.coefficients, HalfNormals) else dist.Exponential(r)
        expected += v.log_prob(V).sum()
    expected += dist.Poisson(T @ V).log_prob(DATA.X).sum()
    values = {site: x for site, x in (("T", T), ("V", V), ("lam", lam)) if x is not None}
    np.testing.assert_allclose(log_density(group_sparse_nmf, (DATA, priors), {"rank": K}, values)[0], expected)


@pytest.mark.slow
def test_other_guides_take_priors_without_closed_forms():
    priors, _ = OTHERS["half-Cauchy rates"]
    with pytest.warns(UserWarning, match="steps are too few"):
        fit = svi.run(DATA, priors, "normal", key=KEY, rank=K, **STEPS)
    assert np.isfinite(fit.elbo).all()
    assert np.isfinite(fit.posterior.lam.mean).all()


@pytest.mark.slow
def test_gradients_climb_a_bound_without_closed_forms():
    """From a start at random, the collapsed bound of log-normal T and half-Cauchy rates rises far beyond its error."""
    priors = Priors(dist.LogNormal(0.0, 1.0), GroupSparse(dist.HalfCauchy(1.0)))
    ends = []
    for num_steps in (1, 600):
        with pytest.warns(UserWarning, match="steps"):
            ends.append(svi.run(DATA, priors, key=KEY, rank=K, **STEPS | {"num_steps": num_steps}))
    low, high = (collapsed_bound(fit, DATA, priors, key=KEY, num_samples=500) for fit in ends)
    assert high.value > low.value + 10 * (high.error + low.error)


def same(one, other, rtol=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), one, other)


def test_one_group_is_relevance():
    """GroupSparse with a single group for every component and ARD are one model: the same run, sweep by sweep."""
    rates = Gamma(np.array([[2.0], [5.0]]), 0.5)
    alone = as_data(DATA.X, ["all"] * N)
    for options in (PLAIN, {"tol": None}):
        one = cavi.run(alone, Priors(Gamma(0.8, 2.0), GroupSparse(rates)), key=KEY, max_steps=15, **options)
        other = cavi.run(DATA, Priors(Gamma(0.8, 2.0), Relevance(rates)), key=KEY, max_steps=15, **options)
        same(one.posterior, other.posterior)
        np.testing.assert_allclose(one.elbo, other.elbo, rtol=1e-12)


def test_exponential_is_gamma_of_shape_one():
    one = cavi.run(DATA, Priors(Exponential(2.0), Exponential(0.5)), key=KEY, rank=K, max_steps=15, **PLAIN)
    other = cavi.run(DATA, Priors(Gamma(1.0, 0.5), Gamma(1.0, 2.0)), key=KEY, rank=K, max_steps=15, **PLAIN)
    same(one.posterior, other.posterior)
    np.testing.assert_allclose(one.elbo, other.elbo, rtol=1e-12)


def test_gamma_coefficients_are_cemgils_nmf_vb():
    """Against his updates and bound written out in NumPy."""
    rng = np.random.default_rng(3)
    a_T, b_T, a_V, b_V = (rng.uniform(0.3, 3.0, size) for size in ((F, K), (F, K), (K, N), (K, N)))
    T0, V0 = rng.gamma(1.0, size=(F, K)), rng.gamma(1.0, size=(K, N))
    fit = cavi.run(DATA, Priors(Gamma(a_T, b_T), Gamma(a_V, b_V)), start=cavi.start(T=T0, V=V0), max_steps=30, **PLAIN)
    T, V, elbo = reference.nmf_vb(np.asarray(DATA.X, float), (a_T, b_T), (a_V, b_V), T0, V0, sweeps=30)
    np.testing.assert_allclose(fit.posterior.T.mean, T, rtol=1e-10)
    np.testing.assert_allclose(fit.posterior.V.mean, V, rtol=1e-10)
    np.testing.assert_allclose(fit.elbo, elbo, rtol=1e-10)


@pytest.mark.parametrize("name", ["relevance", "exponential, learned", "from outside"])
def test_the_estimator_takes_any_conjugate_family(name):
    model = nearest_neighbour(2, priors=Priors(Gamma(0.8, 2.0), FAMILIES[name]), random_state=0, tol=None, max_iter=20)
    X, y = np.asarray(DATA.X, float).T, list("aabbcc")
    assert set(model.fit(X, y).predict(X)) <= set("abc")
    assert model.transform(X).shape == (N, 2)
    if name != "from outside":  # whose new samples have no λ
        assert model.set_params(transform_by="posterior").fit(X, y).transform(X).shape == (N, 2)
    with pytest.raises(ValueError, match="expected priors with GroupSparse coefficients for predict_by='model'"):
        model.set_params(predict_by="model").fit(X, y)


def test_more_samples_than_were_judged_begin_with_rates_of_their_own():
    """A dictionary chosen by validation goes on with all samples, where λ is one for each."""
    priors = Priors(Gamma(0.8, 2.0), Volume(Gamma(2.0, 0.5)))
    model = nearest_neighbour(
        2, priors=priors, select="validation", n_restarts=2, random_state=0, tol=None, max_iter=20
    )
    assert model.fit(np.asarray(DATA.X, float).T, list("aabbcc")).posterior_.lam.a.shape == (1, N)


def test_new_samples_have_no_rate_of_their_own():
    priors = Priors(Gamma(0.8, 2.0), Volume(Gamma(2.0, 0.5)))
    fit = cavi.run(DATA, priors, key=KEY, rank=K, max_steps=5, **PLAIN)
    with pytest.raises(ValueError, match=r"expected priors whose λ new samples share .* got one λ per sample"):
        fold_in(fit, DATA, priors)


def test_a_guide_of_other_families_has_the_models_plates():
    priors = Priors(Gamma(0.8, 2.0), Relevance(Gamma(2.0, 0.5)))
    fit = cavi.run(DATA, priors, key=KEY, rank=K, max_steps=5, **PLAIN)
    trace = handlers.trace(handlers.seed(guide(fit), 0)).get_trace(DATA, priors, rank=K)
    assert {name for name, site in trace.items() if site["type"] == "plate"} == {"feature", "component", "sample"}
    assert trace["lam"]["value"].shape == (K, 1)


def test_guides_on_logarithms_take_only_priors_that_numpyro_transforms_so():
    """AutoNormal is normal where `biject_to` leads, here by softplus; its factors are read as log-normal."""
    softplus = dist.TransformedDistribution(dist.Normal(1.0, 1.0), dist.transforms.SoftplusTransform())
    priors = Priors(softplus, Gamma(1.0, 1.0))
    with pytest.raises(ValueError, match="transforms by logarithms for 'normal'; got TransformedDistribution"):
        svi.run(DATA, priors, "normal", key=KEY, rank=K, **STEPS)


class Known(NamedTuple):
    """A family without λ, whose shape and rates are its own affair: v ~ Gamma(form, rate 1)."""

    form: Any

    @property
    def hyperprior(self):
        return None

    @property
    def axes(self):
        return "component", "sample"

    @property
    def shape(self):
        return self.form

    def rates(self, lam, data):
        return np.ones((1, 1))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (-1.0, "expected coefficients.shape to be positive and finite"),
        (np.ones((2, 1)), "one number of components; got rank=3"),
        (np.ones((3, 5)), "coefficients.shape to broadcast to components × samples"),
    ],
)
def test_families_from_outside_are_checked_at_the_door(form, message):
    with pytest.raises(ValueError, match=message):
        cavi.run(DATA, Priors(Gamma(1.0, 1.0), Known(form)), key=KEY, rank=3)


def test_components_that_a_family_from_outside_tells_apart_keep_their_places():
    assert blocks(Problem(DATA, Priors(Gamma(1.0, 1.0), Known(np.array([[1.0], [50.0]]))), 2)).tolist() == [0, 1]


def test_groups_take_turns_under_rates_that_are_no_gamma():
    """Medians by Monte Carlo would bind components to groups at random."""
    priors = Priors(Gamma(1.0, 1.0), GroupSparse(dist.InverseGamma(2.0, 1.0)))
    for ready in (priors, Problem(DATA, priors, 3).priors):
        start = fill(None, DATA, ready, 3, KEY, "groups")
        np.testing.assert_array_equal(start.V.reshape(3, 3, 2).mean(axis=2).argmax(axis=1), [0, 1, 2])


def test_a_support_whose_end_is_traced_passes():
    """The prior as an argument of a compiled function: where its support ends is no number there."""
    _, priors, _ = Problem(DATA, Priors(Gamma(1.0, 1.0), dist.TruncatedNormal(0.0, 1.0, low=0.0)), K)
    values = {"T": np.ones((F, K)), "V": np.ones((K, N))}

    def joint(priors):
        return log_density(group_sparse_nmf, (DATA, priors), {"rank": K}, values)[0]

    np.testing.assert_allclose(jax.jit(joint)(priors), joint(priors), rtol=1e-10)
