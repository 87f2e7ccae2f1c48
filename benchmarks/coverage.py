"""How often do 90 % intervals hold the truth? Mean field, linear response and Gibbs on data drawn from the model.

Data sets are those of `gsnmf crosscheck`, 12 features × 18 samples in three groups, one component bound to each, with
new T, V and λ each. Asked for: entries of TV, the proportion of a component in a sample, and log λ/Σt of every
component and group. Intervals of variational fits are normal, Gamma or Beta quantiles with the mean and standard
deviation of the row; those of Gibbs are quantiles of its draws.

    python benchmarks/coverage.py --sets 100
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from gsnmf.crosscheck.run import example
from gsnmf.inference import cavi, linear_response, mcmc
from gsnmf.inference.supports import SUPPORTS, within
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Priors

PROB = 0.9


def entries(q: Any) -> Any:
    """TV."""
    return q.T.mean @ q.V.mean


def shares(q: Any) -> Any:
    """The proportion of each component in the expected counts of each sample."""
    counts = q.V.mean * q.T.mean.sum(axis=0)[:, None]
    return counts / counts.sum(axis=0)


def rates(q: Any) -> Any:
    """log λ/Σt."""
    return q.lam.log_mean - jnp.log(q.T.mean.sum(axis=0))[:, None]


ASKED = {"TV": (entries, "positive"), "share": (shares, "unit"), "log λ": (rates, "real")}


def of_draws(T: np.ndarray, V: np.ndarray, lam: np.ndarray) -> dict[str, np.ndarray]:
    """The same of draws, draws × rows × columns, or of the truth."""
    total = T.sum(axis=-2)[..., None]
    counts = V * total
    return {"TV": T @ V, "share": counts / counts.sum(axis=-2, keepdims=True), "log λ": np.log(lam / total)}


def truth(seed: int) -> dict[str, np.ndarray]:
    """What the data of `example(seed)` were drawn from."""
    rng = np.random.default_rng(seed)
    _, priors = example(seed)
    T = rng.gamma(*priors.dictionary, size=(12, 3))
    lam = rng.gamma(*priors.coefficients.rate)
    return of_draws(T, rng.exponential(1 / np.asarray(lam)[:, np.repeat(np.arange(3), 6)]), lam)


def intervals(data: Data, priors: Priors, seed: int, sweeps: int, exact: bool) -> dict[str, dict[str, np.ndarray]]:
    """Intervals by method and quantity, with a last axis of length 2."""
    tails = np.array([(1 - PROB) / 2, (1 + PROB) / 2])
    with quiet():
        fit = cavi.run(data, priors, key=jax.random.key(seed), init="groups", max_steps=3000, tol=1e-10)
        refined = cavi.refine(fit, data, max_steps=1000, tol=1e-12)
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, result in {"CAVI": fit, "refined": refined}.items():
        response = linear_response(result, data)
        for quantity, (f, support) in ASKED.items():
            plain = response.mean(f)
            for how, mean, sd in (
                ("mean field", plain, response.mean_field_sd(f)),
                ("linear response", plain, response.sd(f)),
                (
                    "linear response, corrected",
                    within(support, plain, response.mean(f, corrected=True)),
                    response.sd(f),
                ),
            ):
                ends = SUPPORTS[support](tails, mean[..., None], sd[..., None])
                found.setdefault(f"{name}, {how}", {})[quantity] = ends
    if not exact:
        return found
    options: dict[str, Any] = {"num_warmup": 500, "num_samples": sweeps, "thinning": 4, "num_chains": 2}
    chains = mcmc.run_gibbs(data, priors, key=jax.random.key(seed), init="groups", progress_bar=False, **options)
    draws = {site: np.asarray(x, float) for site, x in chains.get_samples().items()}
    values = of_draws(draws["T"], draws["V"], draws["lam"])
    found["Gibbs"] = {name: np.moveaxis(np.quantile(x, tails, axis=0), 0, -1) for name, x in values.items()}
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100, help="data sets (default %(default)s)")
    parser.add_argument(
        "--sweeps", type=int, default=4000, help="Gibbs sweeps of each of two chains (default %(default)s)"
    )
    parser.add_argument("--exact", type=int, help="data sets with Gibbs, which takes most of the time (default: all)")
    options = parser.parse_args()
    exact = options.sets if options.exact is None else options.exact
    jax.config.update("jax_enable_x64", True)
    rows: list[dict[str, Any]] = []
    for seed in tqdm(range(options.sets)):
        data, priors = example(seed)
        true = truth(seed)
        for method, found in intervals(data, priors, seed, options.sweeps, seed < exact).items():
            for quantity, ends in found.items():
                held = (true[quantity] >= ends[..., 0]) & (true[quantity] <= ends[..., 1])
                rows.append({"method": method, "quantity": quantity, "covered": held.mean()})
    table = pd.DataFrame(rows).groupby(["method", "quantity"], sort=False).covered.agg(["mean", "sem"])
    shown = (100 * table).round(1).apply(lambda row: f"{row['mean']} ± {row['sem']}", axis=1).unstack()
    print(f"Coverage of {100 * PROB:.0f} % intervals in per cent, {options.sets} data sets, ± standard error over sets")
    if exact < options.sets:
        print(f"Gibbs: the first {exact} of them")
    print(shown.loc[list(dict.fromkeys(r["method"] for r in rows))].to_string())


if __name__ == "__main__":
    main()
