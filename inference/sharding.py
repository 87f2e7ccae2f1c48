"""Data over several devices, of one machine or of several: each process brings its own samples."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from ..model.compressed import Compressed, is_sparse
from ..model.data import Data, with_several
from ..model.matrix import Matrix
from ..model.metadata import Names, Unseen
from ..model.types import Array
from .observed.dense import cut_into_tiles
from .observed.sharded import AXIS, Layout, Sharded
from .observed.sparse import read_sparse


class Part(Unseen):
    """The samples of this process, and sums over those of all; compiled code does not see them.

    matrix: entries of X of this process.
    first: the index of its first sample.
    total, num_observed, largest, is_whole: of all processes.
    """

    def __init__(self, matrix: Matrix, first: int, total: float, num_observed: int, largest: float, whole: bool):
        self.matrix, self.first = matrix, first
        self.total, self.num_observed, self.largest, self.is_whole = total, num_observed, largest, whole


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ShardedMatrix:
    """X of `shard`: its entries are on the devices, and each process has those of its own samples.

    observed: X as sweeps read it.
    part: the samples of this process.
    shape: numbers of features and of samples, of all processes.
    """

    observed: Sharded
    part: Part
    shape: tuple[int, int] = field(metadata={"static": True})

    @property
    def dtype(self) -> Any:
        """The precision of X on the devices."""
        return self.observed.weights.dtype

    @property
    def num_observed(self) -> int:
        """The number of observed entries."""
        return self.part.num_observed

    def total(self) -> float:
        """Return Σ x over observed entries."""
        return self.part.total

    def mean(self) -> float:
        """Return the mean of the observed entries."""
        return self.part.total / self.part.num_observed

    def largest(self) -> float:
        """Return the largest entry."""
        return self.part.largest

    def is_whole(self) -> bool:
        """Return whether all entries are whole numbers."""
        return self.part.is_whole

    def take(self, samples: Array) -> tuple[Array, Array | None]:
        """Return X of these samples, from whichever process has them; all processes must ask for the same ones."""
        samples = np.asarray(samples)
        n = samples - self.part.first
        own = (n >= 0) & (n < self.part.matrix.shape[1])
        found = np.zeros((self.shape[0], len(samples)))
        X, _ = self.part.matrix.take(n[own])
        found[:, own] = X.to_scipy().toarray() if isinstance(X, Compressed) else X
        return concatenated(found[None]).sum(axis=0), None

    def __getitem__(self, place: tuple[slice, Array]) -> np.ndarray:
        """Return columns as from an array, X[:, samples]; see `take`."""
        columns: np.ndarray = self.take(place[1])[0]
        return columns[place[0]]

    def fingerprint(self) -> None:
        """Return None: no process sees all of X."""

    def with_nan(self) -> np.ndarray:
        """Raise: no process has all of X."""
        raise ValueError("expected data of one process; got data made by shard, whose X is spread over devices")

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) over observed entries; all processes must ask for it."""
        first, N = self.part.first, self.part.matrix.shape[1]
        return float(sum(all_processes(self.part.matrix.divergence(T, V[:, first : first + N]))))


