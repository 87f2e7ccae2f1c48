"""Draws of S: the counts of X, split among components.

s_ν·τ | T, V ~ Multinomial(x_ντ, t_νi v_iτ / (TV)_ντ), of which T and V need the sums over samples and over features

An entry of X is split in one of two ways:

- by units, if x is small: each of its x counts is compared with the cumulative probabilities of the components,
  s_1 + … + s_i = Σ_m [u_m < Σ_{j≤i} t_j v_j / (TV)], which is the fastest by far: no draw is rejected
- by binomials, if x is large: s_i given s_(i+1), ..., s_K is Binomial(x − Σ_{j>i} s_j, t_i v_i / Σ_{j≤i} t_j v_j)

The entries above 0 are grouped by size before the first draw, on the host (`group_counts`); without groups, as for an X
that is traced, all entries are split by binomials. Nothing of features × components × samples is formed. Groups are
filled up to rounded lengths, so that programs compiled for one X mostly serve others of the same shape.

`thin` is the only function that draws S, with arrays as arguments: a compiled kernel would take its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.matrix import is_traced
from ..model.types import Array

STEP = 4  # sizes in a group differ by this factor at most, so that few units are drawn in vain
LARGE = 512  # counts above it are split by binomials, one of which takes as long as about 15 units
FEW = 2**16  # units that cost less than a group of their own
MOST = 2**22  # numbers in the largest array
BLOCK = 16  # units of every entry that are drawn at once, at most
UNITS = {1: 1, 2: 2, 12: 4}  # fewer of them, if no count is larger: larger blocks are faster, unless drawn in vain
MANY = 2**12  # places in a group; numbers of counts above it vary less from one X to another
END = np.int32(2**31 - 1)


class Counts(NamedTuple):
    """Sums of S that T and V need.

    T: Σ_τ s, features × components.
    V: Σ_ν s, components × samples.
    """

    T: Array
    V: Array


@jax.tree_util.register_pytree_node_class
class Group(NamedTuple):
    """Entries of X of similar size, wherever they are.

    rows: the features of the entries; places beyond X, at the end, fill the group up.
    columns: their samples.
    units: units of every entry that are drawn at once, which is static; None for binomials.
    """

    rows: Array
    columns: Array
    units: int | None

    def tree_flatten(self) -> tuple[tuple[Array, Array], int | None]:
        """Places are leaves; the number of units is static, as it decides shapes."""
        return (self.rows, self.columns), self.units

    @classmethod
    def tree_unflatten(cls, units: int | None, leaves: tuple[Array, Array]) -> Group:
        """Rebuild a group."""
        return cls(*leaves, units)


def group_counts(X: Array, few: int = FEW) -> tuple[Group, ...]:
    """Return the entries of X above 0, grouped by size; they hold for all counts that are nowhere larger than X.

    Args:
        X: features × samples, whole numbers. If it is traced, one group without a bound has all entries.
        few: so many units drawn in vain cost less than a group of their own.

    >>> group, = group_counts(np.array([[0, 2, 3], [1, 0, 2]]))
    >>> group.rows.tolist(), group.columns.tolist(), group.units
    ([0, 0, 1, 1], [1, 2, 0, 2], 4)
    """
    if is_traced(X):
        rows, columns = np.indices(X.shape).reshape(2, -1)
        return (Group(rows, columns, None),)
    X = np.asarray(X)
    (F, N), (rows, columns) = X.shape, np.nonzero(X)
    x = X[rows, columns].astype(np.int64)
    groups = []
    for above, most in _ranges(x, few):
        chosen = _within(x, above, most)
        length = X.size if 8 * len(chosen) > 7 * X.size else rounded(len(chosen))
        units = None if most is None else next((units for bound, units in UNITS.items() if most <= bound), BLOCK)
        groups.append(Group(_filled(rows[chosen], F, length), _filled(columns[chosen], N, length), units))
    return tuple(groups)


def rounded(number: int) -> int:
    """Return a number rounded up, by a quarter at most and by an eighth if it is large: similar numbers become equal.

    >>> [rounded(number) for number in (7, 15, 100, 1000, 10_000)]
    [7, 16, 112, 1024, 10240]
    """
    step = 1 << max(0, number.bit_length() - (3 if number < MANY else 4))
    return -(-number // step) * step


def _filled(places: np.ndarray, end: int, length: int) -> np.ndarray:
    return np.concatenate([places, np.full(length - len(places), end)]).astype(np.int32)


def _within(x: np.ndarray, above: int, most: int | None) -> np.ndarray:
    return np.flatnonzero((x > above) & (x <= (np.inf if most is None else most)))


def _ranges(x: np.ndarray, few: int) -> list[tuple[int, int | None]]:
    """Return (above, most) for every group: the sizes of its counts. Small groups are joined to the next larger one."""
    ranges: list[tuple[int, int | None]] = []
    above, most = 0, 1
    while above < x.max(initial=0):
        inside = x[(x > above) & (x <= most)]
        larger = x[x > most]
        if larger.size and inside.size * min(most * STEP, larger.max()) <= few:
            most *= STEP  # drawing for these as for the next costs less than a group of their own
            continue
        if inside.size:
            bound = int(inside.max())
            ranges.append((above, bound if bound <= LARGE or inside.size * bound <= few else None))
        if larger.size == 0:
            break
        if most >= LARGE and larger.size * larger.max() > few:
            ranges.append((most, None))
            break
        above, most = most, most * STEP
    return ranges


def thin(key: Array, X: Array, T: Array, V: Array, groups: tuple[Group, ...] | None = None) -> Counts:
    """Draw S and return its sums.

    Args:
        key: a JAX key.
        X: features × samples, whole numbers.
        T: features × components.
        V: components × samples.
        groups: from `group_counts`, of this X or of one that is nowhere smaller; None to group this one.

    >>> S = thin(jax.random.key(0), jnp.array([[3.0, 1.0]]), jnp.ones((1, 2)), jnp.ones((2, 2)))
    >>> S.T.sum(axis=1).tolist(), S.V.sum(axis=0).tolist()
    ([4.0], [3.0, 1.0])
    """
    groups = group_counts(X) if groups is None else groups
    sums = Counts(jnp.zeros_like(T), jnp.zeros_like(V.T))
    for n, group in enumerate(groups):
        rows, columns = (_blocks(x, end, len(V), group.units) for x, end in zip(group[:2], X.shape, strict=True))

        def block(sums: Counts, part: Any, units: int | None = group.units) -> tuple[Counts, None]:
            key, rows, columns = part
            x = X.at[rows, columns].get(mode="fill", fill_value=0)  # places beyond X fill groups and blocks up
            products = T[rows].T * V.T[columns].T
            s = _by_binomials(key, x, products) if units is None else _by_units(key, x, products, units)
            s = s.T.astype(X.dtype)
            return Counts(sums.T.at[rows].add(s), sums.V.at[columns].add(s)), None

        keys = jax.random.split(jax.random.fold_in(key, n), len(rows))
        sums, _ = jax.lax.scan(block, sums, (keys, rows, columns))
    return sums._replace(V=sums.V.T)


def _by_units(key: Array, x: Array, products: Array, block: int) -> Array:
    """Split counts x one unit at a time, `block` of them at once; probabilities are rounded to multiples of 2⁻³²."""
    cumulative = _cumulative(products)
    total = jnp.where(cumulative[-1] > 0, cumulative[-1], jnp.inf)  # if all products underflow, the last has x
    share = cumulative[:-1] / total[None, :]
    bounds = jnp.where(share < 1, jnp.floor(2.0**32 * (share - 0.5)), END).astype(jnp.int32)

    def some(n: Array, below: Array) -> Array:
        bits = jax.random.bits(jax.random.fold_in(key, n), (block, x.size), jnp.uint32)
        bits = jax.lax.bitcast_convert_type(bits, jnp.int32)
        units = n * block + jnp.arange(block)
        bits = jnp.where(units[:, None] < x[None, :], bits, END)  # beyond x, above every bound
        more = jax.lax.map(lambda bound: (bits < bound[None, :]).sum(axis=0, dtype=jnp.int32), bounds)
        return below + more

    # The largest count there is: a part of X, as in particle filters, is split in a part of the time.
    blocks = jnp.ceil(x.max() / block).astype(jnp.int32)
    below = jax.lax.fori_loop(0, blocks, some, jnp.zeros(bounds.shape, jnp.int32))
    first, last = jnp.zeros((1, x.size), jnp.int32), x.astype(jnp.int32)[None, :]
    return jnp.diff(jnp.concatenate([first, below, last]), axis=0)


def _by_binomials(key: Array, x: Array, products: Array) -> Array:
    """Split counts x of any size, the last component first."""
    keys, cumulative = jax.random.split(key, len(products) - 1), _cumulative(products)

    def one(left: Array, component: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        key, product, sum_ = component
        s = jax.random.binomial(key, left, jnp.where(sum_ > 0, product / sum_, 1))
        return left - s, s

    first, s = jax.lax.scan(one, x, (keys, products[1:], cumulative[1:]), reverse=True)
    return jnp.concatenate([first[None, :], s])


def _cumulative(products: Array) -> Array:
    """Return Σ_{j≤i} t_j v_j, components × entries: sums that never fall, as those of a parallel scan might."""

    def add(total: Array, product: Array) -> tuple[Array, Array]:
        return total + product, total + product

    return jax.lax.scan(add, jnp.zeros_like(products[0]), products)[1]


def _blocks(places: Array, end: int, K: int, units: int | None) -> Array:
    """Return places as blocks × entries, filled up with `end`, so that a block's largest array has at most `MOST`."""
    size = max(1, MOST // max(K, units or 0))
    number = -(-places.shape[0] // size)
    size = -(-places.shape[0] // number)
    fill = number * size - places.shape[0]
    return jnp.concatenate([jnp.asarray(places, jnp.int32), jnp.full(fill, end, jnp.int32)]).reshape(number, size)
