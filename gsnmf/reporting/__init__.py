"""A self-contained page about a fit: numbers in `summary.py`, the page in `page.py`, its parts in the other files."""

from .page import report

__all__ = ["report"]
