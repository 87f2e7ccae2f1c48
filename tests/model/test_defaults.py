import numpy as np
import pytest

from gsnmf.model import (
    Gamma,
    GroupSparse,
    Priors,
    as_data,
    common_and_individual,
    default_priors,
    label_driven,
    matching,
    relative_rates,
    structured,
)
from gsnmf.model.defaults import A_T, B_T, RANK, SHAPES

X = np.random.default_rng(0).poisson(6.0, size=(5, 9)).astype(float)
GROUPS = list("aaaabbbcc")
UNLABELLED = [*"aaa", None, *"bb", None, *"cc"]
T = Gamma(0.6, 20.0)


def same(priors, expected):
    """Every number of both, whatever holds them."""
    assert type(priors.coefficients) is type(expected.coefficients)
    assert priors.dictionary == expected.dictionary
    grouped = isinstance(expected.coefficients, GroupSparse)
    found, wanted = (p.coefficients.rate if grouped else p.coefficients for p in (priors, expected))
    np.testing.assert_array_equal(found.a, wanted.a)
    np.testing.assert_array_equal(found.b, wanted.b)


@pytest.mark.parametrize("groups", [GROUPS, UNLABELLED], ids=["labelled", "unlabelled"])
def test_with_groups_it_is_the_papers_prior_in_the_unit_of_the_data(groups):
    data = as_data(X, groups)
    same(default_priors(data), Priors(T, GroupSparse(relative_rates(data, 3, 1e-3, 1e-2, 1e6))))
    same(default_priors(data, prior="paper"), Priors(T, GroupSparse(label_driven(3, 3, 32.0, 256.0, 1e6))))


def test_by_hand():
    """aˡ_ic = fraction · mean counts of a sample · N_c, smaller where i is bound to c."""
    a = default_priors(as_data(X, GROUPS), per_group=1).coefficients.rate.a
    for i in range(3):
        for c, N_c in enumerate((4, 3, 2)):
            assert a[i, c] == pytest.approx((0.001 if i == c else 0.01) * X.sum() / 9 * N_c, rel=1e-12)


@pytest.mark.parametrize("rank", [None, 4])
def test_without_groups_it_is_matching(rank):
    data = as_data(X)
    same(default_priors(data, rank=rank), Priors(T, matching(data, T, rank or 10)))
    own = Gamma(2.0, 0.5)
    same(default_priors(data, rank=rank, a_t=2.0, b_t=0.5, prior="paper"), Priors(own, matching(data, own, rank or 10)))
    assert RANK == 10
    assert (A_T, B_T) == (0.6, 20.0)


def test_numbers_of_components():
    data = as_data(X, GROUPS)

    def shape(**options):
        return default_priors(data, **options).coefficients.rate.a.shape

    assert shape() == (9, 3)
    assert shape(per_group=2) == (6, 3)
    assert shape(per_group=[1, 0, 3]) == (4, 3)
    assert shape(rank=5) == shape(rank=5, per_group=2) == (5, 3)
    assert shape(common=2) == (11, 3)
    assert shape(common=2, rank=5) == (5, 3)


@pytest.mark.parametrize(("small", "large"), [(None, None), (0.2, None), (None, 0.3), (0.2, 0.3)])
@pytest.mark.parametrize("prior", ["relative", "paper"])
@pytest.mark.filterwarnings("ignore:small=.* is above large=")
def test_small_and_large_are_in_the_unit_of_the_prior(prior, small, large):
    data = as_data(X, GROUPS)
    values = [default if given is None else given for given, default in zip((small, large), SHAPES[prior], strict=True)]
    structure = common_and_individual(1, 2, 3)
    expected = (
        structured(structure, *values, 7.0)
        if prior == "paper"
        else relative_rates(data, None, *values, 7.0, structure=structure)
    )
    found = default_priors(data, common=1, per_group=2, prior=prior, small=small, large=large, scale=7.0)
    same(found, Priors(T, GroupSparse(expected)))


def test_the_unit_of_X_multiplies_relative_shapes_and_leaves_the_papers():
    one, other = as_data(X, GROUPS), as_data(255 * X, GROUPS)
    for prior, factor in {"relative": 255, "paper": 1}.items():
        a, b = (default_priors(data, prior=prior).coefficients.rate.a for data in (one, other))
        np.testing.assert_allclose(b, factor * a, rtol=1e-12)
    scales = [default_priors(as_data(Y)).coefficients.b for Y in (X, 255 * X)]
    assert scales[1] == pytest.approx(255 * scales[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "flat"}, "expected prior to be one of 'relative', 'paper'; got 'flat'"),
        ({"prior": None}, "expected prior to be one of 'relative', 'paper'; got None"),
        ({"small": 0.0}, "expected small to be a positive number; got 0.0"),
        ({"large": -1.0, "prior": "paper"}, "expected large to be a positive number; got -1.0"),
        ({"per_group": 0}, "expected at least one component; got per_group=0"),
        ({"rank": 0}, "expected rank to be a whole number ≥ 1; got 0"),
        ({"common": -1}, "expected num_common to be a whole number ≥ 0; got -1"),
        ({"data": X}, "expected Data, as made by as_data; got ndarray"),
    ],
    ids=str,
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        default_priors(**{"data": as_data(X, GROUPS)} | options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"small": 0.02},
            r"small=0.02 is above large=0.01 \(the default\): components are shrunk most in their own groups",
        ),
        ({"prior": "paper", "large": 8.0}, r"small=32 \(the default\) is above large=8:"),
        (
            {"large": 40.0},
            r"small=0.001 \(the default\) and large=40 are read as fractions of a sample's counts, which are below 1",
        ),
    ],
)
def test_shrinkage_that_is_rarely_meant_is_said(options, said):
    with pytest.warns(UserWarning, match=said) as caught:
        default_priors(as_data(X, GROUPS), **options)
    assert [warning.filename for warning in caught] == [__file__]


def test_shrinkage_at_the_limit_is_not_said():
    default_priors(as_data(X, GROUPS), small=0.01)
