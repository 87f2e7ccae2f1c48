"""Refined fits: the objective with S summed out, its ascent, and L-BFGS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_differentiable import CASES, K

from gsnmf.inference import cavi, collapsed_bound, lbfgs
from gsnmf.inference.observed.dense import cut_into_tiles, expected_log
from gsnmf.inference.refinement import collapsed_objective, prepared
from gsnmf.inference.warning import quiet
from gsnmf.model import Gamma, Priors


def fitted(name, **options):
    data, family, how = CASES[name]
    priors = Priors(Gamma(1.2, 2.0), family)
    with quiet():
        fit = cavi.run(data, priors, key=jax.random.key(0), rank=K, max_steps=2000, tol=1e-10, labels=how)
        return data, fit, cavi.refine(fit, data, **options)


IN_MAKE_TEST = ("mask",)  # each case is compiled on its own


@pytest.mark.parametrize(
    "name", [name if name in IN_MAKE_TEST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_the_collapsed_bound_rises(name):
    """Beside Monte Carlo: above CAVI's, and close to the objective, whose expansion is off by a few nats at most."""
    data, fit, refined = fitted(name)
    assert refined.bound == "collapsed"
    assert (np.diff(refined.elbo) > -1e-9).all()  # except by rounding
    assert len(refined.elbo) == refined.num_steps
    key = jax.random.key(1)
    with jax.numpy_rank_promotion("allow"):  # which NumPyro needs
        before, after = (collapsed_bound(f, data, key=key, num_samples=2000) for f in (fit, refined))
    assert after.value > before.value + 4 * (before.error + after.error)
    assert refined.elbo[-1] == pytest.approx(after.value, abs=4)
    assert refined.converged
    assert jax.tree.map(np.shape, refined.posterior) == jax.tree.map(np.shape, fit.posterior)


def test_the_objective_entry_by_entry():
    """With hidden entries, against loops in NumPy for the data term and the public bound for the rest."""
    data, fit, _ = fitted("mask", max_steps=1)
    _, (seen, priors, around) = prepared(fit, data, None, "test")
    value, q = collapsed_objective(seen, priors, around.origin)
    T, V, X, W = fit.posterior.T, fit.posterior.V, np.asarray(data.X), np.asarray(data.mask)
    M = np.exp(np.asarray(T.log_mean)) @ np.exp(np.asarray(V.log_mean))
    E_T, E_V, a, c = (np.asarray(x) for x in (T.mean, V.mean, T.a, V.a))
    shift = 0.0
    for f, n in zip(*np.nonzero(W), strict=True):
        x, t, v = X[f, n], E_T[f], E_V[:, n]
        mean = np.sum(t * v)
        variance = np.sum(t**2 * (1 + 1 / a[f]) * v**2 * (1 + 1 / c[:, n]) - t**2 * v**2)
        shift += x * (np.log(mean) - 0.5 * np.log(1 + variance / mean**2) - np.log(M[f, n])) if x else 0
    assert float(value) == pytest.approx(cavi.bound(fit, data) + shift, rel=1e-10)
    assert q.labels == around.origin.labels


def test_expected_logarithms_of_products():
    """Beside draws, for shapes of 3 and above: within a hundredth of E[log m]."""
    rng = np.random.default_rng(0)
    T, V = (Gamma(jnp.asarray(rng.uniform(3, 9, s)), jnp.asarray(rng.uniform(0.1, 1, s))) for s in ((4, 5), (6, 4)))
    t, v = (rng.gamma(np.asarray(f.a), np.asarray(f.b), (20_000, *f.a.shape)) for f in (T, V))
    exact = np.log(v @ t).mean(axis=0)
    assert np.abs(np.asarray(expected_log(T, V)) - exact).max() < 0.01


