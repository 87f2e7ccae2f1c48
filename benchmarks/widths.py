"""Widths, means and sensitivities of variational fits compared with exact draws, and what they cost.

digits      64×200 digits, K=10: entries of TV, the own share and log λ, against Gibbs; bias of CAVI, refined, corrected
sensitivity derivatives by hyperparameters compared with refits with them moved by ±1 %
cost        Hessian products and seconds of a statistic's width, in sweeps, on Yale's shape (or Yale, --yale FILE)
svi         the collapsed bound after refining compared with generic SVI from the same fit

python benchmarks/widths.py --only digits sensitivity
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro.optim import Adam
from problems import digits, yale

from gsnmf.crosscheck.run import example
from gsnmf.inference import Fit, cavi, collapsed_bound, linear_response, mcmc, svi
from gsnmf.inference.warning import quiet
from gsnmf.model import Data, Gamma, GroupSparse, Priors, label_driven


def small_digits() -> tuple[Data, Priors]:
    """64×200 digits with a prior under which components of other groups may help."""
    rates = label_driven(1, 10, small=3.0, large=30.0, scale=1.0)
    return digits(samples=200, per_group=1).data, Priors(Gamma(0.6, 20.0), GroupSparse(rates))


def counts(q: Any) -> Any:
    """E[v_iτ] Σ_ν E[t_νi], components × samples."""
    return q.V.mean * q.T.mean.sum(axis=0)[:, None]


def own_share(data: Data) -> Callable[[Any], Any]:
    """The proportion of Σ TV in components' own groups; component i belongs to group i."""
    own = jnp.asarray(np.asarray(data.membership).T)
    return lambda q: (counts(q) * own).sum() / counts(q).sum()


def own_rates(q: Any) -> Any:
    """E[log λ_ii]."""
    return jnp.diag(q.lam.log_mean)


def entries(q: Any) -> Any:
    """TV."""
    return q.T.mean @ q.V.mean


def best_of(run: Callable[[], Any], repeats: int = 5) -> tuple[Any, float]:
    """The result and the median of seconds, without the first call, which compiles."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        found = run()
        jax.block_until_ready(getattr(found, "posterior", found))
        times.append(time.perf_counter() - begin)
    return found, float(np.median(times))


def beside_gibbs(data: Data, priors: Priors, sweeps: int, corrected: bool, title: str) -> None:
    """Print ratios of widths and distances of means, in Gibbs's standard deviations."""
    with quiet():
        fit, base = best_of(
            lambda: cavi.run(data, priors, key=jax.random.key(0), init="groups", max_steps=3000, tol=1e-8)
        )
        refined, seconds = best_of(lambda: cavi.refine(fit, data))
    own = own_share(data)
    member = np.asarray(data.membership).T
    keep: dict[str, Any] = {
        "own": lambda z: (lambda a: (a * member).sum() / a.sum())(z["V"] * z["T"].sum(axis=0)[:, None]),
        "rate": lambda z: jnp.log(jnp.diag(z["lam"])),
        "TV": lambda z: z["T"] @ z["V"],
    }
    begin = time.perf_counter()
    chains = mcmc.run_gibbs(
        data, priors, key=jax.random.key(1), start=fit, num_warmup=sweeps // 4, num_samples=sweeps, thinning=5,
        num_chains=2, progress_bar=False, keep=keep,
    )  # fmt: skip
    exact = {name: np.asarray(x, float) for name, x in chains.get_samples().items()}
    print(
        f"{title}: CAVI {fit.num_steps} sweeps {base:.3f} s; refined in {seconds:.3f} s, {seconds / base:.1f} × CAVI; ",
        end="",
    )
    print(f"Gibbs {sweeps} sweeps × 2 in {time.perf_counter() - begin:.0f} s, own share {exact['own'].mean():.4f}")
    biases = {}
    for name, result in {"CAVI": fit, "refined": refined}.items():
        response = linear_response(result, data)
        for how in ("fit", "corrected")[: 1 + corrected]:
            means = [response.mean(f, corrected=how == "corrected") for f in (own, own_rates)]
            shifts = [
                (m - exact[k].mean(axis=0)) / exact[k].std(axis=0) for m, k in zip(means, ("own", "rate"), strict=True)
            ]
            biases[name, how] = np.append(shifts[0], shifts[1])
            print(f"  {name:8} means {how:9}: own share {shifts[0]:+.2f} sd, log λ_ii {np.round(shifts[1], 2)} sd")
        ratio = response.sd(entries) / exact["TV"].std(axis=0)
        crude = response.mean_field_sd(entries) / exact["TV"].std(axis=0)
        print(
            f"  {name:8} sd ratio of TV, 10/50/90 %: linear response {np.quantile(ratio, [0.1, 0.5, 0.9]).round(3)}, ",
            end="",
        )
        print(f"mean field {np.quantile(crude, [0.1, 0.5, 0.9]).round(3)}")
        rates = (response.sd(own) / exact["own"].std(), response.sd(own_rates) / exact["rate"].std(axis=0))
        print(f"  {name:8} sd ratio: own share {rates[0]:.3f}, log λ_ii {np.round(rates[1], 2)}")
    large = np.abs(biases["CAVI", "fit"]) > 0.5
    for (name, how), shift in biases.items():
        left = np.abs(shift[large] / biases["CAVI", "fit"][large])
        print(
            f"  bias left of CAVI's where that is above 0.5 sd, {name}, {how}: {left.round(2)}, mean {left.mean():.2f}"
        )


