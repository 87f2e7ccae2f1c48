"""Functions of a posterior, as linear response takes them: validated before they are differentiated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import jax
import numpy as np

from ..model.priors import Gamma
from ..model.types import Array
from .posterior import Posterior

Statistic = Callable[[Posterior], Any]


def require_statistic(f: Any, q: Posterior) -> None:
    """Raise unless f is a function that reads what a posterior has, within its shapes.

    f is called once with NumPy arrays: NumPy refuses indices out of range, where JAX takes the nearest entry. If it
    cannot be called with them, nothing is learned from that.

    Args:
        f: a function of a `Posterior`.
        q: the posterior.

    >>> ones = Gamma(np.ones((2, 1)), np.ones((2, 1)))
    >>> require_statistic(lambda q: q.T.mean[1, 0], Posterior(ones, ones, None))
    """
    if not callable(f):
        raise ValueError(f"expected f to be a function of a Posterior; got {f!r}")
    try:
        f(jax.tree.map(np.asarray, q))
    except IndexError as error:
        raise ValueError(f"expected f to read entries within the shapes of factors; got IndexError: {error}") from error
    except AttributeError as error:
        require_sites(error, q)
    except Exception:
        return


def require_sites(error: AttributeError, q: Posterior) -> None:
    """Raise if a function failed because it asked a posterior or a factor for something it does not have."""
    if error.obj is None or isinstance(error.obj, (Posterior, Gamma)):
        raise ValueError(
            f"expected f to read mean and log_mean of {', '.join(q.sites)}; got AttributeError: {error}"
        ) from error


def require_numbers(value: Any) -> Any:
    """Return what a function of a posterior returned; raise unless it can be an array of numbers."""
    if value is None or isinstance(value, (str, bytes, Mapping, Set)):
        raise ValueError(f"expected f to return a number or an array; got {type(value).__name__}")
    return value


def require_entries(values: Array) -> None:
    """Raise unless an array holds real numbers, at least one."""
    if not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"expected f to return real numbers, which can be differentiated; got {values.dtype}")
    if values.size == 0:
        raise ValueError(f"expected f to return at least one number; got an empty array of shape {values.shape}")
