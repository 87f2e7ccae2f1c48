"""Linear response against explicit Hessians, refits under moved priors, and its own two ways of solving."""

import itertools
import warnings

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from sklearn.exceptions import ConvergenceWarning
from test_differentiable import CASES, K

from gsnmf.drawing.sensitivity import sensitivity_table
from gsnmf.inference import Posterior, cavi, linear_response, to_arviz
from gsnmf.inference.arviz import WIDTHS
from gsnmf.inference.curvature import factorised, fluctuation, fluctuation_slope
from gsnmf.inference.supports import SUPPORTS, within
from gsnmf.inference.warning import quiet
from gsnmf.model import Gamma, Priors, as_data

module = __import__("gsnmf.inference.linear_response", fromlist=["DENSE"])


def total(q):
    return q.T.mean.sum(axis=0) @ q.V.mean.sum(axis=1)


def several(q):
    """An entry of TV, a proportion, a logarithm and an entry of a profile, as one array."""
    of_sample = q.V.mean[:, 3] * q.T.mean.sum(axis=0)
    last = q.V.log_mean[1, 2] if q.lam is None else q.lam.log_mean[0, 0]
    return jnp.stack(
        [q.T.mean[1] @ q.V.mean[:, 0], of_sample[0] / of_sample.sum(), last, q.T.mean[3, 0] / q.T.mean[:, 0].sum()]
    )


def fitted(name, kind="augmented", **moved):
    data, family, how = CASES[name]
    priors = Priors(Gamma(1.2, 2.0), family)._replace(**moved)
    with quiet():
        fit = cavi.run(data, priors, key=jax.random.key(0), rank=K, max_steps=4000, tol=1e-13, labels=how)
        return data, cavi.refine(fit, data, max_steps=3000, tol=1e-14) if kind == "collapsed" else fit


@pytest.mark.parametrize("name", ["zeros", "without groups", "multi-label"])
def test_covariances_are_those_of_an_explicit_hessian_in_other_parameters(name):
    """With the public bound in (log a, log b) of every factor, by `jax.hessian`."""
    data, fit = fitted(name)
    logs, back = jax.flatten_util.ravel_pytree(
        [tuple(jnp.log(jnp.broadcast_to(x, f.a.shape)) for x in f) for f in fit.posterior.sites.values()]
    )

    def posterior(x):
        gammas = [Gamma(jnp.exp(a), jnp.exp(b)) for a, b in back(x)]
        return Posterior(*gammas, *([None] if len(gammas) == 2 else []))

    curvature = -jax.jit(jax.hessian(lambda x: cavi.bound(posterior(x), data, fit.priors)))(logs)
    slopes = jax.jit(jax.jacobian(lambda x: jnp.append(several(posterior(x)), total(posterior(x)))))(logs)
    expected = slopes @ jnp.linalg.solve(curvature, slopes.T)
    response = linear_response(fit, data)
    assert response.is_dense
    np.testing.assert_allclose(response.cov(several), expected[:4, :4], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(response.cov(several, total), expected[:4, 4], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(response.sd(several) ** 2, np.diag(expected)[:4], rtol=1e-5)


IN_MAKE_TEST = (("mask", "augmented"), ("mask", "collapsed"))  # each case is compiled on its own


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        case if case in IN_MAKE_TEST else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(["mask", "from outside", "mean field", "structured"], ["augmented", "collapsed"])
    ],
)
def test_conjugate_gradients_and_sensitivities(name, kind, monkeypatch):
    """Derivatives by hyperparameters against refits with them moved by ±0.1 %, which test all of the Hessian."""
    data, fit = fitted(name, kind)
    monkeypatch.setattr(module, "DENSE", 0)
    response = linear_response(fit, data, tol=1e-7)
    assert not response.is_dense
    found = response.sensitivity(several)
    step = 1e-3
    prior = fit.priors.dictionary
    for field in ("a", "b"):
        ends = []
        for sign in (1, -1):
            moved = prior._replace(**{field: getattr(prior, field) * (1 + sign * step)})
            with quiet():
                again = cavi.run(
                    data, fit.priors._replace(dictionary=moved), start=fit, rank=K, max_steps=4000, tol=1e-14
                ) if kind == "augmented" else cavi.refine(
                    fit._replace(priors=fit.priors._replace(dictionary=moved)), data, max_steps=3000, tol=1e-15
                )  # fmt: skip
            ends.append(np.asarray(several(again.posterior)))
        expected = (ends[0] - ends[1]) / (2 * step * getattr(prior, field))
        sd = response.sd(several)
        # the error of central differences is of the order of step²; refits converge to about 1e-4 of a width
        np.testing.assert_allclose(
            getattr(found.dictionary, field)[:, 0, 0] / sd, expected / sd, rtol=0.01, atol=2e-3, err_msg=field
        )
    assert response.num_products > 0


