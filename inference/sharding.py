"""Data over several devices, of one machine or of several: each process brings its own samples."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from ..model.compressed import is_sparse
from ..model.data import Data, take, with_several
from ..model.labels import Labels
from ..model.matrix import Matrix
from ..model.metadata import Names, Unseen
from ..model.priors import Priors
from ..model.types import Array
from .observed.sharded import AXIS, Layout, Sharded
from .placement import Samples, alike, on_devices
from .processes import all_processes, concatenated


class Part(Unseen):
    """The samples of this process, and sums over those of all; compiled code does not see them.

    data: the samples of this process.
    samples: their indices among those of all processes.
    total, num_observed, largest, is_whole: of all processes.
    """

    def __init__(self, data: Data, samples: np.ndarray, total: float, num_observed: int, largest: float, whole: bool):
        self.data, self.samples = data, samples
        self.total, self.num_observed, self.largest, self.is_whole = total, num_observed, largest, whole

    @property
    def matrix(self) -> Matrix:
        """The entries of X of this process."""
        return self.data.matrix


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

    def __getitem__(self, place: tuple[slice, Array]) -> np.ndarray:
        """Return columns as from an array, X[:, samples], from whichever process has them.

        All processes must ask for the same ones. Hidden entries are 0.
        """
        X: Any = self.part.data.X
        return self.columns(X.to_scipy().tocsc() if is_sparse(self.part.data) else X, place[1])[place[0]]

    def columns(self, X: Any, samples: Array) -> np.ndarray:
        """Return columns of a matrix of which each process has those of its own samples."""
        wanted = np.asarray(samples)
        places = {int(sample): n for n, sample in enumerate(self.part.samples)}
        found = np.zeros((self.shape[0], len(wanted)))
        for n, sample in enumerate(wanted):
            if int(sample) in places:
                column = X[:, [places[int(sample)]]]
                found[:, n] = np.asarray(column.toarray() if hasattr(column, "toarray") else column)[:, 0]
        return self.sum(found)

    def sum(self, values: Any) -> np.ndarray:
        """Return the sum over processes; all of them must ask for it."""
        total: np.ndarray = concatenated(np.asarray(values)[None]).sum(axis=0)
        return total

    def fingerprint(self) -> None:
        """Return None: no process sees all of X."""

    def checksum(self, samples: np.ndarray, number: int) -> int:
        """Return the checksum of the samples of all processes; all of them must ask for it."""
        own = self.part.matrix.checksum(samples[self.part.samples], number)
        return int(sum(all_processes(own)) % 2**64)

    def with_nan(self) -> np.ndarray:
        """Raise: no process has all of X."""
        raise ValueError("expected data of one process; got data made by shard, whose X is spread over devices")

    def divergence(self, T: np.ndarray, V: np.ndarray) -> float:
        """Return KL(X ‖ TV) over observed entries; all processes must ask for it."""
        return float(self.sum(self.part.matrix.divergence(T, V[:, self.part.samples])))


def shard(data: Data, devices: Sequence[Any] | None = None) -> Data:
    """Spread samples over devices, so that `cavi.run` sweeps on all of them at once.

    Every process of `jax.distributed` calls it with its own samples, as many as it likes, and gets data that stand for
    the samples of all processes in the order of processes. T and Λ are the same on every device, and each sweep adds
    up Σ_T over devices. `cavi.run` then has to be called in all processes with the same arguments, and returns the
    same fit in each, V included. Priors must be the same for all samples.

    Args:
        data: as made by `as_data`, with the same features and groups in every process: pass `group_names` to `as_data`
            if some lack samples of some group.
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
    chosen = sorted(jax.devices() if devices is None else devices, key=lambda d: (d.process_index, d.id))
    mine = sum(device.process_index == jax.process_index() for device in chosen)
    if not 0 < mine <= data.num_samples:
        raise ValueError(
            f"expected at least as many samples as devices in every process; got {data.num_samples} for {mine}"
        )
    numbers = [0, *np.cumsum(all_processes(data.num_samples))]
    first = int(numbers[jax.process_index()])
    return _place(data, chosen, first + np.arange(data.num_samples))


def require_alike(priors: Priors) -> None:
    """Raise for priors that differ between samples, whose rows on devices are in another order.

    Args:
        priors: of a `Problem`.
    """
    family = priors.coefficients
    each = family.hyperprior is not None or any(np.shape(x)[1:] > (1,) for x in jax.tree.leaves(family))
    if "sample" in family.axes and each:
        raise ValueError(
            "expected priors that are the same for all samples, which are on several devices; got "
            f"{type(family).__name__} that differs between samples"
        )


