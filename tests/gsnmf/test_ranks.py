"""The number of components by hidden entries."""

import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import gsnmf
from gsnmf import Choice, choose_rank, cli, plot_rank_choice
from gsnmf.comparison import ranks as choosing
from gsnmf.inference import cavi, held_out_score
from gsnmf.inference.warning import DeadComponentsWarning
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, default_priors, hide, matching

X = np.random.default_rng(0).poisson(5.0, size=(6, 8)).astype(float)
T = Gamma(0.6, 20.0)
PRIORS = Priors(T, Gamma(1.0, 0.5))
QUIET = {"progress_bar": False}


@pytest.fixture
def asked(monkeypatch):
    """Nothing is fitted: scores are made up, best at 3, and what each was asked for is kept."""
    calls = []

    def score(data, priors, K, keys, num_samples, stability, **options):
        calls.append((data, priors, K, options))
        rng = np.random.default_rng(len(data.held_out))  # the same noise for all ranks
        entries = rng.normal(size=len(data.held_out)) - 0.1 * max(0, 3 - K) - 1e-9 * K
        return choosing._Scored(entries, min(K, 3), -10.0 * K, late=K == 1)

    monkeypatch.setattr(choosing, "_score", score)
    return calls


@pytest.mark.slow
def test_five_components_are_found(monkeypatch):
    """Twenty draws from the model with K = 5.

    Over 50 others, 5 of [3, 5, 7] was chosen 42 times, and 7 otherwise. Were this the probability, fewer than 11 of 20
    would be found once in 2,300 runs; a choice at random finds as many once in 26. With 3 components, hidden entries
    have a log density that is lower by 0.17 ± 0.05, so that the mean of 20 is above 0.1 by six standard errors.
    """
    monkeypatch.syspath_prepend("benchmarks")
    monkeypatch.delitem(sys.modules, "choosing", raising=False)
    from choosing import draw

    found, behind = 0, []
    for seed in range(20):
        options = {"num_splits": 1, "restarts": 2, "seed": seed, "max_steps": 300, "tol": 1e-5}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            choice = choose_rank(draw(40, 80, 6.0, seed), [3, 5, 7], **options, **QUIET)
        assert choice.table["in_use"][3] == 3
        found += choice.rank == 5
        behind.append(choice.table["behind"][3])
    assert found >= 11
    assert np.mean(behind) > 0.1
    monkeypatch.delitem(sys.modules, "choosing")


def test_scores_are_those_of_the_best_fit_to_the_rest():
    data, split = as_data(X), hide(as_data(X), 0.2, seed=4)
    options = {"max_steps": 20, "tol": None}
    choice = choose_rank(data, [2], priors=PRIORS, share=0.2, num_splits=1, restarts=2, seed=4, **options, **QUIET)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(4), 0), 3)
    fits = cavi.run_many(split, PRIORS, keys=keys[1:], rank=2, **options)
    best = max(fits, key=lambda fit: fit.elbo[-1])
    assert fits[0].elbo[-1] != fits[1].elbo[-1]
    score = held_out_score(best, split, PRIORS, key=keys[0], num_samples=300)
    row = choice.table.loc[2]
    np.testing.assert_allclose(row[["score", "bound"]], [score.mean, best.elbo[-1]], rtol=1e-12)
    np.testing.assert_allclose(row["error"] * len(score.per_entry), score.error, rtol=1e-12)


def test_differences_are_paired(asked):
    """The noise, common to all ranks, is in the errors of the scores but not in those of the differences."""
    choice = choose_rank(X, [1, 2, 3, 4, 5], num_splits=2, **QUIET | {"max_steps": 5, "tol": None})
    assert choice.table.index.tolist() == [1, 2, 3, 4, 5]
    assert (choice.table["error"] > 0.1).all()
    np.testing.assert_allclose(choice.table["behind"], [0.2, 0.1, 0, 0, 0], atol=1e-7)
    assert (choice.table["behind_error"] < 1e-12).all()
    assert (choice.best, choice.complete) == (3, True)


def test_a_choice_from_zeros_is_said(asked):
    with pytest.warns(DeadComponentsWarning, match="All entries of X are 0: nothing can be learned from them"):
        choose_rank(0 * X, [1, 2], **QUIET)


def test_every_rank_is_asked_for_the_same_entries_and_every_split_for_others(asked):
    choose_rank(X, [4, 2], num_splits=2, seed=7, tol=None, **QUIET)
    hidden = [np.asarray(data.mask) for data, *_ in asked]
    assert [K for _, _, K, _ in asked] == [2, 4, 2, 4]
    np.testing.assert_array_equal(hidden[0], hidden[1])
    np.testing.assert_array_equal(hidden[2], hidden[3])
    assert (hidden[0] != hidden[2]).any()


