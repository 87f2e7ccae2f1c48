"""What is assumed: the data, the priors, and the generative model in NumPyro."""

from .conjugacy import Rate
from .data import Data, Names, as_data
from .generative import group_sparse_nmf
from .priors import Exponential, Gamma, GroupSparse, Priors, Relevance, by_scale, label_driven
from .relative import matching, relative_rates

__all__ = [
    "Data",
    "Exponential",
    "Gamma",
    "GroupSparse",
    "Names",
    "Priors",
    "Rate",
    "Relevance",
    "as_data",
    "by_scale",
    "group_sparse_nmf",
    "label_driven",
    "matching",
    "relative_rates",
]
