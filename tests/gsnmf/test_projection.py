"""Projection onto a dictionary and the classifier that works on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from threadpoolctl import threadpool_info, threadpool_limits

from gsnmf.classification import least_squares
from gsnmf.classification.pointless import undecided
from gsnmf.classification.prediction import calibrated, shares_of
from gsnmf.classification.projection import (
    accuracy,
    both_cosines,
    class_cosines,
    combine,
    nearest_cosine,
    nnls,
    vote_shares,
)


def residual(T: np.ndarray, X: np.ndarray, V: np.ndarray) -> float:
    """By how much the conditions of optimality are missed, columns of T and X taken at length 1.

    V ≥ 0, gradient ≥ 0, and one of them 0 in every place.
    """
    t, x = (np.maximum(np.linalg.norm(matrix, axis=0), 1e-300) for matrix in (T, X))
    v, gradient = V * t[:, None] / x, T.T @ (T @ V - X) / t[:, None] / x
    return float(max(-v.min(), -gradient.min(), np.abs(v * gradient).max()))


@pytest.mark.parametrize(("features", "components"), [(12, 5), (5, 12), (6, 6), (3, 1), (300, 80)])
@pytest.mark.parametrize("unit", [1.0, 1e-180, 1e180])
def test_nnls_meets_the_optimality_conditions(features: int, components: int, unit: float) -> None:
    rng = np.random.default_rng(features * components)
    T, X = rng.exponential(size=(features, components)), rng.normal(1, 2, size=(features, 9))
    V = nnls(T * unit, X * unit)
    assert V.shape == (components, 9)
    assert residual(T, X, V) < 1e-10
    assert (V == 0).any() or components == 1


def test_nnls_goes_on_when_whole_exchanges_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any patience every exchange but the best is of a single variable: slower, and the same solution."""
    rng = np.random.default_rng(5)
    T, X = rng.exponential(size=(40, 25)), rng.normal(1, 2, size=(40, 30))
    usual = nnls(T, X)
    monkeypatch.setattr(least_squares, "PATIENCE", -1)
    np.testing.assert_allclose(nnls(T, X), usual, atol=1e-10)


def test_nnls_of_dependent_columns_is_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated, zero and nearly equal columns: pivoting may give up, SciPy's active sets take over."""
    rng = np.random.default_rng(3)
    T = rng.exponential(size=(30, 12))
    T[:, 3], T[:, 5], T[:, 7], T[:, 9] = T[:, 2], 0, T[:, 6] * (1 + 1e-14), T[:, 0] + T[:, 1]
    X = rng.exponential(size=(30, 20))
    V = nnls(T, X)
    assert np.isfinite(V).all()
    assert residual(T, X, V) < 1e-10
    monkeypatch.setattr(least_squares, "_pivot", lambda G, D: (np.zeros(D.shape), np.zeros(D.shape[1], bool)))
    np.testing.assert_allclose(T @ nnls(T, X), T @ V, atol=1e-10)  # of many solutions, all have the same TV


def test_nnls_recovers_exact_coefficients() -> None:
    rng = np.random.default_rng(1)
    T, V = rng.exponential(size=(20, 6)), rng.exponential(size=(6, 8)) * (rng.uniform(size=(6, 8)) < 0.5)
    np.testing.assert_allclose(nnls(T, T @ V), V, atol=1e-10)


def test_nnls_leaves_missing_entries_out() -> None:
    """Every column as SciPy solves it on the rows that were seen; columns with the same rows may share the work."""
    rng = np.random.default_rng(2)
    T, X = rng.exponential(size=(20, 4)), rng.exponential(size=(20, 6))
    hidden = rng.uniform(size=X.shape) < 0.3
    hidden[:, 1], hidden[:, 2], hidden[:, 3] = hidden[:, 0], False, True
    V = nnls(T, np.where(hidden, np.nan, X))
    for tau in range(6):
        seen = ~hidden[:, tau]
        expected = scipy.optimize.nnls(T[seen], X[seen, tau])[0] if seen.any() else np.zeros(4)
        np.testing.assert_allclose(V[:, tau], expected, atol=1e-10)


def test_nnls_of_no_columns() -> None:
    assert nnls(np.ones((3, 2)), np.ones((3, 0))).shape == (2, 0)


