"""The command line, run as people run it (in this process, to save the imports)."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gsnmf import GroupSparseNMF, __version__, choose_rank, cli
from gsnmf.commands.demo import PICTURES
from gsnmf.commands.outputs import is_own
from gsnmf.demo import digits as demo
from gsnmf.demo import unlabelled as demo_labels
from gsnmf.inference import cavi, native
from gsnmf.inference.defaults import ACCELERATE, INIT, LAM_START, MAX_STEPS, TOL
from gsnmf.model import Gamma, GroupSparse, default_priors, label_driven, seeded_priors, structured
from gsnmf.model.defaults import A_T, B_T, PER_GROUP, PRIOR, SCALE, SHAPES
from gsnmf.saving import load_fit


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """6 features × 8 samples with names, and labels beside it."""
    X = np.random.default_rng(0).poisson(5, size=(6, 8))
    rows = ["gene," + ",".join(f"s{n}" for n in range(8))]
    rows += [f"g{f}," + ",".join(map(str, row)) for f, row in enumerate(X)]
    (tmp_path / "X.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "labels.txt").write_text("\n".join("ab"[n % 2] for n in range(8)) + "\n")
    return tmp_path / "X.csv"


def fit(matrix: Path, *options: Any) -> int:
    return cli.main(["fit", str(matrix), "--max-steps", "40", *map(str, options)])


def test_fit_end_to_end(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = matrix.parent
    options = ["--labels", folder / "labels.txt", "--per-group", 2, "--prior", "paper", "--small", 1, "--large", 4]
    options += ["--lam-start", "shape"]
    out, pictures = folder / "made" / "fit.npz", folder / "pictures"
    assert fit(matrix, *options, "--out", out, "--plots", pictures, "--image-shape", "2x3") == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("features", "groups", "bound", "sweeps", "converged", "Saved in"))
    saved = load_fit(out)
    assert saved.fit.posterior.T.a.shape == (6, 4)
    assert saved.names.group.tolist() == ["a", "b"]
    assert saved.names.feature.tolist() == [f"g{f}" for f in range(6)]
    assert saved.names.sample.tolist() == [f"s{n}" for n in range(8)]
    assert isinstance(saved.priors.coefficients, GroupSparse)
    assert saved.priors.coefficients.rate.a.tolist() == [[1, 4], [1, 4], [4, 1], [4, 1]]
    assert len(saved.fit.elbo) == saved.fit.num_steps
    names = {"bound", "coefficients", "dictionary", "hinton_lambda", "hinton_v"}
    assert {path.stem for path in pictures.iterdir()} == names


def test_fit_with_missing_entries(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split(",") for line in matrix.read_text().splitlines()]
    rows[2][3], rows[4][1] = "", "NaN"
    (matrix.parent / "holes.csv").write_text("\n".join(map(",".join, rows)))
    assert fit(matrix.parent / "holes.csv", "--rank", 3, "--out", matrix.parent / "holes") == 0
    head, values = capsys.readouterr().out.splitlines()[:2]
    assert dict(zip(head.split(), values.split(), strict=False))["missing"] == "2"


def test_fit_saves_the_priors_it_learned(matrix: Path) -> None:
    learn = ["--learn-dictionary", "component", "--learn-coefficients", "group"]
    options = ["--labels", matrix.parent / "labels.txt", "--per-group", 2, "--prior", "paper", *learn]
    assert fit(matrix, *options, "--out", matrix.parent / "learned") == 0
    saved = load_fit(matrix.parent / "learned")
    assert saved.priors.dictionary.a.shape == saved.priors.dictionary.b.shape == (1, 4)
    assert saved.priors.coefficients.rate.a.tolist() == [[32, 256], [32, 256], [256, 32], [256, 32]]
    assert saved.priors.coefficients.rate.b.shape == (1, 2)
    assert fit(matrix, "--rank", 3, *learn, "--out", matrix.parent / "none") == 2  # without labels there are no groups


def test_fit_without_labels(matrix: Path) -> None:
    assert fit(matrix, "--rank", 3, "--out", matrix.parent / "plain", "--a-t", 2) == 0
    saved = load_fit(matrix.parent / "plain")
    assert isinstance(saved.priors.coefficients, Gamma)
    assert saved.priors.dictionary.a == 2
    assert saved.fit.posterior.lam is None
    assert saved.fit.posterior.V.a.shape == (3, 8)


def test_seed_decides_the_fit(matrix: Path) -> None:
    means = []
    for seed in (1, 1, 2):
        assert fit(matrix, "--rank", 2, "--out", matrix.parent / "f", "--seed", seed) == 0
        means.append(np.asarray(load_fit(matrix.parent / "f").fit.posterior.T.mean))
    np.testing.assert_array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


@pytest.mark.parametrize("labels", [None, "abcabcabc", "abcab-abc"], ids=["none", "all", "unlabelled"])
def test_fit_gives_the_posterior_of_the_estimator(tmp_path: Path, labels: str | None) -> None:
    """The same matrix, labels and seed, everything else left to defaults."""
    X = np.random.default_rng(3).poisson(9.0, size=(7, 9)).astype(float)
    np.save(tmp_path / "X.npy", X)
    options, y = ["--rank", "4"], None
    if labels is not None:
        (tmp_path / "labels.txt").write_text("\n".join("NA" if c == "-" else c for c in labels) + "\n")
        options, y = ["--labels", str(tmp_path / "labels.txt")], [None if c == "-" else c for c in labels]
    out = tmp_path / "fit.npz"
    assert cli.main(["fit", str(tmp_path / "X.npy"), *options, "--seed", "5", "--out", str(out)]) == 0
    saved = load_fit(out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GroupSparseNMF(4 if labels is None else None, n_restarts=1, predict_by="nearest", random_state=5).fit(
            X.T, y
        )
    assert saved.fit.num_steps == model.n_iter_
    for name in ("T", "V", "lam"):
        ours, theirs = getattr(saved.fit.posterior, name), getattr(model.posterior_, name)
        assert (ours is None) == (theirs is None) == (name == "lam" and labels is None)
        for part in () if ours is None else ("a", "b", "mean"):
            np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-10)
    if labels is not None and "-" in labels:
        np.testing.assert_allclose(saved.fit.posterior.z, model.posterior_.z, rtol=1e-10)


def test_options_have_one_default() -> None:
    """The estimator, `choose_rank`, `cavi.run`, `default_priors` and the help of commands state the same numbers."""

    def stated(function: Any) -> dict[str, Any]:
        found = {name: p.default for name, p in inspect.signature(function).parameters.items()}
        names = {"max_iter": "max_steps", "per_class": "per_group", "n_components": "rank"}
        return {names.get(name, name): value for name, value in found.items()}

    run = {"init": INIT, "lam_start": LAM_START, "max_steps": MAX_STEPS, "tol": TOL, "accelerate": ACCELERATE}
    prior = {"per_group": PER_GROUP, "prior": PRIOR, "scale": SCALE, "a_t": A_T, "b_t": B_T}
    prior |= {"rank": None, "common": 0, "small": None, "large": None}
    for function, expected in {
        GroupSparseNMF: run | prior, choose_rank: run, cavi.run: run, cavi.run_many: run, default_priors: prior
    }.items():  # fmt: skip
        found = stated(function)
        named = found.keys() & expected.keys()
        assert len(named) >= 4
        assert {name: found[name] for name in named} == {name: expected[name] for name in named}
    for function in (structured, label_driven):
        found = stated(function)
        assert (found["small"], found["large"], found["scale"]) == (*SHAPES["paper"], SCALE)


@pytest.mark.parametrize("command", ["fit", "choose", "crosscheck"])
def test_help_states_the_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    small, large = zip(SHAPES["relative"], SHAPES["paper"], strict=True)
    said = {
        "--prior {relative,paper}": PRIOR, "--scale B": "1e6", "--a-t A": A_T, "--b-t B": f"{B_T:g}",
        "--small A": "{:g}; with --prior paper: {:g}".format(*small), "--lam-start {prior,shape}": LAM_START,
        "--large A": "{:g}; with --prior paper: {:g}".format(*large),
        "--init {random,groups}": "groups" if command == "crosscheck" else INIT,
    }  # fmt: skip
    if command != "choose":
        said["--per-group N"] = PER_GROUP
    if command != "crosscheck":
        said |= {"--max-steps N": MAX_STEPS, "--tol TOL": "1e-6"}
    assert (float("1e6"), float("1e-6")) == (SCALE, TOL)
    details = printed.split("show this help message", 1)[1]
    for option, value in said.items():
        assert re.match(
            rf"{re.escape(option)} [^()]*\(default: {re.escape(str(value))}\)", details[details.index(option) :]
        )


LABELS = ["--labels", "{folder}/labels.txt"]
ERRORS: list[tuple[list[str], str]] = [
    (["{X}"], "the following arguments are required: --out"),
    (["{X}", "--out", "{folder}/f"], "expected --labels FILE, or --rank K for a model without groups; got neither"),
    (["{X}", "--out", "{folder}/f", "--small", "2", "--rank", "2"], "expected --labels with --small; got none"),
    (["{X}", "--out", "{folder}/f", *LABELS, "--rank", "2", "--per-group", "1"], "--per-group or --rank; got both"),
    (["{X}", "--out", "{folder}/f", *LABELS, "--per-group", "0"], "expected at least one component; got per_group=0"),
    (["{X}", "--out", "{folder}/f", *LABELS, "--large", "-1"], "expected large to be a positive number; got -1"),
    (["{X}", "--out", "{folder}/f", *LABELS, "--prior", "paper", "--large", "-1"], "positive number; got -1"),
    (
        ["{X}", "--out", "{folder}/f", *LABELS, "--small", "32"],
        "expected --small to be a fraction of a sample's counts, below 1; got 32 (for shapes of λ add --prior paper)",
    ),
    (["{X}", "--out", "{folder}/f", *LABELS, "--prior", "relative", "--large", "1"], "--large to be a fraction"),
    (["{X}", "--out", "{folder}/f", "--prior", "paper", "--rank", "2"], "expected --labels with --prior; got none"),
    (["{X}", "--out", "{folder}/f", *LABELS, "--prior", "flat"], "invalid choice: 'flat'"),
    (["{X}", "--out", "{folder}/f", "--rank", "0"], "expected rank to be a whole number ≥ 1; got 0"),
    (
        ["{X}", "--out", "{folder}/f", "--rank", "2", "--a-t", "0"],
        "expected dictionary.a to be positive and finite in float64; got 0",
    ),
    (["{X}", "--out", "{folder}/f", "--rank", "2", "--max-steps", "0"], "expected max_steps to be a whole number ≥ 1"),
    (["{X}", "--out", "{folder}/f", "--rank", "2", "--tol", "-1"], "expected tol to be None or a number ≥ 0; got -1"),
    (["{X}", "--out", "{folder}/f", "--rank", "two"], "invalid int value: 'two'"),
    (["{X}", "--out", "{X}/f", "--rank", "2"], "expected to write a file other than the input; got"),
    (["{X}", "--out", "{folder}/labels.txt/f", "--rank", "2"], "expected a folder to write into; got"),
    (["{X}", "--out", "{folder}/f", "--rank", "2", "--image-shape", "2x2"], "with 6 pixels; got 2x2"),
    (["{X}", "--out", "{folder}/f", "--rank", "2", "--image-shape", "6"], "expected HxW"),
    (["{folder}/no.csv", "--out", "{folder}/f", "--rank", "2"], "no.csv, which does not exist"),
    (["{folder}/labels.txt", "--out", "{folder}/f", "--rank", "2"], "expected a file ending in .npy"),
    (
        ["{X}", "--out", "{folder}/f", "--labels", "{folder}/short.txt"],
        "expected one label for each of the 8 samples in",
    ),
    (
        ["{folder}/negative.csv", "--out", "{folder}/f", "--rank", "2"],
        "expected X to be nonnegative; got a minimum of -1",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors_are_one_line(
    matrix: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    folder = matrix.parent
    (folder / "short.txt").write_text("a\nb\n")
    (folder / "negative.csv").write_text("1,-1\n2,3\n")
    code = cli.main(["fit", *(argument.format(X=matrix, folder=folder) for argument in arguments)])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith("gsnmf: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""
    assert not list(folder.glob("f.*"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "an allocation failed"),
        (MemoryError("Unable to allocate\n9 TiB"), "Unable to allocate 9 TiB"),
        (RuntimeError("RESOURCE_EXHAUSTED: out"), "RESOURCE_EXHAUSTED: out"),
    ],
)
def test_too_little_memory_is_one_line(
    matrix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("gsnmf.commands.fit.read_problem", fail)
    assert cli.main(["fit", str(matrix), "--rank", "2", "--out", str(matrix.parent / "f")]) == 2
    assert capsys.readouterr().err == f"gsnmf: error: expected enough memory for this command; got: {said}\n"


def test_an_unusable_out_is_noticed_before_the_input_is_read(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (matrix.parent / "taken.npz").mkdir()
    assert cli.main(["fit", "no.csv", "--rank", "2", "--out", str(matrix.parent / "taken")]) == 2
    assert "expected --out to name a file; got the folder" in capsys.readouterr().err


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fot"]) == 2
    assert "invalid choice: 'fot'" in capsys.readouterr().err
    assert cli.main([]) == 2


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_interrupt(
    matrix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkpoints: int
) -> None:
    run = cavi.run

    def interrupted(*args: Any, callback: Any, **options: Any) -> None:
        if checkpoints:
            callback(run(*args, **options | {"max_steps": 5, "tol": None}))
        raise KeyboardInterrupt

    monkeypatch.setattr(cavi, "run", interrupted)
    out = matrix.parent / "partial.npz"
    assert fit(matrix, "--rank", 2, "--out", out) == 130
    said = capsys.readouterr().err
    if checkpoints:
        assert "interrupted after sweep 5; saved in" in said
        saved = load_fit(out).fit
        assert (saved.num_steps, saved.converged, saved.message) == (5, False, "Interrupted after sweep 5.")
    else:
        assert "nothing was saved" in said
        assert not out.exists()


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, examples in {
        ("--help",): ["gsnmf demo --out", "gsnmf fit faces.npz --labels"],
        ("demo", "--help"): ["gsnmf demo --out", "gsnmf demo --labels 0.3"],
        ("fit", "--help"): ["gsnmf fit faces.npz --labels", "gsnmf fit counts.csv --rank"],
        ("report", "--help"): ["gsnmf report my_fit.npz", "gsnmf report old_fit.npz --data"],
        ("crosscheck", "--help"): ["gsnmf crosscheck --out", "gsnmf crosscheck counts.csv --labels"],
    }.items():
        assert cli.main(list(arguments)) == 0
        printed = capsys.readouterr().out
        assert all(example in printed for example in examples)


def test_examples_in_help_parse() -> None:
    for line in (cli.DEMO_EXAMPLE, cli.FIT_EXAMPLE, cli.REPORT_EXAMPLE, cli.CROSSCHECK_EXAMPLE):
        assert callable(cli._parser().parse_args(line.split()[1:]).run)


def test_help_needs_no_heavy_imports() -> None:
    program = (
        "import sys\nfrom gsnmf.cli import main\nmain(['--help'])\n"
        "heavy = {'jax', 'numpy', 'sklearn', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: gsnmf")


def test_the_version_says_how_sparse_x_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"gsnmf {__version__}"
    assert second == f"sparse X: {native.describe()}"


def test_python_m() -> None:
    done = subprocess.run([sys.executable, "-m", "gsnmf", "fit"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("gsnmf: error: ")


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SIZES", (100,))
    monkeypatch.setattr(demo.run_demo, "__kwdefaults__", {"draws": 3, "max_steps": 60})
    assert cli.main(["demo", "--out", str(tmp_path / "d")]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("label-driven groups", "without labels", "mean of 3", "bound", "seconds"))
    names = {"bound", "coefficients", "dictionary", "hinton_lambda", "hinton_v"}
    assert {path.stem for path in (tmp_path / "d").iterdir()} == names == set(PICTURES[0])
    assert all(map(is_own, (tmp_path / "d").iterdir()))


def test_demo_with_part_of_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the fits with labels unknown, which take long to compile: here all are known."""
    monkeypatch.setattr(demo_labels, "SIZE", 100)
    monkeypatch.setattr(demo_labels.run_labels_demo, "__kwdefaults__", {"draws": 2, "max_iter": 20})
    monkeypatch.setitem(demo_labels.OPTIONS, "n_restarts", 1)
    known = demo_labels._contestants

    def all_known(split: Any, given: Any) -> Any:
        return known(split, given) | {demo_labels.PARTLY: (split.X.T, split.labels)}

    monkeypatch.setattr(demo_labels, "_contestants", all_known)
    assert cli.main(["demo", "--labels", "0.3", "--out", str(tmp_path / "d")]) == 0
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed for name in (demo_labels.NEIGHBOUR, demo_labels.PARTLY, demo_labels.ALL))
    assert all(word in printed for word in ("30% of them with labels", "hidden", "ECE", "Brier", "2 random splits"))
    assert {path.stem for path in (tmp_path / "d").iterdir()} == {"dictionary", "reliability"} == set(PICTURES[1])


