"""Structures: boolean matrices, components × groups, true where a component may serve a group, and their priors on λ.

Under the paper's prior (11) every component serves one group. Rows with several ones are components that groups share:
all groups (`common`), the groups below a node of a `tree`, or any others; `np.vstack` joins structures.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import whole
from .priors import Gamma

Structure: TypeAlias = NDArray[np.bool_]
MOST = 2**28  # entries of a structure: λ then takes 2 GB in double precision
SAME = 1e-5  # relative difference that rounding to single precision may cause between equal shapes


def structured(structure: ArrayLike, small: float = 32.0, large: float = 256.0, scale: float = 1e6) -> Gamma:
    """Return the prior λ_ic ~ Gamma(aˡ_ic, bˡ): aˡ = small where component i may serve group c, large elsewhere.

    Args:
        structure: components × groups, of 0 and 1 or booleans; every component serves at least one group.
        small: the shape aˡ where a component serves.
        large: the shape aˡ elsewhere; the larger, the more strictly groups keep to the components that serve them.
        scale: bˡ, the same everywhere.

    >>> structured([[1, 1, 0], [0, 0, 1]], small=1.0, large=9.0).a.tolist()
    [[1.0, 1.0, 9.0], [9.0, 9.0, 1.0]]
    """
    serves = check_structure(structure)
    for name, value in {"small": small, "large": large, "scale": scale}.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not 0 < value < np.inf:
            raise ValueError(f"expected {name} to be a positive number; got {value}")
    a = np.where(serves, float(small), float(large))
    return Gamma(a, np.full_like(a, scale))


def label_driven(
    per_group: int | Sequence[int] | None = None,
    num_groups: int | None = None,
    small: float = 32.0,
    large: float = 256.0,
    scale: float = 1e6,
    *,
    rank: int | None = None,
) -> Gamma:
    """Return the paper's prior (11) on λ: each component is bound to one group, aˡ = small there and large elsewhere.

    Args:
        per_group: components of each group; one number, or one for each group.
        num_groups: C.
        small: the shape aˡ where a component is bound.
        large: the shape aˡ elsewhere; the larger, the more strictly groups keep to their own components.
        scale: bˡ, the same everywhere.
        rank: instead of per_group, the number of components in all, divided as evenly as possible (the first groups
            get one more).

    Returns a Gamma of shape components × groups, components ordered by group.

    >>> label_driven(per_group=1, num_groups=2, small=1.0, large=9.0).a.tolist()
    [[1.0, 9.0], [9.0, 1.0]]
    >>> label_driven(rank=3, num_groups=2).a.shape
    (3, 2)
    """
    return structured(individual(per_group, num_groups, rank=rank), small, large, scale)


def individual(
    per_group: int | Sequence[int] | None = None, num_groups: int | None = None, *, rank: int | None = None
) -> Structure:
    """Return the structure of components that serve one group each, ordered by group.

    Args:
        per_group: components of each group; one number, or one for each group.
        num_groups: C.
        rank: instead of per_group, the number of components in all, divided as evenly as possible (the first groups
            get one more).

    >>> individual([2, 1]).astype(int).tolist()
    [[1, 0], [1, 0], [0, 1]]
    """
    C = len(per_group) if num_groups is None and isinstance(per_group, (list, tuple, np.ndarray)) else num_groups
    if rank is not None:
        whole("rank", rank, 1)
    num_groups = whole("num_groups", C, 1)
    _require_size(rank or 1, num_groups)
    groups = np.arange(num_groups)
    if (per_group is None) == (rank is None):
        raise ValueError(f"expected either per_group or rank; got per_group={per_group}, rank={rank}")
    if rank is not None:
        counts = rank // len(groups) + (groups < rank % len(groups))
    else:
        counts = counts_of("per_group", per_group, len(groups))
        _require_size(sum(counts.tolist()), len(groups))
    own: Structure = np.repeat(groups, counts)[:, None] == groups
    return own


def common(number: int, num_groups: int) -> Structure:
    """Return the structure of components that serve every group.

    Args:
        number: of components; may be 0.
        num_groups: C.

    >>> np.vstack([common(1, 2), individual(1, 2)]).astype(int).tolist()
    [[1, 1], [1, 0], [0, 1]]
    """
    _require_size(whole("number", number, 0), whole("num_groups", num_groups, 1))
    return np.ones((number, num_groups), bool)


def common_and_individual(
    num_common: int,
    per_group: int | Sequence[int] | None = None,
    num_groups: int | None = None,
    *,
    rank: int | None = None,
) -> Structure:
    """Return the structure of common components, then individual ones: the models that the paper cites as [16, 18, 20].

    Those models separate the two kinds by constraints on the dictionary; here the prior of the coefficients does.

    Args:
        num_common: components that serve every group.
        per_group: components of each group alone; one number, or one for each group.
        num_groups: C.
        rank: instead of per_group, the number of components in all, common ones included.

    >>> common_and_individual(num_common=2, per_group=3, num_groups=15).shape
    (47, 15)
    """
    whole("num_common", num_common, 0)
    own = None if rank is None else whole("rank", rank, num_common + 1) - num_common
    separate = individual(per_group, num_groups, rank=own)
    return np.vstack([common(num_common, separate.shape[1]), separate])


def tree(levels: Sequence[Sequence[Hashable]], per_node: int | Sequence[int] = 1) -> Structure:
    """Return the structure of a hierarchy of groups: components of a node serve all groups below that node.

    Args:
        levels: from the coarsest to the finest; each lists, for every group in the order of `data.names.group`, the
            node of that level that it is below. The groups themselves are a level only if they are listed.
        per_node: components of each node; one number, or one for each level.

    Returns components × groups: level by level, nodes in the order in which they are first named.

    >>> kind = {"car": "vehicle", "cat": "animal", "dog": "animal"}
    >>> tree([list(kind.values()), list(kind)]).astype(int).tolist()
    [[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    sequences = isinstance(levels, (list, tuple, np.ndarray)) and all(hasattr(level, "__len__") for level in levels)
    if not sequences or any(isinstance(level, (str, bytes)) for level in levels):
        raise ValueError(f"expected levels to be sequences of nodes, one for each group; got {levels!r}")
    rows = [list(level) for level in levels]
    if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        raise ValueError(f"expected levels with one node for each group; got lengths {[len(row) for row in rows]}")
    for coarse, fine in pairwise(rows):
        above: dict[Hashable, Hashable] = {}
        for parent, node in zip(coarse, fine, strict=True):
            if above.setdefault(node, parent) != parent:
                raise ValueError(f"expected every node below one other; got {node!r} below {above[node]!r}, {parent!r}")
    counts = counts_of("per_node", per_node, len(rows))
    nodes = [[[name == node for name in row] for node in dict.fromkeys(row)] for row in rows]
    return np.vstack([np.repeat(level, count, axis=0) for level, count in zip(nodes, counts, strict=True)])


def served(rate: Gamma, group_sizes: ArrayLike, rank: int) -> Structure:
    """Return the structure of a prior of λ: a component may serve the groups where its prior mean aˡbˡ is least.

    This is the inverse of `structured` and of `relative_rates`, whose shapes grow with the sizes of groups: means are
    compared as they are, or divided by group sizes if fewer of them then differ.

    Args:
        rate: the prior of λ.
        group_sizes: N_c.
        rank: K, the number of components.

    >>> served(structured([[1, 1, 0], [0, 0, 1]]), [4, 4, 5], rank=2).astype(int).tolist()
    [[1, 1, 0], [0, 0, 1]]
    """
    sizes = np.maximum(np.asarray(group_sizes, float), 1.0)
    mean = np.broadcast_to(np.asarray(rate.a, float) * np.asarray(rate.b, float), (rank, len(sizes)))
    each = mean / sizes[None, :]
    means = each if _distinct(each) < _distinct(mean) else mean
    least: Structure = means <= means.min(axis=1, keepdims=True) * (1 + SAME)
    return least


def check_structure(structure: ArrayLike, num_groups: int | None = None) -> Structure:
    """Return a structure as booleans; raise if it is not valid.

    Args:
        structure: components × groups.
        num_groups: C; None for any.
    """
    matrix = np.asarray(structure)
    if matrix.ndim != 2 or 0 in matrix.shape or num_groups not in (None, matrix.shape[1]):
        groups = "groups" if num_groups is None else f"{num_groups} groups"
        raise ValueError(f"expected a structure, components × {groups}; got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf" or not np.isin(matrix, (0, 1)).all():
        raise ValueError(f"expected a structure of 0 and 1; got {np.array2string(matrix, threshold=6)}")
    serves = matrix.astype(bool)
    idle = np.flatnonzero(~serves.any(axis=1))
    if len(idle):
        raise ValueError(f"expected every component to serve a group; got none for component {idle[0]}")
    return serves


def counts_of(name: str, given: Any, length: int) -> NDArray[np.intp]:
    """Return the number of components of each group or node, from one number or from one for each."""
    counts = np.asarray(given)
    if counts.ndim > 1 or counts.size not in (1, length) or counts.dtype.kind not in "iu":
        raise ValueError(f"expected {name} to be a whole number or {length} of them; got {given}")
    if counts.min() < 0 or counts.max() < 1:
        raise ValueError(f"expected at least one component; got {name}={given}")
    return np.broadcast_to(counts, length)


def _require_size(K: int, C: int) -> None:
    """Raise before a structure is built that is too large for memory."""
    if K * C > MOST:
        raise ValueError(f"expected at most {MOST:,} entries of a structure; got {K:,} components × {C:,} groups")


def _distinct(values: NDArray[np.float64]) -> int:
    """Return the number of different values, except for rounding."""
    return 1 + int((np.diff(np.sort(np.log(values), axis=None)) > SAME).sum())
