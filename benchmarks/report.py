"""The measurements as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measure import Row
from threadpoolctl import threadpool_info

PACKAGES = ("gsnmf", "jax", "numpyro", "numpy", "scipy", "scikit-learn")
MET = {True: "yes", False: "NO", None: ""}
COLOUR = {True: "#2a7f4f", False: "#c0392b", None: "0.55"}


def table(rows: list[Row]) -> pd.DataFrame:
    """One line per row, by kind, numbers as text; a note stands in the line below."""
    lines = []
    kinds = list(dict.fromkeys(row.what for row in rows))
    for row in sorted(rows, key=lambda row: kinds.index(row.what)):
        low, middle, high = (number(value) for value in row.quartiles)
        measured = f"{middle} {row.unit}".strip()
        lines.append((row.what, row.size, row.precision, measured, f"{low}–{high}", target(row), MET[row.met]))
        if row.note:
            lines.append((f"  ({row.note})", "", "", "", "", "", ""))
    return pd.DataFrame(lines, columns=["what", "size", "precision", "measured", "spread", "target", "met?"])


def text(frame: pd.DataFrame) -> str:
    """The table for a terminal: words to the left, numbers to the right."""
    left = frame.columns[:3]
    width = {column: max(map(len, [column, *frame[column][~frame.what.str.startswith("  (")]])) for column in frame}
    lines = []
    for line in [tuple(frame.columns), *frame.itertuples(index=False)]:
        cells = (
            f"{c:<{width[name]}}" if name in left else f"{c:>{width[name]}}"
            for name, c in zip(frame, line, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "─" * (sum(width.values()) + 2 * len(width) - 2), *lines[1:]])


def number(value: float) -> str:
    """Three digits; a dash in place of infinity reads worse than the word."""
    if np.isinf(value):
        return "never"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def target(row: Row) -> str:
    """The target in the row's own unit."""
    if row.target is None:
        return ""
    low, high = row.target
    if high == 0:
        return "0"
    return f"≤ {number(high)}" if low == 0 else f"{number(low)}…{number(high)}"


def environment(command: list[str]) -> dict[str, Any]:
    """What the numbers depend on; nothing that tells one machine of a kind from another."""
    threads = {pool["internal_api"]: pool["num_threads"] for pool in threadpool_info()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "command": " ".join(["python", "benchmarks/run.py", *(Path(word).name for word in command)]),
        "cpus": os.cpu_count(),
        "load": load(),
        "machine": platform.machine(),
        "threads": threads,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def load() -> float | None:
    """Processes that wanted a CPU in the last minutes, on average; None where nobody counts them."""
    return round(os.getloadavg()[1], 1) if hasattr(os, "getloadavg") else None


def busy() -> bool:
    """Whether others were at work too: the benchmark itself keeps every CPU occupied, and now and then two threads."""
    return (load() or 0) > 1.7 * (os.cpu_count() or 1)


def write(rows: list[Row], command: list[str], folder: Path) -> list[Path]:
    """The files `bench.json` and `bench.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    results = [{**row._asdict(), "median": row.quartiles[1], "met": row.met} for row in rows]
    document = {"environment": environment(command), "rows": results}
    files = [folder / "bench.json", folder / "bench.png"]
    files[0].write_text(json.dumps(finite(document), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draw(rows).get_figure().savefig(files[1], dpi=130)
    return files


def finite(value: Any) -> Any:
    """The same for JSON, which has no infinity: null stands for "never"."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value


def draw(rows: list[Row]) -> Axes:
    """Every row as a multiple of the most it may be, or of 1 where there is no target; one block for each kind."""
    shown = [row for row in rows if row.target is None or row.target[1] > 0]
    lines: list[Row | str] = []
    for what in dict.fromkeys(row.what for row in shown):
        lines += [what, *(row for row in shown if row.what == what)]
    figure = Figure(figsize=(10, 1.4 + 0.21 * len(lines)), layout="constrained")
    ax = figure.add_subplot()
    for y, line in enumerate(lines):
        if isinstance(line, str):
            ax.text(
                -0.01, y, line, transform=ax.get_yaxis_transform(), ha="right", va="center", fontsize=8, weight="bold"
            )
        else:
            _draw_row(ax, y, line)
    values = np.concatenate([row.quartiles / (row.target or (0, 1.0))[1] for row in shown])
    values = values[np.isfinite(values) & (values > 0)]  # a slope may be 0 or less on a busy machine: off the axis
    ax.set_xscale("log")
    ax.set_xlim(min(0.2, values.min(initial=np.inf) / 1.5), max(2.5, values.max(initial=0.0) * 1.5))
    ax.axvline(1, color="0.15", lw=1)
    labels = {y: f"{line.size}, {line.precision[5:]} bit" for y, line in enumerate(lines) if isinstance(line, Row)}
    ax.set_yticks(list(labels), list(labels.values()), fontsize=7)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.grid(axis="x", which="both", color="0.9", lw=0.5)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_title("Ratios as multiples of their targets (shaded; red: not met) or, hollow, themselves", fontsize=9)
    ax.set_xlabel("median and quartiles; left of 1 is better", fontsize=8)
    return ax


def _draw_row(ax: Axes, y: int, row: Row) -> None:
    """Quartiles and median, where they may be, and the median in figures at the right."""
    low, limit = row.target or (0.0, 1.0)
    colour, never = COLOUR[row.met], np.isinf(row.quartiles)
    quartiles = np.where(never, 1e3 * limit, row.quartiles) / limit  # beyond the right edge
    if row.target is not None:
        left = max(low / limit, 1e-6)
        ax.barh(y, 1 - left, left=left, height=1, color="#2a7f4f", alpha=0.10, lw=0)
    ax.plot(quartiles[[0, 2]], [y, y], color=colour, lw=2, solid_capstyle="butt")
    ax.plot(quartiles[1], y, "o", color=colour, mfc="white" if row.target is None else colour, ms=5)
    figures = f"{number(row.quartiles[1])} {row.unit}".strip()
    ax.text(1.01, y, figures, transform=ax.get_yaxis_transform(), va="center", fontsize=7, color=colour)
