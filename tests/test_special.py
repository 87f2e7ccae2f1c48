import jax
import numpy as np
import pytest
import scipy.special

from gsnmf.model.special import digamma, digamma_gammaln, gammaln

# Where a function crosses zero its own rounding is absolute, so errors are taken relative to max(1, |f|).
# Single precision: a handful of roundings of terms up to 5 (the recurrence), each 6e-8. Double likewise.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_functions_agree_with_scipy(dtype):
    x = np.logspace(-6, 8, 20001).astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        ours = [np.asarray(f, float) for f in jax.jit(digamma_gammaln)(x)]
    for f, reference in zip(ours, (scipy.special.digamma, scipy.special.gammaln), strict=True):
        expected = reference(x.astype(float))
        assert f.shape == x.shape
        np.testing.assert_array_less(abs(f - expected) / np.maximum(1, abs(expected)), TOLERANCE[dtype])


def test_special_functions_keep_the_precision_of_their_argument():
    assert digamma(np.float32(2)).dtype == np.float32
    assert gammaln(np.float64(2)).dtype == np.float64


def test_digamma_is_the_slope_of_gammaln():
    x = np.logspace(-2, 3, 7)
    np.testing.assert_allclose(jax.vmap(jax.grad(gammaln))(x), digamma(x), rtol=1e-12)
