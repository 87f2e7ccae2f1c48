"""Heads, their comparison within the training part, several labels per sample, and warnings of pointless fits."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.covariance import LedoitWolf
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.neighbors import KNeighborsClassifier
from test_estimator import small_problem

from gsnmf import GroupSparseNMF
from gsnmf.classification import choosing, heads, multilabel
from gsnmf.classification.choosing import left_out_parts
from gsnmf.classification.heads import EQUAL, Nearest, discriminants, fit_head, fit_weights, profiles_of
from gsnmf.classification.multilabel import as_indicator
from gsnmf.classification.representation import Represented, imputed
from gsnmf.classification.restarts import Recipe
from gsnmf.cli import main
from gsnmf.inference.warning import DeadComponentsWarning
from gsnmf.model import Gamma, Priors
from gsnmf.reading.labels import labels_of

QUICK = {"per_class": 1, "max_iter": 30, "random_state": 0, "n_restarts": 1}


@pytest.fixture(autouse=True)
def double_precision():
    """People use it in JAX's default, single precision."""


def test_parts_are_of_one_size_and_leave_every_class_something_to_learn_from():
    y = np.repeat([0, 1, 2, 3], [11, 6, 2, 1])
    parts = left_out_parts(y, seed=0)
    assert [len(part) for part in parts] == [6, 6, 6]
    assert len(set(np.concatenate(parts))) == 18
    assert 19 not in np.concatenate(parts)  # the only sample of its class
    for part in parts:
        assert set(np.delete(y, part)) == {0, 1, 2, 3}
        assert np.bincount(y[part], minlength=3)[:2].tolist() in ([3, 2], [4, 2], [4, 1], [3, 1])
    assert left_out_parts(np.arange(4), seed=0) == []
    for labelled, number in ((choosing.MANY, 1), (choosing.MANY - 1, 3)):
        assert len(left_out_parts(np.arange(labelled) % 2, seed=0)) == number


def test_dictionaries_of_the_comparison_have_not_seen_what_is_left_out(monkeypatch):
    X, _, y, _ = small_problem()
    learned, scored = [], []
    learn, scores = choosing.learn_dictionaries, choosing._scores
    monkeypatch.setattr(
        choosing, "learn_dictionaries", lambda plan, X, *rest: learned.append(X.T) or learn(plan, X, *rest)
    )
    monkeypatch.setattr(
        choosing, "_scores", lambda name, m, seen, new, y: scored.append(new) or scores(name, m, seen, new, y)
    )
    model = GroupSparseNMF(**QUICK).fit(X, y)
    heads = len(choosing.DENSE)
    new = [seen.samples.T for seen in scored[::heads]]
    assert len(learned) == len(new) == 3
    assert sorted(map(tuple, np.concatenate(new))) == sorted(map(tuple, X))
    for old, left_out in zip(learned, new, strict=True):
        assert not set(map(tuple, old)) & set(map(tuple, left_out))
    assert model.predictor_scores_["head"].tolist() == list(choosing.DENSE)


def test_the_lowest_log_loss_is_chosen_and_said():
    X, X_new, y, y_new = small_problem()
    model = GroupSparseNMF(**QUICK).fit(X, y)
    table = model.predictor_scores_.set_index("head")
    assert model.predictor_ == table["log_loss"].idxmin()
    own = table.loc[model.predictor_]
    said = f"{model.predictor_}: log loss {own.log_loss:.3f} (accuracy {own.accuracy:.3f}) on 36 left-out samples; "
    assert model.predictor_reason_.startswith(said)
    assert model.score(X_new, y_new) > 0.9  # a third by chance; these blobs are far apart
    assert model.temperature_ > 0
    np.testing.assert_allclose(model.predict_proba(X_new).sum(axis=1), 1)


@pytest.mark.parametrize("number", [0, 1, 8])
def test_sparse_samples_are_made_dense_a_few_at_a_time(monkeypatch, number):
    rng = np.random.default_rng(0)
    old, new = rng.poisson(1.0, (5, 3)).astype(float), rng.poisson(1.0, (5, number)).astype(float)
    nearest, widths = Nearest(old, np.array([0, 1, 1])), []
    dense = nearest.scores(SimpleNamespace(complete=new))
    cosines = heads.class_cosines
    monkeypatch.setattr(heads, "class_cosines", lambda *a: widths.append(a[2].shape[1]) or cosines(*a))
    sparse = nearest.scores(SimpleNamespace(complete=scipy.sparse.csr_array(new)))
    np.testing.assert_allclose(sparse, dense, rtol=1e-12, atol=1e-7)  # of an angle near 0, half of the digits
    assert max(widths) <= 3


