"""Labels spread over neighbours in the spaces of dictionaries."""

import numpy as np
import pytest

from gsnmf.classification.projection import nnls
from gsnmf.classification.transduction import affinities, transduce, views

CLASSES = 3


def clusters(seed=0, each=20, spread=2.0):
    """Samples of classes, each an arc that leads from its own component to a shared one; one label a class."""
    rng = np.random.default_rng(seed)
    T = rng.gamma(0.5, 2.0, size=(12, CLASSES + 1))
    y = np.repeat(np.arange(CLASSES), each)
    V = np.zeros((CLASSES + 1, len(y)))
    V[y, np.arange(len(y))] = 1.0
    V[-1] = np.tile(np.linspace(0, spread, each), CLASSES)
    X = T @ V + 0.01 * rng.random((12, len(y)))
    index = np.full(len(y), -1)
    index[::each] = y[::each]
    return T, X, y, index


def test_labels_follow_arcs_that_the_nearest_label_does_not():
    T, X, y, index = clusters()
    found = transduce(X, index, CLASSES, [T], neighbours=(3, 3))
    assert (found.argmax(axis=1) == y).all()


def test_rows_are_distributions_and_known_labels_stay():
    T, X, y, index = clusters(seed=1, spread=9.0)
    index[5] = (y[5] + 1) % CLASSES  # a wrong one amid its class stays too: it is what was said
    found = transduce(X, index, CLASSES, [T, T[:, :2]])
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    assert (found >= 0).all()
    assert (found[index >= 0] == np.eye(CLASSES)[index[index >= 0]]).all()


def test_the_order_and_the_unit_of_samples_and_components_do_not_matter():
    T, X, _, index = clusters(seed=2)
    order = np.random.default_rng(3).permutation(len(index))
    found = transduce(X, index, CLASSES, [T])
    other = transduce(7 * X[:, order] * np.linspace(1, 2, len(index)), index[order], CLASSES, [T[:, ::-1]])
    np.testing.assert_allclose(other, found[order], atol=1e-4)  # iterations stop at 1e-6, and ties may break


def test_classes_without_a_label_have_no_share_and_samples_out_of_reach_the_common_one():
    X = np.array([[1.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0, 0.0]])
    found = transduce(X, [0, 2, -1, -1, 2], 4, [np.eye(2)], neighbours=(1, 1))
    assert found[2].tolist() == found[3].tolist() == [1 / 3, 0, 2 / 3, 0]
    assert found.shape == (5, 4)


def test_missing_entries_are_left_out():
    T, X, y, index = clusters(seed=4)
    holes = X.copy()
    holes[np.random.default_rng(5).random(X.shape) < 0.1] = np.nan
    assert (transduce(holes, index, CLASSES, [T], neighbours=(3, 3)).argmax(axis=1) == y).mean() > 0.9


def test_points_have_the_mean_cosine_of_all_views():
    T, X, _, _ = clusters(seed=6)
    both = [T, T[:, :3]]
    points = views(X, both, samples=0.2)
    cosines = []
    for V in (f(nnls(D, X)) for D in both for f in (np.asarray, np.sqrt)):
        cosines.append((V[:, 0] @ V[:, 25]) / np.linalg.norm(V[:, 0]) / np.linalg.norm(V[:, 25]))
    own = (X[:, 0] @ X[:, 25]) / np.linalg.norm(X[:, 0]) / np.linalg.norm(X[:, 25])
    assert points[0] @ points[25] == pytest.approx(0.8 * np.mean(cosines) + 0.2 * own)


def test_dictionaries_are_learned_again_from_the_verdicts_and_known_labels_alone_spread():
    T, X, y, index = clusters(seed=8)
    asked = []

    def refit(found):
        asked.append(found)
        return [T]

    found = transduce(X, index, CLASSES, [T[:, 1:2]], refit=refit, rounds=2, neighbours=(9, 3), samples=(0.2, 0.6))
    assert len(asked) == 2
    assert all((labels[index >= 0] == index[index >= 0]).all() for labels in asked)
    assert (asked[1] == y).all()  # the first dictionary could not tell classes apart, those learned again can
    np.testing.assert_array_equal(found, transduce(X, index, CLASSES, [T], neighbours=(3, 3), samples=(0.6, 0.0)))


def test_affinities_are_symmetric_and_join_the_nearest():
    points = np.random.default_rng(7).normal(size=(9, 2))
    graph = affinities(points, 2).toarray()
    assert (graph == graph.T).all()
    assert (np.diag(graph) == 0).all()
    assert ((graph > 0).sum(axis=1) >= 2).all()
    assert graph.max() < 1
    assert (affinities(points, 50).toarray() > 0).sum() == 9 * 8  # all the others


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": [0, -1, 3]}, "expected index from −1 .unlabelled. to 1; got -1 to 3"),
        ({"index": [-1, -1, -1]}, "at least one labelled sample; got 3 unlabelled samples"),
        ({"index": [0, 1]}, "and one index per sample; got shape \\(2, 3\\) and 2"),
        ({"index": [0.0, 1.0, -1.0]}, "one whole number per sample"),
        ({"dictionaries": []}, "at least one dictionary"),
        ({"dictionaries": [np.eye(3)]}, "same number of features"),
        ({"neighbours": (5, 0)}, "neighbours to be a whole number"),
        ({"neighbours": 5}, "neighbours to be two whole numbers; got 5"),
        ({"rounds": -1}, "rounds to be a whole number"),
        ({"samples": (0.5, 1.0)}, "two weights from 0 to below 1"),
        ({"alpha": 1.0}, "alpha between 0 and 1; got 1.0"),
        ({"num_classes": 0}, "num_classes to be a whole number"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message):
    given = {"X": np.ones((2, 3)), "index": [0, 1, -1], "num_classes": 2, "dictionaries": [np.eye(2)], **change}
    with pytest.raises(ValueError, match=message):
        transduce(**given)
