"""Several processes: the same fit as one, an end with a sentence when one has gone, and checkpoints."""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf import distributed, parts
from gsnmf.checkpoints import Checkpoint, mark_of
from gsnmf.cli import main
from gsnmf.commands.stream import labels_in
from gsnmf.inference import cavi
from gsnmf.inference.sharding import shard
from gsnmf.model import Gamma, Priors, Relevance, as_data
from gsnmf.parts import bounds_of_part, read_part
from gsnmf.reading.containers import in_a_sentence
from gsnmf.saving import load_fit

FOLDER = Path(__file__).resolve().parents[2]
COMMAND = "import sys; from gsnmf.cli import main; sys.exit(main())"
FIT = ["fit", "X.npy", "--labels", "y.txt", "--seed", "1"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """40 features × 101 samples of three groups."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.poisson(rng.gamma(0.5, 2, (40, 5)) @ rng.gamma(0.5, 2, (5, 101))))
    (tmp_path / "y.txt").write_text("\n".join(str(n % 3) for n in range(101)))
    return tmp_path


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start `gsnmf fit` in this folder."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_backend_optimization_level=0"  # in make test-slow too
    values = {**os.environ, "PYTHONPATH": str(FOLDER), "XLA_FLAGS": flags, **environment}
    command = [sys.executable, "-c", COMMAND, *FIT, *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=values, **pipes)


def both(folder: Path, *words: str, **environment: str) -> list[subprocess.Popen[str]]:
    """Start two processes."""
    where = ["--distributed", "--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
    return [start(folder, *words, *where, "--process", str(n), **environment) for n in (0, 1)]


@pytest.mark.parametrize(
    ("x64", "bound", "of_T"), [("0", 3e-6, 1e-4), pytest.param("1", 1e-10, 1e-10, marks=pytest.mark.slow)]
)
def test_two_processes_give_the_fit_of_one(
    files: Path, monkeypatch: pytest.MonkeyPatch, x64: str, bound: float, of_T: float
):
    """Sums are added up in another order; so many sweeps of single precision lose two digits of T."""
    options = ("--max-steps", "30", "--tol", "0")
    ran = both(files, "--out", "two", *options, JAX_ENABLE_X64=x64)
    monkeypatch.chdir(files)
    with jax.enable_x64(x64 == "1"):
        assert main([*FIT, "--out", "one", *options]) == 0  # in this process, while the two begin
    said = [process.communicate(timeout=600) for process in ran]
    assert [process.returncode for process in ran] == [0, 0], said
    read = "samples; no names; 101 samples in all 2 processes"
    assert [text.count(read) for _, text in said] == [1, 0]  # process 0 speaks for all
    two, one = (load_fit(files / name).fit for name in ("two", "one"))
    np.testing.assert_allclose(two.elbo[-1], one.elbo[-1], rtol=bound)
    np.testing.assert_allclose(two.posterior.T.mean, one.posterior.T.mean, rtol=of_T)
    np.testing.assert_allclose(two.posterior.V.mean, one.posterior.V.mean, rtol=of_T)
    assert not list(files.glob("*checkpoint*"))


SLURM = {"SLURM_JOB_ID": "{port}", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_PROCID": "{n}",
         "SLURM_LOCALID": "0", "SLURM_NODEID": "{n}"}  # fmt: skip
OPEN_MPI = {"OMPI_MCA_orte_hnp_uri": "{job}.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": "{n}", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SLURM, OPEN_MPI])
def test_processes_find_each_other_as_on_a_cluster(files: Path, cluster: dict[str, str]):
    """No address is given: JAX reads these variables, by which the coordinator's port depends on the job's number."""
    port = os.getpid() % 4096
    ran = [
        start(
            files, "--out", "two", "--max-steps", "5", "--distributed",
            **{name: value.format(n=n, port=port, job=port * 4096) for name, value in cluster.items()},
        )
        for n in (0, 1)
    ]  # fmt: skip
    said = [process.communicate(timeout=240) for process in ran]
    assert [process.returncode for process in ran] == [0, 0], said
    assert "spread over 2 devices, 50 samples in this process" in said[0][1]
    assert load_fit(files / "two").fit.posterior.V.mean.shape[1] == 101


def test_without_an_address_jax_finds_the_cluster(monkeypatch: pytest.MonkeyPatch):
    import jax

    from gsnmf.distributed import join

    calls: list[tuple[Any, ...]] = []
    options: list[tuple[Any, ...]] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *given, **_: calls.append(given))
    monkeypatch.setattr(jax.config, "update", lambda *given: options.append(given))
    join()
    join("10.0.0.1:12", 3, 0)
    assert calls == [(None, None, None), ("10.0.0.1:12", 3, 0)]
    assert options[:2] == [("jax_cpu_collectives_implementation", "gloo"), ("jax_enable_preemption_service", False)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_processes_that_do_not_begin_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Alone, JAX would wait for minutes and then abort."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: time.sleep(0.3))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    port = free_port()
    with pytest.raises(ValueError, match=f"expected process 0 at 127.0.0.1:{port} within 0.1 s; got Connection refus"):
        distributed.join(f"127.0.0.1:{port}", 3, 1, wait=0.1)
    assert capsys.readouterr().err == f"gsnmf: waiting for process 0 at 127.0.0.1:{port}\n"
    distributed.join(f"127.0.0.1:{port}", 3, 0, wait=0.1)
    assert capsys.readouterr().err == "gsnmf: error: expected 3 processes in all within 0.1 s; got fewer\n"
    assert ended == [3]
    with socket.create_server(("127.0.0.1", port)):
        distributed.join(f"127.0.0.1:{port}", 3, 1, wait=0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("signalled", [0, 1])
def test_a_signal_to_one_process_leaves_a_checkpoint(files: Path, signalled: int):
    """It comes before the first sweep; its peer ends, too, by the watch. Without it no checkpoint would be due."""
    options = ("--max-steps", "100000", "--tol", "0", "--checkpoint-every", "1000")
    ran = both(files, "--out", "two", *options)
    try:
        assert ran[0].stderr is not None
        while "JAX compiles the first sweeps" not in (line := ran[0].stderr.readline()):
            assert line
        time.sleep(0.5)  # both compile for seconds
        ran[signalled].send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=60)[1] for process in ran]
    finally:
        for process in ran:
            process.kill()
            with process:  # closes its pipes
                pass
    assert [process.returncode for process in ran] == ([143, 3] if signalled == 0 else [3, 143])
    assert re.search(r"gsnmf: interrupted; .*two\.checkpoint\.npz", said[signalled])
    assert "another process has ended" in said[1 - signalled]
    snapshot = Checkpoint(files / "two.checkpoint.npz", _mark(files / "two.checkpoint.npz")).load()
    assert snapshot is not None
    assert snapshot.num_steps % 25 == 0


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "signal_"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_a_lost_process_ends_the_other_and_any_number_goes_on(files: Path, victim: int, signal_: int):
    """The rest is made by one process, and equals an undisturbed run to what another order of sums changes.

    The other process ends within seconds, or two heartbeats; 30 s are for busy machines, and less than JAX's own 100.
    """
    options = ("--max-steps", "20000", "--tol", "0", "--checkpoint-every", "0", "--heartbeat", "6")
    environment = {"JAX_ENABLE_X64": "1"}
    ran = both(files, "--out", "two", *options, **environment)
    deadline = time.monotonic() + 120
    while not (files / "two.checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(np.random.default_rng(victim).uniform(0, 2))
    ran[victim].send_signal(signal_)
    begin = time.monotonic()
    try:
        _, said = ran[1 - victim].communicate(timeout=60)
    finally:
        for process in ran:
            process.kill()
            with process:  # closes its pipes
                pass
    assert time.monotonic() - begin < 30
    assert ran[1 - victim].returncode == 3
    assert re.search(r"gsnmf: error: another process has .*two\.checkpoint\.npz", said)
    more = ("--max-steps", "400", "--tol", "0")
    loaded = Checkpoint(files / "two.checkpoint.npz", "")
    loaded.mark = str(_mark(files / "two.checkpoint.npz"))
    snapshot = loaded.load()
    assert snapshot is not None
    assert snapshot.num_steps % 25 == 0
    number = str(snapshot.num_steps + 50)
    for name in ("two", "one"):
        process = start(files, "--out", name, "--max-steps", number, *more[2:], **environment)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        assert ("resuming from sweep" in said) == (name == "two")
    two, one = (load_fit(files / name).fit for name in ("two", "one"))
    np.testing.assert_allclose(two.elbo, one.elbo, rtol=1e-9)


def _mark(path: Path) -> str:
    import json

    with np.load(path) as stored:
        return str(json.loads(bytes(stored["about"]))["mark"])


def test_options_of_processes(files: Path, capsys: pytest.CaptureFixture[str]):
    fit = ("fit", str(files / "X.npy"), "--labels", str(files / "y.txt"), "--out", str(files / "out"))
    for words, message in [
        (("--process", "0"), "expected --distributed with --process"),
        (("--distributed", "--plots", str(files)), "expected --plots without --distributed"),
        (("--distributed", "--process", "0"), "expected coordinator, processes and process together"),
        (("--distributed", "--coordinator", "here", "--processes", "2", "--process", "0"), "as HOST:PORT; got 'here'"),
        (("--distributed", "--coordinator", "a:1", "--processes", "2", "--process", "2"), "from 0 to 1; got 2"),
        (("--checkpoint-every", "-1"), "expected --checkpoint-every to be a number of seconds; got -1.0"),
        (("--distributed", "--text", "body"), "expected no --text with --distributed"),
        (("--distributed", "--heartbeat", "0"), "expected --heartbeat to be at least 1 second; got 0"),
    ]:
        assert main([*fit, *words]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["X.npy", "X.npz", "small.npz", "columns.npz", "rows.npz", "X.csv", "X.mtx", "X.h5ad",
                                  "parts", "sparse"])  # fmt: skip
def test_parts_are_the_samples_of_each_process(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """Of most files only the part is read: reading a file as a whole would raise."""
    X = np.arange(22.0).reshape(2, 11) % 5
    write_all(tmp_path, X)
    if name in ("X.npy", "X.npz", "columns.npz", "X.h5ad", "parts", "sparse"):
        monkeypatch.setattr(parts, "read_matrix", lambda path, **_: pytest.fail(f"{path} was read as a whole"))
    found = [read_part(tmp_path / name, n, 3) for n in range(3)]
    dense = [part.matrix.X.toarray() if scipy.sparse.issparse(part.matrix.X) else part.matrix.X for part in found]
    np.testing.assert_array_equal(np.concatenate(dense, axis=1), X)
    assert {part.num_samples for part in found} == {11}
    assert [part.first for part in found] == np.cumsum([0, *(x.shape[1] for x in dense)])[:3].tolist()


def test_labels_are_those_of_all_parts_in_a_folder(tmp_path: Path):
    import h5py

    for n, kinds in enumerate((["b", "a"], ["long", "a", "a"])):
        with h5py.File(tmp_path / f"{n}.h5ad", "w") as file:
            file["X"] = np.ones((len(kinds), 2))
            file["obs/kind"] = [kind.encode() for kind in kinds]
    found = labels_in(argparse.Namespace(file=tmp_path, labels="obs:kind"))
    assert found.tolist() == ["b", "a", "long", "a", "a"]
    np.save(tmp_path / "2.npy", np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"expected a file of labels, as .* has no columns with values of samples"):
        labels_in(argparse.Namespace(file=tmp_path, labels="obs:kind"))


def write_all(folder: Path, X: np.ndarray) -> None:
    """Write a matrix in all formats."""
    import h5py
    import scipy.io

    columns = scipy.sparse.csc_array(X)
    np.save(folder / "X.npy", X)
    np.savez(folder / "X.npz", X=X, other=np.ones(2))
    np.savez_compressed(folder / "small.npz", X=X)
    scipy.sparse.save_npz(folder / "columns.npz", columns)
    scipy.sparse.save_npz(folder / "rows.npz", scipy.sparse.csr_array(X))
    scipy.io.mmwrite(folder / "X.mtx", columns)
    (folder / "X.csv").write_text("\n".join(",".join(map(str, row)) for row in X))
    with h5py.File(folder / "X.h5ad", "w") as file:
        rows = scipy.sparse.csr_array(X.T)
        at = file.create_group("X")
        at.attrs["encoding-type"], at.attrs["shape"] = "csr_matrix", rows.shape
        at["data"], at["indices"], at["indptr"] = rows.data, rows.indices, rows.indptr
    for name in ("parts", "sparse"):
        (folder / name).mkdir()
        for n, some in enumerate(np.split(np.arange(11), [2, 5, 6])):
            np.save(folder / "parts" / f"{n}.npy", X[:, some]) if name == "parts" else scipy.sparse.save_npz(
                folder / "sparse" / f"{n}.npz", columns[:, some]
            )


def test_parts_that_are_too_few(tmp_path: Path):
    np.save(tmp_path / "0.npy", np.ones((2, 3)))
    with pytest.raises(ValueError, match="expected at least 9 files of samples in"):
        read_part(tmp_path, 0, 9)
    with pytest.raises(ValueError, match="expected at least one sample for each of 3 processes; got 2"):
        bounds_of_part(2, 0, 3)
    scipy.sparse.save_npz(tmp_path / "1.npz", scipy.sparse.csc_array(np.ones((2, 3))))
    with pytest.raises(ValueError, match="expected sparse matrices in all files of"):
        read_part(tmp_path, 0, 1)


@pytest.mark.parametrize("kind", ["csv", "h5ad"])
@pytest.mark.parametrize(
    ("other", "got"),
    [
        (["b", "a"], "'b' in 1.KIND as feature 1, which is 'a' in 0.KIND"),
        (["a", "c"], "'c' in 1.KIND as feature 2, which is 'b' in 0.KIND"),
        (["a", "b", "c"], "'c' in 1.KIND as feature 3, which is none in 0.KIND"),
    ],
)
def test_files_of_other_features_are_refused_by_every_process(tmp_path: Path, kind: str, other: list[str], got: str):
    import h5py

    for n, names in enumerate((["a", "b"], other)):
        if kind == "csv":
            (tmp_path / f"{n}.csv").write_text("".join([f"gene,s{n},t{n}\n", *(f"{name},1,2\n" for name in names)]))
            continue
        with h5py.File(tmp_path / f"{n}.h5ad", "w") as file:
            file["X"], file["var/_index"] = np.ones((2, len(names))), [name.encode() for name in names]
    for index in range(2):
        with pytest.raises(ValueError, match="expected the same features in the same order in all files") as error:
            read_part(tmp_path, index, 2)
        assert str(error.value).endswith(f"got {got.replace('KIND', kind)}")


def test_a_checkpoint_is_whole_and_of_this_run(tmp_path: Path):
    file = tmp_path / "a.npz"
    snapshot = cavi.Snapshot([np.ones(2), np.zeros((), np.float32)], np.array(1.0), np.arange(3.0), False)
    kept = Checkpoint(file, "mark", period=0)
    assert kept.load() is None
    kept(lambda: snapshot)
    loaded = kept.load()
    assert loaded is not None
    for ours, theirs in zip(loaded.leaves, snapshot.leaves, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    assert (loaded.num_steps, loaded.stop, float(loaded.last)) == (3, False, 1.0)
    Checkpoint(file, "mark", period=1e9)(lambda: pytest.fail("not yet due"))
    with pytest.raises(ValueError, match="to be a checkpoint of this run; got that of another one"):
        Checkpoint(file, "other").load()
    content = file.read_bytes()
    for damaged in (content[:-200], content[:300] + b"x" + content[301:], b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"expected a checkpoint in .*remove it, or choose another --out"):
            kept.load()
    assert list(tmp_path.iterdir()) == [file]


def test_lack_of_memory_is_not_taken_for_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    kept = Checkpoint(tmp_path / "a.npz", "mark")
    kept.save(cavi.Snapshot([np.ones(2)], np.array(1.0), np.arange(3.0), False))
    monkeypatch.setattr("numpy.load", fail)
    with pytest.raises(MemoryError, match="no room"):
        kept.load()
    with pytest.raises(MemoryError, match="no room"), in_a_sentence(tmp_path / "x.h5"):
        fail()
    with (
        pytest.raises(ValueError, match=r"expected a matrix with names in .*x\.h5; got 'X'"),
        in_a_sentence(tmp_path / "x.h5"),
    ):
        raise KeyError("X")


def test_a_mark_identifies_the_run_however_samples_are_spread(monkeypatch: pytest.MonkeyPatch):
    X = np.array([[3.0, 1.0, 4.0, 1.0, np.nan], [2.0, 7.0, 0.0, 8.0, 2.0]])
    priors, options = Priors(Gamma(1.0, 2.0), Gamma(1.0, 2.0)), {"seed": 1}
    mark = mark_of(as_data(X), priors, options)
    stored = scipy.sparse.csr_array(np.nan_to_num(X))
    hidden = scipy.sparse.csr_array(np.isnan(X))
    assert mark_of(as_data(stored, hidden=hidden), priors, options) == mark
    assert mark_of(shard(as_data(X)), priors, options) == mark
    parts = [as_data(X[:, own]).matrix.checksum(np.array(own), 5) for own in ([3, 0], [4, 1, 2])]
    assert sum(parts) % 2**64 == as_data(X).matrix.checksum(np.arange(5), 5)

    moved = X.copy()
    moved[:, [1, 3]] = moved[:, [3, 1]]
    for other in (X[:, ::-1], X[::-1], moved, X[:, [1, 0, 2, 3, 4]], np.nan_to_num(X), np.where(X == 8, 9, X)):
        assert mark_of(as_data(other), priors, options) != mark
    assert mark_of(as_data(X), priors, {"seed": 2}) != mark
    swapped = [[None, {"a", "b"}], [{"a", "b"}, None]]  # the same memberships, other labels
    both = [mark_of(as_data(X, [*two, *"ab" * X.shape[1]][: X.shape[1]]), priors, options) for two in swapped]
    assert both[0] != both[1]
    for family in (Priors(Gamma(1.0, 2.0), Relevance(Gamma(1.0, 2.0))), Priors(Gamma(1.0, 3.0), Gamma(1.0, 2.0))):
        assert mark_of(as_data(X), family, options) != mark
    monkeypatch.setattr("gsnmf.journal.__version__", "0.0")
    assert mark_of(as_data(X), priors, options) != mark


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has this priority")
def test_threads_that_wait_for_peers_give_way_to_sweeps():
    ready, done = select.epoll(), threading.Event()
    reader, writer = os.pipe()
    ready.register(reader, select.EPOLLIN)
    waiting, other = threading.Thread(target=ready.poll), threading.Thread(target=done.wait)
    for thread in (waiting, other):
        thread.start()
    time.sleep(0.05)  # until both wait
    distributed._give_way({str(thread.native_id) for thread in (waiting, other)} | {"1234567890"})
    policies = [os.sched_getscheduler(thread.native_id) for thread in (waiting, other)]
    os.write(writer, b".")
    done.set()
    assert policies == [os.SCHED_IDLE | os.SCHED_RESET_ON_FORK, os.SCHED_OTHER]
