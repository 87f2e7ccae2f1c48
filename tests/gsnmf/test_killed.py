"""Commands that are killed at random moments go on, to the same files, bit by bit, as without interruption."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "fit": "fit x.npy --rank 3 --out fit --max-steps 4000 --tol 0 --checkpoint-every 0",
    "reproduce": "reproduce digits --quick --backend sequential --out rows.jsonl",
    "choose": "choose x.npy --ranks 1:4 --splits 2 --restarts 1 --max-steps 100 --out .",
}
FILES = {"fit": {"fit.npz", "fit.json"}, "reproduce": {"rows.jsonl"}, "choose": {"ranks.csv", "ranks.png"}}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_at_random_moments_goes_on_to_the_same_files(command: str, tmp_path: Path) -> None:
    """20 moments, uniform over the time that the command takes; some are before the first checkpoint."""
    given = tmp_path / "given"
    given.mkdir()
    np.save(given / "x.npy", np.random.default_rng(0).poisson(5.0, (12, 15)))
    what = {"folder": str(given), "words": COMMANDS[command].split(), "kills": 20, "seed": 1}
    ran = subprocess.run(
        [sys.executable, "tests/killing.py", json.dumps(what)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    alone, *trials = json.loads(ran.stdout.splitlines()[-1])
    assert alone["files"].keys() == {"x.npy"} | FILES[command]
    assert {trial["code"] for trial in trials} == {0}
    assert all(trial["files"] == alone["files"] for trial in trials)
    assert sum(trial["killed"] for trial in trials) >= 18  # one or two may have ended just before
    resumed = sum("goes on from" in trial["said"] for trial in trials)
    print(f"{command}: {alone['seconds']:.1f} s, {resumed} of {len(trials)} resumed")
    assert resumed >= 5
