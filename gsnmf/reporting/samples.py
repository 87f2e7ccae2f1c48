"""Sections of a report about samples: reconstructions, classes by nearest neighbours, unlabelled samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from .components import Pictures
from .markup import Html, commas, number, percent, shorten, tag
from .pictures import component_picture, picture_image
from .summary import Guesses, Summary


def reconstruction_section(s: Summary, draw: Any, pictures: Pictures, shown: tuple[list[int], list[int]]) -> list[Html]:
    """Return the section that compares x with E[T] E[V] for some samples, with the components of each."""
    typical, worst = shown
    how = "from the best fitted to poor ones"
    if s.membership is not None:
        classes = "every class" if len(typical) >= len(s.groups) else f"{len(typical)} of {len(s.groups)} classes"
        how = f"the one with the median misfit of {classes}"
    parts = [
        tag(
            "p",
            f"Typical samples ({how}), then the worst fitted of all. Misfit: KL(x ‖ TV) of the sample.",
            class_="quiet",
        )
    ]
    if s.widths is not None:
        said = "" if not s.widths.found else " Hover over a component's proportion for the mean field's interval."
        parts.append(tag("p", f"{s.widths.note}{said}", class_="quiet"))
    cards = []
    for n in dict.fromkeys(typical + worst):
        poor = n in worst and n not in typical
        cards.append(_bars(s, n, poor) if pictures is None else _pair(s, n, draw, pictures, poor))
    return [*parts, tag("div", cards, class_="examples" if pictures is not None else "examples wide")]


def _span(s: Summary, k: int, n: int) -> str:
    """Return the interval of a component's proportion of a sample in percent; empty if it is not known."""
    width = s.width("sample", int(k), int(n))
    if width is None:
        return ""
    low, high = f"{100 * width.low:.0f}", f"{100 * width.high:.0f}"
    return f"{low}–{high}" if low != high else ""


def _tip(s: Summary, k: int, n: int) -> str:
    return "" if s.widths is None else s.widths.tip("sample", int(k), int(n))


def _head(s: Summary, n: int, worst: bool) -> Html:
    chips: list[Any] = []
    if s.membership is not None:
        label = shorten(s.groups[s.label_index[n]], 16)
        chips.append(tag("span", label if s.data.known[n] else f"{label}?", class_="chip"))
    if worst:
        chips.append(tag("span", "worst", class_="chip warm"))
    name = tag("b", shorten(s.data.names.sample[n], 24))
    return tag("figcaption", name, chips, tag("span", f"misfit {number(s.misfit[n])}", class_="share"))


def _pair(s: Summary, n: int, pictures_of: Any, pictures: NDArray[np.floating], worst: bool) -> Html:
    x, m = pictures_of(np.stack(s.shown(n), axis=1))
    top = float(np.nanmax(x)) if np.isfinite(x).any() else float(np.nanmax(m))
    name = s.data.names.sample[n]
    pair = [
        tag("div", picture_image(picture, top, f"sample {name}, {what}"), tag("small", what))
        for picture, what in ((x, "x"), (m, "E[T] E[V]"))
    ]
    best, shares = s.made_of(n)
    made = [
        tag(
            "div",
            component_picture(int(k), pictures, f"component {k}"),
            tag("small", f"{100 * share:.0f} %"),
            tag("small", _span(s, k, n), class_="span") if _span(s, k, n) else "",
            data_tip=f"component {k}: {percent(share)} of this sample{_tip(s, k, n)}",
        )
        for k, share in zip(best, shares, strict=True)
    ]
    return tag(
        "figure", _head(s, n, worst), tag("div", pair, class_="pair"), tag("div", made, class_="made"), class_="example"
    )


