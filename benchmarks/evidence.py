"""Is the evidence right, and does it find the model that data were drawn from?

First, data drawn from the model: estimates from below and from above, which must meet, and both bounds of a fit.
12 × 18 counts with 3 components are `crosscheck`'s example, 30 × 60 with 6 components the model "own" of recovery.py.
Then the four models of recovery.py: every one in turn is the true one, and its evidence should be the highest.

    python benchmarks/evidence.py --draws 2
    python benchmarks/evidence.py --only ranking --draws 10 --particles 128
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import jax
import numpy as np
from recovery import drawn, four_models
from tqdm import tqdm

from gsnmf.crosscheck import example
from gsnmf.inference import cavi, collapsed_bound, evidence, upper_evidence
from gsnmf.inference.gibbs import Sites, draw_prior
from gsnmf.model import Data, Priors, Problem


def simulated(shape: Data, priors: Priors, seed: int) -> tuple[Data, Sites]:
    """X of this shape drawn from the model, and the T, V and λ that it was drawn with."""
    z = draw_prior(jax.random.key(seed), Problem(shape, priors))
    mean = np.asarray(z["T"], float) @ np.asarray(z["V"], float)
    return shape._replace(X=np.random.default_rng(seed).poisson(mean).astype(float)), z


def both_sides(draws: int, particles: int, filters: int) -> Iterator[str]:
    """Estimates from below and above, and the bounds."""
    large, models, _ = four_models()
    for name, (shape, priors) in {"12×18, K=3": example(), "30×60, K=6": (large, models["own"])}.items():
        for seed in range(draws):
            data, truth = simulated(shape, priors, seed)
            options = {"key": jax.random.key(seed), "num_particles": particles, "num_filters": filters}
            began = time.perf_counter()
            lower = evidence(data, priors, **options)
            seconds = time.perf_counter() - began
            upper = upper_evidence(data, priors, truth, **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some do not converge to 1e-6 in 300 sweeps
                fits = cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(seed), 5))
            fit = max(fits, key=lambda fit: fit.elbo[-1])
            collapsed = collapsed_bound(fit, data, key=jax.random.key(seed))
            yield (
                f"{name}, draw {seed}: {lower.value:.1f} ± {lower.error:.1f} from below ({len(lower.stages)} stages, "
                f"{seconds:.0f} s), {upper.value:.1f} ± {upper.error:.1f} from above; bounds: collapsed "
                f"{collapsed.value:.1f}, augmented {fit.elbo[-1]:.1f}"
            )


def ranking(draws: int, particles: int, filters: int) -> Iterator[str]:
    """How often the true model of four has the highest evidence, and how far it is ahead of the next."""
    shape, models, share = four_models()
    for true in models:
        ahead = []
        for seed in tqdm(range(draws), desc=true, unit="draw"):
            data = drawn(shape, models[true], share, seed)
            options = {"key": jax.random.key(seed), "num_particles": particles, "num_filters": filters}
            found = {name: evidence(data, priors, **options, num_stages=200).value for name, priors in models.items()}
            ahead.append(found.pop(true) - max(found.values()))
        yield f"{true:8s} first in {sum(a > 0 for a in ahead)} of {draws}, ahead by {np.round(ahead, 1).tolist()}"


PARTS = {"both sides": both_sides, "ranking": ranking}


def main() -> None:
    """Both parts, or one."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--draws", type=int, default=10, help="data sets of each kind")
    parser.add_argument("--particles", type=int, default=256, help="of every filter")
    parser.add_argument("--filters", type=int, default=4, help="independent filters")
    parser.add_argument("--only", choices=[name.split()[0] for name in PARTS], help="one part: both or ranking")
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name.split()[0]):
            for line in part(options.draws, options.particles, options.filters):
                print(line, flush=True)


if __name__ == "__main__":
    main()
