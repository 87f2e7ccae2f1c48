"""Figures of fits, on the given `Axes` or on new ones."""
