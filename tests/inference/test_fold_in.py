"""New samples under a learned dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from conftest import FAMILIES, problem
from scipy.special import digamma, gammaln, softmax

from gsnmf.inference import cavi, fold_in
from gsnmf.inference.posterior import Posterior
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, matching
from gsnmf.model.conjugacy import expected, negative_kl


@pytest.fixture(params=["group sparse", "gamma", "relevance"])
def family(request):
    """λ by group, none, and one for all samples."""
    return FAMILIES[request.param]


def learned(family=None, seed=0, max_steps=20):
    data, priors = problem(seed, F=6, N=9)
    priors = priors if family is None else Priors(Gamma(0.7, np.array([[1.0, 2.0, 3.0, 4.0]])), family)
    return data, priors, cavi.run(data, priors, key=jax.random.key(seed), max_steps=max_steps, tol=None).posterior


def new_samples(F=6, N=6):
    X = np.random.default_rng(9).poisson(4.0, size=(F, N)) + 0.25 * (np.arange(N) % 2)  # fractions are allowed
    X[:, 0] = 0.0  # and a sample of nothing at all
    X[3] = 0.0
    return X


def candidate(q, priors, c):
    """Shape, E[r] and E[log r] of the prior of v under group c."""
    if q.lam is None:
        a, b = (np.broadcast_to(x, (q.T.a.shape[1], 1))[:, 0] for x in priors.coefficients)
        return a, 1 / b, -np.log(b)
    a, b = np.asarray(q.lam.a)[:, c], np.asarray(q.lam.b)[:, c]
    return np.ones_like(a), a * b, digamma(a) + np.log(b)


def slow_fold(x, T, prior, steps):
    """The updates and ℒ_τ(c) of one sample with loops, in NumPy."""
    a, rate, log_rate = prior
    E_T, L_T = T.a * T.b, digamma(T.a) + np.log(T.b)
    B = 1 / (rate + E_T.sum(axis=0))
    L_v = np.log(B)
    for _ in range(steps):
        A = a.astype(float).copy()
        for f, count in enumerate(x):
            w = np.exp(L_T[f] + L_v)
            A += count * w / w.sum()
        L_v = digamma(A) + np.log(B)
    bound = -(A * B) @ E_T.sum(axis=0)
    for f, count in enumerate(x):
        bound += count * np.log(np.exp(L_T[f] + L_v).sum()) - gammaln(count + 1)
    for i in range(len(A)):  # E log p(v | λ) + H(q(v))
        bound += (a[i] - 1) * L_v[i] + a[i] * log_rate[i] - rate[i] * A[i] * B[i] - gammaln(a[i])
        bound += A[i] + np.log(B[i]) + gammaln(A[i]) + (1 - A[i]) * digamma(A[i])
    return A, B, bound


@pytest.mark.parametrize("steps", [1, 2, 12])
def test_agrees_with_explicit_loops(family, steps):
    _, priors, q = learned(family)
    X = new_samples()
    folded = fold_in(q, X, priors, max_steps=steps, tol=0.0)
    T = Gamma(*(np.asarray(x) for x in q.T))
    C = 1 if q.lam is None else q.lam.a.shape[1]
    assert folded.V.a.shape == folded.V.b.shape == (C, 4, 6)
    assert folded.bound.shape == folded.converged.shape == (6, C)
    for c in range(C):
        for n, x in enumerate(X.T):
            A, B, bound = slow_fold(x, T, candidate(q, priors, c), steps)
            np.testing.assert_allclose(folded.V.a[c, :, n], A, rtol=1e-10)
            np.testing.assert_allclose(folded.V.b[c, :, n], B, rtol=1e-10)
            np.testing.assert_allclose(folded.bound[n, c], bound, rtol=1e-10)


def test_each_update_is_the_maximiser(family):
    """With q(S) held where the update held it, the slow bound has no slope left in q(v)."""
    _, priors, q = learned(family)
    x, c = new_samples()[:, 3:4], 0 if q.lam is None else q.lam.a.shape[1] - 1
    old, new = (fold_in(q, x, priors, max_steps=n, tol=0.0).V for n in (3, 4))
    old, new = (Gamma(V.a[c], V.b[c]) for V in (old, new))
    prior_V = (
        Gamma(*(np.ones(q.lam.a.shape) for _ in "ab")) if q.lam is not None else priors.coefficients.broadcast(4, 1)
    )
    held = {"X": x, "z": [c], "T": q.T, "lam": q.lam, "prior_T": Gamma(*map(jnp.ones_like, q.T)), "prior_V": prior_V}
    held["p"] = reference.allocation(x, np.asarray(q.T.log_mean), np.asarray(old.log_mean))

    def slope(at):
        gradient = jax.grad(lambda log_q: reference.bound(V=jax.tree.map(jnp.exp, log_q), **held))
        return max(float(abs(g).max()) for g in gradient(jax.tree.map(jnp.log, at)))

    assert slope(new) < 1e-8
    assert slope(old) > 1e-4  # the check can fail


def test_the_bound_never_falls_and_stops_when_it_no_longer_rises(family):
    _, priors, q = learned(family)
    bounds = np.stack([fold_in(q, new_samples(), priors, max_steps=n, tol=0.0).bound for n in range(1, 60)])
    assert (np.diff(bounds, axis=0) >= -1e-12 * abs(bounds[1:])).all()
    loose, tight = (fold_in(q, new_samples(), priors, tol=tol, max_steps=20000) for tol in (1e-3, 1e-12))
    assert loose.converged.all()
    assert tight.converged.all()
    np.testing.assert_allclose(loose.bound, tight.bound, rtol=0.02)
    assert (loose.bound[1:] < tight.bound[1:]).all()  # each sample stopped by itself, before the end
    assert not fold_in(q, new_samples(), priors, max_steps=2).converged[1:].any()


def test_samples_are_folded_in_one_by_one():
    _, priors, q = learned()
    together = fold_in(q, new_samples(), priors)
    for n in range(6):
        alone = fold_in(q, new_samples()[:, n : n + 1], priors)
        np.testing.assert_allclose(alone.bound[0], together.bound[n], rtol=1e-12)
        np.testing.assert_allclose(alone.V.mean[:, :, 0], together.V.mean[:, :, n], rtol=1e-9)


def test_training_samples_under_their_own_group_give_the_fit_back():
    """Σ_τ ℒ_τ(z_τ) is the fit's bound but for the terms of T and λ, and q(v | z) is its q(V)."""
    data, priors, q = learned(max_steps=20000)
    folded = fold_in(q, data.X, priors, tol=0.0, max_steps=20000)
    z = data.membership.argmax(axis=1)
    rest = jnp.sum(negative_kl(q.T, expected(priors.dictionary)))
    rest += jnp.sum(negative_kl(q.lam, expected(priors.coefficients.rate)))
    own = folded.bound[np.arange(len(z)), z].sum()
    np.testing.assert_allclose(own + rest, cavi.bound(q, data, priors), rtol=1e-9)
    own_V = np.stack([folded.V.mean[c, :, n] for n, c in enumerate(z)], axis=1)
    np.testing.assert_allclose(own_V, q.V.mean, rtol=1e-4, atol=1e-6)
    short = learned(max_steps=30)[2]  # q(V) still lags behind: folding in does at least as well
    swapped = fold_in(short, data.X, priors, tol=0.0, max_steps=2000).V
    V = Gamma(*(np.stack([p[c, :, n] for n, c in enumerate(z)], axis=1) for p in swapped))
    assert cavi.bound(Posterior(short.T, V, short.lam), data, priors) > cavi.bound(short, data, priors)


