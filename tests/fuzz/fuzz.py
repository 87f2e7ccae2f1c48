"""Fuzzing of the file readers and the command line for a given time.

python tests/fuzz/fuzz.py --seconds 3600                  # make fuzz SECONDS=3600
python tests/fuzz/fuzz.py --seconds 600 --only mtx        # seed files whose name contains this; "flags" for options
python tests/fuzz/fuzz.py --again fuzz-crashes/12-345     # try an input that was kept

Every input is a valid file (fuzz_seeds.py) that is damaged (fuzz_damage.py), or a command line with odd options. A
reader may return, or raise a ValueError that says "expected …; got …"; a command ends with a code, 2 for bad input.
Anything else is kept in a folder, with the traceback: other exceptions, RuntimeWarnings, more than 20 s of CPU time (60
for a command) or 1 GB, and the end of the whole process, since inputs are tried in a process of their own. Input number
n of a seed is always the same. Crashes and endless loops inside the libraries of HDF5 and Parquet, which Python cannot
prevent, are counted, not kept. Files in HDF5 may take 4 GB, as its library asks for the length that a string claims
before it finds the file's end; so may .npz files, as a sparse matrix may state any number of empty rows and columns.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

LIMIT, ROOM = 20, 1 << 30  # seconds of CPU time and bytes for one input
COMPILING = 60  # seconds for a command, which compiles: a report of a sparse fit with k̂ takes 22
LIBRARIES = re.compile(r'most recent call first\):\n  File "[^"]*(h5py|pyarrow)')  # whose own code is at work
COMMANDS = ("fit", "fit", "choose", "crosscheck", "report")
LEFT_OUT = {"--distributed", "--processes", "--process", "--coordinator", "-h", "--help", "--version"}
VALUES = [
    "1",
    "2",
    "3",
    "0.5",
    "1e-3",
    "yes",
    "no",
    "all",
    "group",
    "paper",
    "2x4",
    "2:4",
    "text",
    "X",
    "obs:kind",
    "out",
]


class TooLong(BaseException):
    """An input that takes longer than it may; nothing catches it."""


def read_any(path: Path, rng: random.Random) -> None:
    """Read a file by everything that reads files of its name."""
    from gsnmf.checkpoints import Checkpoint
    from gsnmf.memory import plan_file
    from gsnmf.reading import load_data, read_labels
    from gsnmf.saving import load_fit
    from gsnmf.sets import read_sets
    from gsnmf.streams import LAZY, open_matrix

    tries: list[Callable[[], Any]]
    if path.name.startswith("fit"):
        tries = [lambda: load_fit(path), lambda: Checkpoint(path, "mark").load()]
    elif path.name.startswith("labels"):
        tries = [lambda: read_labels(path)]
    elif path.name.startswith("sets"):
        tries = [lambda: read_sets(path)]
    elif path.name.startswith("text_"):
        tries = [lambda: load_data(path, "obs:label", text="text", min_df=1)]
    else:
        options = rng.choice(({}, {}, {"header": True}, {"index": False}, {"header": False, "index": True}))
        options = options if path.suffix in (".csv", ".tsv") else {}
        labels = "obs:kind" if path.suffix == ".h5ad" and rng.random() < 0.5 else None
        tries = [lambda: plan_file(path, 2), lambda: load_data(path, labels, **options)]
        if path.suffix in LAZY:
            tries += [lambda: open_matrix(path)[:, [0, 1]]]
    for attempt in tries:
        expect_a_sentence(attempt)


def expect_a_sentence(attempt: Callable[[], Any]) -> None:
    """Let it return, or raise a ValueError of our own."""
    try:
        attempt()
    except ValueError as error:
        if not re.match(r"expected .*(; got|got )", str(error), re.DOTALL):
            raise


def command_line(rng: random.Random, files: list[str]) -> list[str]:
    """Return a random command line: some options, most values of which make sense."""
    from fuzz_damage import WORDS

    from gsnmf.cli import _parser

    command = rng.choice(COMMANDS)
    [commands] = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    actions = [a for a in commands.choices[command]._actions if not LEFT_OUT & set(a.option_strings)]

    def value(action: argparse.Action) -> str:
        if action.choices and rng.random() < 0.8:
            return str(rng.choice(list(action.choices)))
        return rng.choice(rng.choice((VALUES, VALUES, WORDS, files)))

    words = [command, rng.choice((*files, *files, rng.choice(WORDS)))]
    if command == "fit" and rng.random() < 0.9:
        words += ["--out", "out"]
    if rng.random() < 0.5:
        words += ["--ranks", "1:2"] if command == "choose" else ["--rank", "2"] if command != "report" else []
    for action in rng.sample(actions, rng.randrange(min(6, len(actions)))):
        if action.option_strings:
            words += [action.option_strings[0]] + ([] if action.nargs == 0 else [value(action)])
    return words


def run_command(words: list[str]) -> None:
    """Run a command up to the fit itself, which is not run; raise unless it ends with a code."""
    from gsnmf import cli
    from gsnmf.comparison import ranks
    from gsnmf.crosscheck import run as crosscheck
    from gsnmf.inference import cavi

    def instead(*_: Any, **__: Any) -> None:
        raise ValueError("expected no fit; got one")

    places = {cavi: ("run", "stream", "run_many"), ranks: ("choose_rank",), crosscheck: ("run_crosscheck",)}
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        for module, names in places.items():
            stack.enter_context(mock.patch.multiple(module, **dict.fromkeys(names, instead)))
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(contextlib.redirect_stderr(said))
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    if code not in (0, 1, 2) or (code == 2 and "gsnmf: error: " not in said.getvalue()):
        raise RuntimeError(f"exit code {code}: {said.getvalue()}")


def prepare(rng: random.Random, seed: Path, now: Path, others: list[bytes]) -> None:
    """Copy a seed into an empty folder, and damage it; a saved fit gets a right checksum, so that it is read."""
    from fuzz_damage import damage

    from gsnmf.saving import _checksum

    copy = now / seed.name
    if seed.is_dir():
        shutil.copytree(seed, copy)
        damage(rng, rng.choice(sorted(copy.iterdir())), others)
        return
    shutil.copy(seed, copy)
    if not seed.name.startswith("fit"):
        damage(rng, copy, others)
        return
    text = copy.with_suffix(".json")
    shutil.copy(seed.with_suffix(".json"), text)
    damage(rng, rng.choice((copy, text, text)), others)
    with contextlib.suppress(ValueError, RecursionError):
        description = json.loads(text.read_bytes())
        if isinstance(description, dict) and rng.random() < 0.9:
            description["sha256"] = _checksum(copy.read_bytes(), description)
            text.write_text(json.dumps(description))


def try_one(number: int, seeds: list[Path], others: list[bytes], options: argparse.Namespace, now: Path) -> str | None:
    """Try one input; return a traceback if it did what it may not do."""
    rng = random.Random(f"{options.seed}/{number}")
    seed = rng.choice(seeds)
    shutil.rmtree(now, ignore_errors=True)
    now.mkdir(parents=True)
    if seed.name == "flags":
        shutil.copytree(seed.parent, now, dirs_exist_ok=True)
        words = command_line(rng, sorted(path.name for path in seed.parent.iterdir()))
        (now / "words.json").write_text(json.dumps(words))
        return watched(lambda: run_command(words), now, seconds=COMPILING)
    prepare(rng, seed, now, others)
    return watched(lambda: read_any(now / seed.name, rng), now, room_for(seed))


def room_for(file: Path) -> int:
    """Return how much memory reading a damaged file may take, in bytes."""
    return 4 * ROOM if file.suffix.startswith((".h5", ".npz")) else ROOM


def watched(attempt: Callable[[], Any], now: Path, room: int = ROOM, seconds: int = LIMIT) -> str | None:
    """Run with limits of time and memory; return a traceback, or None if all was well."""

    def ring(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s")

    signal.signal(signal.SIGPROF, ring)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of CPU time: a machine may be suspended
    try:
        with contextlib.chdir(now), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            attempt()
    except (Exception, TooLong):
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return f"{more / 1e9:.1f} GB more memory" if more > room else None


def keep(now: Path, folder: Path, name: str, said: str) -> None:
    """Keep an input, with what it did."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(now, folder / name, dirs_exist_ok=True, symlinks=True)
    (folder / name / "what.txt").write_text(said)


