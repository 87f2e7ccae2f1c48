import re

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gsnmf.inference.stream.batches import read_levels
from gsnmf.model import Dirichlet, as_data, hide

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


def test_an_index_in_the_order_of_samples_or_without_their_names_is_accepted():
    frame, numbered = pd.DataFrame(X, columns=list("xyz")), pd.DataFrame(X)
    missing = pd.DataFrame(X, columns=["x", None, float("nan")])
    for given, index in (
        (frame, list("xyz")),
        (frame, None),
        (frame, [2, 1, 0]),
        (numbered, [2, 1, 0]),
        (numbered.set_axis([5, 0, 2], axis=1), [0, 1, 5]),
        (missing, missing.columns),
    ):
        np.testing.assert_array_equal(as_data(given, pd.Series([1, 0, 1], index=index)).membership[:, 1], [1, 0, 1])


def test_an_index_has_the_names_that_x_came_with_or_those_given():
    """Some samples and features may be renamed; names are compared as they are meant: 1 is 1.0, tuples are levels."""
    frame = pd.DataFrame(X, index=["g1", "g2"], columns=list("xyz"))
    y, several = pd.Series([1, 0, 1], frame.columns), pd.MultiIndex.from_tuples([("x", 0), ("x", 1), ("y", 0)])
    for data in (
        as_data(frame, y, sample_names=["x", "Y", "z"]),
        as_data(frame, y.set_axis(["x", "Y", "z"]), sample_names=["x", "Y", "z"]),
        as_data(frame, y, mask=frame.notna(), feature_names=["GENE", "g2"]),
        as_data(frame.set_axis(several, axis=1), y.set_axis(several)),
        as_data(frame.set_axis([7, 8, 9], axis=1), y.set_axis([7.0, 8.0, 9.0])),
        as_data(frame, pd.get_dummies(y), group_names=["zero", "one"]),
        as_data(frame, pd.get_dummies(y), group_names=[0, "one"]),
        as_data(X, pd.DataFrame([[0, 1], [1, 0], [0, 1]]), group_names=["zero", "one"]),
        as_data(frame, [1, 0, None], label_prior=pd.DataFrame(np.ones((3, 2)), frame.columns, [0, 1])),
    ):
        np.testing.assert_array_equal(data.membership[:2, 1], [1, 0])


