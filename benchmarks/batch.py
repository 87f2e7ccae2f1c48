"""Restarts as one batch against one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from measure import Clock, Options, Row, clock, milliseconds, precision, rounds
from problems import Problem, digits, generated, yale

from gsnmf.inference import cavi

RESTARTS = 10


def rows(options: Options) -> Iterator[Row]:
    """A small problem and one of Yale's shape; nothing while there is no `cavi.run_many`."""
    if not hasattr(cavi, "run_many"):
        return
    small = generated(12, 20, 4, 2, name="tiny") if options.tiny else digits(samples=200, per_group=1)
    for problem in [small] if options.tiny else [small, yale(options.yale)]:
        count = 2 if options.tiny else 3 if options.quick else 7
        with precision("float32"):
            times = rounds(clocks(problem), {}, count, f"batch, {problem.size}")
        ratio = (times["batch"] / times["loop"]).tolist()
        what = f"{RESTARTS} restarts, run_many / a loop of run"
        yield Row(what, problem.size, "float32", ratio, detail=milliseconds(times))


def clocks(problem: Problem, sweeps: int = 50) -> dict[str, Clock]:
    """Both ways, the same number of sweeps."""
    keys = jax.random.split(jax.random.key(0), RESTARTS)
    options = {"max_steps": sweeps, "tol": None, "start": cavi.start(lam=np.asarray(problem.rates.a))}

    def posteriors(fits: object) -> object:
        return [leaf for leaf in jax.tree.leaves(fits) if isinstance(leaf, jax.Array)]

    return {
        "batch": clock(lambda: posteriors(cavi.run_many(problem.data, problem.priors, keys=keys, **options))),
        "loop": clock(lambda: posteriors([cavi.run(problem.data, problem.priors, key=k, **options) for k in keys])),
    }
