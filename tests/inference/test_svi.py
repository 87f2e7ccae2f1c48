import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from results import DATA, KINDS, PRIORS, K, cavi_fit, made, posterior, svi_fit

from gsnmf.inference import Fit, Posterior, cavi, guide, svi
from gsnmf.inference.diagnostics import estimate, log_weights
from gsnmf.inference.families import Correlated, LogNormal, Point, near_gamma, near_log_normal, spread
from gsnmf.inference.guide_families import FAMILIES, NAMES
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, group_sparse_nmf, label_driven
from gsnmf.saving import load_fit, save_fit

KEY = jax.random.key(5)
FAMILY = {"gamma": "gamma", "normal": "normal", "correlated": "lowrank", "point": "map"}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def gain(new, old, num_samples=4096):
    """The collapsed bound of one less that of another, with common random numbers."""
    of = [np.asarray(log_weights(q, DATA, PRIORS, key=KEY, num_samples=num_samples)) for q in (new, old)]
    return estimate(of[0] - of[1])


def test_from_the_cavi_optimum_it_climbs_the_collapsed_bound():
    """The augmented optimum is not the collapsed one: there is something to gain, and nothing is lost."""
    fit = svi_fit("gamma")
    rise = gain(fit, cavi_fit())
    assert rise.value > 4 * rise.error  # by chance in 3 of 100,000 runs, were nothing gained
    assert isinstance(fit.posterior.T, Gamma)
    assert fit.bound == "collapsed"
    assert len(fit.elbo) == fit.num_steps == 600
    # Minus the loss of 4 draws each: the mean of the last hundred is within 4 standard errors of the bound there.
    last = estimate(np.asarray(fit.elbo[-100:]))
    whole = estimate(np.asarray(log_weights(fit, DATA, PRIORS, key=KEY, num_samples=4096)))
    assert abs(last.value - whole.value) < 4 * np.hypot(last.error, whole.error) + 0.5  # the iterate still moves


@pytest.mark.parametrize("bad", ["worse", "not finite"])
def test_whatever_the_optimiser_does_it_does_not_end_below_its_start(monkeypatch, bad):
    start = cavi_fit()
    wrong = {"worse": 1.02, "not finite": np.nan}[bad]

    def optimise(*_):
        params = {name: x * wrong for name, x in FAMILIES["gamma"].pack(start.posterior).items()}
        return params, params, np.full(10, 90.0 if bad == "worse" else np.nan)

    monkeypatch.setattr(svi, "_optimise", optimise)
    fit = svi.run(DATA, PRIORS, key=KEY, start=start, num_steps=10, progress_bar=False)
    np.testing.assert_array_equal(fit.posterior.T.a, start.posterior.T.a)
    assert "kept the start" in fit.message
    if bad == "not finite":
        assert not fit.converged
        assert "became nan at step 1" in fit.message


@pytest.mark.slow
def test_normal_from_a_random_start(capsys):
    """Tens of nats are gained from means drawn at random, and the margins are log-normal."""
    fit = svi.run(DATA, PRIORS, "AutoNormal", key=KEY, rank=K, num_steps=800)
    assert "SVI: 100%" in capsys.readouterr().err  # progress was shown
    assert isinstance(fit.posterior.V, LogNormal)
    assert fit.elbo[-100:].mean() > fit.elbo[:20].mean() + 20
    # And it got about as far as CAVI's factors are on the same bound: they are another family, which may be better.
    assert gain(fit, cavi_fit()).value > -5


@pytest.mark.parametrize(("slope", "says"), [(1.0, "rose"), (-1.0, "fell"), (0.0, "no longer changed")])
def test_the_verdict_on_a_trace(slope, says):
    elbo = slope * np.linspace(-500, 0, 200) + np.random.default_rng(0).normal(size=200)
    converged, message = svi._verdict(elbo, "the start", estimate(np.array([0.0, 1.0])), FAMILIES["gamma"])
    assert converged == (slope == 0)
    assert says in message
    assert not svi._verdict(elbo[:50], "the start", estimate(np.array([0.0, 1.0])), FAMILIES["gamma"])[
        0
    ]  # too few to tell


