"""The paper's figures: the effect of a larger shape of λ on coefficients, dictionaries and accuracy."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from ..drawing.axes import new_axes, write_figure
from ..drawing.montage import hinton_pictures, montage
from ..drawing.plots import coefficients_by_label, hinton
from .panels import Panel

Pictures: TypeAlias = Callable[[NDArray[Any]], NDArray[np.floating]]
STYLE: dict[Any, Any] = {"font.size": 8, "axes.linewidth": 0.6, "pdf.fonttype": 42}  # text stays text in the PDF
MANY = 60  # components; more need a wider page
FEW = 8  # labels whose components are drawn into a Hinton diagram if there are many
COMPONENTS = "component, sorted by label"
# Figures with numbers in the paper; for other datasets the figures resemble those of Yale, where labels are persons.
NUMBERS: dict[str, dict[str, int]] = {
    "yale": {"coefficients": 2, "hinton": 3, "relevance": 4, "dictionary": 5, "accuracy": 6, "features": 11},
    "orl": {"accuracy": 7},
    "jaffe": {"hinton": 8, "dictionary": 9, "accuracy": 10, "features": 12},
}


def accuracy_curves(table: pd.DataFrame, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw mean accuracy against a_large, a line for each a_small; bars go from the worst to the best restart.

    All three are means over folds. Lines are slightly shifted, so that bars do not hide each other. If other settings
    vary as well, each combination has its own line.

    Args:
        table: results of one method, as from `results.by_fold`.
        ax: axes to draw on; a new figure by default.
        title: title of the axes.
    """
    missing = {"large", "mean", "min", "max", "settings"} - set(table)
    if missing or not len(table):
        got = f"a table without {', '.join(sorted(missing))}" if missing else "an empty table"
        raise ValueError(f"expected results of nmf_gs, by fold; got {got}")
    ax = new_axes(6, 4) if ax is None else ax
    settings = pd.DataFrame([json.loads(text) for text in table["settings"]], index=table.index).drop(columns="large")
    # The paper's legend shows a_small, whether it varies or not.
    named = [name for name in settings.columns if name == "small" or settings[name].map(repr).nunique() > 1]
    lines = list(table.groupby(settings.apply(lambda row: repr(row.tolist()), axis=1), sort=False))
    shapes = np.sort(table["large"].unique())
    apart = 0.07 * min(np.diff(np.log2(shapes)), default=1.0)
    for n, (_, part) in enumerate(lines):
        means = part.groupby("large")[["mean", "min", "max"]].mean()
        x = means.index.to_numpy(float) * 2 ** (apart * (n - (len(lines) - 1) / 2))
        y = means["mean"].to_numpy()
        bars = np.array([y - means["min"], means["max"] - y])
        label = ", ".join(f"{_symbol(name)} = {_short(settings[name][part.index[0]])}" for name in named)
        marker = "osD^vPX<>*"[n % 10]
        ax.errorbar(x, y, bars, label=label, marker=marker, markersize=4, linewidth=1.2, elinewidth=0.8, capsize=2.5)
    ax.set_xscale("log", base=2)
    ax.set_xticks(shapes, [f"{shape:.7g}" for shape in shapes], rotation=45 if len(shapes) > 8 else 0)
    ax.xaxis.minorticks_off()
    ax.set(title=title, xlabel=_symbol("large"), ylabel="accuracy")
    ax.grid(axis="y", alpha=0.3)
    if named:
        ax.legend(frameon=False)
    return ax


def draw_coefficients(panel: Panel, ax: Axes, pictures: Pictures | None = None) -> Axes:
    """Draw a heat map of E[V], samples sorted by label."""
    return coefficients_by_label(panel.V, panel.membership, ax, group_names=panel.names, title="", colorbar=False)


def draw_hinton(panel: Panel, ax: Axes, pictures: Pictures | None = None) -> Axes:
    """Draw a Hinton diagram of mean |v| per label and component."""
    return hinton(panel.prevalence[:, panel.order], ax, rows=panel.names, column_label=COMPONENTS)


