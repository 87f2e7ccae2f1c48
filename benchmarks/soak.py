"""Fits of varying shapes for a given time: the memory of the process must not grow once every kind of fit has run.

python benchmarks/soak.py --seconds 1800     # make soak SECONDS=1800

Every round fits each of KINDS once, in random order, to new counts. The first third of the rounds compiles and fills
caches. For the rest, memory is regressed on minutes and on the number of programs that JAX has compiled and keeps:
sparse counts need others when their number of nonzeros leaves the range of the last. With --new-shapes, every round
has other shapes. `jax.clear_caches()` frees programs.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse

from gsnmf import GroupSparseNMF
from gsnmf.inference import cavi, mcmc
from gsnmf.inference.fold_in import fold_in
from gsnmf.inference.posterior import Fit
from gsnmf.model import Data, as_data, default_priors
from gsnmf.saving import load_fit, save_fit

COMPILED = "/jax/core/compile/backend_compile_duration"
ALLOWED = 2.0  # MiB a minute beyond which memory is said to grow
SHAPES = ((20, 30), (64, 100), (200, 60), (50, 400))


def counts(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return counts of two groups that differ in half of the features."""
    features, samples = shape
    mean = 1.0 + 6 * (np.arange(features)[:, None] % 2 == np.arange(samples) % 2)
    return np.asarray(rng.poisson(mean * (rng.random((features, samples)) < 0.5)))


def fit(X: Any, labels: Any, seed: int) -> tuple[Data, Fit]:
    """Fit three components for 20 sweeps."""
    data = as_data(X, labels)
    priors = default_priors(data, rank=3)
    return data, cavi.run(data, priors, key=jax.random.key(seed), rank=3, max_steps=20, tol=None)


def grouped(X: np.ndarray, labels: np.ndarray, seed: int) -> None:
    """Fit dense counts, and project other samples."""
    fold_in(fit(X, labels, seed)[1], X[:, :10], max_steps=10)


def sparse(X: np.ndarray, labels: np.ndarray, seed: int) -> None:
    """Fit sparse counts, a tenth of them without labels."""
    fit(scipy.sparse.csr_array(X), [None if n % 10 == 0 else label for n, label in enumerate(labels)], seed)


def saved(X: np.ndarray, _: np.ndarray, seed: int) -> None:
    """Fit without groups in double precision, save and load."""
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder:
        data, found = fit(X, None, seed)
        save_fit(Path(folder, "fit"), found, None, data)
        load_fit(Path(folder, "fit"))


def drawn(X: np.ndarray, labels: np.ndarray, seed: int) -> None:
    """Draw ten times by Gibbs."""
    data = as_data(X, labels)
    priors = default_priors(data, rank=3)
    mcmc.run_gibbs(data, priors, key=jax.random.key(seed), rank=3, num_warmup=5, num_samples=5, progress_bar=False)


def predicted(X: np.ndarray, labels: np.ndarray, seed: int) -> None:
    """Fit the estimator, with its default choice of heads."""
    model = GroupSparseNMF(per_class=1, n_restarts=1, max_iter=20, random_state=seed).fit(X.T, labels)
    model.predict(X.T)


KINDS: tuple[Callable[[np.ndarray, np.ndarray, int], None], ...] = (grouped, sparse, saved, drawn, predicted)


def resident() -> float:
    """Return the memory of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def one_round(rng: np.random.Generator, seed: int, *, new_shapes: bool) -> int:
    """Run every kind of fit for every shape; return their number."""
    shapes = [tuple(int(n) for n in rng.integers(20, 200, 2)) for _ in SHAPES] if new_shapes else SHAPES
    todo = [(kind, shape) for kind in KINDS for shape in shapes]
    for n in rng.permutation(len(todo)):
        kind, shape = todo[n]
        kind(counts(rng, shape), np.arange(shape[1]) % 2, seed)
    gc.collect()
    return len(todo)


def main(argv: list[str] | None = None) -> int:
    """Fit for a time; return 1 if memory grows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--new-shapes", action="store_true", help="other shapes in every round")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    rng, began, fits, programs = np.random.default_rng(options.seed), time.monotonic(), 0, Counter[str]()
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: programs.update([event]))
    course: list[tuple[float, float, float]] = []  # minutes, programs and MiB after every round
    while time.monotonic() < began + options.seconds or len(course) < 9:
        fits += one_round(rng, len(course), new_shapes=options.new_shapes)
        course.append(((time.monotonic() - began) / 60, programs[COMPILED], resident()))
        minutes, number, memory = course[-1]
        print(f"{minutes:6.1f} min {fits:7d} fits {number:6d} programs {memory:7.0f} MiB", file=sys.stderr, flush=True)
    minutes, number, memory = np.array(course[len(course) // 3 :]).T
    design = np.column_stack([np.ones_like(minutes), minutes, number])
    _, by_minute, by_program = np.linalg.lstsq(design, memory)[0]
    print(f"{fits} fits in {minutes[-1]:.0f} min; {memory[0]:.0f} MiB after a third, {memory[-1]:.0f} at the end")
    print(f"{by_minute:.2f} MiB a minute, {by_program:.2f} a program ({number[-1] - number[0]:.0f} since then)")
    return int(by_minute > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