def test_mistakes_count_by_how_sure_they_are(monkeypatch):
    y = np.arange(12) % 2
    X = np.stack([y, np.arange(12)])  # what is "seen" of a sample: its class and its number

    def scores(name, _memory, _seen, new, _y):
        margin = np.where(new[1] == 3, -50.0, 1.0) if name == "lda" else np.where(new[1] < 2, -0.01, 3.0)
        return np.stack([1 - new[0], new[0]], axis=1) * margin[:, None]

    memory = SimpleNamespace(sound=[], seen=lambda X, **_: X)
    monkeypatch.setattr(choosing, "learn_dictionaries", lambda *_: (None, memory))
    monkeypatch.setattr(choosing, "_scores", scores)
    plan = SimpleNamespace(part_seed=0, recipe=SimpleNamespace(roughly=lambda: None), _replace=lambda **_: plan)
    found = choosing.compare_heads(plan, X, y, ["a", "b"], ("lda", "model"))
    assert found.table["accuracy"].round(3).tolist() == [0.917, 0.833]
    assert found.chosen == "model"


@pytest.mark.parametrize("head", ["lda", "stacked", "auto"])
def test_heads_on_sparse_counts(head):
    X, X_new, y, y_new = small_problem()
    X, X_new = map(scipy.sparse.csr_array, (X, X_new))
    model = GroupSparseNMF(**QUICK, predict_by=head).fit(X, y)
    assert model.score(X_new, y_new) > 0.9  # as above
    assert model.predictor_scores_["head"].tolist() == (list(choosing.SPARSE) if head == "auto" else [head])
    proba = model.predict_proba(X_new)
    assert model.predict(X_new).tolist() == model.classes_[proba.argmax(axis=1)].tolist()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_stacked_head_takes_missing_entries_and_either_storage(sparse):
    X, X_new, y, y_new = small_problem()
    model = GroupSparseNMF(**QUICK, predict_by="stacked").fit(scipy.sparse.csr_array(X) if sparse else X, y)
    np.testing.assert_array_equal(model.predict(X_new), model.predict(scipy.sparse.csr_array(X_new)))
    X_new = X_new.copy()
    X_new[:, 0] = np.nan
    assert model.score(X_new, y_new) > 0.9  # one feature of several is missing; a third by chance


def test_terms_of_a_stacked_head_for_dense_samples():
    X, X_new, y, _ = small_problem()
    model = GroupSparseNMF(**QUICK, predict_by="stacked").fit(X, y)
    head, seen = model._memory.heads["stacked"], model._memory.seen(X_new.T)
    nearest = KNeighborsClassifier(1, metric="cosine").fit(X, y)
    parts = head.parts(seen)
    assert parts.shape == (3, len(X_new), 3)
    np.testing.assert_array_equal(model.classes_[parts[0].argmax(axis=1)], nearest.predict(X_new))
    lda = GroupSparseNMF(**QUICK, predict_by="lda").fit(X, y)
    np.testing.assert_allclose(parts[2], lda._scores(X_new), rtol=1e-4)  # single precision in the fits
    np.testing.assert_allclose(head.scores(seen), sum(w * S for w, S in zip(head.weights, parts, strict=True)))


def test_a_stacked_head_of_sparse_samples_without_class_bounds():
    X, _, y, _ = small_problem()
    X = scipy.sparse.csc_array(X.T)
    dictionary = SimpleNamespace(T=SimpleNamespace(mean=np.ones((len(X.sum(axis=1)), 2))))
    coefficients = np.random.default_rng(0).random((2, len(y)))
    seen = Represented([dictionary], [None], "posterior", None, X, [coefficients])
    index = np.unique(y, return_inverse=True)[1]
    lda = fit_head("lda", seen, index, EQUAL)
    stacked = fit_head("stacked", seen, index, EQUAL)
    np.testing.assert_allclose(stacked.parts(seen)[2], lda.scores(seen))
    flat = Priors(Gamma(0.6, 20.0), Gamma(1.0, 1.0))
    assert choosing.candidates(X, flat) == ("nearest", "blend", "lda", "stacked")


