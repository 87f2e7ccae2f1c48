"""Does `choose_rank` find K? Data are drawn from the model with five components, and a line says how often it is found.

python benchmarks/choosing.py                # ten draws of every size: some minutes on two cores
python benchmarks/choosing.py --draws 2
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from gsnmf import choose_rank

TRUE_K, RANKS = 5, range(2, 11)
SIZES = [(40, 80, 6.0), (40, 80, 0.3), (12, 20, 6.0)]  # features, samples, mean count: enough, few counts, few entries


def draw(F: int, N: int, mean: float, seed: int, K: int = TRUE_K) -> np.ndarray:
    """X ~ Poisson(TV) from the model: t ~ Gamma(0.6, 20), v exponential, of the scale that gives X this mean."""
    rng = np.random.default_rng(seed)
    T, V = rng.gamma(0.6, 20.0, (F, K)), rng.exponential(mean / (12.0 * K), (K, N))
    return rng.poisson(T @ V)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=f"How often choose_rank finds K = {TRUE_K}.", allow_abbrev=False)
    parser.add_argument("--draws", type=int, default=10, help="of every size (default: 10)")
    draws = parser.parse_args(argv).draws
    options = {"num_splits": 2, "restarts": 2, "max_steps": 500, "progress_bar": False}
    for F, N, mean in SIZES:
        found = []
        for seed in tqdm(range(draws), unit="draw", disable=None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a rank is asked for, not a bound's last digits
                found.append(choose_rank(draw(F, N, mean, seed), RANKS, seed=seed, **options))
        for how in ("rank", "best"):
            chosen = np.array([getattr(choice, how) for choice in found])
            near = (abs(chosen - TRUE_K) <= 1).sum()
            print(
                f"{F}×{N}, mean {mean:g}: {how} is 5 ± 1 in {near} of {draws}: {' '.join(map(str, chosen))}", flush=True
            )


if __name__ == "__main__":
    main()
