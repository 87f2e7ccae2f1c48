"""How soon a run arrives: accelerated against plain sweeps, coordinate ascent against NumPyro's SVI."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import numpy as np
from measure import Options, Row, at_most, precision, progress, seconds
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.svi import SVIState
from numpyro.optim import Adam
from problems import Problem, digits, generated, orl, yale

from gsnmf.inference import cavi
from gsnmf.inference.guide import guide
from gsnmf.inference.posterior import Fit, Posterior
from gsnmf.inference.starts import fill
from gsnmf.model import Gamma, group_sparse_nmf

LIMIT = 600  # accelerated sweeps
FEWER = {300: 4, 2000: 10}  # plain sweeps: how many times fewer are aimed at
YALE = {300: 60.0, 2000: 110.0}  # sweeps aimed at there
PARTICLES = 100
LEARNING_RATE = 0.03  # the fastest of 0.01, 0.03 and 0.1 here


def sweeps_rows(options: Options) -> Iterator[Row]:
    """Accelerated sweeps, and seconds, until the bound is that of so many plain sweeps from the same start."""
    problems = [generated(30, 40, 6, 3, name="tiny")] if options.tiny else [yale(options.yale), digits(), orl()]
    goals = [10] if options.tiny else [300] if options.quick else [300, 2000]
    for problem in problems:
        with precision("float32"):
            races = [race(problem, seed, goals) for seed in progress(range(options.seeds), f"sweeps, {problem.size}")]
        for goal in goals:
            yield from arrival(problem, goal, [result[goal] for result in races])


def race(problem: Problem, seed: int, goals: list[int]) -> dict[int, dict[str, float]]:
    """Plain and accelerated runs from one start: sweeps and seconds to each goal, and what is missing at the limit."""

    def run(max_steps: int, accelerate: bool) -> Fit:
        start = problem.options(seed)
        return cavi.run(problem.data, problem.priors, max_steps=max_steps, tol=None, accelerate=accelerate, **start)

    def timed(max_steps: int, accelerate: bool) -> float:
        return seconds(lambda: run(max_steps, accelerate).posterior)

    most = max(goals)
    limit = min(LIMIT, 2 * most)
    run(1, False)  # compiles
    began = time.perf_counter()
    plain = run(most, False).elbo
    spent = time.perf_counter() - began
    fast, result = run(limit, True).elbo, {}
    for goal in goals:
        there = np.flatnonzero(fast >= plain[goal - 1])
        sweeps = int(there[0]) + 1 if len(there) else np.inf
        short = (plain[goal - 1] - fast.max()) / abs(plain[goal - 1])
        ours, theirs = timed(int(min(sweeps, limit)), True), spent if goal == most else timed(goal, False)
        result[goal] = {"sweeps": sweeps, "seconds": ours, "plain seconds": theirs, "short": float(max(short, 0.0))}
    return result


def arrival(problem: Problem, goal: int, results: list[dict[str, float]]) -> Iterator[Row]:
    """The rows of one goal."""
    what = f"to the bound of {goal} plain sweeps"
    fewer = FEWER.get(goal)
    limit = YALE.get(goal) if "Yale" in problem.name else fewer and goal / fewer
    sweeps = [result["sweeps"] for result in results]
    missed = [result["short"] for result in results if np.isinf(result["sweeps"])]
    note = f"{len(missed)} of {len(results)} starts not there, up to {max(missed):.1e} of it below" if missed else ""
    details = {"by start": results, "times fewer": [goal / n for n in sweeps]}
    yield Row(f"sweeps {what}", problem.size, "float32", sweeps, limit and at_most(limit), "sweeps", note, details)
    ratio = [
        result["seconds"] / result["plain seconds"] if np.isfinite(result["sweeps"]) else np.inf for result in results
    ]
    yield Row(f"seconds {what} / plain seconds", problem.size, "float32", ratio)


def svi_rows(options: Options) -> Iterator[Row]:
    """Seconds of CAVI over seconds of SVI, both in compiled code, to the collapsed bound at which CAVI stops."""
    problem = generated(12, 20, 4, 2, name="tiny") if options.tiny else digits(samples=200, per_group=1)
    cap = 1.0 if options.tiny else 15.0 if options.quick else 30.0
    starts = 1 if options.tiny else min(options.seeds, 2 if options.quick else 3)
    with precision("float32"):
        svi = Svi(problem)
        results = [against(svi, seed, cap) for seed in progress(range(starts), f"SVI, {problem.size}")]
    missed = [result["short"] for result in results if result["short"] > 0]
    note = f"{len(missed)} of {starts} SVI runs still {max(missed):.0f} nats below after {cap:g} s" if missed else ""
    ratio = [result["CAVI seconds"] / result["SVI seconds"] for result in results]
    what = "seconds to one collapsed bound, CAVI / SVI"
    yield Row(what, problem.size, "float32", ratio, note=note, detail={"by start": results})


class Svi:
    """NumPyro's SVI as it comes: the Gamma factors as a guide, Adam, one draw a step; many steps per compiled call."""

    def __init__(self, problem: Problem, block: int = 200) -> None:
        self.problem, arguments = problem, (problem.data, problem.priors)
        self.svi, particles = self.make(0), Trace_ELBO(num_particles=PARTICLES)

        def loss(params: dict[str, jax.Array]) -> jax.Array:
            return particles.loss(jax.random.key(0), params, group_sparse_nmf, self.svi.guide, *arguments)

        def steps(state: SVIState) -> SVIState:
            return jax.lax.scan(lambda s, _: (self.svi.update(s, *arguments)[0], None), state, None, length=block)[0]

        self.loss, self.steps = jax.jit(loss), jax.jit(steps)
        self.steps(self.svi.init(jax.random.key(0), *arguments))

    def make(self, seed: int) -> SVI:
        """Factors of shape 1, their means where CAVI starts."""
        options, (_, _, K) = self.problem.options(seed), self.problem.shape
        means = fill(options["start"], self.problem.data, self.problem.priors, K, options["key"], "random")
        factors = Posterior(*(Gamma(np.ones_like(E), np.asarray(E)) for E in means))
        return SVI(group_sparse_nmf, guide(factors), Adam(LEARNING_RATE), Trace_ELBO())

    def start(self, seed: int) -> SVIState:
        """The state before the first step."""
        return self.make(seed).init(jax.random.key(seed), self.problem.data, self.problem.priors)

    def bound(self, params: dict[str, jax.Array]) -> float:
        """A Monte Carlo estimate of the bound with S summed out, always from the same draws."""
        return -float(self.loss(params))


def against(peer: Svi, seed: int, cap: float) -> dict[str, float]:
    """One start for both: CAVI to its tolerance, then SVI until its own estimate of the bound is as high.

    Neither compiling nor estimating bounds counts.
    """
    problem = peer.problem
    options = {**problem.options(seed), "max_steps": 5000, "tol": 1e-6}
    fit = cavi.run(problem.data, problem.priors, **options)
    repeats = [seconds(lambda: cavi.run(problem.data, problem.priors, **options).posterior) for _ in range(5)]
    factors = fit.posterior.sites.items()
    goal = peer.bound({f"{site}_{name}": getattr(factor, name) for site, factor in factors for name in ("a", "b")})
    state, spent = peer.start(seed), 0.0
    bound = peer.bound(peer.svi.get_params(state))
    while bound < goal and spent < cap:
        began = time.perf_counter()
        state = jax.block_until_ready(peer.steps(state))
        spent += time.perf_counter() - began
        bound = peer.bound(peer.svi.get_params(state))
    return {
        "CAVI seconds": float(np.median(repeats)),
        "CAVI sweeps": fit.num_steps,
        "SVI seconds": spent,
        "collapsed bound of CAVI": goal,
        "short": max(0.0, goal - bound),
    }
