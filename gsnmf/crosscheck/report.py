"""The report of a cross-check: a table, and sentences about where algorithms differ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pandas as pd

from .. import __version__
from ..writing import write_whole

if TYPE_CHECKING:
    from ..model import Data
    from .run import Crosscheck

MAX_Z, MAX_R_HAT, MIN_ESS, MAX_K_HAT = 4.0, 1.02, 400, 0.7
TOLERANCE = 0.1  # a standard deviation of 400 effective draws is off by 1/√800 = 3.5 % itself
FAR = 0.5  # of a standard deviation: a mean that is off by more is reported
LARGE = 50  # times the work of the default problem, from which on there is a warning
COLUMNS = {
    "augmented": ("augmented bound", "{:,.1f}"),
    "collapsed": ("collapsed bound", "{:,.1f}"),
    "log_evidence": ("log evidence ≈", "{:,.1f}"),
    "k_hat": ("k̂", "{:.2f}"),
    "r_hat": ("R-hat", "{:.3f}"),
    "ess_bulk": ("bulk ESS", "{:,.0f}"),
    "ess_tail": ("tail ESS", "{:,.0f}"),
    "ess_per_second": ("ESS/s", "{:,.0f}"),
    "seconds": ("seconds", "{:.1f}"),
}
HOW_TO_READ = """\
Bounds: the augmented bound has the latent counts in the model, the collapsed bound sums them out: not comparable.
Log evidence ≈: the refined bound with Gaussian fluctuations around its optimum: about log p(X), and not a bound.
R-hat, ESS: of the worst invariant. ESS/s: bulk ESS per second. Seconds: compilation and warm-up included."""


def describe(data: Data, rank: int, *, drawn: bool, seed: int, draws: int, chains: int) -> dict[str, Any]:
    """Describe the run, for the head of the report and for the file."""
    sizes = {"features": data.num_features, "samples": data.num_samples, "groups": data.num_groups, "components": rank}
    how = {"seed": seed, "draws": draws, "chains": chains, "gsnmf_version": __version__}
    return {"problem": "drawn from the model" if drawn else "from a file", **sizes, **how}


def size_warning(data: Data, rank: int, draws: int, chains: int) -> str | None:
    """Return a warning if NUTS will take very long, else None."""
    times = data.num_features * data.num_samples * rank * draws * chains / (12 * 18 * 3 * 1000 * 4)
    if times < LARGE:
        return None
    unknowns = rank * (data.num_features + data.num_samples + data.num_groups)
    return (
        f"warning: {unknowns:,} unknowns; a gradient costs features × components × samples, and NUTS will take about "
        f"{times:,.0f} times the arithmetic of the default problem, or more; fewer --draws or part of X are quicker"
    )


def plus_minus(mean: float, sd: float) -> str:
    """Format a mean and a standard deviation with as many decimals as the second digit of sd needs.

    >>> plus_minus(2911.34, 53.96), plus_minus(0.81234, 0.0123)
    ('2,911 ± 54', '0.812 ± 0.012')
    """
    if not (math.isfinite(mean) and math.isfinite(sd)):
        return f"{mean:.3g} ± {sd:.3g}"
    decimals = min(8, max(0, 1 - math.floor(math.log10(sd)))) if sd > 0 else 2
    return f"{mean:,.{decimals}f} ± {sd:,.{decimals}f}"


def table(found: Crosscheck) -> str:
    """Format the table in two blocks, each with a row for every algorithm: invariants, then diagnostics."""
    asked, summary, rows = found.invariants, found.summary, list(found.answers)
    first = pd.DataFrame(
        {q.heading: [plus_minus(*summary.loc[(name, q.name), ["mean", "sd"]]) for name in rows] for q in asked}, rows
    )
    second = pd.DataFrame(index=rows)
    for column, (heading, form) in COLUMNS.items():
        values = found.diagnostics[column]
        second[heading] = [form.format(x) if math.isfinite(x) else "–" for x in values]
    errors = found.diagnostics["collapsed_error"]
    second["collapsed bound"] += [f" ± {error:.1f}" if math.isfinite(error) else "" for error in errors]
    return f"{first.to_string()}\n\n{second.to_string()}"


def narrowness(title: str, ratio: float, shift: float, *, of: str, to: str) -> str:
    """Return a sentence on whether a variational posterior has the right width for one invariant.

    Args:
        title: title of the invariant.
        ratio: its standard deviation over the reference's.
        shift: its mean minus the reference's, over the reference's standard deviation.
        of: the algorithm.
        to: the reference.

    >>> narrowness("the total", 0.55, 0.1, of="CAVI", to="Gibbs")
    "CAVI's standard deviation of the total is 0.55 of Gibbs's: too narrow by 45 %."
    """
    if not math.isfinite(ratio):
        return f"{of}'s standard deviation of {title} cannot be compared: {to}'s is 0 or not finite."
    if abs(ratio - 1) <= TOLERANCE:
        verdict = "about right"
    elif ratio < 1:
        verdict = f"too narrow by {100 * (1 - ratio):.0f} %"
    else:
        verdict = f"too wide by {100 * (ratio - 1):.0f} %"
    off = (
        f"; its mean is too {'low' if shift < 0 else 'high'} by {abs(shift):.1f} of {to}'s" if abs(shift) > FAR else ""
    )
    return f"{of}'s standard deviation of {title} is {ratio:.2f} of {to}'s: {verdict}{off}."


def overall(ratios: Mapping[str, float], *, of: str, to: str) -> str:
    """Return a summarising sentence: how many invariants are too narrow or too wide, and the narrowest of them."""
    narrow = {title: ratio for title, ratio in ratios.items() if ratio < 1 - TOLERANCE}
    wide = sum(ratio > 1 + TOLERANCE for ratio in ratios.values())
    said = f"Compared with {to}, {of} is too narrow on {len(narrow)} of {len(ratios)} invariants, too wide on {wide}"
    if not narrow:
        return f"{said}."
    title = min(narrow, key=narrow.__getitem__)
    return f"{said}; narrowest on {title}, by {100 * (1 - narrow[title]):.0f} %."


def agreement(summary: pd.DataFrame, titles: Mapping[str, str]) -> list[str]:
    """Test whether NUTS and Gibbs have the same means, by z = difference / √(mcse² + mcse²) for each invariant."""
    if not {"NUTS", "Gibbs"} <= set(summary.index.get_level_values("algorithm")):
        return ["NUTS is the only sampler: X has fractions, so that Gibbs cannot run."]
    nuts, gibbs = summary.loc["NUTS"], summary.loc["Gibbs"]
    z = (nuts["mean"] - gibbs["mean"]) / (nuts["mcse"] ** 2 + gibbs["mcse"] ** 2) ** 0.5
    if (z.abs() < MAX_Z).all():
        return [f"NUTS and Gibbs agree: the largest |z| of {len(z)} means is {z.abs().max():.1f}, below {MAX_Z:g}."]
    off = z[~(z.abs() < MAX_Z)]
    return [f"WARNING: NUTS and Gibbs disagree on {titles[str(name)]}: z = {value:.1f}." for name, value in off.items()]


def cautions(found: Crosscheck) -> list[str]:
    """Return further warnings about these numbers."""
    said, titles = [], {q.name: q.title for q in found.invariants}
    for name, row in found.diagnostics.iterrows():
        own, answer = found.summary.loc[str(name)], found.answers[str(name)]
        if answer.fit is not None:
            if not answer.fit.converged:
                said.append(f"WARNING: {name} did not converge. {answer.fit.message}")
            if answer.note and answer.widths == "linear response":
                said.append(f"WARNING: {name}: {answer.note}")
            if not row["k_hat"] <= MAX_K_HAT:
                said.append(
                    f"k̂ of {name} is {row['k_hat']:.2f}, above {MAX_K_HAT}: weights cannot correct draws of its q."
                )
            continue
        if not row["r_hat"] <= MAX_R_HAT:
            worst = titles[str(own["r_hat"].fillna(math.inf).idxmax())]
            said.append(
                f"WARNING: R-hat of {name} is {row['r_hat']:.3f}, above {MAX_R_HAT}, for {worst}: "
                "its chains have not mixed. More --draws may help, unless the chains are in different modes."
            )
        sizes = [row["ess_bulk"], row["ess_tail"]]
        if not min(sizes) >= MIN_ESS:
            said.append(
                f"WARNING: {name} has an ESS of {min(sizes):.0f} only, below {MIN_ESS}. More --draws would help."
            )
        if answer.divergences:
            said.append(f"WARNING: {answer.divergences} transitions of {name} diverged: it may miss some regions.")
    return said


def kinds_of_width(found: Crosscheck) -> list[str]:
    """Return sentences on the kind of every algorithm's standard deviations.

    "mean field": as if T, V and λ were independent. "linear response": corrected. "exact": of a sampler.
    """
    said = {
        "mean field": "the mean field's, which ignores that factors depend on each other",
        "linear response": "corrected by linear response, as are the means",
        "exact": "exact up to Monte Carlo error",
    }
    parts = []
    for kind, words in said.items():
        names = [name for name, answer in found.answers.items() if answer.widths == kind]
        if names:
            parts.append(f"the widths of {' and '.join(names)} are {words}")
    joined = "; ".join(parts)
    lines = [f"{joined[:1].upper()}{joined[1:]}."]
    for name, answer in found.answers.items():
        if answer.note and answer.widths == "mean field":
            lines.append(f"{name} has the draws of its mean field, not corrected ones: {answer.note}.")
    return lines


def sentences(found: Crosscheck) -> list[str]:
    """Return all sentences of the report, one line each."""
    summary, to = found.summary, found.reference
    lines = kinds_of_width(found)
    for name in (name for name in ("CAVI", "refined", "SVI") if name in found.answers):
        own = summary.loc[name]
        ratios, shifts = ({q.title: own[column][q.name] for q in found.invariants} for column in ("sd_ratio", "shift"))
        lines.append(overall(ratios, of=name, to=to))
        if name != "SVI":
            lines += [f"  {narrowness(t, ratios[t], shifts[t], of=name, to=to)}" for t in ratios]
    lines += agreement(summary, {q.name: q.title for q in found.invariants})
    return lines + cautions(found)


def report(found: Crosscheck, about: Mapping[str, Any]) -> str:
    """Return the whole report as text."""
    sizes = f"{about['features']} features × {about['samples']} samples, {about['groups'] or 'no'} groups"
    head = f"{sizes}, {about['components']} components, {about['problem']} (seed {about['seed']}); mean ± sd:"
    width = max(len(q.heading) for q in found.invariants)
    keys = [f"{q.heading:{width}}  {q.title}" for q in found.invariants]
    said = [fill(line, 118, subsequent_indent="    ") for line in sentences(found)]
    return "\n".join(["", head, "", table(found), "", *keys, "", HOW_TO_READ, "", *said, ""])


def save_tables(folder: Path, found: Crosscheck, about: Mapping[str, Any]) -> list[Path]:
    """Write every algorithm and invariant to crosscheck.csv, and everything, including these, to crosscheck.json.

    Args:
        folder: created if it does not exist.
        found: from `crosscheck`.
        about: from `describe`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "crosscheck.csv", folder / "crosscheck.json"]
    content = {
        "about": dict(about),
        "reference": found.reference,
        "invariants": {q.name: q.title for q in found.invariants},
        "diagnostics": found.diagnostics.to_dict("index"),
        "summary": found.summary.reset_index().to_dict("records"),
        "sentences": [line.strip() for line in sentences(found)],
    }
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole({paths[0]: found.summary.to_csv().encode(), paths[1]: f"{text}\n".encode()})
    return paths


def _plain(value: Any) -> Any:
    """Convert values for JSON: to Python's numbers, with None for values that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
