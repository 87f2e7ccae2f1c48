import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from gsnmf.model import (
    Exponential,
    Gamma,
    GroupSparse,
    Priors,
    Relevance,
    as_data,
    by_scale,
    label_driven,
    matching,
    relative_rates,
    unit_of,
)
from gsnmf.model.conjugacy import expected, negative_kl
from gsnmf.model.priors import canonical
from gsnmf.model.problem import Problem

A, B = np.array([0.1, 1.0, 30.0]), np.array([3.0, 1e-3, 1e6])


def test_gamma_moments_are_those_of_shape_and_scale():
    gamma = Gamma(A, B)
    np.testing.assert_allclose(gamma.mean, scipy.stats.gamma(A, scale=B).mean())
    np.testing.assert_allclose(gamma.distribution().mean, gamma.mean)
    numeric = [scipy.stats.loggamma(a).mean() + np.log(b) for a, b in zip(A, B, strict=True)]
    np.testing.assert_allclose(gamma.log_mean, numeric)


def test_negative_kl_agrees_with_numpyro():
    q, p = Gamma(A, B), Gamma(A[::-1] + 0.5, 2 * B)
    np.testing.assert_allclose(
        negative_kl(q, expected(p)), -dist.kl_divergence(q.distribution(), p.distribution()), rtol=1e-10
    )


def test_label_driven_is_the_papers_11():
    rates = label_driven(per_group=3, num_groups=15, small=32.0, large=256.0, scale=1e6)
    assert rates.a.shape == rates.b.shape == (45, 15)
    assert (rates.b == 1e6).all()
    for i in range(45):
        assert rates.a[i].tolist() == [32.0 if c == i // 3 else 256.0 for c in range(15)]


def test_label_driven_shares_components_out_when_they_do_not_divide():
    assert (label_driven(rank=7, num_groups=3).a == 32).sum(axis=0).tolist() == [3, 2, 2]
    assert (label_driven(per_group=[1, 0, 2], num_groups=3).a == 32).sum(axis=0).tolist() == [1, 0, 2]
    assert label_driven(per_group=[2, 3]).a.shape == (5, 2)


BAD_LABEL_DRIVEN = {
    "num_groups to be a whole number ≥ 1; got 0": {"per_group": 3, "num_groups": 0},
    "either per_group or rank; got per_group=None, rank=None": {"num_groups": 2},
    "either per_group or rank; got per_group=1, rank=2": {"per_group": 1, "rank": 2, "num_groups": 2},
    "a whole number or 2 of them; got 1.5": {"per_group": 1.5, "num_groups": 2},
    "a whole number or 2 of them; got .1, 1, 1.": {"per_group": [1, 1, 1], "num_groups": 2},
    "at least one component; got per_group=0": {"per_group": 0, "num_groups": 2},
    "rank to be a whole number ≥ 1; got -1": {"rank": -1, "num_groups": 2},
    "rank to be a whole number ≥ 1; got 2.5": {"rank": 2.5, "num_groups": 2},
    "num_groups to be a whole number ≥ 1; got None": {"per_group": 2},
    "num_groups to be a whole number ≥ 1; got 'a'": {"per_group": 2, "num_groups": "a"},
    "small to be a positive number; got 0": {"per_group": 1, "num_groups": 2, "small": 0},
    "large to be a positive number; got -1": {"per_group": 1, "num_groups": 2, "large": -1},
    "scale to be a positive number; got nan": {"per_group": 1, "num_groups": 2, "scale": np.nan},
}


@pytest.mark.parametrize("message", BAD_LABEL_DRIVEN)
def test_label_driven_refuses(message):
    with pytest.raises(ValueError, match=message):
        label_driven(**BAD_LABEL_DRIVEN[message])


DATA = as_data(np.ones((5, 6)), [0, 0, 1, 1, 2, 2])
T, V, L = np.ones((5, 4)), np.ones((4, 6)), np.ones((4, 3))


@pytest.mark.parametrize(
    ("priors", "rank", "expected"),
    [
        (Priors(Gamma(1.0, T), GroupSparse(Gamma(1.0, 1.0))), None, 4),
        (Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(L, 1.0))), None, 4),
        (Priors(Gamma(1.0, 1.0), Gamma(1.0, V[:, :1])), None, 4),
        (Priors(Gamma(1.0, T[:, :1]), Gamma(1.0, 1.0)), None, 1),
        (Priors(Gamma(1.0, T[:, :1]), Gamma(1.0, V)), None, 4),
        (Priors(Gamma(1.0, T[:, :1]), Gamma(1.0, 1.0)), 7, 7),
        (Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(L[:1], 1.0))), 7, 7),
        (Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), 2, 2),
        (Priors(Gamma(T[0], 1.0), Gamma(1.0, V[0])), None, 4),
    ],
)
def test_rank_comes_from_the_priors_when_they_fix_it(priors, rank, expected):
    assert Problem(DATA, priors, rank).rank == expected