@pytest.mark.parametrize("name", ["zeros", "mask"])
def test_both_ways_of_solving_agree(name, monkeypatch):
    data, fit = fitted(name)
    dense = linear_response(fit, data)
    sd, shift = dense.sd(several), dense.shift(several)
    monkeypatch.setattr(module, "DENSE", 0)
    iterated = linear_response(fit, data, tol=1e-6)
    np.testing.assert_allclose(iterated.sd(several), sd, rtol=1e-5)
    assert (np.abs(shift) < 1e-3 * sd).all()  # the fit has converged


def test_blocks_of_features_and_of_samples_give_the_same():
    """X and its transpose, with the priors of T and V exchanged, are one problem."""
    X = np.random.default_rng(0).poisson(4.0, (5, 8)).astype(float)
    wide, tall = Priors(Gamma(1.5, 1.0), Gamma(0.8, 2.0)), Priors(Gamma(0.8, 2.0), Gamma(1.5, 1.0))
    sds = []
    for data, priors, entry in ((as_data(X), wide, (1, 6)), (as_data(X.T), tall, (6, 1))):
        start = cavi.start(
            T=1 + X[:, :2] if data.num_features == 5 else 1 + X[:2].T,
            V=1 + X[:2] if data.num_features == 5 else 1 + X[:, :2].T,
        )
        with quiet():
            fit = cavi.run(data, priors, start=start, rank=2, max_steps=5000, tol=1e-14)
        response = linear_response(fit, data)
        sds.append(
            [float(response.sd(total)), float(response.mean(lambda q, e=entry: q.T.mean[e[0]] @ q.V.mean[:, e[1]]))]
        )
    np.testing.assert_allclose(sds[0][0], sds[1][0], rtol=1e-3)


@pytest.mark.parametrize("kind", ["augmented", pytest.param("collapsed", marks=pytest.mark.slow)])
def test_the_gradient_of_fluctuations(kind):
    """By `jax.grad` of the log determinant of an explicit Hessian."""
    data, fit = fitted("mask", kind)
    response = linear_response(fit, data)
    optimum = response._optimum
    factor = factorised(kind, optimum)
    bound = optimum.bound(kind)
    around = optimum.around

    def explicit(u):
        log_det = jnp.linalg.slogdet(-jax.hessian(bound)(u))[1]
        information = jnp.zeros(())
        for now, origin in zip((around.at(u).T, around.at(u).V, around.at(u).lam), around.gammas(), strict=True):
            exact = now.a**2 * jax.scipy.special.polygamma(1, now.a) - now.a
            information += jnp.sum(jnp.log(now.a / origin.a * exact / ((1 + origin.a) / (1 + 2 * origin.a))))
        return -0.5 * (log_det - information)

    value, slope = jax.jit(jax.value_and_grad(explicit))(optimum.zero)
    assert fluctuation(optimum, factor) == pytest.approx(float(value), rel=1e-6)
    np.testing.assert_allclose(fluctuation_slope(kind, optimum, factor), slope, atol=1e-6 * np.abs(slope).max())


