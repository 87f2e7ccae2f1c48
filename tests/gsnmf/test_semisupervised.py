"""The estimator with labels partly known, and probabilities that are calibrated."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from estimators import nearest_neighbour
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gsnmf.classification import parameters, prediction, restarts
from gsnmf.classification.calibration import brier_score, calibration_error
from gsnmf.classification.prediction import temperature_on_training
from gsnmf.classification.projection import nearest_cosine, nnls
from gsnmf.classification.restarts import Recipe, draw_seeds
from gsnmf.inference import cavi
from gsnmf.model import as_data
from gsnmf.model.labels import plain_labels

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"per_class": 2, "max_iter": 30, "random_state": 0}
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(autouse=True)
def double_precision():
    """People use it in JAX's default, single precision."""


def problem():
    """Three classes of blobs of counts, 36 samples to learn from, a third with labels, and 36 new ones."""
    rng = np.random.default_rng(0)
    truth = np.arange(72) % 3
    X = rng.poisson(rng.gamma(0.5, 20.0, size=(3, 10))[truth] + 1.0).astype(float)
    given = np.where(np.arange(36) % 9 < 3, truth[:36], -1)
    return X[:36], X[36:], given, truth[:36], truth[36:]


@functools.cache  # no fixture of the module: those are made outside of what `conftest` sets for each test
def fitted_once():
    X, _, given, _, _ = problem()
    return nearest_neighbour(**QUICK, n_restarts=2, predict_by="blend").fit(X, given)


@pytest.fixture
def fitted():
    return fitted_once()


def test_the_labels_that_were_given_stay_and_the_others_are_found(fitted):
    _, _, given, truth, _ = problem()
    known = given >= 0
    assert fitted.classes_.tolist() == [0, 1, 2]  # and not −1
    assert fitted.transduction_.dtype == fitted.classes_.dtype
    assert (fitted.transduction_[known] == given[known]).all()
    assert np.mean(fitted.transduction_[~known] == truth[~known]) > 0.9  # a third by chance; the blobs are far apart
    P = fitted.label_distributions_
    assert P.shape == (36, 3)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(P[known], np.eye(3)[given[known]])
    assert (fitted.classes_[P.argmax(axis=1)] == fitted.transduction_).all()


def test_labels_of_sparse_samples_are_those_of_q_and_nothing_is_annealed():
    X, _, given, truth, _ = problem()
    counts = scipy.sparse.csr_array(X)
    model = nearest_neighbour(**QUICK, n_restarts=2, predict_by="blend").fit(counts, given)
    np.testing.assert_allclose(model.label_distributions_, np.mean([q.z for q in model.restarts_], axis=0))
    assert np.mean(model.transduction_ == truth) > 0.9  # a third by chance, as above
    assert cavi.labelling_for(as_data(counts.T), "random") == cavi.labelling(warm_start="random", annealing=0)
    assert cavi.labelling_for(as_data(X.T), "random") == cavi.labelling(warm_start="random")


def test_the_dictionary_is_learned_from_all_samples(fitted):
    """It is what `cavi.run` makes of the same data and key."""
    X, _, given, _, _ = problem()
    data = as_data(X.T, [None if c < 0 else c for c in given.tolist()])
    recipe = Recipe(*(fitted.get_params()[name] for name in Recipe._fields))
    _, seeds = draw_seeds(0, 2)
    key, how = jax.random.key(seeds[fitted.best_restart_]), cavi.labelling(warm_start="random")
    fit = cavi.run(data, recipe.make_priors(data), key=key, max_steps=30, labels=how)
    np.testing.assert_array_equal(fitted.components_, np.asarray(fit.posterior.T.mean, float).T)
    assert fitted.posterior_.z.shape == (36, 3)
    assert fitted.posterior_.V.a.shape == (6, 36)


def test_new_samples_are_compared_with_labelled_ones(fitted):
    X, X_new, given, _, truth_new = problem()
    assert fitted.score(X_new, truth_new) > 0.9
    known, T = given >= 0, fitted.components_.T
    by_hand = nearest_cosine(nnls(T, X[known].T), given[known], nnls(T, X_new.T))
    assert fitted.set_params(predict_by="nearest").predict(X_new).tolist() == by_hand.tolist()
    fitted.set_params(predict_by="blend")