OK = Gamma(1.0, 1.0)
BAD_PRIORS = {
    "rank, as no prior's shape fixes": (Priors(OK, OK), None),
    "one number of components; got rank=3": (Priors(Gamma(T, 1.0), OK), 3),
    "one number of components; got rank=None": (Priors(Gamma(T, 1.0), Gamma(V[:2], 1.0)), None),
    "rank to be a whole number ≥ 1; got 0": (Priors(OK, OK), 0),
    "rank to be a whole number ≥ 1; got 2.5": (Priors(OK, OK), 2.5),
    "dictionary.a to be positive and finite in float64; got 0": (Priors(Gamma(0.0, 1.0), OK), 2),
    "dictionary.b to be positive and finite in float64; got -1": (Priors(Gamma(1.0, -1.0), OK), 2),
    "coefficients.a to be positive and finite in float64; got nan": (Priors(OK, GroupSparse(Gamma(np.nan, 1.0))), 2),
    "coefficients.b to be positive and finite in float64; got inf": (Priors(OK, Gamma(1.0, np.inf)), 2),
    "coefficients.a to be positive and finite in float64; got 'a'": (Priors(OK, Gamma("a", 1.0)), 2),
    r"dictionary.a to broadcast to features × components, \(5, 4\); got shape \(3, 4\)": (
        Priors(Gamma(T[:3], 1.0), OK),
        None,
    ),
    r"dictionary.b to broadcast to features × components, \(5, 2\); got shape \(2, 5, 2\)": (
        Priors(Gamma(1.0, np.ones((2, 5, 2))), OK),
        2,
    ),
    r"coefficients.a to broadcast to components × groups, \(4, 3\); got shape \(4, 6\)": (
        Priors(OK, GroupSparse(Gamma(V, 1.0))),
        None,
    ),
    r"coefficients.a to broadcast to components × samples, \(4, 6\); got shape \(4, 3\)": (
        Priors(OK, Gamma(L, 1.0)),
        None,
    ),
    r"Priors\(dictionary=Gamma": ((OK, OK), 2),
    r"the dictionary to be a Gamma or a NumPyro distribution; got GroupSparse": (Priors(GroupSparse(OK), OK), 2),
    "the dictionary to be a Gamma or a NumPyro distribution; got Exponential": (Priors(Exponential(OK), OK), 2),
    "coefficients to be GroupSparse, Relevance, .* or a NumPyro distribution; got 3": (Priors(OK, 3), 2),
    "coefficients to be GroupSparse, .*; got <class .*GroupSparse": (Priors(OK, GroupSparse), 2),
    r"prior of λ to be a Gamma or a NumPyro distribution; got 2.0": (Priors(OK, GroupSparse(2.0)), 2),
    r"the rate of the coefficients to be positive and finite in float64; got -1": (Priors(OK, Exponential(-1.0)), 2),
    r"the dictionary to be a distribution of single numbers on all of .* got Normal": (Priors(dist.Normal(), OK), 2),
    r"on all of .* got Uniform with support": (Priors(OK, dist.Uniform(0.0, 1.0)), 2),
    r"on all of .* got Poisson": (Priors(OK, GroupSparse(dist.Poisson(1.0))), 2),
    r"on all of .* got Independent .* event shape \(2,\)": (Priors(dist.Gamma(np.ones(2)).to_event(1), OK), 2),
    r"coefficients to broadcast to components × groups, \(4, 3\); got shape \(4, 6\)": (
        Priors(OK, GroupSparse(dist.HalfCauchy(V))),
        None,
    ),
    r"coefficients.a to broadcast to components × all samples, \(4, 1\); got shape \(4, 3\)": (
        Priors(OK, Relevance(Gamma(L, 1.0))),
        None,
    ),
}