@pytest.mark.parametrize(
    "groups",
    [
        np.ma.masked_equal([1, 2, -9], -9),
        np.ma.array([[1, 0], [0, 1], [0, 0]]),
        scipy.sparse.csr_array([[1, 0], [0, 1], [0, 0]]),
    ],
    ids=["masked", "mask of nothing", "sparse"],
)
def test_labels_that_a_mask_hides_and_sparse_matrices(groups):
    """Hidden labels are unknown; a sparse matrix of groups is a matrix of groups. Streams read them alike."""
    data = as_data(X, groups, group_names=[1, 2])
    np.testing.assert_array_equal(data.membership, [[1, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_array_equal(data.labels.unlabelled, [False, False, True])
    _, levels, sizes = read_levels(groups, [1, 2])
    assert (levels, sizes) == ([1, 2], None)


def test_names_ride_through_jax_unseen():
    one, other = as_data(X, ["a", "b", "a"]), as_data(X, ["c", "d", "c"])
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert jax.tree.map(lambda x: x, one).names.group.tolist() == ["a", "b"]


BAD_X = {
    "nonnegative; got a minimum of -1": -np.ones((2, 3)),
    "finite; got inf at feature 1, sample 2": np.where(X == 5, np.inf, X),
    "at least one observed entry of X; got 6 hidden entries": np.full((2, 3), np.nan),
    "2 dimensions, features × samples; got 1": np.ones(3),
    "2 dimensions, features × samples; got 3": np.ones((2, 3, 1)),
    "at least one feature and one sample; got shape .0, 3.": np.ones((0, 3)),
    "at least one feature and one sample; got shape .2, 0.": np.ones((2, 0)),
    "real numbers; got dtype complex128": X + 1j,
    "real numbers; got dtype <U1": np.full((2, 3), "a"),
    "real numbers; got objects": np.array([[None, "x", 1], [1, 2, 3]], dtype=object),
}


@pytest.mark.parametrize("message", BAD_X)
def test_bad_matrices_are_refused(message):
    with pytest.raises(ValueError, match=message):
        as_data(BAD_X[message], [0, 1, 0])


NAN = np.where(X == 2, np.nan, X)
HIDDEN = {
    "NaN": {"X": NAN},
    "a masked array": {"X": np.ma.masked_array(X, X == 2)},
    "objects": {"X": pd.DataFrame(NAN).astype("Float64")},
    "a mask": {"X": X, "mask": X != 2},
    "a mask of numbers": {"X": jax.numpy.asarray(X), "mask": (X != 2).astype(int).tolist()},
    "a mask over NaN": {"X": NAN, "mask": X != 2},
    "a mask over what stands for unknown": {"X": np.where(X == 2, -999.0, X), "mask": X != 2},
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_hidden_entries_are_zero_and_known_values_are_held_out_by_masks_alone(kind):
    data = as_data(**HIDDEN[kind])
    np.testing.assert_array_equal(data.mask, X != 2)
    np.testing.assert_array_equal(data.X, np.where(X == 2, 0, X))
    assert data.num_observed == 5
    assert (data.held_out is not None) == (kind in ("a mask", "a mask of numbers"))
    if data.held_out is not None:
        assert [int(x[0]) for x in (data.held_out.feature, data.held_out.sample, data.held_out.value)] == [0, 2, 2]


def test_a_mask_that_hides_nothing_is_none():
    data = as_data(X, mask=np.ones_like(X))
    assert data.mask is None
    assert data.held_out is None
    assert data.num_observed == 6
    assert as_data(np.ma.masked_array(X, np.zeros(X.shape, bool))).mask is None


BAD_MASKS = {
    "mask of shape .2, 3., True where X was observed; got ndarray of shape .3, 2.": np.ones((3, 2)),
    "True where X was observed; got values other than 0 and 1 .dtype float": np.full((2, 3), 0.5),
    "True where X was observed; got values other than 0 and 1 .dtype <U1": np.full((2, 3), "a"),
    "at least one observed entry": np.zeros((2, 3)),
}


@pytest.mark.parametrize("message", BAD_MASKS)
def test_bad_masks_are_refused(message):
    with pytest.raises(ValueError, match=message):
        as_data(X, mask=BAD_MASKS[message])


def test_observed_entries_beside_hidden_ones_are_checked():
    with pytest.raises(ValueError, match="nonnegative; got a minimum of -1"):
        as_data(np.where(X == 1, -1, NAN))


def test_hide_takes_a_share_of_what_was_seen_and_keeps_the_values():
    X = np.random.default_rng(0).poisson(3.0, (20, 30)) + 1
    once = hide(as_data(X), 0.5, seed=1)
    twice = hide(once, 0.5, seed=2)
    assert (once.num_observed, twice.num_observed) == (300, 150)
    out = twice.held_out
    assert len(set(zip(out.feature.tolist(), out.sample.tolist(), strict=True))) == len(out) == 450
    np.testing.assert_array_equal(out.value, X[out.feature, out.sample])
    np.testing.assert_array_equal(twice.X, np.where(twice.mask, X, 0))
    assert not np.array_equal(once.mask, hide(as_data(X), 0.5, seed=3).mask)


def test_hide_never_takes_the_last_entry_of_a_feature_or_sample():
    mask = hide(as_data(np.ones((4, 4))), 0.5).mask
    for seed in range(20):  # 9 of 16 can always go: at most 4 + 4 are kept, one of them twice
        mask = hide(as_data(np.ones((4, 4))), 0.5, seed=seed).mask
        assert mask.any(axis=0).all()
        assert mask.any(axis=1).all()
    with pytest.raises(ValueError, match="share to leave an entry of every feature and sample"):
        hide(as_data(np.ones((4, 4))), 0.9)
    with pytest.raises(ValueError, match="share between 0 and 1; got 1"):
        hide(as_data(X), 1)


def test_what_was_held_out_rides_through_jax_unseen():
    one, other = (hide(as_data(X, [0, 1, 0]), 0.3, seed=seed) for seed in (0, 1))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert len(jax.tree.leaves(one)) == 3  # X, membership and mask
    assert jax.tree.map(lambda x: x, one).held_out is one.held_out


BAD_GROUPS = {
    "one label for each of the 3 samples; got 4": {"groups": [0, 1, 1, 0]},
    "one label for each of the 3 samples; got 0": {"groups": []},
    "a sequence, one label per sample; got str": {"groups": "aba"},
    "a sequence, one label per sample; got int": {"groups": 3},
    "a sequence, one label per sample; got ndarray": {"groups": np.array(3)},
    "a sequence, one label per sample; got set": {"groups": {1, 2, 3}},
    "feature_names to be a sequence of names; got 5": {"groups": [0, 0, 1], "feature_names": 5},
    "group_names to be a sequence of names; got 3": {"groups": [0, 0, 1], "group_names": 3},
    "groups .two or more.; got shape .3, 1.": {"groups": pd.DataFrame({"y": [0, 1, 1]})},
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


UNKNOWN = {
    "None": [1, None, 0],
    "NaN": np.array([1, np.nan, 0]),
    "of pandas": pd.Series([1, pd.NA, 0]),
    "no label in a set": [{1}, set(), {0}],
    "no 1 in a matrix": [[0, 1], [0, 0], [1, 0]],
}


@pytest.mark.parametrize("how", UNKNOWN)
def test_labels_may_be_unknown(how):
    data = as_data(X, UNKNOWN[how])
    assert data.membership.tolist() == [[0, 1], [0.5, 0.5], [1, 0]]
    assert data.known.tolist() == [True, False, True]
    assert data.labels.num_unlabelled == 1
    assert data.group_sizes.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("groups", [[{"a", "b"}, "b", ["c"]], np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]])])
def test_a_sample_may_have_several_labels(groups):
    data = as_data(X, groups, group_names=list("abc"))
    assert data.membership.tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]
    assert data.several.tolist() == [True, False, False]
    assert data.known.all()


def test_lists_of_0_and_1_are_a_matrix_and_sets_are_labels():
    matrix = np.array([[1, 0], [0, 1], [1, 1]])
    for kind in (int, bool, float, np.int64, np.bool):
        rows = [[kind(x) for x in row] for row in matrix]
        assert as_data(X, rows).membership.tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    assert as_data(X, [{0, 1}, {1}, {0}]).membership.tolist() == [[0.5, 0.5], [0, 1], [1, 0]]


def test_what_is_believed_about_unknown_labels():
    groups = [0, None, 1]
    assert as_data(X, groups, label_prior=[1, 3]).membership[1].tolist() == [0.25, 0.75]
    rows = [[9, 9], [3, 1], [0, 0]]  # those of known labels do not matter
    assert as_data(X, groups, label_prior=rows).membership.tolist() == [[1, 0], [0.75, 0.25], [0, 1]]
    shared = as_data(X, groups, label_prior=Dirichlet([1.0, 3.0])).labels
    own = as_data(X, groups, label_prior=Dirichlet(np.ones((3, 2)))).labels
    assert shared.dirichlet.tolist() == [1, 3]
    assert own.dirichlet.tolist() == [[1, 1]]
    assert as_data(X, [0, 1, 1], label_prior=[1, 3]).labels is None


BAD_LABELS = {
    "expected a known label, or group_names": {"groups": [None, None, None]},
    "expected known labels in a set of several": {"groups": [{0, None}, 1, 1]},
    "expected a label, or a set of labels, per sample; got {'a': 1}": {"groups": [{"a": 1}, 0, 1]},
    "expected a label, or a set of labels, per sample; got [[1]]": {"groups": [[[1]], 0, 1]},
    "expected a matrix of 0 and 1, 3 samples × groups (two or more); got shape (3, 1)": {"groups": np.ones((3, 1))},
    "expected a matrix of 0 and 1, 3 samples × groups (two or more); got values [2., 0., 0.": {"groups": 2 * np.eye(3)},
    "expected a name for each of the 3 columns": {"groups": np.eye(3), "group_names": ["a", "b"]},
    "expected label_prior of shape (2,), groups, or (3, 2)": {"groups": [0, None, 1], "label_prior": [1, 2, 3]},
    "expected label_prior to hold weights ≥ 0": {"groups": [0, None, 1], "label_prior": [-1, 2]},
    "expected label_prior to hold numbers": {"groups": [0, None, 1], "label_prior": "even"},
    "expected the u of a Dirichlet to be positive": {"groups": [0, None, 1], "label_prior": Dirichlet([1.0, 0.0])},
    "expected groups, one label per sample, with label_prior": {"label_prior": [1, 2]},
}


@pytest.mark.parametrize("message", BAD_LABELS)
def test_bad_labels_are_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        as_data(X, **BAD_LABELS[message])
