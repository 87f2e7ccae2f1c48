"""Membership by index: for many groups, one whole number per sample in place of a row of zeros and a one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from .types import Array

MOST_ENTRIES = 10_000_000  # of a dense membership, 80 MB in double precision; up to this size products are faster


@jax.tree_util.register_pytree_node_class
class Indexed:
    """Membership Δ of samples with one known label each, by the index of its group: Δ_τc = 1 if c is the index of τ.

    It stands for the matrix, samples × groups, in products: L @ Δ.T takes columns of L, V @ Δ sums columns of V by
    group, Δ @ x takes rows of x. `np.asarray` forms the matrix.

    index: int32, one per sample.
    num_groups: C.
    """

    ndim = 2
    __array_ufunc__ = None  # so that NumPy leaves products to __rmatmul__

    def __init__(self, index: Array, num_groups: int) -> None:
        self.index, self.num_groups = index, num_groups

    def __repr__(self) -> str:
        return f"Indexed({self.shape[0]} samples × {self.num_groups} groups)"

    def __len__(self) -> int:
        return int(self.index.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of groups."""
        return len(self), self.num_groups

    @property
    def T(self) -> IndexedTranspose:
        """Groups × samples."""
        return IndexedTranspose(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Form the matrix; `copy` is ignored, as there is nothing to share."""
        dense = np.zeros(self.shape, float if dtype is None else dtype)
        dense[np.arange(len(self)), np.asarray(self.index)] = 1
        return dense

    def __getitem__(self, samples: Array) -> Indexed:
        """Return the membership of these samples."""
        return Indexed(self.index[samples], self.num_groups)

    def __matmul__(self, x: Array) -> Array:
        """Return Δ x, the rows of x that belong to samples."""
        return x[self.index]

    def __rmatmul__(self, V: Array) -> Array:
        """Return V Δ, sums of the columns of V by group; of NumPy arrays in their own precision."""
        if isinstance(V, np.ndarray):
            return V @ scipy.sparse.csr_array(
                (np.ones(len(self)), np.asarray(self.index), np.arange(len(self) + 1)), shape=self.shape
            )
        if self.num_groups <= V.shape[0]:  # zeros and ones no larger than V: their product is faster than sums
            return V @ jax.nn.one_hot(self.index, self.num_groups, dtype=V.dtype)
        return jax.ops.segment_sum(V.T, self.index, self.num_groups).T

    def sum(self, axis: int) -> np.ndarray | Array:
        """Return N_c for axis 0."""
        if axis != 0:
            raise ValueError(f"expected axis 0, the sizes of groups; got {axis}")
        if isinstance(self.index, np.ndarray):
            return np.bincount(self.index, minlength=self.num_groups).astype(float)
        return jax.ops.segment_sum(jnp.ones(self.index.shape), self.index, self.num_groups)

    def on_device(self) -> Indexed:
        """Return the same with its index as a JAX array."""
        return Indexed(jnp.asarray(self.index, jnp.int32), self.num_groups)

    def tree_flatten(self) -> tuple[tuple[Array], int]:
        """The index is a leaf; the number of groups is static."""
        return (self.index,), self.num_groups

    @classmethod
    def tree_unflatten(cls, num_groups: int, leaves: tuple[Array]) -> Indexed:
        """Rebuild the membership."""
        return cls(*leaves, num_groups)


class IndexedTranspose:
    """The transpose of an `Indexed`, groups × samples, for products from the left."""

    __array_ufunc__ = None

    def __init__(self, membership: Indexed) -> None:
        self.membership = membership

    def __rmatmul__(self, lam: Array) -> Array:
        """Return λ Δᵀ, the columns of λ that belong to samples."""
        return lam[:, self.membership.index]


def as_membership(index: Array, num_groups: int) -> np.ndarray | Indexed:
    """Return the membership of samples with one label each: dense, or `Indexed` if that is large.

    Args:
        index: of the group of each sample.
        num_groups: C.

    >>> as_membership([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    indexed = Indexed(np.asarray(index, np.int32), num_groups)
    return indexed if len(indexed) * num_groups > MOST_ENTRIES else np.asarray(indexed)


def on_host(membership: Array | Indexed) -> Any:
    """Return a membership as a NumPy array, or as an `Indexed` of one."""
    if isinstance(membership, Indexed):
        return Indexed(np.asarray(membership.index), membership.num_groups)
    return np.asarray(membership)


def members_by_group(membership: Any) -> list[np.ndarray]:
    """Return the indices of the samples of every group.

    Args:
        membership: samples × groups, on the host.
    """
    if isinstance(membership, Indexed):
        sizes = np.bincount(membership.index, minlength=membership.num_groups)
        return np.split(np.argsort(membership.index, kind="stable"), np.cumsum(sizes)[:-1])
    return [np.flatnonzero(column) for column in membership.T]
