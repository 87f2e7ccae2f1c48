"""Plots of a fit. Each function draws on the given `Axes`, or on a new figure, and returns the `Axes`.

Figures are made without pyplot: no window opens, nothing is kept alive. `ax.figure.savefig(...)` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from ..inference import Fit, in_use
from ..model import Data
from ..model.priors import is_grouped
from .axes import DARK, cell_sides, frame_cells, name_ticks, new_axes, save
from .features import plot_top_features
from .montage import dictionary_montage


def mean_by_group(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.float64]:
    """Return the mean |v| of every component in every group: groups × components, 0 for a group without samples.

    Args:
        V_mean: components × samples.
        membership: samples × groups, as in `Data`.

    >>> mean_by_group([[1.0, 3.0, 5.0]], [[1, 0], [1, 0], [0, 1]]).tolist()
    [[2.0], [5.0]]
    """
    membership = np.asarray(membership, float)
    totals = membership.T @ np.abs(np.asarray(V_mean, float)).T
    sizes = membership.sum(axis=0)[:, None]
    means: NDArray[np.float64] = totals / np.where(sizes > 0, sizes, 1)
    return means


def home_groups(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.intp]:
    """Return the group in which each component is most active on average; arguments as in `mean_by_group`."""
    homes: NDArray[np.intp] = mean_by_group(V_mean, membership).argmax(axis=0)
    return homes


def component_order(V_mean: ArrayLike, membership: ArrayLike) -> NDArray[np.intp]:
    """Sort components by home group, the most active of each first; arguments as in `mean_by_group`."""
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
    """Draw a Hinton diagram: a square for every entry, its area proportional to the value, the largest fills its cell.

    Args:
        matrix: labels × components, nonnegative and finite.
        ax: axes to draw on; a new figure by default.
        rows: names of the rows; 0, 1, ... by default.
        title: title of the axes.
        row_label: label of the rows.
        column_label: label of the columns.
    """
    side = cell_sides(matrix)
    R, K = side.shape
    ax = new_axes(np.clip(1.5 + 0.2 * K, 6, 14), np.clip(1.2 + 0.2 * R, 2, 10)) if ax is None else ax
    squares = [Rectangle((k - s / 2, r - s / 2), s, s) for (r, k), s in np.ndenumerate(side) if s > 0]
    ax.add_collection(PatchCollection(squares, facecolor=DARK, linewidth=0), autolim=False)
    frame_cells(ax, R, K, 1.0, rows, title=title, row_label=row_label, column_label=column_label)
    return ax


def coefficients_by_label(
    V_mean: ArrayLike,
    membership: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    group_names: Sequence[Any] | NDArray[Any] | None = None,
    title: str = "E[V], samples sorted by label",
    colorbar: bool = True,
) -> Axes:
    """Draw a heat map of E[V] (dark is large): samples sorted by label, components by the label they serve most.

    Shades end at the 99.5th percentile, so that a few large coefficients do not bleach the rest.

    Args:
        V_mean: components × samples.
        membership: samples × groups, as in `Data`; None leaves both axes in their order.
        ax: axes to draw on; a new figure by default.
        group_names: names of the groups; 0, 1, ... by default.
        title: title of the axes.
        colorbar: whether to draw a colour bar.
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
        name_ticks(ax, (edges[:-1] + edges[1:] - 1) / 2, names, axis="x")
    top = np.quantile(V_mean, 0.995) or V_mean.max() or 1.0
    image = ax.imshow(V_mean, aspect="auto", cmap="Greys", vmin=0, vmax=top, interpolation="nearest")
    ax.set(title=title, xlabel="sample" if membership is None else "samples, by label", ylabel="component, sorted")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if colorbar:
        ax.figure.colorbar(image, ax=ax, extend="max", label="E[v]", pad=0.01)
    return ax


def bound_trace(
    elbo: ArrayLike, ax: Axes | None = None, *, label: str | None = None, title: str = "augmented bound"
) -> Axes:
    """Draw the bound after every sweep.

    The axis leaves out the first tenth, a steep climb, which would flatten all that follows.

    Args:
        elbo: one value per sweep, as in `Fit`.
        ax: axes to draw on; a new figure by default.
        label: entry in the legend, for several traces on one `Axes`.
        title: title of the axes.
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


def _rates_by_group(fit: Fit, data: Data) -> NDArray[np.float64] | None:
    """Return E[λ] where λ is components × groups, else None."""
    if fit.posterior.lam is None or not (fit.priors is None or is_grouped(fit.priors)):
        return None  # with one group λ of `Relevance` has that shape too
    rates: NDArray[np.float64] = np.asarray(fit.posterior.lam.mean, float)
    return rates if data.num_groups and rates.shape == (np.shape(fit.posterior.T.mean)[1], data.num_groups) else None


FIGURES = ("bound", "hinton_v", "hinton_lambda", "coefficients", "dictionary", "features")  # all that may be written


def save_figures(folder: Path, fit: Fit, data: Data, image_shape: tuple[int, int] | None = None) -> list[Path]:
    """Write every picture that this fit allows as PNG files in `folder`; return their paths.

    Args:
        folder: created if it does not exist.
        fit: from `cavi.run`.
        data: the data of the fit.
        image_shape: rows × columns if samples are images; else the dictionary is drawn by the names of features, if
            they have names.
    """
    T, V = np.asarray(fit.posterior.T.mean, float), np.asarray(fit.posterior.V.mean, float)
    names, order, home = data.names.group, np.arange(T.shape[1]), None
    groups = data.membership if fit.posterior.z is None else fit.posterior.z  # learned for unlabelled samples
    axes = {"bound": bound_trace(fit.elbo)}
    if groups is not None:
        order, home = component_order(V, groups), names[home_groups(V, groups)]
        means = mean_by_group(V, groups)[:, order]
        axes["hinton_v"] = hinton(means, rows=names, title="mean |v| per label and component")
    rates = _rates_by_group(fit, data)
    if rates is not None:
        axes["hinton_lambda"] = hinton(1 / rates.T[:, order], rows=names, title="1 / E[λ] per label and component")
    if groups is None:
        axes["coefficients"] = coefficients_by_label(V, title="E[V]")
    else:
        axes["coefficients"] = coefficients_by_label(V, groups, group_names=names)
    used = in_use(fit.posterior, data)
    if image_shape is not None and used.any():
        title = f"dictionary, in negative ({used.sum()} of {len(used)} components in use)"
        axes["dictionary"] = dictionary_montage(T, image_shape, order=order[used[order]], groups=home, title=title)
    if image_shape is None and data.names.feature.dtype.kind not in "iu":
        axes["features"] = plot_top_features(fit, data)
    folder.mkdir(parents=True, exist_ok=True)
    for name, ax in axes.items():
        save(ax, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in axes]
