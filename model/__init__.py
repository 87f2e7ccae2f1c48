"""What is assumed: the data, the priors, and the generative model in NumPyro."""

from .data import Data, Names, as_data
from .generative import group_sparse_nmf
from .priors import Gamma, GroupSparse, Priors, Rate, label_driven
from .relative import matching, relative_rates

__all__ = [
    "Data",
    "Gamma",
    "GroupSparse",
    "Names",
    "Priors",
    "Rate",
    "as_data",
    "group_sparse_nmf",
    "label_driven",
    "matching",
    "relative_rates",
]
