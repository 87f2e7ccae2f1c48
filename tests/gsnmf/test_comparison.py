"""One table over models: every column is what the library measures, nothing is mixed, and it prints."""

import functools
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import rel_entr

from gsnmf import compare
from gsnmf.classification.projection import accuracy, nnls
from gsnmf.comparison.models import stacking_weights
from gsnmf.comparison.plots import plot_comparison
from gsnmf.inference import cavi, collapsed_bound, evidence, held_out_score, leave_one_out, psis, to_arviz
from gsnmf.inference.arviz_compat import _arviz, arviz_loo
from gsnmf.inference.diagnostics import log_weights
from gsnmf.inference.families import LogNormal, Point
from gsnmf.inference.posterior import Posterior
from gsnmf.model import Gamma, GroupSparse, Priors, Relevance, as_data, hide

KEY, DRAWS = jax.random.key(5), 200
X = np.random.default_rng(0).poisson(4.0, size=(6, 12)).astype(float)
SEEN = as_data(X, list("abbaab") * 2)
DATA = hide(SEEN, 0.2, seed=1)
DICTIONARY = Gamma(1.0, 2.0)
PRIORS = {
    "weak": Priors(DICTIONARY, GroupSparse(Gamma(np.full((2, 2), 2.0), 0.5))),
    "strong": Priors(DICTIONARY, GroupSparse(Gamma(np.full((2, 2), 200.0), 0.05))),
    "plain": Priors(DICTIONARY, Gamma(np.full((2, 1), 2.0), 0.5)),
}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


@functools.cache
def fitted(name, seed=0):
    return cavi.run(DATA, PRIORS[name], key=jax.random.key(seed), max_steps=500)


def fits(*names):
    return {name: fitted(name) for name in names or PRIORS}


@functools.cache
def compared(by="collapsed"):
    return compare(fits(), DATA, by=by, key=KEY, num_samples=DRAWS, printed=True)


def log_normal(fit):
    """The same centre and spread, in factors that have no augmented bound."""
    q = Posterior(*(f and LogNormal(f.log_mean, 1 / f.a**0.5) for f in fit.posterior[:3]))
    return fit._replace(posterior=q, bound="collapsed")


@pytest.mark.slow
def test_columns_are_what_the_library_measures():
    table = compared().table
    sampled = {"key": KEY, "num_samples": DRAWS}
    for name, fit in fits().items():
        row, problem = table.loc[name], (fit, DATA, PRIORS[name])
        assert (row.collapsed_bound, row.collapsed_bound_se) == collapsed_bound(*problem, **sampled)
        np.testing.assert_allclose(row.augmented_bound, fit.elbo[-1], rtol=1e-12)
        score = held_out_score(*problem, **sampled)
        np.testing.assert_allclose(row.held_out, score.mean, rtol=1e-12)
        np.testing.assert_allclose(row.held_out_se, score.error / len(DATA.held_out), rtol=1e-12)
        assert row.k_hat == psis(*problem, **sampled)
        found = leave_one_out(*problem, **sampled)
        np.testing.assert_allclose(row.loo, found.elpd.sum(), rtol=1e-12)
        np.testing.assert_allclose(row.loo_se, found.elpd.std(ddof=1) * np.sqrt(12), rtol=1e-12)
        assert row.loo_worst_k == found.pareto_k.max()
        assert row.loo_bad_k == (found.pareto_k > 0.7).sum()
        M = np.asarray(fit.posterior.T.mean @ fit.posterior.V.mean)
        seen = np.asarray(DATA.mask, bool)
        np.testing.assert_allclose(row.divergence, np.sum((rel_entr(X, M) - X + M)[seen]), rtol=1e-10)
        assert row.paper_bound == row.augmented_bound + row.paper_bound_gap
        assert row.paper_bound_gap == cavi.paper_bound_gap(fit.posterior, DATA)
        assert (row.components, row.sweeps, row.converged) == (2, fit.num_steps, fit.converged)
        assert (row.restarts, row.optimised) == (1, "augmented")
    np.testing.assert_allclose(table.loo_weight.sum(), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("by", "column"),
    [("collapsed", "collapsed_bound"), ("augmented", "augmented_bound"), ("held_out", "held_out"), ("loo", "loo")],
)
def test_best_comes_first_and_differences_are_from_it(by, column):
    found = compared(by)
    assert found.table[column].is_monotonic_decreasing
    assert found.best == found.table[column].idxmax()
    for measure in ("collapsed_bound", "held_out", "loo"):
        gaps = found.table[measure] - found.table[measure].iloc[0]
        np.testing.assert_allclose(found.table[f"{measure}_diff"], gaps, atol=1e-10)


