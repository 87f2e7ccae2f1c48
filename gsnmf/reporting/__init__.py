"""One self-contained page about a fit: numbers in `summary.py`, drawings in the files beside it, all in `page.py`."""

from .page import report

__all__ = ["report"]
