"""Charts as SVG: a histogram, bars with names, and the trace of a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from .markup import Html, number, percent, shorten, tag

if TYPE_CHECKING:
    from .widths import Width

WIDTH, HEIGHT, TOP, RIGHT, BOTTOM = 400, 226, 10, 12, 42  # of a chart, and the room around its axes
POINTS = 500  # points of a trace that are drawn


def scale(value: float, low: float, high: float, start: float, end: float) -> float:
    """Map a value linearly from low … high to start … end."""
    return start + (end - start) * (value - low) / ((high - low) or 1.0)


class Axes(NamedTuple):
    """A chart's frame: ends of both axes, and room on the left for the longest value."""

    x: tuple[float, float]
    y: tuple[float, float]
    ticks: list[tuple[float, str]]

    @property
    def left(self) -> float:
        """The position of the y axis."""
        return 14 + 7.6 * max((len(word) for _, word in self.ticks), default=0)

    def across(self, value: float) -> float:
        """Return the horizontal position of a value of x."""
        return scale(value, *self.x, self.left, WIDTH - RIGHT)

    def up(self, value: float) -> float:
        """Return the vertical position of a value of y."""
        return scale(value, *self.y, HEIGHT - BOTTOM, TOP)

    def draw(self, x_label: str, whole: bool) -> list[Html]:
        """Draw horizontal lines with their values, and values along the x axis with a label."""
        parts = []
        for tick, word in self.ticks:
            y = round(self.up(tick), 1)
            parts.append(tag("path", d=f"M{self.left:.1f} {y}H{WIDTH - RIGHT}", class_="grid"))
            parts.append(tag("text", word, x=round(self.left - 6, 1), y=y + 4, text_anchor="end"))
        for tick in MaxNLocator(6, integer=whole).tick_values(*self.x):
            if self.x[0] <= tick <= self.x[1]:
                at = {"x": round(self.across(tick), 1), "y": HEIGHT - BOTTOM + 16, "text_anchor": "middle"}
                parts.append(tag("text", number(tick), **at))
        middle = (self.left + WIDTH - RIGHT) / 2
        return [*parts, tag("text", x_label, x=round(middle, 1), y=HEIGHT - 4, text_anchor="middle", class_="label")]


def _axes(x: tuple[float, float], y: tuple[float, float]) -> Axes:
    ticks = [float(t) for t in MaxNLocator(5).tick_values(*y) if y[0] <= t <= y[1]]
    return Axes(x, y, [(t, f"{t:,.10g}".replace("-", "−")) for t in ticks])


def _chart(parts: list[Html], label: str, **more: str) -> Html:
    return tag("svg", parts, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, **more)


def histogram(values: NDArray[np.float64]) -> Html:
    """Draw a histogram of the values above 0, in about 25 bins, with whole-number edges for whole numbers."""
    values = values[values > 0]
    if not len(values):
        return tag("p", "All entries are 0.")
    top = float(values.max())
    whole = bool((values == np.round(values)).all())
    if whole:
        step = max(1, int(np.ceil(top / 26)))
        edges = np.arange(1, top + step + 1, step) - 0.5
    else:
        edges = np.linspace(0, top, 26)
    counts = np.histogram(values, edges)[0]
    high = float(counts.max())
    axes = _axes((float(edges[0]), float(edges[-1])), (0, high))
    places = [axes.across(e) for e in edges]
    bars = []
    for n, count in enumerate(counts):
        y = axes.up(count)
        first, last = edges[n] + 0.5 * whole, edges[n + 1] - 0.5 * whole
        span = number(first) if whole and first == last else f"{number(first)} to {number(last)}"
        tip = f"{span}: {count:,} entries, {percent(count / len(values))} of those above 0"
        size = {"x": round(places[n] + 0.5, 1), "width": round(max(places[n + 1] - places[n] - 1, 0.5), 1)}
        bars.append(
            tag("rect", y=round(y, 1), height=round(HEIGHT - BOTTOM - y, 1), data_tip=tip, class_="bar", **size)
        )
    label = f"Histogram of {len(values):,} entries above 0, up to {number(top)}"
    return _chart([*axes.draw("value of an entry above 0", whole), *bars], label)


def named_bars(
    names: Sequence[str],
    values: Sequence[float],
    words: Sequence[str],
    tips: Sequence[str],
    ranges: Sequence[Width | None] | None = None,
) -> Html:
    """Draw bars with their names, one below the other, with intervals on them where there are any."""
    wide = [None] * len(values) if ranges is None else ranges
    top = max([*values, *(x for width in wide if width is not None for x in width)], default=0) or 1.0
    rows = [
        tag(
            "div",
            tag("span", shorten(name, 26), class_="name"),
            tag("span", tag("i", style=f"width:{100 * value / top:.1f}%"), _whiskers(width, top), class_="track"),
            tag("span", word, class_="value"),
            class_="bar-row",
            data_tip=tip,
        )
        for name, value, word, tip, width in zip(names, values, words, tips, wide, strict=True)
    ]
    return tag("div", rows, class_="bars")


def _whiskers(width: Width | None, top: float) -> list[Html]:
    """Draw the mean field's interval, pale, the corrected one over it, and the mean of the refined fit."""
    if width is None:
        return []
    ends = {"own": (width.own_low, width.own_high), "range": (width.low, width.high), "dot": (width.mean, width.mean)}
    return [
        tag("b", class_=name, style=f"left:{100 * low / top:.1f}%;width:{100 * (high - low) / top:.1f}%")
        for name, (low, high) in ends.items()
    ]


def trace(elbo: NDArray[np.float64], what: str, unit: str) -> tuple[Html, dict[str, list[float]]]:
    """Draw the bound over sweeps; return the chart and the points of the line, shown on hovering.

    The first tenth, a steep climb, is left out of the axis if it would flatten all that follows.

    Args:
        elbo: one value per sweep.
        what: name of the bound.
        unit: name of a step.
    """
    places = np.unique(np.linspace(0, len(elbo) - 1, min(len(elbo), POINTS)).round().astype(int))
    places = places[np.isfinite(elbo[places])]
    if not len(places):
        return tag("p", "No value of the bound is finite."), {"x": [], "y": []}
    shown = elbo[places]
    low, high = float(shown[len(shown) // 10 :].min()), float(shown.max())
    margin = 0.06 * (high - low) or abs(high) * 1e-3 or 1.0
    low, high = low - margin, high + margin
    n = len(elbo)
    axes = _axes((1, max(n, 2)), (low, high))
    x, y = [axes.across(p + 1) for p in places], [axes.up(v) for v in shown]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    size = {"width": round(WIDTH - axes.left - RIGHT, 1), "height": HEIGHT - TOP - BOTTOM}
    clip = tag("clipPath", tag("rect", x=round(axes.left, 1), y=TOP, **size), id="inside")
    line = tag("path", d=path, class_="line", clip_path="url(#inside)")
    spot = tag("circle", r=4, class_="spot", cx=round(x[-1], 1), cy=round(y[-1], 1))
    chart = _chart(
        [clip, *axes.draw(unit, True), line, spot],
        f"{what}: {number(elbo[0])} after the first {unit}, {number(elbo[-1])} after the last of {n:,}",
        id="trace",
        data_unit=unit,
    )
    points = {"x": [round(a, 1) for a in x], "y": [round(b, 1) for b in y], "sweep": (places + 1).tolist()}
    return chart, points | {"value": [float(f"{v:.9g}") for v in shown]}