def test_missing_entries_are_imputed_by_the_mean_reconstruction():
    rng = np.random.default_rng(0)
    X, (T, V) = rng.poisson(2.0, size=(5, 4)).astype(float), (rng.random((2, 5, 2)), rng.random((2, 2, 4)))
    X[1, 2] = X[3, 0] = np.nan
    guess = (T[0] @ V[0] + T[1] @ V[1]) / 2
    expected = np.where(np.isnan(X), guess, X)
    np.testing.assert_allclose(imputed(X, T, V), expected)
    np.testing.assert_allclose(imputed(scipy.sparse.csc_array(X), T, V).toarray(), expected)
    assert np.isnan(X).sum() == 2  # X itself is as it was


def test_one_class_or_single_samples_leave_nothing_to_compare():
    X, _, y, _ = small_problem()
    one = GroupSparseNMF(**QUICK).fit(X[:6], ["a"] * 6)
    assert (one.predictor_, set(one.predict(X))) == ("nearest", {"a"})
    assert "one class only" in one.predictor_reason_
    singles = GroupSparseNMF(**QUICK).fit(X[:3], y[:3])
    assert (singles.predictor_, "no class has two" in singles.predictor_reason_) == ("nearest", True)


def test_a_part_without_information_gets_no_weight():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    good, noise = np.eye(3)[y] + rng.normal(size=(300, 3)) * 0.6, rng.normal(size=(300, 3))
    first, second = fit_weights(np.stack([good, noise]), y)
    assert second < 0.2 * first
    second, first = fit_weights(np.stack([noise, good]), y)
    assert second < 0.2 * first


@pytest.mark.parametrize("directions", [None, 2])
def test_discriminants_share_one_covariance(directions):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    points, new = (rng.normal(size=(n, 4)) * [1.0, 2.0, 0.5, 0.1] + np.arange(n)[:, None] % 3 for n in (30, 6))
    found = discriminants(points, y, directions).decision_function(new)
    if directions is not None:
        axes = np.linalg.svd(points)[2][:directions].T
        points, new = points @ axes, new @ axes
    means = np.stack([points[y == c].mean(axis=0) for c in range(3)])
    precision = np.linalg.inv(LedoitWolf(assume_centered=True).fit(points - means[y]).covariance_)
    expected = [[x @ precision @ m - m @ precision @ m / 2 + np.log(1 / 3) for m in means] for x in new]
    np.testing.assert_allclose(found, expected, rtol=1e-4)  # few iterations find the directions


def test_a_coordinate_that_hardly_varies_does_not_decide():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    points = np.stack([rng.normal(size=40) + y, 1e-9 * (rng.normal(size=40) + y)], axis=1)
    assert np.abs(discriminants(points, y).decision_function(points + np.array([0.0, 0.1]))).max() < 10
    alone = discriminants(np.arange(3.0)[:, None], np.arange(3))  # no class has a second sample
    assert alone.decision_function([[0.1], [1.9]]).argmax(axis=1).tolist() == [0, 2]


def test_profiles_do_not_depend_on_totals_or_storage():
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, size=(7, 9)).astype(float)
    X[:, 4] = 0
    dense = profiles_of(X)
    np.testing.assert_allclose(dense(X * rng.integers(1, 5, 9)), dense(X))
    sparse = profiles_of(scipy.sparse.csc_array(X))
    np.testing.assert_allclose(sparse(scipy.sparse.csc_array(X)).toarray(), dense(X))
    np.testing.assert_allclose(np.linalg.norm(dense(X), axis=1), np.arange(9) != 4)
    scaled = np.log1p(X * dense.total / np.maximum(X.sum(axis=0), 1)).T
    np.testing.assert_allclose(dense(X), TfidfTransformer().fit_transform(scaled).toarray())


def several_labels():
    rng = np.random.default_rng(1)
    Y = (rng.random((60, 3)) < 0.4).astype(int)
    Y[Y.sum(axis=1) == 0, 0] = 1
    return rng.poisson(Y @ rng.gamma(0.5, 20.0, size=(3, 10)) + 0.5).astype(float), Y


def test_several_labels():
    X, Y = several_labels()
    model = GroupSparseNMF(**QUICK).fit(X[:40], Y[:40])
    found = model.predict(X[40:])
    assert found.shape == (20, 3)
    assert np.mean(found == Y[40:]) > 0.85  # about 0.6 by chance
    np.testing.assert_array_equal(found, model.predict_proba(X[40:]) > 0.5)
    sets = [{"abc"[c] for c in np.flatnonzero(row)} for row in Y[:40]]
    named = GroupSparseNMF(**QUICK).fit(X[:40], sets)
    assert named.score(X[:40], sets) == named.score(X[:40], Y[:40])
    assert named.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(named.predict(X[40:]), found)