def work(options: argparse.Namespace) -> int:
    """Try inputs until the time is over; progress is in a file, for the process that watches this one."""
    import jax
    from fuzz_seeds import write_seeds

    jax.config.update("jax_platforms", "cpu")
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)  # ends loops in C, into which no Python signal reaches
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    scratch = Path(options.worker)
    valid = scratch / "seeds"
    shutil.rmtree(valid, ignore_errors=True)
    valid.mkdir(parents=True)
    seeds = [path for path in [*write_seeds(valid), valid / "flags"] if options.only in path.name]
    others = [path.read_bytes() for path in sorted(valid.iterdir()) if path.is_file()]
    for seed in seeds:
        if seed.name != "flags":
            read_any(seed, random.Random(0))  # undamaged ones are read
    if options.only in "flags":
        seeds += [valid / "flags"] * (len(seeds) // 5)
    soft = resource.getrlimit(resource.RLIMIT_AS)[1]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * ROOM, soft))
    end, number = time.monotonic() + options.seconds, options.begin
    while time.monotonic() < end:
        (scratch / "number").write_text(str(number))
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 2 * COMPILING, most))
        said = try_one(number, seeds, others, options, scratch / "now")
        if said is not None:
            keep(scratch / "now", options.crashes, f"{options.seed}-{number}", said)
        number += 1
    (scratch / "number").write_text(str(number))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Fuzz for a time; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--begin", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--only", default="", metavar="TEXT", help="seed files whose name contains this; flags")
    parser.add_argument("--crashes", type=Path, default=Path("fuzz-crashes"), metavar="DIR")
    parser.add_argument("--again", type=Path, metavar="DIR", help="try an input that was kept")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.crashes = options.crashes.resolve()
    if options.worker:
        return work(options)
    if options.again:
        return again(options.again)
    began, number, foreign = time.monotonic(), options.begin, 0
    with tempfile.TemporaryDirectory(prefix="gsnmf-fuzz-") as scratch:
        while (left := options.seconds - (time.monotonic() - began)) > 0:
            words = ["--worker", scratch, "--seconds", f"{left:.1f}", "--seed", str(options.seed)]
            words += ["--only", options.only, "--crashes", str(options.crashes), "--begin", str(number)]
            done = subprocess.run([sys.executable, __file__, *words], stderr=subprocess.PIPE, text=True, check=False)
            number = int(Path(scratch, "number").read_text()) if Path(scratch, "number").exists() else number
            if done.returncode == 0:
                continue
            if not Path(scratch, "now").exists():
                raise SystemExit(done.stderr)
            if LIBRARIES.search(done.stderr):
                foreign += 1
            else:
                name, said = f"{options.seed}-{number}", f"ended with {done.returncode}\n{done.stderr}"
                keep(Path(scratch, "now"), options.crashes, name, said)
            number += 1
    found = sorted(options.crashes.glob(f"{options.seed}-*")) if options.crashes.exists() else []
    print(f"{number - options.begin:,} inputs in {time.monotonic() - began:.0f} s, {len(found)} kept", end="; ")
    print(f"{foreign} ended the process inside HDF5 or Parquet")
    for path in found:
        print(f"  {path}: {(path / 'what.txt').read_text().strip().splitlines()[-1]}")
    return int(bool(found))


def again(folder: Path) -> int:
    """Try an input that was kept, and print what it does."""
    words = folder.resolve() / "words.json"
    names = [path for path in folder.resolve().iterdir() if path.name not in ("what.txt", "words.json", "out")]
    path = next((one for one in names if one.suffix != ".json" or one.name.startswith("sets")), None)
    if words.exists():
        said = watched(lambda: run_command(json.loads(words.read_text())), folder.resolve())
    else:
        said = watched(lambda: [read_any(path, random.Random(n)) for n in range(8)], folder.resolve(), room_for(path))
    print(said or "all is well")
    return int(said is not None)


if __name__ == "__main__":
    raise SystemExit(main())
