"""Fits to the same data without one of the samples, from where a result ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.data import Data
from ..model.missing import blank
from ..model.priors import Gamma
from ..model.types import Array
from . import cavi, mcmc
from .chains import Chains
from .draws import Source
from .gibbs import Gibbs
from .posterior import Fit
from .results import factors_of
from .warning import quiet


def without(data: Data, n: int) -> Data:
    """Return the data with one sample hidden: an exact posterior is then that of the other samples.

    A mean field still has a q(v) of the hidden sample, and its q(λ) a shape that is larger by 1, hence narrower.
    """
    seen = np.ones(data.X.shape, bool) if data.mask is None else np.array(data.mask, bool)
    seen[:, n] = False
    return data._replace(X=blank(data.X, seen), mask=seen.astype(data.X.dtype))


def refitter(result: Any, source: Source, key: Array) -> Callable[[Data], Any]:
    """Return a function that fits other data from where a result ended.

    Fits are continued by `cavi.run`, and refined ones by `cavi.refine` after it; chains by their own sampler.
    """
    _, priors, rank = source.problem
    if source.held is None:
        q = factors_of(result)
        gamma = all(isinstance(factor, Gamma) for factor in q.sites.values())
        begin = q if gamma else cavi.start(**{site: factor.mean for site, factor in q.sites.items()})

        def fit(data: Data) -> Fit:
            with quiet():
                found = cavi.run(data, priors, key=key, start=begin, rank=rank)
                return cavi.refine(found, data) if gamma and getattr(result, "bound", None) == "collapsed" else found

        return fit
    if not isinstance(result, Chains):
        kind = type(result).__name__
        raise ValueError(f"expected a fit, or chains of mcmc, to fit again (or refit=a function); got {kind}")
    last = {site: np.asarray(source.held[site][0, -1], float) for site in ("T", "V", "lam") if site in source.held}
    run = mcmc.run_gibbs if isinstance(result.sampler, Gibbs) else mcmc.run_nuts
    same = ("num_warmup", "num_samples", "num_chains", "thinning", "chain_method")
    options = {name: getattr(result, name) for name in same} | dict(result.settings)
    return lambda data: run(data, priors, key=key, start=cavi.start(**last), rank=rank, progress_bar=False, **options)
