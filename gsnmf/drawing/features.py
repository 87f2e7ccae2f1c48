"""Components of data that are not images: the names of their top features over bars, many components at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from ..features import describe_components, top_features_table
from ..model import Data
from ..model.checks import whole
from .axes import DARK, new_axes

PALE, BLUE = "#c6dbef", "#1f5fa8"
WIDTH, LINE = 2.05, 0.165  # inches, of a cell and of a line of text
LETTERS = 24  # of a name, at most


def plot_top_features(
    result: Any,
    data: Data,
    n: int = 8,
    *,
    by: str = "frex",
    components: ArrayLike | None = None,
    ncols: int | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the top features of every component: names, over bars as long as their probabilities in the component.

    A heading has the component's number, the groups that its prior binds it to, "all" for all of them (or, if it binds
    none, the group with most of its counts), and its proportion of all counts. Lines below the bars are intervals of
    the probabilities in the mean field, which are too narrow (`top_features_table` has those of linear response).

    Args:
        result: a `Fit`, a `Posterior` or a fitted `GroupSparseNMF`.
        data: the data of the fit, with names.
        n: number of features of each component.
        by: the measure that selects and sorts features: "frex", "lift" or "probability".
        components: the components to show, in this order; by default those in use: first those that serve all groups,
            then by group and the largest first.
        ncols: number of columns; by default up to seven.
        title: title of the axes.
        ax: axes to draw on; a new figure by default.
    """
    about = describe_components(result, data, 1)
    order = _order(about) if components is None else np.atleast_1d(np.asarray(components))
    table = top_features_table(result, data, n, by=by, components=order, intervals="mean field")
    C = min(7, len(order)) if ncols is None else whole("ncols", ncols, 1)
    n = len(table) // len(order)
    R = -(-len(order) // C)
    ax = new_axes(WIDTH * C + 0.2, LINE * (n + 2) * R + 0.5) if ax is None else ax
    bars: list[Rectangle] = []
    lines: list[Any] = []
    names = table["feature"].to_numpy().reshape(len(order), n)
    numbers = table[["probability", "lower", "upper"]].to_numpy(float).reshape(len(order), n, 3)
    for place, k in enumerate(order.tolist()):
        row, x = divmod(place, C)
        y = row * (n + 2)
        ax.text(x, y, _heading(k, about.iloc[k]), fontsize=8, weight="bold", va="center", color=DARK)
        unit = 0.92 / (np.nanmax(numbers[place]) or 1.0)
        for m, (p, low, high) in enumerate(unit * numbers[place], 1):
            bars.append(Rectangle((x, y + m - 0.42), p, 0.84))
            lines.append([(x + low, y + m + 0.36), (x + high, y + m + 0.36)])  # not drawn where there is no width
            ax.text(x + 0.02, y + m, _short(names[place, m - 1]), fontsize=8, va="center", color=DARK)
    ax.add_collection(PatchCollection(bars, facecolor=PALE, linewidth=0, zorder=0), autolim=False)
    ax.add_collection(LineCollection(lines, colors=BLUE, linewidths=1.2), autolim=False)
    ax.set(xlim=(-0.05, C), ylim=(R * (n + 2) - 1, -1))
    ax.set_title(f"top features by {'FREX' if by == 'frex' else by}" if title is None else title)
    ax.set_axis_off()
    return ax


def _order(about: pd.DataFrame) -> NDArray[np.intp]:
    """Return the components in use, all if none is: first those that serve all groups, then by group and by size."""
    shown = about[about["in_use"]] if about["in_use"].any() else about
    shown = shown.assign(own=shown["serves"] != "all", name=[_group(row) for _, row in shown.iterrows()])
    return np.asarray(shown.sort_values(["own", "name", "share"], ascending=[True, True, False], kind="stable").index)


def _group(row: pd.Series) -> str:
    """Return the groups that a component's prior binds it to; if it binds to none, the group with most counts."""
    return str(row["serves"] or row["group"])


def _heading(k: int, row: pd.Series) -> str:
    group = _group(row)
    return f"{k}{' ' if group else ''}{_short(group, 15)} · {100 * row['share']:.1f} %"


def _short(name: Any, length: int = LETTERS) -> str:
    text = str(name).replace("$", r"\$")
    return text if len(text) <= length else text[: length - 1] + "…"
