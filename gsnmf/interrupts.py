"""Signals that end a command early: Ctrl-C and SIGTERM, after which a command saves what there is.

A KeyboardInterrupt that is raised while a library is being imported may be swallowed there, or become another error.
The signal is therefore remembered and not raised during imports, and long work asks for it now and then. Processes that
compute together must end at a point on which they agree: meanwhile, too, a first signal is only remembered.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}  # 128 and the number of the signal, as shells count
_received: list[int] = []
_remembers = False  # within `remembering`


class Listening:
    """State of `listening`: `finished` once no signal can change the outcome of the work."""

    finished = False


_nobody = _listening = Listening()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _listening.finished:
        return
    _received.append(number)
    if not _importing(frame) and (not _remembers or len(_received) > 1):
        raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported at this point."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def listening(last: bool = False) -> Iterator[Listening]:
    """Turn Ctrl-C and SIGTERM into a KeyboardInterrupt that is remembered; only the main thread receives signals.

    Args:
        last: whether the process ends after this: signals are then ignored once the work is `finished`, as they
            would interrupt only the end of Python, with a traceback.
    """
    global _listening
    own = Listening()
    if _listening is _nobody:
        _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield own
        return
    outer, _listening = _listening, own
    before = {number: signal.signal(number, _interrupt) for number in CODES}
    try:
        yield own
    finally:
        try:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if last and own.finished else handler)
        finally:  # also after a Ctrl-C for which the handler before raises
            _listening = outer


@contextmanager
def remembering(first: bool) -> Iterator[None]:
    """Only remember the first signal, if asked to, for work that asks for it; a second one interrupts it at once."""
    global _remembers
    _remembers = first
    try:
        yield
    finally:
        _remembers = False


def reinstall() -> None:
    """Install the handlers of Python again, after a library has replaced them unnoticed by Python."""
    if threading.current_thread() is threading.main_thread():
        for number in CODES:
            signal.signal(number, signal.getsignal(number))


def raise_if_received() -> None:
    """Raise KeyboardInterrupt if a signal has come, even if the first one was swallowed."""
    if _received:
        raise KeyboardInterrupt


def was_received() -> bool:
    """Return whether a signal has come."""
    return bool(_received)


def exit_code() -> int:
    """Return the exit code of an interrupted command."""
    return CODES[signal.Signals(_received[-1])] if _received else CODES[signal.SIGINT]
