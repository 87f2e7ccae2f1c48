"""Planted bugs: each is applied in a scratch copy, and the tests named with it must fail.

python tests/mutation/run.py                     # all, two at a time: make mutants
python tests/mutation/run.py --only update_lam   # those whose file, text or name contain this
python tests/mutation/run.py --resume FILE --seconds 300   # for so long; the next call goes on where this one ended

mutants.toml lists them: `file`, the text `old` that occurs there once, `new` in its place, and the `tests` that should
notice, the quickest first: the first failure ends the run. A survivor is a gap in the tests. The tests of every entry
also run once without any bug: they must pass.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.toml")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "site", "demo", "*.egg-info", "__pycache__", ".*_cache", "build")
LIMIT = 600  # seconds for the tests of one bug; all tests without any may take six times as long


class Mutant(NamedTuple):
    """A planted bug; the fields are those of mutants.toml."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """What became of a bug: caught by the first test that failed, or None if it survived."""

    name: str
    caught_by: str | None
    seconds: float


def read(path: Path = LIST) -> list[Mutant]:
    """Read the list; raise if a text does not occur exactly once in its file."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    mutants = [Mutant(e["name"], e["file"], e["old"], e["new"], tuple(e["tests"])) for e in entries]
    for mutant in mutants:
        times = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old)
        if times != 1:
            raise ValueError(f"expected {mutant.old!r} once in {mutant.file}, for {mutant.name}; got {times} times")
        if mutant.old == mutant.new:
            raise ValueError(f"expected another text for {mutant.name}; got the same")
    return mutants


def first_failure(folder: Path, tests: tuple[str, ...], limit: int = LIMIT) -> tuple[str | None, str]:
    """Run tests in a copy of the project; return the first that fails, or None, and what was printed."""
    words = ["-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-n0", *tests]
    command = [sys.executable, "tests/with_cache.py", sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {limit} s", ""
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return None, said
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return (found[1] if found else f"exit code {done.returncode}"), said


def try_one(mutant: Mutant, folders: Queue[Path]) -> Outcome:
    """Plant one bug in a free copy of the project, run its tests, and mend it."""
    folder, began = folders.get(), time.monotonic()
    file = folder / mutant.file
    good = file.read_text(encoding="utf-8")
    try:
        file.write_text(good.replace(mutant.old, mutant.new), encoding="utf-8")
        caught, _ = first_failure(folder, mutant.tests)
    finally:
        file.write_text(good, encoding="utf-8")
        folders.put(folder)
    return Outcome(mutant.name, caught, time.monotonic() - began)


def fingerprint(mutant: Mutant) -> str:
    """Return a digest of a bug, of the file it is planted in and of its tests: an outcome holds as long as all do."""
    files = sorted({mutant.file, *(test.partition("::")[0] for test in mutant.tests)})
    whole = [repr(mutant), *((ROOT / file).read_text(encoding="utf-8") for file in files)]
    return hashlib.sha256("\0".join(whole).encode()).hexdigest()[:16]


class Kept:
    """Outcomes of earlier calls, one line of JSON each in a file; without a file, none."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.known: dict[str, Outcome] = {key: Outcome(*rest) for key, *rest in map(json.loads, lines)}

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep one more."""
        self.known[key] = outcome
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, *outcome]) + "\n")


def check_sound(mutants: list[Mutant], folder: Path, kept: Kept) -> bool:
    """Return whether all tests pass without any bug, as they must; print what was said if they do not."""
    every = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    key = "sound " + hashlib.sha256("".join(sorted(map(fingerprint, mutants))).encode()).hexdigest()[:16]
    if key in kept.known:
        return True
    began = time.monotonic()
    failed, said = first_failure(folder, every, 6 * LIMIT)
    if failed is not None:
        print(f"{said[-3000:]}\nexpected tests that pass without any bug; got a failure of {failed}")
        return False
    kept.add(key, Outcome("no bug", None, time.monotonic() - began))
    print(f"{'without any bug, all tests pass':<48} {kept.known[key].seconds:6.1f} s", flush=True)
    return True


def main(argv: list[str] | None = None) -> int:
    """Try the mutants and print a line each; return 1 if some survived or a test fails without any bug."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose name, file or text contain this")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies of the project (default: 2)")
    parser.add_argument("--skip-sound", action="store_true", help="without the run of all tests without any bug")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="outcomes are kept here, and not tried again")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin none after so long")
    given = parser.parse_args(argv)
    end = time.monotonic() + given.seconds
    mutants = [m for m in read() if any(given.only in text for text in (m.name, m.file, m.old))]
    if not mutants:
        raise SystemExit(f"expected --only to match a mutant; got {given.only!r}")
    kept = Kept(given.resume)
    keys = {mutant.name: fingerprint(mutant) for mutant in mutants}
    with tempfile.TemporaryDirectory() as scratch:
        folders: Queue[Path] = Queue()
        for n in range(given.jobs):
            folders.put(Path(shutil.copytree(ROOT, Path(scratch, str(n)), ignore=LEFT_OUT, symlinks=True)))
        if not given.skip_sound and not check_sound(mutants, folders.queue[0], kept):
            return 1

        def attempt(mutant: Mutant) -> None:
            if keys[mutant.name] not in kept.known and time.monotonic() < end:
                outcome = try_one(mutant, folders)
                kept.add(keys[mutant.name], outcome)
                print(f"{outcome.name:<48} {outcome.seconds:6.1f} s  {outcome.caught_by or 'SURVIVED'}", flush=True)

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(attempt, mutants))
    return report([kept.known.get(key) for key in keys.values()])


def report(outcomes: list[Outcome | None]) -> int:
    """Print how many were caught, and how long that took; return 0 if all were, 1 if not."""
    tried = [outcome for outcome in outcomes if outcome is not None]
    survivors = [outcome.name for outcome in tried if outcome.caught_by is None]
    print(f"\n{len(tried) - len(survivors)} of {len(outcomes)} caught, {sum(o.seconds for o in tried):.0f} s of tests")
    if survivors:
        print(f"survived: {survivors}")
    if len(tried) < len(outcomes):
        print(f"not tried yet: {len(outcomes) - len(tried)}")
    return int(bool(survivors) or len(tried) < len(outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