def draw_relevance(panel: Panel, ax: Axes, pictures: Pictures | None = None) -> Axes:
    """Draw a Hinton diagram of 1 / E[λ] per label and component."""
    if panel.lam is None:
        raise ValueError("expected a model with groups; got lam=None")
    return hinton(1 / panel.lam.T[:, panel.order], ax, rows=panel.names, column_label=COMPONENTS)


def draw_dictionary(panel: Panel, ax: Axes, pictures: Pictures) -> Axes:
    """Draw the components in use as pictures, under the label in which they are most active."""
    order = panel.order[panel.used[panel.order]]
    ncols = 40 if len(order) > MANY else len(panel.V) // 2 + 2  # two lines, as groups are not split
    return montage(pictures(panel.T), ax, order=order, groups=panel.names[panel.homes], ncols=ncols)


def draw_features(panel: Panel, ax: Axes, pictures: Pictures) -> Axes:
    """Draw a Hinton diagram of mean |v| with the pictures of components in its cells."""
    few = panel.first(FEW) if len(panel.V) > MANY else panel  # else a picture is smaller than a letter
    values, images = few.prevalence[:, few.order], pictures(few.T[:, few.order])
    return hinton_pictures(values, images, ax, rows=few.names, column_label=COMPONENTS)


class Kind(NamedTuple):
    """A kind of figure.

    draw: function that draws a panel on axes.
    what: description of what is shown.
    alone: whether the model without groups has a panel.
    columns: number of panels in a row.
    """

    draw: Callable[[Panel, Axes, Any], Axes]
    what: str
    alone: bool
    columns: int


KINDS = {
    "coefficients": Kind(draw_coefficients, "E[V]; the darker, the larger", True, 2),
    "hinton": Kind(draw_hinton, "mean |v| by label and component", True, 2),
    "relevance": Kind(draw_relevance, "1 / E[λ] by label and component", False, 1),
    "dictionary": Kind(draw_dictionary, "dictionary, in negative", False, 1),
    "features": Kind(draw_features, "mean |v| by label and component, in negative", False, 1),
}


def effect(kind: str, panels: Sequence[Panel], pictures: Pictures | None = None, *, note: str = "") -> Figure:
    """Draw a figure of one kind, with panels a), b), … and their parameters below each.

    Args:
        kind: one of `KINDS`.
        panels: as from `panels.panels`, in order.
        pictures: function from features × n to n × height × width, as `Images.picture`; for dictionary and features.
        note: text below the figure, with the settings that all panels share.
    """
    if kind not in KINDS:
        raise ValueError(f"expected a figure out of {', '.join(KINDS)}; got {kind!r}")
    if pictures is None and kind in ("dictionary", "features"):
        raise ValueError(f"expected samples that are images for a figure of {kind}; got pictures=None")
    draw, _, alone, columns = KINDS[kind]
    shown = [panel for panel in panels if alone or panel.lam is not None]
    many, words = len(panels[0].V) > MANY, max(len(str(name)) for name in panels[0].names) > 3
    if (many and kind != "coefficients") or (words and kind == "hinton"):  # words need room to the left of each row
        columns = 1
    columns, page = min(columns, len(shown)), 10.0 if many else 7.2
    with mpl.rc_context(STYLE):
        tried = [draw(panel, new_axes(page / columns), pictures) for panel in shown]
        widest = max(ax.get_xlim()[1] for ax in tried)  # cells and pictures have one size in all panels
        tall = [max(_height(ax, widest) for ax in tried[n : n + columns]) for n in range(0, len(tried), columns)]
        inches = sum((page / columns - 0.6) * height + (0.5 if kind == "dictionary" else 0.9) for height in tall) + 0.5
        figure = Figure(figsize=(page, inches), layout=ConstrainedLayoutEngine(h_pad=0.08), dpi=200)
        axes = figure.subplots(len(tall), columns, squeeze=False, height_ratios=tall).ravel()
        for ax, letter, panel in zip(axes, string.ascii_lowercase, shown, strict=False):
            draw(panel, ax, pictures).set_xlim(right=widest)
            _put_below(ax, f"{letter}) {panel.caption}")
        for ax in axes[len(shown) :]:
            ax.remove()
        figure.supxlabel(f"{title(kind, panels[0])}\n{note}".strip(), fontsize=7.5, color="0.3")
    return figure