@pytest.mark.parametrize(
    ("y", "options", "said"),
    [
        (np.full((6, 2), 2), {}, "expected multi-label y as a matrix of 0 and 1, samples × labels; got y of shape"),
        (np.zeros((6, 2)), {}, "expected at least one label of a sample; got 6 × 2 zeros"),
        (np.eye(2)[[0, 1] * 3], {"select": "validation"}, "expected select='bound' for several"),
    ],
)
def test_what_several_labels_refuse(y, options, said):
    with pytest.raises(ValueError, match=said):
        GroupSparseNMF(**QUICK, **options).fit(small_problem()[0][:6], y)
    assert as_indicator(np.arange(6)) is None


@pytest.mark.parametrize(
    "y",
    [
        [{"a", "b"}, {"b"}, {"a"}],
        [["a", "b"], ["b"], ["a"]],
        [("a", "b"), ("b",), ("a",)],
        pd.Series([{"a", "b"}, {"b"}, {"a"}], index=[5, 6, 7]),
        labels_of(["a; b", "b", "a"], "y.txt"),
        [[1, 1], [0, 1], [1, 0]],
    ],
    ids=["sets", "lists", "tuples", "Series", "reader", "matrix"],
)
def test_forms_of_several_labels(y):
    Y, names = as_indicator(y)
    assert Y.tolist() == [[1, 1], [0, 1], [1, 0]]
    assert list(names) in (["a", "b"], [0, 1])


def test_forms_of_single_labels_and_others():
    assert as_indicator([["a"], ["b"]]) is as_indicator(["ab", "cd"]) is as_indicator([[1, 2], [2, 3]]) is None
    refused = {
        "empty for none; got None among sets": [{"a"}, None],
        "got a mixture of text and numbers": [{"a"}, {1}],
        "got labels of another kind": [["a", ["b"]], ["c"]],
    }
    for said, y in refused.items():
        with pytest.raises(ValueError, match=said):
            as_indicator(y)


def test_several_labels_in_a_first_batch():
    with pytest.raises(
        ValueError, match=r"expected one label per sample \(several labels per sample are .*; got {'a'}"
    ):
        GroupSparseNMF().partial_fit(np.eye(3), [{"a"}, {"a", "b"}, {"b"}])


def test_labels_that_none_or_all_training_samples_have(monkeypatch):
    """They have no classifier, and no finite margin that a threshold could be chosen by."""
    monkeypatch.setattr(multilabel, "_points", lambda memory, X, profiles: X.T)
    X, Y = several_labels()
    Y = np.column_stack([Y, np.zeros(60, int), np.ones(60, int)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = multilabel._classify(None, X.T, Y)
    margins = found.margins(None, X.T)
    assert np.isfinite(margins[:, :3]).all()
    np.testing.assert_array_equal(found.probabilities(None, X.T)[:, 3:], np.tile([0.0, 1.0], (60, 1)))
    only = multilabel._classify(None, X.T, Y[:, 3:])
    np.testing.assert_array_equal(only.margins(None, X.T), np.tile([-np.inf, np.inf], (60, 1)))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda X: X * 0, {}, "All entries of X are 0.*Check how X was read"),
        (lambda X: X * 1e-3, {}, "pass counts="),
        (lambda X: X, {"prior": "paper", "small": 1e5, "large": 1e6}, "Weaken the prior"),
    ],
    ids=["zeros", "small", "prior"],
)
def test_a_pointless_fit_is_said_once(change, options, said):
    X, _, y, _ = small_problem()
    with pytest.warns(DeadComponentsWarning, match=said) as caught:
        GroupSparseNMF(**QUICK, predict_by="nearest", **options).fit(change(X), y)
    assert len([w for w in caught if issubclass(w.category, DeadComponentsWarning)]) == 1


