"""Probabilities that come true as often as they say."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss

from gsnmf.classification.calibration import (
    brier_score,
    calibration_error,
    fit_temperature,
    plot_reliability,
    reliability,
    temper,
)


def drawn(N=4000, C=4, seed=0):
    """Scores, and labels drawn with the probabilities that these scores mean at temperature 1."""
    rng = np.random.default_rng(seed)
    scores = 2 * rng.normal(size=(N, C))
    labels = (rng.random((N, 1)) > softmax(scores, axis=1).cumsum(axis=1)).sum(axis=1)
    return scores, labels


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_the_temperature_that_made_the_labels_is_found(unit):
    """Within three standard errors, which are about 0.03 here, in whatever unit scores come."""
    scores, labels = drawn()
    assert fit_temperature(scores * unit, labels) == pytest.approx(unit, rel=0.1)
    assert calibration_error(temper(scores, 1.0), labels) < 0.02  # 10 bins of 400: 0.01 by chance
    assert calibration_error(temper(scores, 0.2), labels) > 0.1
    assert calibration_error(temper(scores, 5.0), labels) > 0.1


def test_no_other_temperature_has_a_lower_log_loss():
    scores, labels = drawn(500)
    best = fit_temperature(scores, labels)
    loss = [log_loss(labels, temper(scores, best * factor)) for factor in (0.9, 1.0, 1.1)]
    assert loss[1] < min(loss[0], loss[2])


@pytest.mark.parametrize("N", [4, 400])
def test_samples_that_are_all_right_do_not_make_it_certain(N):
    """The more there are, the surer: about as sure as the smoothing lets it be, 1 − 1/(N + 2)."""
    labels = np.arange(N) % 2
    proba = temper(np.eye(2)[labels], fit_temperature(np.eye(2)[labels], labels))
    assert proba.max() == pytest.approx(1 - 1 / (N + 2), rel=1e-3)


def test_the_order_stays():
    scores, _ = drawn(200)
    for temperature in (0.01, 1.0, 100.0):
        proba = temper(scores, temperature)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert (proba.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_the_table_by_hand():
    proba = np.array([[0.55, 0.45], [0.05, 0.95], [0.15, 0.85], [0.9, 0.1], [1.0, 0.0]])
    table = reliability(proba, ["a", "b", "a", "a", "b"], bins=5, classes=["a", "b"])
    assert table["count"].tolist() == [0, 0, 1, 0, 4]
    assert table["low"].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert table["confidence"].tolist() == pytest.approx([np.nan, np.nan, 0.55, np.nan, 0.925], nan_ok=True)
    assert table["accuracy"].tolist() == pytest.approx([np.nan, np.nan, 1, np.nan, 0.5], nan_ok=True)
    error = calibration_error(proba, ["a", "b", "a", "a", "b"], bins=5, classes=["a", "b"])
    assert error == pytest.approx(0.2 * 0.45 + 0.8 * 0.425)


def test_certainty_and_ignorance():
    labels = np.arange(30) % 3
    sure, level = np.eye(3)[labels], np.full((30, 3), 1 / 3)
    assert calibration_error(sure, labels) == brier_score(sure, labels) == 0
    assert brier_score(np.eye(3)[(labels + 1) % 3], labels) == 2
    assert brier_score(level, labels) == pytest.approx(1 - 1 / 3)
    assert calibration_error(level, labels) == pytest.approx(0)  # the first class wins, a third of the time


def test_brier_score_is_scikit_learns():
    scores, labels = drawn(50, C=2)
    proba = temper(scores, 1.0)
    assert brier_score(proba, labels) == pytest.approx(2 * brier_score_loss(labels, proba[:, 1]))  # half of it for two


def test_the_picture_has_a_point_for_every_bin_that_is_not_empty():
    scores, labels = drawn(300)
    proba = temper(scores, 1.0)
    ax = plot_reliability(proba, labels, label="one")
    assert plot_reliability(temper(scores, 3.0), labels, ax, label="other") is ax
    table = reliability(proba, labels).dropna()
    shown = [np.asarray(drawn.get_offsets()) for drawn in ax.collections]
    assert any(len(p) == len(table) and np.allclose(p, table[["confidence", "accuracy"]]) for p in shown)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == f"one: ECE {calibration_error(proba, labels):.3f}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: temper([[0.0, 1.0]], 0), "expected temperature to be a positive number; got 0"),
        (lambda: temper([0.0, 1.0], 1), "expected scores, samples × classes, finite"),
        (lambda: fit_temperature([[1.0], [2.0]], [0, 0]), "expected scores of two classes or more"),
        (lambda: fit_temperature([[1.0, 2.0]], [2]), r"expected labels among the classes \[0, 1\]; got 2"),
        (lambda: reliability([[0.5, 0.6]], [0]), "rows add up to 1; got a row that adds up to 1.1"),
        (lambda: reliability([[0.5, 0.5]], [0, 1]), "expected 1 labels and names of 2 classes"),
        (lambda: reliability([[0.5, 0.5]], [0], 0), "expected bins to be a whole number ≥ 1; got 0"),
        (lambda: brier_score([[0.5, 0.5]], ["c"], classes=["a", "b"]), "got c"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