def test_what_was_held_out_before_is_not_asked_for(asked):
    data = hide(as_data(X), 0.1, seed=3)
    choose_rank(data, [2], num_splits=1, share=0.1, **QUIET)
    assert len(asked[0][0].held_out) == round(0.1 * data.num_observed)
    assert not (np.asarray(asked[0][0].mask) & ~np.asarray(data.mask)).any()


def table(behind, error):
    ranks = pd.RangeIndex(2, 2 + len(behind), name="rank")
    return pd.DataFrame({"score": -np.array(behind), "behind": behind, "behind_error": error}, index=ranks)


@pytest.mark.parametrize(
    ("behind", "error", "rank", "best"),
    [
        ([0.5, 0.1, 0.0, 0.01], [0.1, 0.05, 0.0, 0.05], 4, 4),
        ([0.5, 0.04, 0.0, 0.01], [0.1, 0.05, 0.0, 0.05], 3, 4),
        ([0.5, 0.04, 0.03, 0.0], [0.1, 0.03, 0.03, 0.0], 4, 5),
        ([0.5, 0.0], [np.nan, np.nan], 3, 3),  # one hidden entry has no standard error
    ],
)
def test_the_least_within_one_standard_error(behind, error, rank, best):
    choice = Choice(table(behind, error))
    assert (choice.rank, choice.best) == (rank, best)


@pytest.mark.parametrize(("done", "ranks"), [(0, None), (2, [2, 3]), (3, [2, 3, 4]), (5, [2, 3, 4])])
def test_ctrl_c_keeps_what_is_done(asked, monkeypatch, done, ranks):
    score = choosing._score

    def interrupted(*args, **options):
        if len(asked) == done:
            raise KeyboardInterrupt
        return score(*args, **options)

    monkeypatch.setattr(choosing, "_score", interrupted)
    if ranks is None:
        with pytest.raises(KeyboardInterrupt):
            choose_rank(X, [2, 3, 4], num_splits=2, **QUIET)
        return
    choice = choose_rank(X, [2, 3, 4], num_splits=2, **QUIET)
    assert choice.table.index.tolist() == ranks
    assert not choice.complete


@pytest.mark.parametrize("groups", [None, list("abababab")])
def test_priors_of_every_kind(asked, groups):
    data = as_data(X, groups)
    choose_rank(data, [2, 3], num_splits=1, **QUIET)
    choose_rank(data, [2, 3], num_splits=1, priors=PRIORS, **QUIET)
    choose_rank(data, [2, 3], num_splits=1, priors=lambda K: PRIORS._replace(dictionary=Gamma(1.0, K)), **QUIET)
    default, fixed, function = ([priors for _, priors, *_ in asked[n : n + 2]] for n in (0, 2, 4))
    if groups is None:  # as large a priori, with half as many components more
        np.testing.assert_allclose(default[0].coefficients.b, 1.5 * default[1].coefficients.b)
    else:
        assert [priors.coefficients.rate.a.shape for priors in default] == [(2, 2), (3, 2)]
        assert isinstance(default[0].coefficients, GroupSparse)
    assert fixed == [PRIORS, PRIORS]
    assert [priors.dictionary.b for priors in function] == [2, 3]


def test_priors_in_the_unit_of_the_data_know_nothing_of_hidden_entries(asked):
    """A function of two arguments is given what each split leaves; one with a default for the second is of one."""
    choose_rank(X, [2], num_splits=3, priors=lambda K, part: Priors(T, matching(part, T, K)), **QUIET)
    data = as_data(X)
    choose_rank(X, [2], num_splits=1, priors=lambda K, whole=data: Priors(T, matching(whole, T, K)), **QUIET)
    scales = [priors.coefficients.b for _, priors, *_ in asked]
    parts = [matching(part, T, 2).b for part, *_ in asked[:3]]
    assert scales == [*parts, matching(data, T, 2).b]
    assert len(set(scales)) == 4


@pytest.mark.parametrize("lam_start", ["prior", "shape"])
def test_where_lam_starts(asked, lam_start):
    choose_rank(as_data(X, list("abababab")), [2], num_splits=1, lam_start=lam_start, init="groups", **QUIET)
    options = asked[0][3]
    assert options["lam_start"] == lam_start
    assert options["init"] == "groups"


