"""Does a component find its features if a fifth of them is named? Counts from six programmes, one of them rare.

200 features, 150 samples. Five programmes are dense and in every sample; the sixth has 25 features and is in 15 % of
the samples, with as many counts there as another one (so 15 % of the counts of another one in all). The fit has
five components, fewer than there are programmes, as with real data (`--rank`). Five of the 25 features are named, by
chance.

    recovered   of the 20 features of the rare programme that are not named, the proportion among the 20 largest
                features of the component that are not named; without seeds, of the best component
    found       the proportion of starts in which that is at least 0.8
    wrong       five features named by chance, from all 200: the proportion of T's mass on them in the component

    python benchmarks/seeds.py --draws 20 --starts 2
    python benchmarks/seeds.py --first 1000 --draws 40 --models "no seeds" "strength 1000"  # fresh draws
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import pandas as pd
from tqdm import tqdm

from gsnmf.inference import cavi
from gsnmf.inference.warning import quiet
from gsnmf.model import Gamma, Priors, as_data, matching, seeded

NUM_FEATURES, NUM_SAMPLES, OWN, NAMED = 200, 150, 25, 5
MODELS = {
    "no seeds": ("scale", 1.0), "strength 100": ("scale", 100.0), "strength 1000": ("scale", 1000.0),
    "strength 3000": ("scale", 3000.0), "strength 10000": ("scale", 10000.0), "3000, in the shape": ("shape", 3000.0),
}  # fmt: skip


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw counts; return them, the features of the rare programme, and those of them that are named."""
    rng = np.random.default_rng(seed)
    T = rng.gamma(0.3, 1.0, (NUM_FEATURES, 6))
    own = rng.choice(NUM_FEATURES, OWN, replace=False)
    T[:, -1] = 0
    T[own, -1] = rng.gamma(2.0, 1.0, OWN)
    V = 300 * rng.exponential(size=(6, NUM_SAMPLES))
    V[-1] *= rng.random(NUM_SAMPLES) < 0.15
    return rng.poisson(T / T.sum(axis=0) @ V).astype(float), own, own[:NAMED]


def dictionary(named: np.ndarray, carried_by: str, strength: float, rank: int) -> Gamma:
    """Return the prior on T with its first component seeded, in its scale as `seeded` does it, or in its shape."""
    prior = seeded({"rare": named.tolist()}, range(NUM_FEATURES), rank=rank, strength=strength)
    return prior if carried_by == "scale" else Gamma(prior.a * prior.b / 20.0, np.full_like(prior.b, 20.0))


def recovered(t: np.ndarray, own: np.ndarray, named: np.ndarray) -> float:
    """Return the proportion of features that are not named among the largest ones of a component."""
    others = np.setdiff1d(np.arange(NUM_FEATURES), named)
    largest = others[np.argsort(-t[others])[: OWN - NAMED]]
    return float(np.isin(largest, own).mean())


def measured(seed: int, starts: int, models: dict[str, tuple[str, float]], rank: int = 5) -> list[dict[str, object]]:
    """Return one row for each model and start."""
    X, own, named = drawn(seed)
    data, rows = as_data(X), []
    wrong = np.random.default_rng(seed + 10_000).choice(NUM_FEATURES, NAMED, replace=False)
    for name, (carried_by, strength) in models.items():
        for start in range(starts):
            columns = []
            for seeds in (named, wrong):
                T = dictionary(seeds, carried_by, strength, rank)
                with quiet():
                    key = jax.random.key(100 * seed + start)
                    fit = cavi.run(data, Priors(T, matching(data, T, rank)), key=key)
                columns.append(np.asarray(fit.posterior.T.mean, float))
                if strength == 1:
                    break
            found = columns[0].T if strength == 1 else columns[0].T[:1]
            row = {"model": name, "recovered": max(recovered(t, own, named) for t in found)}
            rows.append(row | ({} if strength == 1 else {"wrong": columns[1][wrong, 0].sum() / columns[1][:, 0].sum()}))
    return rows


def main() -> None:
    """Print means over draws and starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw; the others follow (default: 0)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--rank", type=int, default=5)
    options = parser.parse_args()
    models = {name: MODELS[name] for name in options.models}
    seeds = tqdm(range(options.first, options.first + options.draws), unit="draw")
    table = pd.DataFrame([row for seed in seeds for row in measured(seed, options.starts, models, options.rank)])
    table.insert(2, "found", (table.recovered >= 0.8).astype(float))
    print(table.groupby("model", sort=False).mean().round(3).to_string())


if __name__ == "__main__":
    main()
