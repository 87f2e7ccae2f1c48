"""What is said of memory before a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gsnmf import GroupSparseNMF, memory
from gsnmf.cli import main
from gsnmf.inference import shard
from gsnmf.memory import in_units, plan, plan_stream
from gsnmf.model import as_data, default_priors


def test_a_plan_says_how_x_is_read_and_what_it_takes():
    X = np.zeros((50, 400))
    X[0] = 1
    dense, sparse, spread = (plan(d, 3) for d in (as_data(X), as_data(scipy.sparse.csr_array(X)), shard(as_data(X))))
    assert (dense.kind, sparse.kind, spread.kind) == ("dense", "sparse", "sharded")
    assert "sparse X of 50 × 400, 400 entries above 0 (0.02 of all), read by the " in str(sparse)
    assert str(dense).startswith("dense X of 50 × 400; about ")
    assert "over 1 devices, 400 samples in this process" in str(spread)
    size = jnp.result_type(float).itemsize
    factors = 15 * 450 * 3 * size
    assert sparse.needed == 2 * 400 * (4 + size) + factors
    assert dense.needed == 50 * 400 * (8 + 2 * size) + 3 * 50 * 400 * size + factors
    assert dense.check() is dense


def test_too_much_memory_is_refused_with_the_alternative(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(ValueError, match=r"1 kB of which are free; got one that takes about .*: give X as a sparse"):
        plan(as_data(np.ones((5, 5))), 2).check()
    monkeypatch.setattr(memory, "available", lambda: None)
    assert plan(as_data(np.ones((5, 5))), 2).check().kind == "dense"


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_candidates_of_unlabelled_samples_count(monkeypatch: pytest.MonkeyPatch, form: Any):
    """In the structured form, V has a row for every sample with a label and for every candidate of the others."""
    X, labels = form(np.eye(4, 60)), [*range(10), *[None] * 50]
    monkeypatch.setattr(memory, "available", lambda: 200_000)
    known, some = plan(as_data(X, [n % 10 for n in range(60)]), 7), plan(as_data(X, labels), 7)
    assert some.needed - known.needed == 15 * 50 * 9 * 7 * jnp.result_type(float).itemsize
    spread = shard(as_data(X, labels))
    assert plan(spread, 7).candidates == some.candidates
    with monkeypatch.context() as two:
        two.setattr("jax.process_count", lambda: 2)  # each has half of the samples, and of the candidates
        assert plan(spread, 7).candidates == some.candidates // 2
    assert plan(as_data(X, labels), 7, "mean_field").needed == known.check().needed
    with pytest.raises(ValueError, match=r"10 candidate groups each\): use fewer components, or the mean field"):
        some.check()


def test_available_memory_is_that_of_the_machine():
    found = memory.available()
    assert found is None or 1e6 < found < 1e15
    assert in_units(2.5e12) == "2.5 TB"


def test_the_estimator_refuses_too_much_and_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    X = np.random.default_rng(0).poisson(3.0, (12, 4))
    GroupSparseNMF(n_components=2, n_restarts=1, max_iter=5, tol=None, verbose=1).fit(X)
    assert "gsnmf: dense X of 4 × 12; about " in capsys.readouterr().err
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(ValueError, match="expected a fit that fits in memory, 1 kB of which are free"):
        GroupSparseNMF(n_components=2).fit(X)


def test_all_components_are_counted_before_priors_are_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    (tmp_path / "y.txt").write_text("a\na\nb\nb\n")
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    for place in ("gsnmf.model", "gsnmf.streams", "gsnmf.classification.restarts"):
        monkeypatch.setattr(f"{place}.default_priors", None)  # would ask for memory
    words = ["fit", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.txt"), "--out", str(tmp_path / "fit")]
    for more in (["--common", "100000"], ["--common", "100000", "--stream"]):
        assert main([*words, *more]) == 2
        assert "expected a fit that fits in memory, 1 MB of which are free" in capsys.readouterr().err
    estimator = GroupSparseNMF(common=100_000)
    for fit in (estimator.fit, lambda X, y: estimator.partial_fit(X, y, classes=["a", "b"])):
        with pytest.raises(ValueError, match="expected a fit that fits in memory, 1 MB of which are free"):
            fit(np.ones((4, 3)), ["a", "a", "b", "b"])


def test_a_billion_components_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    assert main(["fit", str(tmp_path / "x.npy"), "--rank", "1000000000", "--out", str(tmp_path / "fit")]) == 2
    size = jnp.result_type(float).itemsize
    expected = "expected a fit that fits in memory, 1 MB of which are free; got one that takes about "
    about = f"{in_units(15 * 7 * 10**9 * size + 12 * (8 + 5 * size))} (dense X of 3 × 4): give X as a sparse matrix if "
    remedy = "most of it is 0, or stream it (gsnmf fit --stream, cavi.stream, partial_fit)"
    assert capsys.readouterr().err.splitlines()[-1] == f"gsnmf: error: {expected}{about}{remedy}"


def test_a_stream_takes_memory_of_a_batch():
    priors = default_priors(as_data(np.ones((50, 4))), rank=3)
    few, many = (plan_stream(np.broadcast_to(1.0, (50, N)), priors, 3, 64) for N in (1000, 2000))
    assert few.kind == "streamed"
    assert "1,000, streamed in batches of 64 samples" in str(few)
    assert many.needed - few.needed == 8 * 1000  # the order of samples
    sparse = plan_stream(scipy.sparse.csc_array((50, 1000)), priors, 3, 64)
    assert sparse.needed < few.needed
