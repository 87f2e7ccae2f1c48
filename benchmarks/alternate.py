"""Two checkouts of this repository, alternated in one run: time of sweeps and of the first call.

    python benchmarks/alternate.py OTHER              # this checkout divided by the other one
    python benchmarks/alternate.py OTHER --repeats 15 --cases digits --precisions float32

Each checkout runs in a process of its own, which waits while the other one is timed. Ratios are medians over repeats,
with the 10 and 90 % quantiles; above 1 this checkout is slower. First calls, which compile, are timed in fresh
processes without a compilation cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

CASES = {"digits": (64, 1797, 30, 10), "like Yale": (4484, 165, 45, 15), "like ORL": (2576, 360, 160, 40)}
HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--repeats", type=int, default=11, help="timings of each (default: 11)")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long one timing takes (default: 1)")
    parser.add_argument("--first", type=int, default=3, help="first calls of each; 0 for none (default: 3)")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--precisions", nargs="+", default=["float32", "float64"], choices=["float32", "float64"])
    given = parser.parse_args()
    if not (given.other / "gsnmf" / "__init__.py").is_file():
        parser.error(f"expected a checkout of this repository; got {given.other}")
    rows = [
        measure(given, case, precision, accelerate)
        for case in given.cases
        for precision in given.precisions
        for accelerate in (False, True)
    ]
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3f"))


def measure(given: argparse.Namespace, case: str, precision: str, accelerate: bool) -> dict[str, Any]:
    """Time both checkouts in turn; return a row of the table."""
    trees = {"this": HERE, "other": given.other.resolve()}
    job = {"case": case, "precision": precision, "accelerate": accelerate, "seconds": given.seconds}
    first: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(given.first):
        for name, tree in trees.items():
            with Worker(tree, job) as worker:
                first[name].append(worker.first)
    with Worker(trees["this"], job) as this, Worker(trees["other"], job) as other:
        pairs = []
        for n in range(given.repeats):
            order = (this, other) if n % 2 else (other, this)
            found = {id(worker): worker.time() for worker in order}
            pairs.append((found[id(this)], found[id(other)]))
    ratios = np.divide(*np.array(pairs).T)
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    row = {"problem": case, "precision": precision, "sweeps": "accelerated" if accelerate else "plain"}
    row |= {"ms a sweep": 1e3 * np.median(np.array(pairs)[:, 0]), "ratio": middle, "10 %": low, "90 %": high}
    if given.first:
        row |= {"first call, s": np.median(first["this"]), "ratio of first calls": ratio_of(first)}
    return row


def ratio_of(first: dict[str, list[float]]) -> float:
    """Return the ratio of the fastest first calls: what else runs on the machine only adds to them."""
    return min(first["this"]) / min(first["other"])


class Worker:
    """A process that fits one problem with the code of one checkout, whenever it is told to."""

    def __init__(self, tree: Path, job: dict[str, Any]) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "PYTHONPATH"))}
        env |= {"PYTHONPATH": str(tree), "JAX_ENABLE_X64": str(int(job["precision"] == "float64"))}
        code = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(job)]
        self.process = subprocess.Popen(
            code, env=env, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self._read()

    def _read(self) -> float:
        line = self.process.stdout.readline()  # type: ignore[union-attr]  # a pipe
        if not line:
            raise ValueError(f"expected a number of seconds from {self.process.args}; got nothing: see above")
        return float(line)

    def time(self) -> float:
        """Return the seconds that a sweep takes now."""
        self.process.stdin.write("go\n")  # type: ignore[union-attr]  # a pipe
        self.process.stdin.flush()  # type: ignore[union-attr]  # a pipe
        return self._read()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]  # a pipe
        self.process.wait()


def work(job: dict[str, Any]) -> None:
    """Print the seconds of the first call, then those of a sweep for every line that comes in."""
    import jax

    from gsnmf.inference import cavi
    from gsnmf.model import Gamma, GroupSparse, Priors, as_data, label_driven

    F, N, K, C = CASES[job["case"]]
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, 10.0, (F, 5)) @ rng.gamma(0.5, 1.0, (5, N))).astype(float)
    data = as_data(X, np.arange(N) % C)
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(label_driven(rank=K, num_groups=C, small=0.1, large=1.0)))
    start = cavi.start(T=rng.exponential(10.0, (F, K)), V=rng.exponential(1.0, (K, N)), lam=np.ones((K, C)))

    def run(sweeps: int) -> float:
        begin = time.perf_counter()
        fit = cavi.run(data, priors, start=start, max_steps=sweeps, tol=None, accelerate=job["accelerate"])
        jax.block_until_ready(fit.posterior)
        return time.perf_counter() - begin

    import warnings

    warnings.simplefilter("ignore")
    print(run(25), flush=True)
    base = min(run(25) for _ in range(3))
    sweeps = 25 * max(2, round(job["seconds"] / base))
    for _ in sys.stdin:
        print((run(sweeps) - run(25)) / (sweeps - 25), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.path.pop(0)  # this folder: the checkout comes from PYTHONPATH
        work(json.loads(sys.argv[2]))
    else:
        main()
