"""Cross-check: CAVI, refined CAVI, SVI, NUTS and Gibbs on one small problem."""

from .algorithms import HOW, Answer
from .run import Crosscheck, check_sizes, crosscheck, example, run_crosscheck, summarise

__all__ = ["HOW", "Answer", "Crosscheck", "check_sizes", "crosscheck", "example", "run_crosscheck", "summarise"]
