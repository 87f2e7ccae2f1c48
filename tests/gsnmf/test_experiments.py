import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from gsnmf import GroupSparseNMF
from gsnmf.classification.restarts import draw_seeds
from gsnmf.cli import main
from gsnmf.commands import experiments as commands
from gsnmf.experiments import protocol, results, tables
from gsnmf.experiments.methods import METHODS, resolve
from gsnmf.experiments.presets import preset, presets
from gsnmf.experiments.protocol import PreparedDataset, Workload, run, run_fold, seeds, tasks
from gsnmf.journal import append
from gsnmf.model import label_driven

SETTINGS = {
    "pca": {"rank": 3},
    "nmf_kl": {"rank": 4, "l1": 0.01, "max_steps": 20},
    "nmf_vb": {"rank": 4, "a_t": 0.6, "b_t": 20.0, "a_v": 1.0, "b_v": 1.0, "max_steps": 20},
    "nmf_gs": {"rank": 4, "a_t": 0.6, "b_t": 20.0, "small": 1.0, "large": 50.0, "max_steps": 20},
}
PLAN = Workload(runs=2, folds=4, use=2, restarts=2)


@pytest.fixture(scope="module")
def problem():
    """Four classes, each with a pattern of its own, and noise enough for some mistakes."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    patterns = rng.gamma(0.5, 1.0, (12, 4))
    return PreparedDataset("digits", rng.poisson(3 * patterns[:, labels] + 2).astype(float), labels)


def row(**changes):
    filled = dict.fromkeys(results.IDENTITY, 0) | {
        "dataset": "yale",
        "method": "nmf_gs",
        "settings": {"rank": 45},
        "validation": False,
    }
    return filled | {"folds": 10, "restarts": 2, "size": 10, "correct": [8, 10]} | changes


def interrupting(at):
    """`run_fold` with Ctrl-C in this one of its calls, and the list of its tasks."""
    calls = []

    def interrupted(X, labels, task):
        calls.append(task)
        if len(calls) == at:
            raise KeyboardInterrupt
        return run_fold(X, labels, task)

    return interrupted, calls


def only(problem, *methods, plan=PLAN):
    return list(tasks(problem, plan, [(method, SETTINGS[method]) for method in methods]))


# results on disk


def test_a_line_that_was_cut_off_is_left_out_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "r.jsonl"
    append(path, row(fold=0))
    path.write_text(path.read_text() + '{"dataset": "ya')  # as a crash leaves it
    append(path, row(fold=1))
    assert [r["fold"] for r in results.read(path)] == [0, 1]
    assert len(path.read_text().splitlines()) == 2  # as in an undisturbed run
    path.write_text(path.read_text().rstrip())  # as some editors leave it
    append(path, row(fold=2))
    assert [r["fold"] for r in results.read(path)] == [0, 1, 2]


def test_a_row_that_was_altered_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    results.write(path, row(fold=0))
    assert results.read(path) == [row(fold=0)]
    path.write_text(path.read_text().replace('"correct": [8, 10]', '"correct": [9, 10]'))
    with pytest.raises(ValueError, match=r"expected .*r.jsonl to hold results"):
        results.read(path)


@pytest.mark.parametrize("text", ["dear diary\n", '{"a": 1}\n', "[1, 2]\n", "\x89PNG\n"])
def test_no_other_file_is_appended_to(text, problem, tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"expected .*notes.jsonl to hold results"):
        run(problem, PLAN, [("pca", SETTINGS["pca"])], path, backend="sequential")
    assert path.read_text(encoding="latin-1") == text


def test_by_fold_sums_restarts_up():
    table = results.by_fold([row(vote=9), row(validation=True, chosen=7), row(fold=1, validation=True, chosen=1)])
    assert table[["mean", "max", "min", "vote", "chosen"]].to_numpy().tolist() == [[0.9, 1.0, 0.8, 0.9, 0.7]]


# the protocol


def test_tasks_are_distinct_and_share_their_starts_between_methods(problem):
    found = only(problem, "nmf_vb", "nmf_gs")
    assert len({results.identity(task) for task in found}) == len(found) == 2 * 2 * 2
    starts = {(task["run"], task["fold"]): seeds(task) for task in found if task["method"] == "nmf_vb"}
    assert all(seeds(task) == starts[task["run"], task["fold"]] for task in found)
    flat = [seed for each in starts.values() for seed in each]
    assert len(set(flat)) == len(flat)


def test_principal_components_have_one_start(problem):
    assert {task["restarts"] for task in only(problem, "pca")} == {1}


def test_the_group_sparse_method_has_the_papers_prior(problem):
    """Whatever the default of the library is."""
    _, data, priors = METHODS["nmf_gs"](problem.X, problem.labels, 0, **SETTINGS["nmf_gs"] | {"max_steps": 1}).made
    assert priors.dictionary == (0.6, 20.0)
    rate, expected = priors.coefficients.rate, label_driven(rank=4, num_groups=data.num_groups, small=1.0, large=50.0)
    np.testing.assert_array_equal(rate.a, expected.a)
    np.testing.assert_array_equal(rate.b, expected.b)


def test_labels_and_samples_left_out_are_never_learned_from(problem, monkeypatch):
    """Every learner is given training samples alone, and for the choice of a restart a part of these."""
    seen = []

    def spy(X, labels, seed, **settings):
        seen.append((X, labels))
        return METHODS["nmf_gs"](X, labels, seed, **SETTINGS["nmf_gs"])

    monkeypatch.setitem(METHODS, "spy", spy)
    numbered = problem.X + 1e-6 * np.arange(40)  # so that a column tells which sample it is
    both = only(problem, "nmf_gs", plan=PLAN._replace(validation=True))[:2]
    outcome, chosen = (run_fold(numbered, problem.labels, task | {"method": "spy", "settings": {}}) for task in both)
    train, test = next(protocol.StratifiedKFold(4, shuffle=True, random_state=0).split(problem.X.T, problem.labels))
    places = [set(np.flatnonzero((numbered[:, :, None] == X[:, None, :]).all(axis=0).any(axis=1))) for X, _ in seen]
    assert [len(place) for place in places] == [30, 30, 20, 20]
    assert places[0] == places[1] == set(train)
    assert places[2] < set(train)
    assert all(
        np.array_equal(labels, problem.labels[sorted(place)]) for place, (_, labels) in zip(places, seen, strict=True)
    )
    assert outcome["size"] == chosen["size"] == len(test) == 10
    assert len(outcome["correct"]) == len(chosen["validated"]) == 2


def test_vote_and_mean_cosine_by_hand(problem, monkeypatch):
    """Three starts of which two are wrong in one sample: the vote follows them, the mean cosine the sure one."""
    task = only(problem, "nmf_gs", plan=PLAN._replace(restarts=3))[0]
    _, test = next(protocol.StratifiedKFold(4, shuffle=True, random_state=0).split(problem.X.T, problem.labels))
    right = np.eye(4)[problem.labels[test]]
    wrong = right.copy()
    wrong[0] = np.roll(right[0], 1) * 0.2 + right[0] * 0.1
    scores = iter([right, wrong, wrong])
    monkeypatch.setattr(protocol._Fold, "cosines", lambda *_: np.array([next(scores)]))
    outcome = run_fold(problem.X, problem.labels, task)
    assert outcome["correct"] == [10, 9, 9]
    assert (outcome["vote"], outcome["cosine"]) == (9, 10)


def test_the_estimator_classifies_as_the_tables_do(problem, monkeypatch):
    """With the settings of a preset, from the same starts: every predictor, sample by sample and in the row."""
    plan, settings = PLAN._replace(restarts=3), SETTINGS["nmf_gs"] | {"max_steps": 4}
    [task, *_] = tasks(problem, plan, [("nmf_gs", settings)])
    starts = draw_seeds(5, 3)[1]
    monkeypatch.setattr(protocol, "seeds", lambda _: starts)
    row = run_fold(problem.X, problem.labels, task)
    train, test = protocol.parts(problem.labels, task["folds"], 0, 0)
    X, y, truth = problem.X.T[train], problem.labels[train], problem.labels[test]
    names = ("a_t", "b_t", "small", "large", "scale", "lam_start", "init", "tol", "accelerate")
    full = task["settings"]
    model = GroupSparseNMF(
        full["rank"], prior="paper", max_iter=full["max_steps"], n_restarts=3, predict_by="vote", random_state=5,
        **{name: full[name] for name in names},
    ).fit(X, y)  # fmt: skip
    fold = protocol._Fold(problem.X, problem.labels, train, test)
    spaces = [METHODS["nmf_gs"](X.T, y, seed, **full) for seed in starts]
    np.testing.assert_allclose(model.bounds_, row["bound"], rtol=1e-7)
    cosines = np.array([fold.cosines(space) for space in spaces])
    scores = {
        "nearest": cosines[model.best_restart_, 0],
        "cosine": cosines[:, 0].mean(axis=0),
        "blend": cosines.mean(axis=(0, 1)),
    }
    for name, expected in scores.items():
        predicted = model.set_params(predict_by=name).predict(problem.X.T[test])
        assert predicted.tolist() == expected.argmax(axis=1).tolist()
    reported = {name: row[name] for name in ("vote", "cosine", "blend")}
    reported["nearest"] = row["correct"][model.best_restart_]
    right = {
        name: int(np.sum(model.set_params(predict_by=name).predict(problem.X.T[test]) == truth)) for name in reported
    }
    assert right == reported
    assert min(right.values()) < len(test)  # with mistakes, which are the same


def test_an_interrupted_run_goes_on_where_it_stopped(problem, monkeypatch, tmp_path):
    methods = [(name, SETTINGS[name]) for name in ("pca", "nmf_gs")]
    whole = run(problem, PLAN, methods, tmp_path / "whole.jsonl", backend="sequential")
    interrupted, calls = interrupting(at=4)
    monkeypatch.setattr(protocol, "run_fold", interrupted)
    path = tmp_path / "parts.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(problem, PLAN, methods, path, backend="sequential")
    assert len(results.read(path)) == 3
    rows = run(problem, PLAN, methods, path, backend="sequential")
    assert len(calls) == len(whole) + 1  # only the one that was interrupted came twice
    assert [{**r, "seconds": 0} for r in rows] == [{**r, "seconds": 0} for r in whole]
    assert run(problem, PLAN, methods, path, backend="sequential") == rows
    assert len(calls) == len(whole) + 1


def test_results_of_other_data_or_settings_are_not_taken_for_these(problem, tmp_path):
    path = tmp_path / "r.jsonl"
    plan = PLAN._replace(runs=1, use=1)
    run(problem, plan, [("pca", {"rank": 3})], path, backend="sequential")
    run(problem, plan, [("pca", {"rank": 2})], path, backend="sequential")
    run(problem._replace(X=problem.X + 1), plan, [("pca", {"rank": 3})], path, backend="sequential")
    run(problem._replace(labels=problem.labels[::-1]), plan, [("pca", {"rank": 3})], path, backend="sequential")
    assert len(results.read(path)) == 4
    assert sum("command" in json.loads(line) for line in path.read_text().splitlines()) == 1  # the same one


def test_worker_processes_give_the_same(problem, tmp_path):
    methods = [("nmf_gs", SETTINGS["nmf_gs"])]
    plan = PLAN._replace(runs=1)
    alone = run(problem, plan, methods, tmp_path / "a.jsonl", backend="sequential")
    together = run(problem, plan, methods, tmp_path / "b.jsonl", jobs=2)
    assert [r["correct"] for r in alone] == [r["correct"] for r in together]
    # Threads of XLA add up in another order.
    np.testing.assert_allclose([r["bound"] for r in alone], [r["bound"] for r in together], rtol=1e-4)


def test_forks_are_refused(problem, tmp_path):
    with pytest.raises(ValueError, match="does not fork"):
        run(problem, PLAN, [], tmp_path / "r.jsonl", backend="multiprocessing")


def test_collapsed_bounds_are_above_augmented_ones(problem):
    task = only(problem, "nmf_vb", plan=PLAN._replace(bounds=True))[0]
    outcome = run_fold(problem.X, problem.labels, task)
    assert (np.array(outcome["collapsed"]) > np.array(outcome["bound"])).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_the_classes(problem, method):
    """Poisson counts around four patterns: far above the quarter that guessing gives."""
    outcome = run_fold(problem.X, problem.labels, only(problem, method)[0])
    assert np.mean(outcome["correct"]) > 0.6 * outcome["size"]


# tables


def test_summary_stands_beside_the_paper():
    rows = [row(fold=0, vote=9), row(fold=1, correct=[10, 10], vote=10)]
    line = tables.summary(rows).loc["nmf_gs"]
    assert line["mean"] == "0.9500 ± 0.0500"
    assert line["max"] == "1.0000 ± 0.0000"
    assert line["paper's max"] == 0.9825
    assert line["variance"] == f"{np.var([0.8, 1, 1, 1]):.4f}"
    line = tables.summary([*rows, row(fold=1, validation=True, chosen=7)]).loc["nmf_gs"]
    assert line["chosen"] == "0.7000 ± nan (1 folds)"


def test_differences_are_paired_and_their_error_corrected():
    ours, theirs = [8, 9, 10], [7, 9, 8]
    rows = [row(fold=f, correct=[c]) for f, c in enumerate(ours)]
    rows += [row(fold=f, correct=[c], method="nmf_kl") for f, c in enumerate(theirs)]
    line = tables.differences(rows).iloc[0]
    gaps = (np.array(ours) - theirs) / 10
    assert line["difference"] == pytest.approx(gaps.mean())
    assert line["standard error"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert line["corrected"] == pytest.approx(gaps.std(ddof=1) * np.sqrt(1 / 3 + 1 / 9))


def test_correlations_have_the_right_sign():
    rows = [row(fold=f, correct=[7, 8, 9], bound=[-3, -2, -1], collapsed=[-1, -2, -3]) for f in range(3)]
    found = tables.correlations(rows).set_index(["bound", "across"])["Spearman's ρ"]
    assert found["augmented", "restarts"] == pytest.approx(1)
    assert found["collapsed", "restarts"] == pytest.approx(-1)
    swept = [row(settings={"rank": 45, "large": n}, correct=[5 + n], bound=[-n]) for n in range(4)]
    across = tables.correlations(swept).set_index(["bound", "across"])["Spearman's ρ"]
    assert across["augmented", "priors"] == pytest.approx(-1)


# presets and commands


@pytest.mark.parametrize("dataset", commands.DATASETS)
@pytest.mark.parametrize("method", METHODS)
def test_presets_are_settings_that_the_methods_take(dataset, method):
    settings = preset(dataset, method)
    inspect.signature(METHODS[method]).bind(None, None, 0, **settings)
    assert resolve(method, settings) == settings


def test_there_are_presets_for_all_and_no_others():
    assert set(presets()) == set(commands.DATASETS)
    with pytest.raises(ValueError, match=r"expected a dataset out of .*; got 'faces'"):
        preset("faces", "pca")
    with pytest.raises(ValueError, match="expected a setting of pca out of rank; got 'large'"):
        resolve("pca", {"rank": 3, "large": 1})
    with pytest.raises(ValueError, match="expected nmf_kl with l1; got rank"):
        resolve("nmf_kl", {"rank": 3})


def test_the_same_settings_are_the_same_work_however_they_are_given():
    given = {"rank": 4, "a_t": 1, "b_t": 20, "a_v": 1, "b_v": 1}
    assert resolve("nmf_vb", given) == resolve("nmf_vb", given | {"a_t": 1.0, "tol": None, "max_steps": 300})
    assert type(resolve("nmf_vb", given)["a_t"]) is float
    assert type(resolve("nmf_vb", given)["rank"]) is int


def test_values_to_vary():
    assert commands.varied("large=32,1e3") == ("large", [32, 1000.0])
    assert commands.varied("lam_start=shape,none") == ("lam_start", ["shape", None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "faces"], "invalid choice: 'faces'"),
        (["reproduce", "orl", "--folds", "11"], "expected --folds of at most 10; got 11"),
        (["reproduce", "orl", "--runs", "0"], "expected a whole number from 1; got '0'"),
        (["reproduce", "orl", "--scheduler", "tcp://x"], "expected --backend dask with --scheduler; got loky"),
        (["sweep", "orl", "--vary", "large"], "expected NAME=V1,V2"),
        (["sweep", "orl", "--vary", "long=1"], "expected a setting of nmf_gs out of rank"),
        (["sweep", "orl", "--method", "nmf_kl"], "expected --vary NAME=V1,V2 with --method nmf_kl; got none"),
        (["sweep", "orl", "--out", "s.png"], "expected --out to name a .jsonl file; got s.png"),
        (["reproduce", "yale"], "expected --data PATH with yale"),
        (["reproduce", "jaffe"], "JAFFE"),
        (
            ["figures", "digits", "--montage", "x.foo"],
            "expected --montage to name a .png, .pdf or .svg file; got x.foo",
        ),
        (
            ["figures", "digits", "--sweep", "no.jsonl"],
            "expected a file of results; got no.jsonl, which does not exist",
        ),
    ],
)
def test_unusable_input_is_refused_before_any_work(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_reproduce_and_sweep_print_tables(problem, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(commands, "load", lambda dataset, data: problem)
    monkeypatch.setattr("gsnmf.experiments.presets.presets", lambda: {"digits": SETTINGS})
    common = ["digits", "--backend", "sequential", "--folds", "2", "--restarts", "3", "--out"]
    assert main(["reproduce", *common, str(tmp_path / "r.jsonl"), "--runs", "1", "--methods", "pca", "nmf_gs"]) == 0
    printed = capsys.readouterr().out
    assert "nmf_gs − pca" in printed
    assert "majority of the restarts" in printed
    assert main(["sweep", *common, str(tmp_path / "s.jsonl"), "--vary", "large=1,50", "--bounds"]) == 0
    assert "collapsed" in capsys.readouterr().out
    written = sorted(p.name for p in Path(tmp_path).iterdir())
    assert written == ["r.jsonl", "s.jsonl", "s_accuracy.pdf", "s_accuracy.png"]


def test_all_values_of_a_setting_are_shown(problem, monkeypatch, tmp_path, capsys):
    """None is a value, and a setting may be named twice."""
    monkeypatch.setattr(commands, "load", lambda dataset, data: problem)
    monkeypatch.setattr("gsnmf.experiments.presets.presets", lambda: {"digits": SETTINGS})
    vary = ["--vary", "tol=none", "--vary", "tol=0.1", "--method", "nmf_vb"]
    common = ["--backend", "sequential", "--folds", "1", "--restarts", "1", "--out", str(tmp_path / "s.jsonl")]
    assert main(["sweep", "digits", *vary, *common]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[:3] in ("NaN", "0.1")] == ["NaN", "0.1"]


def test_an_interrupted_command_says_what_is_saved(problem, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(commands, "load", lambda dataset, data: problem)
    monkeypatch.setattr("gsnmf.experiments.presets.presets", lambda: {"digits": SETTINGS})
    monkeypatch.setattr(protocol, "run_fold", interrupting(at=3)[0])
    path = tmp_path / "r.jsonl"
    words = ["reproduce", "digits", "--methods", "pca", "--backend", "sequential", f"--out={path}"]
    assert main(words) == 130
    assert f"interrupted; {path} has 2 folds; the same command resumes from there" in capsys.readouterr().err
    written = json.loads(path.read_text().splitlines()[0])["command"]
    assert written == "gsnmf reproduce digits --methods pca --backend sequential --out=r.jsonl"
    assert main(words) == 0
    assert len(results.read(path)) == 50


def test_paths_are_named_without_folders():
    words = ["reproduce", "yale", "--data", "/home/me/yale.npz", "--out=a/b.jsonl", "--scheduler", "tcp://1.2.3.4:5"]
    said = "gsnmf reproduce yale --data yale.npz --out=b.jsonl --scheduler tcp://1.2.3.4:5"
    assert commands._said(words) == said


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(problem, monkeypatch, tmp_path):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr(commands, "load", lambda dataset, data: problem)
    monkeypatch.setattr("gsnmf.experiments.presets.presets", lambda: {"digits": SETTINGS})
    common = [
        "reproduce",
        "digits",
        "--methods",
        "nmf_gs",
        "--runs",
        "1",
        "--folds",
        "2",
        "--restarts",
        "2",
        "--backend",
    ]
    for backend in ("sequential", "dask"):
        assert main([*common, backend, "--out", str(tmp_path / f"{backend}.jsonl")]) == 0
    alone, together = (
        {r["fold"]: r["correct"] for r in results.read(tmp_path / f"{backend}.jsonl")}
        for backend in ("sequential", "dask")
    )
    assert alone == together
