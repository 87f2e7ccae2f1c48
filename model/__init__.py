"""Model: data, priors, and the generative model in NumPyro."""

from .conjugacy import Rate
from .crossing import Crossed, crossed
from .data import Data, as_data
from .defaults import default_priors
from .generative import group_sparse_nmf
from .labels import Dirichlet, Labels
from .metadata import HeldOut, Names
from .missing import hide
from .priors import Exponential, Gamma, GroupSparse, Priors, Relevance, by_scale
from .problem import Problem
from .seeds import seeded, seeded_priors
from .structures import common, common_and_individual, individual, label_driven, structured, tree
from .units import matching, relative_rates, unit_of

__all__ = [
    "Crossed",
    "Data",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GroupSparse",
    "HeldOut",
    "Labels",
    "Names",
    "Priors",
    "Problem",
    "Rate",
    "Relevance",
    "as_data",
    "by_scale",
    "common",
    "common_and_individual",
    "crossed",
    "default_priors",
    "group_sparse_nmf",
    "hide",
    "individual",
    "label_driven",
    "matching",
    "relative_rates",
    "seeded",
    "seeded_priors",
    "structured",
    "tree",
    "unit_of",
]