def sensitivities() -> None:
    """Print derivatives next to central differences of refits, ±1 %, in standard deviations of the statistic."""
    data, priors = example(0)
    rates = priors.coefficients.rate
    a, b = (np.broadcast_to(x, (3, 3)).copy() for x in rates)
    base = Priors(Gamma(np.full((12, 3), 1.0), np.full((12, 3), 5.0)), GroupSparse(Gamma(a, b)))
    asked = {
        "own share": own_share(data),
        "entry": lambda q: q.T.mean[3] @ q.V.mean[:, 4],
        "log λ": lambda q: q.lam.log_mean[0, 0],
    }
    moved = [
        ("T.a", 0, 0),
        ("T.a", 5, 1),
        ("T.b", 2, 2),
        ("T.b", 7, 0),
        ("λ.a", 0, 0),
        ("λ.a", 0, 1),
        ("λ.a", 2, 1),
        ("λ.b", 0, 0),
        ("λ.b", 1, 1),
        ("λ.b", 1, 2),
    ]

    def fitted(priors: Priors, start: Any) -> Fit:
        with quiet():
            fit = cavi.run(data, priors, key=jax.random.key(0), start=start, init="groups", max_steps=5000, tol=1e-14)
            return cavi.refine(fit, data, max_steps=3000, tol=1e-15)

    fit = fitted(base, None)
    response = linear_response(fit, data)
    rows = []
    found = {name: (response.sensitivity(f), float(response.sd(f))) for name, f in asked.items()}
    for site, i, j in moved:
        ends = []
        for sign in (1, -1):
            dictionary, rate = (Gamma(*(np.array(x) for x in g)) for g in (base.dictionary, base.coefficients.rate))
            (dictionary if site[0] == "T" else rate)[site[2] == "b"][i, j] *= 1 + 0.01 * sign
            ends.append(fitted(Priors(dictionary, GroupSparse(rate)), fit.posterior).posterior)
        value = getattr(base.dictionary if site[0] == "T" else base.coefficients.rate, site[2])[i, j]
        for name, f in asked.items():
            slopes, sd = found[name]
            slope = getattr(slopes.dictionary if site[0] == "T" else slopes.coefficients.rate, site[2])[i, j]
            refit = float(f(ends[0]) - f(ends[1])) / (0.02 * value)
            rows.append(
                {"by": f"{site}[{i},{j}]", "of": name, "derivative": slope / sd * value, "refits": refit / sd * value}
            )
    table = pd.DataFrame(rows)
    table["difference"] = (table.derivative - table.refits).abs()
    table["relative"] = table.difference / table.refits.abs()
    table["holds"] = (table.relative <= 0.03) | (table.difference * 0.01 <= 1e-3)
    print("Change of E[f] by a change of log α, in sd of f\n" + table.round(5).to_string())
    print(
        f"largest relative difference {table.relative.max():.4f}; "
        f"within 3 % or 1e-3 sd: {table.holds.sum()} of {len(table)}"
    )