def test_corrections_of_a_problem_that_is_solved_exactly():
    """If T is known, one sample has V ~ Gamma exactly for K = 1: nothing is left to correct."""
    data = as_data(np.array([[30.0], [12.0], [7.0]]))
    priors = Priors(Gamma(np.array([[4e8], [1e8], [1e8]]), 1e-8), Gamma(2.0, 5.0))
    fit = cavi.run(data, priors, key=jax.random.key(0), rank=1, tol=1e-12, max_steps=2000)
    response = linear_response(fit, data)
    exact = stats.gamma(2 + 49, scale=1 / (1 / 5 + 6))

    def v(q):
        return q.V.mean[0, 0]

    assert float(response.sd(v)) == pytest.approx(exact.std(), rel=1e-4)
    assert float(response.mean(v, corrected=True)) == pytest.approx(exact.mean(), rel=1e-4)
    negative_binomial = stats.nbinom(2, 1 / (1 + 6 * 5)).logpmf(49) + stats.multinomial(
        49, [4 / 6, 1 / 6, 1 / 6]
    ).logpmf([30, 12, 7])
    assert response.log_evidence() == pytest.approx(negative_binomial, abs=1e-3)


def test_draws_have_the_widths_of_linear_response():
    data, fit = fitted("zeros", "collapsed")
    response = linear_response(fit, data)
    draws = {site: x[0] for site, x in response.draws(4000, key=jax.random.key(3)).items()}
    assert {site: x.shape for site, x in draws.items()} == {"T": (4000, 7, 3), "V": (4000, 3, 9), "lam": (4000, 3, 3)}
    assert all((x > 0).all() for x in draws.values())
    activation = draws["V"] * draws["T"].sum(axis=1)[:, :, None]

    def of_fit(q):
        return (q.V.mean * q.T.mean.sum(axis=0)[:, None])[0]

    z = (activation[:, 0].mean(axis=0) - response.mean(of_fit)) / response.sd(of_fit) * np.sqrt(4000)
    assert np.abs(z).max() < 4.5  # nine means: one failure in 10⁴ seeds
    np.testing.assert_allclose(activation[:, 0].std(axis=0), response.sd(of_fit), rtol=0.15)  # Gammas of shape 0.1
    sd = float(response.sd(total))
    assert (draws["T"].sum(axis=1) * draws["V"].sum(axis=2)).sum(axis=1).std() == pytest.approx(sd, rel=0.15)


def test_intervals():
    data, fit = fitted("zeros")
    response = linear_response(fit, data)
    mean, sd = float(response.mean(total)), float(response.sd(total))
    np.testing.assert_allclose(response.interval(total, 0.8), stats.norm(mean, sd).interval(0.8), rtol=1e-6)
    gamma = stats.gamma((mean / sd) ** 2, scale=sd**2 / mean)
    np.testing.assert_allclose(response.interval(total, 0.8, support="positive"), gamma.interval(0.8), rtol=1e-6)
    shares = response.interval(lambda q: several(q)[1:2], support="unit")
    assert shares.shape == (1, 2)
    assert 0 <= shares[0, 0] < shares[0, 1] <= 1
    assert float(response.mean_field_sd(total)) != pytest.approx(sd, rel=0.05)  # what it corrects


def test_supports():
    mean, sd = np.array([0.2, 0.6]), np.array([0.05, 0.2])
    for support, family in (("positive", stats.gamma), ("unit", stats.beta)):
        grid = np.linspace(5e-5, 1 - 5e-5, 20_001)[:, None]
        values = SUPPORTS[support](grid, mean, sd)
        np.testing.assert_allclose(values.mean(axis=0), mean, rtol=1e-3, err_msg=str(family))
        np.testing.assert_allclose(values.std(axis=0), sd, rtol=5e-3)
    plain = np.array([1.0, 1.0, 1.0, 0.4])
    assert within("positive", plain, np.array([1.5, 0.6, -3.0, 0.5])) == pytest.approx(
        [1.5, 0.6, 0.5 * np.exp(-7), 0.5]
    )
    inside = within("unit", np.array([0.9, 0.9, 0.1]), np.array([1.4, 0.93, -0.3]))
    assert ((inside > 0) & (inside < 1)).all()
    assert inside[1] == pytest.approx(0.93)