@pytest.mark.parametrize(
    ("T", "X", "message"),
    [
        (np.ones((3, 2)), np.ones((4, 5)), "expected T and X with the same number of features; got 3 and 4"),
        (np.ones(3), np.ones((3, 5)), "expected T with 2 dimensions; got 1"),
        (np.ones((3, 2)), np.ones(3), "expected X with 2 dimensions; got 1"),
        (np.ones((3, 0)), np.ones((3, 5)), "at least one feature and one component"),
        (np.ones((3, 2)), np.full((3, 1), np.inf), "expected X to be finite; got inf"),
        (np.full((3, 2), np.nan), np.ones((3, 1)), "expected T to be finite; got nan"),
        (np.ones((3, 2)), np.full((3, 1), "x"), "expected X to hold real numbers"),
        (np.ones((3, 2)), np.full((3, 1), 1j), "expected X to hold real numbers"),
    ],
)
def test_nnls_refuses(T: np.ndarray, X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        nnls(T, X)


def test_nearest_cosine_ignores_length_and_sees_direction() -> None:
    train = np.array([[1.0, 0.0, 100.0], [0.0, 1.0, 101.0]])
    test = np.array([[0.01, 3.0, 1000.0], [1.0, 0.1, 990.0]])
    assert nearest_cosine(train, ["east", "north", "between"], test).tolist() == ["north", "east", "between"]


def test_nearest_cosine_refuses() -> None:
    with pytest.raises(ValueError, match="one label for each of 3 samples; got shape"):
        nearest_cosine(np.ones((2, 3)), [1, 2], np.ones((2, 1)))
    with pytest.raises(ValueError, match="as many components in both, training and test samples; got 2 and 4"):
        nearest_cosine(np.ones((2, 3)), [1, 2, 3], np.ones((4, 1)))


def test_class_cosines_are_those_of_the_nearest_sample_of_each_class() -> None:
    rng = np.random.default_rng(4)
    train, test, labels = rng.exponential(size=(5, 12)), rng.exponential(size=(5, 7)), np.arange(12) % 3
    cosines, classes = class_cosines(train, labels, test * 1e-200)
    lengths = np.linalg.norm(test, axis=0)[:, None] * np.linalg.norm(train, axis=0)
    expected = (test.T @ train / lengths).reshape(7, 4, 3).max(axis=1)
    np.testing.assert_allclose(cosines, expected, rtol=1e-12)
    assert classes.tolist() == [0, 1, 2]


def test_a_sample_of_zeros_is_equally_near_to_all() -> None:
    assert class_cosines(np.eye(2), ["a", "b"], np.zeros((2, 1)))[0].tolist() == [[0.0, 0.0]]


def test_votes_count_restarts_and_cosines_break_ties() -> None:
    sure, unsure = [[0.1, 0.9, 0.0]], [[0.55, 0.5, 0.0]]
    assert vote_shares([sure, unsure, unsure])[0].argmax() == 0
    tie = vote_shares([sure, unsure])
    assert tie[0].argmax() == 1
    np.testing.assert_allclose(tie, [[0.5, 0.5, 0.0]], atol=1e-5)
    np.testing.assert_allclose(tie.sum(axis=1), 1)


def test_both_cosines_are_of_coefficients_and_of_their_roots() -> None:
    rng = np.random.default_rng(6)
    train, test, labels = rng.exponential(size=(5, 12)), rng.exponential(size=(5, 7)), np.arange(12) % 3
    plain, roots = both_cosines(train, labels, test)
    np.testing.assert_array_equal(plain, class_cosines(train, labels, test)[0])
    np.testing.assert_array_equal(roots, class_cosines(train**0.5, labels, test**0.5)[0])
    for signed in ((train - 1, test), (train, test - 1)):
        assert both_cosines(signed[0], labels, signed[1]).shape == (1, 7, 3)


def test_combining_restarts_by_hand() -> None:
    """Two of three restarts prefer the first class by a little, the third the second by much; roots the third."""
    plain = np.array([[[0.5, 0.4, 0.1]], [[0.5, 0.4, 0.1]], [[0.1, 0.9, 0.1]]])
    cosines = np.stack([plain, np.tile([0.0, 0.1, 0.9], (3, 1, 1))], axis=1)
    winners = {by: int(combine(cosines, by).argmax()) for by in ("vote", "cosine", "blend")}
    assert winners == {"vote": 0, "cosine": 1, "blend": 2}
    np.testing.assert_allclose(combine(cosines, "cosine"), [[1.1 / 3, 1.7 / 3, 0.1]])
    np.testing.assert_allclose(combine(cosines, "blend"), [[1.1 / 6, 2 / 6, 0.5]])
    with pytest.raises(ValueError, match="expected by to be one of 'vote', 'cosine', 'blend'; got 'mean'"):
        combine(cosines, "mean")
    with pytest.raises(ValueError, match=r"expected restarts × measures × samples × classes; got shape \(3, 1, 3\)"):
        combine(plain, "vote")


def test_accuracy_is_that_of_the_nearest_neighbour() -> None:
    rng = np.random.default_rng(7)
    T, X, new = rng.exponential(size=(8, 3)), rng.exponential(size=(8, 12)), rng.exponential(size=(8, 40))
    labels = np.arange(12) % 3
    predicted = nearest_cosine(nnls(T, X), labels, nnls(T, new))
    assert accuracy(T, X, labels, new, predicted) == 1
    assert accuracy(T, X, labels, new, np.where(np.arange(40) < 10, predicted, -1)) == 0.25


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def in_a_thread(function, *arguments, **options):
    """threadpoolctl lets one thread at a time set limits; one that has ended is not in the way."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments, **options).result()


@pytest.fixture
def three_blas_threads():
    """Whatever the machine has."""
    before = in_a_thread(blas_threads).pop()
    in_a_thread(threadpool_limits, 3, user_api="blas")
    yield
    in_a_thread(threadpool_limits, before, user_api="blas")


def test_threads_that_overlap_leave_blas_as_it_was(three_blas_threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call begins before the first ends, and ends after it."""
    T, first, second = np.eye(3), np.ones((3, 1)), np.ones((3, 2))
    pivot, first_in, second_in, first_out = least_squares._pivot, Event(), Event(), Event()
    seen = []

    def in_turn(G, D):
        seen.append(blas_threads())
        mine, others = (first_in, second_in) if D.shape[1] == 1 else (second_in, first_out)
        mine.set()
        assert others.wait(30)
        return pivot(G, D)

    monkeypatch.setattr(least_squares, "_pivot", in_turn)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(nnls, T, first)
        assert first_in.wait(30)
        other = pool.submit(nnls, T, second)
        np.testing.assert_allclose(one.result(), first)
        first_out.set()
        np.testing.assert_allclose(other.result(), second)
    assert seen == [{1}, {1}]
    assert blas_threads() == {3}
    monkeypatch.setattr(least_squares, "_pivot", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        nnls(T, first)
    assert blas_threads() == {3}
    monkeypatch.setattr(least_squares, "_pivot", lambda G, D: (seen.append(blas_threads()), pivot(G, D))[1])
    nnls(T, first)
    assert seen[-1] == {1}  # the limit is free again


def test_no_sample_is_its_own_neighbour() -> None:
    rng = np.random.default_rng(4)
    V, labels = rng.gamma(1.0, size=(3, 6)), np.array(["a", "b", "a", "b", "b", "c"])
    chosen = np.array([1, 0, 5])
    found, _ = class_cosines(V, labels, V[:, chosen], itself=chosen)
    for row, n in zip(found, chosen, strict=True):
        others = np.arange(6) != n
        cosines, classes = class_cosines(V[:, others], labels[others], V[:, [n]])
        np.testing.assert_allclose(row[np.isin(["a", "b", "c"], classes)], cosines[0])
    assert found[2, 2] == 0  # the only one of its class
    np.testing.assert_array_equal(both_cosines(V, labels, V[:, chosen], chosen)[0], found)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("predict_by", ["nearest", "vote", "cosine", "blend"])
def test_samples_without_counts_are_equally_near_to_all_classes(predict_by: str, form: Any) -> None:
    samples = form(np.array([[0.0, np.nan, 1.0], [0.0, np.nan, np.nan]]))
    scores = np.array([[0.0, 0.1], [0.2, 0.7], [0.2, 0.7]])
    with pytest.warns(UserWarning, match="^2 of 3 samples have no observed count: all classes are equally probable"):
        found = undecided(scores, samples, predict_by)
    np.testing.assert_array_equal(shares_of(found, predict_by)[:2], np.full((2, 2), 0.5))
    np.testing.assert_allclose(calibrated(found, predict_by, 0.1)[:2], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(found[2], scores[2])
    np.testing.assert_array_equal(undecided(scores[2:], samples[:, 2:], predict_by), scores[2:])
    assert undecided(scores, samples, "model") is scores