def test_each_bound_ranks_by_itself():
    """CAVI's factors are the best for the augmented bound; for the collapsed one they are too narrow."""
    fit = fitted("weak")
    T, V, lam = fit.posterior
    wider = Posterior(*(Gamma(0.7 * q.a, q.b / 0.7) for q in (T, V)), lam)
    both = {"cavi": fit, "wider": fit._replace(posterior=wider, bound="collapsed")}
    first = {by: compare(both, DATA, by=by, num_samples=DRAWS, loo=False) for by in ("augmented", "collapsed")}
    assert {by: found.best for by, found in first.items()} == {"augmented": "cavi", "collapsed": "wider"}
    gap = first["collapsed"].table.loc["cavi"]
    assert gap.collapsed_bound_diff < -5 * gap.collapsed_bound_diff_se


def test_differences_are_paired():
    """By draw for the collapsed bound, by entry held out, by sample left out: equal models are 0 ± 0 apart."""
    table = compared().table
    first, second = table.index[:2]
    weights = [np.asarray(log_weights(fitted(n), DATA, PRIORS[n], key=KEY, num_samples=DRAWS)) for n in (first, second)]
    paired = (weights[1] - weights[0]).std(ddof=1) / np.sqrt(DRAWS)
    np.testing.assert_allclose(table.collapsed_bound_diff_se[second], paired, rtol=1e-12)
    twice = compare([fitted("weak"), fitted("weak")], DATA, num_samples=DRAWS).table
    assert twice.index.tolist() == [0, 1]
    errors = [f"{measure}_diff{end}" for measure in ("collapsed_bound", "held_out", "loo") for end in ("", "_se")]
    assert (twice[errors] == 0).all(axis=None)


def test_the_best_restart_speaks_for_its_model():
    some = [fitted("weak", seed=seed)._replace(num_steps=seed) for seed in range(3)]
    broken = some[0]._replace(elbo=np.array([np.nan]))
    found = compare({"weak": [*some, broken], "plain": fitted("plain")}, DATA, num_samples=DRAWS, loo=False)
    row = found.table.loc["weak"]
    assert row.sweeps == max(some, key=lambda fit: fit.elbo[-1]).num_steps
    assert row.restarts == 4
    assert "k_hat" not in found.table
    assert any("Not the same chance" in remark and "weak 4" in remark for remark in found.remarks)


def test_restarts_of_gradients_are_judged_by_their_collapsed_bounds():
    """Their last losses are noise: here the better one has the lower."""
    good = log_normal(fitted("weak"))
    scaled = good.posterior._replace(T=LogNormal(good.posterior.T.loc - 1.0, good.posterior.T.scale))
    bad = good._replace(posterior=scaled, elbo=good.elbo + 1e4, num_steps=99)
    table = compare({"weak": [bad, good]}, DATA, num_samples=DRAWS, loo=False).table
    assert table.sweeps["weak"] == good.num_steps


def test_factors_without_an_augmented_bound():
    both = {"gamma": fitted("weak"), "normal": log_normal(fitted("weak"))}
    found = compare(both, DATA, num_samples=DRAWS, loo=False, printed=True)
    assert np.isnan(found.table.augmented_bound["normal"])
    assert np.isnan(found.table.paper_bound["normal"])
    assert np.isfinite(found.table.collapsed_bound).all()
    assert any("some fits maximised the augmented bound" in remark for remark in found.remarks)
    with pytest.raises(ValueError, match=r"collapsed bounds are never mixed .* got only a collapsed bound for normal"):
        compare(both, DATA, by="augmented")


def test_accuracy_is_that_of_the_papers_classifier():
    new = np.random.default_rng(1).poisson(4.0, size=(6, 9)).astype(float), list("ab" * 4 + "a")
    T, labels = fitted("weak").posterior.T.mean, list("abbaab") * 2
    for given in (labels, labels[::-1]):
        asked = {"test": new, "labels": None if given is labels else given, "num_samples": DRAWS, "loo": False}
        found = compare({"weak": fitted("weak")}, DATA, **asked)
        assert found.table.accuracy["weak"] == accuracy(T, np.where(DATA.mask, X, np.nan), given, *new)


def test_accuracy_does_not_see_hidden_entries():
    T, seen = np.asarray(fitted("weak").posterior.T.mean), np.asarray(DATA.mask, bool)
    V = np.hstack([nnls(T[w], x[w, None]) for w, x in zip(seen.T, X.T, strict=True)])
    # Each sample is its own nearest neighbour where its coefficients are those of the entries seen.
    test = (T @ V, np.arange(12))
    found = compare({"weak": fitted("weak")}, DATA, test=test, labels=np.arange(12), num_samples=DRAWS, loo=False)
    assert found.table.accuracy["weak"] == 1


