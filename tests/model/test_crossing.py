"""Classes crossed with batches."""

import numpy as np
import pytest

from gsnmf.model import as_data, crossed, relative_rates
from gsnmf.model.structures import served

TWO = crossed(["a", "b", "a", None, "b"], [1, 1, 2, 2, None])


def test_pairs_are_those_that_occur_or_may():
    """A batch with a sample of unknown class has all classes, a class with a sample of unknown batch all batches."""
    assert crossed(["a", "b", "b"], [1, 1, 2]).group_names == ["a|1", "b|1", "b|2"]
    assert crossed(["a", "b", "b"], [1, 1, 2]).label_prior is None
    assert TWO.group_names == ["a|1", "a|2", "b|1", "b|2"]
    assert TWO.labels == ["a|1", "b|1", "a|2", None, None]
    np.testing.assert_array_equal(TWO.label_prior[3:], [[0, 0.5, 0, 0.5], [0, 0, 0.5, 0.5]])
    assert crossed(["a", "b", None], [1, 2, None]).group_names == ["a|1", "a|2", "b|1", "b|2"]


def test_as_data_takes_labels_names_and_prior():
    data = as_data(np.ones((3, 5)), TWO.labels, group_names=TWO.group_names, label_prior=TWO.label_prior)
    assert data.num_unlabelled == 2
    np.testing.assert_array_equal(TWO.by_class(data.membership), [[1, 0], [0, 1], [1, 0], [0.5, 0.5], [0, 1]])
    np.testing.assert_array_equal(TWO.by_batch(data.membership), [[1, 0], [1, 0], [0, 1], [0, 1], [0.5, 0.5]])


def test_a_component_serves_its_class_in_all_batches_or_its_batch_in_all_classes():
    rows = TWO.serving(per_class=[2, 1], per_batch=1, num_common=1)
    assert rows.astype(int).tolist() == [
        [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1],
    ]  # fmt: skip
    assert TWO.serving(per_batch=0).tolist() == rows[[1, 3]].tolist()
    data = as_data(np.ones((3, 5)), TWO.labels, group_names=TWO.group_names, label_prior=TWO.label_prior)
    np.testing.assert_array_equal(served(relative_rates(data, structure=rows), data.group_sizes, 6), rows)


def test_means_of_a_class_weigh_its_batches_by_their_samples():
    lam, sizes = np.array([[1.0, 2.0, 4.0, 5.0]]), np.array([3.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(TWO.mean_by_class(lam, sizes), [[(3 / 1 + 1 / 2) / 4, 1 / 5]])
    np.testing.assert_allclose(TWO.mean_by_batch(lam, sizes), [[3 / 3, (1 / 2 + 2 / 5) / 3]])


def test_posteriors_of_new_samples_keep_to_their_batch():
    """Even if the odds of the other batch are far beyond what exponentials can hold."""
    bound = np.array([[0.0, -2000.0, 0.0, -2001.0]] * 2)
    found = TWO.posterior(bound, [2, None])
    np.testing.assert_allclose(found[0], [0, 1 / (1 + np.exp(-1)), 0, 1 / (1 + np.exp(1))])
    np.testing.assert_allclose(found[1], [0.5, 0, 0.5, 0], atol=1e-12)
    np.testing.assert_allclose(TWO.posterior(bound), [[0.5, 0, 0.5, 0]] * 2, atol=1e-12)
    np.testing.assert_allclose(TWO.posterior(bound, [2, 2], temperature=1e9)[0], [0, 0.5, 0, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: crossed(["a"], [1, 2]), "expected a class and a batch for each sample; got 1 and 2"),
        (lambda: crossed([None], [1]), "expected a known class; got 1 samples without one"),
        (lambda: crossed(["a", 1], [1, 2]), "expected one class per sample, of one sortable kind; got"),
        (lambda: crossed(["a|b", "a"], ["c", "b|c"]), "expected pairs with distinct names; got 'a|b|c' for two"),
        (lambda: TWO.serving(0, 0), "expected at least one component; got per_class=0, per_batch=0, num_common=0"),
        (lambda: TWO.serving([1, 1, 1]), "expected per_class to be a whole number or 2 of them"),
        (lambda: TWO.by_class(np.ones((2, 3))), r"expected samples × 4 pairs; got shape \(2, 3\)"),
        (lambda: TWO.posterior(np.ones((1, 4)), [7]), r"expected one of the batches \[1, 2\] for each of 1 samples"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        call()