def test_bad_input_is_refused():
    data, fit = fitted("zeros")
    response = linear_response(fit, data)
    other = as_data(np.asarray(data.X) + 1, [0, 1, 2] * 3)
    with pytest.raises(ValueError, match="expected the data of the fit; got other data"):
        linear_response(fit, other)
    with pytest.raises(ValueError, match=r"expected f to be a function of a Posterior; got 3"):
        response.sd(3)
    with pytest.raises(ValueError, match=r"expected f to be written with JAX.*; got TracerArrayConversionError"):
        response.sd(lambda q: np.sort(np.asarray(q.T.mean)))
    with pytest.raises(ValueError, match=r"expected f to return real numbers, .*; got int"):
        response.sd(lambda q: jnp.argmax(q.T.mean))
    with pytest.raises(ValueError, match=r"expected f to have finite derivatives at the optimum; got NaN or infinity"):
        response.sd(lambda q: jnp.sqrt(q.T.mean[0, 0] * 0))
    with pytest.raises(
        ValueError, match=r"expected f to depend on the factors, and not by steps; got derivatives of 0"
    ):
        response.sd(lambda q: jnp.round(q.T.mean))
    with pytest.raises(ValueError, match=r"expected a Fit, as made by .*, or its Posterior; got NoneType"):
        linear_response(None, data)
    with pytest.raises(ValueError, match=r"expected corrected to be True or False; got 'yes'"):
        response.interval(total, corrected="yes")
    with pytest.raises(ValueError, match=r"expected prob between 0 and 1; got 90"):
        response.interval(total, 90)
    with pytest.raises(ValueError, match=r"expected support to be one of 'real', 'positive', 'unit'; got 'log'"):
        response.interval(total, support="log")
    with pytest.raises(ValueError, match=r"expected f within the support 'unit'; got"):
        response.interval(total, support="unit")
    with pytest.raises(ValueError, match=r"expected tol between 0 and 1; got 0"):
        linear_response(fit, data, tol=0)
    with pytest.raises(ValueError, match=r"expected a Fit at the optimum of a bound; got one of log_joint"):
        linear_response(fit._replace(bound="log_joint"), data)


