"""Projection onto a dictionary and the classifier that works on it."""

from __future__ import annotations

import numpy as np
import pytest

from gsnmf import projection
from gsnmf.projection import class_cosines, nearest_cosine, nnls, vote_shares


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
    monkeypatch.setattr(projection, "PATIENCE", -1)
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
    monkeypatch.setattr(projection, "_pivot", lambda G, D: (np.zeros(D.shape), np.zeros(D.shape[1], bool)))
    np.testing.assert_allclose(T @ nnls(T, X), T @ V, atol=1e-10)  # of many solutions, all have the same TV


def test_nnls_recovers_exact_coefficients() -> None:
    rng = np.random.default_rng(1)
    T, V = rng.exponential(size=(20, 6)), rng.exponential(size=(6, 8)) * (rng.uniform(size=(6, 8)) < 0.5)
    np.testing.assert_allclose(nnls(T, T @ V), V, atol=1e-10)


def test_nnls_of_no_columns() -> None:
    assert nnls(np.ones((3, 2)), np.ones((3, 0))).shape == (2, 0)


@pytest.mark.parametrize(
    ("T", "X", "message"),
    [
        (np.ones((3, 2)), np.ones((4, 5)), "expected T and X with the same number of features; got 3 and 4"),
        (np.ones(3), np.ones((3, 5)), "expected T with 2 dimensions; got 1"),
        (np.ones((3, 2)), np.ones(3), "expected X with 2 dimensions; got 1"),
        (np.ones((3, 0)), np.ones((3, 5)), "at least one feature and one component"),
        (np.ones((3, 2)), np.full((3, 1), np.nan), "expected X to be finite; got nan"),
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
    with pytest.raises(ValueError, match="as many components in both; got 2 and 4"):
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
