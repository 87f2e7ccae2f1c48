"""Sections of a report about components: pictures or top features, Hinton diagrams, λ, coefficients, and a table."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.axes import cell_sides
from ..intervals import PROB
from .charts import named_bars
from .markup import Html, number, percent, shorten, tag
from .pictures import component_picture
from .summary import MOST, Summary

SMALLEST = 0.05  # side of a Hinton diagram's square, of its cell's, below which it is left out
ROOM = 1034  # pixels for the columns of a Hinton diagram before it scrolls

Pictures = NDArray[np.floating] | None


def controls(s: Summary, pictures: Pictures) -> Html:
    """Return the controls that sort components and hide dead ones."""
    names = {"class": "class", "size": "size", "number": "number"}
    options = [tag("option", names[by], value=by) for by in s.orders]
    parts = [tag("label", "Sort components by ", tag("select", options, id="sort"))]
    dead = int((~s.used).sum())
    if dead:
        parts.append(tag("label", tag("input", type="checkbox", id="hide-dead"), f" hide {dead} dead"))
    if pictures is not None:
        parts.append(tag("label", tag("input", type="checkbox", id="light"), " light is large"))
        if s.means is not None:
            parts.append(tag("label", tag("input", type="checkbox", id="squares"), " squares, not pictures"))
    parts.append(tag("span", f"{s.rank} components", id="status", role="status"))
    return tag("form", parts, class_="controls", aria_label="Components")


def describe(s: Summary, k: int) -> str:
    """Describe a component in a line."""
    home = "" if s.home is None else f", most active in {s.belongs(k)}"
    return f"component {k}{home}: {percent(s.share[k])} of ΣTV{'' if s.used[k] else ', dead: it explains nothing'}"


def gallery(s: Summary, pictures: Pictures) -> Html:
    """Return a card for every component: its picture, or its largest features."""
    cards = []
    for k in s.orders.get("class", s.orders["size"]):
        shown = top_features(s, k) if pictures is None else component_picture(k, pictures, describe(s, k))
        chip = tag("span", shorten(s.belongs(k), 14), class_="chip") if s.home is not None else ""
        state = percent(s.share[k]) if s.used[k] else tag("span", "dead", class_="chip dead-chip")
        caption = tag("figcaption", tag("b", f"#{k}"), chip, tag("span", state, class_="share"))
        kind = "card" if s.used[k] else "card dead"
        cards.append(tag("figure", shown, caption, class_=kind, data_k=k, data_tip=describe(s, k), tabindex=0))
    return tag("div", cards, class_="gallery" if pictures is not None else "gallery wide", id="gallery")


def top_features(s: Summary, k: int) -> Html:
    """Return the features with the largest E[t] of a component, as proportions of its sum."""
    t, best = s.T[:, k], s.top_features(k)
    shares = t[best] / (t.sum() or 1)
    names = [str(s.data.names.feature[f]) for f in best]
    more = ["" if s.widths is None else s.widths.tip("feature", int(f), k) for f in best]
    tips = [f"{name}: E[t] = {number(t[f])}{tip}" for name, f, tip in zip(names, best, more, strict=True)]
    ranges = [s.width("feature", int(f), k) for f in best]
    return named_bars(names, shares.tolist(), [percent(share) for share in shares], tips, ranges)


def hinton(s: Summary, matrix: NDArray[Any], what: str, pictures: Pictures, name: str) -> Html:
    """Draw a Hinton diagram, classes × components: areas proportional to values, with components' pictures if any.

    The browser lays it out again when components are sorted, and on narrow screens it has a row per component.
    """
    side = cell_sides(matrix)
    order = s.orders["class"]
    names = [shorten(group, 16) for group in s.groups]
    left = 14 + 8 * max(map(len, names))
    width = float(np.clip((ROOM - left) / s.rank, 17, 46))
    aspect = 1.0 if pictures is None else float(np.clip(pictures.shape[1] / pictures.shape[2], 0.5, 1.6))
    height = width * aspect
    top = 22.0 if pictures is None else height + 24
    heads, cells = [], []
    for place, k in enumerate(order):
        x = left + (place + 0.5) * width
        thumb = "" if pictures is None else _use(k, 0.95 * width, 0.95 * height)
        drawn = [thumb, tag("text", k, y=round(-height / 2 - 6, 1) if pictures is not None else 4)]
        at = f"translate({x:.1f} {top - height / 2 - 4 if pictures is not None else 10:.1f})"
        kind = "head" if s.used[k] else "head dead"
        heads.append(tag("g", drawn, class_=kind, data_k=k, data_tip=describe(s, k), transform=at))
        for c in np.flatnonzero(side[:, k] >= SMALLEST):
            w, h = side[c, k] * width, side[c, k] * height
            square = tag("rect", x=f"{-w / 2:.1f}", y=f"{-h / 2:.1f}", width=f"{w:.1f}", height=f"{h:.1f}")
            inside = square if pictures is None else [square, _use(k, w, h)]
            tip = f"component {k} in {s.groups[c]}: {what} {number(matrix[c, k])}"
            at = f"translate({x:.1f} {top + (c + 0.5) * height:.1f})"
            cells.append(tag("g", inside, class_="cell", data_k=k, data_c=int(c), data_tip=tip, transform=at))
    rows = [
        tag("text", group, class_="row-name", data_c=c, x=left - 8, y=round(top + (c + 0.5) * height + 4, 1))
        for c, group in enumerate(names)
    ]
    total = left + s.rank * width + 4, top + len(names) * height + 4
    lines = "".join(f"M{left} {top + c * height:.1f}H{total[0] - 4:.1f}" for c in range(1, len(names)))
    frame: str = tag(
        "rect", class_="frame", x=left, y=round(top, 1), width=total[0] - left - 4, height=total[1] - top - 4
    )
    said = f"Hinton diagram of {what}, {len(names)} classes by {s.rank} components; the table below has numbers"
    frame += tag("path", d=lines, class_="rules")
    drawing = tag(
        "svg", Html(frame), rows, heads, cells, id=name, class_="hinton" if pictures is None else "hinton drawn",
        viewBox=f"0 0 {total[0]:.0f} {total[1]:.0f}", width=f"{total[0]:.0f}", role="img", aria_label=said,
        data_left=left, data_top=round(top, 1), data_w=round(width, 2), data_h=round(height, 2), data_c=len(names),
        data_thumbs=int(pictures is not None),
    )  # fmt: skip
    return tag("div", drawing, class_="scroll", tabindex=0, role="region", aria_label=f"Hinton diagram of {what}")


def _use(k: int, width: float, height: float) -> Html:
    x, y = -width / 2, -height / 2
    return tag("use", href=f"#c{k}", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{height:.1f}",
               class_="pic")  # fmt: skip


def relevance(s: Summary, pictures: Pictures) -> tuple[Html, dict[str, Any] | None]:
    """Return rows for λ with intervals, one per component, and the numbers that the script shows for a chosen class."""
    if s.lam is None:
        raise ValueError("expected a fit with λ; got lam=None")
    mean, low, high = s.lam
    if s.lam_axes[0] != "component" or s.lam_axes[1] == "sample":
        words = f"λ has {mean.size:,} entr{'y' if mean.size == 1 else 'ies'}, not one per component: "
        if mean.size == 1:
            words += (
                f"E[λ] = {number(mean[0, 0])}, {percent(PROB)} interval {number(low[0, 0])} to {number(high[0, 0])}."
            )
        else:
            words += f"E[λ] from {number(mean.min())} to {number(mean.max())}."
        return tag("p", words), None
    C = mean.shape[1]
    own = np.zeros(s.rank, int) if C == 1 or s.home is None else s.home
    rows = []
    for k in s.orders.get("class", s.orders["size"]):
        others = [tag("i", class_="other") for _ in range(C)] if C > 1 else []
        head = [tag("b", f"#{k}"), "" if pictures is None else component_picture(k, pictures, f"component {k}")]
        track = tag("span", others, tag("b", class_="range"), tag("u", class_="spot"), class_="track")
        cells = tag("span", head, class_="name"), track, tag("span", number(mean[k, own[k]]), class_="value")
        rows.append(tag("div", *cells, class_="lam-row" if s.used[k] else "lam-row dead", data_k=k, data_tip=""))
    cells = tag("span", class_="name"), tag("span", id="lam-axis", class_="axis"), tag("span", "E[λ]", class_="value")
    axis = tag("div", *cells, class_="lam-axis")
    picker: Any = ""
    if C > 1:
        names = [tag("option", "its own class", value=-1)] + [tag("option", g, value=c) for c, g in enumerate(s.groups)]
        picker = tag("label", "Interval of λ at ", tag("select", names, id="lam-class"), class_="picker")
    values = [[[float(f"{v:.4g}") for v in row] for row in np.maximum(x, 1e-300)] for x in s.lam]
    region = {"class_": "lam", "tabindex": 0, "role": "region", "aria_label": "λ of every component"}
    body = [picker, tag("div", axis, tag("div", rows, id="lam-rows"), **region)]
    return tag("div", body), {"values": values, "own": own.tolist()}


def heat(s: Summary) -> tuple[Html, dict[str, Any]]:
    """Return a canvas for E[V], samples sorted by class, and the coefficients in 255 shades that fill it."""
    index = s.label_index
    chosen = np.arange(len(index))
    if len(index) > MOST:
        chosen = np.sort(np.random.default_rng(0).permutation(len(index))[:MOST])
    samples = chosen[np.argsort(index[chosen], kind="stable")]
    V = s.V[:, samples]
    top = float(np.quantile(V, 0.995) or V.max() or 1.0)
    shades = np.round(255 * np.clip(V / top, 0, 1)).astype(np.uint8)
    what = "samples sorted by class" if s.home is not None else "samples in their order"
    label = f"Heat map of E[V]: {s.rank} components by {len(samples):,} samples, {what}"
    data = {
        "shades": base64.b64encode(shades.tobytes()).decode("ascii"),
        "top": float(f"{top:.6g}"),
        "samples": [str(s.data.names.sample[n]) for n in samples],
        "of": index[samples].tolist(),
    }
    return tag("canvas", id="heat", role="img", aria_label=label), data


def table(s: Summary) -> Html:
    """Return a table of the numbers shown in the pictures."""
    lam = s.lam if s.lam is not None and s.lam_axes[0] == "component" and s.lam_axes[1] != "sample" else None
    heads = ["component", "in use", "proportion of ΣTV"]
    wide = s.width("total", 0, 0) is not None
    heads += [f"{percent(PROB)} interval", "mean field's"] if wide else []
    heads += [] if s.means is None else ["class", "mean v there"]
    heads += [] if lam is None else ["E[λ]" if lam.mean.shape[1] == 1 else "E[λ] there", f"{percent(PROB)} interval"]
    rows = []
    for k in range(s.rank):
        cells: list[Any] = [k, "yes" if s.used[k] else "no", percent(s.share[k])]
        width = s.width("total", k, 0)
        if width is not None:
            ends = (width.low, width.high), (width.own_low, width.own_high)
            cells += [f"{percent(low)} to {percent(high)}" for low, high in ends]
        c = 0 if s.home is None or (lam is not None and lam.mean.shape[1] == 1) else s.home[k]
        if s.means is not None and s.home is not None:
            cells += [s.belongs(k), number(s.means[s.home[k], k])]
        if lam is not None:
            cells += [number(lam.mean[k, c]), f"{number(lam.low[k, c])} to {number(lam.high[k, c])}"]
        rows.append(tag("tr", [tag("td", cell) for cell in cells], data_k=k))
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in heads]))
    whole = tag("table", head, tag("tbody", rows), class_="numbers")
    region = tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label="Components in numbers")
    return tag("details", tag("summary", "The same in numbers"), region)
