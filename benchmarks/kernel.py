"""The compiled pass over the nonzeros of X, and the draw of S: alone, in one compiled loop.

Against the bytes that a pass must move, at the bandwidth measured in the same run: for each nonzero its index and its
value, and three times K numbers (the column's factor is read, its sums are read and written), for each row twice K. The
bandwidth is that of a += b with arrays as large as the columns' factor and sums, which is where the gathers go.

Times are CPU seconds of one thread, since other work on the machine disturbs them less, except for the speed-up.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from measure import Clock, Options, Row, at_most, clock, milliseconds, rounds
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gsnmf.inference import native
from gsnmf.inference.native import library
from gsnmf.model import special

DENSITY = 0.01
PASSES = 5  # in one call
JUDGED = (20_000, 5000, 50)  # the size for which there are targets


class Sparse(NamedTuple):
    """Random counts, as many in each row.

    X: rows × columns.
    logs: E[log ·] of the rows and of the columns.
    """

    X: scipy.sparse.csr_array
    logs: list[np.ndarray]

    @property
    def size(self) -> str:
        """Rows × columns and components."""
        return f"{self.X.shape[0]}×{self.X.shape[1]}, K={self.logs[0].shape[1]}"

    @property
    def bytes(self) -> int:
        """What a pass must move."""
        rows, K = self.logs[0].shape
        return int(self.X.nnz * (8 + 12 * K) + rows * 8 * K)


def generate(rows: int, columns: int, K: int) -> Sparse:
    """Return a problem in single precision."""
    rng = np.random.default_rng(0)
    each = max(1, round(columns * DENSITY))
    places = np.sort(rng.integers(columns, size=(rows, each), dtype=np.int32), axis=1).ravel()
    values = (1 + rng.poisson(1.0, places.size)).astype(np.float32)
    X = scipy.sparse.csr_array((values, places, np.arange(rows + 1) * each), (rows, columns))
    return Sparse(X, [rng.normal(-2, 1, (n, K)).astype(np.float32) for n in (rows, columns)])


def cpu(call: Callable[[], object], units: int = 1, least: float = 0.1) -> Clock:
    """CPU seconds per unit of work; the first call, with what it compiles, does not count."""
    jax.block_until_ready(call())

    def once(calls: int) -> float:
        began = time.process_time()
        jax.block_until_ready([call() for _ in range(calls)][-1])
        return (time.process_time() - began) / (calls * units)

    calls = max(1, round(least / max(once(1) * units, 1e-9)))
    return lambda: once(calls)


def with_threads(measure: Clock, threads: int) -> Clock:
    """The same clock with so many threads for the kernels."""

    def once() -> float:
        library.open_library().gsnmf_set_threads(threads)
        try:
            return measure()
        finally:
            library.open_library().gsnmf_set_threads(library.load().threads)

    return once


def passes(problem: Sparse) -> Callable[[], object]:
    """Passes in a loop, the result of each the start of the next."""
    arrays = [jnp.asarray(x) for x in (native.row_pointers(problem.X.indptr), problem.X.indices, problem.X.data)]
    rows, columns = map(jnp.asarray, problem.logs)

    @jax.jit
    def some(arrays: list[jax.Array], rows: jax.Array, columns: jax.Array) -> tuple[jax.Array, ...]:
        def one(_: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            sums = native.allocate(*arrays, rows, state[0])
            return 0.5 * (state[0] + jnp.log1p(sums.columns)), sums.rows, sums.log_ratios

        return jax.lax.fori_loop(0, PASSES, one, (columns, rows, rows[:, 0]))

    return lambda: some(arrays, rows, columns)


def draws(problem: Sparse) -> Callable[[], object]:
    """Draws of S in a loop."""
    arrays = [jnp.asarray(x) for x in (native.row_pointers(problem.X.indptr), problem.X.indices, problem.X.data)]
    factors = [jnp.exp(x) for x in problem.logs]

    @jax.jit
    def some(arrays: list[jax.Array], factors: list[jax.Array], keys: jax.Array) -> object:
        return jax.lax.map(lambda key: native.thin(key, *arrays, *factors)[1].sum(), keys)

    keys = jax.random.split(jax.random.key(0), PASSES)
    return lambda: some(arrays, factors, keys)


def moving(problem: Sparse) -> Callable[[], object]:
    """As many bytes as a pass moves, by a += b."""
    a, b = (np.ones(problem.logs[1].size, np.float32) for _ in range(2))
    times = max(1, round(problem.bytes / (12 * a.size)))

    def move() -> None:
        for _ in range(times):
            np.add(a, b, out=a)

    return move


def sklearn_iteration(problem: Sparse, iterations: int) -> Clock:
    """CPU seconds of an iteration of scikit-learn's KL-NMF."""

    def fit(max_iter: int) -> float:
        model = NMF(problem.logs[0].shape[1], init="random", solver="mu", beta_loss=1, tol=0, max_iter=max_iter)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            began = time.process_time()
            model.fit(problem.X)
            return time.process_time() - began

    return lambda: (fit(1 + iterations) - fit(1)) / iterations