def shard(data: Data, devices: Sequence[Any] | None = None) -> Data:
    """Spread samples over devices, so that `cavi.run` sweeps on all of them at once.

    Every process of `jax.distributed` calls it with its own samples, as many as it likes, and gets data that stand for
    the samples of all processes in the order of processes. T and Λ are the same on every device, and each sweep adds
    up Σ_T over devices. `cavi.run` then has to be called in all processes with the same arguments, and returns the
    same fit in each, V included.

    Args:
        data: as made by `as_data`, with the same features and groups in every process: pass `group_names` to `as_data`
            if some lack samples of some group. Unlabelled samples are refused.
        devices: by default all devices of all processes.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> cavi.run(shard(data), priors, key=jax.random.key(0), rank=1).posterior.V.mean.shape
    (1, 2)
    """
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    if isinstance(data.X, ShardedMatrix):
        return data
    if data.num_unlabelled or data.mask is not None:
        what = "unlabelled samples" if data.num_unlabelled else "hidden entries"
        raise ValueError(f"expected data without {what} to spread over devices; got some: leave these samples out")
    chosen = sorted(jax.devices() if devices is None else devices, key=lambda d: (d.process_index, d.id))
    mine = [device for device in chosen if device.process_index == jax.process_index()]
    N, matrix = data.num_samples, data.matrix
    if not 0 < len(mine) <= N:
        raise ValueError(f"expected at least as many samples as devices in every process; got {N} for {len(mine)}")
    sizes = [len(part) for part in np.array_split(np.arange(N), len(mine))]
    sums = matrix.total(), matrix.num_observed, matrix.largest(), matrix.is_whole()
    names = data.names
    axes = [zlib.crc32(repr(axis.tolist()).encode()) for axis in (names.feature, names.group)]
    told = all_processes({
        "sizes": sizes, "sums": sums, "features": [data.num_features, axes[0]], "groups": [data.num_groups, axes[1]],
        "samples": names.sample.tolist(), "several": data.several is not None,
    })  # fmt: skip
    for what in ("features", "groups"):
        if len({tuple(one[what]) for one in told}) > 1:
            numbers = ", ".join(str(one[what][0]) for one in told)
            raise ValueError(f"expected the same {what} in every process, by number and name; got {numbers} of them")
    layout = Layout(Mesh(np.array(chosen), (AXIS,)), tuple(n for one in told for n in one["sizes"]))
    ends = np.cumsum([0, *sizes])
    pieces = [_piece(data, start, end, layout.width) for start, end in pairwise(ends)]
    parts = jax.tree.map(lambda *leaves: _on_devices(leaves, mine, layout), *_alike(pieces))
    weights = layout.weights.astype(jnp.result_type(float))
    on_rows = jax.make_array_from_callback(weights.shape, layout.sharding(True), lambda index: weights[index])
    total, seen, largest, are_whole = zip(*(one["sums"] for one in told), strict=True)
    first = sum(sum(one["sizes"]) for one in told[: jax.process_index()])
    part = Part(matrix, first, sum(total), sum(seen), max(largest), all(are_whole))
    samples = [name for one in told for name in one["samples"]]
    samples = samples if len(set(samples)) == len(samples) else list(range(len(samples)))
    membership = None if data.membership is None else concatenated(np.asarray(data.membership))
    labels = None
    if any(one["several"] for one in told):
        stated = with_several(data)
        labels = stated._replace(several=concatenated(stated.several), unlabelled=np.zeros(len(samples), bool))
    X = ShardedMatrix(Sharded(parts, on_rows, layout), part, (data.num_features, len(samples)))
    return Data(X, membership, Names(names.feature.tolist(), samples, names.group.tolist()), labels=labels)


def _piece(data: Data, start: int, end: int, width: int) -> Any:
    """Return the samples of one device as sweeps read them, filled up with empty ones."""
    dtype, F = jnp.result_type(float), data.num_features
    X, _ = data.matrix.take(np.arange(start, end))
    if is_sparse(data):
        ends = np.append(X.rows_along(True).indptr, np.full(width - (end - start), X.nnz))
        X = X.rows_along(True).astype(dtype)
        return read_sparse(Compressed(ends, X.indices, X.values, (F, width), True), None, by_sample=True)
    filled = np.zeros((F, width), dtype)
    filled[:, : end - start] = X
    return cut_into_tiles(jnp.asarray(filled), None)


def _alike(pieces: list[Any]) -> list[Any]:
    """Return the pieces of X filled up with zeros, which are no entries: those of all processes have one shape."""
    leaves = [jax.tree.leaves(piece) for piece in pieces]
    shapes = all_processes([[list(leaf.shape) for leaf in one] for one in leaves])
    largest = [np.max(each, axis=0) for each in zip(*(one for process in shapes for one in process), strict=True)]

    def filled(leaf: Array, shape: Any) -> Array:
        widths = [(0, int(n - m)) for n, m in zip(shape, leaf.shape, strict=True)]
        return jnp.pad(leaf, widths) if any(more for _, more in widths) else leaf

    structure = jax.tree.structure(pieces[0])
    each = [[filled(leaf, shape) for leaf, shape in zip(one, largest, strict=True)] for one in leaves]
    return [jax.tree.unflatten(structure, one) for one in each]


def _on_devices(leaves: Sequence[Array], devices: Sequence[Any], layout: Layout) -> Array:
    """Return an array with a first axis of devices from those of this process."""
    placed = [jax.device_put(leaf[None], device) for leaf, device in zip(leaves, devices, strict=True)]
    shape = (len(layout.counts), *leaves[0].shape)
    return jax.make_array_from_single_device_arrays(shape, layout.sharding(True), placed)


def all_processes(value: Any) -> list[Any]:
    """Return a value, anything that JSON can hold, of every process; all processes must call it."""
    text = np.frombuffer(json.dumps(value, default=lambda x: x.item()).encode(), np.uint8)
    return [json.loads(bytes(part)) for part in _ragged(text)]


def concatenated(values: Any) -> np.ndarray:
    """Return the arrays of all processes one after the other, bit by bit; all processes must call it."""
    values = np.ascontiguousarray(values)
    parts = [np.frombuffer(bytes(part), values.dtype) for part in _ragged(values.reshape(-1).view(np.uint8))]
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def _ragged(content: np.ndarray) -> list[np.ndarray]:
    """Return the bytes of every process, of any length."""
    if jax.process_count() == 1:
        return [content]
    lengths = process_allgather(np.array([len(content)], np.int32)).ravel()
    padded = np.zeros(lengths.max(), np.uint8)
    padded[: len(content)] = content
    return [row[:n] for row, n in zip(process_allgather(padded), lengths, strict=True)]
