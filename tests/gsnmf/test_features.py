"""Components by name: measures of distinctiveness, tables with intervals, descriptions and their picture."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gsnmf import counts_by_group, describe_components, plot_top_features, top_features_table
from gsnmf.drawing.plots import save_figures
from gsnmf.features.measures import frex, lift, mean_field_sd, measures
from gsnmf.inference import Fit, Posterior, linear_response
from gsnmf.inference.families import LogNormal, Point
from gsnmf.intervals import why_not
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, common_and_individual, structured

F, K, N, C = 7, 3, 6, 2
NAMES = ["the", "cat", "purr", "dog", "bark", "tree", "leaf"]
PRIORS = Priors(Gamma(1.0, 5.0), GroupSparse(structured(common_and_individual(1, 1, 2), 2.0, 9.0, 1.0)))


def made(groups=("x", "y") * 3, seed=0):
    """Factors with numbers of their own: nothing is fitted."""
    rng = np.random.default_rng(seed)
    q = Posterior(
        Gamma(rng.gamma(1.0, 9.0, (F, K)) + 0.1, rng.uniform(0.2, 2, (F, K))),
        Gamma(rng.gamma(1.0, 9.0, (K, N)) + 0.1, rng.uniform(0.2, 2, (K, N))),
        Gamma(np.full((K, C), 3.0), np.ones((K, C))),
    )
    X = rng.poisson(np.asarray(q.T.mean) @ np.asarray(q.V.mean))
    data = as_data(X, groups, feature_names=NAMES, sample_names=[f"doc{n}" for n in range(N)])
    return Fit(q, np.array([-1.0]), 1, True, "Made up.", priors=PRIORS), data


def test_measures_by_loops():
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.full(F, 0.4), size=K).T
    P[2] = P[3]  # a tie
    share, used = np.array([0.5, 0.3, 0.2]), np.array([True, True, False])
    overall = [sum(P[f, j] * share[j] for j in range(K)) for f in range(F)]
    np.testing.assert_allclose(lift(P, share), [[P[f, i] / overall[f] for i in range(K)] for f in range(F)])
    expected = np.empty((F, K))
    for i in range(K):
        e = [P[f, i] / sum(P[f, j] for j in range(K) if used[j]) for f in range(F)]
        for f in range(F):
            ranks = [np.mean([x <= y[f] for x in y]) for y in (e, P[:, i])]
            expected[f, i] = 1 / (0.3 / ranks[0] + 0.7 / ranks[1])
    np.testing.assert_allclose(frex(P, used, 0.3), expected)


def test_a_shared_feature_leads_by_probability_only():
    T = np.array([[50, 50, 50], [30, 1, 1], [20, 1, 1], [1, 30, 1], [1, 20, 1], [1, 1, 30], [1, 1, 20.0]])
    fit, data = made()
    q = fit.posterior._replace(T=Gamma(T, np.ones((F, K))), V=Gamma(np.full((K, N), 9.0), np.ones((K, N))))
    first = {by: top_features_table(q, data, 1, by=by)["feature"].tolist() for by in ("probability", "lift", "frex")}
    assert first == {"probability": ["the"] * 3, "lift": ["cat", "dog", "tree"], "frex": ["cat", "dog", "tree"]}


def test_widths_of_the_mean_field_are_those_of_the_response():
    """The closed form in NumPy, compared with gradients of the statistic in the coordinates of the Gammas."""
    fit, data = made()
    f, i = np.array([0, 4, 6]), np.array([0, 2, 1])
    response = linear_response(fit, data)
    by_gradients = response.mean_field_sd(lambda q: q.T.mean[f, i] / q.T.mean.sum(axis=0)[i])
    np.testing.assert_allclose(mean_field_sd(fit.posterior.T, f, i), by_gradients, rtol=1e-6)
    np.testing.assert_allclose(response.posterior.T.mean, fit.posterior.T.mean, rtol=1e-12)
    rng = np.random.default_rng(0)
    other = LogNormal(rng.normal(size=(F, K)), np.full((F, K), 0.01))
    draws = np.exp(rng.normal(other.loc, other.scale, size=(20_000, F, K)))
    sd = (draws[:, f, i] / draws.sum(axis=1)[:, i]).std(axis=0)
    np.testing.assert_allclose(mean_field_sd(other, f, i), sd, rtol=0.03)  # of 20,000 draws an sd is known to 0.5 %


def test_the_table():
    fit, data = made()
    table = top_features_table(fit, data, 3, intervals="mean field", components=[2, 0])
    names = "component rank feature probability lift frex lower upper sd width mean_field_sd"
    assert table.columns.tolist() == names.split()
    assert table["component"].tolist() == [2] * 3 + [0] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2
    assert set(table["width"]) == {"mean field"}
    T = np.asarray(fit.posterior.T.mean)
    P = pd.DataFrame(T / T.sum(axis=0), index=NAMES)
    assert table["feature"][:3].tolist() == P[2].nlargest(3).index.tolist()
    np.testing.assert_allclose(
        table["probability"], [P.loc[f, k] for f, k in zip(table.feature, table.component, strict=True)]
    )
    inside = (table["lower"] < table["probability"]) & (table["probability"] < table["upper"])
    assert inside.all()
    pd.testing.assert_frame_equal(table, top_features_table(fit.posterior, data.names, 3, components=[2, 0]))
    assert len(top_features_table(fit, data, 99, intervals="mean field")) == F * K
    by_frex = top_features_table(fit, data, F, by="frex", intervals="mean field", components=1)
    assert (np.diff(by_frex["frex"]) <= 0).all()


def test_a_point_estimate_has_no_width():
    fit, data = made()
    point = fit.posterior._replace(T=Point(np.asarray(fit.posterior.T.mean)))
    table = top_features_table(point, data, 2)
    assert set(table["width"]) == {"none"}
    assert table[["lower", "upper", "sd"]].isna().all().all()


def test_large_problems_keep_the_widths_of_the_mean_field(monkeypatch):
    fit, data = made()
    assert why_not(fit, data, None, 6) is None
    monkeypatch.setattr("gsnmf.intervals.WORK", 10)
    assert "would take long" in why_not(fit, data, None, 6)
    assert set(top_features_table(fit, data, 2)["width"]) == {"mean field"}
    with pytest.raises(ValueError, match="expected intervals by linear response with corrected=True"):
        top_features_table(fit, data, 2, corrected=True)


def test_dead_components_do_not_make_features_look_shared():
    fit, data = made()
    a = np.concatenate([np.asarray(fit.posterior.T.a), np.full((F, 1), 0.01)], axis=1)
    v = np.concatenate([np.asarray(fit.posterior.V.a), np.full((1, N), 0.01)])
    b = np.asarray(fit.posterior.T.b), np.asarray(fit.posterior.V.b)
    T = Gamma(a, np.concatenate([b[0], np.full((F, 1), 1.0)], axis=1))
    more = Posterior(T, Gamma(v, np.concatenate([b[1], np.ones((1, N))])), None)
    found, before = measures(more, data), measures(fit.posterior, data)
    assert found.used.tolist() == [True] * K + [False]
    np.testing.assert_allclose(found.frex[:, :K], before.frex)


def test_a_row_for_each_component():
    fit, data = made()
    about = describe_components(fit, data, 3)
    assert about["serves"].tolist() == ["all", "x", "y"]
    V, sums = np.asarray(fit.posterior.V.mean), np.asarray(fit.posterior.T.mean).sum(axis=0)
    parts = sums[:, None] * V
    np.testing.assert_allclose(about["share"], parts.sum(axis=1) / parts.sum())
    shares = counts_by_group(fit, data)
    np.testing.assert_allclose(shares["y"], V[:, 1::2].sum(axis=1) / V.sum(axis=1))
    assert about["group"].tolist() == ["xy"[c] for c in shares.to_numpy().argmax(axis=1)]
    np.testing.assert_allclose(about["group_share"], shares.max(axis=1))
    large = np.flatnonzero(parts.sum(axis=0) >= np.median(parts.sum(axis=0)))
    best = [large[(parts[k] / parts.sum(axis=0))[large].argmax()] for k in range(K)]
    assert about["samples"].tolist() == [f"doc{n}" for n in best]
    assert about["top"][0] == ", ".join(top_features_table(fit, data, 3, intervals="mean field")["feature"][:3])
    plain = describe_components(fit.posterior, as_data(data.X, feature_names=NAMES))
    assert set(plain["serves"]) == set(plain["group"]) == {""}


def test_the_picture(tmp_path, monkeypatch):
    fit, data = made()
    ax = plot_top_features(fit, data, 2, title="pets")
    texts = [text.get_text() for text in ax.texts]
    assert ax.get_title() == "pets"
    table = top_features_table(fit, data, 2, by="frex", intervals="mean field")
    assert sorted(texts) == sorted([*table["feature"], *(t for t in texts if "%" in t)])
    assert len([t for t in texts if "%" in t]) == K
    widths = [path.get_extents().width for path in ax.collections[0].get_paths()]
    assert len(widths) == 2 * K
    own = Figure().add_subplot()
    assert plot_top_features(fit, data, 2, components=[1], ax=own) is own
    monkeypatch.setattr("gsnmf.drawing.plots.save", lambda ax, path: None)
    names = {path.name for path in save_figures(tmp_path, fit, data)}
    assert "features.png" in names
    assert "features.png" not in {path.name for path in save_figures(tmp_path, fit, as_data(data.X, ["x", "y"] * 3))}


def test_headings_name_what_a_component_serves():
    """Not the group with most counts, which a common component has as well; without a binding prior, that one."""
    fit, data = made()
    headings = [text.get_text() for text in plot_top_features(fit, data, 1).texts if "%" in text.get_text()]
    assert [heading.partition(" ·")[0] for heading in headings] == ["0 all", "1 x", "2 y"]
    q = fit.posterior._replace(lam=None, V=Gamma(np.ones((K, N)) + np.eye(K, N), np.ones((K, N))))
    free = fit._replace(posterior=q, priors=Priors(Gamma(1.0, 5.0), Gamma(1.0, 1.0)))
    headings = [text.get_text() for text in plot_top_features(free, data, 1).texts if "%" in text.get_text()]
    assert sorted(heading.partition(" ·")[0] for heading in headings) == ["0 x", "1 y", "2 x"]


def test_a_stream_has_features_but_no_samples():
    """It keeps no coefficients: components count equally."""
    fit, data = made()
    q = fit.posterior._replace(V=Gamma(np.ones((K, 0)), np.ones((K, 0))))
    P = np.asarray(q.T.mean) / np.asarray(q.T.mean).sum(axis=0)
    table = top_features_table(q, data.names, 1, by="lift")
    np.testing.assert_allclose(table["lift"], (P / P.mean(axis=1, keepdims=True)).max(axis=0))
    with pytest.raises(ValueError, match="got one of a stream, which keeps none"):
        describe_components(q, data)


def test_bad_input():
    fit, data = made()
    with pytest.raises(ValueError, match="ncols"):
        plot_top_features(fit, data, ncols=0)
    with pytest.raises(ValueError, match="expected by to be one of 'probability', 'lift', 'frex'; got 'size'"):
        top_features_table(fit, data, by="size")
    with pytest.raises(ValueError, match=r"expected intervals to be one of .*; got 'exact'"):
        top_features_table(fit, data, intervals="exact")
    with pytest.raises(ValueError, match="expected components to be numbers from 0 to 2; got \\[3\\]"):
        top_features_table(fit, data, components=[3])
    with pytest.raises(ValueError, match="expected names of 7 features, as in the fit; got 2"):
        top_features_table(fit, as_data(np.ones((2, N))))
    with pytest.raises(ValueError, match=r"expected Data, as made by as_data.*; got list"):
        top_features_table(fit, NAMES)
    with pytest.raises(ValueError, match=r"expected Data, as made by as_data.*, for linear response; got Names"):
        top_features_table(fit, data.names, intervals="linear response")
    with pytest.raises(ValueError, match="expected the data of the fit, with 6 samples; got 2"):
        describe_components(fit, as_data(np.ones((F, 2)), ["x", "y"]))
    with pytest.raises(ValueError, match="expected data with groups"):
        counts_by_group(fit, as_data(data.X))
