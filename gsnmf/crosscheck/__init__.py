"""Cross-check: CAVI, refined CAVI, SVI, NUTS and Gibbs on one small problem."""

from .run import HOW, Answer, Crosscheck, check_sizes, crosscheck, example, run_crosscheck, summarise

__all__ = ["HOW", "Answer", "Crosscheck", "check_sizes", "crosscheck", "example", "run_crosscheck", "summarise"]
