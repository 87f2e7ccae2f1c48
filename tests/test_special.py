import jax
import numpy as np
import pytest
import scipy.special

from gsnmf.model.special import digamma, digamma_entropy, exp_digamma, gammaln

# Where a function crosses zero its own rounding is absolute, so errors are taken relative to max(1, |f|).
# Single precision: a handful of roundings of terms up to 5 (the recurrence), each 6e-8. Double likewise.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_functions_agree_with_scipy(dtype):
    x = np.logspace(-6, 8, 20001).astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        psi, entropy = (np.asarray(f, float) for f in jax.jit(digamma_entropy)(x))
        lgamma, exp_psi = (np.asarray(jax.jit(f)(x), float) for f in (gammaln, exp_digamma))
    x = x.astype(float)
    for ours, reference, slack in (
        (psi, scipy.special.digamma(x), 0),
        (lgamma, scipy.special.gammaln(x), 0),
        (entropy, gamma_entropy(x), 1e-13),  # the reference itself cancels terms of the size of 100 log 100
    ):
        error = abs(ours - reference) / np.maximum(1, abs(reference))
        np.testing.assert_array_less(error, TOLERANCE[dtype] + slack)
    # exp turns the rounding of its argument, |ψ| times the unit roundoff, into a relative error.
    reference = scipy.special.digamma(x)
    usable = reference > -80
    error = abs(exp_psi / np.exp(reference, where=usable, out=np.ones_like(x)) - 1)
    np.testing.assert_array_less((error / np.maximum(1, abs(reference)))[usable], TOLERANCE[dtype])
    assert (exp_psi[reference < -800] == 0).all()


def gamma_entropy(x):
    """SciPy's, and beyond 100, where that cancels, the series ½ log 2πex − 1/(3x) − 1/(12x²) − 1/(90x³) + …"""
    small = np.minimum(x, 100)
    exact = small + scipy.special.gammaln(small) + (1 - small) * scipy.special.digamma(small)
    large = np.maximum(x, 100)
    series = 0.5 * np.log(2 * np.pi * np.e * large) - 1 / (3 * large) - 1 / (12 * large**2) - 1 / (90 * large**3)
    series += 1 / (120 * large**4) + 1 / (210 * large**5)
    return np.where(x < 100, exact, series)


def test_exp_digamma_is_shifted_before_it_underflows():
    with jax.enable_x64(False):
        x = np.float32(1e-4)
        assert exp_digamma(x) == 0
        # exp(ψ(x) + 1/x) = exp(−γ + O(x)); single precision keeps 4 digits of a difference of 10⁴.
        np.testing.assert_allclose(exp_digamma(x, -1 / x), np.exp(-np.euler_gamma), rtol=3e-3)


def test_special_functions_keep_the_precision_of_their_argument():
    assert digamma(np.float32(2)).dtype == np.float32
    assert gammaln(np.float64(2)).dtype == np.float64


def test_digamma_is_the_slope_of_gammaln():
    x = np.logspace(-2, 3, 7)
    np.testing.assert_allclose(jax.vmap(jax.grad(gammaln))(x), digamma(x), rtol=1e-12)