def test_map_is_at_a_mode():
    """λ at its mode given V, (aˡ − 1 + N_c) / (1/bˡ + Σ v), and T where the joint density no longer rises."""
    fit = svi_fit("AutoDelta", 1500)
    q, (a, b) = fit.posterior, PRIORS.coefficients.rate
    assert isinstance(q.T, Point)
    assert fit.bound == "log_joint"
    mode = (a - 1 + DATA.group_sizes) / (1 / b + q.V.value @ DATA.membership)
    np.testing.assert_allclose(q.lam.value, mode, rtol=0.02)  # Adam's last steps are of 2 %

    def at(values):
        return float(log_density(group_sparse_nmf, (DATA, PRIORS), {"rank": K}, values)[0])

    best = {site: f.value for site, f in q.sites.items()}
    np.testing.assert_allclose(at(best), max(fit.elbo[-1], at(best)), rtol=1e-4)
    for factor in (0.9, 1.1):
        assert at(best | {"T": best["T"] * factor}) < at(best)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_keep_their_meaning(kind):
    """NumPyro's guide with these parameters is q: the same values have the same density."""
    family, q = FAMILY[kind], posterior(kind)
    params = FAMILIES[family].pack(q)
    for mine, its in zip(FAMILIES[family].unpack(params, q)[:3], q[:3], strict=True):
        for x, y in zip(mine, its, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    auto = FAMILIES[family].guide(q)
    traced = handlers.trace(handlers.substitute(handlers.seed(auto, 1), params)).get_trace(DATA, PRIORS, rank=K)
    sites = {name: site for name, site in traced.items() if site["type"] == "sample"}
    log_q = sum(float(site["fn"].log_prob(site["value"]).sum()) for site in sites.values())
    values = {name: sites[name]["value"] for name in q.sites}
    if kind == "correlated":
        values = {"_together": jnp.concatenate([jnp.log(values[name]).ravel() for name in q.sites])}
    np.testing.assert_allclose(log_density(guide(q), (DATA, PRIORS), {"rank": K}, values)[0], log_q, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_any_fit_can_be_a_start_of_any_family(kind):
    for family in ("gamma", "normal", "lowrank", "map"):
        q = FAMILIES[family].convert(posterior(kind))
        factor = FAMILIES[family].factor
        for mine, its in zip(q[:3], posterior(kind)[:3], strict=True):
            assert isinstance(mine, factor)
            assert np.isfinite(mine.mean).all()
            if family != "map":
                np.testing.assert_allclose(mine.mean, its.mean, rtol=1e-6)


def test_conversions_keep_mean_and_spread():
    q = Gamma(jnp.asarray([[0.3, 1.0, 30.0]]), jnp.asarray([[1.0, 2.0, 0.1]]))
    s = spread(q.mean, q.log_mean)
    for near in (near_gamma(q.mean, s), near_log_normal(q.mean, s)):
        np.testing.assert_allclose(near.mean, q.mean, rtol=1e-10)
        np.testing.assert_allclose(spread(near.mean, near.log_mean), s, rtol=0.03)


def test_lam_starts_where_v_puts_it():
    """Its prior mean, 4e7 here, is too far off for steps of two percent."""
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(label_driven(per_group=1, num_groups=2, scale=1e6)))
    means = cavi.start(T=np.ones((4, 2)), V=np.full((2, 6), 0.5))
    q = svi._posterior(means, means, Problem(DATA, priors))
    np.testing.assert_allclose(q.lam.mean, (priors.coefficients.rate.a + 3) / 1.5, rtol=1e-5)


def test_optax_optimisers_are_taken():
    optax = pytest.importorskip("optax")
    fit = svi.run(
        DATA, PRIORS, "map", key=KEY, start=cavi_fit(), num_steps=30, optimizer=optax.adam(1e-2), progress_bar=False
    )
    assert fit.elbo[-1] > fit.elbo[0]


@pytest.mark.parametrize("kind", KINDS)
def test_fits_are_saved_and_loaded(tmp_path, kind):
    fit = made(kind)
    save_fit(tmp_path / "fit", fit, PRIORS, DATA.names)
    loaded = load_fit(tmp_path / "fit").fit
    np.testing.assert_array_equal(loaded.elbo, fit.elbo)
    assert (loaded.bound, loaded.message, loaded.num_steps) == (fit.bound, fit.message, fit.num_steps)
    for mine, its in zip(loaded.posterior[:3], fit.posterior[:3], strict=True):
        assert type(mine) is type(its)
        for x, y in zip(mine, its, strict=True):
            np.testing.assert_array_equal(x, y)


def test_closed_forms_want_gammas():
    with pytest.raises(ValueError, match="expected Gamma factors, which closed forms need; got LogNormal"):
        cavi.run(DATA, PRIORS, start=posterior("normal"))


def test_names_of_families():
    assert NAMES["AutoNormal"] == "normal"
    assert NAMES["AutoLowRankMultivariateNormal"] == "lowrank"
    assert NAMES["AutoDelta"] == "map"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "beta"}, "expected family to be one of 'gamma', 'normal', 'lowrank', 'map', 'AutoNormal'"),
        ({"num_steps": 0}, "expected num_steps to be a whole number ≥ 1; got 0"),
        ({"num_particles": True}, "expected num_particles to be a whole number ≥ 1; got True"),
        ({"num_samples": 1}, "expected num_samples to be a whole number ≥ 2; got 1"),
        ({"key": None}, "expected key to be a JAX key"),
        ({"rank": None}, "expected rank"),
        ({"init": "warm"}, "expected init to be one of"),
        ({"optimizer": "adam"}, "expected an optimizer of numpyro.optim or optax; got 'adam'"),
        ({"start": "fit"}, "expected a Posterior"),
        ({"data": None}, "expected Data"),
        ({"family": "map", "priors": Priors(Gamma(0.6, 1.0), Gamma(1.0, 1.0))}, r"expected dictionary.a ≥ 1 for a MAP"),
        ({"start": Posterior(Gamma(np.ones((3, 2)), 1.0), Gamma(np.ones((2, 6)), 1.0), None)}, "posterior of shapes"),
    ],
)
def test_bad_input_is_refused_before_any_work(options, message):
    given = {"data": DATA, "priors": PRIORS, "family": "gamma", "key": KEY, "rank": K, "progress_bar": False} | options
    with pytest.raises(ValueError, match=message):
        svi.run(given.pop("data"), given.pop("priors"), given.pop("family"), **given)