def test_tiles_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    X = jnp.asarray(rng.poisson(2.0, (5, 9)), float)
    T, V = (Gamma(jnp.asarray(rng.uniform(1, 4, s)), jnp.asarray(rng.uniform(0.1, 1, s))) for s in ((3, 5), (9, 3)))
    whole = cut_into_tiles(X, None).expected_log_ratios(T, V)
    monkeypatch.setattr("gsnmf.inference.observed.dense.TILE", 160)
    tiles = cut_into_tiles(X, None)
    assert tiles.tiles.shape[0] == 3
    np.testing.assert_allclose(tiles.expected_log_ratios(T, V), whole, rtol=1e-12)


def test_candidates_are_weighed_one_by_one():
    """The structured form, against known labels: for each sample log Σ_c π_c exp of its terms under group c."""
    data, fit, _ = fitted("structured", max_steps=1)
    _, (seen, priors, around) = prepared(fit, data, None, "test")
    value, q = collapsed_objective(seen, priors, around.origin)
    rows = np.asarray(seen.X.expected_log_ratios(around.origin.T, around.origin.V))
    _, believed = seen.labels.read(seen.X, priors, around.origin)
    M, C = believed.z.shape
    terms = (rows + np.asarray(believed.rows))[-M * C :].reshape(M, C) + np.asarray(believed.log_prior)
    z = np.exp(terms - terms.max(axis=1, keepdims=True))
    np.testing.assert_allclose(q.labels.z, z / z.sum(axis=1, keepdims=True), rtol=1e-8)
    assert np.isfinite(float(value))


def test_callbacks_and_steps(monkeypatch):
    monkeypatch.setattr("gsnmf.inference.refinement.CHUNK", 4)
    seen = []
    data, _, refined = fitted("zeros", max_steps=10, tol=None, callback=seen.append)
    assert [len(f.elbo) for f in seen] == [4, 8, 10]
    assert seen[0].bound == "collapsed"
    assert refined.num_steps == 10
    assert "All steps were made" in refined.message
    assert not refined.converged
    again = cavi.refine(refined, data)
    assert again.elbo[-1] >= refined.elbo[-1]


def test_bad_input_is_refused():
    data, fit, _ = fitted("zeros", max_steps=1)
    with pytest.raises(ValueError, match=r"expected a Fit, as returned by cavi.run; got Posterior"):
        cavi.refine(fit.posterior, data)
    with pytest.raises(ValueError, match=r"expected max_steps"):
        cavi.refine(fit, data, max_steps=0)
    with pytest.raises(ValueError, match=r"expected tol to be None or a number from 0 to 1; got -1"):
        cavi.refine(fit, data, tol=-1)
    broken = fit.posterior._replace(T=fit.posterior.T._replace(a=fit.posterior.T.a * np.nan))
    with pytest.raises(ValueError, match=r"expected a fit with finite factors; got one whose objective is nan"):
        cavi.refine(fit._replace(posterior=broken), data)
    with pytest.raises(ValueError, match="expected the data of the fit; got other data"):
        cavi.refine(fit, data._replace(X=data.X + 1))


def test_single_precision_comes_as_far():
    """Although the objective is rounded to 1e-5 nats there: the slope decides near the optimum."""
    with jax.enable_x64(False):
        _, _, single = fitted("zeros", max_steps=400)
        assert single.posterior.T.a.dtype == np.float32
    assert single.converged
    _, _, double = fitted("zeros", max_steps=400)
    assert single.elbo[-1] == pytest.approx(double.elbo[-1], abs=1e-3)
    np.testing.assert_allclose(single.posterior.V.mean, double.posterior.V.mean, rtol=0.02)


def test_lbfgs_finds_the_optimum_of_a_bent_valley():
    def f(u):
        return -jnp.sum(10 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2)

    def both(u):
        return jax.value_and_grad(f)(u)

    state, record, n = jax.jit(lambda s: lbfgs.advance(both, s, 0.0, 300, 300))(lbfgs.begin(both, jnp.zeros(6)))
    np.testing.assert_allclose(state.u, np.ones(6), atol=1e-5)
    assert (np.diff(np.asarray(record)[: int(n)]) > -1e-12).all()
