"""The door: data and priors are checked against each other here, once, before any work is done."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .conjugacy import rate_shape, stated_of_V
from .data import Data
from .priors import Axes, Gamma, Given, Priors, canonical
from .validation import positive, whole

Parameters: TypeAlias = dict[str, tuple[Any, Axes]]  # values and axes by name


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
    priors = canonical(priors)
    # Lists are trees to JAX; here they are matrices.
    priors = jax.tree.map(lambda x: np.asarray(x) if isinstance(x, list) else x, priors, is_leaf=_is_whole)
    family = priors.coefficients
    if "group" in family.axes and data.num_groups == 0:
        name = type(family).__name__
        raise ValueError(f"expected data with groups, as_data(X, groups), for a {name} prior; got data without")
    if "group" not in family.axes:  # then nothing depends on labels, known or not
        data = data._replace(labels=None)
    hyper = family if family.hyperprior is None else family.hyperprior
    matrices = _parameters("dictionary", priors.dictionary, ("feature", "component"))
    matrices |= _parameters("coefficients", hyper, family.axes)
    if not isinstance(family, Gamma):  # which has said so already
        stated = stated_of_V(family, data)
        matrices |= {f"coefficients.{name}": (x, ("component", "sample")) for name, x in stated.items()}
    for name, (values, _) in matrices.items():
        positive(name, values)
    K = _rank(matrices, rank)
    _check_shapes(matrices, data, K)
    return _cast(data), _cast(_two_axes(priors, data, K)), K


def has_counts(data: Data) -> bool:
    """Whether X holds whole numbers, which can be shared out among components."""
    return bool((np.asarray(data.X) == np.round(data.X)).all())


def require_counts(data: Data) -> None:
    """Refuse an X with fractions: its entries cannot be split into whole counts s_νiτ."""
    if not isinstance(data.X, jax.core.Tracer) and not has_counts(data):
        raise ValueError("expected X to hold whole numbers for the augmented model; got fractions")


def _two_axes(priors: Priors, data: Data, K: int) -> Priors:
    """All numbers with two axes; distributions, which know their own shape, of the full one."""
    family = priors.coefficients
    sizes: Any = rate_shape(family, data, K) or (K, data.num_samples)
    if isinstance(priors.dictionary, Given):
        priors = priors._replace(dictionary=priors.dictionary.broadcast(data.num_features, K))
    family = jax.tree.map(lambda x: x.broadcast(*sizes) if isinstance(x, Given) else x, family, is_leaf=_is_whole)

    def two(x: Any) -> Any:
        if isinstance(x, Given):
            return x
        return jnp.atleast_2d(x) if isinstance(x, jax.Array) else np.atleast_2d(x)

    turned: Priors = jax.tree.map(two, priors._replace(coefficients=family), is_leaf=_is_whole)
    return turned


def _is_whole(x: Any) -> bool:
    """Lists, and distributions, whose insides are NumPyro's affair."""
    return isinstance(x, (list, Given))


def _parameters(name: str, prior: Any, axes: Axes) -> Parameters:
    """The numbers of a prior by name, and their axes; of a distribution its shape speaks for them."""
    if isinstance(prior, Given):
        return {name: (np.broadcast_to(1.0, prior.law.batch_shape), axes)}
    if isinstance(prior, Gamma):
        return {f"{name}.{k}": (v, axes) for k, v in prior._asdict().items()}
    if hasattr(prior, "axes"):  # a family without λ: what it is made of is its own affair
        return {}
    raise ValueError(f"expected the prior of λ to be a Gamma or a NumPyro distribution; got {prior!r}")


def _check_shapes(matrices: Parameters, data: Data, K: int) -> None:
    """Refuse numbers that do not broadcast to the axes they belong to."""
    lengths = {"feature": data.num_features, "component": K, "sample": data.num_samples, "group": data.num_groups}
    for name, (values, axes) in matrices.items():
        shape = tuple(lengths.get(axis, 1) for axis in axes)
        try:
            fits = np.broadcast_shapes(np.shape(values), shape) == shape
        except ValueError:
            fits = False
        if not fits:
            said = " × ".join(axis.replace("_", " ") if axis.startswith("all_") else f"{axis}s" for axis in axes)
            raise ValueError(f"expected {name} to broadcast to {said}, {shape}; got shape {np.shape(values)}")


def _rank(matrices: Parameters, rank: int | None) -> int:
    """K, from the lengths that the priors' component axes declare and the rank asked for."""
    declared = {}
    for name, (values, axes) in matrices.items():
        if "component" in axes and np.ndim(values) >= 2 - axes.index("component"):
            declared[name] = int(np.shape(values)[axes.index("component") - 2])
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