def test_it_prints_with_k_hat_beside_loo():
    text = str(compared()).splitlines()
    assert text[0] == "3 models, best first by collapsed bound (± standard error)"
    assert text[2].split() == compared().table.index.tolist()
    starts = [line[:20].strip() for line in text]
    assert starts.index("LOO by sample") == starts.index("k̂ of q") + 1
    assert max(map(len, text[:20])) < 120
    assert "±" in next(line for line in text if line.startswith("collapsed bound"))
    assert "augmented bound" in starts
    assert "<table" in compared()._repr_html_()


def test_remarks_say_what_is_near_and_what_disagrees():
    near = compare({"one": fitted("weak"), "two": fitted("weak")}, DATA, num_samples=DRAWS, loo=False)
    assert "Within two standard errors of one: two." in near.remarks
    late = compare({"one": fitted("weak")._replace(converged=False)}, DATA, num_samples=DRAWS, loo=False)
    assert late.remarks == ("Not converged: one.",)


def test_plot_shows_differences_on_the_axes_given():
    from gsnmf.drawing.axes import new_axes

    found, ax = compared(), new_axes()
    assert plot_comparison(found, ax) is ax
    np.testing.assert_allclose(ax.lines[0].get_xdata(), found.table.collapsed_bound_diff, atol=1e-9)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == found.table.index.tolist()
    assert "k̂" in plot_comparison(found, measure="loo").get_yticklabels()[0].get_text()
    plot_comparison(found, measure="augmented")
    with pytest.raises(ValueError, match="expected measure to be one of 'collapsed', 'augmented'"):
        plot_comparison(found, measure="paper")


def test_names_may_be_anything():
    table = compare({(1, "a"): fitted("weak"), 2.5: fitted("plain")}, DATA, num_samples=DRAWS).table
    assert set(table.index) == {(1, "a"), 2.5}
    assert isinstance(table, pd.DataFrame)


def point(fit):
    return fit._replace(posterior=Posterior(*(f and Point(f.mean) for f in fit.posterior[:3])), bound="log_joint")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fits": {}}, "expected fits by name, or a list of them; got dict"),
        ({"fits": lambda: fitted("weak")}, "expected fits by name, or a list of them; got Fit"),
        ({"fits": {"a": 1}}, "expected a Fit, or several, for 'a'; got int"),
        ({"fits": {"a": []}}, "expected a Fit, or several, for 'a'; got list"),
        ({"fits": lambda: {"a": point(fitted("weak"))}}, "got a MAP estimate, bound='log_joint', for 'a'"),
        ({"fits": lambda: {"a": fitted("weak")._replace(priors=None)}}, "got priors=None for 'a'"),
        (
            {"fits": lambda: {"a": [fitted("weak"), fitted("strong")]}},
            "expected restarts of one model by one algorithm",
        ),
        ({"fits": lambda: {"a": [fitted("weak"), fitted("plain")]}}, "expected restarts of one model by one algorithm"),
        ({"fits": lambda: {"a": [fitted("weak"), log_normal(fitted("weak"))]}}, "by one algorithm for 'a'"),
        ({"fits": lambda: {"a": fitted("weak")._replace(elbo=np.array([np.inf]))}}, "expected a finite bound for 'a'"),
        (
            {"data": hide(SEEN, 0.2, seed=2)},
            r"held out; got other data .checksum \d+, that of the fit \d+. for 'weak'",
        ),
        (
            {"fits": lambda: {"a": fitted("weak")._replace(data=None)}, "data": hide(SEEN, 0.2, seed=2)},
            "same entries held out; got 'a', which recorded a bound",
        ),
        ({"data": as_data(X[:, 1:], list("bbaab") + list("abbaab"))}, "expected fits of these data; got for 'weak': "),
        ({"data": as_data(X)}, "expected fits of these data; got for 'weak': expected data with groups"),
        ({"data": X}, "expected Data, as made by as_data"),
        ({"by": "paper"}, "the printed bound exceeds the valid bound by .* it cannot rank models"),
        (
            {"by": "elbo"},
            "expected by to be one of 'collapsed', 'augmented', 'held_out', 'loo', 'conditional_loo'; got 'elbo'",
        ),
        ({"by": "held_out", "data": SEEN}, "expected two entries or more held out"),
        ({"by": "loo", "loo": False}, "expected loo=True"),
        ({"num_samples": 3}, "expected num_samples to be a whole number ≥ 25; got 3"),
        ({"key": 1}, "expected key to be a JAX key"),
        ({"test": X}, r"expected test=\(X, labels\)"),
        (
            {"test": (X, list("ab"))},
            r"expected labels and new X of shapes \(\(12,\), \(6, 2\)\); got \(12,\) and \(6, 12\)",
        ),
    ],
)
def test_bad_input_is_refused(options, message):
    given = {"fits": fits("weak"), "data": DATA} | options
    models, data = given.pop("fits"), given.pop("data")
    with pytest.raises(ValueError, match=message):
        compare(models() if callable(models) else models, data, **given)


