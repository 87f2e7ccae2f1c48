"""The cost of a sweep: against its floor, against the peers, and how it grows with F, N and K."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from measure import PRECISIONS, Clock, Options, Row, at_most, clock, milliseconds, precision, progress, rounds
from peers import NumpyCavi, NumpyFloor, fewest_seconds, jax_floor, ones, sklearn_iteration
from problems import Problem, generated, standard

from gsnmf.inference import cavi, engine
from gsnmf.inference.observations import observe
from gsnmf.inference.starts import fill

FLOOR = {"Yale": 1.7, "like Yale": 1.7, "like ORL": 1.4, "large": 1.4}  # float32
FLOOR64 = 2.0
SLOPE = (0.85, 1.15)


def ours(problem: Problem, accelerate: bool = False) -> Callable[[], object]:
    """A chunk of sweeps with their bounds, as `cavi.run` makes them, from the middle of a run."""
    data, priors, state = problem.prepared()
    state, infinite, never = engine._begin(state, None, accelerate)
    seen = observe(data)

    def chunk(state: cavi.State) -> cavi.State:
        return engine.advance(seen, priors, state, 0, engine.CHUNK, infinite, never, accelerate)[0]

    warm = chunk(state)
    return lambda: chunk(warm)


def clocks(problem: Problem, dtype: str) -> tuple[dict[str, Clock], dict[str, Clock], int]:
    """What is timed at one size: in JAX, and with OpenBLAS on so many threads."""
    F, N, K = problem.shape
    X = np.asarray(problem.data.X, dtype)
    few = int(np.clip(4e9 / (F * N * K), 3, 100))  # sweeps that take about a tenth of a second
    across = np.ascontiguousarray(X.T)  # the way round in which the floor is lowest, in JAX and in NumPy
    device_X = jnp.asarray(across)
    factors = ones(device_X, K)
    in_jax = {
        "ours": clock(ours(problem), engine.CHUNK),
        "floor in JAX": clock(lambda: jax_floor(device_X, *factors, few), few),
        "accelerated": clock(ours(problem, accelerate=True), engine.CHUNK),
    }
    peer, floor = NumpyCavi(problem.data, problem.priors, dtype), NumpyFloor(across, K)
    given = fill(None, problem.data, problem.priors, K, jax.random.key(0), "random")
    warm = peer.start(given.T, given.V, problem.rates.a)
    for _ in range(2):
        warm, _ = peer.sweep(warm)
    in_blas = {
        "floor in NumPy": clock(lambda: floor(few), few),
        "NumPy CAVI": clock(lambda: peer.sweep(warm)),
        "scikit-learn": sklearn_iteration(across, K, few),
    }
    return in_jax, *fewest_seconds(in_blas, "floor in NumPy")


def sweep_rows(options: Options) -> Iterator[Row]:
    """Every size in both precisions."""
    for problem in standard(options):
        big = problem.name == "large"
        count = 2 if options.tiny else (2 if big else 5) if options.quick else (5 if big else 15)
        for dtype in PRECISIONS:
            if dtype == "float64" and (options.tiny or (options.quick and big)):
                continue
            with precision(dtype):
                in_jax, in_blas, threads = clocks(problem, dtype)
                times = rounds(in_jax, in_blas, count, f"sweep, {problem.size}, {dtype}")
            yield from compare(problem, dtype, times, {**milliseconds(times), "BLAS threads": threads})


def compare(problem: Problem, dtype: str, times: dict[str, np.ndarray], detail: dict[str, float]) -> Iterator[Row]:
    """The rows of one size."""
    sweep, floor = times["ours"], np.minimum(times["floor in JAX"], times["floor in NumPy"])
    limit = FLOOR.get(problem.name) and (FLOOR[problem.name] if dtype == "float32" else FLOOR64)
    lines = {
        "sweep with bound / floor": (sweep / floor, limit and at_most(limit)),
        "accelerated sweep / plain sweep": (times["accelerated"] / sweep, None),
        "sweep with bound / NumPy CAVI": (sweep / times["NumPy CAVI"], None),
        "sweep with bound / scikit-learn iteration": (sweep / times["scikit-learn"], at_most(1.0)),
    }
    for what, (ratio, target) in lines.items():
        yield Row(what, problem.size, dtype, ratio.tolist(), target, detail=detail)


def growth_rows(options: Options) -> Iterator[Row]:
    """The slope of log time against log size, one axis at a time, the other two as at the base."""
    base = {"F": 40, "N": 30, "K": 4} if options.tiny else {"F": 2000, "N": 500, "K": 64}
    for axis in base:
        lengths = [base[axis] * factor for factor in ((1, 2) if options.tiny else (1, 2, 4, 8))]
        shapes = [{**base, axis: length} for length in lengths]
        clocks = {}
        for shape in progress(shapes, f"growth in {axis}, compiling"):
            clocks[f"sweep {shape[axis]}"] = clock(ours(generated(**shape, C=4)), engine.CHUNK)
            X = jnp.ones((shape["N"], shape["F"]))
            floor = partial(jax_floor, X, *ones(X, shape["K"]), engine.CHUNK)
            clocks[f"floor {shape[axis]}"] = clock(floor, engine.CHUNK)
        times = rounds(clocks, {}, 3 if options.quick or options.tiny else 7, f"growth in {axis}")
        others = ", ".join(f"{name}={length}" for name, length in base.items() if name != axis)
        size, detail = f"{axis}={lengths[0]}…{lengths[-1]}, {others}", milliseconds(times)
        for what, target in {"sweep": SLOPE, "floor": None}.items():
            logs = np.log([times[f"{what} {length}"] for length in lengths])
            slopes = np.polyfit(np.log(lengths), logs, 1)[0].tolist()
            yield Row(f"growth of the {what} (log-log slope)", size, "float32", slopes, target, detail=detail)
