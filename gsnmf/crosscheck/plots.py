"""Plots of a cross-check, each drawn on the given `Axes`, which is returned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from ..drawing.axes import new_axes, save

if TYPE_CHECKING:
    from .run import Crosscheck

# Okabe and Ito's colours, which colour-blind readers can tell apart; dashes for print in black and white.
STYLES: dict[str, dict[str, Any]] = {
    "CAVI": {"color": "#D55E00", "linestyle": "-"},
    "refined": {"color": "#CC79A7", "linestyle": "-"},
    "SVI": {"color": "#E69F00", "linestyle": (0, (4, 1.5))},
    "NUTS": {"color": "#0072B2", "linestyle": "-"},
    "Gibbs": {"color": "#009E73", "linestyle": (0, (4, 1.5))},
}


def marginal(draws: Mapping[str, Any], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw the densities of one invariant by every algorithm, smoothed by a Gaussian kernel.

    Args:
        draws: draws by algorithm, of any shape.
        ax: axes to draw on; a new figure by default.
        title: name of the invariant.
    """
    ax = new_axes(4, 3) if ax is None else ax
    values = {name: np.ravel(x)[np.isfinite(np.ravel(x))] for name, x in draws.items()}
    ends = [np.quantile(x, [0.002, 0.998]) for x in values.values()]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    grid = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), 300)
    for name, x in values.items():
        if np.ptp(x) > 0:  # a constant has no density
            ax.plot(grid, gaussian_kde(x)(grid), label=name, linewidth=1.8, **STYLES.get(name, {}))
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    ax.set_title(title, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.spines[["left", "top", "right"]].set_visible(False)
    return ax


def forest(
    summary: pd.DataFrame, ax: Axes | None = None, *, reference: str = "Gibbs", titles: Mapping[str, str] | None = None
) -> Axes:
    """Draw means with 50 and 90 % intervals of every invariant, standardised by the reference's mean and deviation.

    Args:
        summary: as in `Crosscheck`.
        ax: axes to draw on; a new figure by default.
        reference: the algorithm whose mean is 0 and whose standard deviation is 1.
        titles: titles of the invariants; their names by default.
    """
    algorithms = list(dict.fromkeys(summary.index.get_level_values("algorithm")))
    names = list(dict.fromkeys(summary.index.get_level_values("invariant")))
    ax = new_axes(8, 1.3 + 0.8 * len(names)) if ax is None else ax
    base = summary.loc[reference]
    for n, algorithm in enumerate(algorithms):
        rows = summary.loc[algorithm].loc[names]
        unit = base.loc[names, "sd"].where(lambda sd: sd > 0)
        place = {
            q: ((rows[q] - base.loc[names, "mean"]) / unit).to_numpy() for q in ("q5", "q25", "mean", "q75", "q95")
        }
        y = np.arange(len(names)) + 0.17 * (n - (len(algorithms) - 1) / 2)
        color = STYLES.get(algorithm, {}).get("color", "0.3")
        ax.hlines(y, place["q5"], place["q95"], color=color, linewidth=1.2)
        ax.hlines(y, place["q25"], place["q75"], color=color, linewidth=4)
        ax.plot(place["mean"], y, "o", color=color, markeredgecolor="white", markersize=6, label=algorithm)
    ax.axvline(0, color="0.7", linewidth=0.8, zorder=0)
    for edge in np.arange(1, len(names)) - 0.5:
        ax.axhline(edge, color="0.9", linewidth=0.8, zorder=0)
    labels = [fill((titles or {}).get(name, name), 34) for name in names]
    ax.set_yticks(np.arange(len(names)), labels, fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(f"distance from {reference}'s mean, in its standard deviations (thick 50 %, thin 90 %)")
    ax.spines[["left", "top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=len(algorithms), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def save_figures(folder: Path, found: Crosscheck) -> list[Path]:
    """Write marginals.png, a panel for every invariant, and forest.png; return their paths.

    Args:
        folder: created if it does not exist.
        found: from `crosscheck`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = found.invariants
    rows = -(-len(asked) // 3)
    figure = Figure(figsize=(10, 0.6 + 2.5 * rows), layout="constrained", dpi=110)
    for n, q in enumerate(asked, 1):
        draws = {name: answer.draws[q.name] for name, answer in found.answers.items()}
        ax = marginal(draws, figure.add_subplot(rows, 3, n), title=fill(q.title, 44))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=len(found.answers), frameon=False)
    paths = [folder / "marginals.png", folder / "forest.png"]
    save(ax, paths[0])
    titles = {q.name: q.title for q in asked}
    save(forest(found.summary, reference=found.reference, titles=titles), paths[1])
    return paths