def labelled(data: Data, times: int) -> Data:
    """Return the labelled samples of sharded data, all of them repeated so many times, one round after another.

    Args:
        data: as made by `shard`, with unlabelled samples.
        times: how often each sample occurs.
    """
    part, known = data.X.part, np.asarray(data.known)
    own = np.flatnonzero(part.data.known)
    rank = (np.cumsum(known) - 1)[part.samples[own]]
    samples = np.concatenate([rank + n * known.sum() for n in range(times)])
    return _place(take(part.data, np.tile(own, times)), list(data.X.observed.layout.mesh.devices), samples)


def _place(data: Data, chosen: list[Any], own: np.ndarray) -> Data:
    """Return data on devices.

    Args:
        data: the samples of this process.
        chosen: devices.
        own: the indices of the samples among those of all processes.
    """
    mine = [device for device in chosen if device.process_index == jax.process_index()]
    pieces = [Samples(data, part) for part in np.array_split(np.arange(data.num_samples), len(mine))]
    names = data.names
    axes = [zlib.crc32(repr(axis.tolist()).encode()) for axis in (names.feature, names.group)]
    told = all_processes({
        "counts": [piece.counts for piece in pieces], "hidden": [piece.hidden for piece in pieces],
        "sums": _sums(data), "features": [data.num_features, axes[0]], "groups": [data.num_groups, axes[1]],
        "names": names.sample.tolist(), "several": data.several is not None, "masked": data.mask is not None,
        "sparse": is_sparse(data),
    })  # fmt: skip
    for what in ("features", "groups"):
        if len({tuple(one[what]) for one in told}) > 1:
            numbers = ", ".join(str(one[what][0]) for one in told)
            raise ValueError(f"expected the same {what} in every process, by number and name; got {numbers} of them")
    if len({one["sparse"] for one in told}) > 1:
        raise ValueError("expected a sparse X in every process, or in none; got some of both")
    placed = concatenated(np.concatenate([own[n] for piece in pieces for n in piece.both]).astype(np.int64))
    counts = tuple((int(known), int(others)) for one in told for known, others in one["counts"])
    layout = Layout(Mesh(np.array(chosen), (AXIS,)), counts, placed.tobytes())
    hidden = None
    if any(one["masked"] for one in told):
        hidden = np.max([some for one in told for some in one["hidden"]], axis=0)
    copies = data.num_groups if layout.widths[1] else None
    read = [piece.read(layout.widths, hidden, copies) for piece in pieces]
    parts = jax.tree.map(lambda *leaves: on_devices(leaves, mine, layout), *alike(read))
    weights = layout.spread(np.ones(len(layout.rows), jnp.result_type(float)), fill=0)
    total, seen, largest, are_whole = zip(*(one["sums"] for one in told), strict=True)
    part = Part(data, own, sum(total), sum(seen), max(largest), all(are_whole))
    order = concatenated(own)

    def by_sample(values: Any) -> np.ndarray:
        everything = concatenated(np.asarray(values))
        ordered = np.empty_like(everything)
        ordered[order] = everything
        return ordered

    spoken = np.array([name for one in told for name in one["names"]], object)
    every = spoken[np.argsort(order)].tolist()
    every = every if len(set(every)) == len(every) else list(range(len(every)))
    membership = None if data.membership is None else by_sample(data.membership)
    labels = None
    if any(one["several"] for one in told) or layout.widths[1]:
        labels = _all_labels(data, by_sample, any(one["several"] for one in told))
    X = ShardedMatrix(Sharded(parts, weights, layout), part, (data.num_features, len(every)))
    return Data(X, membership, Names(names.feature.tolist(), every, names.group.tolist()), labels=labels)


def _sums(data: Data) -> tuple[float, int, float, bool]:
    matrix = data.matrix
    if data.num_samples == 0:
        return 0.0, 0, 0.0, True
    return matrix.total(), matrix.num_observed, matrix.largest(), matrix.is_whole()


def _all_labels(data: Data, by_sample: Callable[[Any], np.ndarray], several: bool) -> Labels:
    """Return the labels of the samples of all processes."""
    own = with_several(data)
    u = own.dirichlet
    each = all_processes(None if u is None else np.shape(u)[:-1] == () and np.asarray(u).tolist())
    shared = next((np.asarray(one) for one in each if isinstance(one, list)), None)
    own_u = np.zeros((0, data.num_groups)) if u is None else u
    dirichlet = concatenated(own_u) if any(one is False for one in each) else shared
    flags = by_sample(np.asarray(own.unlabelled, bool))
    several_ = by_sample(np.asarray(own.several, bool)) if several else None
    return Labels(flags, concatenated(np.asarray(own.weights, float)), dirichlet, several_)