def test_one_warning_for_all_that_did_not_converge(asked):
    with pytest.warns(ConvergenceWarning, match="2 of 4 fits did not converge, the first with 1 components") as caught:
        choose_rank(X, [1, 2], num_splits=2, **QUIET)
    assert [w.filename for w in caught] == [__file__]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 3}, "expected ranks to be a sequence of whole numbers; got 3"),
        ({"ranks": []}, "expected ranks to be a sequence"),
        ({"ranks": [0]}, "expected every rank to be a whole number ≥ 1; got 0"),
        ({"ranks": [1.5]}, "expected every rank to be a whole number"),
        ({"share": 1.0}, "expected share between 0 and 1"),
        ({"num_splits": 0}, "expected num_splits to be a whole number ≥ 1; got 0"),
        ({"restarts": 0}, "expected restarts"),
        ({"num_samples": 0}, "expected num_samples"),
        ({"seed": -1}, "expected seed"),
        ({"priors": 3}, "expected priors to be None, Priors, or a function of the rank; got int"),
        ({"lam_start": "mean"}, "expected lam_start to be one of 'prior', 'shape'; got 'mean'"),
        ({"init": "svd"}, "expected init to be one of 'random', 'groups'; got 'svd'"),
        ({"data": -X}, "expected X to be nonnegative"),
    ],
)
def test_refusals(options, message, asked):
    with pytest.raises(ValueError, match=message):
        choose_rank(**{"data": X, "ranks": [1, 2]} | options, **QUIET)
    assert not asked


def test_the_plot_marks_the_choice():
    ax = plot_rank_choice(Choice(table([0.5, 0.04, 0.0], [0.1, 0.05, 0.0])))
    assert plot_rank_choice(Choice(table([0.5, 0.0], [0.1, 0.0])), ax) is ax
    assert "3: least within one standard error" in ax.get_legend_handles_labels()[1]


def test_they_are_found_in_the_package():
    assert {"Choice", "choose_rank", "plot_rank_choice"} <= set(dir(gsnmf))
    with pytest.raises(AttributeError, match="no attribute 'choose_rang'"):
        _ = gsnmf.choose_rang


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "labels.txt").write_text("\n".join("abababab") + "\n")
    return tmp_path / "X.npy"


