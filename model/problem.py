"""Problems: data, priors and rank, validated against each other once, before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .checks import require_positive, whole
from .compressed import Compressed, Places, is_sparse
from .conjugacy import rate_shape, stated_of_V
from .data import Data
from .forks import require_own_threads
from .indexed import Indexed
from .matrix import is_traced
from .priors import Axes, Gamma, Given, Priors, canonical

Parameters: TypeAlias = dict[str, tuple[Any, Axes]]  # values and axes by name


@jax.tree_util.register_pytree_node_class
class Problem:
    """Data, priors and rank, prepared: everything that is given a Problem trusts its shapes and values.

    data: in the precision that JAX is set to, X on the device unless it is sparse. Labels are dropped if the priors
        have no groups.
    priors: in the library's own families, hyperparameters with two axes, in the same precision.
    rank: K, from the priors' shapes if they fix it, else as given.

    Args:
        data: as made by `as_data`.
        priors: the priors of T and V.
        rank: the number of components, where the priors' shapes leave it open.

    It unpacks: `data, priors, rank = Problem(data, priors)`.

    >>> from gsnmf.model import as_data
    >>> Problem(as_data([[3.0, 1.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), rank=2).rank
    2
    """

    def __init__(self, data: Data, priors: Priors, rank: int | None = None) -> None:
        self.data, self.priors, self.rank = _prepare(data, priors, rank)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.priors, self.rank))

    def __repr__(self) -> str:
        F, N = self.data.X.shape
        return f"Problem({F} features × {N} samples, {self.data.num_groups} groups, rank {self.rank})"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of data and priors."""
        return self.data.X.dtype  # type: ignore[no-any-return]  # of a JAX array

    @property
    def size(self) -> int:
        """The number of entries of X; of a sparse one those that are stored, and those of T and V."""
        F, N = self.data.num_features, self.data.num_samples
        return self.data.X.nnz + self.rank * (F + N) if is_sparse(self.data) else F * N

    def with_data(self, data: Data) -> Problem:
        """Return the same problem with other data of the same features, groups and precision, which are trusted."""
        return self.tree_unflatten(self.rank, (data, self.priors))

    def tree_flatten(self) -> tuple[tuple[Data, Priors], int]:
        """Data and priors are leaves; the rank is static, as it decides shapes."""
        return (self.data, self.priors), self.rank

    @classmethod
    def tree_unflatten(cls, rank: int, leaves: tuple[Data, Priors]) -> Problem:
        """Rebuild a problem without validation."""
        problem = object.__new__(cls)
        problem.data, problem.priors = leaves
        problem.rank = rank
        return problem


def as_problem(data: Data | Problem, priors: Priors | None = None, rank: int | None = None) -> Problem:
    """Return a problem as it is, or prepare one: the entrance of models and guides, which NumPyro calls repeatedly."""
    if isinstance(data, Problem):
        return data
    if priors is None:
        raise ValueError("expected priors with data; got priors=None")
    return Problem(data, priors, rank)


def require_representable(data: Data) -> None:
    """Raise if entries of X, or the bound, which adds up x log x, leave the range of JAX's precision."""
    if is_traced(data.X) or data.X.dtype.kind in "biu":
        return
    info, largest = np.finfo(jnp.result_type(float)), data.matrix.largest()
    greatest, least = float(info.max), float(info.tiny)
    if largest > greatest:
        raise ValueError(f"expected X below {greatest:.1e}, the largest number at this precision; got {largest}")
    if 0 < largest < least:
        raise ValueError(f"expected X above {least:.1e}, the smallest number at this precision; got {largest} at most")
    total, most = data.matrix.total(), greatest / np.log(greatest)
    if total > most:
        raise ValueError(f"expected entries of X that add up to {most:.1e} at most at this precision; got {total:.1e}")


def _prepare(data: Data, priors: Priors, rank: int | None) -> tuple[Data, Priors, int]:
    require_own_threads()
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    require_representable(data)
    priors = canonical(priors)
    # Lists are pytrees to JAX; here they are matrices.
    priors = jax.tree.map(lambda x: np.asarray(x) if isinstance(x, list) else x, priors, is_leaf=_is_whole)
    family = priors.coefficients
    if "group" in family.axes and data.num_groups == 0:
        name = type(family).__name__
        raise ValueError(f"expected data with groups, as_data(X, groups), for a {name} prior; got data without groups")
    if "group" not in family.axes:  # then nothing depends on labels
        data = data._replace(labels=None)
    hyper = family if family.hyperprior is None else family.hyperprior
    matrices = _parameters("dictionary", priors.dictionary, ("feature", "component"))
    matrices |= _parameters("coefficients", hyper, family.axes)
    if not isinstance(family, Gamma):  # its parameters are checked already
        stated = stated_of_V(family, data)
        matrices |= {f"coefficients.{name}": (x, ("component", "sample")) for name, x in stated.items()}
    for name, (values, _) in matrices.items():
        require_positive(name, values)
    K = _rank(matrices, rank)
    _check_shapes(matrices, data, K)
    # Under a user's jit the labels of a sparse X stay concrete, because X is arranged on the host by them.
    with jax.ensure_compile_time_eval() if is_sparse(data) else nullcontext():
        cast = _cast(data)
    return cast, _cast(_two_axes(priors, data, K)), K


def has_counts(data: Data) -> bool:
    """Return whether X holds whole numbers, which can be split among components."""
    return data.matrix.is_whole()


def require_counts(data: Data) -> None:
    """Raise if X has fractions: its entries cannot be split into whole counts s_νiτ."""
    if not is_traced(data.X) and not has_counts(data):
        X = data.matrix.stored()
        raise ValueError(
            f"expected X to hold whole numbers for the augmented model; got fractions such as {X[np.round(X) != X][0]}"
        )


def _two_axes(priors: Priors, data: Data, K: int) -> Priors:
    """Return priors whose numbers have two axes and whose distributions have their full shape."""
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
    """Return whether JAX should treat x as one leaf: lists, and distributions, whose leaves belong to NumPyro."""
    return isinstance(x, (list, Given))


def _parameters(name: str, prior: Any, axes: Axes) -> Parameters:
    """Return the numbers of a prior by name, with their axes; a NumPyro distribution only counts by its batch shape."""
    if isinstance(prior, Given):
        return {name: (np.broadcast_to(1.0, prior.distribution().batch_shape), axes)}
    if isinstance(prior, Gamma):
        return {f"{name}.{k}": (v, axes) for k, v in prior._asdict().items()}
    if hasattr(prior, "axes"):  # a family without λ, whose parameters are its own
        return {}
    raise ValueError(f"expected the prior of λ to be a Gamma or a NumPyro distribution; got {prior!r}")


def _check_shapes(matrices: Parameters, data: Data, K: int) -> None:
    """Raise if numbers do not broadcast to the axes they belong to."""
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
    """Return K, from the lengths of the priors' component axes and the rank asked for."""
    declared = {}
    for name, (values, axes) in matrices.items():
        if "component" in axes and np.ndim(values) >= 2 - axes.index("component"):
            declared[name] = int(np.shape(values)[axes.index("component") - 2])
    lengths = {length for length in declared.values() if length != 1}
    lengths |= set() if rank is None else {whole("rank", rank, 1)}
    if len(lengths) > 1:
        raise ValueError(f"expected one number of components; got rank={rank} and priors of shapes {declared}")
    if lengths:
        return lengths.pop()
    if declared:  # component axes of length 1, and no other rank is asked for
        return 1
    raise ValueError("expected rank, as no prior's shape fixes the number of components; got rank=None")


def _cast(tree: Any) -> Any:
    """Return all arrays in the precision that JAX is set to; NumPy casts its own arrays, which compiles nothing."""
    dtype = jnp.result_type(float)

    def cast(x: Any) -> Any:
        if isinstance(x, Compressed):  # stays on the host, where it is arranged for sweeps
            return x.astype(dtype)
        if isinstance(x, Indexed):
            return x.on_device()
        if _is_placed(x):
            return x
        return jnp.asarray(x if isinstance(x, jax.Array) else np.asarray(x, dtype), dtype)

    return jax.tree.map(cast, tree, is_leaf=lambda x: isinstance(x, (Compressed, Indexed)) or _is_placed(x))


def _is_placed(x: Any) -> bool:
    """Return whether x stays as it is: hidden places, and an X that is on its devices already."""
    return isinstance(x, Places) or hasattr(x, "fingerprint")
