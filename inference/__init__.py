"""How it is learned: closed-form coordinate ascent and what consumes its result."""

from . import cavi
from .posterior import Fit, Posterior

__all__ = ["Fit", "Posterior", "cavi"]