@pytest.mark.slow
def test_families_in_order_of_what_they_can_say():
    """Correlations can only help: low rank plus a diagonal holds the diagonal."""
    low, normal = (svi_fit(family, 3000) for family in ("lowrank", "normal"))
    assert isinstance(low.posterior.T, Correlated)
    rise = gain(low, normal)
    assert rise.value > 4 * rise.error


@pytest.mark.slow
def test_gamma_from_a_random_start_agrees_with_cavi_at_rank_one():
    """With one component both bounds are the same, and so are their optima, up to the scale that hardly matters."""
    data, priors = as_data(DATA.X), Priors(Gamma(2.0, 1.0), Gamma(2.0, 1.0))
    exact = cavi.run(data, priors, key=KEY, rank=1, max_steps=500, tol=None)
    fit = svi.run(data, priors, key=KEY, rank=1, num_steps=5000, optimizer=numpyro.optim.Adam(0.01), progress_bar=False)
    assert isinstance(fit, Fit)
    bound = estimate(np.asarray(log_weights(fit, data, priors, key=KEY, num_samples=4096)))
    assert abs(bound.value - exact.elbo[-1]) < 4 * bound.error + 0.05
    np.testing.assert_allclose(
        fit.posterior.T.mean @ fit.posterior.V.mean, exact.posterior.T.mean @ exact.posterior.V.mean, rtol=0.05
    )