WRONG = {
    "nothing": (lambda q: None, "expected f to return a number or an array; got NoneType"),
    "names": (lambda q: {"T": q.T.mean}, "expected f to return a number or an array; got dict"),
    "text": (lambda q: "T", "expected f to return a number or an array; got str"),
    "an empty array": (lambda q: q.T.mean[:0], r"expected f to return at least one number; got an empty array of .*0"),
    "an unknown site": (lambda q: q.W.mean, "expected f to read mean and log_mean of T, V, lam; got AttributeError"),
    "an unknown moment": (lambda q: jnp.sum(q.T.median), "expected f to read mean and log_mean of T, V, lam; got"),
    "out of range": (lambda q: q.T.mean[999, 0], "expected f to read entries within the shapes .* index 999 is out"),
    "no function": ("T", "expected f to be a function of a Posterior; got 'T'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_functions_that_cannot_be_asked_for_are_refused(wrong):
    data, fit = fitted("zeros")
    response, (f, message) = linear_response(fit, data), WRONG[wrong]
    asked = (response.sd, response.mean, response.cov, response.interval, response.sensitivity)
    for ask in (*asked, lambda f: sensitivity_table(response, f), lambda f: response.cov(total, f)):
        with pytest.raises(ValueError, match=message):
            ask(f)


def test_functions_that_only_jax_can_run_are_taken():
    data, fit = fitted("zeros")
    sd = linear_response(fit, data).sd(lambda q: q.T.mean.at[0, 0].set(1.0).sum())
    assert sd > 0


def test_corrections_need_known_labels_and_a_small_problem(monkeypatch):
    data, fit = fitted("structured")
    with pytest.raises(ValueError, match=r"expected data without unlabelled samples for corrections; got 2 of them"):
        linear_response(fit, data).mean(total, corrected=True)
    data, fit = fitted("zeros")
    monkeypatch.setattr(module, "DENSE", 0)
    with pytest.raises(
        ValueError, match=r"expected a problem whose Hessian fits in 0e.00 numbers .*; got 114 coordinates"
    ):
        linear_response(fit, data).draws(10, key=jax.random.key(0))


def test_a_fit_before_its_optimum_is_said():
    data, family, _ = CASES["zeros"]
    priors = Priors(Gamma(1.2, 2.0), family)
    with quiet():
        early = cavi.run(data, priors, key=jax.random.key(0), rank=K, max_steps=2, tol=None, accelerate=False)
    response = linear_response(early, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises((ConvergenceWarning, ValueError), match=r"not at its optimum|expected a fit at its optimum"):
            response.sd(several)


def test_export_to_arviz_with_these_widths():
    data, fit = fitted("zeros")
    options = {"num_samples": 300, "log_likelihood": "sample", "posterior_predictive": False}
    with jax.numpy_rank_promotion("allow"):  # which NumPyro needs
        crude, wide, moved = (to_arviz(fit, data, widths=widths, **options) for widths in WIDTHS)
    assert [one["posterior"].attrs["widths"] for one in (crude, wide, moved)] == list(WIDTHS)
    assert wide["log_likelihood"]["X"].shape == (1, 300, 9)
    response = linear_response(fit, data)

    def activation(q):
        return (q.V.mean * q.T.mean.sum(axis=0)[:, None])[:, 0]

    def of(draws):
        T, V = (draws["posterior"][site].values[0] for site in ("T", "V"))
        return (V * T.sum(axis=1)[:, :, None])[:, :, 0]

    np.testing.assert_allclose(of(wide).std(axis=0), response.sd(activation), rtol=0.3)  # of 300 draws, skewed
    shift = response.mean(activation, corrected=True) - response.mean(activation)
    assert np.argmax(np.abs(shift)) == np.argmax(np.abs(of(moved).mean(axis=0) - of(wide).mean(axis=0)))
    with pytest.raises(ValueError, match=r"expected widths among \('mean_field', .*\); got 'wide'"):
        to_arviz(fit, data, widths="wide")
    with pytest.raises(ValueError, match=r"got 'linear_response' for draws, whose widths are their own"):
        to_arviz(wide, data, fit.priors, widths="linear_response")


def test_fluctuations_add_what_the_bound_lacks():
    """One component, whose evidence is a mean over draws of T from the prior: −25.48 ± 0.01; the bound is −26.77.

    Given T, p(x_τ) = ∫ 0.1 e^(−0.1 v) Π_ν Poisson(x_ντ | t_ν v) dv = 0.1 s! / (Σ_ν t_ν + 0.1)^(s+1) Π_ν t_ν^x / x!
    with s = Σ_ν x_ντ.
    """
    data, priors = as_data([[30, 11], [6, 25]]), Priors(Gamma(2.0, 1.0), Gamma(1.0, 10.0))
    fit = cavi.run(data, priors, key=jax.random.key(0), rank=1, tol=1e-12, max_steps=2000)
    rng, X = np.random.default_rng(0), np.asarray(data.X, float)
    T, size = rng.gamma(2.0, 1.0, (20_000, 2, 1)), X.sum(axis=0) + 1
    log_v = special.gammaln(size) + np.log(0.1) - size * np.log(T.sum(axis=1) + 0.1)
    given = log_v.sum(axis=1) + (X * np.log(T) - special.gammaln(X + 1)).sum(axis=(1, 2))
    exact = special.logsumexp(given) - np.log(20_000)
    assert exact - fit.elbo[-1] > 1
    assert linear_response(fit, data).log_evidence() == pytest.approx(exact, abs=0.1)
