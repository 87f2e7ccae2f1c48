import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from gsnmf.model.special import digamma, gammaln, log, log_entropy

# Where a function crosses zero its own rounding is absolute, so errors are taken relative to max(1, |f|).
# Single precision: a handful of roundings of terms up to 5 (the recurrence), each 6e-8. Double likewise.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_functions_agree_with_scipy(dtype):
    x = np.logspace(-6, 8, 20001).astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        ours = [jax.jit(f)(x) for f in (digamma, gammaln, lambda x: log_entropy(x) + digamma(x), log)]
        ours = [np.asarray(f, float) for f in ours]
    x = x.astype(float)
    references = scipy.special.digamma(x), scipy.special.gammaln(x), gamma_entropy(x), np.log(x)
    slack = 0, 0, 1e-13, 0  # SciPy's entropy cancels terms of the size of 100 log 100
    for f, reference, more in zip(ours, references, slack, strict=True):
        error = abs(f - reference) / np.maximum(1, abs(reference))
        np.testing.assert_array_less(error, TOLERANCE[dtype] + more)


def test_the_logarithm_over_the_whole_range():
    x = np.concatenate([np.logspace(-307, 308, 50001), 2.0 ** np.arange(-1022, 1024), 1 + np.linspace(-0.5, 0.5, 999)])
    np.testing.assert_allclose(log(jnp.asarray(x)), np.log(x), rtol=5e-16, atol=1e-16)  # two units in the last place
    np.testing.assert_allclose(jax.grad(log)(3.0), 1 / 3)


def gamma_entropy(x):
    """SciPy's, and beyond 100, where that cancels, the series ½ log 2πex − 1/(3x) − 1/(12x²) − 1/(90x³) + …"""
    small = np.minimum(x, 100)
    exact = small + scipy.special.gammaln(small) + (1 - small) * scipy.special.digamma(small)
    large = np.maximum(x, 100)
    series = 0.5 * np.log(2 * np.pi * np.e * large) - 1 / (3 * large) - 1 / (12 * large**2) - 1 / (90 * large**3)
    series += 1 / (120 * large**4) + 1 / (210 * large**5)
    return np.where(x < 100, exact, series)


def test_digamma_takes_a_scale_with_it():
    x = np.logspace(-3, 3, 7)
    np.testing.assert_allclose(digamma(x, 2.0), scipy.special.digamma(x) + np.log(2), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_arguments_do_not_overflow(dtype):
    with jax.enable_x64(dtype is np.float64):
        x = np.array([1e20, 1e30], dtype)
        np.testing.assert_allclose(digamma(x), np.log(x), rtol=1e-6)
        np.testing.assert_allclose(log_entropy(x), 0.5 * np.log(2 * np.pi * np.e / x.astype(float)), rtol=1e-5)
        assert np.isfinite(gammaln(x)).all()


def test_special_functions_keep_the_precision_of_their_argument():
    assert digamma(np.float32(2)).dtype == np.float32
    assert gammaln(np.float64(2)).dtype == np.float64


def test_digamma_is_the_slope_of_gammaln():
    x = np.logspace(-2, 3, 7)
    np.testing.assert_allclose(jax.vmap(jax.grad(gammaln))(x), digamma(x), rtol=1e-12)