def _bars(s: Summary, n: int, worst: bool) -> Html:
    x, m = s.shown(n)
    best = np.argsort(-np.nan_to_num(np.maximum(x, m), nan=-1.0), kind="stable")[: min(8, len(x))]
    top = float(np.nanmax(np.maximum(np.nan_to_num(x[best]), m[best]))) or 1.0
    rows = []
    for f in best:
        name = s.data.names.feature[f]
        tip = f"{name}: x = {'missing' if np.isnan(x[f]) else number(x[f])}, E[T] E[V] = {number(m[f])}"
        bar = tag("i", style=f"width:{100 * np.nan_to_num(x[f]) / top:.1f}%")
        mark = tag("u", class_="spot", style=f"left:{100 * m[f] / top:.1f}%")
        value = "–" if np.isnan(x[f]) else number(x[f])
        rows.append(
            tag(
                "div",
                tag("span", shorten(name, 26), class_="name"),
                tag("span", bar, mark, class_="track"),
                tag("span", value, class_="value"),
                class_="bar-row",
                data_tip=tip,
            )
        )
    made = [
        tag(
            "span",
            f"{k} ({percent(share)}{_span(s, k, n) and f', {_span(s, k, n)} %'})",
            data_tip=f"component {k}{_tip(s, k, n)}",
        )
        for k, share in zip(*s.made_of(n), strict=True)
    ]
    note = tag("p", "Bars: x; points: E[T] E[V]. Components: ", commas(made), ".", class_="quiet small")
    return tag("figure", _head(s, n, worst), tag("div", rows, class_="bars"), note, class_="example")


def confusion_section(s: Summary, found: Guesses) -> list[Html]:
    """Return the section with the confusion matrix of labels by nearest neighbours."""
    some = f", of {found.possible:,} with a label, drawn at random" if found.possible > found.classified else ""
    said = (
        f"{np.trace(found.matrix):,} of {found.classified:,} fitted samples{some} ({percent(found.accuracy)}) have "
        "their nearest neighbour in their own class: nearest by cosine of coefficients, each sample left out in turn. "
        "The coefficients are nonnegative least squares under E[T], which do not use labels."
    )
    caveat = (
        "The dictionary was learned from these very samples, and from their labels if the prior uses them: this shows "
        "how far classes are apart here. It is not an estimate of the accuracy on new samples, which needs held-out "
        "samples."
    )
    totals = found.matrix.sum(axis=1)
    heads = tag(
        "tr", tag("td", "true ↓ guessed →", class_="corner"), [tag("th", shorten(g, 10), scope="col") for g in s.groups]
    )
    rows = []
    for c, (group, line) in enumerate(zip(s.groups, found.matrix, strict=True)):
        cells = []
        for g, count in enumerate(line):
            share = count / max(totals[c], 1)
            tip = f"{count} of {totals[c]} samples of {group} have their nearest neighbour in {s.groups[g]}"
            ink = (
                ""
                if not count
                else f"background:rgba({'31,95,168' if c == g else '194,65,12'},{0.12 + 0.78 * share:.2f})"
            )
            cells.append(
                tag("td", count or "", style=ink or None, class_="strong" if share > 0.5 else None, data_tip=tip)
            )
        rows.append(tag("tr", tag("th", shorten(group, 16), scope="row"), cells))
    matrix = tag(
        "table",
        tag("caption", "Confusion matrix", class_="hidden"),
        tag("thead", heads),
        tag("tbody", rows),
        class_="confusion",
    )
    region = tag("div", matrix, class_="scroll", tabindex=0, role="region", aria_label="Confusion matrix")
    return [tag("div", tag("p", said), region, tag("p", caveat, class_="quiet"), class_="panel")]


def unlabelled_section(s: Summary, most: int = 20) -> list[Html]:
    """Return the section about unlabelled samples: how many there are, and the least certain of them."""
    z = np.asarray(s.fit.posterior.z, float)
    unlabelled = np.flatnonzero(~s.data.known)
    doubt = entr(z[unlabelled]).sum(axis=1)
    sure = (z[unlabelled].max(axis=1) >= 0.95).mean()
    said = (
        f"{len(unlabelled):,} of {len(z):,} samples were unlabelled; their labels were learned with the factors. "
        f"{percent(sure)} of the learned labels have a probability of 95 % or more. These are the model's own "
        "probabilities, which are often too sure. The least certain samples:"
    )
    rows = []
    for n in unlabelled[np.argsort(-doubt, kind="stable")][:most]:
        best = np.argsort(-z[n], kind="stable")[:3]
        guesses = [
            tag(
                "td",
                f"{shorten(s.groups[c], 16)}: {z[n, c]:.3f}",
                class_="share-cell",
                style=f"--share:{100 * z[n, c]:.1f}%",
            )
            for c in best
        ]
        rows.append(tag("tr", tag("th", shorten(s.data.names.sample[n], 24), scope="row"), guesses))
    names = ("sample", "most probable", "second", "third")
    heads = tag("tr", [tag("th", name, scope="col") for name in names[: 1 + min(3, z.shape[1])]])
    table = tag("table", tag("thead", heads), tag("tbody", rows), class_="numbers")
    region = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Least certain labels")
    return [tag("div", tag("p", said), region, class_="panel")]
