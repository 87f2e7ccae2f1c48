"""Sensitivity to the prior: the table and the bars, of a response whose derivatives are given."""

import jax
import numpy as np
import pytest

from gsnmf import sensitivity_plot, sensitivity_table
from gsnmf.drawing.axes import new_axes
from gsnmf.inference import cavi, linear_response
from gsnmf.model import Gamma, GroupSparse, Priors, as_data
from gsnmf.model.problem import Problem

DATA = as_data(np.arange(1, 13).reshape(3, 4), ["a", "b", "a", "b"])


class Response:
    """E[f] is Σ w log α over all hyperparameters, with weights 1, 2, ... in the order of each array; sd(f) is 2."""

    def __init__(self, priors):
        self.problem = Problem(DATA, priors, 2)

    def mean(self, f):
        return np.asarray(f(None))

    def sd(self, f):
        return np.float64(2.0)

    def sensitivity(self, f):
        return jax.tree.map(lambda x: np.arange(1.0, 1 + x.size).reshape(x.shape) / np.asarray(x), self.problem.priors)


def rows(table):
    return {(row.hyperparameter, row.entries): row for row in table.itertuples()}


def test_entries_of_one_value_move_together():
    priors = Priors(Gamma(0.5, 20.0), GroupSparse(Gamma(np.array([[2.0, 8.0], [8.0, 2.0]]), 1.0)))
    table = sensitivity_table(Response(priors), lambda q: 1.0)
    found = rows(table)
    assert set(found) == {
        ("dictionary.a", "all"),
        ("dictionary.b", "all"),
        ("coefficients.rate.a", "2"),
        ("coefficients.rate.a", "8"),
        ("coefficients.rate.b", "all"),
    }
    assert found["dictionary.a", "all"].derivative == pytest.approx(1.0)
    assert found["coefficients.rate.a", "2"].derivative == pytest.approx(1 + 4)  # weights of the diagonal
    assert found["coefficients.rate.a", "8"].derivative == pytest.approx(2 + 3)
    assert found["coefficients.rate.a", "8"].number == 2
    assert found["coefficients.rate.a", "8"].value == pytest.approx(8.0)
    np.testing.assert_allclose(table["move"], table["derivative"] * np.log(2))
    np.testing.assert_allclose(table["sds"], table["move"] / 2)
    assert table["sds"].abs().is_monotonic_decreasing


def test_of_many_values_the_largest_entries_stand_alone():
    values = np.arange(1.0, 7.0).reshape(3, 2)
    table = sensitivity_table(Response(Priors(Gamma(values, 1.0), Gamma(1.0, 1.0))), lambda q: 1.0)
    found = rows(table[table["hyperparameter"] == "dictionary.a"])
    assert {entries for _, entries in found} == {"[2, 1]", "[2, 0]", "[1, 1]", "[1, 0]", "others"}
    assert found["dictionary.a", "[2, 1]"].derivative == pytest.approx(6.0)
    assert found["dictionary.a", "[2, 1]"].value == 6.0
    assert found["dictionary.a", "others"].derivative == pytest.approx(1 + 2)
    assert found["dictionary.a", "others"].number == 2


def test_bars_are_the_table():
    response = Response(Priors(Gamma(0.5, 20.0), GroupSparse(Gamma(np.array([[2.0, 8.0], [8.0, 2.0]]), 1.0))))
    ax = new_axes()
    assert sensitivity_plot(response, lambda q: 1.0, ax, title="own share") is ax
    table = sensitivity_table(response, lambda q: 1.0)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], table["sds"])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "coefficients.rate.a = 8 (2 entries)" in labels
    assert "dictionary.a = 0.5" in labels
    assert ax.get_title() == "own share"
    assert "linearised" in ax.get_xlabel()
    with pytest.raises(ValueError, match=r"expected f to return one number; got an array of shape \(2,\)"):
        sensitivity_plot(response, lambda q: np.ones(2))


@pytest.mark.slow
def test_moves_are_those_of_a_refit():
    """A hyperparameter multiplied by 1.01: log 1.01 of the derivative, within 3 % for terms of second order."""
    priors = Priors(Gamma(1.0, 5.0), GroupSparse(Gamma(np.array([[1.0, 6.0], [6.0, 1.0]]), 0.5)))
    options = {"rank": 2, "tol": 1e-13, "max_steps": 5000}
    fit = cavi.run(DATA, priors, key=jax.random.key(0), init="groups", **options)

    def f(q):
        parts = q.T.mean.sum(axis=0) * q.V.mean.sum(axis=1)
        return parts[0] / parts.sum()

    found = rows(sensitivity_table(linear_response(fit, DATA), f))
    rates = priors.coefficients.rate
    changed = {
        ("dictionary.a", "all"): priors._replace(dictionary=Gamma(1.01, 5.0)),
        ("coefficients.rate.a", "6"): priors._replace(
            coefficients=GroupSparse(Gamma(np.where(rates.a == 6, 6.06, rates.a), 0.5))
        ),
    }
    for key, other in changed.items():
        again = cavi.run(DATA, other, key=jax.random.key(0), start=fit, **options)
        move = float(f(again.posterior) - f(fit.posterior))
        assert found[key].derivative * np.log(1.01) == pytest.approx(move, rel=0.03)
