"""The result of a comparison: a table, its printed form, and remarks on it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

from ..crosscheck.report import MAX_K_HAT, plus_minus

RANKED = {
    "collapsed": "collapsed_bound",
    "augmented": "augmented_bound",
    "held_out": "held_out",
    "loo": "loo",
    "conditional_loo": "conditional_loo",
}
HEADINGS = {  # in this order; a column NAME_se is printed with NAME
    "evidence": "evidence, log p(X)",
    "collapsed_bound": "collapsed bound",
    "collapsed_bound_diff": "  less the first's",
    "augmented_bound": "augmented bound",
    "paper_bound": "printed in the paper (not a valid bound)",
    "paper_bound_gap": "  its excess over the augmented",
    "held_out": "held-out log density, by entry",
    "held_out_diff": "  less the first's",
    "k_hat": "k̂ of q",
    "loo": "LOO by sample",
    "loo_diff": "  less the first's",
    "loo_weight": "  weight by stacking",
    "loo_worst_k": "  worst Pareto k",
    "loo_bad_k": "  samples with k above 0.7",
    "conditional_loo": "LOO by sample, given its coefficients",
    "conditional_loo_diff": "  less the first's",
    "conditional_loo_bad_k": "  its samples with k above 0.7",
    "divergence": "KL(X ‖ E[T] E[V])",
    "accuracy": "1-NN accuracy of new samples",
    "components": "components",
    "in_use": "  in use",
    "sweeps": "sweeps",
    "converged": "converged",
    "restarts": "restarts",
    "optimised": "bound that was maximised",
}
DECIMALS = {"accuracy": 3, "k_hat": 2, "loo_weight": 2, "loo_worst_k": 2}


class Comparison(NamedTuple):
    """A comparison of models; print it to see the table and the remarks.

    table: a row for each model, best first. Columns, with standard errors in `..._se`:
        evidence: log p(X), which the bounds are below; on request.
        collapsed_bound: E log p(X, T, V, λ) − log q, S summed out.
        augmented_bound: the valid bound that CAVI maximises, S in the model; NaN where factors are not Gamma.
        paper_bound, paper_bound_gap: the paper's printed bound, which is not a valid bound, and its excess; on request.
        held_out: mean log predictive density of the held-out entries; if there are any.
        k_hat: Pareto k̂ of q as an approximation to the posterior.
        loo, loo_weight, loo_worst_k, loo_bad_k: log density of samples given the others, by `leave_one_out`; weights by
            stacking; the largest Pareto k, and the number above 0.7.
        conditional_loo, conditional_loo_bad_k: the same by `az.loo`, given the coefficients of each sample; only if it
            ranks.
        ..._diff: difference from the first row, paired by draw, entry or sample.
        divergence: KL(X ‖ E[T] E[V]) over the observed entries.
        accuracy: accuracy on new samples, by 1-NN among least-squares coefficients; on request.
        components, in_use: K, and the number of components that explain anything (`gsnmf.inference.in_use`).
        sweeps, converged, restarts, optimised: sweeps and convergence of the fit, the number of restarts, and the bound
            that was maximised.
    by: the ranking measure: "collapsed", "augmented", "held_out", "loo" or "conditional_loo".
    remarks: cautions about the table, in sentences.
    """

    table: pd.DataFrame
    by: str
    remarks: tuple[str, ...]

    @property
    def best(self) -> Any:
        """The name of the first model."""
        return self.table.index.tolist()[0]

    def __str__(self) -> str:
        head = f"{len(self.table)} models, best first by {HEADINGS[RANKED[self.by]]} (± standard error)"
        return "\n".join([head, "", printable(self.table).to_string(), "", *self.remarks]).rstrip()

    def _repr_html_(self) -> str:
        return printable(self.table).to_html()


def arranged(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange columns in the order of `HEADINGS`, each followed by its standard error; leave out what is missing."""
    wanted = [column for name in HEADINGS for column in (name, f"{name}_se")]
    return table[[column for column in wanted if column in table]]


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Format the table as text, a column for each model and a row for each measure.

    Args:
        table: as in `Comparison`.
    """
    rows = [name for name in HEADINGS if name in table and table[name].notna().any()]
    lines = [[_cell(table, name, n) for n in range(len(table))] for name in rows]
    names = [str(name) for name in table.index]
    return pd.DataFrame(lines, index=[HEADINGS[name] for name in rows], columns=names).rename_axis(columns=None)


def _cell(table: pd.DataFrame, name: str, n: int) -> str:
    value = table[name].iloc[n]
    if isinstance(value, str):
        return value
    if table[name].dtype == bool:
        return "yes" if value else "no"
    if not math.isfinite(value) or (name.endswith("_diff") and n == 0):
        return "–"
    if f"{name}_se" in table:
        return plus_minus(value, table[f"{name}_se"].iloc[n])
    return f"{value:,.{0 if float(value).is_integer() and name not in DECIMALS else DECIMALS.get(name, 1)}f}"


def remarks(table: pd.DataFrame, by: str) -> tuple[str, ...]:
    """Return cautions: near ties, measures that disagree, unequal chances, a q that is far from the posterior.

    Args:
        table: as in `Comparison`.
        by: the ranking measure.
    """
    said, column, first = [], RANKED[by], table.index[0]
    if f"{column}_diff" in table:
        near = table.index[1:][(table[f"{column}_diff"] >= -2 * table[f"{column}_diff_se"]).to_numpy()[1:]]
        if len(near):
            said.append(f"Within two standard errors of {first}: {_listed(near)}.")
    others = {name: table[c].idxmax() for name, c in RANKED.items() if c in table and table[c].notna().all()}
    differ = [f"{name} puts {winner} first" for name, winner in others.items() if winner != first]
    if differ:
        said.append(f"Measures disagree: {_listed(differ)}.")
    if table["restarts"].nunique() > 1:
        counts = [f"{name} {count}" for name, count in table["restarts"].items()]
        said.append(f"Not the same chance for all: restarts are {_listed(counts)}.")
    if table["optimised"].nunique() > 1:
        said.append("Not the same chance for all: some fits maximised the augmented bound, some the collapsed bound.")
    late = table.index[~table["converged"].astype(bool)]
    if len(late):
        said.append(f"Not converged: {_listed(late)}.")
    if "loo_worst_k" in table:
        far = table.index[table["loo_worst_k"] > MAX_K_HAT]
        if len(far):
            said.append(f"Pareto k of some samples is above {MAX_K_HAT} for {_listed(far)}: their LOO is uncertain.")
    if "conditional_loo" in table:
        said.append("LOO given the coefficients of each sample, which only this sample determines, is not reliable.")
    return tuple(said)


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
