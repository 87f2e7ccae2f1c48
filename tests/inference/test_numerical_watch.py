"""Extremes: counts of 10⁹, X in any unit, hyperparameters from 10⁻⁶ to 10⁸, more components than samples.

Every fit is finite and positive, and its bound falls by no more than its terms are rounded. Where that is visible, as
10⁸ log 10⁸ is in a bound of −2, a warning names the cause.
"""

import itertools
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf.inference import cavi
from gsnmf.model import Exponential, Gamma, GroupSparse, Priors, Relevance, as_data

F, N, GROUPS = 6, 8, np.arange(8) % 2
COUNTS = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 6.0, (F, N))).astype(float)
LARGE = np.random.default_rng(2).poisson(1e9 * np.random.default_rng(3).gamma(1.0, 1.0, (F, N))).astype(float)
MATRICES = {"10⁹": LARGE, **{f"× {unit:g}": COUNTS * unit for unit in (1e-6, 1e-3, 1.0, 1e3, 1e6)}}
NUMBERS = (1e-6, 1.0, 1e8)
PARTLY = [0, 1, None, 1, 0, None, 0, 1]
HIDDEN = np.random.default_rng(4).random((F, N)) < 0.2
FAMILIES = {"ARD": Relevance, "exponential": Exponential}


def watched(X, priors, K, groups=GROUPS, hidden=None, **options):
    """Run a fit; return it, and what it said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = as_data(X, groups, hidden=hidden)
        fit = cavi.run(data, priors, key=jax.random.key(0), rank=K, max_steps=20, tol=None, **options)
    return fit, " ".join(str(warning.message) for warning in caught)


def rounding(X, priors, K, eps):
    """How far the terms of the bound are rounded: log Γ of shapes and counts, and products with logarithms."""
    F, N = X.shape

    def size(a, b):
        return a * (1 + abs(np.log(a)) + abs(np.log(b)))

    counts, logarithms = X[X > 0], 20.0  # none is larger
    family = priors.coefficients
    of_V = N * size(*family) if isinstance(family, Gamma) else 2 * size(*family.rate)
    terms = (F + N) * K * size(*priors.dictionary) + K * of_V
    terms += logarithms * (F * K + K * N + 2 * K + F * N) + 2 * counts.sum() + (counts * abs(np.log(counts))).sum()
    return 4 * eps * terms


def complaint(fit, said, X, priors, K):
    """What is wrong with a fit, in words; None for nothing."""
    info = np.finfo(fit.posterior.T.a.dtype)
    if not np.isfinite(fit.elbo).all():
        return f"bound {fit.elbo}"
    if not all(np.isfinite(x).all() and (np.asarray(x) > 0).all() for q in fit.posterior.sites.values() for x in q):
        return "factors that are not positive numbers"
    fall = -np.diff(fit.elbo).min()
    if "shapes of both T and V" in said:  # their product is 0, and so much is said
        return None
    if fall > rounding(X, priors, K, info.eps):
        return f"a fall by {fall:.2g}, where rounding is {rounding(X, priors, K, info.eps):.2g}"
    named = "The bound fell by" in said and "cannot hold its terms" in said
    visible = fall > {4: 1e-3, 8: 1e-9}[info.dtype.itemsize] * max(abs(bound) for bound in fit.elbo)
    return None if named == visible else f"a fall by {fall:.2g}, and {said!r}"


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, N, 2 * N])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("x64", [True, False], ids=["double", "single"])
def test_extremes_are_finite_and_monotone(x64, form, K):
    failed = {}
    with jax.enable_x64(x64):
        for (name, X), a_t, b_t, a_l, b_l in itertools.product(MATRICES.items(), *[NUMBERS] * 4):
            priors = Priors(Gamma(a_t, b_t), GroupSparse(Gamma(a_l, b_l)))
            fit, said = watched(form(X), priors, K)
            found = complaint(fit, said, X, priors, K)
            if found is not None:
                failed[name, a_t, b_t, a_l, b_l] = found
    assert not failed, (len(failed), dict(itertools.islice(failed.items(), 8)))


def check_kinds(kind, matrices, numbers):
    """Fit other kinds of data, priors and sweeps at these extremes; raise if some fit is wrong."""
    failed = {}
    for name, a_t, a_v, b in itertools.product(matrices, *[numbers] * 3):
        X = MATRICES[name]
        form = scipy.sparse.csr_array if "sparse" in kind else np.asarray
        hidden = scipy.sparse.csr_array(HIDDEN) if "masked" in kind else None
        family, rate = FAMILIES.get(kind, GroupSparse), Gamma(a_v, b)
        priors = Priors(Gamma(a_t, 1.0), rate if kind == "Gamma" else family(rate))
        groups = PARTLY if "unlabelled" in kind else GROUPS
        fit, said = watched(form(X), priors, 3, groups, hidden, accelerate=kind != "plain")
        found = complaint(fit, said, X, priors, 3)
        if found is not None:
            failed[name, a_t, a_v, b] = found
    assert not failed, (len(failed), dict(itertools.islice(failed.items(), 8)))


KINDS = ["Gamma", "ARD", "exponential", "unlabelled", "masked", "sparse unlabelled", "sparse masked", "plain"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("x64", [True, False], ids=["double", "single"])
def test_extremes_of_other_kinds(x64, kind):
    with jax.enable_x64(x64):
        check_kinds(kind, MATRICES, NUMBERS)


@pytest.mark.parametrize("kind", ["Gamma", "masked"])
def test_some_extremes(kind):
    check_kinds(kind, ["10⁹", "× 1e-06"], (1e-6, 1e8))
