"""The cost of a Gibbs sweep, and of the draw of S in it, beside a plain CAVI sweep with its bound.

One chain of scikit-learn's digits, in one compiled loop. When S was drawn by K − 1 binomials for every entry of X, a
sweep of the first problem took 530 sweeps of CAVI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
from measure import PRECISIONS, Options, Row, at_most, clock, milliseconds, precision, rounds
from problems import Problem, digits, generated
from sweeps import ours

from gsnmf import model
from gsnmf.inference import engine
from gsnmf.inference.gibbs import Sites, draw_prior, sweep
from gsnmf.inference.thinning import Counts, group_counts, thin

SWEEPS = 20  # in one call
WARM = 100  # sweeps before the first that counts
LIMIT = at_most(100.0)  # float32


def chain(problem: Problem) -> tuple[Callable[[], object], Callable[[], object]]:
    """Sweeps from the middle of a chain, and the draws of S alone."""
    prepared = model.Problem(problem.data, problem.priors)
    X, entries = prepared.data.X, group_counts(prepared.data.X)

    def one(z: Sites, key: jax.Array) -> tuple[Sites, None]:
        return sweep(key, prepared, z, entries=entries), None

    def split(sums: object, key: jax.Array, z: Sites) -> tuple[object, None]:
        return jax.tree.map(lambda sums, s: sums + s, sums, thin(key, X, z["T"], z["V"], entries)), None

    @jax.jit
    def sweeps(z: Sites, keys: jax.Array) -> Sites:
        return jax.lax.scan(one, z, keys)[0]

    @jax.jit
    def splits(z: Sites, keys: jax.Array) -> object:
        return jax.lax.scan(lambda sums, key: split(sums, key, z), Counts(z["T"], z["V"]), keys)[0]

    first, some = jax.random.split(jax.random.key(1), WARM), jax.random.split(jax.random.key(2), SWEEPS)
    warm = sweeps(draw_prior(jax.random.key(0), prepared), first)
    return lambda: sweeps(warm, some), lambda: splits(warm, some)


def rows(options: Options) -> Iterator[Row]:
    """Both sizes in both precisions."""
    tiny = [generated(30, 40, 6, 3, name="tiny")]
    for problem in tiny if options.tiny else [digits(200, per_group=1), digits(per_group=3)]:
        for dtype in PRECISIONS[: 1 if options.tiny else None]:
            with precision(dtype):
                sweeps, splits = chain(problem)
                clocks = {
                    "CAVI": clock(ours(problem), engine.CHUNK),
                    "Gibbs": clock(sweeps, SWEEPS),
                    "S": clock(splits, SWEEPS),
                }
                count = 2 if options.tiny else 5 if options.quick else 15
                times = rounds(clocks, {}, count, f"Gibbs, {problem.size}, {dtype}")
            detail = milliseconds(times)
            for name, what in {"Gibbs": "Gibbs sweep", "S": "draw of S"}.items():
                limit = LIMIT if (name, dtype) == ("Gibbs", "float32") else None
                ratios = (times[name] / times["CAVI"]).tolist()
                yield Row(f"{what} / CAVI sweep", problem.size, dtype, ratios, limit, detail=detail)