def test_well_separated_groups_are_recognised():
    rng = np.random.default_rng(0)
    F, C, N = 30, 4, 60
    T = rng.gamma(0.3, 1.0, size=(F, C)) + 0.01
    z = np.arange(2 * N) % C
    V = rng.gamma(2.0, 10.0, size=2 * N) * np.where(np.arange(C)[:, None] == z, 1.0, 0.02)
    X = rng.poisson(T @ V).astype(float)
    priors = Priors(Gamma(0.5, 1.0), GroupSparse(Gamma(np.where(np.eye(C) > 0, 1.0, 50.0), 1e3)))
    fit = cavi.run(as_data(X[:, :N], z[:N]), priors, key=jax.random.key(0), init="groups")
    folded = fold_in(fit, X[:, N:], priors)
    assert (folded.class_posterior().argmax(axis=1) == z[N:]).mean() > 0.95
    np.testing.assert_allclose(folded.class_posterior().sum(axis=1), 1)
    shares = np.array([0.7, 0.1, 0.1, 0.1])
    expected = softmax(np.log(shares) + np.asarray(folded.bound) / 3, axis=1)
    np.testing.assert_allclose(folded.class_posterior(shares, temperature=3.0), expected, rtol=1e-9)
    mixed = sum(expected[:, c] * np.asarray(folded.V.mean[c]) for c in range(C))
    np.testing.assert_allclose(folded.mean(shares, temperature=3.0), mixed, rtol=1e-9)


