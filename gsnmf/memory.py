"""Memory plan: how X will be read and how much memory a fit needs."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse

from .headers import read_header
from .inference import native
from .inference.observed.dense import TILE
from .inference.sharding import ShardedMatrix
from .inference.stream.batches import default_size
from .model import Data, Priors
from .model.compressed import is_sparse
from .reading import PathLike

ARRAYS = 15  # arrays of the size of T and V at the peak of a fit, at most; fewer if every sample has one label
TILES = 3 * TILE  # bytes of a tile of a dense X, of M and of ξ


class MemoryPlan(NamedTuple):
    """The way in which X will be read.

    kind: "dense", "sparse", "sharded" or "streamed".
    why: in words.
    needed: bytes, about, of this process.
    available: bytes that the machine has left; None if unknown.
    candidates: bytes among those needed that are for candidate groups of unlabelled samples.
    """

    kind: str
    why: str
    needed: int
    available: int | None
    candidates: int = 0

    def __str__(self) -> str:
        return f"{self.why}; about {in_units(self.needed)} of memory"

    def check(self) -> MemoryPlan:
        """Raise if the machine has less memory than the fit will take; else return the plan."""
        if self.available is not None and self.needed > self.available:
            instead = {
                "dense": "give X as a sparse matrix if most of it is 0, or stream it (gsnmf fit --stream, cavi.stream, "
                "partial_fit)",
                "sparse": "stream it (gsnmf fit --stream, cavi.stream, partial_fit), or spread it over machines "
                "(--distributed)",
                "sharded": "use more machines, or fewer components",
                "streamed": "use smaller batches, or fewer components",
            }[self.kind]
            if 2 * self.candidates > self.needed:
                mean_field = 'cavi.run(..., labels=cavi.labelling("mean_field"))'
                instead = f"use fewer components, or the mean field, without a row of V for each group ({mean_field})"
            raise ValueError(
                f"expected a fit that fits in memory, {in_units(self.available)} of which are free; got one that takes "
                f"about {in_units(self.needed)} ({self.why}): {instead}"
            )
        return self


def plan(data: Data, rank: int, form: str = "structured") -> MemoryPlan:
    """Return how `cavi.run` will read these data.

    Args:
        data: as made by `as_data`, or by `shard`.
        rank: the number of components.
        form: of q for unlabelled samples, as in `cavi.labelling`.

    >>> from gsnmf.model import as_data
    >>> plan(as_data([[1.0, 2.0]]), 3).kind
    'dense'
    """
    found, M, C = _of_samples(data, rank), data.num_unlabelled, data.num_groups
    if form != "structured" or M == 0 or C == 1:
        return found
    processes = max(jax.process_count(), 1) if isinstance(data.X, ShardedMatrix) else 1
    more = _factors(0, M * (C - 1), rank) // processes  # V has a row for each candidate group
    why = f"{found.why}, {M:,} unlabelled samples with {C:,} candidate groups each"
    return found._replace(why=why, needed=found.needed + more, candidates=more)


def _of_samples(data: Data, rank: int) -> MemoryPlan:
    """Return the plan with one row of V for every sample."""
    F, N = data.matrix.shape
    if isinstance(data.X, ShardedMatrix):
        counts, own = data.X.observed.layout.counts, len(data.X.part.samples)
        X = _bytes_of(data.X.observed.parts) // max(jax.process_count(), 1)
        why = f"X of {F:,} × {N:,}, spread over {len(counts)} devices, {own:,} samples in this process"
        return MemoryPlan("sharded", why, X + _factors(F, N, rank), available())
    if is_sparse(data):
        return _sparse(F, N, data.X.nnz, rank)
    return _dense(F, N, data.X.dtype.itemsize, rank)


def plan_file(path: PathLike, rank: int = 0, key: str | None = None) -> MemoryPlan | None:
    """Return how the matrix of a file would be read, from its header alone; None if unknown.

    Args:
        path: as `reading.read_matrix` takes it.
        rank: the number of components; 0 if it is not known yet.
        key: as in `reading.read_matrix`.
    """
    header = read_header(path, key)
    if header is None:
        return None
    if header.stored is None:
        return _dense(*header.axes, header.itemsize, rank)
    return _sparse(*header.axes, header.stored, rank)


def plan_stream(X: Any, priors: Priors | None, rank: int | None = None, batch_size: int | None = None) -> MemoryPlan:
    """Return how `cavi.stream` will read a matrix: a batch at a time.

    Args:
        X: features × samples, as `cavi.stream` takes it.
        priors: of T and V; None, with a rank, before they are built.
        rank: the number of components, where the priors' shapes leave it open.
        batch_size: samples of a batch; None for the default.
    """
    F, N = (int(n) for n in X.shape)
    B = default_size(X) if batch_size is None else batch_size
    first: Any = None if isinstance(X, np.ndarray) else X[:, np.arange(min(B, N))]
    entries = first.nnz if scipy.sparse.issparse(first) else F * B
    batch = 3 * entries * jax.numpy.result_type(float).itemsize
    why = f"X of {F:,} × {N:,}, streamed in batches of {B:,} samples"
    return MemoryPlan("streamed", why, batch + 8 * N + _factors(F, B, components_of(priors, rank)), available())


def components_of(priors: Priors | None, rank: int | None = None) -> int:
    """Return the number of components, from the priors' shapes where it is not given; 1 if neither tells."""
    if rank or priors is None:
        return rank or 1
    sites = ((priors.coefficients, 0), (priors.dictionary, 1))
    shapes = [(np.shape(leaf), axis) for site, axis in sites for leaf in jax.tree.leaves(site)]
    return max((shape[axis] for shape, axis in shapes if len(shape) == 2), default=1)


def _factors(F: int, N: int, rank: int) -> int:
    return ARRAYS * (F + N) * rank * jax.numpy.result_type(float).itemsize


def _sparse(F: int, N: int, stored: int, rank: int) -> MemoryPlan:
    size = jax.numpy.result_type(float).itemsize
    share = stored / max(F * N, 1)
    why = f"sparse X of {F:,} × {N:,}, {stored:,} entries above 0 ({share:.2g} of all), read by the {native.describe()}"
    return MemoryPlan("sparse", why, 2 * stored * (4 + size) + _factors(F, N, rank), available())


def _dense(F: int, N: int, itemsize: int, rank: int) -> MemoryPlan:
    size = jax.numpy.result_type(float).itemsize
    X = F * N * (itemsize + 2 * size)  # as given, of the problem, and as sweeps read it
    tile = min(TILES, 3 * F * N * size)
    return MemoryPlan("dense", f"dense X of {F:,} × {N:,}", X + tile + _factors(F, N, rank), available())


def _bytes_of(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available() -> int | None:
    """Return the bytes of memory that the machine has left; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def in_units(size: float) -> str:
    """Return a number of bytes in words.

    >>> in_units(1.5e9), in_units(20_000)
    ('1.5 GB', '20 kB')
    """
    for unit, number in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= number:
            return f"{size / number:.3g} {unit}"
    return f"{max(size / 1e3, 1):.3g} kB"
