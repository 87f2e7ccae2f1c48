"""The way in which X will be read, and the memory that a fit will take: said before work begins."""

from __future__ import annotations

import os
from typing import NamedTuple

import jax

from .inference import native
from .inference.sharding import ShardedMatrix
from .model import Data
from .model.compressed import is_sparse

ARRAYS = 10  # arrays of the size of T and V in a run: moments and factors now, before and ahead; temporary ones
TILE = 3 * (8 << 20)  # bytes of a tile of a dense X, of M and of ξ


class Plan(NamedTuple):
    """The way in which X will be read.

    kind: "dense", "sparse", "sharded" or "streamed".
    why: in words.
    needed: bytes, about, of this process.
    available: bytes that the machine has left; None if it does not tell.
    """

    kind: str
    why: str
    needed: int
    available: int | None

    def __str__(self) -> str:
        return f"{self.why}; about {in_units(self.needed)} of memory"

    def check(self) -> Plan:
        """Raise if the machine has less memory than the fit will take; else return the plan."""
        if self.available is not None and self.needed > self.available:
            instead = {
                "dense": "give X as a sparse matrix if most of it is 0, or stream it (cavi.stream, gsnmf fit --stream)",
                "sparse": "stream it (cavi.stream, gsnmf fit --stream), or spread it over machines (--distributed)",
                "sharded": "use more machines, or fewer components",
                "streamed": "use smaller batches, or fewer components",
            }[self.kind]
            raise ValueError(
                f"expected a fit that fits in memory, {in_units(self.available)} of which are free; got one that takes "
                f"about {in_units(self.needed)} ({self.why}): {instead}"
            )
        return self


def plan(data: Data, rank: int) -> Plan:
    """Return how `cavi.run` will read these data.

    Args:
        data: as made by `as_data`, or by `shard`.
        rank: the number of components.

    >>> from gsnmf.model import as_data
    >>> plan(as_data([[1.0, 2.0]]), 3).kind
    'dense'
    """
    F, N = data.matrix.shape
    size = jax.numpy.result_type(float).itemsize
    factors = ARRAYS * (F + N) * rank * size
    shape = f"{F:,} × {N:,}"
    if isinstance(data.X, ShardedMatrix):
        counts, own = data.X.observed.layout.counts, data.X.part.matrix.shape[1]
        X = _bytes_of(data.X.observed.parts) // max(jax.process_count(), 1)
        why = f"X of {shape}, spread over {len(counts)} devices, {own:,} samples in this process"
        return Plan("sharded", why, X + factors, available())
    if is_sparse(data):
        share = data.X.nnz / data.X.size
        why = (
            f"sparse X of {shape}, {data.X.nnz:,} entries above 0 ({share:.2g} of all), read by the {native.describe()}"
        )
        return Plan("sparse", why, 2 * data.X.nnz * (4 + size) + factors, available())
    X = F * N * (data.X.dtype.itemsize + 2 * size)  # as given, of the problem, and as sweeps read it
    return Plan("dense", f"dense X of {shape}", X + min(TILE, 3 * F * N * size) + factors, available())


def _bytes_of(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available() -> int | None:
    """Return the bytes of memory that the machine has left; None if it does not tell."""
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