CHOICES = {
    "bare": ({"n_components": 2}, "2 components for 3 groups: 1 group has no component of its own. .* n_components"),
    "swapped": ({"per_class": 1, "small": 0.5, "large": 0.01}, "small=0.5 is above large=0.01: components are shrunk"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_that_are_rarely_meant_are_said_once(name):
    """Also where several fits are made, and where the user is, not the library."""
    options, said = CHOICES[name]
    X, _, y, _ = small_problem()
    fits = (
        lambda: GroupSparseNMF(**QUICK | {"calibrate": 2, "n_restarts": 2} | options).fit(X, y),
        lambda: GroupSparseNMF(**QUICK | options).partial_fit(X[:2], y[:2], classes=np.unique(y)),
    )
    for fit in fits:
        with pytest.warns(UserWarning, match=said) as caught:
            fit()
        assert [w.filename for w in caught if re.match(said, str(w.message))] == [__file__]


def test_one_class_for_everything_is_said():
    """Samples of two classes that do not differ: every component is in use, and all samples are equally near."""
    X, y = np.tile([9.0, 5.0, 7.0], (20, 1)), np.repeat(["a", "b"], [15, 5])
    with pytest.warns(
        DeadComponentsWarning, match="All of 20 training samples are predicted to be of class a"
    ) as caught:
        GroupSparseNMF(**QUICK, predict_by="nearest").fit(X, y)
    assert len([w for w in caught if issubclass(w.category, DeadComponentsWarning)]) == 1


POINTLESS = {
    "zeros": (0.0, [], "All entries of X are 0: nothing can be learned from them. Check how X was read."),
    "small": (1e-3, [], "multiply X by a constant so that they are counts."),
    "prior": (1.0, ["--prior", "paper", "--small", "1e5", "--large", "1e6"], "Weaken the prior"),
    "good": (1.0, [], None),
}


@pytest.mark.parametrize("command", ["fit", "stream"])
@pytest.mark.parametrize("case", POINTLESS)
def test_a_command_says_that_its_fit_is_pointless(command, case, tmp_path, capsys):
    """Once, on stderr; the exit code says only that the files are whole."""
    X, _, y, _ = small_problem()
    factor, options, said = POINTLESS[case]
    np.save(tmp_path / "x.npy", factor * X.T)
    (tmp_path / "y.txt").write_text("\n".join(f"class {c}" for c in y))
    words = ["fit", tmp_path / "x.npy", "--labels", tmp_path / "y.txt", "--out", tmp_path / "o", "--per-group", 2]
    words += ["--stream", "--passes", 8] if command == "stream" else ["--max-steps", 40]
    assert main([str(word) for word in [*words, *options]]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gsnmf: warning:")]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


@pytest.mark.parametrize(("factor", "said"), [(0.0, "All entries of X are 0"), (1e-3, "multiply X"), (1.0, None)])
def test_a_pointless_first_batch_is_said(factor, said):
    X, _, y, _ = small_problem()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GroupSparseNMF(**QUICK, predict_by="model").partial_fit(factor * X, y)
    found = [str(w.message) for w in caught if issubclass(w.category, DeadComponentsWarning)]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_good_fit_is_silent(hidden):
    X, _, y, _ = small_problem()
    if hidden:  # an entry of sparse counts that is not known
        X = scipy.sparse.csr_array(X)
        X.data[0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeadComponentsWarning)
        GroupSparseNMF(**QUICK, predict_by="nearest").fit(X, y)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_one_class_cannot_be_stacked(form):
    with pytest.raises(ValueError, match="expected two classes or more for predict_by='stacked'; got 1"):
        GroupSparseNMF(predict_by="stacked", per_class=1).fit(form(np.eye(6)), np.zeros(6))


def test_points_of_several_labels_are_samples_and_roots_of_proportions(monkeypatch):
    """Proportions of two restarts, of which the smallest counts as 0; both parts have a fixed length."""
    memory = SimpleNamespace(posteriors=[0, 1], priors=[None, None], sound=[0, 1], shares=None)
    V = np.array([[0.36, 0.5], [0.64, 0.4999], [0.0, 0.0001]])
    monkeypatch.setattr(multilabel, "shared_coefficients", lambda *_: V)
    X = scipy.sparse.csr_array(np.array([[3.0, 1.0], [0.0, 2.0]]))
    points = multilabel._points(memory, X, profiles_of(X)).toarray()
    np.testing.assert_allclose(np.square(points[:, :2]).sum(axis=1), 1)
    expected = np.array([[0.6, 0.8, 0.0], [np.sqrt(0.5), np.sqrt(0.4999), 0.0]])
    np.testing.assert_allclose(points[:, 2:], np.tile(expected, 2) * multilabel.SHARE / np.sqrt(2))


@pytest.mark.parametrize(("asked", "taken"), [(1e-6, 1e-4), (1e-3, 1e-3), (None, None)])
def test_fits_of_the_comparison_stop_earlier(asked, taken):
    recipe = Recipe(*[None] * (len(Recipe._fields) - 1))._replace(tol=asked)
    assert recipe.roughly().tol == taken