def cost(file: Path | None) -> None:
    """Print products and seconds of widths on Yale's shape, in both precisions.

    The fit is made in double precision: in single precision it stops before an optimum.
    """
    problem = yale(file)
    data, priors = problem.data, problem.priors
    with jax.enable_x64(True), quiet():
        fit = cavi.run(data, priors, max_steps=4000, tol=1e-10, **problem.options(0))
        fit = fit._replace(posterior=jax.tree.map(np.asarray, fit.posterior))
    for wide in (False, True):
        with jax.enable_x64(wide), quiet():
            _, sweep = best_of(lambda: cavi.run(data, priors, start=fit, max_steps=50, tol=None, accelerate=False), 3)
            sweep /= 50
            refined, seconds = best_of(lambda: cavi.refine(fit, data), 1)
            print(
                f"{problem.size}, float{64 if wide else 32}: sweep {1e3 * sweep:.1f} ms; "
                f"refined in {seconds / sweep:.0f} sweeps, {refined.num_steps} steps"
            )
            asked = {
                "total": lambda q: q.T.mean.sum(axis=0) @ q.V.mean.sum(axis=1),
                "entry": lambda q: q.T.mean[10] @ q.V.mean[:, 3],
                "share": lambda q: q.V.mean[0, 2] * q.T.mean[:, 0].sum() / (q.T.mean.sum(axis=0) @ q.V.mean[:, 2]),
                "log λ": lambda q: q.lam.log_mean[0, 0],
                "profile": lambda q: q.T.mean[20, 0] / q.T.mean[:, 0].sum(),
            }
            each = tuple(asked.values())
            asked["all five"] = lambda q, each=each: jnp.stack([f(q) for f in each])
            for name, result in {"CAVI": fit, "refined": refined}.items():
                for statistic, f in asked.items():
                    response = linear_response(result, data)
                    try:
                        sd, seconds = best_of(lambda: response.sd(f), 3)  # noqa: B023
                    except ValueError as error:  # not an optimum
                        print(f"  {name:8} {statistic:9} {error}")
                        continue
                    products = response.num_products // 4
                    print(
                        f"  {name:8} {statistic:9} {products:4d} products, {seconds / sweep:5.0f} sweeps, "
                        f"sd {np.round(sd, 5)}"
                    )


def beside_svi() -> None:
    """Print collapsed bounds by Monte Carlo and times, from the same fit."""
    for title, (data, priors) in {"example(0)": example(0), "digits 64×200": small_digits()}.items():
        with quiet():
            fit = cavi.run(data, priors, key=jax.random.key(0), init="groups", max_steps=3000, tol=1e-8)
            refined, fast = best_of(lambda: cavi.refine(fit, data), 3)  # noqa: B023
            begin = time.perf_counter()
            other = svi.run(
                data, priors, key=jax.random.key(1), start=fit, num_steps=4000, optimizer=Adam(0.02), progress_bar=False
            )
            slow = time.perf_counter() - begin
        bounds = [collapsed_bound(f, data, key=jax.random.key(2), num_samples=2000) for f in (fit, refined, other)]
        values = ", ".join(
            f"{n} {b.value:.1f} ± {b.error:.1f}" for n, b in zip(("CAVI", "refined", "SVI"), bounds, strict=True)
        )
        print(f"{title}: collapsed bound {values}; refined {fast:.2f} s, SVI {slow:.1f} s, ratio {fast / slow:.4f}")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("digits", "drawn", "sensitivity", "cost", "svi"))
    parser.add_argument("--yale", type=Path, help="the Yale faces, as the paper prepares them")
    parser.add_argument(
        "--sweeps", type=int, default=6000, help="Gibbs sweeps of each of two chains (default %(default)s)"
    )
    options = parser.parse_args()
    asked = options.only or ["digits", "drawn", "sensitivity", "cost", "svi"]
    if "cost" in asked:
        cost(options.yale)
    if "svi" in asked:
        beside_svi()
    with jax.enable_x64(True):
        if "sensitivity" in asked:
            sensitivities()
        if "digits" in asked:
            beside_gibbs(*small_digits(), options.sweeps, True, "digits 64×200, K=10")
        for seed in (0, 1, 2) if "drawn" in asked else ():
            beside_gibbs(*example(seed), 4 * options.sweeps, True, f"drawn from the model, 12×18, K=3, seed {seed}")


if __name__ == "__main__":
    main()
