"""Signals end a command with what there is saved; a forked process is told why it cannot compute."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import signal
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

from gsnmf import cli, interrupts
from gsnmf.commands import fit as command
from gsnmf.inference import cavi, engine
from gsnmf.model import Gamma, Priors, as_data
from gsnmf.saving import load_fit


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    np.savetxt(tmp_path / "x.csv", np.random.default_rng(0).poisson(5.0, (5, 6)), delimiter=",")
    return ["fit", str(tmp_path / "x.csv"), "--rank", "2", "--out", str(tmp_path / "fit.npz")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_fit_so_far(
    words: list[str], monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    run = cavi.run

    def signalled(*args: Any, callback: Any, **options: Any) -> None:
        callback(run(*args, **options | {"max_steps": 5, "tol": None}))
        os.kill(os.getpid(), number)

    monkeypatch.setattr(cavi, "run", signalled)
    before = signal.getsignal(number)
    assert cli.main(words) == code
    assert load_fit(words[-1]).fit.message == "Interrupted after sweep 5."
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_work_is_done_changes_nothing(words: list[str], number: int) -> None:
    """One while handlers are being removed, and one at the end of Python."""
    with interrupts.listening() as heard:
        heard.finished = True
        os.kill(os.getpid(), number)
    assert not interrupts.was_received()
    late = f"import atexit, os; atexit.register(os.kill, os.getpid(), {number:d}); from gsnmf.cli import main; "
    done = subprocess.run(
        [sys.executable, "-c", f"{late}raise SystemExit(main())", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Saved in" in done.stdout
    assert "Traceback" not in done.stderr
    assert "interrupted" not in done.stderr


def test_a_signal_during_imports_ends_a_command_before_it_reads(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is only remembered then; files may take minutes to read."""
    check = command.check_folder
    monkeypatch.setattr(command, "check_folder", lambda path: (check(path), interrupts._received.append(signal.SIGINT)))
    assert cli.main(words) == 130
    assert capsys.readouterr().err == "gsnmf: interrupted; nothing was saved\n"  # nor "read 5 features"


def test_a_platform_that_is_not_there_is_named(words: list[str]) -> None:
    """JAX has one line for some platforms, and a bare AssertionError for others."""
    for asked in ("cuda", "no_such_platform"):
        done = subprocess.run(
            [sys.executable, "-m", "gsnmf", *words],
            env=os.environ | {"JAX_PLATFORMS": asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        last = done.stderr.splitlines()[-1]
        assert last == f"gsnmf: error: expected JAX_PLATFORMS to name what this machine has; got {asked}"
        assert "Traceback" not in done.stderr


def test_a_command_in_another_thread_or_within_another_does_not_change_who_hears_signals() -> None:
    def finished() -> None:
        with interrupts.listening() as heard:
            heard.finished = True

    for inner in (finished, in_thread(finished)):
        with interrupts.listening():
            inner()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)


def in_thread(work: Any) -> Any:
    """Return a function that does the work in a thread of its own, and waits for it."""

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return run


def test_a_first_signal_is_only_remembered_where_processes_must_agree() -> None:
    with interrupts.listening():
        with interrupts.remembering(True):
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupts.was_received()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        with interrupts.remembering(False), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_interrupted_fit_goes_on_to_the_same_bits(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], sparse: bool
) -> None:
    """Ctrl-C comes after the first 25 sweeps, long before a checkpoint is due."""
    if sparse:
        counts = np.random.default_rng(1).poisson(0.5, (5, 6))
        scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(counts))
        words[1] = str(tmp_path / "x.npz")
    words += ["--max-steps", "90", "--tol", "0"]
    assert cli.main(words) == 0
    whole = (tmp_path / "fit.npz").read_bytes()
    (tmp_path / "fit.npz").unlink()  # else it would stay
    run, calls = cavi.run, []

    def interrupted(*args: Any, callback: Any, **options: Any) -> Any:
        def once(fit: Any) -> None:
            calls.append(fit.num_steps)
            callback(fit)
            if len(calls) == 1:
                os.kill(os.getpid(), signal.SIGINT)

        return run(*args, callback=once, **options)

    monkeypatch.setattr(cavi, "run", interrupted)
    assert cli.main(words) == 130
    assert load_fit(words[5]).fit.num_steps == 25
    capsys.readouterr()
    assert cli.main(words) == 0
    assert "resuming from sweep 25 of" in capsys.readouterr().err
    assert calls[0] == 25 < calls[1]
    assert (tmp_path / "fit.npz").read_bytes() == whole
    assert not list(tmp_path.glob("*checkpoint*"))


