"""How it is learned: closed forms, stochastic gradients, Markov chains; and how their results are read and judged."""

from . import cavi, mcmc, svi
from .alignment import align, invariants
from .collapsed import Estimate, calibration, collapsed_bound, psis
from .components import DeadComponentsWarning, in_use, prune
from .export import to_arviz
from .fold_in import Folded, fold_in
from .guide import guide
from .held_out import HeldOutScore, held_out_score
from .imputation import Imputed, impute
from .label_posterior import label_probabilities
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
