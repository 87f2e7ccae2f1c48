"""Properties of updates, bounds and projections, for random data and hyperparameters of one shape (hypothesis)."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gsnmf.inference import cavi, fold_in
from gsnmf.inference.convergence import find_fall
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

F, N, K, GROUPS = 4, 5, 2, np.array([0, 1, 0, 1, 1])
STEPS = 6
COUNTS = hnp.arrays(float, (F, N), elements=st.one_of(st.integers(0, 20).map(float), st.floats(0, 1e4)))
# A sparse matrix with another number of entries is another program: one pattern for all.
STORED = np.add.outer(np.arange(F), np.arange(N)) % 3 != 1
SEEN = np.add.outer(np.arange(F), 2 * np.arange(N)) % 5 != 0


def gammas(*shape):
    numbers = st.floats(1e-3, 1e4)
    return st.builds(Gamma, hnp.arrays(float, shape, elements=numbers), hnp.arrays(float, shape, elements=numbers))


@st.composite
def problems(draw):
    """Data, priors and a start, all from a wide range."""
    priors = Priors(draw(gammas(F, K)), GroupSparse(draw(gammas(K, 2))))
    shapes = {"T": (F, K), "V": (K, N), "lam": (K, 2)}
    means = {site: draw(hnp.arrays(float, shape, elements=st.floats(1e-3, 1e3))) for site, shape in shapes.items()}
    return draw(COUNTS), priors, means


def fitted(X, priors, means, groups=GROUPS, accelerate=False, mask=None):
    data = as_data(X, groups, mask=mask)
    return cavi.run(data, priors, start=cavi.start(**means), max_steps=STEPS, tol=None, accelerate=accelerate)


def agree(one, two, rtol=1e-8):
    for site in ("T", "V", "lam"):
        for ours, theirs in zip(getattr(one, site), getattr(two, site), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=rtol, err_msg=site)


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems(), st.booleans())
def test_bound_never_falls_and_factors_are_positive(problem, accelerate):
    fit = fitted(*problem, accelerate=accelerate)
    assert find_fall(fit.elbo, 8) is None, fit.elbo
    for factor in fit.posterior.sites.values():
        for values in factor:
            assert np.isfinite(values).all()
            assert (np.asarray(values) > 0).all()


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems())
def test_dense_and_sparse_data_have_the_same_fit(problem):
    X, priors, means = problem
    X = np.where(STORED, X + 0.5, 0)
    dense, sparse = (fitted(form(X), priors, means, mask=SEEN) for form in (np.asarray, scipy.sparse.csr_array))
    agree(dense.posterior, sparse.posterior)
    np.testing.assert_allclose(sparse.elbo, dense.elbo, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems(), st.permutations(range(F)), st.permutations(range(N)), st.permutations(range(K)))
def test_order_of_features_samples_and_components_does_not_matter(problem, f, n, k):
    X, (dictionary, coefficients), means = problem
    one = fitted(X, Priors(dictionary, coefficients), means)
    f, n, k = map(np.array, (f, n, k))
    moved = Priors(
        Gamma(*(x[np.ix_(f, k)] for x in dictionary)), GroupSparse(Gamma(*(x[k] for x in coefficients.rate)))
    )
    means = {"T": means["T"][np.ix_(f, k)], "V": means["V"][np.ix_(k, n)], "lam": means["lam"][k]}
    two = fitted(X[np.ix_(f, n)], moved, means, GROUPS[n])
    np.testing.assert_allclose(two.elbo, one.elbo, rtol=1e-9)
    np.testing.assert_allclose(two.posterior.T.mean, np.asarray(one.posterior.T.mean)[np.ix_(f, k)], rtol=1e-8)
    np.testing.assert_allclose(two.posterior.V.mean, np.asarray(one.posterior.V.mean)[np.ix_(k, n)], rtol=1e-8)
    np.testing.assert_allclose(two.posterior.lam.mean, np.asarray(one.posterior.lam.mean)[k], rtol=1e-8)


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems(), st.floats(1e-3, 1e3))
def test_units_of_the_dictionary_do_not_matter(problem, c):
    """Scales of T and λ times c, V over c: the same model of X, so the same bound, in other units."""
    X, (dictionary, coefficients), means = problem
    one = fitted(X, Priors(dictionary, coefficients), means)
    scaled = Priors(
        Gamma(dictionary.a, dictionary.b * c), GroupSparse(Gamma(coefficients.rate.a, coefficients.rate.b * c))
    )
    two = fitted(X, scaled, {"T": means["T"] * c, "V": means["V"] / c, "lam": means["lam"] * c})
    # Every bound is a sum of terms that may be as large as those of the first, and is rounded like them.
    np.testing.assert_allclose(two.elbo, one.elbo, rtol=1e-9, atol=1e-9 * np.abs(one.elbo).max())
    for site, by in {"T": c, "V": 1 / c, "lam": c}.items():
        expected = np.asarray(getattr(one.posterior, site).mean) * by
        # Means may drift along a flat bound, which itself agrees to 1e-9: its square root is the order of their error.
        np.testing.assert_allclose(getattr(two.posterior, site).mean, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems())
def test_last_bound_is_the_bound_of_the_result(problem):
    fit = fitted(*problem)
    assert cavi.bound(fit, as_data(problem[0], GROUPS)) == pytest.approx(fit.elbo[-1], rel=1e-10)


@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
@given(problems(), COUNTS, st.permutations(range(N)))
def test_projections_of_samples_are_independent_and_rise(problem, X, order):
    fit, order = fitted(*problem), np.array(order)
    long, short = (fold_in(fit, X, max_steps=steps, tol=0.0) for steps in (20, 3))
    other = fold_in(fit, np.where(np.arange(N) == 2, X, X[:, order] + 1), max_steps=20, tol=0.0)
    turned = fold_in(fit, X[:, order], max_steps=20, tol=0.0)
    size = 1e-9 * np.abs(long.bound).max()
    assert (np.asarray(long.bound) >= np.asarray(short.bound) - size).all()
    np.testing.assert_allclose(other.bound[2], long.bound[2], rtol=1e-9)
    np.testing.assert_allclose(turned.bound, np.asarray(long.bound)[order], rtol=1e-9)
    np.testing.assert_allclose(turned.V.mean, np.asarray(long.V.mean)[:, :, order], rtol=1e-8)
    assert (np.asarray(long.V.mean) > 0).all()
    np.testing.assert_allclose(long.class_posterior().sum(axis=1), 1, rtol=1e-9)


def test_examples_are_the_same_in_every_run():
    """By the profile in conftest.py: an example that others cannot repeat would be a flake."""
    assert settings().derandomize
    assert settings().database is None
