"""How it is learned: closed-form coordinate ascent, and the guide that hands its result to NumPyro."""

from . import cavi
from .guide import guide
from .posterior import Fit, Posterior

__all__ = ["Fit", "Posterior", "cavi", "guide"]
