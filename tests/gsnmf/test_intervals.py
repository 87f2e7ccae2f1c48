"""Intervals of top features and of proportions in samples, as the estimator gives them."""

import numpy as np
import pandas as pd
import pytest
from estimators import nearest_neighbour
from scipy import stats
from sklearn.exceptions import NotFittedError

from gsnmf import describe_components, intervals, top_features_table
from gsnmf.inference import Posterior
from gsnmf.intervals import beta_ends, proportion_intervals, rows_of, totals
from gsnmf.model import Gamma, GroupSparse, Priors, as_data


def fitted():
    """Two classes of four samples, of which neither component makes up all."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(1.0, 9.0, size=(2, 5))[[0, 1] * 4] + 1.0).astype(float)
    priors = Priors(Gamma(1.0, 5.0), GroupSparse(Gamma(np.array([[1.0, 4.0], [4.0, 1.0]]), 0.5)))
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    return nearest_neighbour(priors=priors, tol=1e-9, max_iter=2000, random_state=0).fit(frame, ["a", "b"] * 4), frame


def test_intervals_of_features_and_samples():
    """The tables, compared with the response of the refined fit asked by hand."""
    model, frame = fitted()
    response = model.linear_response(frame)
    assert response.bound == "collapsed"
    T, V = (response.mean(f) for f in (lambda q: q.T.mean, lambda q: q.V.mean))
    assert not np.allclose(T, model.posterior_.T.mean, rtol=1e-3)  # refined
    features = model.top_features(response, 2)
    assert set(features["width"]) == {"linear response"}
    data, mean_field = as_data(frame.T, ["a", "b"] * 4), {"by": "lift", "intervals": "mean field"}
    own = model.top_features(frame, 2, **mean_field)
    assert set(own["width"]) == {"mean field"}
    pd.testing.assert_frame_equal(own, top_features_table(model, data, 2, **mean_field))
    renamed = model.top_features(frame, 2, feature_names=np.array(list("VWXYZ")), **mean_field)
    assert renamed["feature"].tolist() == own["feature"].str.upper().tolist()
    with pytest.raises(
        ValueError, match=r"expected a name for each of the 5 features; got feature_names of shape \(2,"
    ):
        model.top_features(frame, 2, feature_names=["v", "w"])
    assert describe_components(model, data)["serves"].tolist() == ["a", "b"]
    pd.testing.assert_frame_equal(top_features_table(model, data, 2), features)  # small enough to be refined by itself
    assert features["component"].tolist() == [0, 0, 1, 1]
    best = np.argsort(-T, axis=0)[:2].T
    assert features["feature"].tolist() == ["vwxyz"[f] for f in best.ravel()]
    np.testing.assert_allclose(
        features["probability"], [T[f, i] / T[:, i].sum() for i in (0, 1) for f in best[i]], rtol=1e-9
    )
    last = best[1, 1]
    by_hand = response.interval(lambda q: q.T.mean[last, 1] / q.T.mean[:, 1].sum(), support="unit")
    np.testing.assert_allclose(features.loc[3, ["lower", "upper"]].astype(float), by_hand, rtol=1e-9)
    table = model.proportions(response, [5, 2])
    assert table["sample"].tolist() == [5, 5, 2, 2]
    assert table["component"].tolist() == [0, 1, 0, 1]
    counts = V * T.sum(axis=0)[:, None]
    np.testing.assert_allclose(table["mean"], (counts / counts.sum(axis=0))[:, [5, 2]].T.ravel(), rtol=1e-9)
    # The proportions of two components add up to 1, so that both have the same width, whatever it is.
    np.testing.assert_allclose(table["sd"][::2], table["sd"][1::2], rtol=1e-6)
    # Components that compete for the same counts: the mean field, which does not know, is too narrow.
    assert (table["sd"] > 1.1 * table["mean_field_sd"]).all()
    with pytest.raises(ValueError, match="expected samples to be row numbers from 0 to 7; got"):
        model.proportions(response, [8])
    with pytest.raises(ValueError, match="expected prob between 0 and 1; got 90"):
        model.top_features(response, prob=90)
    with pytest.raises(ValueError, match="expected the data of the fit"):
        model.top_features(frame[::-1])
    other = nearest_neighbour(n_components=1, max_iter=2, tol=None).fit(np.ones((3, 4)))
    with pytest.raises(ValueError, match="expected what linear_response of this estimator returned; got one of 5 "):
        other.top_features(response)


def test_before_a_fit():
    model = nearest_neighbour()
    for call in (model.linear_response, model.top_features, model.proportions):
        with pytest.raises(NotFittedError):
            call(np.ones((3, 4)))


class Response:
    """A response whose statistics are what f returns for given factors."""

    is_dense, size = False, 10**6

    def mean(self, f, corrected=False):
        return np.asarray(f(Posterior(Gamma(np.ones((2, 1)), 1.0), Gamma(np.ones((1, 3)), 1.0), None)))

    def sd(self, f):
        return 0 * self.mean(f)

    mean_field_sd = sd


def test_a_single_component_is_all_there_is(monkeypatch):
    table = proportion_intervals(Response(), totals)
    assert table.to_numpy().tolist() == [[1.0, 1.0, 1.0, 0.0, 0.0]]
    monkeypatch.setattr(intervals, "MOST", 0)
    with pytest.raises(ValueError, match="expected at most 0 intervals at once in a problem of 1,000,000 coordinates"):
        proportion_intervals(Response(), totals)


def test_ends_are_beta_quantiles():
    law = stats.beta(3.0, 9.0)
    low, high = beta_ends(np.array([law.mean(), 1.0]), np.array([law.std(), 0.0]), 0.8)
    np.testing.assert_allclose([low[0], high[0]], law.ppf([0.1, 0.9]), rtol=1e-9)
    assert (low[1], high[1]) == (1.0, 1.0)


@pytest.mark.parametrize("samples", [[-1], [3], [0.5], [], [[0]], ["a"]], ids=str)
def test_rows(samples):
    assert rows_of(None, 3).tolist() == [0, 1, 2]
    assert rows_of(2, 3).tolist() == [2]
    with pytest.raises(ValueError, match="expected samples to be row numbers from 0 to 2; got"):
        rows_of(samples, 3)
