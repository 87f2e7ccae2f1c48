"""The first sections of a report: the data, the model and its priors, the fit."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from .. import __version__
from ..inference.results import divergence
from ..model.problem import has_counts
from . import graph
from .charts import histogram, named_bars
from .markup import Html, number, percent, tag
from .summary import Summary

BOUNDS = {
    "augmented": (
        "augmented bound",
        "A lower bound on log p(X), with the latent counts S as part of the model; "
        "comparable with other augmented bounds of the same data only.",
    ),
    "collapsed": (
        "collapsed bound",
        "A lower bound on log p(X), with the latent counts S summed out, as noisy estimates; "
        "not comparable with augmented bounds.",
    ),
    "log_joint": ("log joint density", "The logarithm of the joint density at a point estimate: not a bound."),
}
MANY = 40  # groups whose sizes are listed


def facts(rows: list[tuple[str, Any]], label: str) -> Html:
    """Return a table of two columns."""
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    return tag("table", tag("caption", label, class_="hidden"), tag("tbody", lines), class_="facts")


def tiles(s: Summary) -> Html:
    """Return the headline numbers."""
    d = s.data
    values = [
        (f"{d.num_features:,} × {d.num_samples:,}", "features × samples"),
        (f"{d.num_groups}" if d.num_groups else "none", "classes"),
        (f"{s.used.sum()} of {s.rank}", "components in use"),
        (number(s.fit.elbo[-1]), BOUNDS[s.fit.bound][0]),
        ("yes" if s.fit.converged else "no", f"converged, {s.fit.num_steps:,} {unit(s)}s"),
    ]
    return tag("div", [tag("div", tag("b", v), tag("span", k), class_="tile") for v, k in values], class_="tiles")


def unit(s: Summary) -> str:
    """Return the name of a step of the algorithm."""
    return "sweep" if s.fit.bound == "augmented" else "step"


def data_section(s: Summary) -> list[Html]:
    """Return the section about the data: sizes, zeros, missing entries, a histogram, and sizes of groups."""
    d = s.data
    matrix, size = d.matrix, d.num_features * d.num_samples
    stored = np.asarray(matrix.stored(), float)
    above, missing = stored[stored > 0], size - d.num_observed
    least = 0.0 if len(above) < d.num_observed else float(above.min())
    kind = "whole numbers" if has_counts(d) else "with fractions"
    held = "" if d.held_out is None else f", of which {len(d.held_out):,} are known and held out"
    rows = [
        ("Features", f"{d.num_features:,}"),
        ("Samples", f"{d.num_samples:,}"),
        ("Classes", d.num_groups or "none"),
        ("Zeros", percent(1 - len(above) / d.num_observed)),
        ("Missing entries", f"{missing:,} ({percent(missing / size)}){held}" if missing else "none"),
        ("Values", f"{kind}, {number(least)} to {number(matrix.largest())}"),
        ("Mean, total", f"{number(matrix.mean())}, {number(matrix.total())}"),
    ]
    if d.labels is not None:
        several = 0 if d.labels.several is None else int(np.sum(d.labels.several))
        counts = ((int((~d.known).sum()), "unlabelled samples"), (several, "multi-label samples"))
        rows.append(("Labels", ", ".join(f"{n:,} {what}" for n, what in counts if n) or "one for each sample"))
    parts = [
        tag("div", facts(rows, "The data"), class_="panel"),
        _figure(histogram(above), "Histogram of the entries; zeros, counted in the table, are left out."),
    ]
    if d.num_groups:
        known = np.asarray(d.membership)[d.known]
        sizes = known.sum(axis=0)
        order = np.arange(len(sizes))[:MANY]
        names = [s.groups[c] for c in order]
        tips = [f"{name}: {number(sizes[c])} samples" for name, c in zip(names, order, strict=True)]
        bars = named_bars(names, sizes[order].tolist(), [number(sizes[c]) for c in order], tips)
        more = f" The first {MANY} of {len(sizes)}." if len(sizes) > MANY else ""
        counted = "Labelled samples" if d.labels is not None else "Samples"
        parts.append(_figure(bars, f"{counted} of each class.{more}"))
    return [tag("div", parts, class_="columns")]


def model_section(s: Summary) -> list[Html]:
    """Return the section about the model: its graph and its priors."""
    if s.priors is None:
        return [tag("p", "The priors of this fit are not known.")]
    found = graph.model_graph(s.data, s.priors, s.rank)
    d = s.data
    sizes = {"feature": d.num_features, "component": s.rank, "sample": d.num_samples, "group": d.num_groups}
    lines = [
        tag("tr", tag("th", letter, scope="row"), tag("td", distribution), tag("td", role, class_="quiet"))
        for letter, distribution, role in graph.stated(found, s.priors)
    ]
    family = type(s.priors.coefficients).__name__
    learned = " Shapes and scales were learned with the factors." if s.fit.learned else ""
    notes = [f"Prior of the coefficients: {family}.{learned} Gamma distributions are stated by shape and scale."]
    if d.labels is not None and d.labels.num_unlabelled and "z" not in found.distributions:
        notes.append("Labels of unlabelled samples are learned as well; the graph shows the model for known labels.")
    priors = tag("table", tag("caption", "Priors", class_="hidden"), tag("tbody", lines), class_="facts priors")
    return [
        tag(
            "div",
            _figure(graph.draw(found, sizes), "Grey: observed. Boxes: repeated for every feature, component, …"),
            tag("div", priors, [tag("p", note, class_="quiet") for note in notes], class_="panel"),
            class_="columns",
        )
    ]


def fit_section(s: Summary, chart: Html, seconds: float | None, khat: float | None) -> list[Html]:
    """Return the section about the fit: the trace of the bound, convergence and diagnostics."""
    name, meaning = BOUNDS[s.fit.bound]
    misfit = divergence(s.fit, s.data)
    rows: list[tuple[str, Any]] = [
        (f"{unit(s).capitalize()}s", f"{s.fit.num_steps:,}"),
        ("Converged", "yes" if s.fit.converged else "no"),
        ("Why it stopped", s.fit.message),
        (f"Last {name}", f"{s.fit.elbo[-1]:,.2f}".replace("-", "−")),
        ("KL(X ‖ E[T] E[V])", f"{number(misfit)}{_relative_to_rank_one(s, misfit)}"),
    ]
    if s.fit.posterior.z is not None and s.fit.bound == "augmented" and s.fit.stream is None:
        rows.insert(1, ("Warm start", "its sweeps, if there was one, are not in this trace"))
    if khat is not None:
        verdict = (
            "q could be corrected by importance weights"
            if khat < 0.7
            else "q as a whole is far from the exact posterior, as mean-field approximations of many entries are"
        )
        rows.append(("k̂ of all factors at once", f"{khat:.2f}: {verdict}"))
    if seconds is not None:
        rows.append(("Seconds, compilation included", f"{seconds:.1f}"))
    rows.append(("Precision of the factors", str(np.asarray(s.fit.posterior.T[0]).dtype)))
    rows.append(
        (
            "Page made by",
            ", ".join([f"gsnmf {__version__}", *(f"{p} {version(p)}" for p in ("jax", "numpyro", "numpy"))]),
        )
    )
    return [
        tag(
            "div",
            _figure(chart, f"{name[0].upper()}{name[1:]} by {unit(s)}; hover over the line for values. {meaning}"),
            tag("div", facts(rows, "Diagnostics"), class_="panel"),
            class_="columns",
        )
    ]


def _relative_to_rank_one(s: Summary, misfit: float) -> str:
    """Compare the misfit with the best table of rank one, products of row and column sums; empty with a mask."""
    matrix = s.data.matrix
    if s.data.mask is not None or not matrix.total():
        return ""
    rows, columns = matrix.sums()
    base = matrix.divergence(rows[:, None], columns[None, :] / matrix.total())
    return f", {percent(misfit / base)} of that of the best fit of rank one" if base > 0 else ""


def _figure(drawn: Html, caption: str) -> Html:
    return tag("figure", drawn, tag("figcaption", caption), class_="panel")
