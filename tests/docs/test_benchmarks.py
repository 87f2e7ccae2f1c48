"""The benchmark command works, and what it measures against computes the same thing."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import gammaln

from gsnmf.inference import cavi
from gsnmf.inference.starts import fill


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """The folder is no package: its files are found as they are when the command is run."""
    monkeypatch.syspath_prepend("benchmarks")
    yield
    for name in (
        "batch",
        "convergence",
        "defaults",
        "fresh",
        "kernel",
        "label_odds",
        "labels",
        "least_squares",
        "measure",
        "missing",
        "gibbs",
        "peers",
        "peers_sparse",
        "problems",
        "ratings",
        "relative",
        "report",
        "run",
        "simpler",
        "streaming",
        "sparse",
        "sweeps",
        "tools",
    ):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro itself promotes ranks in a few places."""


def test_numpy_cavi_has_our_bounds():
    from peers import NumpyCavi
    from problems import generated

    problem = generated(20, 30, 6, 3)
    ours = cavi.run(problem.data, problem.priors, max_steps=8, tol=None, accelerate=False, **problem.options(0))
    peer = NumpyCavi(problem.data, problem.priors, "float64")
    means = fill(problem.options(0)["start"], problem.data, problem.priors, 6, jax.random.key(0), "random")
    state, _ = peer.sweep(peer.start(*means))
    for elbo in ours.elbo:
        state, theirs = peer.sweep(state)
        np.testing.assert_allclose(theirs, elbo, rtol=1e-10)


def test_filling_in_shows_a_fit_nothing_that_was_hidden():
    from missing import filled

    from gsnmf.model import as_data, hide

    data = hide(as_data(np.random.default_rng(0).poisson(3.0, (5, 7))), 0.3)
    plain = filled(data)
    assert plain.mask is plain.held_out is None
    np.testing.assert_array_equal(np.where(data.mask, plain.X, 0), data.X)
    for row, seen in zip(plain.X, data.mask, strict=True):
        np.testing.assert_allclose(row[~seen], row[seen].mean())


def test_both_floors_are_the_same_products():
    from peers import NumpyFloor, jax_floor, ones

    X = np.random.default_rng(0).poisson(3.0, (5, 7)).astype(float)
    in_jax = jax_floor(jnp.asarray(X), *ones(jnp.asarray(X), 2), 1)
    for product, moved in zip(NumpyFloor(X, 2)(1), in_jax, strict=True):
        np.testing.assert_allclose(1e-9 * product, moved - 1, atol=1e-15)


def test_sparse_peers_have_the_same_sums(monkeypatch):
    """One pass over nonzeros, in chunks and with q(S) stored, is that of the definition."""
    import peers_sparse
    from sparse import generate

    monkeypatch.setattr(peers_sparse, "TOGETHER", 64)  # several chunks
    X = generate(30, 20, 0.2).astype(float)
    chunks, stored = peers_sparse.ScipyPass(X, 3), peers_sparse.StoredPass(X, 3)
    stored.log_V, stored.log_T = np.log(chunks.V), np.log(chunks.T)
    M = chunks.V @ chunks.T.T
    ratio = X.toarray() / M
    expected = chunks.V * (ratio @ chunks.T), chunks.T * (ratio.T @ chunks.V)
    assert len(chunks.parts) > 2
    for sums in (chunks()[:2], stored()):
        for ours, reference in zip(sums, expected, strict=True):
            np.testing.assert_allclose(ours, reference, rtol=1e-12)
    row, column = X.nonzero()
    x = np.asarray(X[row, column])
    np.testing.assert_allclose(chunks()[2], (x * np.log(M[row, column] / x)).sum(), rtol=1e-12)


def test_both_least_squares_are_the_same():
    from least_squares import column_by_column

    from gsnmf.classification.projection import nnls

    rng = np.random.default_rng(0)
    T, X = rng.exponential(size=(30, 8)), rng.exponential(size=(30, 5))
    np.testing.assert_allclose(column_by_column(T, X), nnls(T, X), atol=1e-12)


def test_faces_have_the_size_of_generated_ones(tmp_path):
    from problems import YALE_PIXELS, yale

    images = np.random.default_rng(0).integers(0, 256, (15, 231, 195)).astype(np.uint8)
    np.savez(tmp_path / "faces.npz", images=images, labels=np.arange(15))
    assert yale(tmp_path / "faces.npz").shape == (YALE_PIXELS, 15, 45)


def test_never_is_neither_a_number_nor_met():
    from measure import Row, at_most
    from report import finite, table

    row = Row("sweeps", "small", "float32", [50.0, np.inf, np.inf], at_most(60.0), "sweeps")
    assert row.met is False
    assert table([row]).measured[0] == "never sweeps"
    assert finite(row.values) == [50.0, None, None]


