"""Restarts as one batch against one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from measure import Clock, Options, Row, clock, milliseconds, precision, rounds
from problems import Problem, digits, generated, yale

from gsnmf.inference import cavi
from gsnmf.inference.posterior import Fit, Posterior

RESTARTS = 10


def rows(options: Options) -> Iterator[Row]:
    """A small problem and one of Yale's shape: as `run_many` chooses, and as one batch."""
    small = generated(12, 20, 4, 2, name="tiny") if options.tiny else digits(samples=200, per_group=1)
    for problem in [small] if options.tiny else [small, yale(options.yale)]:
        count = 2 if options.tiny else 3 if options.quick else 7
        with precision("float32"):
            times = rounds(clocks(problem), {}, count, f"batch, {problem.size}")
        for way in ("run_many", "run_many(batch=True)"):
            what, ratio = f"{RESTARTS} restarts, {way} / a loop of run", (times[way] / times["a loop"]).tolist()
            yield Row(what, problem.size, "float32", ratio, detail=milliseconds(times))


def clocks(problem: Problem, sweeps: int = 50) -> dict[str, Clock]:
    """Each way, the same number of sweeps."""
    keys = jax.random.split(jax.random.key(0), RESTARTS)
    options = {"max_steps": sweeps, "tol": None, "start": cavi.start(lam=np.asarray(problem.rates.a))}

    def many(batch: bool | None) -> object:
        return factors(cavi.run_many(problem.data, problem.priors, keys=keys, batch=batch, **options))

    def one_by_one() -> object:
        return factors([cavi.run(problem.data, problem.priors, key=key, **options) for key in keys])

    calls = {"run_many": lambda: many(None), "run_many(batch=True)": lambda: many(True), "a loop": one_by_one}
    return {name: clock(call) for name, call in calls.items()}


def factors(fits: list[Fit]) -> list[Posterior]:
    """What to wait for."""
    return [fit.posterior for fit in fits]
