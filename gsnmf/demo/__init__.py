"""Demonstrations on scikit-learn's handwritten digits."""

from .digits import run_demo
from .unlabelled import run_labels_demo

__all__ = ["run_demo", "run_labels_demo"]
