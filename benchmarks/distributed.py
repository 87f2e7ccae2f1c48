"""Are two processes faster than one? Each is bound to one core, and sweeps over its own samples.

The time of a sweep is that of `--sweeps` sweeps, in chunks as `cavi.run` makes them, after a run that compiles. One and
two processes take turns; medians of `--repeats`, with the range. Also shown: the largest difference of the bounds.

    python benchmarks/distributed.py
    python benchmarks/distributed.py --shape 2000 40000 --density 0.01
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np


def problem(shape: tuple[int, int], density: float, groups: int) -> tuple[Any, np.ndarray]:
    """Counts, dense or sparse, and labels; the same in every process."""
    import scipy.sparse

    rng = np.random.default_rng(0)
    labels = np.arange(shape[1]) % groups
    if density < 1:
        X = scipy.sparse.random_array(shape, density=density, random_state=rng, format="csc", dtype=np.float32)
        X.data[:] = 1 + rng.poisson(1.0, X.nnz)
        return X, labels
    return rng.poisson(2.0, shape).astype(np.float32), labels


def one_process(options: argparse.Namespace) -> None:
    """Sweep over the samples of this process; print seconds a sweep and the bound."""
    os.sched_setaffinity(0, {options.process})
    import jax

    from gsnmf.distributed import Peers, join, own_samples
    from gsnmf.inference import cavi, shard
    from gsnmf.inference.warning import quiet
    from gsnmf.model import as_data, default_priors

    if options.processes > 1:
        join(f"127.0.0.1:{options.port}", options.processes, options.process)
    X, labels = problem(tuple(options.shape), options.density, options.groups)
    with Peers(), quiet():
        own = own_samples(X.shape[1])
        data = shard(as_data(X[:, own], labels[own], group_names=list(range(options.groups))))
        del X
        priors = default_priors(data, per_group=options.rank // options.groups)
        times: list[float] = []
        for _ in range(options.repeats + 1):
            marks: list[float] = []
            fit = cavi.run(
                data, priors, key=jax.random.key(0), tol=None, max_steps=options.sweeps + 25,
                checkpoint=lambda _, marks=marks: marks.append(time.perf_counter()),
            )  # fmt: skip
            times.append((marks[-1] - marks[0]) / options.sweeps)
        if options.process == 0:
            print(json.dumps({"times": times[1:], "bound": float(fit.elbo[-1])}))


def run(options: argparse.Namespace, processes: int) -> dict[str, Any]:
    """Start processes and return what the first one prints."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = [sys.executable, __file__, *sys.argv[1:], "--processes", str(processes), "--port", str(port), "--process"]
    started = [subprocess.Popen([*words, str(n)], stdout=subprocess.PIPE, text=True) for n in range(processes)]
    said = [process.communicate()[0] for process in started]
    return dict(json.loads(said[0].splitlines()[-1]))


def main() -> None:
    """Print seconds a sweep of one and of two processes, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=2, default=[2000, 20000], help="features and samples")
    parser.add_argument("--density", type=float, default=1.0, help="share of entries above 0; below 1, X is sparse")
    parser.add_argument("--rank", type=int, default=30)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--sweeps", type=int, default=50, help="a multiple of 25")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="turns of one and two processes")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        one_process(options)
        return
    found: dict[int, list[float]] = {1: [], 2: []}
    bounds: dict[int, float] = {}
    for _ in range(options.rounds):
        for number in found:
            result = run(options, number)
            found[number] += result["times"]
            bounds[number] = result["bound"]
    for number, times in found.items():
        low, median, high = np.quantile(times, [0, 0.5, 1])
        print(f"processes: {number}; {1e3 * median:.1f} ms a sweep ({1e3 * low:.1f}–{1e3 * high:.1f})")
    print(f"ratio of medians: {np.median(found[1]) / np.median(found[2]):.2f}")
    print(f"bounds differ by {abs(bounds[2] / bounds[1] - 1):.1e} of themselves")


if __name__ == "__main__":
    main()
