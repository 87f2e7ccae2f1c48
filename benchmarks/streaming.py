"""Streams against full batches: passes to 1 % of the converged bound, time, and memory in the number of samples.

The bound of a stream's factors is that of all samples, with V iterated (`cavi.stream_bound`). It is compared with the
median over seeds of the bounds that accelerated full-batch CAVI converges to from the same kind of start.

    python benchmarks/streaming.py --newsgroups newsgroups20.npz --kept courses.jsonl --out streaming.json

Every fit is added to the file of --kept, and one that is there already is not repeated: `--seeds 3 --kept FILE` is a
short run, and a last run with all seeds prints the table. Passes over X are those of the kernel: a sweep reads X once,
a batch of a stream once for every local update and once more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import numpy as np
import scipy.sparse
from fresh import peak

from gsnmf.inference import cavi
from gsnmf.inference.stream import run as streaming
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Gamma, Priors, Relevance, as_data, default_priors
from gsnmf.streams import open_matrix

NEAR = 0.01  # of the converged bound
EVALUATED = 4096  # samples folded in at a time


class Clock:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Return both."""
        return time.perf_counter() - self.began[0], time.process_time() - self.began[1]


class Course(NamedTuple):
    """A fit, sweep by sweep or pass by pass.

    bounds: a sample.
    seconds, cpu: in all, compiling included.
    read: passes over X, by the kernel.
    """

    bounds: list[float]
    seconds: float
    cpu: float
    read: float

    def reaches(self, level: float) -> float:
        """Return the number of sweeps or passes to this bound."""
        there = np.flatnonzero(np.asarray(self.bounds) >= level)
        return float(there[0] + 1) if len(there) else float("inf")


def newsgroups(path: Path) -> Data:
    """Word counts of 20 newsgroups, a group each."""
    with np.load(path, allow_pickle=True) as file:  # its features are objects, which are not read
        parts = file["data"].astype(np.float32), file["indices"], file["indptr"]
        return as_data(scipy.sparse.csr_array(parts, shape=tuple(file["shape"])).T, file["labels"])


