"""Properties of data entry and of priors, for random matrices, masks, labels and hyperparameters (hypothesis)."""

import hypothesis.extra.numpy as hnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, default_priors, label_driven, matching
from gsnmf.model.priors import canonical
from gsnmf.reading import read_labels, read_matrix

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 6))
VALUES = st.one_of(st.integers(0, 30).map(float), st.floats(0, 1e9, allow_subnormal=False))
MATRICES = SHAPES.flatmap(lambda shape: hnp.arrays(float, shape, elements=VALUES))
NAMES = st.text("abcdefghXYZ é-_.", min_size=1, max_size=6).filter(
    lambda name: name.strip() == name and name[0] in "abcXé"
)
POSITIVE = st.floats(1e-6, 1e8)


@st.composite
def masked(draw):
    """A matrix and a mask of its shape, true where it was observed."""
    X = draw(MATRICES)
    return X, draw(hnp.arrays(bool, X.shape).filter(np.any))


def values(data):
    X = data.matrix
    return X.total(), X.mean(), X.num_observed, X.largest()


@given(MATRICES, st.sampled_from(["csr", "csc", "coo", "lil", "dok", "bsr"]))
def test_sparse_and_dense_are_the_same_data(X, form):
    sparse, dense = as_data(getattr(scipy.sparse, f"{form}_array")(X)), as_data(X)
    np.testing.assert_array_equal(scipy.sparse.csr_array(sparse.X.to_scipy()).toarray(), dense.X)
    np.testing.assert_allclose(values(sparse), values(dense), rtol=1e-12)


@given(masked())
def test_all_ways_to_hide_an_entry_are_the_same(given_):
    X, seen = given_
    ways = [
        as_data(np.where(seen, X, np.nan)),
        as_data(X, mask=seen),
        as_data(X, mask=seen.astype(int)),
        as_data(X, hidden=scipy.sparse.coo_array(~seen)),
        as_data(np.ma.masked_array(X, ~seen)),
    ]
    sparse = [
        as_data(scipy.sparse.csr_array(X), mask=seen),
        as_data(scipy.sparse.csc_array(X), hidden=scipy.sparse.csr_array(~seen)),
    ]
    for data in ways:
        np.testing.assert_array_equal(data.X, np.where(seen, X, 0))
        np.testing.assert_array_equal(np.ones(X.shape) if data.mask is None else data.mask, seen)
    for data in ways + sparse:
        assert data.num_observed == seen.sum()
        assert data.matrix.total() == pytest.approx(X[seen].sum(), rel=1e-12)
    for data in ways[1:4] + sparse:
        assert seen.all() if data.held_out is None else len(data.held_out.value) == (~seen).sum()
        if data.held_out is not None:
            np.testing.assert_array_equal(X[data.held_out.feature, data.held_out.sample], data.held_out.value)


@given(MATRICES, st.data())
def test_numbers_that_are_not_counts_are_refused(X, choice):
    bad = choice.draw(st.sampled_from([-1.0, -1e-300, np.inf, -np.inf]))
    X.flat[choice.draw(st.integers(0, X.size - 1))] = bad
    for form in (np.asarray, scipy.sparse.csr_array):
        with pytest.raises(ValueError, match=r"^expected X to be .*; got "):
            as_data(form(X))


@given(
    st.lists(
        st.one_of(st.none(), st.sampled_from("abc"), st.sets(st.sampled_from("abc"), min_size=1)),
        min_size=2,
        max_size=8,
    )
)
def test_labels_become_rows_that_sum_to_one(labels):
    if not any(labels):
        with pytest.raises(ValueError, match=r"^expected .*; got "):
            as_data(np.ones((1, len(labels))), labels)
        return
    data = as_data(np.ones((1, len(labels))), labels)
    membership, names = np.asarray(data.membership), data.names.group.tolist()
    sets = [{label} if isinstance(label, str) else label or set() for label in labels]
    assert names == sorted(set().union(*sets))
    np.testing.assert_allclose(membership.sum(axis=1), 1, rtol=1e-12)
    for row, some, known in zip(membership, sets, data.known, strict=True):
        assert known == bool(some)
        assert {name for name, share in zip(names, row, strict=True) if share > 0} == (some or set(names))
    order = np.argsort([hash((n, 7)) for n in range(len(labels))])
    np.testing.assert_array_equal(
        as_data(np.ones((1, len(labels))), [labels[n] for n in order]).membership, membership[order]
    )


