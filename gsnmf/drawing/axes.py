"""Helpers for axes: new figures, tick names, cells of Hinton diagrams.

Figures are made without pyplot: no window opens, nothing is kept alive.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from ..writing import write_whole

DARK = "0.15"


def new_axes(width: float = 7.0, height: float = 4.0) -> Axes:
    """Return axes on a new figure, sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=150).add_subplot()


def save(ax: Axes, path: Path) -> None:
    """Write the figure that these axes are on."""
    parent: Any = ax.figure
    if parent is None:
        raise ValueError("expected axes on a figure; got axes with figure=None, which were removed from theirs")
    write_figure(parent.figure, path)  # a subfigure's own figure; a figure's is itself


def write_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure, whole or not at all, with metadata by which commands recognise a picture of their own.

    Args:
        figure: the figure.
        path: ending in .png, .pdf or .svg.
        options: of `Figure.savefig`.
    """
    kind = path.suffix.lower().lstrip(".")
    metadata = {"pdf": {"Creator": "gsnmf", "CreationDate": None}, "svg": {"Creator": "gsnmf", "Date": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=metadata.get(kind, {"Software": "gsnmf"}), **options)
    write_whole({path: buffer.getvalue()})


def name_ticks(ax: Axes, positions: NDArray[Any], names: Any, axis: str = "y", room: float | None = None) -> None:
    """Set ticks with names, every n-th if there are too many to read; long names are upright along an x axis.

    Args:
        ax: the axes.
        positions: positions of the ticks.
        names: one for each position.
        axis: "x" or "y".
        room: inches along the axis; by default the current size of the axes.
    """
    texts = [str(name) for name in names]
    own = ax.yaxis if axis == "y" else ax.xaxis
    box = ax.get_window_extent()
    room = room or (box.height if axis == "y" else box.width) / ax.figure.dpi
    size = font_manager.FontProperties(size=own.get_tick_params().get("labelsize")).get_size_in_points() / 72
    widest = 0.65 * size * (1 + max(map(len, texts), default=0))  # a letter is about 0.65 as wide as high
    upright = axis == "x" and widest * len(texts) > room and max(map(len, texts), default=0) > 3
    each = widest if axis == "x" and not upright else 1.05 * size
    every = max(1, int(np.ceil(each * len(texts) / room)))
    (ax.set_yticks if axis == "y" else ax.set_xticks)(positions[::every], texts[::every])
    own.set_tick_params(length=0, labelrotation=90 if upright else 0)


def cell_sides(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return sides of a Hinton diagram's squares: the root of each value over the largest, which nearly fills its cell.

    Args:
        matrix: nonnegative and finite.
    """
    values = np.asarray(matrix, float)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"expected a matrix of nonnegative finite values; got shape {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise ValueError(f"expected a matrix of nonnegative finite values; got {values[bad][0]:g}")
    sides: NDArray[np.float64] = 0.95 * np.sqrt(values / (values.max() or 1))
    return sides


def frame_cells(
    ax: Axes, R: int, K: int, aspect: float, rows: Any, *, title: str, row_label: str, column_label: str
) -> None:
    """Set up the axes of a diagram of R × K cells, whose height is `aspect` times their width, with names of rows."""
    ax.set(xlim=(-0.6, K - 0.4), ylim=(R - 0.4, -0.6), aspect=aspect, title=title, xlabel=column_label)
    ax.set_ylabel(row_label)
    box = ax.get_window_extent()
    room = min(box.height, box.width * aspect * R / K) / ax.figure.dpi  # cells keep their shape
    name_ticks(ax, np.arange(R), np.arange(R) if rows is None else rows, room=room)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(K, 12)))