def test_single_precision_agrees():
    _, priors, q = learned()
    double = fold_in(q, new_samples(), priors)
    with jax.enable_x64(False):
        single = fold_in(jax.tree.map(np.asarray, q), new_samples(), priors)
        assert single.bound.dtype == np.float32
        np.testing.assert_allclose(np.asarray(single.bound), np.asarray(double.bound), rtol=1e-4)


def test_wrong_input():
    data, priors, q = learned()
    X = new_samples()
    with pytest.raises(ValueError, match="expected X with 6 features, as the dictionary has; got 5"):
        fold_in(q, X[1:], priors)
    with pytest.raises(ValueError, match="expected X to be nonnegative; got a minimum of -1"):
        fold_in(q, X - 1, priors)
    with pytest.raises(ValueError, match="expected priors with λ, like the posterior; got Gamma coefficients"):
        fold_in(q, X, Priors(priors.dictionary, matching(data, priors.dictionary, 4)))
    with pytest.raises(ValueError, match=r"expected coefficients.a to broadcast to components × samples, \(4, 1\)"):
        fold_in(q._replace(lam=None), X, Priors(priors.dictionary, Gamma(np.ones((4, 9)), 1.0)))
    with pytest.raises(ValueError, match="expected a Posterior"):
        fold_in(priors, X, priors)
    with pytest.raises(ValueError, match="expected max_steps to be a whole number ≥ 1; got 0"):
        fold_in(q, X, priors, max_steps=0)
    with pytest.raises(ValueError, match="expected tol to be a number ≥ 0; got -1"):
        fold_in(q, X, priors, tol=-1)
    folded = fold_in(q, X, priors)
    with pytest.raises(ValueError, match="expected shares to hold 3 positive proportions, one per group; got"):
        folded.class_posterior([1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="expected temperature to be a positive number; got 0"):
        folded.mean(temperature=0)


def test_data_are_taken_as_well_as_a_matrix():
    data, priors, q = learned()
    np.testing.assert_array_equal(fold_in(q, data, priors).bound, fold_in(q, data.X, priors).bound)


def test_samples_too_large_for_the_precision_are_refused():
    """Their entries, or only the sums of x log x: both would give NaN."""
    _, priors, q = learned()
    X = np.ones((6, 1))
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"expected X below 3.4e\+38, the largest number .*; got 1e\+39"):
            fold_in(q, 1e39 * X, priors)
        with pytest.raises(ValueError, match=r"that add up to 3.8e\+36 at most .*; got 6.0e\+37"):
            fold_in(q, 1e37 * X, priors)
        assert np.isfinite(fold_in(q, 1e30 * X, priors).bound).all()
