"""Projection onto a dictionary and the classifier that works on it."""

from __future__ import annotations

import numpy as np
import pytest

from gsnmf.projection import nearest_cosine, nnls


@pytest.mark.parametrize(("features", "components"), [(12, 5), (5, 12), (6, 6), (3, 1)])
def test_nnls_meets_the_optimality_conditions(features: int, components: int) -> None:
    rng = np.random.default_rng(features * components)
    T, X = rng.exponential(size=(features, components)), rng.normal(1, 2, size=(features, 9))
    V = nnls(T, X)
    gradient = T.T @ (T @ V - X)
    assert V.shape == (components, 9)
    assert (V >= 0).all()
    assert gradient.min() > -1e-10  # no coefficient at 0 wants to grow
    np.testing.assert_allclose(gradient * V, 0, atol=1e-9)  # and none above 0 wants to move
    assert (V == 0).any() or components == 1


def test_nnls_recovers_exact_coefficients() -> None:
    rng = np.random.default_rng(1)
    T, V = rng.exponential(size=(20, 6)), rng.exponential(size=(6, 8)) * (rng.uniform(size=(6, 8)) < 0.5)
    np.testing.assert_allclose(nnls(T, T @ V), V, atol=1e-10)


def test_nnls_with_a_dead_component_and_a_repeated_one() -> None:
    rng = np.random.default_rng(2)
    T = rng.exponential(size=(10, 4))
    T[:, 1], T[:, 3] = 0, T[:, 2]
    V = nnls(T, rng.exponential(size=(10, 3)))
    assert np.isfinite(V).all()
    assert (V >= 0).all()


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