@pytest.mark.parametrize("message", BAD_PRIORS)
def test_bad_priors_are_refused(message):
    priors, rank = BAD_PRIORS[message]
    with pytest.raises(ValueError, match=message):
        Problem(DATA, priors, rank)


def test_lists_are_matrices():
    _, priors, K = Problem(DATA, Priors(Gamma([0.5, 0.6], 1.0), GroupSparse(Gamma([[1.0] * 3, [2.0] * 3], 1.0))))
    assert K == 2
    assert priors.dictionary.a.shape == (1, 2)
    assert priors.coefficients.rate.a.shape == (2, 3)


def test_groups_are_required_only_by_priors_that_use_them():
    without = as_data(np.ones((5, 6)))
    assert Problem(without, Priors(OK, OK), 2).rank == 2
    with pytest.raises(ValueError, match="data with groups, as_data"):
        Problem(without, Priors(OK, GroupSparse(OK)), 2)


def test_values_are_checked_in_the_precision_they_are_used_in():
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"dictionary.b to be positive and finite in float32; got 1.e.60"):
            Problem(DATA, Priors(Gamma(1.0, 1e60), OK), 2)
        for X, message in (
            (1e300, r"expected X below 3.4e.38"),
            (1e36, r"expected entries of X that add up to 3.8e.36 at most at this precision; got 4.0e.36"),
            (1e-40, r"expected X above 1.2e-38, the smallest number at this precision; got 1e-40 at most"),
        ):
            with pytest.raises(ValueError, match=message):
                Problem(as_data(X * np.ones((2, 2))), Priors(OK, OK), 2)


def test_data_must_come_through_its_door():
    with pytest.raises(ValueError, match="expected Data, as made by as_data"):
        Problem(np.ones((5, 6)), Priors(OK, OK), 2)


@pytest.mark.parametrize(("x64", "dtype"), [(False, np.float32), (True, np.float64)])
def test_everything_is_cast_to_the_precision_jax_is_set_to(x64, dtype):
    with jax.enable_x64(x64):
        leaves = jax.tree.leaves(Problem(DATA, Priors(Gamma(T, 1), GroupSparse(Gamma(1, 2.0)))))
        assert {leaf.dtype for leaf in leaves} == {np.dtype(dtype)}
        assert all(leaf.ndim == 2 for leaf in leaves)


def test_relative_rates_are_the_same_share_of_counts_whatever_unit_and_group_sizes():
    """aˡ/N_c counts are taken from a sample of S̄ counts: the quotient is the share, in any unit."""
    X, groups = np.random.default_rng(0).uniform(size=(5, 9)), np.repeat([0, 1, 2], [1, 3, 5])
    for unit in (1.0, 255.0):
        data = as_data(X * unit, groups)
        rates = relative_rates(data, per_group=[1, 0, 2], small=0.02, large=0.3, scale=7.0)
        shares = rates.a / data.group_sizes / (X.sum(axis=0).mean() * unit)
        np.testing.assert_allclose(shares, label_driven([1, 0, 2], 3, 0.02, 0.3).a)
        assert (rates.b == 7.0).all()
    assert relative_rates(data, rank=4).a.shape == (4, 3)
    assert (relative_rates(as_data(0 * X, groups), 1).a > 0).all()  # no counts at all: a prior all the same
    assert (relative_rates(as_data(X, groups, group_names=[0, 1, 2, 3]), 1).a > 0).all()  # nor samples of a group
    with pytest.raises(ValueError, match="expected data with groups"):
        relative_rates(as_data(X), 1)
    with pytest.raises(ValueError, match="expected small to be a positive number; got -1"):
        relative_rates(data, 1, small=-1)


