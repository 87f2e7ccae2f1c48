"""What is assumed: the data, the priors, and the generative model in NumPyro."""

from .data import Data, Names, as_data
from .generative import group_sparse_nmf
from .priors import Gamma, GroupSparse, Priors, Rate
from .relative import matching, relative_rates
from .structures import common, common_and_individual, individual, label_driven, structured, tree

__all__ = [
    "Data",
    "Gamma",
    "GroupSparse",
    "Names",
    "Priors",
    "Rate",
    "as_data",
    "common",
    "common_and_individual",
    "group_sparse_nmf",
    "individual",
    "label_driven",
    "matching",
    "relative_rates",
    "structured",
    "tree",
]
