"""What every measurement shares: a row of the table, and repeats taken in rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from tqdm import tqdm

PAUSE = 0.25  # seconds; OpenBLAS's idle workers keep a core busy for 0.1 s after every call
PRECISIONS = ("float32", "float64")
Item = TypeVar("Item")
Clock = Callable[[], float]  # measures once; seconds per sweep (or per iteration, or per call)


class Options(NamedTuple):
    """How thorough a run is.

    quick: fewer repeats, and without what takes longest.
    tiny: sizes that only show that the command works.
    yale: the real faces, a file or folder.
    seeds: random starts, where these are what is repeated.
    counts: counts of words, an npz file.
    """

    quick: bool = False
    tiny: bool = False
    yale: Path | None = None
    seeds: int = 5
    counts: Path | None = None


class Row(NamedTuple):
    """One line of the table.

    values: one for each repeat; the table shows their median and quartiles.
    target: the least and the most the median may be; None where there is no target.
    unit: written after the numbers; nothing for a ratio.
    note: what a reader of the number must know.
    detail: what else was measured, for the JSON file.
    """

    what: str
    size: str
    precision: str
    values: list[float]
    target: tuple[float, float] | None = None
    unit: str = ""
    note: str = ""
    detail: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def quartiles(self) -> np.ndarray:
        """The three quartiles; an infinite value stands for "never" and keeps its place in the order."""
        return np.quantile(
            self.values, [0.25, 0.5, 0.75], method="nearest" if np.isinf(self.values).any() else "linear"
        )

    @property
    def met(self) -> bool | None:
        """Whether the median is within the target."""
        if self.target is None:
            return None
        return bool(self.target[0] <= self.quartiles[1] <= self.target[1])


def at_most(limit: float) -> tuple[float, float]:
    """A target from above."""
    return 0.0, limit


def progress(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The items, with a bar on stderr while they last."""
    return iter(tqdm(items, desc=what, file=sys.stderr, leave=False))


def precision(name: str) -> AbstractContextManager[Any]:
    """JAX in single or double precision, within a `with` block."""
    context: AbstractContextManager[Any] = jax.enable_x64(name == "float64")
    return context


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes until its result is there."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def clock(call: Callable[[], object], units: int = 1, least: float = 0.1) -> Clock:
    """Seconds per unit of work, `units` a call, over as many calls as fill `least` seconds.

    The first call, with what it compiles, is made here and does not count.
    """
    first = seconds(call)
    calls = 1 if first > 20 * least else max(1, round(least / seconds(call)))
    return lambda: seconds(lambda: [call() for _ in range(calls)][-1]) / (calls * units)


def rounds(in_jax: dict[str, Clock], in_blas: dict[str, Clock], count: int, what: str) -> dict[str, np.ndarray]:
    """Every clock read once per round: first those of JAX, then those that call OpenBLAS, with pauses between.

    Load on the machine changes from second to second. Ratios are therefore taken within a round, and OpenBLAS's workers
    are given the time to fall asleep, or JAX would be measured on the core they leave. After a pause the first call
    finds processors asleep: it does not count, and the order changes from round to round.
    """
    times: dict[str, list[float]] = {name: [] for name in (*in_jax, *in_blas)}
    for n in progress(range(count), what):
        for block in (in_jax, in_blas):
            time.sleep(PAUSE)
            order = list(block.items())[:: -1 if n % 2 else 1]
            for _, measure in order[:1]:
                measure()
            for name, measure in order:
                times[name].append(measure())
    return {name: np.array(values) for name, values in times.items()}


def milliseconds(times: dict[str, np.ndarray]) -> dict[str, float]:
    """Medians, for the JSON file."""
    return {f"{name} ms": round(1e3 * float(np.median(values)), 4) for name, values in times.items()}
