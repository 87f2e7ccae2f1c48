"""The result of a run: whether it converged, and a sentence about it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.data import Data
from ..model.priors import Priors, canonical
from ..model.types import Array
from .components import warn_of_dead
from .hyper import Learn, learned_priors
from .momentum import State
from .posterior import Fit
from .warning import warn

ROUNDING = {4: 1e-3, 8: 1e-9}  # largest fall of the bound, relatively, by rounding; by bytes of a number


class Schedule(NamedTuple):
    """Options of a run: arguments of `cavi.run` by the same names, and `priors` as the user gave them."""

    priors: Priors
    max_steps: int
    tol: float | None
    accelerate: bool
    learn: Learn | None


def find_fall(elbo: np.ndarray, itemsize: int) -> int | None:
    """Return the sweep after which the bound fell by more than rounding, which exact sweeps cannot do; else None.

    Args:
        elbo: the bound after each sweep.
        itemsize: bytes of a number.
    """
    if not np.isfinite(elbo).all():  # which is an error of its own
        return None
    change = np.diff(elbo)
    deep = len(change) > 0 and bool(-change.min() > ROUNDING[itemsize] * np.abs(elbo).max())
    return int(change.argmin()) + 1 if deep else None


def _explain(fall: int, elbo: np.ndarray, dtype: Any, priors: Priors) -> str:
    """Return a sentence about a fall of the bound, with its probable cause."""
    share = (elbo[fall - 1] - elbo[fall]) / abs(elbo[fall])
    return (
        f"The bound fell by {share:.1e} of itself in sweep {fall + 1}, more than rounding explains: {dtype.name} "
        f"cannot hold its terms, with {_extreme(dtype, canonical(priors))}."
    )


def _extreme(dtype: Any, priors: Priors) -> str:
    """Return the hyperparameters that are probably too extreme, and what to do.

    E[log x] falls to −1/a at a small shape a. If it does so in T and in V, exp E[log T] exp E[log V] is 0, where sweeps
    have a floor (see `observed.dense.allocate`). Otherwise terms are too large, such as a log a of a large a.
    """
    double = "use double precision (jax_enable_x64), or " if dtype.itemsize < 8 else ""
    shapes = [float(np.min(x)) for x in (priors.dictionary.a, priors.coefficients.shape)]
    if 2 / max(shapes) > -np.log(np.finfo(dtype).tiny ** (2 / 3)):
        return (
            f"shapes of both T and V down to {max(shapes):.1e}: exp E[log T] exp E[log V] is 0; {double}use larger ones"
        )
    sizes = [np.abs(np.asarray(leaf, float)) for leaf in jax.tree.leaves(priors)]
    smallest, largest = float(min(x.min() for x in sizes)), float(max(x.max() for x in sizes))
    if smallest * largest < 1:
        return f"hyperparameters down to {smallest:.1e}; {double}use larger ones"
    return f"hyperparameters up to {largest:.1e}; {double}use smaller ones"


def as_fit(state: State, elbos: list[np.ndarray], now: Array, stop: bool, schedule: Schedule) -> Fit:
    """Return the result so far: the bounds before every sweep except the first, and the one now."""
    tol = schedule.tol
    before = np.concatenate(elbos)[1:]
    elbo = np.append(before, float(now))
    finite = np.isfinite(elbo)
    fall = find_fall(elbo, state.bound.dtype.itemsize)
    converged = stop and bool(finite.all()) and fall is None
    if not finite.all():
        message = f"The bound became {elbo[~finite][0]} at sweep {np.argmin(finite) + 1}."
    elif fall is not None:
        message = _explain(fall, elbo, state.bound.dtype, schedule.priors)
    elif converged:
        message = f"The bound changed by at most {tol:g} of itself in sweep {len(before)}, the last but one."
    elif tol is None or len(before) < 2:
        message = f"All {len(elbo)} sweeps were made."
    else:
        with np.errstate(divide="ignore", invalid="ignore"):  # a bound of 0
            changes = np.abs(np.diff(before)) / abs(before[-1])
        change = changes[changes > 0][-1] if changes.any() else 0.0  # a dropped sweep changes nothing
        message = f"After {len(elbo)} sweeps the bound still changed by {change:.1e} of itself, above tol={tol:g}."
    priors = learned_priors(schedule.priors, state.priors, schedule.learn)
    return Fit(state.posterior, elbo, len(elbo), converged, message, learned=schedule.learn is not None, priors=priors)


def _fell(fit: Fit) -> bool:
    """Return whether the bound fell by more than rounding."""
    return find_fall(fit.elbo, np.dtype(fit.posterior.T.a.dtype).itemsize) is not None


def warn_of(fits: list[Fit], datas: list[Data], tol: float | None) -> None:
    """Warn once of fits that did not reach their tolerance or are not finite, and once of unused components."""
    late = [fit for fit in fits if not (fit.converged if tol is not None else fit.is_finite and not _fell(fit))]
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        warn(count + late[0].message, ConvergenceWarning, stacklevel=3)
    warn_of_dead(fits, datas, stacklevel=3)
