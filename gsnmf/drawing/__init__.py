"""Figures of fits, on the `Axes` given or on new ones."""
