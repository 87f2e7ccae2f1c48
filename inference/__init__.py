"""Inference: coordinate ascent, stochastic gradients and Markov chains, and diagnostics of their results."""

from . import cavi, mcmc, svi
from .alignment import align, invariants
from .arviz import to_arviz
from .components import in_use, prune
from .diagnostics import Estimate, collapsed_bound, psis
from .entries import HeldOutScore, Imputed, held_out_score, impute
from .evidence import Evidence, evidence, upper_evidence
from .fold_in import Folded, fold_in
from .guide import guide
from .labels.readout import label_probabilities
from .leave_one_out import LeaveOneOut, leave_one_out
from .linear_response import LinearResponse, linear_response
from .posterior import Fit, Posterior, Status, StreamMark, StreamState
from .sharding import shard
from .vsbc import calibration
from .warning import DeadComponentsWarning

__all__ = [
    "DeadComponentsWarning",
    "Estimate",
    "Evidence",
    "Fit",
    "Folded",
    "HeldOutScore",
    "Imputed",
    "LeaveOneOut",
    "LinearResponse",
    "Posterior",
    "Status",
    "StreamMark",
    "StreamState",
    "align",
    "calibration",
    "cavi",
    "collapsed_bound",
    "evidence",
    "fold_in",
    "guide",
    "held_out_score",
    "impute",
    "in_use",
    "invariants",
    "label_probabilities",
    "leave_one_out",
    "linear_response",
    "mcmc",
    "prune",
    "psis",
    "shard",
    "svi",
    "to_arviz",
    "upper_evidence",
]
