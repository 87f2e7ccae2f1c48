"""Is elpd by `leave_one_out` that of exact refits?

The reference is Gibbs sampling without each sample in turn, which starts from a fit, and the log mean of the integrated
density of the sample. It is compared, on three problems drawn from the model, with:

    fit             CAVI, fitted again without each sample (the default for a fit)
    fit, weighted   the same fit without refits, by Pareto-smoothed importance sampling
    Gibbs           chains of all samples, by Pareto-smoothed importance sampling (the default for chains)
    Gibbs, refit    the same, with samples of k̂ above 0.7 refitted: their values are those of the reference
    conditional     the same chains given each sample's coefficients, by `az.loo`

The largest error of a sample is that among samples with k̂ below 0.7.

    python benchmarks/leave_one_out.py
    python benchmarks/leave_one_out.py --problems example
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np
import pandas as pd
from numpyro.infer import MCMC
from scipy.special import logsumexp

from gsnmf.crosscheck.run import example
from gsnmf.inference import Fit, cavi, leave_one_out, mcmc, to_arviz
from gsnmf.inference.arviz_compat import arviz_loo
from gsnmf.inference.draws import all_draws, source_of
from gsnmf.inference.pointwise import integrated_likelihood
from gsnmf.inference.refits import without
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Gamma, GroupSparse, Priors, as_data, hide, label_driven

CHAINS = {"num_warmup": 300, "num_samples": 500, "num_chains": 2, "progress_bar": False}


def twelve_per_group(seed: int = 1) -> tuple[Data, Priors]:
    """12 features × 24 samples in two groups of twelve, two components for each."""
    rng, groups = np.random.default_rng(seed), np.repeat(np.arange(2), 12)
    rates = label_driven(per_group=2, num_groups=2, small=3.0, large=30.0, scale=0.2)
    T, lam = rng.gamma(1.0, 5.0, size=(12, 4)), rng.gamma(*rates)
    V = rng.exponential(1 / np.asarray(lam)[:, groups])
    return as_data(rng.poisson(T @ V), groups), Priors(Gamma(1.0, 5.0), GroupSparse(rates))


def without_groups(seed: int = 2) -> tuple[Data, Priors]:
    """15 features × 20 samples, no groups, three components, and a tenth of the entries hidden."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, 6.0, size=(15, 3)) @ rng.gamma(1.0, 1.0, size=(3, 20)))
    return hide(as_data(X), 0.1, seed=seed), Priors(Gamma(np.full((15, 3), 0.5), 6.0), Gamma(1.0, 1.0))


PROBLEMS = {"example": example, "twelve per group": twelve_per_group, "no groups, hidden": without_groups}


def exact(data: Data, priors: Priors, fit: Fit) -> np.ndarray:
    """Return elpd and its standard error by sample, 2 × samples, from chains without each sample."""
    found = []
    for n in range(data.num_samples):
        chains = mcmc.run_gibbs(without(data, n), priors, key=jax.random.key(100 + n), start=fit, **CHAINS)
        source = source_of(chains, data, None, 0)
        options: dict[str, Any] = {"key": jax.random.key(3), "num_integration": 128, "samples": [n]}
        log_p = integrated_likelihood(all_draws(source, jax.random.key(2)), source.problem, **options).log_p[..., 0]
        total = logsumexp(log_p) - np.log(log_p.size)
        means = np.exp(log_p - total).reshape(20, -1).mean(axis=1)  # of batches of 50 draws, nearly independent
        found.append((total, means.std(ddof=1) / np.sqrt(20)))
    return np.array(found).T


def conditional(chains: MCMC, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Return elpd and k̂ given each sample's coefficients."""
    found = arviz_loo(to_arviz(chains, data, log_likelihood="sample", posterior_predictive=False))
    return found.elpd, found.pareto_k


def judge(name: str, restarts: int = 5) -> pd.DataFrame:
    """Return a row for every way of leaving out."""
    data, priors = PROBLEMS[name]()
    with quiet():
        fits = cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(0), restarts))
    fit = max(fits, key=lambda fit: fit.elbo[-1])
    chains = mcmc.run_gibbs(data, priors, key=jax.random.key(1), start=fit, **CHAINS | {"num_samples": 1000})
    reference, errors = exact(data, priors, fit)
    ways: dict[str, Any] = {
        "fit": lambda: leave_one_out(fit, data),
        "fit, weighted": lambda: leave_one_out(fit, data, refit=False),
        "Gibbs": lambda: leave_one_out(chains, data, num_samples=2000),
    }
    rows = {"exact": {"elpd": reference.sum(), "error": np.sqrt((errors**2).sum())}}
    for way, made in ways.items():
        start = time.perf_counter()
        loo = made()
        rows[way] = _row(loo.elpd, loo.pareto_k, reference) | {"seconds": time.perf_counter() - start}
        if way == "Gibbs":
            mended = np.where(loo.unreliable, reference, loo.elpd)
            rows["Gibbs, refit"] = _row(mended, np.zeros(len(mended)), reference)
    rows["conditional"] = _row(*conditional(chains, data), reference)
    return pd.DataFrame.from_dict(rows, orient="index")


def _row(elpd: np.ndarray, k: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    good = k <= 0.7
    largest = np.abs(elpd - reference)[good].max() if good.any() else np.nan
    return {"elpd": elpd.sum(), "off": (elpd - reference).sum(), "largest": largest, "bad k": int((~good).sum())}


def main() -> None:
    """Print a table for each problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    for name in parser.parse_args().problems:
        print(f"{name}\n{judge(name).round(2).to_string(na_rep='')}\n", flush=True)


if __name__ == "__main__":
    main()