@pytest.mark.slow
def test_the_evidence_is_a_column_on_request():
    """Above both bounds, within 2 standard errors."""
    found = compare(fits("weak"), DATA, key=KEY, num_samples=DRAWS, loo=False, evidence=True)
    row, alone = found.table.loc["weak"], evidence(DATA, PRIORS["weak"], key=KEY)
    assert (row.evidence, row.evidence_se) == alone[:2]
    assert row.evidence > max(row.collapsed_bound, row.augmented_bound) - 2 * row.evidence_se
    assert "evidence, log p(X)" in str(found)
    assert "evidence" not in compared().table


def test_stacking_weights_are_those_of_arviz():
    """Of draws of the conditional form, which `az.compare` takes; the maximum is flat, so to 0.02."""
    options = {"num_samples": DRAWS, "log_likelihood": "sample", "posterior_predictive": False}
    trees = {name: to_arviz(fit, DATA, **options) for name, fit in fits("weak", "plain").items()}
    found = {name: arviz_loo(tree) for name, tree in trees.items()}
    assert all(one.elpd.shape == one.pareto_k.shape == (12,) for one in found.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of high Pareto k, and of newer pandas
        theirs = {name: _arviz().loo(tree, pointwise=True) for name, tree in trees.items()}
        theirs = _arviz().compare(theirs, method="stacking")["weight"]
    ours = stacking_weights(np.array([one.elpd for one in found.values()]))
    np.testing.assert_allclose(ours, theirs[list(found)], atol=0.02)
    assert stacking_weights(np.array([[-5.0] * 3, [0.0] * 3]))[1] > 0.99


def test_the_conditional_form_ranks_only_under_its_own_name():
    found = compare(fits("weak", "plain"), DATA, by="conditional_loo", key=KEY, num_samples=DRAWS, loo=False)
    options = {"key": KEY, "num_samples": DRAWS, "log_likelihood": "sample", "posterior_predictive": False}
    elpd = {name: arviz_loo(to_arviz(fit, DATA, **options)).elpd.sum() for name, fit in fits("weak", "plain").items()}
    np.testing.assert_allclose(found.table.conditional_loo, [elpd[name] for name in found.table.index], rtol=1e-12)
    assert "loo" not in found.table
    assert any("is not reliable" in remark for remark in found.remarks)
    assert "conditional_loo" not in compared().table


def test_models_without_closed_forms_have_no_loo():
    import numpyro.distributions as dist

    strange = Priors(dist.HalfNormal(2.0), PRIORS["weak"].coefficients)
    both = {"gamma": fitted("weak"), "normal": log_normal(fitted("weak"))._replace(priors=strange)}
    found = compare(both, DATA, num_samples=DRAWS)
    assert np.isfinite(found.table.loo["gamma"])
    assert np.isnan(found.table.loo["normal"])
    assert "loo_weight" not in found.table
    with pytest.raises(
        ValueError, match="expected priors with closed forms for by='loo'; got priors without closed forms for normal"
    ):
        compare(both, DATA, by="loo")


def test_fits_of_other_data_are_known_whatever_made_them():
    """A fit that saw the entries held out would come first: SVI's are refused as CAVI's are."""
    data = as_data(X)
    part = hide(data, 0.3, seed=0)
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 5.0))
    fit = cavi.run(data, priors, key=jax.random.key(0), rank=2, max_steps=5, tol=None)
    peeked = fit._replace(bound="collapsed")  # as if by SVI, whose last bound says nothing
    assert fit.data != cavi.run(part, priors, key=jax.random.key(0), rank=2, max_steps=5, tol=None).data
    with pytest.raises(ValueError, match=r"held out; got other data .* for 'peeked'"):
        compare({"peeked": peeked}, part, by="held_out")


def test_restarts_may_have_learned_their_own_priors():
    data, priors = as_data(X), Priors(Gamma(1.0, 1.0), Gamma(1.0, 5.0))
    options = {"rank": 2, "max_steps": 20, "tol": None, "learn": cavi.learn("all")}
    fits = cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(0), 2), **options)
    assert not np.array_equal(fits[0].priors.dictionary.a, fits[1].priors.dictionary.a)
    assert compare({"learned": fits}, data, loo=False, num_samples=25).table["restarts"].tolist() == [2]
    other = cavi.run(data, Priors(Gamma(1.0, 1.0), Relevance(Gamma(1.0, 1.0))), key=jax.random.key(0), rank=2)
    with pytest.raises(ValueError, match="got kinds of bound augmented and a number of distinct priors of 2"):
        compare({"mixed": [fits[0], other]}, data)
