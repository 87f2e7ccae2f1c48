"""What is assumed: the data, the priors, and the generative model in NumPyro."""

from .data import Data, as_data
from .generative import group_sparse_nmf
from .missing import hide
from .priors import Gamma, GroupSparse, Priors, Rate, label_driven
from .relative import matching, relative_rates
from .unseen import HeldOut, Names

__all__ = [
    "Data",
    "Gamma",
    "GroupSparse",
    "HeldOut",
    "Names",
    "Priors",
    "Rate",
    "as_data",
    "group_sparse_nmf",
    "hide",
    "label_driven",
    "matching",
    "relative_rates",
]