@pytest.mark.parametrize("values", [[-0.3, 0.0, 2.0], [-0.3, -0.2, 0.0]])
def test_slopes_below_zero_are_off_the_axis_and_not_a_warning(values):
    from measure import Row, at_most
    from report import draw

    left, right = draw([Row("growth", "small", "float32", values, at_most(1.1))]).get_xlim()
    assert (left, right) == (0.2, 2.5)


def test_the_command_writes_a_table_json_and_a_plot(tmp_path, capsys):
    from run import main

    with jax.enable_x64(False):
        assert main(["--tiny", "--only", "sweep", "converge", "--seeds", "2", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "bench.json").read_text(encoding="utf-8"))
    assert all(row["what"] in printed for row in written["rows"])
    assert len(written["rows"]) == 6
    assert str(tmp_path) not in json.dumps(written)
    assert (tmp_path / "out" / "bench.png").stat().st_size > 10_000


def test_priors_are_compared_in_every_unit(capsys):
    from relative import main, variants

    rng = np.random.default_rng(0)
    X, labels = rng.uniform(0, 255, (5, 30)), np.arange(30) % 3
    faces = variants(X, labels)
    assert faces["0–255, unequal classes"].sizes.tolist() == [4, 7, 10]
    np.testing.assert_allclose(np.mean(faces["0–1, then 128 a pixel"].X), 128)
    with jax.enable_x64(False):
        assert main(["--tiny", "--sweeps", "2", "--splits", "1", "--starts", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*faces, "shapes 32, 8192", "shares 0.001, 0.01"])