@pytest.mark.parametrize("labels", [False, True])
def test_the_command(matrix, asked, labels, capsys):
    out = matrix.parent / "out"
    grouped = ["--labels", str(matrix.parent / "labels.txt"), "--prior", "paper", "--small", "2"]
    options = grouped if labels else ["--a-t", "2"]
    assert cli.main(["choose", str(matrix), "--ranks", "2:6:2", "--out", str(out), "--splits", "2", *options]) == 0
    assert "Chosen: 4 components" in capsys.readouterr().out
    assert (out / "ranks.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(out / "ranks.csv", index_col="rank").index.tolist() == [2, 4, 6]
    priors = [priors for _, priors, *_ in asked[:3]]
    if labels:
        assert [p.coefficients.rate.a.shape for p in priors] == [(2, 2), (4, 2), (6, 2)]
        assert priors[0].coefficients.rate.a.min() == 2
    else:
        assert priors[0].dictionary.a == 2
        assert priors[0].coefficients == matching(asked[0][0], priors[0].dictionary, 2)  # not of what is hidden


@pytest.mark.parametrize("groups", [None, list("abababab"), [*"ababa", None, *"ab"]], ids=["none", "all", "unlabelled"])
def test_the_command_asks_what_the_function_asks(matrix, asked, groups):
    """Defaults of both: the same priors of the same entries, the same options."""
    labels = matrix.parent / "partly.txt"
    labels.write_text("\n".join(label or "NA" for label in groups or []) + "\n")
    options = [] if groups is None else ["--labels", str(labels)]
    assert cli.main(["choose", str(matrix), "--ranks", "2,5", "--out", str(matrix.parent), *options]) == 0
    choose_rank(as_data(X, groups), [2, 5], **QUIET)
    first, second = asked[: len(asked) // 2], asked[len(asked) // 2 :]
    assert len(first) == len(second) == 6
    for (data, priors, K, how), (other_data, other, other_K, other_how) in zip(first, second, strict=True):
        assert (K, how) == (other_K, other_how)
        np.testing.assert_array_equal(data.mask, other_data.mask)
        for one, two in zip(jax.tree.leaves(priors), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(one, two)
        for one, two in zip(jax.tree.leaves(priors), jax.tree.leaves(default_priors(data, rank=K)), strict=True):
            np.testing.assert_array_equal(one, two)
    assert {key: first[0][3][key] for key in ("init", "max_steps", "tol")} == {
        "init": "random", "max_steps": 300, "tol": 1e-6
    }  # fmt: skip
    assert first[0][3]["labels"] == cavi.labelling(warm_start="random")  # as the estimator does


def test_the_interrupted_command_says_so(matrix, asked, monkeypatch, capsys):
    score = choosing._score
    monkeypatch.setattr(choosing, "_score", lambda *a, **o: score(*a, **o) if len(asked) < 3 else _interrupt())
    assert cli.main(["choose", str(matrix), "--ranks", "2,4", "--out", str(matrix.parent)]) == 130
    captured = capsys.readouterr()
    assert "Chosen: 4 components" in captured.out
    assert "interrupted; the table above has the results so far" in captured.err
    assert cli.main(["choose", str(matrix), "--ranks", "2,4", "--out", str(matrix.parent / "whole")]) == 130
    monkeypatch.setattr(choosing, "_score", score)
    del asked[:]
    assert cli.main(["choose", str(matrix), "--ranks", "2,4", "--out", str(matrix.parent)]) == 0
    assert "resuming from" in capsys.readouterr().err
    assert len(asked) == 3  # of six
    assert cli.main(["choose", str(matrix), "--ranks", "2,4", "--out", str(matrix.parent / "whole")]) == 0
    one, other = (matrix.parent / "ranks.csv", matrix.parent / "whole" / "ranks.csv")
    assert one.read_bytes() == other.read_bytes()
    assert not list(matrix.parent.rglob("*checkpoint*"))


def test_an_interrupted_run_leaves_the_table_of_a_finished_one(matrix, asked, monkeypatch, capsys):
    words = ["choose", str(matrix), "--out", str(matrix.parent)]
    assert cli.main([*words, "--ranks", "2"]) == 0
    before, score = (matrix.parent / "ranks.csv").read_bytes(), choosing._score
    del asked[:]
    monkeypatch.setattr(choosing, "_score", lambda *a, **o: score(*a, **o) if len(asked) < 1 else _interrupt())
    assert cli.main([*words, "--ranks", "2,4"]) == 130
    assert (matrix.parent / "ranks.csv").read_bytes() == before
    assert f"Not saved: {matrix.parent / 'ranks.csv'} stays as it was" in capsys.readouterr().out
    monkeypatch.setattr(choosing, "_score", score)
    assert cli.main([*words, "--ranks", "2,4"]) == 0
    assert (matrix.parent / "ranks.csv").read_bytes() != before


def test_only_scores_of_the_same_question_are_read_again(asked, tmp_path):
    ask = {"num_splits": 1, "checkpoint": tmp_path / "kept.jsonl", **QUIET}
    choose_rank(X, [2, 3], **ask)
    choose_rank(X, [2, 3, 4], **ask)  # one more
    assert len(asked) == 3
    choose_rank(X, [2, 3, 4], **ask | {"num_splits": 2})  # three more, in the second split
    assert len(asked) == 6
    others = [{"seed": 1}, {"tol": 1e-3}, {"restarts": 2}, {"num_samples": 9}, {"init": "groups"}, {"share": 0.2}]
    for n, other in enumerate([*others, {"priors": PRIORS}, {"priors": PRIORS._replace(dictionary=Gamma(0.7, 20.0))}]):
        choose_rank(X, [2], **ask | other)
        assert len(asked) == 7 + n, other
    choose_rank(X + 1, [2], **ask)
    with jax.enable_x64(False):
        choose_rank(X, [2], **ask)
    assert len(asked) == 16
    hidden, other = hide(as_data(X), seed=0).held_out, X.copy()
    other[hidden.feature[0], hidden.sample[0]] += 1  # a hidden entry, which only the score depends on
    choose_rank(other, [2], **ask | {"priors": PRIORS})
    assert len(asked) == 17


def _interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --ranks"),
        (["--ranks", "5:2"], "expected FROM:TO, FROM:TO:STEP or a list as in 2,4,8; got '5:2'"),
        (["--ranks", "0:3"], "expected FROM:TO"),
        (["--ranks", "2:3", "--small", "1"], "expected --labels with --small; got none"),
        (["--ranks", "2:3", "--share", "2"], "expected share between 0 and 1"),
    ],
)
def test_errors_of_the_command_are_one_line(matrix, capsys, arguments, message):
    assert cli.main(["choose", str(matrix), "--out", str(matrix.parent), *arguments]) == 2
    *before, said = capsys.readouterr().err.splitlines()
    assert message in said
    assert all(line.startswith("gsnmf: read") for line in before)
