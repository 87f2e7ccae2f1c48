"""The samples of a device as sweeps read them, filled up so that all devices have arrays of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..model.compressed import Compressed, Places, is_sparse
from ..model.data import Data
from ..model.types import Array
from .observed.candidates import Candidates
from .observed.dense import cut_into_tiles
from .observed.sharded import Layout
from .observed.sparse import SparseCandidates, read_sparse
from .processes import all_processes


class Samples:
    """Samples of one device.

    Args:
        data: the samples of this process.
        chosen: the indices of those of this device.
    """

    def __init__(self, data: Data, chosen: np.ndarray) -> None:
        self.data = data
        known = data.known[chosen]
        self.both = chosen[known], chosen[~known]

    @property
    def counts(self) -> list[int]:
        """The numbers of labelled and of unlabelled samples."""
        return [len(samples) for samples in self.both]

    @property
    def hidden(self) -> list[int]:
        """The numbers of hidden places of labelled and of unlabelled samples, if X is sparse."""
        if self.data.mask is None or not is_sparse(self.data):
            return [0, 0]
        counts = self.data.mask.counts(0)
        return [int(counts[samples].sum()) for samples in self.both]

    def read(self, widths: tuple[int, int], hidden: np.ndarray | None, copies: int | None) -> Any:
        """Return the samples as sweeps read them, filled up with empty ones.

        Args:
            widths: the numbers of labelled and of unlabelled samples that there is room for.
            hidden: the numbers of hidden places that there is room for; None if no process has any.
            copies: candidates of an unlabelled sample; None if no process has unlabelled samples.
        """
        rooms = [None, None] if hidden is None else hidden.tolist()
        parts = zip(self.both, widths, rooms, (1, copies or 1), strict=True)
        known, others = (partial(self._read, *each) for each in parts)
        if copies is None:
            return known()
        return (SparseCandidates if is_sparse(self.data) else Candidates)(known(), others(), copies)

    def _read(self, samples: np.ndarray, width: int, room: int | None, copies: int) -> Any:
        dtype, F, empty = jnp.result_type(float), self.data.num_features, width - len(samples)
        X, mask = self.data.matrix.take(samples)
        if is_sparse(self.data):
            X = X.rows_along(True).astype(dtype)
            X = Compressed(np.append(X.indptr, np.full(empty, X.nnz)), X.indices, X.values, (F, width), True)
            if room is None:
                return read_sparse(X, None, by_sample=True)
            none = np.zeros(0, np.int32)
            feature, sample = (none, none) if mask is None else (mask.feature, mask.sample)
            read: Any = read_sparse(X, Places(feature, sample, (F, width)), True, room)
            return replace(read, seen_of_feature=read.seen_of_feature - empty)  # padding samples see nothing
        filled, seen = np.zeros((F, width), dtype), np.ones((F, width), dtype)
        filled[:, : len(samples)] = X
        seen[:, : len(samples)] = 1 if mask is None else mask
        return cut_into_tiles(jnp.asarray(filled), None if room is None else jnp.asarray(seen), copies)


def alike(pieces: list[Any]) -> list[Any]:
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


def on_devices(leaves: Sequence[Array], devices: Sequence[Any], layout: Layout) -> Array:
    """Return an array with a first axis of devices from those of this process."""
    placed = [jax.device_put(leaf[None], device) for leaf, device in zip(leaves, devices, strict=True)]
    shape = (len(layout.counts), *leaves[0].shape)
    return jax.make_array_from_single_device_arrays(shape, layout.sharding(True), placed)