def test_every_way_to_say_unknown_is_the_same(fitted):
    X, _, given, _, _ = problem()
    unknown = given < 0
    names = np.where(unknown, None, NAMES[given])
    for y, unlabelled in (
        (given, "auto"),
        (given.astype(float), "auto"),
        (np.where(unknown, np.nan, given), "auto"),
        (names, "auto"),
        (names.tolist(), None),
        (pd.Series(names, dtype="string"), "auto"),
        (pd.Series(np.where(unknown, pd.NA, given), dtype="Int64"), None),
        (np.where(unknown, "?", NAMES[given]), "?"),
        (np.where(unknown, 99, given), 99),
    ):
        model = nearest_neighbour(unlabelled=unlabelled)
        _, index = model._read(X, y)
        assert index.tolist() == given.tolist()
        assert model.classes_.tolist() in ([0, 1, 2], NAMES.tolist())
    named = nearest_neighbour(**QUICK, n_restarts=2, predict_by="blend").fit(X, names)
    np.testing.assert_array_equal(named.components_, fitted.components_)
    assert named.transduction_.tolist() == NAMES[fitted.transduction_].tolist()


@pytest.mark.parametrize(
    ("labels", "unlabelled", "unknown"),
    [
        ([-1, 1, -1, 1], "auto", 0),  # two classes, as is common
        ([-1, 0, 0, -1], "auto", 0),
        ([-2, -1, 0, 1, 2], "auto", 0),
        ([-1.0, 0.5, 1.5], "auto", 0),
        (["-1", "0", "2"], "auto", 0),
        ([True, False, True], "auto", 0),
        ([-1, 0, 1], None, 0),
        ([-1, 0, 1], -1, 1),
        ([-1, 1, -1, 1], -1, 2),
        ([-1, 1, 2], "auto", 1),
        ([-1, 0, 1, 2, -1], "auto", 2),
        ([-1.0, 0.0, 3.0, np.nan], "auto", 2),
        ([None, -1, 1], "auto", 1),
        ([np.nan, 0.0, 1.0], "auto", 1),
        ([-1, -1, -1], "auto", 3),
    ],
)
def test_when_minus_one_is_a_class(labels, unlabelled, unknown):
    assert parameters.find_unlabelled(labels, unlabelled).sum() == unknown


def test_known_classes_say_what_minus_one_is():
    """A batch may have no other label."""
    assert parameters.index_known([-1, -1], "auto", np.array([0, 1, 2])).tolist() == [-1, -1]
    assert parameters.index_known([-1, 0], "auto", np.array([0, 1])).tolist() == [-1, 0]
    assert parameters.index_known([-1, 1], "auto", np.array([-1, 1])).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"expected labels among the classes \[0, 1\]; got -1"):
        parameters.index_known([-1, 0], None, np.array([0, 1]))


def test_masked_labels_are_unlabelled():
    y = plain_labels(np.ma.masked_array([0, 1, 2, 1], [1, 0, 0, 0]))
    assert y.tolist() == [None, 1, 2, 1]
    X, _, given, _, _ = problem()
    masked = nearest_neighbour(**QUICK).fit(X, np.ma.masked_array(np.where(given < 0, 0, given), given < 0))
    np.testing.assert_array_equal(masked.transduction_, nearest_neighbour(**QUICK).fit(X, given).transduction_)