def test_the_demo_hides_the_same_share_of_every_digit() -> None:
    labels = np.repeat(np.arange(10), 30)
    given = demo_labels.hide_labels(labels, 0.3, seed=0)
    assert np.bincount(given[given >= 0]).tolist() == [9] * 10
    assert (given[given >= 0] == labels[given >= 0]).all()
    assert (given == demo_labels.hide_labels(labels, 0.3, seed=0)).all()
    assert (given != demo_labels.hide_labels(labels, 0.3, seed=1)).any()


@pytest.mark.parametrize("share", ["0", "1", "-0.3", "30", "nan"])
def test_shares_of_labels_that_leave_nothing_to_learn_or_to_find(
    share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", f"--labels={share}", "--out", str(tmp_path)]) == 2
    assert "expected a share of labels from 0.05 to 0.95; got" in capsys.readouterr().err


def test_fit_with_unknown_labels(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is learned of them is saved, and drawn."""
    folder = matrix.parent
    (folder / "partly.csv").write_text("label\na\nb\n\nb\na\nNA\na\nb\n")
    options = ["--labels", folder / "partly.csv", "--per-group", 1, "--prior", "paper", "--small", 1, "--large", 4]
    assert fit(matrix, *options, "--out", folder / "partly", "--plots", folder / "pictures") == 0
    head, values = capsys.readouterr().out.splitlines()[:2]
    assert dict(zip(head.split(), values.split(), strict=False))["unlabelled"] == "2"
    labels = load_fit(folder / "partly").fit.posterior.labels
    assert labels is not None
    assert np.flatnonzero(labels.unlabelled).tolist() == [2, 5]
    np.testing.assert_allclose(labels.z.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(labels.z[0], [1, 0])
    assert labels.V is not None
    assert labels.V.a.shape == (2, 2, 2)


def test_demo_holds_fixed_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    split = demo.splits(100, 1, 0)[0]
    (data, priors), (other_data, other_priors) = demo.models(split).values()
    assert data.X is other_data.X
    assert priors.dictionary == other_priors.dictionary
    assert (data.num_groups, other_data.num_groups) == (10, 1)
    assert priors.coefficients.hyperprior is not None
    assert other_priors.coefficients.hyperprior is not None
    assert priors.coefficients.hyperprior.a.shape == (30, 10)
    assert other_priors.coefficients.hyperprior.a.shape == (30, 1)
    assert len(split.labels) + len(split.test_labels) == 899
    driven, single = label_driven(3, 10, 10.0, 100.0, 1e6), label_driven(30, 1, 1.0, 1.0, 1e6)
    np.testing.assert_array_equal(priors.coefficients.hyperprior.a, driven.a)
    np.testing.assert_array_equal(other_priors.coefficients.hyperprior.a, single.a)


def test_the_input_is_never_overwritten(tmp_path, capsys):
    path = tmp_path / "X.npz"
    np.savez(path, X=np.ones((3, 4)))
    before = path.read_bytes()
    assert cli.main(["fit", str(path), "--rank", "1", "--out", str(path)]) == 2
    assert "a file other than the input" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("seed", ["-1", "1.5", "100000000000000000000"])
def test_seeds_that_no_generator_takes_are_refused(seed, capsys):
    assert cli.main(["demo", "--seed", seed]) == 2
    assert "a whole number from 0 to 4294967295" in capsys.readouterr().err


def test_seeds_and_common_components(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The prior of the fit is the one that `seeded_priors` makes; names that are nowhere are an error of one line."""
    folder = matrix.parent
    labels, sets, out = folder / "labels.txt", folder / "sets.gmt", folder / "fit.npz"
    sets.write_text("b\t\tg1\tg2\nshared\t\tg5\n")
    options = ["--labels", labels, "--per-group", 1, "--common", 1, "--seeds", sets, "--out", out]
    assert fit(matrix, *options, "--strength", 50) == 0
    saved = load_fit(out)
    plain = default_priors(saved.data, per_group=1, common=1)
    expected = seeded_priors(plain, saved.data, {"b": ["g1", "g2"], "shared": ["g5"]}, strength=50.0)
    np.testing.assert_allclose(saved.priors.dictionary.b, expected.dictionary.b)
    assert saved.priors.dictionary.b.argmax(axis=0).tolist() == [5, 0, 1]
    sets.write_text("b\t\tnowhere\n")
    assert fit(matrix, *options) == 2
    assert "expected the set 'b' to name features of X" in capsys.readouterr().err
    assert fit(matrix, *options[:-4], "--out", out, "--strength", 5) == 2
    assert "expected --seeds with --strength" in capsys.readouterr().err


def test_labels_without_a_component_are_said(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = matrix.parent / "y.txt"
    labels.write_text("a\nb\nc\nd\n" * 2)
    words = [str(matrix), "--labels", str(labels), "--out", str(matrix.parent / "f"), "--max-steps", "2"]
    for options, said in (
        (["--rank", "3"], "3 components for 4 groups: 1 group has no component of its own."),
        (
            ["--rank", "3", "--common", "1"],
            "3 components (1 common) for 4 groups: 2 groups have no component of their own.",
        ),
        (["--rank", "3", "--stream"], "3 components for 4 groups: 1 group has no component of its own."),
        (["--rank", "4"], None),
    ):
        assert cli.main(["fit", *(words[:-2] if "--stream" in options else words), "--force", *options]) == 0
        lines = [
            line for line in capsys.readouterr().err.splitlines() if "of their own" in line or "of its own" in line
        ]
        assert lines == (
            [f"gsnmf: warning: {said} A larger --rank, or --per-group, gives one to each."] if said else []
        )
