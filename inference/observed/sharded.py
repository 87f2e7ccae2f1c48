"""X split along its samples over the devices of a mesh: every device reads its own part.

Devices have equally many rows, one for each of their samples and padding rows of weight 0. T and Λ
are the same everywhere; a sweep adds up Σ_T, and small sums over samples, over all devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...model.priors import Gamma
from ...model.types import Array

AXIS = "sample"  # of the mesh
ROWS: Any = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]  # JAX's; rows on their devices
SAME: Any = PartitionSpec()  # type: ignore[no-untyped-call]  # JAX's; the same on every device


@jax.tree_util.register_static
@dataclass(frozen=True)
class Layout:
    """Rows of samples on the devices of a mesh: on each, labelled samples, then unlabelled ones, both padded.

    The host has rows as one device would: labelled samples, then unlabelled ones, in the order of samples.

    mesh: the devices, along one axis.
    counts: the numbers of labelled and of unlabelled samples of every device.
    placed: the samples of the devices, one device after another, labelled ones first; bytes of 64-bit integers.
    copies: rows of each unlabelled sample, as many as candidate groups.
    """

    mesh: Mesh
    counts: tuple[tuple[int, int], ...]
    placed: bytes
    copies: int = 1

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of labelled and of unlabelled samples that each device has room for."""
        known, others = (max(each) for each in zip(*self.counts, strict=True))
        return max(known, len(self.counts) > 1), others

    @property
    def width(self) -> int:
        """Rows of a device."""
        known, others = self.widths
        return known + others * self.copies

    @property
    def num_rows(self) -> int:
        """Rows of all devices."""
        return self.width * len(self.counts)

    @cached_property
    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """The labelled and the unlabelled samples, in their order."""
        return self._placed(0)[0], self._placed(1)[0]

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows on the devices, in the order of the host."""
        (_, device, rank), (_, its_device, its_rank) = self._placed(0), self._placed(1)
        first = its_device * self.width + self.widths[0] + its_rank * self.copies
        rows: np.ndarray = np.append(device * self.width + rank, first[:, None] + np.arange(self.copies)[None, :])
        return rows

    @cached_property
    def others(self) -> np.ndarray:
        """The place of every unlabelled sample among those of all devices, in the order of samples."""
        _, device, rank = self._placed(1)
        return np.asarray(device * self.widths[1] + rank)

    def _placed(self, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return labelled (0) or unlabelled (1) samples in their order, the device of each and its rank there."""
        each = np.asarray(self.counts)
        kinds = np.repeat(np.tile([0, 1], len(each)), each.ravel())
        device = np.repeat(np.arange(len(each)), each[:, kind])
        rank = np.concatenate([np.arange(n) for n in each[:, kind]])
        sample = np.frombuffer(self.placed, np.int64)[kinds == kind]
        order = np.argsort(sample)
        return sample[order], device[order], rank[order].astype(int)

    def sharding(self, rows: bool) -> NamedSharding:
        """Return the placement of rows, or of what is the same everywhere."""
        return NamedSharding(self.mesh, ROWS if rows else SAME)

    def spread(self, values: Any, fill: Any = None, others: bool = False) -> Array:
        """Return rows of the host on the devices.

        Args:
            values: one for each row of a sample, the same in every process.
            fill: padding rows; by default the first of the values.
            others: whether there is one value for each unlabelled sample instead.
        """
        values = np.asarray(values)
        places = self.others if others else self.rows
        length = self.widths[1] * len(self.counts) if others else self.num_rows
        first = values[0] if len(values) else 1
        filled = np.full((length, *values.shape[1:]), first if fill is None else fill, values.dtype)
        filled[places] = values
        return jax.make_array_from_callback(filled.shape, self.sharding(True), lambda index: filled[index])

    def gather(self, values: Array) -> np.ndarray:
        """Return what `spread` has spread, from all devices; every process must call it."""
        whole = np.asarray(jax.jit(lambda x: x, out_shardings=self.sharding(False))(values))
        gathered: np.ndarray = whole[self.rows if len(whole) == self.num_rows else self.others]
        return gathered

    def is_spread(self, values: Array) -> bool:
        """Return whether these are rows on the devices, not the same on every device; one device has no such rows."""
        return bool(
            len(self.counts) > 1
            and values.ndim > 0
            and len(values) in (self.num_rows, self.widths[1] * len(self.counts))
            and values.sharding.is_equivalent_to(self.sharding(True), values.ndim)
        )

    def split(self, rows: Array) -> tuple[Array, Array]:
        """Return the rows of labelled and those of unlabelled samples."""
        known = self.widths[0]
        parts: tuple[Array, Array] = self.each(lambda x: (x[:known], x[known:]), (ROWS,), (ROWS, ROWS))(rows)
        return parts

    def join(self, known: Array, others: Array) -> Array:
        """Return rows of labelled and of unlabelled samples as rows of all."""
        rows: Array = self.each(lambda *parts: jnp.concatenate(parts), (ROWS, ROWS), ROWS)(known, others)
        return rows

    def each(self, local: Callable[..., Any], given: Any, returned: Any) -> Callable[..., Any]:
        """Return a function that runs on every device, with its part of the arguments."""
        # Scans and kernels inside do not say which of their values are the same on all devices.
        mapped: Callable[..., Any] = jax.shard_map(
            local, mesh=self.mesh, in_specs=given, out_specs=returned, check_vma=False
        )
        return mapped


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sharded:
    """X as sweeps read it, a part of its samples on each device.

    parts: a `Dense` or `Sparse`, whose arrays have a first axis of devices; with unlabelled samples, `Candidates`.
    weights: 1 for rows of samples, 0 for padding rows.
    layout: rows on devices.
    """

    parts: Any
    weights: Array
    layout: Layout = field(metadata={"static": True})

    @property
    def base(self) -> Array:
        """As in `Observed`."""
        return self.parts.base.sum()

    @property
    def in_place(self) -> bool:
        """As in `Observed`."""
        return False

    @property
    def is_compiled(self) -> bool:
        """As in `Observed`."""
        return False

    def with_copies(self, copies: int) -> Sharded:
        """Return X with so many rows for each unlabelled sample."""
        layout = replace(self.layout, copies=copies)
        weights = layout.spread(np.ones(len(layout.rows), self.weights.dtype), fill=0)
        parts = replace(self.parts, num_groups=copies) if layout.widths[1] else self.parts
        return Sharded(parts, weights, layout)

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, summed over devices; Σ_V, rows on their devices; and Σ x log(M/x)."""

        def one(X: Any, T: Array, V: Array) -> tuple[Array, Array, Array]:
            of_T, of_V, log_ratio = X.allocate(T, V)
            return _over_devices(of_T), of_V, _over_devices(log_ratio)

        sums: tuple[Array, Array, Array] = self._each(one, (SAME, ROWS), (SAME, ROWS, SAME), T, V)
        return sums

    def allocate_weighted(
        self, T: Array, V: Array, weigh: Callable[..., tuple[Array, Array]], read: tuple[Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        """Return the sums of `Candidates.allocate_weighted`, those over samples summed over devices."""

        def one(X: Any, T: Array, V: Array, *read: Array) -> tuple[Array, Array, Array, Array]:
            of_T, of_V, terms, weights = X.allocate_weighted(T, V, weigh, read)
            return _over_devices(of_T), of_V, _over_devices(terms), weights

        given, returned = (SAME, ROWS, ROWS, ROWS), (SAME, ROWS, SAME, ROWS)
        sums: tuple[Array, Array, Array, Array] = self._each(one, given, returned, T, V, *read)
        return sums

    def exposure_of_T(self, V: Gamma) -> Array:
        """Return Σ_τ w_ντ E[v_iτ] over the samples of all devices."""

        def one(X: Any, V: Gamma) -> Array:
            return _over_devices(X.exposure_of_T(V))

        return self._each(one, (ROWS,), SAME, self._of_samples(V))

    def exposure_of_V(self, T: Gamma) -> Array:
        """Return Σ_ν w_ντ E[t_νi], rows × components."""

        def one(X: Any, T: Gamma) -> Array:
            return jnp.broadcast_to(X.exposure_of_V(T), (self.layout.width, T.a.shape[0]))

        return self._each(one, (SAME,), ROWS, T)

    def expected_totals(self, T: Gamma, V: Gamma) -> Array:
        """Return Σ_ντ w_ντ E[t_νi v_iτ] of every component."""

        def one(X: Any, T: Gamma, V: Gamma) -> Array:
            return _over_devices(X.expected_totals(T, V))

        return self._each(one, (SAME, ROWS), SAME, T, self._of_samples(V))

    def _of_samples(self, V: Gamma) -> Gamma:
        """Return q(V) with mean 0 in padding rows."""
        a, b = V.broadcast(*V.a.shape)
        return Gamma(a * self.weights[:, None], b)

    def _each(self, one: Callable[..., Any], given: Any, returned: Any, *arguments: Any) -> Any:
        """Return the result of a function of X and arguments that runs on every device, with its part of X."""

        def local(parts: Any, *arguments: Any) -> Any:
            return one(jax.tree.map(lambda x: x[0], parts), *arguments)

        return self.layout.each(local, (ROWS, *given), returned)(self.parts, *arguments)


def _over_devices(x: Array) -> Array:
    """Return the sum over devices."""
    return jax.lax.psum(x, AXIS)  # type: ignore[no-untyped-call]  # JAX's