def generated(F: int, N: int, C: int = 10, per_group: int = 3, counts: float = 100.0) -> Data:
    """Sparse counts drawn from the model, V twenty times larger where component and group belong together."""
    rng = np.random.default_rng(0)
    T = rng.gamma(0.1, 1.0, (F, C * per_group))
    T *= counts / per_group / T.sum(axis=0)
    groups, own = rng.integers(C, size=N), np.repeat(np.arange(C), per_group)
    parts = []
    for some in np.array_split(groups, max(1, N // 2000)):
        V = rng.exponential(size=(len(own), len(some))) * np.where(own[:, None] == some[None, :], 1.0, 0.05)
        parts.append(scipy.sparse.csc_array(rng.poisson(T @ V).astype(np.float32)))
    return as_data(scipy.sparse.hstack(parts, format="csc"), groups)


def full_batch(data: Data, priors: Priors, seed: int) -> Course:
    """Accelerated CAVI to its tolerance."""
    clock = Clock()
    with quiet():
        fit = cavi.run(data, priors, key=jax.random.key(seed), max_steps=500)
    return Course((fit.elbo / data.num_samples).tolist(), *clock.read(), fit.num_steps + 1)


def streamed(data: Data, priors: Priors, seed: int, passes: int, **options: Any) -> Course:
    """A stream, stopped after each pass to evaluate it, which is not in its time."""
    fit, bounds, spent = None, [], np.zeros(2)
    step, updates = streaming.step, []

    def counted(batch: Any, *arguments: Any) -> Any:
        result = step(batch, *arguments)
        updates.append(((result[2].updates + 1), arguments[3].size))
        return result

    streaming.step = counted  # type: ignore[assignment]  # the same function, which also counts
    for number in range(1, passes + 1):
        clock = Clock()
        fit = cavi.stream(data, priors, key=jax.random.key(seed), passes=number, start=fit, **options)
        spent += clock.read()
        bounds.append(cavi.stream_bound(fit, data, batch_size=EVALUATED) / data.num_samples)
    streaming.step = step
    read = sum(float(n) * float(size) for n, size in updates) / data.num_samples
    return Course(bounds, *map(float, spent), read)


class Kept:
    """Fits that are made once: they are added to a file as they end, and read from it later.

    Args:
        path: the file; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.courses = {tuple(name): Course(*course) for name, course in map(json.loads, lines)}

    def make(self, name: tuple[Any, ...], fit: Callable[[], Course]) -> Course:
        """Return the fit of this name, made if it is not there."""
        if name not in self.courses:
            self.courses[name] = fit()
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([name, self.courses[name]]) + "\n")
        report(
            f"{', '.join(map(str, name))}: {self.courses[name].bounds[-1]:.2f}, {self.courses[name].read:.0f} passes"
        )
        return self.courses[name]


def compare(
    name: str, data: Data, seeds: list[int], passes: int, sizes: list[int], kept: Kept
) -> Iterator[dict[str, Any]]:
    """Yield a row for full batches, and one for each size of batches."""
    priors = default_priors(data)
    whole = [kept.make((name, "full", seed), partial(full_batch, data, priors, seed)) for seed in seeds]
    best = float(np.median([course.bounds[-1] for course in whole]))
    level = best - NEAR * abs(best)
    yield row(name, "full batches, accelerated", "sweeps", whole, level)
    for size in sizes:
        courses = [
            kept.make((name, size, seed), partial(streamed, data, priors, seed, passes, batch_size=size))
            for seed in seeds
        ]
        yield row(name, f"stream, batches of {size}", "passes", courses, level)


def row(name: str, how: str, unit: str, courses: list[Course], level: float) -> dict[str, Any]:
    """Return the medians over seeds."""

    def median(values: list[float]) -> float:
        return float(np.median(values))

    return {
        "problem": name,
        "fit": how,
        "bound a sample": median([course.bounds[-1] for course in courses]),
        "unit": unit,
        "number": median([len(course.bounds) for course in courses]),
        "to 1 %": median([course.reaches(level) for course in courses]),
        "to 1 %, by seed": [course.reaches(level) for course in courses],
        "passes over X": median([course.read for course in courses]),
        "seconds": median([course.seconds for course in courses]),
        "CPU seconds": median([course.cpu for course in courses]),
        "bounds": [course.bounds for course in courses] if unit == "passes" else None,
    }


def write(path: Path, F: int, N: int, each: int = 10) -> None:
    """Write random counts, samples × features in compressed rows as AnnData does, some samples at a time."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        X = file.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "shape": (N, F)})
        X["indptr"] = np.arange(N + 1, dtype=np.int64) * each
        parts = {"indices": np.int32, "data": np.float32}
        stored = {name: X.create_dataset(name, (N * each,), kind, chunks=(10_000,)) for name, kind in parts.items()}
        for begin in range(0, N * each, 100_000):
            some = slice(begin, min(begin + 100_000, N * each))
            stored["indices"][some] = np.sort(
                rng.integers(F, size=(some.stop - begin) // each * each).reshape(-1, each)
            ).ravel()
            stored["data"][some] = 1 + rng.poisson(1.0, some.stop - begin)


def growth(F: int, N: int, K: int, folder: str) -> dict[str, float]:
    """Return the peak of this process in a stream of a file of N samples, opened, not loaded, in MiB."""
    priors = Priors(Gamma(0.6, 20.0), Relevance(Gamma(1.0, 1e3)))
    clock = Clock()
    X = open_matrix(Path(folder, f"{N}.h5ad"))
    cavi.stream(X, priors, key=jax.random.key(0), rank=K, batch_size=512)
    return {"samples": N, "peak MiB": peak(), "seconds": clock.read()[0]}


def memory(F: int, K: int, numbers: list[int]) -> list[dict[str, float]]:
    """Return the peak for every number of samples, each in a process of its own."""
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for N in numbers:
            path = Path(folder, f"{N}.h5ad")
            write(path, F, N)
            command = [sys.executable, __file__, "--grow", *map(str, (F, N, K)), folder]
            answers.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
            answers[-1]["file MiB"] = path.stat().st_size / (1 << 20)
            report(f"memory: {answers[-1]}")
    return answers


def report(line: str) -> None:
    """Write a line of progress."""
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument(
        "--newsgroups", type=Path, metavar="FILE", help="npz of a CSR matrix, samples × words, and labels"
    )
    result.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    result.add_argument("--kept", type=Path, metavar="FILE", help="fits that need not be repeated; new ones are added")
    result.add_argument("--passes", type=int, default=4)
    result.add_argument("--sizes", type=int, nargs="+", default=[512], help="of batches")
    result.add_argument("--shape", type=int, nargs=2, default=[2000, 200_000], help="of the generated problem")
    result.add_argument("--samples", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="for memory")
    result.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    result.add_argument("--grow", nargs=4, help=argparse.SUPPRESS)
    return result


def main() -> None:
    """Measure, and print a table."""
    arguments = parser().parse_args()
    if arguments.grow:
        print(json.dumps(growth(*map(int, arguments.grow[:3]), arguments.grow[3])))
        return
    rows, how = [], (arguments.seeds, arguments.passes, arguments.sizes, Kept(arguments.kept))
    if arguments.newsgroups is not None:
        rows += compare("20 Newsgroups", newsgroups(arguments.newsgroups), *how)
    if arguments.shape[1]:
        F, N = arguments.shape
        rows += compare(f"generated {F}×{N}", generated(F, N), *how)
    grown = memory(1000, 30, arguments.samples)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"rows": rows, "memory": grown}, indent=1) + "\n")
    print("| problem | fit | bound a sample | to 1 % | in all | passes over X | seconds | CPU seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for line in rows:
        steps = f"{line['to 1 %']:g} | {line['number']:g} {line['unit']}"
        spent = f"{line['passes over X']:.0f} | {line['seconds']:.0f} | {line['CPU seconds']:.0f}"
        print(f"| {line['problem']} | {line['fit']} | {line['bound a sample']:.2f} | {steps} | {spent} |")
    print("\n| samples | file, MiB | peak of the process, MiB | seconds |\n|---|---|---|---|")
    for answer in grown:
        numbers = f"{answer['file MiB']:.0f} | {answer['peak MiB']:.0f} | {answer['seconds']:.0f}"
        print(f"| {answer['samples']:,} | {numbers} |")


if __name__ == "__main__":
    main()
