"""Sparse X: a sweep with its bound against scikit-learn's iteration, and a whole fit of counts of words.

python benchmarks/run.py --only sparse
python benchmarks/sparse.py --counts newsgroups20.npz     # time and peak memory of fits, on one CPU and on two

The file has counts in compressed rows, samples × features: data, indices, indptr, shape, and labels. Every fit runs in
a process of its own, so that its peak memory is its own. scikit-learn's NMF (multiplicative updates, Kullback–Leibler)
stops when its divergence is as small as that of the posterior means of the fit on two CPUs, or after ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import scipy.sparse
from kernel import cpu, with_threads
from measure import Options, Row, at_most, clock, milliseconds, rounds
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gsnmf.inference import cavi, engine, native
from gsnmf.inference.observations import observe
from gsnmf.inference.results import divergence
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, label_driven

SLOPE = (0.85, 1.15)
LIMIT = 600  # seconds for scikit-learn


def generate(samples: int, features: int, density: float = 0.01) -> scipy.sparse.csr_array:
    """Random counts, as many in each sample."""
    rng = np.random.default_rng(0)
    each = max(1, round(features * density))
    places = rng.integers(features, size=(samples, each), dtype=np.int32).ravel()
    values = (1 + rng.poisson(1.0, places.size)).astype(np.float32)
    X = scipy.sparse.csr_array((values, places, np.arange(samples + 1) * each), (samples, features))
    X.sum_duplicates()
    return X


def chunk(X: scipy.sparse.csr_array, K: int) -> Callable[[], object]:
    """A chunk of plain sweeps with their bounds, as `cavi.run` makes them, from the middle of a run."""
    data, priors = as_data(X.T), Priors(Gamma(0.6, 20.0), Gamma(1.0, 0.1))
    problem = Problem(data, priors, K)
    state, infinite, never = engine._begin(cavi.init(data, priors, key=jax.random.key(0), rank=K), None, False)
    seen = observe(problem.data)

    def some(state: cavi.State) -> cavi.State:
        return engine.advance(seen, problem.priors, state, 0, engine.CHUNK, infinite, never, False)[0]

    warm = some(state)
    return lambda: some(warm)


def by_jax(X: scipy.sparse.csr_array, K: int) -> Callable[[], object]:
    """The same without the compiled kernel."""
    with mock.patch.object(native, "is_available", return_value=False):
        return chunk(X, K)


def iteration(X: scipy.sparse.csr_array, K: int) -> Callable[[], float]:
    """CPU seconds of an iteration of scikit-learn's KL-NMF on one thread."""

    def fit(steps: int) -> float:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            began = time.process_time()
            NMF(K, init="random", solver="mu", beta_loss=1, tol=0, max_iter=steps).fit(X)
            return time.process_time() - began

    return lambda: (fit(3) - fit(1)) / 2


def rows(options: Options) -> Iterator[Row]:
    """A sweep by the kernel and by JAX alone; with the kernel also threads, growth, a million samples, and memory."""
    size, count = ((60, 40, 4), 2) if options.tiny else ((20_000, 5000, 50), 3 if options.quick else 7)
    yield from against_sklearn(size, count)
    if native.is_available():
        yield from threads(size, count)
        if not options.tiny:  # its times do not depend on the nonzeros
            yield from growth(size, count)
        large = (300, 40, 10) if options.tiny else (100_000, 1000, 30) if options.quick else (1_000_000, 1000, 30)
        yield from sizes(large, count)


def named(size: tuple[int, int, int]) -> str:
    """The size for the table."""
    return f"{size[0]}×{size[1]}, 1 %, K={size[2]}"


def against_sklearn(size: tuple[int, int, int], count: int) -> Iterator[Row]:
    """A sweep with its bound on one thread, in CPU time."""
    X, K = generate(*size[:2]), size[2]
    sweeps = {"JAX alone": cpu(by_jax(X, K), engine.CHUNK)}
    if native.is_available():
        sweeps["kernel"] = with_threads(cpu(chunk(X, K), engine.CHUNK), 1)
    times = rounds(sweeps, {"scikit-learn": iteration(X, K)}, count, f"sparse, {named(size)}")
    for name, limit in (("kernel", 1 / 20), ("JAX alone", 1 / 4)):
        if name in times:
            ratios = (times[name] / times["scikit-learn"]).tolist()
            what = f"sparse sweep, {name} / scikit-learn's iteration"
            yield Row(what, named(size), "float32", ratios, at_most(limit), detail=milliseconds(times))


