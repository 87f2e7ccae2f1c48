"""Memory and compile time, which only a new process shows. Run by itself it prints one measurement as JSON."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from measure import Options, Row, at_most, progress

from gsnmf.inference import cavi, engine
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, label_driven

SHAPES = [(64, 200, 10), (100, 150, 20)]  # F, N, K
MEBI = 1 << 20


def ask(*arguments: object) -> dict[str, float]:
    """What this file, in a process of its own, has to say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
    command = [sys.executable, str(Path(__file__)), *map(str, arguments)]
    answer: dict[str, float] = json.loads(subprocess.run(command, env=kept, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def memory_rows(options: Options) -> Iterator[Row]:
    """Growth of the process in a fit, X itself included, in units of X."""
    F, N, K = (200, 300, 5) if options.tiny else (2000, 20000, 50)
    count = 1 if options.quick or options.tiny else 3
    answers = [ask("memory", F, N, K) for _ in progress(range(count), "memory")]
    extra = answers[0]["factors MiB"] / answers[0]["X MiB"]
    values = [answer["growth MiB"] / answer["X MiB"] for answer in answers]
    note = f"X in NumPy counts as 1; target: 5, and {extra:.2f} for the factors"
    size = f"large {F}×{N}, K={K}"
    yield Row("peak memory of a fit / X", size, "float32", values, at_most(5 + extra), "", note, answers[-1])


def compile_rows(options: Options) -> Iterator[Row]:
    """First calls less later ones, at two shapes in turn; and whether later calls compile."""
    count = 1 if options.tiny else 3 if options.quick else 5
    answers = [ask("compile") for _ in progress(range(count), "compile")]
    for name, (F, N, K) in zip(("first", "second"), SHAPES, strict=True):
        values = [answer[name] for answer in answers]
        size = f"{name} shape in a process, {F}×{N}, K={K}"
        yield Row(
            "compile: a first call less a later one", size, "float32", values, at_most(2.0), "s", detail=answers[-1]
        )
    values = [answer["later"] for answer in answers]
    yield Row("compilations at later calls with other values", "both shapes", "float32", values, (0.0, 0.0), "")


def fit(F: int, N: int, K: int, *, seed: int = 0, max_steps: int = 25) -> None:
    """A fit as a user calls it, on numbers made here."""
    rng = np.random.default_rng(seed)
    X = np.empty((F, N), np.float32)
    for rows in np.array_split(np.arange(F), max(1, F * N // MEBI)):  # the draws are 64 bits wide
        X[rows] = rng.poisson(5.0 + seed, (len(rows), N))
    rates = label_driven(rank=K, num_groups=5, large=256.0 + seed)
    data, priors = as_data(X, np.arange(N) % 5), Priors(Gamma(0.6 + seed, 20.0), GroupSparse(rates))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge in so few sweeps
        jax.block_until_ready(cavi.run(data, priors, key=jax.random.key(seed), max_steps=max_steps).posterior)


def peak() -> float:
    """The most memory this process has had, in MiB.

    From Linux's own file where there is one: the other number survives the start of a new program, and would begin
    at what the process that started this one had.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return float(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    unit = MEBI if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def measure_memory(F: int, N: int, K: int) -> dict[str, float]:
    """Before and after a fit of that size."""
    fit(20, 30, 3, max_steps=2)
    before = peak()
    fit(F, N, K, max_steps=5)
    growth, X, factors = peak() - before, 4 * F * N / MEBI, 2 * 4 * K * (F + N + 5) / MEBI
    return {"growth MiB": growth, "X MiB": X, "factors MiB": factors, "before MiB": before}


def measure_compile() -> dict[str, float]:
    """Seconds of a first call less a later one at each shape; compilations at later calls with other values."""
    result: dict[str, float] = {}
    later = 0
    for name, shape in zip(("first", "second"), SHAPES, strict=True):
        times, work = [], []
        for seed in range(4):
            began, worked = time.perf_counter(), time.process_time()
            fit(*shape, seed=seed)
            times.append(time.perf_counter() - began)
            work.append(time.process_time() - worked)
            later += engine.advance._cache_size() * (1 if seed else -3)  # three later calls against the first
        result[name] = times[0] - float(np.median(times[1:]))
        result[f"{name}, later call"] = float(np.median(times[1:]))
        result[f"{name}, CPU seconds"] = work[0] - float(np.median(work[1:]))  # steadier on a busy machine
    return {**result, "later": later}


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    measured = measure_memory(*map(int, numbers)) if kind == "memory" else measure_compile()
    print(json.dumps(measured))