def elementwise(size: int) -> dict[str, Clock]:
    """ψ and the entropy of log y of an array, compiled and in JAX."""
    x = jnp.asarray(np.random.default_rng(0).gamma(1.0, 10.0, size), jnp.float32)
    by_jax = jax.jit(lambda x: (special.digamma(x), special.log_entropy(x)))
    ways = {"kernel": jax.jit(native.log_moments), "JAX": by_jax}
    return {name: with_threads(cpu(lambda f=f: f(x)), 1) for name, f in ways.items()}


def rows(options: Options) -> Iterator[Row]:
    """Three sizes; the largest takes longest and is left out of a quick run. Nothing where there is no library."""
    if not native.is_available():
        return
    sizes = [(40, 30, 5)] if options.tiny else [(4000, 2000, 20), JUDGED, (1_000_000, 1000, 30)]
    count = 2 if options.tiny else 5 if options.quick else 11
    for shape in sizes[: 2 if options.quick else None]:
        problem = generate(*shape)
        loop, what = passes(problem), f"kernel, {problem.size}"
        clocks = {
            "pass": with_threads(cpu(loop, PASSES), 1),
            "bytes": cpu(moving(problem)),
            "draw of S": with_threads(cpu(draws(problem), PASSES), 1),
        }
        times = rounds(clocks, {}, count, what)
        times |= rounds({}, {"scikit-learn": sklearn_iteration(problem, 2)}, min(count, 3), "scikit-learn")
        wall = clock(loop, PASSES)
        both = rounds(
            {"one": with_threads(wall, 1), "two": with_threads(wall, 2)}, {}, count, f"threads, {problem.size}"
        )
        detail = milliseconds(times) | milliseconds(both)
        bandwidth = problem.bytes / np.median(times["bytes"]) / 1e9
        note = f"{problem.bytes / 1e6:.0f} MB at {bandwidth:.0f} GB/s"
        yield Row("pass", problem.size, "float32", (1e3 * times["pass"]).tolist(), unit="ms", detail=detail)
        ratios = times["pass"] / times["bytes"]
        limit = at_most(3.0) if shape == JUDGED else None
        yield Row("pass / its bytes", problem.size, "float32", ratios.tolist(), limit, note=note, detail=detail)
        ratios = times["pass"].min() / times["scikit-learn"]
        yield Row("pass / scikit-learn's iteration", problem.size, "float32", ratios.tolist(), detail=detail)
        yield Row(
            "draw of S / pass", problem.size, "float32", (times["draw of S"] / times["pass"]).tolist(), detail=detail
        )
        ratios, speed_up = both["two"] / both["one"], at_most(1 / 1.6) if shape == JUDGED else None
        yield Row("two threads / one", problem.size, "float32", ratios.tolist(), speed_up, detail=detail)
    size = 1000 if options.tiny else 30_000_000
    times = rounds(elementwise(size), {}, count, "ψ and entropy")
    ratios = (times["kernel"] / times["JAX"]).tolist()
    yield Row("ψ and entropy: kernel / JAX", f"{size}", "float32", ratios, at_most(1.0))
