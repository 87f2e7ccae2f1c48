"""X split along its samples over the devices of a mesh: every device reads its own part.

Devices have equally many rows, one for each of their samples and further ones, without weight, that fill up. T and Λ
are the same everywhere; a sweep adds up Σ_T, and small sums over samples, over all devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
    """Rows of samples on the devices of a mesh.

    mesh: the devices, along one axis.
    counts: samples of every device, in the order of samples.
    """

    mesh: Mesh
    counts: tuple[int, ...]

    @property
    def width(self) -> int:
        """Rows of a device."""
        return max(self.counts)

    @property
    def num_rows(self) -> int:
        """Rows of all devices."""
        return self.width * len(self.counts)

    @property
    def rows(self) -> np.ndarray:
        """The row of every sample."""
        return np.concatenate([d * self.width + np.arange(n) for d, n in enumerate(self.counts)])

    @property
    def samples(self) -> np.ndarray:
        """The sample of every row; the first one for rows that fill up."""
        samples = np.zeros(self.num_rows, int)
        samples[self.rows] = np.arange(sum(self.counts))
        return samples

    @property
    def weights(self) -> np.ndarray:
        """1 for rows of samples, 0 for those that fill up."""
        weights = np.zeros(self.num_rows, np.float32)
        weights[self.rows] = 1
        return weights

    def sharding(self, rows: bool) -> NamedSharding:
        """Return the placement of rows, or of what is the same everywhere."""
        return NamedSharding(self.mesh, ROWS if rows else SAME)

    def spread(self, values: Any) -> Array:
        """Return one value, or a row of values, for each sample as rows on the devices; host to devices."""
        values = np.asarray(values)[self.samples]
        return jax.make_array_from_callback(values.shape, self.sharding(True), lambda index: values[index])

    def copy(self, values: Any) -> Array:
        """Return values, the same in every process, on every device."""
        values = np.asarray(values)
        return jax.make_array_from_callback(values.shape, self.sharding(False), lambda index: values[index])

    def gather(self, values: Array) -> np.ndarray:
        """Return the rows of samples from all devices, in the order of samples; every process must call it."""
        whole = jax.jit(lambda x: x, out_shardings=self.sharding(False))(values)
        gathered: np.ndarray = np.asarray(whole)[self.rows]
        return gathered


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sharded:
    """X as sweeps read it, a part of its samples on each device.

    parts: a `Dense` or `Sparse`, whose arrays have a first axis of devices.
    weights: 1 for rows of samples, 0 for those that fill up.
    layout: rows on devices.
    """

    parts: Any
    weights: Array
    layout: Layout = field(metadata={"static": True})

    @property
    def base(self) -> Array:
        """As in `Observed`."""
        return self.parts.base.sum()

    def allocate(self, T: Array, V: Array) -> tuple[Array, Array, Array]:
        """Return Σ_T, summed over devices; Σ_V, rows on their devices; and Σ x log(M/x)."""

        def one(X: Any, T: Array, V: Array) -> tuple[Array, Array, Array]:
            of_T, of_V, log_ratio = X.allocate(T, V)
            return _over_devices(of_T), of_V, _over_devices(log_ratio)

        sums: tuple[Array, Array, Array] = self._each(one, (SAME, ROWS), (SAME, ROWS, SAME), T, V)
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
        """Return q(V) with mean 0 in rows that fill up."""
        a, b = V.broadcast(*V.a.shape)
        return Gamma(a * self.weights[:, None], b)

    def _each(self, one: Callable[..., Any], given: Any, returned: Any, *arguments: Any) -> Any:
        """Return the result of a function of X and arguments that runs on every device, with its part of X."""

        def local(parts: Any, *arguments: Any) -> Any:
            return one(jax.tree.map(lambda x: x[0], parts), *arguments)

        # Scans and kernels inside do not say which of their values are the same on all devices.
        mapped = jax.shard_map(
            local, mesh=self.layout.mesh, in_specs=(ROWS, *given), out_specs=returned, check_vma=False
        )
        return mapped(self.parts, *arguments)


def _over_devices(x: Array) -> Array:
    """Return the sum over devices."""
    return jax.lax.psum(x, AXIS)  # type: ignore[no-untyped-call]  # JAX's