def title(kind: str, panel: Panel) -> str:
    """Return the title of a figure of this kind.

    Args:
        kind: one of `KINDS`.
        panel: a panel of the figure.
    """
    few = kind == "features" and len(panel.V) > MANY
    return KINDS[kind].what + (f", first {FEW} labels" if few else "")


def _height(ax: Axes, right: float) -> float:
    """Return height over width of axes that end at `right`."""
    (left, _), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    aspect = ax.get_aspect()
    return 0.62 if aspect == "auto" else abs((top - bottom) / (right - left)) * float(aspect)


def _put_below(ax: Axes, text: str) -> None:
    if ax.axison:
        ax.set_xlabel(f"{ax.get_xlabel()}\n{text}", linespacing=1.5)
    else:  # without axes there are no labels
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(text, (0.5, 0), (0, -4), ha="center", va="top", annotation_clip=False, **place)


def overview(shown: Sequence[tuple[str, Panel, Pictures]], *, note: str = "") -> Figure:
    """Draw one page: a column for each dataset, with its coefficients, Hinton diagrams and dictionary.

    Args:
        shown: a heading, the fit, and its pictures, for each dataset.
        note: text below the page, for example credits of the data.
    """
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.1)
        figure = Figure(figsize=(6 * len(shown), 9.2), layout=layout, dpi=110)
        axes = figure.subplots(4, len(shown), squeeze=False, height_ratios=[2.4, 1.9, 2.1, 1.1])
        for column, (heading, panel, pictures) in zip(axes.T, shown, strict=True):
            few = panel.first(FEW) if len(panel.V) > MANY else panel
            for ax, kind in zip(column, ("coefficients", "hinton", "features", "dictionary"), strict=True):
                KINDS[kind].draw(few if kind == "dictionary" else panel, ax, pictures)
                only = f", first {FEW} labels" if kind == "dictionary" and few is not panel else ""
                ax.set_title(title(kind, panel) + only, fontsize=8, loc="left")
            place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
            # Not a title, as all titles of axes are on the same line.
            column[0].annotate(heading, (0.5, 1), (0, 21), ha="center", fontsize=11, annotation_clip=False, **place)
        figure.supxlabel(note, fontsize=7.5, color="0.3")
    return figure


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and as PDF, in which only images are rasterised; return both paths.

    Args:
        figure: the figure.
        path: path without a suffix; a dot is part of the name.
    """
    paths = [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]
    with mpl.rc_context(STYLE):
        for file, dpi in zip(paths, (200, 400), strict=True):
            write_figure(figure, file, dpi=dpi)
    return paths


def draw_accuracy(table: pd.DataFrame, stem: Path, title: str) -> list[Path]:
    """Write `accuracy_curves` as STEM_accuracy.png and STEM_accuracy.pdf; return both paths.

    Args:
        table: results of one method, as from `results.by_fold`.
        stem: the beginning of both paths, for example the file of results without its suffix.
        title: title of the curves.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 4), layout="constrained")
        accuracy_curves(table, figure.add_subplot(), title=title)
    return save_figure(figure, stem.with_name(f"{stem.name}_accuracy"))


def number(dataset: str, kind: str) -> str:
    """Return the number of the paper's figure that this figure reproduces or resembles.

    >>> number("yale", "dictionary"), number("orl", "dictionary")
    ('figure 5', 'like figure 5')
    """
    if kind in NUMBERS.get(dataset, {}):
        return f"figure {NUMBERS[dataset][kind]}"
    # Where the label is the expression, not the person, the paper shows JAFFE.
    like = NUMBERS["yale"] | (NUMBERS["jaffe"] if dataset in ("jaffe", "yale-condition") else {})
    return f"like figure {like[kind]}"


def _short(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, (int, float)) else str(value)


def _symbol(name: str) -> str:
    return rf"$a^\lambda_{{\mathrm{{{name}}}}}$" if name in ("small", "large") else name
