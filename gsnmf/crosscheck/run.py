"""Cross-check of five algorithms by the same invariants of one small problem."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from ..inference import collapsed_bound, psis
from ..inference.arviz_compat import diagnose
from ..journal import Journal, piece_key
from ..model import Data, Gamma, GroupSparse, Priors, as_data, label_driven
from ..model.checks import whole
from ..model.problem import Problem, has_counts
from ..model.types import Array
from ..reading import PathLike
from .algorithms import HOW, Answer, Work, answer_by, fit_of, keep, restore
from .invariants import Invariant, choose, own_groups

FEWEST = {"draws": 50, "chains": 2}  # R-hat compares chains, the tail of k̂ and of ESS needs some draws
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Crosscheck(NamedTuple):
    """The results of all algorithms, and their summary.

    invariants: the invariants compared.
    answers: results by algorithm.
    summary: a row for every algorithm and invariant: mean, sd, quantiles, mcse, r_hat, ess_bulk, ess_tail, and sd_ratio
        and shift, the standard deviation and the distance of the mean in units of the reference's deviation.
    diagnostics: a row for every algorithm: bounds, log_evidence, k_hat, seconds, and r_hat, ess_bulk, ess_tail and
        ess_per_second of its worst invariant.
    reference: the algorithm that the others are compared with: Gibbs, or NUTS where X has fractions.
    """

    invariants: list[Invariant]
    answers: dict[str, Answer]
    summary: pd.DataFrame
    diagnostics: pd.DataFrame
    reference: str


def example(seed: int = 0) -> tuple[Data, Priors]:
    """Draw a problem from the model: 12 features × 18 samples in three groups, one component bound to each.

    Args:
        seed: seed of the draw, which is NumPy's, so that it is the same in either precision.
    """
    rng, groups = np.random.default_rng(seed), np.repeat(np.arange(3), 6)
    rates = label_driven(per_group=1, num_groups=3, small=3.0, large=30.0, scale=0.2)
    dictionary = Gamma(1.0, 5.0)
    T = rng.gamma(*dictionary, size=(12, 3))
    lam = rng.gamma(*rates)
    V = rng.exponential(1 / np.asarray(lam)[:, groups])
    return as_data(rng.poisson(T @ V), np.array(["a", "b", "c"])[groups]), Priors(dictionary, GroupSparse(rates))


def check_sizes(draws: int, chains: int) -> None:
    """Raise if there are fewer draws or chains than the diagnostics need."""
    for name, value in {"draws": draws, "chains": chains}.items():
        whole(name, value, FEWEST[name])


def crosscheck(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    init: str | None = None,
    lam_start: str = "prior",
    draws: int = 1000,
    chains: int = 4,
    announce: Callable[[str], object] = lambda line: None,
    progress_bar: bool = False,
    checkpoint: PathLike | Journal | None = None,
) -> Crosscheck:
    """Run all algorithms, without Gibbs where X has fractions, and compare their posteriors of invariants.

    Args:
        data: as made by `as_data`; small, or NUTS takes hours.
        priors: the priors of T and V.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open.
        init: initialisation of T and V, as in `cavi.run`; by default "groups" if each component has a group, else
            "random": random starts lead algorithms, and chains of one algorithm, into different modes.
        lam_start: initialisation of λ in CAVI, "prior" mean or "shape".
        draws: number of draws kept of each chain, after as many of warm-up; Gibbs makes `SWEEPS` sweeps for each.
        chains: number of chains of NUTS and of Gibbs.
        announce: called with a sentence before each algorithm begins.
        progress_bar: whether SVI and the chains show a progress bar.
        checkpoint: a file that keeps the result of every algorithm as soon as it is known. After an interruption, a
            call with the same file does not compute them again; remove it when the result is saved.
    """
    check_sizes(draws, chains)
    names = [name for name in HOW if has_counts(data) or name != "Gibbs"]
    problem = Problem(data, priors, rank)
    init = init or ("random" if own_groups(data, priors, problem.rank) is None else "groups")
    keys = dict(zip([*HOW, "draws", "bounds"], jax.random.split(key, len(HOW) + 2), strict=True))
    options = {"init": init, "lam_start": lam_start, "draws": draws, "chains": chains}
    work = Work(data, priors, problem, keys, options, progress_bar)
    journal = checkpoint if isinstance(checkpoint, Journal) else Journal(checkpoint)
    seed = jax.random.key_data(key).tolist()
    answers: dict[str, Answer] = {}
    for number, name in enumerate(names, 1):
        of = piece_key(data, priors, options | {"algorithm": name, "rank": problem.rank, "key": seed})
        kept = ", read from the checkpoint" if of in journal else ""
        announce(f"{number} of {len(names)}: {name}, {HOW[name]}{kept}")
        if journal.path is None:
            answers[name] = answer_by(name, work, answers)
        else:
            found = journal.piece(of, lambda name=name: keep(answer_by(name, work, answers), data.names))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            answers[name] = restore(found)
    announce("comparing")
    asked, reference = choose(data, priors, fit_of(answers["CAVI"]).posterior), names[-1]
    summary = summarise({name: answer.draws for name, answer in answers.items()}, reference)
    return Crosscheck(asked, answers, summary, _diagnose(answers, summary, problem, keys["bounds"]), reference)


def summarise(draws: dict[str, dict[str, np.ndarray]], reference: str) -> pd.DataFrame:
    """Return the table of every algorithm and invariant; see `Crosscheck`.

    Args:
        draws: chains × draws by algorithm and invariant.
        reference: the algorithm whose standard deviations are the unit.
    """
    rows = []
    for algorithm, values in draws.items():
        for name, x in values.items():
            base = draws[reference][name]
            unit = float(base.std()) or np.nan
            row: dict[str, Any] = {"algorithm": algorithm, "invariant": name, "mean": x.mean(), "sd": x.std()}
            row |= {f"q{100 * p:.0f}": np.quantile(x, p) for p in QUANTILES}
            if len(x) > 1:
                row |= diagnose(x)._asdict()
            else:  # independent draws of a q that is known: nothing to diagnose
                row |= {"r_hat": np.nan, "ess_bulk": np.nan, "ess_tail": np.nan, "mcse": x.std() / np.sqrt(x.size)}
            rows.append(row | {"sd_ratio": x.std() / unit, "shift": (x.mean() - base.mean()) / unit})
    return pd.DataFrame(rows).set_index(["algorithm", "invariant"])


def _diagnose(answers: dict[str, Answer], summary: pd.DataFrame, problem: Problem, key: Array) -> pd.DataFrame:
    """Return the table of every algorithm; all bounds use the same key, so that differences have less noise."""
    rows = {}
    for name, answer in answers.items():
        own, row = summary.loc[name], dict.fromkeys(["augmented", "collapsed", "collapsed_error", "k_hat"], np.nan)
        row["log_evidence"] = answer.log_evidence
        if answer.fit is not None:
            bound = collapsed_bound(answer.fit, problem, key=key, num_samples=4000)
            row |= {"collapsed": bound.value, "collapsed_error": bound.error}
            row["k_hat"] = psis(answer.fit, problem, key=key, num_samples=4000)
            if answer.fit.bound == "augmented":
                row["augmented"] = float(answer.fit.elbo[-1])
        row |= {"r_hat": own["r_hat"].max(), "ess_bulk": own["ess_bulk"].min(), "ess_tail": own["ess_tail"].min()}
        row |= {"ess_per_second": row["ess_bulk"] / answer.seconds, "seconds": answer.seconds}
        rows[name] = row | {"divergences": answer.divergences if name == "NUTS" else np.nan}
    return pd.DataFrame(rows).T.rename_axis("algorithm")


def run_crosscheck(
    out: Path,
    problem: tuple[Data, Priors, int] | None = None,
    *,
    seed: int = 0,
    draws: int = 1000,
    chains: int = 4,
    init: str | None = None,
    lam_start: str = "prior",
    checkpoint: PathLike | Journal | None = None,
) -> Crosscheck:
    """Run the cross-check, print the report, and write tables and pictures into a folder.

    Args:
        out: the folder, created if it does not exist.
        problem: data, priors and rank; the `example` by default.
        seed: seed of the example and of every algorithm.
        draws: as in `crosscheck`.
        chains: as in `crosscheck`.
        init: as in `crosscheck`.
        lam_start: as in `crosscheck`.
        checkpoint: as in `crosscheck`.
    """
    from .plots import save_figures
    from .report import describe, report, save_tables, size_warning

    data, priors, rank = (*example(seed), 3) if problem is None else problem

    def announce(line: str) -> None:
        print(f"gsnmf: {line}", file=sys.stderr, flush=True)

    warning = size_warning(data, rank, draws, chains)
    if warning:
        announce(warning)
    if not has_counts(data):
        announce("X has fractions, which Gibbs cannot allocate: the others remain, and NUTS is the reference")
    options: dict[str, Any] = {"draws": draws, "chains": chains, "init": init, "lam_start": lam_start}
    options["checkpoint"] = checkpoint
    found = crosscheck(
        data,
        priors,
        key=jax.random.key(seed),
        rank=rank,
        announce=announce,
        progress_bar=sys.stderr.isatty(),
        **options,
    )
    about = describe(data, rank, drawn=problem is None, seed=seed, draws=draws, chains=chains)
    print(report(found, about))
    for path in [*save_tables(out, found, about), *save_figures(out, found)]:
        print(f"  {path}")
    return found