def test_all_labels_known_is_as_ever():
    """{−1, 1} are two classes, and what `unlabelled` says of labels that do not occur changes nothing."""
    X, X_new, _, truth, _ = problem()
    y = np.where(truth == 2, 1, -1)
    one, other = (nearest_neighbour(**QUICK, unlabelled=label).fit(X, y) for label in ("auto", 7))
    assert one.classes_.tolist() == [-1, 1]
    assert one.posterior_.labels is None
    assert one.transduction_.tolist() == y.tolist()
    np.testing.assert_array_equal(one.label_distributions_, np.eye(2)[(y + 1) // 2])
    np.testing.assert_array_equal(one.predict_proba(X_new), other.predict_proba(X_new))
    assert not hasattr(one.fit(X), "transduction_")


def test_validation_is_on_labelled_samples(fitted, monkeypatch):
    """The fits are made once, above: what they are asked for, and what they are judged by."""
    X, _, given, _, _ = problem()
    judged, asked = [], []
    fits = [SimpleNamespace(posterior=fitted.posterior_, elbo=fitted.elbo_)]
    monkeypatch.setattr(restarts, "_run_all", lambda _, data, *rest, **more: asked.append(data) or (fits, [0]))
    monkeypatch.setattr(restarts, "accuracy", lambda *given: judged.append(given) or 1.0)
    recipe = Recipe(*(fitted.get_params()[name] for name in Recipe._fields))
    parts = restarts.hold_out(given, fitted.classes_, 0.25, seed=3)
    restarts.by_validation(recipe, X.T, given, parts, [jax.random.key(0)], 0)
    [(_, old, old_labels, new, new_labels)] = judged
    assert old.shape[1] == len(old_labels) == 9
    assert new.shape[1] == 3
    assert sorted(new_labels) == [0, 1, 2]
    assert sorted(old_labels) == sorted([0, 1, 2] * 3)
    assert [(data.num_samples, int(data.known.sum())) for data in asked] == [(33, 9), (36, 12)]


@pytest.mark.parametrize("predict_by", ["nearest", "vote", "cosine", "model"])
def test_calibration_does_not_change_what_is_predicted(predict_by):
    X, X_new, _, truth, _ = problem()
    options = {**QUICK, "n_restarts": 2, "predict_by": predict_by}
    model = nearest_neighbour(**options).fit(X, truth)
    raw = nearest_neighbour(**options, calibrate=None).fit(X, truth)
    assert model.temperature_ > 0
    assert raw.temperature_ is None
    assert model.predict(X_new).tolist() == raw.predict(X_new).tolist()
    proba, shares = model.predict_proba(X_new), raw.predict_proba(X_new)
    assert not np.allclose(proba, shares)
    assert proba.argmax(axis=1).tolist() == shares.argmax(axis=1).tolist()
    np.testing.assert_array_equal(model.set_params(calibrate=None).predict_proba(X_new), shares)


def test_folds_leave_samples_out_of_the_fit(fitted, monkeypatch):
    """Every labelled sample is left out once, and those without a label never."""
    X, _, given, _, _ = problem()
    learned, scored = [], []
    score = prediction.class_scores
    monkeypatch.setattr(prediction, "learn", lambda plan, X, y, _: learned.append((X, y)) or (None, fitted._memory))
    monkeypatch.setattr(prediction, "class_scores", lambda m, by, new: scored.append(new) or score(m, by, new))
    plan = SimpleNamespace(part_seed=0, predict_by="blend")
    assert prediction.temperature_on_folds(plan, X.T, given, fitted.classes_, 4) > 0
    assert [(y >= 0).sum() for _, y in learned] == [9] * 4
    assert [(y < 0).sum() for _, y in learned] == [24] * 4
    left_out = np.concatenate(scored, axis=1).T
    assert sorted(left_out.tolist()) == sorted(X[given >= 0].tolist())
    for (old, _), new in zip(learned, scored, strict=True):
        assert not set(map(tuple, old.T)) & set(map(tuple, new.T))


def test_folds_of_the_estimator():
    X, X_new, _, truth, truth_new = problem()
    model = nearest_neighbour(**{**QUICK, "max_iter": 5}, calibrate=2).fit(X, truth)
    assert model.temperature_ > 0
    assert model.temperature_ != nearest_neighbour(**{**QUICK, "max_iter": 5}).fit(X, truth).temperature_
    assert np.mean(model.predict_proba(X_new)[np.arange(36), truth_new]) > 0.7


def test_a_temperature_needs_two_samples_of_a_class():
    X, X_new, _, truth, _ = problem()
    few = nearest_neighbour(**QUICK).fit(X[:3], truth[:3])
    assert few.temperature_ is None
    assert set(few.predict_proba(X_new).ravel()) == {0.0, 1.0}
    with pytest.raises(
        ValueError, match="expected 2 labelled samples or more of every class for calibrate=2; got 1 of"
    ):
        nearest_neighbour(**QUICK, calibrate=2).fit(X[:3], truth[:3])
    for wrong in (1, 0.5, True, "folds"):
        with pytest.raises(ValueError, match="expected calibrate to be 'training', None, or a number of folds from 2"):
            nearest_neighbour(calibrate=wrong).fit(X, truth)


def test_a_sample_is_not_its_own_neighbour_when_the_temperature_is_found(monkeypatch):
    """As its own neighbour each would be certain, and so would everything."""
    X, _, _, truth, _ = problem()
    rng = np.random.default_rng(1)
    model = nearest_neighbour(**QUICK).fit(X, rng.permutation(truth))  # labels that say nothing
    honest = temperature_on_training(model._memory, "nearest", X.T, 0)
    cosines = prediction.class_cosines
    monkeypatch.setattr(prediction, "class_cosines", lambda V, index, new, itself: cosines(V, index, new))
    assert honest > 3 * temperature_on_training(model._memory, "nearest", X.T, 0)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images, labels, train_size=300, test_size=800, stratify=labels, random_state=0)


def test_probabilities_come_true_on_digits(digits):
    """With the default: `benchmarks/calibration.py` saw 0.029 and 0.023, 0.050 and 0.044 at worst, of 100 and 600."""
    X, X_new, y, y_new = digits
    model = nearest_neighbour(random_state=0).fit(X, y)
    proba, shares = model.predict_proba(X_new), model.set_params(calibrate=None).predict_proba(X_new)
    assert calibration_error(proba, y_new) < 0.05
    assert calibration_error(shares, y_new) > calibration_error(proba, y_new)
    assert brier_score(proba, y_new) < brier_score(shares, y_new)
