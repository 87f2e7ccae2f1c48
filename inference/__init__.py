"""How it is learned: closed forms, stochastic gradients, Markov chains; and how their results are read and judged."""

from . import cavi, mcmc, svi
from .alignment import align, invariants
from .arviz import to_arviz
from .components import DeadComponentsWarning, in_use, prune
from .diagnostics import Estimate, calibration, collapsed_bound, psis
from .fold_in import Folded, fold_in
from .guide import guide
from .held_out import HeldOutScore, held_out_score
from .imputation import Imputed, impute
from .labels.readout import label_probabilities
from .posterior import Fit, Posterior

__all__ = [
    "DeadComponentsWarning",
    "Estimate",
    "Fit",
    "Folded",
    "HeldOutScore",
    "Imputed",
    "Posterior",
    "align",
    "calibration",
    "cavi",
    "collapsed_bound",
    "fold_in",
    "guide",
    "held_out_score",
    "impute",
    "in_use",
    "invariants",
    "label_probabilities",
    "mcmc",
    "prune",
    "psis",
    "svi",
    "to_arviz",
]