def threads(size: tuple[int, int, int], count: int) -> Iterator[Row]:
    """A sweep in a process on two CPUs against one on a single CPU, where XLA has one thread as well."""
    words = ["--sweep", *map(str, size)]
    both = [(apart(1, *words)["ms"], apart(2, *words)["ms"]) for _ in range(count)]
    detail = {"one ms": float(np.median(both, 0)[0]), "two ms": float(np.median(both, 0)[1])}
    ratios = [two / one for one, two in both]
    yield Row("sparse sweep, two threads / one", named(size), "float32", ratios, at_most(1 / 1.6), detail=detail)


def sweep_alone(N: int, F: int, K: int) -> dict[str, float]:
    """Milliseconds of a sweep, with the threads of this process: the least of ten chunks."""
    loop = clock(chunk(generate(N, F), K), engine.CHUNK)
    return {"ms": 1e3 * min(loop() for _ in range(10))}


def growth(size: tuple[int, int, int], count: int) -> Iterator[Row]:
    """Growth of a sweep with nonzeros, with samples (each with as many nonzeros) and with components, one thread."""
    N, F, K = size
    shares, times = (0.01, 0.02, 0.04, 0.08), (1, 2, 4)
    X = generate(N, F)
    yield slope("nonzeros", named(size), {Y.nnz: (Y, K) for Y in (generate(N, F, share) for share in shares)}, count)
    yield slope("samples", named(size), {N * n: (generate(N * n, F), K) for n in times}, count, None)
    yield slope("components", named(size), {K * n: (X, K * n) for n in times}, count, None)


def slope(what: str, size: str, problems: dict[int, tuple[Any, int]], count: int, target: Any = SLOPE) -> Row:
    """The log-log slope of a sweep's time in what the problems are named by."""
    clocks = {str(n): with_threads(cpu(chunk(*each), engine.CHUNK), 1) for n, each in problems.items()}
    times = rounds(clocks, {}, count, f"growth in {what}")
    sizes = np.log(list(problems))
    slopes = [np.polyfit(sizes, np.log(each), 1)[0] for each in np.stack(list(times.values())).T]
    return Row(f"sparse sweep, slope in {what}", size, "float32", slopes, target, detail=milliseconds(times))


def sizes(size: tuple[int, int, int], count: int) -> Iterator[Row]:
    """Many samples: a sweep on one thread, whole fits on two CPUs, and their memory beyond 8 bytes a nonzero."""
    N, F, K = size
    sweep = with_threads(cpu(chunk(generate(N, F), K), engine.CHUNK), 1)
    times = rounds({"sweep": sweep}, {}, min(count, 3), f"sparse, {named(size)}")["sweep"]
    yield Row("sparse sweep, one thread", named(size), "float32", times.tolist(), at_most(0.6), unit="s")
    for groups, what in ((1, "without groups"), (10, "ten groups")):
        fit = apart(2, "--fit", *map(str, size), str(groups))
        yield Row(f"sparse fit, {what}", named(size), "float32", [fit["seconds"]], unit="s", detail=fit)
        arrays = (fit["MB"] - fit["MB of nonzeros"]) / fit["MB of T and V"]
        note = "beyond 8 bytes a nonzero, in arrays of the size of T and V"
        yield Row(f"memory of a fit, {what}", named(size), "float32", [arrays], at_most(10.0), note=note, detail=fit)


