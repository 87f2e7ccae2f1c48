"""Commands that are killed at random moments go on, to the same files, bit by bit, as without interruption."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import checksums

from gsnmf import cli
from gsnmf.experiments import protocol
from gsnmf.experiments.figures import KINDS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "fit": "fit x.npy --rank 6 --out fit --max-steps 10000 --tol 0 --checkpoint-every 0",
    "reproduce": "reproduce digits --quick --restarts 1 --methods pca nmf_gs --backend sequential --out rows.jsonl",
    "choose": "choose x.npy --ranks 1:4 --splits 2 --restarts 1 --max-steps 100 --out .",
    "stream": "fit x.npy --stream --rank 6 --out fit --passes 300 --batch-size 10 --checkpoint-every 0",
    "sweep": "sweep digits --vary large=8,64 --runs 1 --folds 2 --restarts 1 --backend sequential --out rows.jsonl",
    "crosscheck": "crosscheck x.npy --rank 2 --draws 50 --chains 2 --out .",
    "figures": "figures digits --max-steps 5 --large 1 9 --small 1 --out .",
}
FITS = {"fit.npz", "fit.json"}
PICTURES = {f"digits_{name}.{form}" for name in KINDS for form in ("png", "pdf")}
FILES = {
    "fit": FITS,
    "reproduce": {"rows.jsonl"},
    "choose": {"ranks.csv", "ranks.png"},
    "stream": FITS,
    "sweep": {"rows.jsonl", "rows_accuracy.png", "rows_accuracy.pdf"},
    "crosscheck": {"crosscheck.csv", "crosscheck.json", "forest.png", "marginals.png"},
    "figures": PICTURES,
}
KILLS = {"stream": 10, "sweep": 6, "crosscheck": 4, "figures": 4}  # 20 of the others


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_at_random_moments_goes_on_to_the_same_files(command: str, tmp_path: Path) -> None:
    """Moments are uniform over the time that the command takes; some are before the first checkpoint."""
    given = tmp_path / "given"
    given.mkdir()
    shape = (50, 60) if command in ("fit", "stream") else (12, 15)
    np.save(given / "x.npy", np.random.default_rng(0).poisson(5.0, shape))
    what = {"folder": str(given), "words": COMMANDS[command].split(), "kills": KILLS.get(command, 20), "seed": 1}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": "1"}  # single precision soon stands still
    ran = subprocess.run(
        [sys.executable, "tests/killing.py", json.dumps(what)], cwd=ROOT, capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    alone, *trials = json.loads(ran.stdout.splitlines()[-1])
    assert {name for name in alone["files"] if not name.startswith("fits/")} == {"x.npy"} | FILES[command]
    assert {trial["code"] for trial in trials} == {0}
    assert all(trial["files"] == alone["files"] for trial in trials)
    assert len(trials) == what["kills"]
    resumed = sum("resuming from" in trial["said"] for trial in trials)
    print(f"{command}: {alone['seconds']:.1f} s, {resumed} of {len(trials)} resumed")
    assert resumed >= len(trials) // 4


@pytest.mark.slow
def test_a_killed_worker_is_named_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, died = tmp_path / "rows.jsonl", str(tmp_path / "died")

    def dying(X: Any, labels: Any, task: Any) -> Any:  # sent to the worker by value
        import os
        import signal

        from gsnmf.experiments.protocol import run_fold

        if task["fold"] == 1 and not os.path.exists(died):
            open(died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_fold(X, labels, task)

    monkeypatch.setattr(protocol, "run_fold", dying)
    words = ["reproduce", "digits", "--quick", "--folds", "3", "--methods", "pca", "--jobs", "2", "--out", str(path)]
    assert cli.main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("gsnmf: error: a worker process was ended by the system, perhaps for lack of memory")
    assert re.search(r"rows.jsonl has \d folds; the same command resumes from there$", said)
    assert cli.main(words) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(row["fold"] for row in rows if "fold" in row) == [0, 1, 2]
    assert Path(died).exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a disk of some size, or changes its size."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made: list[bool] = []

    def mount(size: str) -> Path:
        options = ["-o", f"remount,size={size}"] if made else ["-t", "tmpfs", "-o", f"size={size}"]
        try:
            ran = subprocess.run(["mount", *options, "tmpfs", str(folder)], capture_output=True, check=False)
        except FileNotFoundError:
            pytest.skip("no mount on this system")
        if ran.returncode:
            pytest.skip("only root mounts disks")
        made.append(True)
        return folder

    yield mount
    if made:
        subprocess.run(["umount", str(folder)], check=True)


SMALL = {
    "fit": COMMANDS["fit"].replace("10000", "75"),
    "stream": COMMANDS["stream"].replace("300", "2"),
    "choose": COMMANDS["choose"].replace("1:4", "1:2").replace("100", "25"),
    "reproduce": COMMANDS["reproduce"].replace("pca nmf_gs", "pca --folds 2"),
}
SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in ("sweep", "crosscheck", "figures")]


@pytest.mark.parametrize("command", [*SMALL, *SLOWLY])
def test_a_write_that_fails_ends_a_command_with_one_line_and_the_same_command_goes_on(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first, the second or a later file on, the disk is full, for whoever runs this."""
    words = SMALL.get(command, COMMANDS[command]).split()
    X, sync, calls = np.random.default_rng(0).poisson(5.0, (12, 15)), os.fsync, [0]

    def disk(room: float) -> None:
        def fails(handle: int) -> None:
            if stat.S_ISREG(os.fstat(handle).st_mode):  # and not the folder
                calls[0] += 1
                if calls[0] > room:
                    raise OSError(errno.ENOSPC, "No space left on device")
            sync(handle)

        calls[0] = 0
        monkeypatch.setattr(os, "fsync", fails)

    def run(name: str, *more: str) -> int:
        (tmp_path / name).mkdir(exist_ok=True)
        np.save(tmp_path / name / "x.npy", X)
        monkeypatch.chdir(tmp_path / name)
        code = cli.main([*words, *more])
        monkeypatch.chdir(tmp_path)
        return code

    disk(math.inf)
    assert run("alone") == 0
    number = calls[0]
    assert number >= 2
    for room in sorted({0, 1, number - 1}):
        capsys.readouterr()
        disk(room)
        assert run(f"room {room}") == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.fullmatch(r"gsnmf: error: \[Errno 28\] .* could not be written: No space left on device", said)
        disk(math.inf)
        unfinished = command == "stream" and (tmp_path / f"room {room}" / "fit.npz").exists()
        assert run(f"room {room}", *["--resume"] * unfinished) == 0
        assert checksums(tmp_path / f"room {room}") == checksums(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fit", "reproduce", "choose"])
def test_a_full_disk_ends_a_command_with_one_line_and_the_same_command_goes_on(
    command: str, tmp_path: Path, small_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).poisson(5.0, (12, 15)))
    words = COMMANDS[command].replace("10000", "300").replace("x.npy", str(tmp_path / "x.npy")).split()
    words += ["--methods", "pca"] if command == "reproduce" else []
    disk, alone = small_disk("12k"), tmp_path / "alone"
    filler = disk / "filler"
    filler.write_bytes(bytes({"fit": 4096, "reproduce": 12288, "choose": 8192}[command]))
    monkeypatch.chdir(disk)
    assert cli.main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"gsnmf: error: \[Errno 28\] .* could not be written: No space left on device", said)
    small_disk("4m")
    assert cli.main(words) == 0
    filler.unlink()
    alone.mkdir()
    monkeypatch.chdir(alone)
    assert cli.main(words) == 0
    assert checksums(disk) == checksums(alone)
    monkeypatch.chdir(tmp_path)
