import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gsnmf.model import as_data

X = np.arange(6.0).reshape(2, 3)


def test_groups_are_ordered_as_sorted_labels():
    data = as_data(X, ["b", "a", "b"])
    assert data.names.group.tolist() == ["a", "b"]
    np.testing.assert_array_equal(data.membership, [[0, 1], [1, 0], [0, 1]])
    assert (data.num_features, data.num_samples, data.num_groups) == (2, 3, 2)


def test_declared_groups_keep_their_order_and_may_be_empty():
    data = as_data(X, [1, 2, 1], group_names=[3, 2, 1])
    assert data.group_sizes.tolist() == [0, 1, 2]


def test_axes_carry_the_users_names():
    data = as_data(X, [0, 0, 1], feature_names=["p", "q"], sample_names=list("xyz"))
    assert data.names.feature.tolist() == ["p", "q"]
    assert data.names.sample.tolist() == ["x", "y", "z"]
    assert as_data(X, [0, 0, 1]).names.feature.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [list, np.uint8, np.int64, np.float32, bool, jax.numpy.asarray])
def test_numbers_of_any_real_kind_are_taken(kind):
    values = X.tolist() if kind is list else kind(X) if callable(kind) and kind is jax.numpy.asarray else X.astype(kind)
    assert as_data(values, [0, 1, 0]).X.shape == (2, 3)


def test_a_data_frame_brings_its_names():
    frame = pd.DataFrame(X, index=["p", "q"], columns=list("xyz"))
    names = as_data(frame, pd.Series([1, 0, 1], index=[7, 8, 9])).names
    assert names.feature.tolist() == ["p", "q"]
    assert names.sample.tolist() == ["x", "y", "z"]
    assert as_data(frame, [0, 0, 1], sample_names=[1, 2, 3]).names.sample.tolist() == [1, 2, 3]


def test_names_ride_through_jax_unseen():
    one, other = as_data(X, ["a", "b", "a"]), as_data(X, ["c", "d", "c"])
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert jax.tree.map(lambda x: x, one).names.group.tolist() == ["a", "b"]


BAD_X = {
    "nonnegative; got a minimum of -1": -np.ones((2, 3)),
    "finite; got inf at feature 1, sample 2": np.where(X == 5, np.inf, X),
    "finite; got nan at feature 0, sample 0 .1 such": np.where(X == 0, np.nan, X),
    "2 dimensions, features × samples; got 1": np.ones(3),
    "2 dimensions, features × samples; got 3": np.ones((2, 3, 1)),
    "at least one feature and one sample; got shape .0, 3.": np.ones((0, 3)),
    "at least one feature and one sample; got shape .2, 0.": np.ones((2, 0)),
    "dense array without a mask; got MaskedArray": np.ma.masked_array(X, X == 2),
    "dense array without a mask; got csr_array": scipy.sparse.csr_array(X),
    "real numbers; got dtype complex128": X + 1j,
    "real numbers; got dtype <U1": np.full((2, 3), "a"),
    "real numbers; got objects": np.array([[None, "x", 1], [1, 2, 3]], dtype=object),
}


@pytest.mark.parametrize("message", BAD_X)
def test_bad_matrices_are_refused(message):
    with pytest.raises(ValueError, match=message):
        as_data(BAD_X[message], [0, 1, 0])


BAD_GROUPS = {
    "one label for each of the 3 samples; got 4": {"groups": [0, 1, 1, 0]},
    "one label for each of the 3 samples; got 0": {"groups": []},
    "a label for every sample; got None for sample 1": {"groups": [0, None, 1]},
    "a label for every sample; got nan for sample 2": {"groups": [0.0, 1.0, np.nan]},
    "one label per sample; got a nested": {"groups": np.eye(3)},
    "a sequence, one label per sample; got str": {"groups": "aba"},
    "a sequence, one label per sample; got int": {"groups": 3},
    "a label for every sample; got <NA> for sample 0": {"groups": [pd.NA, 1, 2]},
    "a sequence, one label per sample; got ndarray": {"groups": np.array(3)},
    "a sequence, one label per sample; got set": {"groups": {1, 2, 3}},
    "feature_names to be a sequence of names; got 5": {"groups": [0, 0, 1], "feature_names": 5},
    "group_names to be a sequence of names; got 3": {"groups": [0, 0, 1], "group_names": 3},
    "one label per sample; got a nested sequence or matrix, DataFrame": {"groups": pd.DataFrame({"y": [0, 1, 1]})},
    "got 2, as many as rows: transpose X?": {"groups": [0, 1]},
    "one sortable kind; got a mixture": {"groups": [0, "a", 1]},
    "every label among group_names .1, 2.; got 0": {"groups": [0, 1, 2], "group_names": [1, 2]},
    "distinct group_names; got .1, 1": {"groups": [1, 1, 1], "group_names": [1, 1]},
    "feature_names to hold 2 names; got 1": {"groups": [0, 0, 1], "feature_names": ["a"]},
    "sample_names to hold 3 names; got 1": {"groups": [0, 0, 1], "sample_names": ["a"]},
    "with group_names; got groups=None": {"groups": None, "group_names": [1]},
}


@pytest.mark.parametrize("message", BAD_GROUPS)
def test_bad_groups_and_names_are_refused(message):
    with pytest.raises(ValueError, match=message):
        as_data(X, **BAD_GROUPS[message])


def test_data_without_groups_has_no_group_sizes():
    with pytest.raises(ValueError, match="data with groups"):
        _ = as_data(X).group_sizes