def read(path: Path) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Counts, samples × features, and labels."""
    with np.load(path, allow_pickle=False) as d:
        X = scipy.sparse.csr_array((d["data"], d["indices"], d["indptr"]), shape=tuple(d["shape"]))
        return X.astype(np.float32), d["labels"]


def fit_counts(path: Path, K: int, tol: float) -> dict[str, Any]:
    """A fit to the counts of a file."""
    X, labels = read(path)
    return fit_ours(X, labels, K // len(np.unique(labels)), tol)


def fit_generated(N: int, F: int, K: int, groups: int) -> dict[str, Any]:
    """A fit to random counts: 50 sweeps."""
    return fit_ours(generate(N, F), np.arange(N) % groups, K // groups, None)


def fit_ours(X: scipy.sparse.csr_array, labels: np.ndarray, per_group: int, tol: float | None) -> dict[str, Any]:
    """A fit to tolerance; memory above what the process had with the data read and a small fit made."""
    C = len(np.unique(labels))
    K = C * per_group
    grouped = GroupSparse(label_driven(per_group, C, 32.0, 256.0, 1e3))
    priors = Priors(Gamma(0.3, 1.0), grouped if C > 1 else Gamma(1.0, 0.1))
    few = as_data(X[:200].T[:300], labels[:200], group_names=np.unique(labels).tolist())
    options: dict[str, Any] = {"key": jax.random.key(0), "rank": K}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cavi.run(few, priors, max_steps=2, tol=None, **options)  # what any fit compiles and loads
        data = as_data(X.T, labels)
        forget_peak()
        before = resident()
        began, spent = time.perf_counter(), time.process_time()
        fit = cavi.run(data, priors, max_steps=50 if tol is None else 2000, tol=tol, **options)
        took, spent = time.perf_counter() - began, time.process_time() - spent
    memory = {"MB": peak() - before, "MB of nonzeros": 8e-6 * X.nnz, "MB of T and V": 4e-6 * K * sum(X.shape)}
    found = {"sweeps": fit.num_steps, "converged": fit.converged}
    if tol is not None:
        found["KL"] = divergence(fit, data)
    return {"seconds": took, "CPU seconds": spent, **found, **memory, "by": native.describe()}


def fit_theirs(path: Path, K: int, target: float) -> dict[str, Any]:
    """scikit-learn's NMF, ten iterations at a time, until its divergence is the target."""
    X, _ = read(path)
    before, began, spent = resident(), time.perf_counter(), time.process_time()
    rng, size = np.random.default_rng(0), np.sqrt(X.mean() / K)
    W, H = (size * rng.exponential(size=shape).astype(np.float32) for shape in ((X.shape[0], K), (K, X.shape[1])))
    steps, divergence = 0, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        while divergence > target and time.perf_counter() - began < LIMIT:
            model = NMF(K, init="custom", solver="mu", beta_loss=1, tol=0, max_iter=10)
            W = model.fit_transform(X, W=W, H=H)
            H, steps, divergence = model.components_, steps + 10, model.reconstruction_err_**2 / 2
    took, spent = time.perf_counter() - began, time.process_time() - spent
    return {"seconds": took, "CPU seconds": spent, "KL": divergence, "iterations": steps, "MB": peak() - before}


def resident() -> float:
    """Memory of this process now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def peak() -> float:
    """The most memory that this process has had since `forget_peak`, in MB."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1.024e-3


def forget_peak() -> None:
    """Begin again with the memory that this process has now."""
    Path("/proc/self/clear_refs").write_text("5")


def apart(cpus: int, *words: str) -> dict[str, Any]:
    """What this script prints for these words, in a process of its own on so many CPUs."""
    names = ("GSNMF_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(cpus))
    command = [sys.executable, __file__, *words, "--cpus", str(cpus)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time and memory of fits to sparse counts.", allow_abbrev=False)
    parser.add_argument("--counts", type=Path, metavar="FILE", help="samples × features, npz")
    parser.add_argument("--rank", type=int, default=60, metavar="K", help="components (default: 60)")
    parser.add_argument("--tol", type=float, default=1e-5, help="relative change of the bound (default: 1e-5)")
    parser.add_argument("--without-peers", action="store_true", help="without scikit-learn")
    parser.add_argument("--one", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--target", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--sweep", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--fit", type=int, nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--cpus", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cpus])  # before JAX starts its threads
    if given.sweep or given.fit:
        print(json.dumps(sweep_alone(*given.sweep) if given.sweep else fit_generated(*given.fit)))
        return
    if given.counts is None:
        parser.error("expected --counts FILE")
    if given.one is not None:
        fit = fit_counts(given.counts, given.rank, given.tol) if given.one == "ours" else None
        print(json.dumps(fit or fit_theirs(given.counts, given.rank, given.target)))
        return
    words = ["--counts", str(given.counts), "--rank", str(given.rank), "--tol", str(given.tol)]
    ours = {}
    for cpus in (1, 2):
        ours = apart(cpus, *words, "--one", "ours")
        show(f"CAVI on {cpus} CPU{'s' * (cpus > 1)}", ours)
    if not given.without_peers:
        show("scikit-learn on 2 CPUs", apart(2, *words, "--one", "theirs", "--target", str(ours["KL"])))


def show(what: str, found: dict[str, Any]) -> None:
    values = (
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in found.items()
    )
    print(f"{what}: {', '.join(values)}", flush=True)


if __name__ == "__main__":
    main()
