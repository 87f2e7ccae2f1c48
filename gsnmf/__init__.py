"""Bayesian nonnegative matrix factorisation with group sparsity."""

__version__ = "0.1.0"
