"""The benchmark command works, and what it measures against computes the same thing."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
        "fresh",
        "least_squares",
        "measure",
        "missing",
        "peers",
        "problems",
        "report",
        "run",
        "sweeps",
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


def test_both_least_squares_are_the_same():
    from least_squares import column_by_column

    from gsnmf.projection import nnls

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
