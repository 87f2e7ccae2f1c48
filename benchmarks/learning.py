"""What learning hyperparameters costs a sweep, and what it does to bound and 1-NN accuracy on digits.

python benchmarks/learning.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import jax
import numpy as np
import pandas as pd
from measure import clock, progress, rounds
from problems import digits
from sklearn.exceptions import ConvergenceWarning

from gsnmf.classification.projection import accuracy
from gsnmf.demo.digits import DRIVEN, MAX_STEPS, TOL, models, splits
from gsnmf.inference import cavi, engine
from gsnmf.inference.beginning import with_ties
from gsnmf.inference.observations import observe
from gsnmf.model import Gamma, Problem

SETTINGS = {  # the prior of T to begin with, and what is learned
    "as given": (0.6, None),
    "T by component": (0.6, cavi.learn("component")),
    "T by feature": (0.6, cavi.learn("feature")),
    "T, one for all": (0.6, cavi.learn("all")),
    "T by component, shape ≥ 1": (1.0, cavi.learn("component", least_shape=1.0)),
    "scale of λ, one for all": (0.6, cavi.learn(None, "all", what="scale")),
    "T by component, scale of λ": (0.6, cavi.learn("component", "all", what=("both", "scale"))),
}


def chunk(learn: cavi.Learn | None, accelerate: bool) -> Callable[[], object]:
    """A chunk of sweeps on all digits, from the middle of a run."""
    problem = digits()
    state = cavi.init(problem.data, problem.priors, **problem.options(0))
    prepared = Problem(problem.data, problem.priors, None)
    seen = observe(prepared.data)
    state, infinite, never = engine._begin(with_ties(prepared, seen, state, learn), None, accelerate)

    def one(state: cavi.State) -> cavi.State:
        return engine.advance(seen, prepared.priors, state, 0, engine.CHUNK, infinite, never, accelerate, learn)[0]

    warm = one(state)
    return lambda: one(warm)


def cost(count: int) -> None:
    """Ratios within a round: a sweep that learns against one that does not."""
    both = {"nothing": None, "T": SETTINGS["T by component"][1], "T and λ": SETTINGS["T by component, scale of λ"][1]}
    for accelerate in (False, True):
        times = rounds(
            {name: clock(chunk(learn, accelerate), engine.CHUNK) for name, learn in both.items()}, {}, count, "sweep"
        )
        for name in list(both)[1:]:
            low, ratio, high = np.quantile(times[name] / times["nothing"], [0.25, 0.5, 0.75])
            kind = "accelerated" if accelerate else "plain"
            print(f"{kind} sweep that learns {name} / one that does not: {ratio:.2f} ({low:.2f}–{high:.2f})")


def effect(size: int, draws: int) -> pd.DataFrame:
    """The demo's label-driven model on the demo's splits, each with a start of its own."""
    rows = []
    for draw, split in enumerate(progress(splits(size, draws, seed=0), f"{size} images")):
        data, priors = models(split)[DRIVEN]
        start = cavi.start_at_shape(data, priors)
        for name, (a, learn) in SETTINGS.items():
            given = priors._replace(dictionary=Gamma(a, 20.0))
            options = {"start": start, "max_steps": MAX_STEPS, "tol": TOL, "learn": learn}
            fit = cavi.run(data, given, key=jax.random.key(draw), **options)
            shape = np.median(fit.priors.dictionary.a)
            rows.append((name, fit.elbo[-1], accuracy(fit.posterior.T.mean, *split), shape, fit.num_steps))
    runs = pd.DataFrame(rows, columns=["learned", "bound", "accuracy", "shape of T", "sweeps"])
    return runs.groupby("learned", sort=False).mean()


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says how many sweeps were made
    cost(count=9)
    for size in (100, 600):
        print(f"\n{size} images, mean of 5 splits\n{effect(size, 5).round(3).to_string()}")
