"""Streams against full batches: passes to 1 % of the converged bound, time, and memory in the number of samples.

The bound of a stream's factors is that of all samples, with V iterated (`cavi.stream_bound`). It is compared with the
median over seeds of the bounds that accelerated full-batch CAVI converges to from the same kind of start.

    python benchmarks/streaming.py --newsgroups newsgroups20.npz --seeds 5 --out streaming.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from fresh import peak

from gsnmf.inference import cavi
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Gamma, Priors, Relevance, as_data, default_priors

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
    """

    bounds: list[float]
    seconds: float
    cpu: float

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
    return Course((fit.elbo / data.num_samples).tolist(), *clock.read())


def streamed(data: Data, priors: Priors, seed: int, passes: int, **options: Any) -> Course:
    """A stream, stopped after each pass to evaluate it, which is not in its time."""
    fit, bounds, spent = None, [], np.zeros(2)
    for number in range(1, passes + 1):
        clock = Clock()
        fit = cavi.stream(data, priors, key=jax.random.key(seed), passes=number, start=fit, **options)
        spent += clock.read()
        bounds.append(cavi.stream_bound(fit, data, batch_size=EVALUATED) / data.num_samples)
    return Course(bounds, *map(float, spent))


def compare(name: str, data: Data, seeds: int, passes: int, sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Yield a row for full batches, and one for each size of batches."""
    priors = default_priors(data)
    whole = []
    for seed in range(seeds):
        whole.append(full_batch(data, priors, seed))
        report(f"{name}, full batches, seed {seed}: {whole[-1].bounds[-1]:.2f} after {len(whole[-1].bounds)} sweeps")
    best = float(np.median([course.bounds[-1] for course in whole]))
    level = best - NEAR * abs(best)
    yield row(name, "full batches, accelerated", "sweeps", whole, level)
    for size in sizes:
        courses = []
        for seed in range(seeds):
            courses.append(streamed(data, priors, seed, passes, batch_size=size))
            report(f"{name}, batches of {size}, seed {seed}: {np.round(courses[-1].bounds, 2).tolist()}")
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
        "seconds": median([course.seconds for course in courses]),
        "CPU seconds": median([course.cpu for course in courses]),
        "bounds": [course.bounds for course in courses] if unit == "passes" else None,
    }


def batches(F: int, N: int, size: int = 512, each: int = 10) -> Iterator[Any]:
    """Yield sparse batches of random counts, made when they are asked for."""
    rng = np.random.default_rng(0)
    for _ in range(N // size):
        places = rng.integers(F, size=(size, each)).ravel()
        values = 1 + rng.poisson(1.0, places.size).astype(np.float32)
        yield scipy.sparse.csc_array((values, places, np.arange(size + 1) * each), shape=(F, size))


def growth(F: int, N: int, K: int) -> dict[str, float]:
    """Return the growth of this process in a stream of N samples, in MiB, after a stream of a few batches."""
    priors = Priors(Gamma(0.6, 20.0), Relevance(Gamma(1.0, 1e3)))
    options = {"key": jax.random.key(0), "rank": K}
    cavi.stream(batches(F, 512 * 4), priors, num_samples=N, **options)
    before = peak()
    clock = Clock()
    cavi.stream(batches(F, N), priors, num_samples=N, **options)
    return {"samples": N, "growth MiB": peak() - before, "seconds": clock.read()[0]}


def memory(F: int, K: int, numbers: list[int]) -> list[dict[str, float]]:
    """Return the growth for every number of samples, each in a process of its own."""
    answers = []
    for N in numbers:
        command = [sys.executable, __file__, "--grow", str(F), str(N), str(K)]
        answers.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
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
    result.add_argument("--seeds", type=int, default=5)
    result.add_argument("--passes", type=int, default=4)
    result.add_argument("--sizes", type=int, nargs="+", default=[512], help="of batches")
    result.add_argument("--shape", type=int, nargs=2, default=[2000, 200_000], help="of the generated problem")
    result.add_argument("--samples", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="for memory")
    result.add_argument("--out", type=Path, metavar="FILE", help="also write JSON")
    result.add_argument("--grow", type=int, nargs=3, help=argparse.SUPPRESS)
    return result


def main() -> None:
    """Measure, and print a table."""
    arguments = parser().parse_args()
    if arguments.grow:
        print(json.dumps(growth(*arguments.grow)))
        return
    rows = []
    if arguments.newsgroups is not None:
        data = newsgroups(arguments.newsgroups)
        rows += compare("20 Newsgroups", data, arguments.seeds, arguments.passes, arguments.sizes)
    if arguments.shape[1]:
        F, N = arguments.shape
        rows += compare(f"generated {F}×{N}", generated(F, N), arguments.seeds, arguments.passes, arguments.sizes)
    grown = memory(1000, 30, arguments.samples)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"rows": rows, "memory": grown}, indent=1) + "\n")
    print("| problem | fit | bound a sample | to 1 % | in all | seconds | CPU seconds |\n|---|---|---|---|---|---|---|")
    for line in rows:
        steps = f"{line['to 1 %']:g} | {line['number']:g} {line['unit']}"
        spent = f"{line['seconds']:.0f} | {line['CPU seconds']:.0f}"
        print(f"| {line['problem']} | {line['fit']} | {line['bound a sample']:.2f} | {steps} | {spent} |")
    print("\n| samples | growth, MiB | seconds |\n|---|---|---|")
    for answer in grown:
        print(f"| {answer['samples']:,} | {answer['growth MiB']:.0f} | {answer['seconds']:.0f} |")


if __name__ == "__main__":
    main()
