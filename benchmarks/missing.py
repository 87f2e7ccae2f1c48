"""A fifth of the pixels hidden: left out of the fit, or filled in with the mean of the feature, and what each predicts.

Both are judged by the log predictive density of the pixels that were hidden. Also how much longer a sweep with a mask
takes than one without.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from measure import clock, rounds
from problems import Problem, digits, generated, yale
from sklearn.exceptions import ConvergenceWarning
from sweeps import ours

from gsnmf.inference import DeadComponentsWarning, Fit, cavi, engine, held_out_score
from gsnmf.model import Data, hide, matching

EPILOG = """examples:
  python benchmarks/missing.py
  python benchmarks/missing.py --yale yale_centered.npz --seeds 3"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="missing.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--tiny", action="store_true", help="a toy, to try the command; the numbers mean nothing")
    result.add_argument("--yale", type=Path, metavar="PATH", help="the Yale faces as gsnmf.datasets.yale takes them")
    result.add_argument("--share", type=float, default=0.2, help="of entries to hide (default: %(default)s)")
    result.add_argument("--seeds", type=int, default=3, metavar="N", help="of start and mask (default: %(default)s)")
    result.add_argument("--sweeps", type=int, default=100, metavar="N", help="of each fit (default: %(default)s)")
    result.add_argument("--draws", type=int, default=200, metavar="N", help="of each posterior (default: %(default)s)")
    return result


def filled(data: Data) -> Data:
    """The same data as if every hidden entry had been seen, at the mean of what was seen of its feature."""
    seen = np.asarray(data.mask)
    means = np.asarray(data.X, float).sum(axis=1) / seen.sum(axis=1)
    return data._replace(X=np.where(seen, data.X, means[:, None]), mask=None, held_out=None)


def scores(problem: Problem, grouped: bool, share: float, seed: int, sweeps: int, draws: int) -> dict[str, float]:
    """The mean log predictive density of a hidden entry, of both fits; and the error of their difference.

    Under the problem's own prior, or with as many components under `matching`, which knows nothing of groups.
    """
    data, K = hide(problem.data, share, seed=seed), problem.shape[2]
    priors, options = problem.priors, problem.options(seed)
    if not grouped:
        priors = priors._replace(coefficients=matching(data, priors.dictionary, K))
        options = {"key": options["key"], "rank": K}

    def fit(data: Data) -> Fit:
        return cavi.run(data, priors, max_steps=sweeps, tol=None, **options)

    masked, plain = (
        held_out_score(fit(seen).posterior, data, priors, num_samples=draws) for seen in (data, filled(data))
    )
    gain = masked.per_entry - plain.per_entry
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return {"masked": masked.mean, "mean-filled": plain.mean, "gain": gain.mean(), "error": error}


def sweep_ratio(problem: Problem, share: float, accelerate: bool, repeats: int = 5) -> float:
    """The median, over rounds, of a sweep's time with a mask divided by one without."""
    masked = problem._replace(data=hide(problem.data, share))
    clocks = {
        name: clock(ours(p, accelerate), engine.CHUNK) for name, p in {"masked": masked, "plain": problem}.items()
    }
    times = rounds(clocks, {}, repeats, problem.size)
    return float(np.median(times["masked"] / times["plain"]))


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    given = parser().parse_args(argv)
    if given.yale is not None and not given.yale.exists():
        parser().error(f"expected --yale to name a file or folder; got {given.yale}")
    problems = [generated(30, 40, 6, 3, name="tiny")] if given.tiny else [digits(), yale(given.yale)]
    rows = []
    for problem in problems:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DeadComponentsWarning)
            for grouped, seed in product((True, False), range(given.seeds)):
                found = scores(problem, grouped, given.share, seed, given.sweeps, given.draws)
                name = "label-driven" if grouped else "without groups"
                rows.append({"problem": problem.size, "prior": name, "seed": seed, **found})
        ratios = [sweep_ratio(problem, given.share, accelerate) for accelerate in (False, True)]
        print(f"{problem.size}: a sweep with a mask takes {ratios[0]:.2f} of a plain one, accelerated {ratios[1]:.2f}")
    print(f"\nlog predictive density of a hidden entry, {given.share:.0%} hidden, {given.sweeps} sweeps")
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.4f}".format))
    return 0


if __name__ == "__main__":
    sys.exit(main())
