"""Plots of comparisons and of rank choices, drawn on the given `Axes`, which is returned."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..drawing.axes import DARK, name_ticks, new_axes
from .ranks import Choice
from .summary import HEADINGS, RANKED, Comparison

BLUE = "tab:blue"
STABILITY = {"silhouette": "silhouette", "comes_back": "components that come back"}


def plot_comparison(found: Comparison, ax: Axes | None = None, *, measure: str | None = None) -> Axes:
    """Draw the differences of all models from the first by one measure, with two standard errors.

    Args:
        found: from `compare`.
        ax: axes to draw on; a new figure by default.
        measure: "collapsed", "augmented", "held_out", "loo" or "conditional_loo"; by default the measure that ranks.
    """
    column = RANKED.get(found.by if measure is None else measure, "")
    table = found.table
    if column not in table:
        there = [name for name, column in RANKED.items() if column in table]
        raise ValueError(f"expected measure to be one of {', '.join(map(repr, there))}; got {measure!r}")
    ax = new_axes(7, 1.2 + 0.4 * len(table)) if ax is None else ax
    gaps = (table[column] - table[column].iloc[0]).to_numpy(float)
    errors = table[f"{column}_diff_se"].to_numpy(float) if f"{column}_diff_se" in table else np.zeros(len(table))
    places = np.arange(len(table))
    ax.errorbar(gaps, places, xerr=2 * errors, fmt="o", color=DARK, capsize=3, linewidth=1.2)
    ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    bad = table.get(f"{column}_bad_k")
    names = table.index if bad is None else [f"{name} ({k:.0f} with k̂ > 0.7)" for name, k in bad.items()]
    name_ticks(ax, places, names)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel(f"{HEADINGS[column]}\nless that of {found.best} (± 2 standard errors)")
    ax.spines[["left", "top", "right"]].set_visible(False)
    return ax


def plot_rank_choice(choice: Choice, ax: Axes | None = None) -> Axes:
    """Plot how far every rank is behind the best, with standard errors, and mark the rank chosen.

    With the stability of components in the table, it is drawn as well, along an axis on the right.

    Args:
        choice: as `choose_rank` returns it.
        ax: the axes to draw on; None for a new figure.
    """
    ax = new_axes(6, 3.5) if ax is None else ax
    table = choice.table
    ax.axhline(0, color=DARK, linewidth=0.5)
    ax.errorbar(table.index, -table["behind"], table["behind_error"], marker="o", markersize=4, capsize=2, color=DARK)
    ax.axvline(choice.rank, color="tab:red", linewidth=0.8, label=f"{choice.rank}: least within one standard error")
    ax.set(xlabel="components", ylabel="log density of a hidden\nentry, less the best")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    lines = ax.get_legend_handles_labels()[0]
    shown = [name for name in STABILITY if name in table]
    if shown:
        right = ax.twinx()
        right.set(ylabel="stability over restarts", ylim=(min(0.0, table[shown].min().min()) - 0.02, 1.04))
        for name, style in zip(shown, ("--s", ":^"), strict=False):
            lines += right.plot(table.index, table[name], style, markersize=3.5, color=BLUE, label=STABILITY[name])
    ax.legend(handles=lines, frameon=False)
    return ax
