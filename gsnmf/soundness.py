"""Checks of fits before they are saved and after they are loaded: types of their parts, and lengths of their axes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .inference import Fit
from .inference.results import difference, require_own_data
from .model import Data, Names, Priors
from .model.checks import require_flag, whole
from .model.priors import canonical

BOUNDS = ("augmented", "collapsed", "log_joint")
PRECISION = 1e-6  # relative difference of the same priors in single and double precision


def require_belonging(fit: Fit, priors: Priors, names: Names, data: Data | None) -> None:
    """Raise unless priors, names and data are those of the fit, before anything is saved.

    Args:
        fit: to save.
        priors: of the fit.
        names: of its axes.
        data: of the fit; None if only names are saved.
    """
    if data is not None:
        require_own_data(fit, data)
    found = None if fit.priors is None else difference(priors, fit.priors, rtol=PRECISION)
    if found is not None:
        raise ValueError(f"expected the priors of the fit, fit.priors; got {found}")
    found = misfit(fit, priors, names)
    if found is not None:
        raise ValueError(f"expected names or data with the axes of the fit; got {found}")


def misfit(fit: Fit, priors: Priors, names: Names) -> str | None:
    """Return how the factors of a fit disagree with the names of its axes, in words; None if they do not."""
    F, N, C = len(names.feature), len(names.sample), len(names.group)
    shapes = {site: jax.eval_shape(lambda q: q.mean, q).shape for site, q in fit.posterior.sites.items()}
    both = [shapes["T"], shapes["V"]]
    if [len(shape) for shape in both] != [2, 2] or both != [(F, both[1][0]), (both[0][1], N)]:
        return f"factors of shapes {both} for {F} names of features and {N} of samples"
    lam, axes = shapes.get("lam"), canonical(priors).coefficients.axes
    if lam is not None and "group" in axes and lam[-1:] != (C,):
        return f"λ of shape {lam} for {C} names of groups"
    return None


def check_types(description: dict[str, Any]) -> None:
    """Raise if what a description says about a run is not of the types that `pack` writes.

    Args:
        description: as loaded; versions before 6 have no checksum that an edit would break.
    """
    whole("num_steps", description["num_steps"], 0)
    for name in ("converged", "learned"):
        require_flag(name, description.get(name, False))
    for name in ("data", "labels"):
        if description.get(name) is not None:
            whole(name, description[name], 0, most=2**64)
    if not isinstance(description["message"], str):
        raise ValueError(f"expected message to be text; got {description['message']!r}")
    if description.get("bound", BOUNDS[0]) not in BOUNDS:
        raise ValueError(f"expected bound to be one of {', '.join(map(repr, BOUNDS))}; got {description['bound']!r}")
    check_seconds(description.get("seconds"))
    for axis, stated in description["names"].items():
        if not isinstance(stated["values"], list):
            raise ValueError(f"expected a list of names of the axis {axis}; got {stated['values']!r}")


def check_seconds(seconds: Any) -> None:
    """Raise unless the duration of a fit is None or a number ≥ 0."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, np.number)) or not 0 <= seconds < np.inf:
        raise ValueError(f"expected seconds to be None or a number ≥ 0; got {seconds!r}")


def check_factors(fit: Fit) -> None:
    """Raise if a loaded fit has factors that no algorithm returns; NaN is allowed where the bound is not finite."""
    if np.ndim(fit.elbo) != 1:
        raise ValueError(f"expected elbo with one axis; got shape {np.shape(fit.elbo)}")
    for site, q in fit.posterior.sites.items():
        for name, values in zip(q._fields, q, strict=True):
            what, array = f"{site}.{name}", np.asarray(values)
            if array.dtype.kind not in "iuf":
                raise ValueError(f"expected real numbers in {what}; got {'None' if values is None else array.dtype}")
            if fit.is_finite and np.isnan(array).any():
                raise ValueError(f"expected numbers in {what}; got NaN")
            if name not in ("loc", "factor") and (array < 0).any():
                raise ValueError(f"expected {what} to be positive; got {array[array < 0][0]}")
