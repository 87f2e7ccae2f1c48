"""Batches of a stream: samples of a matrix in random order, or whatever an iterator gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse

from ...model.checks import whole
from ...model.compressed import is_sparse, require_consistent
from ...model.data import Data, as_data
from ...model.indexed import on_host
from ...model.labels import SEVERAL, check_kinds, plain_labels
from ...model.labels import is_matrix as is_matrix_of_groups
from ...model.metadata import Names, require_order
from ...model.missing import label_fingerprint
from ...model.types import Array
from ..posterior import StreamMark
from ..starts import check_key
from .marks import FEW, checksum, checksum_of_names, checksum_of_values

SMALLEST, LARGEST = 64, 512  # default sizes of batches; docs/streams.md has the table that decided
IN_A_PASS = 32  # batches of a pass by default, if sizes allow it: few steps do not go far


class Source(NamedTuple):
    """Batches, pass by pass.

    read: from the number of a pass, or None for samples in their own order, to functions that get its batches.
    repeatable: whether a second pass is possible; an iterator is used up by the first.
    num_samples: N; None if it is not known before the first pass.
    group_sizes: N_c by group; None if they are not known.
    mark: identifies the stream, except for its priors; None for an iterable.
    """

    read: Callable[[int | None], Iterator[Callable[[], Data]]]
    repeatable: bool
    num_samples: int | None = None
    group_sizes: np.ndarray | None = None
    mark: StreamMark | None = None


class Labelled(NamedTuple):
    """Options for reading the labels of batches: arguments of `as_data` by the same names."""

    group_names: Sequence[Any] | None
    label_prior: Array | None


class Order(NamedTuple):
    """Division of the samples of a matrix into batches.

    key: a JAX key, for a random order that differs between passes.
    batch_size: samples of a batch; the last one of a pass may have fewer.
    block: consecutive samples that stay together, as far as the ends of batches allow.
    """

    key: Array | None
    batch_size: int
    block: int

    def rows(self, num_samples: int, number: int | None) -> Iterator[np.ndarray]:
        """Yield the samples of every batch of a pass, sorted: their order within a batch has no meaning."""
        block = min(self.block, self.batch_size)
        blocks = np.arange(-(-num_samples // block))
        if number is not None:
            bits = np.asarray(check_key(self.key)).ravel()
            blocks = np.random.default_rng([*bits, number]).permutation(blocks)
        rows = (blocks[:, None] * block + np.arange(block)[None, :]).ravel()
        rows = rows[rows < num_samples]
        for begin in range(0, num_samples, self.batch_size):
            yield np.sort(rows[begin : begin + self.batch_size])


def open_batches(
    batches: Any, groups: Any, key: Array | None, labelled: Labelled, batch_size: int | None, block: int | None = None
) -> Source:
    """Return the batches of anything that `stream` accepts.

    Args:
        batches: `Data`, a matrix features × samples, an iterable, or a function that returns an iterable.
        groups: one label per sample of a matrix, or None.
        key: as in `Order`.
        labelled: how labels are read.
        batch_size: as in `Order`; None for the default.
        block: as in `Order`; None for what suits the matrix.
    """
    size = default_size(batches) if batch_size is None else whole("batch_size", batch_size, 1)
    order = Order(key, size, _natural_block(batches, size) if block is None else whole("block", block, 1))
    if isinstance(batches, Data) or is_matrix(batches):
        if isinstance(batches, Data) and groups is not None:
            raise ValueError("expected no groups with Data, which has its own; got groups")
        return _of_data(batches, order) if isinstance(batches, Data) else _of_matrix(batches, groups, order, labelled)
    if groups is not None or batch_size is not None:
        if hasattr(batches, "shape"):
            shape = tuple(batches.shape)
            raise ValueError(f"expected X with 2 dimensions, features × samples; got {len(shape)} (shape {shape})")
        name = "groups" if batch_size is None else "batch_size"
        raise ValueError(f"expected {name} only with a matrix; got {name} with {type(batches).__name__}")
    if callable(batches):
        return Source(lambda _: _getters(_iterable(batches()), labelled), True)
    items = _iterable(batches)
    return Source(lambda _: _getters(items, labelled), iter(items) is not items)


def _getters(items: Iterable[Any], labelled: Labelled) -> Iterator[Callable[[], Data]]:
    return (partial(_as_batch, item, labelled) for item in items)


def default_size(batches: Any) -> int:
    """Return the size of batches that are drawn from a matrix, by its number of samples."""
    N = batches.num_samples if isinstance(batches, Data) else batches.shape[1] if is_matrix(batches) else 0
    return int(np.clip(N // IN_A_PASS, SMALLEST, LARGEST))


def _natural_block(X: Any, batch_size: int) -> int:
    """Return how many consecutive samples are best read together: a matrix may know, as those in files do.

    In a memory map by rows, features, a sample is in as many places as there are features.
    """
    if isinstance(X, np.memmap) and X.flags.c_contiguous and not X.flags.f_contiguous:
        return batch_size
    return int(getattr(X, "block", 1))


def is_matrix(batches: Any) -> bool:
    """Return whether this has two axes, in memory or not."""
    return not isinstance(batches, Data) and len(getattr(batches, "shape", ())) == 2


def _iterable(batches: Any) -> Iterable[Any]:
    if isinstance(batches, (str, bytes, dict)) or not hasattr(batches, "__iter__"):
        raise ValueError(
            "expected batches to be Data, a matrix features × samples, an iterable of Data or of (X, groups), or a "
            f"function that returns one; got {type(batches).__name__}"
        )
    return batches  # type: ignore[no-any-return]  # checked


def _as_batch(item: Any, labelled: Labelled) -> Data:
    if isinstance(item, Data):
        return item
    X, groups = item if _is_pair(item) else (item, None)
    if groups is None:
        return as_data(X)
    if labelled.group_names is None:
        raise ValueError(
            "expected group_names, all groups of the stream in their order, with batches of (X, groups); got None"
        )
    return as_data(X, groups, group_names=labelled.group_names, label_prior=labelled.label_prior)


def _is_pair(item: Any) -> bool:
    """Return whether this is (X, groups); a list is one if it begins with a matrix, else it may be rows of X."""
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return False
    return is_matrix(item[0]) if isinstance(item, list) else not is_matrix(item)


def _of_columns(
    shape: tuple[int, int],
    order: Order,
    take: Callable[[np.ndarray], Data],
    sizes: np.ndarray | None,
    checksums: tuple[int, int, int],
) -> Source:
    """Return batches of columns; the checksums are those of X, of the groups and of the labels."""
    F, N = (int(n) for n in shape)
    key = 0 if order.key is None else checksum(np.asarray(check_key(order.key)).tobytes())
    mark = StreamMark(F, N, *checksums, key, order.batch_size, min(order.block, order.batch_size), 0)
    return Source(lambda number: (partial(take, rows) for rows in order.rows(N, number)), True, N, sizes, mark)


def _of_data(data: Data, order: Order) -> Source:
    """Return batches of validated data; samples of a sparse X are found fast where they are its rows."""
    data = data._replace(X=data.X.rows_along(True)) if is_sparse(data) else data
    known = data.num_groups > 0 and data.num_unlabelled == 0
    sizes = np.asarray(data.group_sizes, float) if known else None
    values = checksum_of_values(part(data, np.arange(min(FEW, data.num_samples))).matrix.with_nan())
    checksums = values, checksum_of_names(data.names.group.tolist()), label_fingerprint(data) >> 1
    return _of_columns(data.X.shape, order, partial(part, data), sizes, checksums)


def _of_matrix(X: Any, groups: Any, order: Order, labelled: Labelled) -> Source:
    """Return batches of the columns of a matrix, of which only those of a batch are read at a time."""
    F, N = X.shape
    groups = plain_labels(groups)
    if scipy.sparse.issparse(X):
        require_consistent(X)
        X = X.tocsc()
    elif hasattr(X, "columns"):
        require_order("groups", groups, "samples", X.columns)
        X = X.to_numpy()
    values = checksum_of_values(X[:, np.arange(min(FEW, N))])
    if groups is None:
        return _of_columns(X.shape, order, lambda rows: as_data(X[:, rows]), None, (values, 0, 0))
    if len(groups) != N:
        hint = ", as many as rows: transpose X?" if len(groups) == F else ""
        raise ValueError(f"expected groups to hold one label for each of the {N} samples; got {len(groups)}{hint}")
    labels, levels, sizes = read_levels(groups, labelled.group_names)
    require_order("groups", groups, "group_names", levels, axis=1, groups=True, renamed=True)

    def take(rows: np.ndarray) -> Data:
        return as_data(X[:, rows], labels[rows], group_names=levels, label_prior=labelled.label_prior)

    alone = as_data(np.ones((1, N)), labels, group_names=levels, label_prior=labelled.label_prior)
    checksums = values, checksum_of_names(alone.names.group.tolist()), label_fingerprint(alone) >> 1
    return _of_columns(X.shape, order, take, sizes, checksums)


def read_levels(groups: Any, group_names: Sequence[Any] | None) -> tuple[np.ndarray, list[Any], np.ndarray | None]:
    """Return labels as an array, the names of all groups, and their sizes if every sample has one known label.

    Args:
        groups: as in `as_data`.
        group_names: as in `as_data`.
    """
    groups = plain_labels(groups)
    labels: Any = groups.to_numpy() if hasattr(groups, "to_numpy") else groups
    if not hasattr(labels, "dtype"):
        labels = np.asarray(groups) if is_matrix_of_groups(list(groups)) else _as_sets(groups)
    if labels.ndim == 2:
        named = getattr(groups, "columns", range(labels.shape[1])) if group_names is None else group_names
        return labels, list(named), _sizes(labels)
    sets = [some if isinstance(some, SEVERAL) else [some] for some in labels.tolist()]
    counts = pd.Series([label for some in sets for label in some]).value_counts(dropna=False)
    known = counts[counts.index.notna()]
    check_kinds(known.index)
    try:
        levels = sorted(known.index.tolist()) if group_names is None else list(group_names)
    except TypeError as error:
        raise ValueError(f"expected labels of one sortable kind; got a mixture ({error})") from None
    complete = len(known) == len(counts) and all(len(some) == 1 for some in sets)
    return labels, levels, np.array([known.get(level, 0) for level in levels], float) if complete else None


def _as_sets(groups: Any) -> np.ndarray:
    """Return an array of labels, several of a sample as a set: lists in a batch might look like rows of 0 and 1."""
    labels = np.empty(len(groups), object)
    try:
        labels[:] = [frozenset(some) if isinstance(some, SEVERAL) else some for some in groups]
    except TypeError:
        raise ValueError("expected a label, or a set of labels, per sample; got sets of sets or of lists") from None
    return labels


def _sizes(matrix: np.ndarray) -> np.ndarray | None:
    """Return N_c of a matrix samples × groups of 0 and 1, if there is one 1 in every row."""
    single = matrix.dtype.kind in "biuf" and bool(
        ((matrix == 1).sum(axis=1) == 1).all() and (matrix != 0).sum() == len(matrix)
    )
    return np.asarray(matrix.sum(axis=0), float) if single else None


def part(data: Data, rows: np.ndarray) -> Data:
    """Return some samples, which stay unlabelled or multi-label as they are.

    Args:
        data: as made by `as_data`.
        rows: indices of the samples.
    """
    X, mask = data.matrix.take(rows)
    names = Names(*(list(x) for x in (data.names.feature, data.names.sample[rows], data.names.group)))
    membership = None if data.membership is None else on_host(data.membership)[rows]
    some, labels = Data(X, membership, names, mask), data.labels
    if labels is None:
        return some
    unlabelled = np.asarray(labels.unlabelled, bool)
    several = None if labels.several is None else np.asarray(labels.several, bool)[rows]
    several = several if several is not None and several.any() else None
    if several is None and not unlabelled[rows].any():
        return some
    index = (np.cumsum(unlabelled) - 1)[rows][unlabelled[rows]]
    u: Any = labels.dirichlet
    dirichlet = np.asarray(u)[index] if u is not None and np.ndim(u) == 2 else u
    kept = labels._replace(unlabelled=unlabelled[rows], weights=np.asarray(labels.weights)[index])
    return some._replace(labels=kept._replace(dirichlet=dirichlet, several=several))


def rounded(data: Data) -> Data:
    """Return a batch whose number of unlabelled samples is a multiple of a quarter of it: few shapes to compile for.

    The samples that are added to them are labelled ones: a label with prior probability 1 is the same as a known one.
    """
    N, M = data.num_samples, data.num_unlabelled
    wanted = min(N, -(-M // max(1, N // 4)) * max(1, N // 4))
    labels: Any = data.labels
    single = data.known if M == 0 or labels.several is None else data.known & ~np.asarray(labels.several, bool)
    if wanted == M or single.sum() < wanted - M:
        return data
    flags = np.asarray(labels.unlabelled, bool).copy()
    flags[np.flatnonzero(single)[: wanted - M]] = True
    return data._replace(labels=labels._replace(unlabelled=flags, weights=np.asarray(data.membership)[flags]))
