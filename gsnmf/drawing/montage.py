"""Montages of pictures: dictionaries as images, alone or within a Hinton diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from .axes import cell_sides, frame_cells, new_axes


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
    """Draw the dictionary as images in negative (dark is large), each on its own scale, with gaps between groups.

    Args:
        T_mean: features × components.
        image_shape: rows × columns of an image; their product is the number of features.
        ax: axes to draw on; a new figure by default.
        order: the components to show, in this order; all by default.
        groups: a name for each component of T; adjacent components with the same name are grouped under it.
        ncols: maximum number of images in a line; by default about 20, in lines of even length.
        title: title of the axes.
    """
    T_mean = np.asarray(T_mean, float)
    if T_mean.ndim != 2 or T_mean.shape[0] != np.prod(image_shape):
        raise ValueError(f"expected {np.prod(image_shape)} features, {image_shape}; got shape {T_mean.shape}")
    return montage(T_mean.T.reshape(-1, *image_shape), ax, order=order, groups=groups, ncols=ncols, title=title)


def montage(
    pictures: ArrayLike,
    ax: Axes | None = None,
    *,
    order: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ncols: int | None = None,
    title: str = "",
) -> Axes:
    """Draw pictures in negative (dark is large), each on its own scale, with gaps between groups.

    Args:
        pictures: components × height × width, blank where they are NaN.
        ax: axes to draw on; a new figure by default.
        order: the pictures to show, in this order; all by default.
        groups: a name for each picture; adjacent pictures with the same name are grouped under it.
        ncols: maximum number of pictures in a line; by default about 20, in lines of even length.
        title: title of the axes.
    """
    pictures = trim(pictures)
    h, w = pictures.shape[1:]
    order = np.arange(len(pictures)) if order is None else np.asarray(order)
    names = None if groups is None else [str(np.asarray(groups)[i]) for i in order]
    if ncols is None:
        blocks = np.unique(names, return_counts=True)[1] if names is not None else np.ones(len(order), int)
        ncols = int(blocks.max() * np.ceil(len(blocks) / np.ceil(len(order) / 20)))
    places = _places(names or [""] * len(order), ncols, w, h, titled=names is not None)
    canvas = np.full((max(y for y, _ in places) + h + 2, max(x for _, x in places) + w + 2), np.nan)
    for (y, x), i in zip(places, order, strict=True):
        canvas[y : y + h, x : x + w] = negative(pictures[i])
    if ax is None:
        width = np.clip(canvas.shape[1] / (w + 1) * 0.55, 6, 12)
        ax = new_axes(width, width * canvas.shape[0] / canvas.shape[1] + 0.4)
    ax.imshow(canvas, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    for n, (y, x) in enumerate(places):
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), w, h, fill=False, edgecolor="0.6", linewidth=0.4))
        if names is not None and (n == 0 or names[n] != names[n - 1]):
            ax.text(x - 0.5, y - 0.8, names[n], fontsize="small", va="bottom", ha="left", color="tab:red")
    ax.set_title(title)
    ax.set_axis_off()
    return ax


def trim(pictures: ArrayLike) -> NDArray[np.floating]:
    """Remove the rows and columns at the borders that are blank in all pictures.

    Args:
        pictures: components × height × width, blank where they are NaN.
    """
    pictures = np.asarray(pictures, float)
    seen = np.isfinite(pictures).any(axis=0)
    rows, columns = (np.flatnonzero(seen.any(axis=axis)) for axis in (1, 0))
    return pictures[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] if seen.any() else pictures


def negative(picture: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divide a picture by its largest value, for a map from white to black; NaN stays NaN."""
    scaled: NDArray[np.floating] = picture / (np.nanmax(picture) or 1)
    return scaled


def hinton_pictures(
    matrix: ArrayLike,
    pictures: ArrayLike,
    ax: Axes | None = None,
    *,
    rows: Sequence[Any] | NDArray[Any] | None = None,
    title: str = "",
    row_label: str = "label",
    column_label: str = "component, sorted by label",
) -> Axes:
    """Draw a Hinton diagram with pictures of components, in negative, as squares: areas are proportional to values.

    Pictures whose sides would be below a twentieth of the cell's are left out.

    Args:
        matrix: labels × components, nonnegative and finite.
        pictures: components × height × width, blank where they are NaN.
        ax: axes to draw on; a new figure by default.
        rows: names of the rows; 0, 1, ... by default.
        title: title of the axes.
        row_label: label of the rows.
        column_label: label of the columns.
    """
    side, tiles = cell_sides(matrix), [negative(picture) for picture in trim(pictures)]
    R, K = side.shape
    if len(tiles) != K:
        raise ValueError(f"expected a picture for each of {K} components; got {len(tiles)}")
    h, w = tiles[0].shape
    ax = new_axes(np.clip(1 + 0.3 * K, 5, 14), np.clip(0.8 + 0.3 * R * h / w, 2, 12)) if ax is None else ax
    frame_cells(ax, R, K, h / w, rows, title=title, row_label=row_label, column_label=column_label)
    frames = []
    for (r, k), s in np.ndenumerate(side):
        if s >= 0.05:
            frames.append(Rectangle((k - s / 2, r - s / 2), s, s))
            extent = (k - s / 2, k + s / 2, r + s / 2, r - s / 2)
            ax.imshow(tiles[k], cmap="Greys", vmin=0, vmax=1, extent=extent, aspect=h / w, interpolation="antialiased")
    ax.add_collection(PatchCollection(frames, facecolor="none", edgecolor="0.6", linewidth=0.3), autolim=False)
    ax.set(xlim=(-0.6, K - 0.4), ylim=(R - 0.4, -0.6))  # imshow has moved them
    return ax


def _places(names: list[str], ncols: int, w: int, h: int, *, titled: bool) -> list[tuple[int, int]]:
    """Return top left corners (y, x) of tiles in lines of `ncols`; a group that does not fit begins a new line."""
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
