"""The cost of a Gibbs sweep, and of the draw of S in it, compared with a plain CAVI sweep with its bound.

One chain in one compiled loop: scikit-learn's digits, counts of words (sparse), and faces. When JAX drew S by K − 1
binomials for every entry of X, a sweep of the first problem took 530 sweeps of CAVI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from measure import PRECISIONS, Options, Row, at_most, clock, milliseconds, precision, rounds
from problems import Problem, digits, generated, words, yale
from sweeps import ours

from gsnmf import model
from gsnmf.inference import engine, native
from gsnmf.inference.gibbs import Sites, sweep
from gsnmf.inference.starts import fill
from gsnmf.inference.thinning import Counts, prepare, thin

TEN_MINUTES = at_most(600.0)  # for 1000 sweeps


class Case(NamedTuple):
    """A problem, its precisions, sweeps in one call, and targets."""

    problem: Problem
    sweeps: int
    precisions: tuple[str, ...] = PRECISIONS[:1]
    ratio: tuple[float, float] | None = None  # to CAVI's sweep, float32
    seconds: tuple[float, float] | None = None  # for 1000 sweeps


def cases(options: Options) -> Iterator[Case]:
    """Return what is measured, small problems first."""
    if options.tiny:
        yield Case(generated(30, 40, 6, 3, name="tiny"), 20)
        return
    yield Case(digits(200, per_group=1), 20, PRECISIONS, at_most(20.0))
    yield Case(digits(per_group=3), 20, PRECISIONS)
    yield Case(words(options.counts), 2, ratio=at_most(6.0))
    yield Case(yale(options.yale), 2, seconds=TEN_MINUTES)


def chain(case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    """Sweeps from the middle of a chain, and the draws of S alone."""
    data, priors = case.problem.data, case.problem.priors
    prepared = model.Problem(data, priors)
    entries = prepare(prepared.data.X)
    given = fill(None, data, priors, case.problem.shape[2], jax.random.key(0), "random")
    start = {name: jnp.asarray(x, prepared.priors.dictionary.a.dtype) for name, x in given._asdict().items()}

    @jax.jit
    def sweeps(z: Sites, keys: jax.Array, prepared: model.Problem, entries: object) -> Sites:
        return jax.lax.scan(lambda z, key: (sweep(key, prepared, z, entries=entries), None), z, keys)[0]

    @jax.jit
    def splits(z: Sites, keys: jax.Array, X: object, entries: object) -> object:
        def one(sums: Counts, key: jax.Array) -> tuple[Counts, None]:
            return jax.tree.map(jnp.add, sums, thin(key, X, z["T"], z["V"], entries)), None

        return jax.lax.scan(one, Counts(z["T"], z["V"]), keys)[0]

    first, some = (jax.random.split(jax.random.key(n), case.sweeps) for n in (1, 2))
    warm = sweeps(sweeps(start, first, prepared, entries), first, prepared, entries)
    return (
        lambda: sweeps(warm, some, prepared, entries),
        lambda: splits(warm, some, prepared.data.X, entries),
    )


def rows(options: Options) -> Iterator[Row]:
    """Every case; wall time on all processors, by the kernels where there are any."""
    for case in cases(options):
        for dtype in case.precisions:
            problem = case.problem
            with precision(dtype):
                sweeps, splits = chain(case)
                clocks = {
                    "CAVI": clock(ours(problem), engine.CHUNK),
                    "Gibbs": clock(sweeps, case.sweeps),
                    "S": clock(splits, case.sweeps),
                }
                count = 2 if options.tiny else 3 if case.sweeps < 20 else 5 if options.quick else 15
                times = rounds(clocks, {}, count, f"Gibbs, {problem.size}, {dtype}")
            detail, note = milliseconds(times), native.describe()
            for name, what in {"Gibbs": "Gibbs sweep", "S": "draw of S"}.items():
                limit = case.ratio if (name, dtype) == ("Gibbs", "float32") else None
                ratios = (times[name] / times["CAVI"]).tolist()
                yield Row(f"{what} / CAVI sweep", problem.size, dtype, ratios, limit, note=note, detail=detail)
            if case.seconds is not None:
                total = (1000 * times["Gibbs"]).tolist()
                yield Row("1000 Gibbs sweeps", problem.size, dtype, total, case.seconds, "s", note, detail)
