"""The door: data and priors are checked against each other here, once, before any work is done."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .checks import whole
from .data import Data
from .priors import Gamma, Priors
from .types import Array


def prepare(data: Data, priors: Priors, rank: int | None = None) -> tuple[Data, Priors, int]:
    """Data and priors in the precision JAX is set to, hyperparameters with two axes, and the rank K.

    The rank comes from the priors' shapes when they fix it, else from `rank`. Everything after this call may trust
    shapes and values.
    """
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    largest, size = np.finfo(jnp.result_type(float)).max, jnp.result_type(float).itemsize
    known = not isinstance(data.X, jax.core.Tracer)
    if known and data.X.dtype.itemsize > size and np.asarray(data.X).max() > largest:  # NumPy's, as we may be in a jit
        raise ValueError(f"expected X below {largest:.1e}, the largest number at this precision; got {data.X.max()}")
    if not isinstance(priors, Priors) or not isinstance(priors.dictionary, Gamma):
        raise ValueError(f"expected Priors(dictionary=Gamma(...), coefficients=...); got {priors!r}")
    if isinstance(priors.coefficients, type) or not hasattr(priors.coefficients, "hyperparameters"):
        raise ValueError(f"expected coefficients to be GroupSparse or Gamma; got {priors.coefficients!r}")
    # Lists are trees to JAX; here they are matrices.
    priors = jax.tree.map(lambda x: np.asarray(x) if isinstance(x, list) else x, priors, is_leaf=_is_list)
    gamma, columns = priors.coefficients.hyperparameters(data)
    matrices = {  # name: (values, rows, columns), None for the axis of components
        **{f"dictionary.{k}": (v, data.num_features, None) for k, v in _fields(priors.dictionary)},
        **{f"coefficients.{k}": (v, None, columns) for k, v in _fields(gamma)},
    }
    for name, (values, _, _) in matrices.items():
        _check_positive(name, values)
    axis = {name: -1 if rows else -2 for name, (_, rows, _) in matrices.items()}  # the axis of components
    K = _rank({n: np.shape(v)[axis[n]] for n, (v, _, _) in matrices.items() if np.ndim(v) >= -axis[n]}, rank)
    for name, (values, rows, cols) in matrices.items():
        shape = (rows or K, cols or K)
        try:
            fits = np.broadcast_shapes(np.shape(values), shape) == shape
        except ValueError:
            fits = False
        if not fits:
            axes = (
                "features × components"
                if rows
                else "components × " + ("groups" if priors.coefficients.hyperprior else "samples")
            )
            raise ValueError(f"expected {name} to broadcast to {axes}, {shape}; got shape {np.shape(values)}")
    return _cast(data), _cast(jax.tree.map(_two_axes, priors)), K


def has_counts(data: Data) -> bool:
    """Whether X holds whole numbers, which can be shared out among components."""
    return bool((np.asarray(data.X) == np.round(data.X)).all())


def require_counts(data: Data) -> None:
    """Refuse an X with fractions: its entries cannot be split into whole counts s_νiτ."""
    if not isinstance(data.X, jax.core.Tracer) and not has_counts(data):
        raise ValueError("expected X to hold whole numbers for the augmented model; got fractions")


def _two_axes(x: Array) -> Array:
    return jnp.atleast_2d(x) if isinstance(x, jax.Array) else np.atleast_2d(x)


def _is_list(x: Any) -> bool:
    return isinstance(x, list)


def _fields(gamma: Gamma) -> list[tuple[str, Any]]:
    if not isinstance(gamma, Gamma):
        raise ValueError(f"expected hyperparameters as Gamma(a, b); got {gamma!r}")
    return list(gamma._asdict().items())


def _check_positive(name: str, values: Array) -> None:
    if isinstance(values, jax.core.Tracer):  # inside someone's jit: there are no values to look at
        return
    array = np.asarray(values)
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):
        if array.dtype.kind not in "biuf" or not (np.isfinite(array.astype(dtype)) & (array.astype(dtype) > 0)).all():
            shown = np.array2string(array, threshold=6)
            raise ValueError(f"expected {name} to be positive and finite in {dtype.name}; got {shown}")


def _rank(declared: dict[str, int], rank: int | None) -> int:
    """K, from the lengths that the priors' component axes declare and the rank asked for."""
    lengths = {length for length in declared.values() if length != 1}
    lengths |= set() if rank is None else {whole("rank", rank, 1)}
    if len(lengths) > 1:
        raise ValueError(f"expected one number of components; got rank={rank} and priors that say {declared}")
    if lengths:
        return lengths.pop()
    if declared:  # a component axis of length 1, and nothing that asks for more
        return 1
    raise ValueError("expected rank, as no prior's shape fixes the number of components; got rank=None")


def _cast(tree: Any) -> Any:
    """In the precision that JAX is set to; what is not a JAX array yet is cast by NumPy, which compiles nothing."""
    dtype = jnp.result_type(float)
    return jax.tree.map(lambda x: jnp.asarray(x if isinstance(x, jax.Array) else np.asarray(x, dtype), dtype), tree)
