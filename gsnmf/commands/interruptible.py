"""Fits that Ctrl-C and SIGTERM end early: the last fit so far is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..interrupts import raise_if_received

if TYPE_CHECKING:
    from ..inference import Fit


def run_interruptible(
    run: Callable[[Callable[[Fit], None]], Fit],
    seen: Callable[[Fit], object],
    last: Fit | None = None,
    stop: Callable[[], None] = raise_if_received,
) -> tuple[Fit | None, bool]:
    """Return the fit, and whether a signal ended it: then the last fit so far, or None before the first.

    Args:
        run: fits, and calls its argument with the fit so far now and then.
        seen: also called with every fit so far.
        last: the fit that is resumed, if there is one.
        stop: called after that; raises KeyboardInterrupt if the run is to end.
    """

    def callback(fit: Fit) -> None:
        nonlocal last
        last = fit
        seen(fit)
        stop()

    try:
        return run(callback), False
    except KeyboardInterrupt:
        return last, True