def test_default_priors_are_compared_split_by_split(capsys, tmp_path):
    import defaults

    rng = np.random.default_rng(0)
    X = csr_matrix(rng.poisson(3.0, (30, 8)) * (np.arange(8) < 5))
    y = np.repeat(["few", "many"], [defaults.FEWEST - 1, 31 - defaults.FEWEST])
    np.savez(tmp_path / "pbmc68k.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, labels=y)
    assert [name for name in defaults.problems(tmp_path) if not name.startswith("digits")] == ["ORL", "pbmc68k"]
    [split] = defaults.cells(tmp_path / "pbmc68k.npz", 1)
    assert len(split.X) + len(split.X_new) == 31 - defaults.FEWEST
    rows = [
        {"data": "toy", "prior": prior, "split": n, "1-NN": n / 8 + gain, "in use": 3}
        for n in (0, 1)
        for prior, gain in {"relative": 0.125, "paper": 0.0}.items()
    ]
    assert "+0.125 ± 0.000" in defaults.table(rows)
    with jax.enable_x64(False):
        assert defaults.main(["--only", "100 images", "--splits", "1", "--sweeps", "2", "--without-model"]) == 0
    assert "digits, 100 images, 0 to 16" in capsys.readouterr().out


def test_splits_hide_labels_but_leave_one_of_every_class():
    from labels import split

    labels = np.repeat(np.arange(15), 11)
    for share, size in {0.01: 15, 0.1: 16, 0.5: 82}.items():
        index = split(labels, share, seed=0)
        assert (index >= 0).sum() == size
        assert set(index) == {-1, *range(15)}
        assert (index[index >= 0] == labels[index >= 0]).all()


def test_the_best_temperature_undoes_a_multiplication():
    from label_odds import best_temperature

    rng = np.random.default_rng(0)
    odds = rng.normal(size=(4000, 3))
    truth = np.array([rng.choice(3, p=np.exp(row) / np.exp(row).sum()) for row in odds])
    assert best_temperature(100 * odds, truth) == pytest.approx(100, rel=0.15)  # the grid's step is 12 %


def test_gains_are_paired_and_splits_counted():
    import pandas as pd
    from labels import AGAIN, NEAREST, table

    rows = [
        {"problem": "toy", "share": 0.1, "seed": n, "restarts": 1, NEAREST: n / 8, AGAIN: n / 8 + 0.125} for n in (0, 1)
    ]
    rows[0]["only once"] = 0.5
    printed = table(pd.DataFrame(rows))
    assert "+0.125 ± 0.000" in printed
    assert "0.500 ± nan (1 splits)" in printed


def test_simple_classifiers_see_no_test_image_and_quotes_are_from_the_pages(capsys):
    from simpler import QUOTED, folds, main

    labels = np.repeat(np.arange(3), 4)
    cut = folds(np.arange(12.0)[None, :], labels, runs=1, number=4)
    assert [split.test.shape[1] for split in cut] == [3] * 4
    for split in cut:
        assert sorted([*split.X[0], *split.test[0]]) == list(range(12))  # none is in both parts
        np.testing.assert_array_equal(labels[split.test[0].astype(int)], split.test_labels)
    assert main(["--tiny", "--runs", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("shrinkage LDA", "1-NN, cosine", "1-NN, Euclidean"))
    pages = {name: Path("docs/tour.md" if name == "digits" else "docs/experiments.md").read_text() for name in QUOTED}
    assert all(f"| {accuracy} |" in pages[name] for name, quotes in QUOTED.items() for accuracy in quotes.values())


def test_simple_classifiers_ask_for_a_file_that_is_there(capsys):
    from simpler import main

    with pytest.raises(SystemExit):
        main(["--yale", "nowhere.npz"])
    assert "expected --yale to name a file or folder; got nowhere.npz" in capsys.readouterr().err


def test_alternating_checkouts_wants_a_checkout(tmp_path):
    command = [sys.executable, "benchmarks/alternate.py", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"expected a checkout of this repository; got {tmp_path}" in done.stderr


@pytest.mark.parametrize(("what", "number"), [("ratings", 9), ("entries", 18)])
def test_hidden_ratings_are_zeros_for_the_fit_and_kept_for_the_score(what, number):
    from ratings import FLOOR, points, split

    X = np.random.default_rng(0).poisson(0.7, (12, 15)) + np.eye(12, 15, dtype=int)
    data = split(csr_matrix(X, dtype=np.float32), what, number / {"ratings": (X > 0).sum(), "entries": X.size}[what], 0)
    held = data.held_out
    assert len(held) == number
    np.testing.assert_array_equal(held.value, X[held.feature, held.sample])
    assert (held.value > 0).all() == (what == "ratings")
    seen = np.array(X)
    seen[held.feature, held.sample] = 0
    np.testing.assert_array_equal(data.X.to_scipy().toarray(), seen)
    scores = points(np.eye(12, 2), np.full((2, 15), 3.0), data)  # 3 for the first two films, 0 for the others
    mean = np.where(held.feature < 2, 3.0, FLOOR)
    np.testing.assert_allclose(scores, held.value * np.log(mean) - mean - gammaln(held.value + 1))


def test_ratings_print_a_row_of_every_model(capsys):
    from ratings import main

    with jax.enable_x64(False):
        assert main(["--tiny", "--ranks", "4", "--seeds", "0"]) == 0
    assert "gsnmf, hidden as 0" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--data", "nowhere.npz"])
    assert "expected --data to name a file; got nowhere.npz" in capsys.readouterr().err


def test_tools_predict_hidden_halves_of_test_samples_only():
    from defaults import Split
    from tools import FLOOR, Learned, log_density, task

    rng = np.random.default_rng(0)
    X, X_new = rng.poisson(4.0, (6, 5)), np.vstack([rng.poisson(4.0, (3, 5)), np.zeros((1, 5), int)])
    made = task(Split(X, np.arange(6) % 2, X_new, np.array([0, 1, 0, 1])), 0)
    np.testing.assert_array_equal(made.seen + made.hidden, X_new[:3])  # the empty one is left out
    assert len(made.y_new) == 3
    assert made.rank == 6
    T, V = rng.exponential(size=(2, 5)), rng.exponential(size=(3, 2))
    p = (1 - FLOOR) * (V @ T) / (V @ T).sum(1, keepdims=True) + FLOOR * (X.sum(0) + 1) / (X.sum(0) + 1).sum()
    expected = sum(x * np.log(q) for x, q in zip(made.hidden.flat, p.flat, strict=True)) / made.hidden.sum()
    assert log_density(Learned(7 * T, None, V), made) == pytest.approx(expected)  # whatever the scale


def test_tools_with_expected_counts_of_their_own_and_rows_that_are_done():
    import pandas as pd
    from defaults import Split
    from tools import FEATURES, Learned, log_density, shown, task, wanted

    rng = np.random.default_rng(0)
    made = task(Split(rng.poisson(4.0, (6, 5)), np.arange(6) % 2, rng.poisson(4.0, (3, 5)), np.array([0, 1, 0])), 0)
    T, V = rng.exponential(size=(2, 5)), rng.exponential(size=(3, 2))
    product = log_density(Learned(T, None, V), made)
    assert log_density(Learned(None, None, None, expected=3 * V @ T), made) == pytest.approx(product)
    some = ["scikit-learn LDA", "scikit-learn NMF (KL)"]
    assert wanted(some, None, pd.DataFrame({"tool": [some[0]]})) == [FEATURES, some[1]]
    rows = pd.DataFrame({"tool": ["a", "a", "b"], "own": [0.5, 0.7, 0.9], "note": ""})
    table = shown(rows)
    assert "0.600 ± 0.100" in table  # of two splits
    assert "0.900 ±" not in table  # of one


@pytest.mark.slow
def test_streams_beside_full_batches():
    from streaming import Kept, compare, generated

    how = {"seeds": [0], "passes": 2, "sizes": [50], "kept": Kept(None)}
    full, streamed = compare("tiny", generated(20, 400, C=2, per_group=1), **how)
    assert full["to 1 %"] < full["number"]
    assert streamed["bound a sample"] == pytest.approx(full["bound a sample"], rel=0.2)  # after 16 batches
