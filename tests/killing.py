"""Run a command of gsnmf, kill it at random moments, run it again, and say what the files are then.

    python tests/killing.py '{"folder": "...", "words": ["fit", ...], "kills": 20, "seed": 0}'

Each trial begins in an empty copy of the folder. Processes are forked from this one, which has imported the library but
not started JAX: importing takes several seconds, and most moments would fall into it. The report is one line of JSON,
a list with one entry for each trial, after one for the undisturbed run: its seconds, whether the first process was
killed before its end, what the second one said, its exit code, and a checksum of each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import gsnmf.checkpoints
import gsnmf.cli
import gsnmf.comparison.plots
import gsnmf.comparison.ranks
import gsnmf.experiments.tables
import gsnmf.images.preprocessing
import gsnmf.saving

# No two runs take the same time.
SECONDS = re.compile(rb'"(?:seconds|sha256|crc|ess_per_second)": (?:\[[^]]*\]|"[^"]*"|[\d.e-]+)')


def start(folder: Path, words: list[str]) -> int:
    """Start a command in this folder; return the process's number. What it says goes to files next to the folder."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = gsnmf.cli.main(words)
    finally:
        sys.stdout.flush()
        os._exit(code)


def end(child: int) -> int:
    """Wait for a process; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def checksums(folder: Path) -> dict[str, str]:
    """Return a checksum of each file, without durations."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    texts = {
        path: SECONDS.sub(b"", path.read_bytes()) if "json" in path.suffix else path.read_bytes() for path in files
    }
    return {str(path.relative_to(folder)): hashlib.sha256(text).hexdigest()[:12] for path, text in texts.items()}


def trial(given: Path, folder: Path, words: list[str], moment: float | None) -> dict[str, Any]:
    """Run, kill and run again."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(given, folder)
    begin, killed = time.monotonic(), False
    if moment is not None:
        child = start(folder, words)
        time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        killed = end(child) == -signal.SIGKILL
    unfinished = "--stream" in words and (folder / "fit.npz").exists()  # other commands resume without being asked
    code = end(start(folder, words + ["--resume"] * unfinished))
    said = folder.with_suffix(".err").read_text()
    seconds = time.monotonic() - begin
    return {"seconds": seconds, "killed": killed, "code": code, "said": said, "files": checksums(folder)}


def main(folder: str, words: list[str], kills: int, seed: int) -> list[dict[str, Any]]:
    """Return the undisturbed run, and the trials in which the process was killed: in others it had ended before."""
    given, place = Path(folder), Path(folder).with_name("trial")
    trial(given, place, words, None)  # compiles what is not in the cache
    alone = min((trial(given, place, words, None) for _ in range(2)), key=lambda one: one["seconds"])
    trials: list[dict[str, Any]] = []
    for moment in np.random.default_rng(seed).uniform(0, alone["seconds"], 3 * kills):
        trials += [one for one in [trial(given, place, words, float(moment))] if one["killed"]]
        if len(trials) == kills:
            break
    return [alone, *trials]


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
