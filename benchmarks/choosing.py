"""Does `choose_rank` find K? Data are drawn from the model with five components; a table says how often it is found.

python benchmarks/choosing.py                # ten draws of every size: a quarter of an hour on two cores
python benchmarks/choosing.py --draws 2
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from gsnmf import choose_rank

TRUE_K, RANKS = 5, range(2, 11)
SIZES = {  # features, samples, mean count
    "as it should be": (40, 80, 6.0),
    "few counts": (40, 80, 0.3),
    "few entries": (12, 20, 6.0),
}


def draw(F: int, N: int, mean: float, seed: int, K: int = TRUE_K) -> np.ndarray:
    """X ~ Poisson(TV) from the model: t ~ Gamma(0.6, 20), v exponential, with this mean of X."""
    rng = np.random.default_rng(seed)
    T, V = rng.gamma(0.6, 20.0, (F, K)), rng.exponential(mean / (12.0 * K), (K, N))
    return rng.poisson(T @ V)


def main(argv: list[str] | None = None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description="How often choose_rank finds K = 5.", allow_abbrev=False)
    parser.add_argument("--draws", type=int, default=10, help="of every size (default: 10)")
    arguments = parser.parse_args(argv)
    rows = []
    jobs = [(name, seed) for name in SIZES for seed in range(arguments.draws)]
    for name, seed in tqdm(jobs, unit="draw", disable=None):
        F, N, mean = SIZES[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a rank is asked for, not the last digits of a bound
            choice = choose_rank(draw(F, N, mean, seed), RANKS, seed=seed, progress_bar=False, max_steps=500)
        rows.append((f"{name}: {F}×{N}, mean {mean:g}", choice.rank, choice.best))
    table = pd.DataFrame(rows, columns=["data", "rank", "best"])
    for data, found in table.groupby("data", sort=False):
        for how in ("rank", "best"):
            near = (found[how] - TRUE_K).abs()
            chosen = " ".join(map(str, found[how]))
            print(f"{data}   {how}: 5 ± 1 in {(near <= 1).sum()} of {len(near)}, 5 in {(near == 0).sum()}: {chosen}")
    return table


if __name__ == "__main__":
    main()