def test_an_unfinished_fit_does_not_replace_a_finished_one(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither one that a signal ended, which resumes, nor one that is of no use."""
    assert cli.main([*words, "--max-steps", "5", "--tol", "0"]) == 0
    finished, run = (tmp_path / "fit.npz").read_bytes(), cavi.run

    def interrupted(*args: Any, callback: Any, **options: Any) -> None:
        def once(fit: Any) -> None:
            callback(fit)
            os.kill(os.getpid(), signal.SIGINT)

        run(*args, callback=once, **options)

    def infinite(*args: Any, **options: Any) -> Any:
        return run(*args, **options)._replace(elbo=np.array([np.nan]), message="Not finite.")

    other = [*words, "--max-steps", "90", "--tol", "0", "--seed", "1"]
    for broken, code, said in ((interrupted, 130, "resumes from"), (infinite, 1, "error: Not finite. ")):
        monkeypatch.setattr(cavi, "run", broken)
        capsys.readouterr()
        assert cli.main(other) == code
        last = capsys.readouterr().err.splitlines()[-1]
        assert f"{words[-1]} stays as it was, from an earlier run" in last
        assert said in last
        assert (tmp_path / "fit.npz").read_bytes() == finished
        assert bool(list(tmp_path.glob("*checkpoint*"))) == (code == 130)
    monkeypatch.setattr(cavi, "run", run)
    assert cli.main(other) == 0
    assert (tmp_path / "fit.npz").read_bytes() != finished


def test_an_interruption_before_the_first_sweeps_names_the_checkpoint(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def after_sweeps(*args: Any, callback: Any, **options: Any) -> None:
        def once(fit: Any) -> None:
            callback(fit)
            raise KeyboardInterrupt

        run(*args, callback=once, **options)

    run = cavi.run
    for broken, said in (
        (interrupted, "interrupted; nothing was saved"),
        (after_sweeps, "interrupted after sweep 25; saved in"),
        (interrupted, f"interrupted; the same command resumes from {tmp_path / 'fit.checkpoint.npz'}"),
    ):
        monkeypatch.setattr(cavi, "run", broken)
        assert cli.main([*words, "--tol", "0"]) == 130
        assert said in capsys.readouterr().err.splitlines()[-1]


def test_an_interruption_after_the_fit_is_saved_says_so(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_describe_fit", interrupted)
    assert cli.main(words) == 130
    assert f"interrupted; the fit is saved in {words[-1]}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs the list of processes")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_and_its_worker_processes(tmp_path: Path, number: int, code: int) -> None:
    """It comes after the first row; the same command then goes on."""
    rows = tmp_path / "rows.jsonl"
    words = ["reproduce", "digits", "--quick", "--restarts", "2", "--methods", "nmf_vb", "nmf_gs", "--jobs", "2"]
    command = [sys.executable, "-c", "from gsnmf.cli import main; raise SystemExit(main())", *words, "--out", str(rows)]
    environment = os.environ | {"GSNMF_TEST_MARK": str(tmp_path)}

    def living() -> list[str]:
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                found += [place.parts[2]] * (str(tmp_path).encode() in place.read_bytes())
        return found

    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as ran:
        until = time.monotonic() + 120
        while time.monotonic() < until and (not rows.exists() or rows.read_text().count('"fold"') < 1):
            time.sleep(0.05)
        assert len(living()) >= 3
        ran.send_signal(number)
        _, said = ran.communicate(timeout=60)
    assert ran.returncode == code, said
    assert re.search(r"gsnmf: interrupted; .*rows.jsonl has \d+ folds; the same command resumes from there", said)
    assert "Traceback" not in said
    until = time.monotonic() + 30
    while time.monotonic() < until and living():
        time.sleep(0.1)
    assert living() == []
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stderr


@pytest.mark.parametrize("sparse", [False, True])
def test_a_snapshot_after_an_interruption_while_sweeps_run(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    """Sweeps of a sparse X overwrite the state that they began from: the snapshot is of the state after them."""
    counts = np.random.default_rng(1).poisson(0.5, (5, 6))
    data = as_data(scipy.sparse.csr_array(counts) if sparse else counts)
    options: dict[str, Any] = {"key": jax.random.key(0), "rank": 2, "max_steps": 90, "tol": None}
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    whole = cavi.run(data, priors, **options)
    takes: list[Any] = []
    read, waits = engine._Stage.read, iter([False, False, True])  # of the first chunk, its snapshot, the second chunk

    def interrupted(stage: Any) -> Any:
        if next(waits, False):
            raise KeyboardInterrupt
        return read(stage)

    monkeypatch.setattr(engine._Stage, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cavi.run(data, priors, checkpoint=lambda take: takes.append((take, take())), **options)
    snapshot = takes[-1][0]()
    assert snapshot.num_steps == 50
    again = cavi.run(data, priors, resume=snapshot, **options)
    np.testing.assert_array_equal(again.elbo, whole.elbo)


def test_a_fit_that_cannot_be_saved_keeps_its_checkpoint(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    words += ["--max-steps", "90", "--tol", "0", "--checkpoint-every", "0"]
    with monkeypatch.context() as patched:
        patched.setattr("gsnmf.saving.save_fit", full)
        assert cli.main(words) == 2
    assert capsys.readouterr().err.endswith("gsnmf: error: [Errno 28] No space left on device\n")
    assert [path.name for path in tmp_path.glob("fit*")] == ["fit.checkpoint.npz"]
    assert cli.main(words) == 0
    assert "resuming from sweep" in capsys.readouterr().err


def test_a_first_fit_says_what_it_waits_for(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("gsnmf")
    before = log.level, list(log.handlers)
    (tmp_path / "y.txt").write_text("a\nb\na\nb\nNA\nNA\n")
    words[2:4] = ["--labels", str(tmp_path / "y.txt")]
    assert cli.main([*words, "--max-steps", "2", "--per-group", "1"]) == 0
    said = capsys.readouterr().err
    assert "gsnmf: JAX compiles the first sweeps of each shape and set of options, which takes seconds\n" in said
    assert "gsnmf: warm start: the labelled samples are fitted first, then the 2 others are added\n" in said
    assert (log.level, log.handlers) == before


def test_a_signal_that_an_import_swallows_still_ends_the_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = command.read_problem

    def swallowing(arguments: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return read(arguments)

    monkeypatch.setattr(command, "read_problem", swallowing)
    assert cli.main(words) == 130
    assert "interrupted; nothing was saved" in capsys.readouterr().err


def test_a_signal_during_an_import_is_raised_after_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Raised inside, it would leave a module half initialised, or become another error."""
    (tmp_path / "slow_module.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nloaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    read = command.read_problem

    def importing(arguments: Any) -> Any:
        assert importlib.import_module("slow_module").loaded
        return read(arguments)

    monkeypatch.setattr(command, "read_problem", importing)
    assert cli.main(words) == 130
    monkeypatch.setattr(command, "read_problem", failing)
    assert cli.main(words) == 143
    assert capsys.readouterr().err.count("interrupted; nothing was saved") == 2


def failing(_: Any) -> Any:
    """As a library whose initialisation was interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    raise ImportError("Encountered an error while initializing the extension.")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fit_in_a_process_forked_after_jax_started_is_refused() -> None:
    jax.numpy.zeros(1).block_until_ready()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            as_data([[1.0]])
            said = "nothing"
        except RuntimeError as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked after JAX had started" in os.read(reading, 1000).decode()
    as_data([[1.0]])  # in the parent all is well