@given(st.data(), MATRICES, st.sampled_from(["csv", "tsv"]))
def test_tables_are_read_as_they_were_written(tmp_path_factory, choice, X, suffix):
    """With names of both axes; 17 digits restore every number."""
    features, samples = (choice.draw(st.lists(NAMES, min_size=n, max_size=n, unique=True)) for n in X.shape)
    path = tmp_path_factory.mktemp("table") / f"X.{suffix}"
    pd.DataFrame(X, features, samples).to_csv(path, sep="," if suffix == "csv" else "\t", float_format="%.17g")
    read = read_matrix(path)
    np.testing.assert_array_equal(read.X, X)
    assert (read.feature_names, read.sample_names) == (features, samples)


@given(
    st.lists(st.sampled_from(["NA", "red", "blue", "red;blue"]), min_size=3, max_size=8).filter(
        lambda x: x.count("red") > 1
    )
)
def test_label_files_and_lists_agree(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("labels") / "y.txt"
    path.write_text("\n".join(lines) + "\n")
    stated = [None if line == "NA" else line.split(";") for line in lines]
    X = np.ones((1, len(lines)))
    np.testing.assert_array_equal(as_data(X, read_labels(path)).membership, as_data(X, stated).membership)


@given(POSITIVE, POSITIVE)
def test_gammas_by_scale_and_by_rate_are_the_same_prior(a, b):
    rate = np.float64(1 / b)
    for prior in canonical(Priors(Gamma(a, b), dist.Gamma(np.float64(a), rate))):
        np.testing.assert_allclose(np.squeeze(prior.a), a, rtol=1e-12)
        np.testing.assert_allclose(np.squeeze(prior.b), b, rtol=1e-12)


@given(st.integers(1, 4), st.integers(1, 5), st.floats(1e-6, 1e3), st.floats(1.01, 1e5), POSITIVE)
def test_each_component_serves_one_group(per_group, num_groups, small, ratio, scale):
    rate = label_driven(per_group, num_groups, small, small * ratio, scale)
    assert rate.a.shape == (per_group * num_groups, num_groups)
    np.testing.assert_array_equal((rate.a == small).sum(axis=1), 1 if num_groups > 0 else 0)
    np.testing.assert_array_equal((rate.a == small).sum(axis=0), per_group)


@given(MATRICES.filter(lambda X: X.sum() > 0), st.integers(1, 3), POSITIVE)
def test_default_and_matching_priors_are_positive_and_fit_the_data(X, K, b):
    data = as_data(X, np.arange(X.shape[1]) % 2 if X.shape[1] > 1 else [0])
    for leaf in np.concatenate([np.ravel(x) for site in default_priors(data, per_group=K) for x in _leaves(site)]):
        assert 0 < leaf < np.inf
    dictionary = Gamma(0.6, b)
    coefficients = matching(data, dictionary, K)
    assert K * 0.6 * b * float(np.squeeze(coefficients.a * coefficients.b)) == pytest.approx(X.mean(), rel=1e-9)
    assert Problem(data, Priors(dictionary, coefficients), K).rank == K
    assert Problem(data, Priors(dictionary, GroupSparse(Gamma(2.0, b))), K).rank == K


def _leaves(site):
    return [site.a, site.b] if isinstance(site, Gamma) else [site.rate.a, site.rate.b]
