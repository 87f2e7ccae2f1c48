"""Extremes: counts of 10⁹, X in any unit, hyperparameters from 10⁻⁶ to 10⁸, more components than samples.

A fit is finite, positive and its bound does not fall by more than rounding; or the fit says what went wrong, in a
warning that names the cause.
"""

import itertools
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf.inference import cavi
from gsnmf.inference.engine import find_fall
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

pytestmark = pytest.mark.slow
F, N, GROUPS = 6, 8, np.arange(8) % 2
COUNTS = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 6.0, (F, N))).astype(float)
LARGE = np.random.default_rng(2).poisson(1e9 * np.random.default_rng(3).gamma(1.0, 1.0, (F, N))).astype(float)
MATRICES = {"10⁹": LARGE, **{f"× {unit:g}": COUNTS * unit for unit in (1e-6, 1e-3, 1.0, 1e3, 1e6)}}
NUMBERS = (1e-6, 1.0, 1e8)


def watched(X, priors, K):
    """Run a fit; return it, and what it said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = cavi.run(as_data(X, GROUPS), priors, key=jax.random.key(0), rank=K, max_steps=20, tol=None)
    return fit, " ".join(str(warning.message) for warning in caught)


def faults(fit, itemsize):
    """What is wrong with a fit, in the words of its warning."""
    found = set()
    if find_fall(fit.elbo, itemsize) is not None:
        found.add("fell")
    factors = [np.asarray(values) for q in fit.posterior.sites.values() for values in q]
    if not np.isfinite(fit.elbo).all() or not all(np.isfinite(x).all() and (x > 0).all() for x in factors):
        found.add("became")
    return found


@pytest.mark.parametrize("K", [1, N, 2 * N])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("x64", [True, False], ids=["double", "single"])
def test_extremes_are_finite_and_monotone_or_named(x64, form, K):
    failed = {}
    with jax.enable_x64(x64):
        for (name, X), a_t, b_t, a_l, b_l in itertools.product(MATRICES.items(), *[NUMBERS] * 4):
            fit, said = watched(form(X), Priors(Gamma(a_t, b_t), GroupSparse(Gamma(a_l, b_l))), K)
            found = faults(fit, 8 if x64 else 4)
            if found and not (said and any(word in said for word in found)):
                failed[name, a_t, b_t, a_l, b_l] = found, said
    assert not failed, (len(failed), dict(itertools.islice(failed.items(), 5)))
