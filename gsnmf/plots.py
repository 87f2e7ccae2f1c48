"""Pictures of a fit. Each function draws on the `Axes` it is given, or on a new figure, and returns the `Axes`.

Figures are made without pyplot: no window opens, nothing is kept alive. `ax.figure.savefig(...)` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from .inference import Fit, Posterior
from .model import Data

DARK = "0.15"


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """Axes on a figure of their own, sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=150).add_subplot()


def save(ax: Axes, path: Path) -> None:
    """Write the figure that these axes are on."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("expected axes on a figure; got axes that were removed from theirs")
    figure.savefig(path)


def mean_by_group(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.float64]:
    """Mean |v| of every component in every group: groups × components, 0 for a group without samples.

    Args:
        V_mean: components × samples.
        membership: samples × groups, as in `Data`.

    >>> mean_by_group([[1.0, 3.0, 5.0]], [[1, 0], [1, 0], [0, 1]]).tolist()
    [[2.0], [5.0]]
    """
    membership = np.asarray(membership, float)
    totals = membership.T @ np.abs(np.asarray(V_mean, float)).T
    means: NDArray[np.float64] = totals / np.maximum(membership.sum(axis=0), 1)[:, None]
    return means


def in_use(posterior: Posterior) -> NDArray[np.bool_]:
    """Whether each component explains anything: at least a thousandth of the mean expected counts Σ_ν t Σ_τ v.

    What an unused component has for a dictionary column is its prior.

    Args:
        posterior: as in `Fit`.
    """
    counts = np.asarray(posterior.T.mean, float).sum(axis=0) * np.asarray(posterior.V.mean, float).sum(axis=1)
    used: NDArray[np.bool_] = counts > 1e-3 * counts.mean()
    return used


def home_groups(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.intp]:
    """The group in which each component is most active on average; arguments as in `mean_by_group`."""
    homes: NDArray[np.intp] = mean_by_group(V_mean, membership).argmax(axis=0)
    return homes


def component_order(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.intp]:
    """Components sorted by home group, the most active of each first; arguments as in `mean_by_group`."""
    means = mean_by_group(V_mean, membership)
    return np.lexsort((-means.max(axis=0), means.argmax(axis=0)))


def hinton(
    matrix: ArrayLike,
    ax: Axes | None = None,
    *,
    rows: Sequence[Any] | NDArray[Any] | None = None,
    title: str = "",
    row_label: str = "label",
    column_label: str = "component, sorted by label",
) -> Axes:
    """Hinton diagram: a square for every entry, its area in proportion to the value, the largest filling its cell.

    Args:
        matrix: labels × components, nonnegative and finite.
        ax: where to draw; a new figure when left out.
        rows: names of the rows; 0, 1, ... when left out.
        title: above it.
        row_label: beside it.
        column_label: below it.
    """
    matrix = np.asarray(matrix, float)
    if matrix.ndim != 2 or 0 in matrix.shape or not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise ValueError(f"expected a matrix of nonnegative finite values; got shape {matrix.shape} or other values")
    R, K = matrix.shape
    ax = new_axes(np.clip(1.5 + 0.2 * K, 6, 14), np.clip(1.2 + 0.2 * R, 2, 10)) if ax is None else ax
    side = 0.95 * np.sqrt(matrix / (matrix.max() or 1))
    squares = [Rectangle((k - s / 2, r - s / 2), s, s) for (r, k), s in np.ndenumerate(side) if s > 0]
    ax.add_collection(PatchCollection(squares, facecolor=DARK, linewidth=0), autolim=False)
    ax.set(xlim=(-0.6, K - 0.4), ylim=(R - 0.4, -0.6), aspect="equal", title=title, xlabel=column_label)
    ax.set_ylabel(row_label)
    _name_ticks(ax, np.arange(R), np.arange(R) if rows is None else rows)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(K, 12)))
    return ax


def coefficients_by_label(
    V_mean: ArrayLike,
    membership: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    group_names: Sequence[Any] | NDArray[Any] | None = None,
    title: str = "E[V], samples sorted by label",
) -> Axes:
    """Heat map of E[V], the darker the larger: samples sorted by label, components by the label they serve most.

    Shades end at the 99.5th percentile, so that a few large coefficients do not bleach the rest.

    Args:
        V_mean: components × samples.
        membership: samples × groups, as in `Data`; None leaves both axes in their order.
        ax: where to draw; a new figure when left out.
        group_names: names of the groups; 0, 1, ... when left out.
        title: above it.
    """
    V_mean = np.asarray(V_mean, float)
    ax = new_axes(8, 4.5) if ax is None else ax
    if membership is not None:
        membership = np.asarray(membership)
        label = membership.argmax(axis=1)
        V_mean = V_mean[component_order(V_mean, membership)][:, np.argsort(label, kind="stable")]
        edges = np.append(0, np.cumsum(np.bincount(label, minlength=membership.shape[1])))
        for edge in edges[1:-1]:
            ax.axvline(edge - 0.5, color="tab:red", linewidth=0.5, alpha=0.6)
        names = np.arange(len(edges) - 1) if group_names is None else np.asarray(group_names)
        _name_ticks(ax, (edges[:-1] + edges[1:] - 1) / 2, names, axis="x")
    top = np.quantile(V_mean, 0.995) or V_mean.max() or 1.0
    image = ax.imshow(V_mean, aspect="auto", cmap="Greys", vmin=0, vmax=top, interpolation="nearest")
    ax.set(title=title, xlabel="sample" if membership is None else "samples, by label", ylabel="component, sorted")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.figure.colorbar(image, ax=ax, extend="max", label="E[v]", pad=0.01)
    return ax


def dictionary_montage(
    T_mean: ArrayLike,
    image_shape: tuple[int, int],
    ax: Axes | None = None,
    *,
    order: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ncols: int | None = None,
    title: str = "dictionary, in negative",
) -> Axes:
    """The dictionary as images in negative (dark is large), each on its own scale, a gap between groups.

    Args:
        T_mean: features × components.
        image_shape: rows × columns of an image; their product is the number of features.
        ax: where to draw; a new figure when left out.
        order: the components to show, in this order; all when left out.
        groups: a name for each component of T; neighbours in `order` of one name stand together under it.
        ncols: images side by side at most; about 20, in lines of even length, when left out.
        title: above it.
    """
    T_mean = np.asarray(T_mean, float)
    if T_mean.ndim != 2 or T_mean.shape[0] != np.prod(image_shape):
        raise ValueError(f"expected {np.prod(image_shape)} features, {image_shape}; got shape {T_mean.shape}")
    order = np.arange(T_mean.shape[1]) if order is None else np.asarray(order)
    names = None if groups is None else [str(np.asarray(groups)[i]) for i in order]
    h, w = image_shape
    if ncols is None:
        blocks = np.unique(names, return_counts=True)[1] if names is not None else np.ones(len(order), int)
        ncols = int(blocks.max() * np.ceil(len(blocks) / np.ceil(len(order) / 20)))
    places = _places(names or [""] * len(order), ncols, w, h, titled=names is not None)
    canvas = np.full((max(y for y, _ in places) + h + 1, max(x for _, x in places) + w + 1), np.nan)
    for (y, x), i in zip(places, order, strict=True):
        tile = T_mean[:, i].reshape(h, w)
        canvas[y : y + h, x : x + w] = tile / (tile.max() or 1)
    if ax is None:
        width = np.clip(canvas.shape[1] / (w + 1) * 0.55, 6, 12)
        ax = new_axes(width, width * canvas.shape[0] / canvas.shape[1] + 0.4)
    ax.imshow(canvas, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    for n, (y, x) in enumerate(places):
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), w, h, fill=False, edgecolor="0.6", linewidth=0.4))
        if names is not None and (n == 0 or names[n] != names[n - 1]):
            ax.text(x - 0.5, y - 0.8, names[n], fontsize=9, va="bottom", ha="left", color="tab:red")
    ax.set_title(title)
    ax.set_axis_off()
    return ax


def bound_trace(
    elbo: ArrayLike, ax: Axes | None = None, *, label: str | None = None, title: str = "augmented bound"
) -> Axes:
    """The bound after every sweep.

    The axis leaves out the first tenth, a steep climb, which would flatten all that follows.

    Args:
        elbo: one value per sweep, as in `Fit`.
        ax: where to draw; a new figure when left out.
        label: for the legend, when several are drawn on one `Axes`.
        title: above it.
    """
    elbo = np.asarray(elbo, float)
    ax = new_axes(6, 3.5) if ax is None else ax
    ax.plot(np.arange(1, len(elbo) + 1), elbo, marker="." if len(elbo) < 30 else "", label=label)
    lines = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    low, high = min(line[len(line) // 10] for line in lines), max(line.max() for line in lines)
    if np.isfinite([low, high]).all() and high > low:
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    ax.set(title=title, xlabel="sweep", ylabel="bound on log p(X)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    if label is not None:
        ax.legend(frameon=False)
    return ax


def save_figures(folder: Path, fit: Fit, data: Data, image_shape: tuple[int, int] | None = None) -> list[Path]:
    """Every picture that this fit allows, as PNG files in `folder`; returns their paths.

    Args:
        folder: made when it is not there.
        fit: as `cavi.run` returns it.
        data: what it was fitted to.
        image_shape: rows × columns when samples are images; else the dictionary is not drawn.
    """
    T, V = np.asarray(fit.posterior.T.mean, float), np.asarray(fit.posterior.V.mean, float)
    names, groups, order, home = data.names.group, data.membership, np.arange(T.shape[1]), None
    axes = {"bound": bound_trace(fit.elbo)}
    if groups is not None:
        order, home = component_order(V, groups), names[home_groups(V, groups)]
        means = mean_by_group(V, groups)[:, order]
        axes["hinton_v"] = hinton(means, rows=names, title="mean |v| per label and component")
    if fit.posterior.lam is not None:
        relevance = 1 / np.asarray(fit.posterior.lam.mean, float).T[:, order]
        axes["hinton_lambda"] = hinton(relevance, rows=names, title="1 / E[λ] per label and component")
    if groups is None:
        axes["coefficients"] = coefficients_by_label(V, title="E[V]")
    else:
        axes["coefficients"] = coefficients_by_label(V, groups, group_names=names)
    used = in_use(fit.posterior)
    if image_shape is not None and used.any():
        title = f"dictionary, in negative ({used.sum()} of {len(used)} components in use)"
        axes["dictionary"] = dictionary_montage(T, image_shape, order=order[used[order]], groups=home, title=title)
    folder.mkdir(parents=True, exist_ok=True)
    for name, ax in axes.items():
        save(ax, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in axes]


def _places(names: list[str], ncols: int, w: int, h: int, *, titled: bool) -> list[tuple[int, int]]:
    """Top left corners (y, x) of tiles that flow in lines of `ncols`; a group that does not fit begins a new line."""
    line, gap = h + 1 + (max(4, h // 2) if titled else 0), max(2, w // 2)
    y, x, column, places = line - h, 1, 0, []
    for n, name in enumerate(names):
        begins = n > 0 and name != names[n - 1]
        size = next((m for m, other in enumerate(names[n:]) if other != name), len(names) - n)
        if column and (column == ncols or (begins and column + size > ncols)):
            y, x, column = y + line, 1, 0
        elif begins:
            x += gap
        places.append((y, x))
        x, column = x + w + 1, column + 1
    return places


def _name_ticks(ax: Axes, positions: NDArray[Any], names: Any, axis: str = "y") -> None:
    """Ticks with names, every n-th when there are too many to read."""
    every = max(1, int(np.ceil(len(positions) / 40)))
    set_ticks = ax.set_yticks if axis == "y" else ax.set_xticks
    set_ticks(positions[::every], [str(name) for name in names][::every])
    (ax.yaxis if axis == "y" else ax.xaxis).set_tick_params(length=0)