def test_matching_makes_the_prior_mean_of_TV_that_of_X():
    data, dictionary = as_data([[1.0, 2.0, 6.0]]), Gamma(np.array([[0.5, 1.5]]), 4.0)
    V = matching(data, dictionary, rank=2)
    np.testing.assert_allclose(dictionary.mean.sum() * V.mean, 3.0)
    assert V.a == 1.0
    assert matching(data, dist.LogNormal(0.0, 1e-6), rank=3).b == pytest.approx(1.0)  # its median is 1
    assert matching(as_data([[0.0]]), dictionary, 2) == (1.0, 1.0)  # no counts at all: a prior all the same
    for rank in (0, 1.5):
        with pytest.raises(ValueError, match=f"expected rank to be a whole number ≥ 1; got {rank}"):
            matching(data, dictionary, rank)


def test_numpyros_gammas_and_exponentials_are_ours():
    """So that closed forms apply to them."""
    rate = np.array([[2.0, 4.0]])
    law = dist.Gamma(3.0, rate).expand((5, 2))
    priors = canonical(Priors(law, GroupSparse(dist.Exponential(4.0))))
    np.testing.assert_allclose(priors.dictionary.a, np.full((5, 2), 3.0))
    np.testing.assert_allclose(priors.dictionary.b, np.broadcast_to(1 / rate, (5, 2)))
    np.testing.assert_allclose(priors.coefficients.rate, (1.0, 0.25))
    x = np.array([[0.3, 2.0]])
    np.testing.assert_allclose(priors.dictionary.distribution().log_prob(x), law.log_prob(x))
    np.testing.assert_allclose(canonical(Priors(OK, Exponential([4.0, 5.0]))).coefficients.b, [0.25, 0.2])


def test_other_distributions_say_how_many_components_there_are():
    _, priors, K = Problem(DATA, Priors(dist.LogNormal(np.zeros((1, 4)), 1.0), GroupSparse(dist.HalfCauchy(1.0))))
    assert K == 4
    assert priors.dictionary.distribution().batch_shape == (5, 4)
    assert priors.coefficients.rate.distribution().batch_shape == (4, 3)
    assert priors.coefficients.rate.name == "HalfCauchy"
    assert {leaf.dtype for leaf in jax.tree.leaves(priors)} == {np.dtype(float)}


def test_an_inverse_gamma_of_scales_is_the_gamma_of_rates():
    """The density of λ = 1/θ, by the change of variables and as the conjugate prior."""
    lam = np.array([0.2, 1.0, 7.0])
    theta = dist.InverseGamma(2.0, 4.0)
    by_hand = theta.log_prob(1 / lam) - 2 * np.log(lam)
    np.testing.assert_allclose(by_scale(theta).distribution().log_prob(lam), by_hand, rtol=1e-10)
    larger = by_scale(theta.expand((2, 3)))
    assert [np.shape(x) for x in larger] == [(2, 3)] * 2
    np.testing.assert_allclose(larger.distribution().log_prob(lam[None, :]), [by_hand] * 2, rtol=1e-10)
    other = dist.HalfCauchy(3.0)
    np.testing.assert_allclose(by_scale(other).log_prob(lam), other.log_prob(1 / lam) - 2 * np.log(lam), rtol=1e-10)
    np.testing.assert_allclose(by_scale(other).log_prob(lam), dist.HalfCauchy(1 / 3.0).log_prob(lam), rtol=1e-10)
    with pytest.raises(ValueError, match=r"the prior of scales to be a NumPyro distribution; got 2.0"):
        by_scale(2.0)


def test_unit_of_makes_the_mean_what_is_asked_for():
    X = np.array([[1.0, np.nan], [3.0, 2.0]])
    np.testing.assert_allclose(np.nanmean(X * unit_of(X, 50.0)), 50.0)
    assert unit_of(np.ma.masked_array([[1, 77], [3, 2]], np.isnan(X))) == unit_of(X)
    assert unit_of(0 * X) == 1.0
    with pytest.raises(ValueError, match=r"expected X to be nonnegative; got -2.0"):
        unit_of([[1.0, -2.0], [np.nan, 3.0]])
    with pytest.raises(ValueError, match="positive number of counts; got -1"):
        unit_of(X, -1)
