"""Metadata that pass through JAX with the data, unseen by compiled code: names, and entries held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Number
from typing import Any

import jax
import numpy as np
import pandas as pd

from .types import Array


class Unseen:
    """A pytree without leaves, equal to all others of its class: compiled code neither sees it nor is compiled again
    for another one.
    """

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node_class(cls)

    def tree_flatten(self) -> tuple[tuple[()], _Carrier]:
        """Return no leaves, and the object itself as part of the structure."""
        return (), _Carrier(self)

    @classmethod
    def tree_unflatten(cls, carrier: _Carrier, _: tuple[()]) -> Unseen:
        """Return the object that the structure holds."""
        return carrier.load


class _Carrier:
    """A holder of an object in the structure of a pytree, equal to every other holder."""

    def __init__(self, load: Unseen) -> None:
        self.load = load

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Carrier)

    def __hash__(self) -> int:
        return 0


class Names(Unseen):
    """The user's names of features, samples and groups; no algorithm sees them."""

    def __init__(self, feature: Sequence[Any], sample: Sequence[Any], group: Sequence[Any]) -> None:
        self.feature, self.sample, self.group = (np.asarray(names) for names in (feature, sample, group))

    def __repr__(self) -> str:
        return f"Names(feature={len(self.feature)}, sample={len(self.sample)}, group={self.group.tolist()})"


class HeldOut(Unseen):
    """Entries of X that a mask hid and whose values are known; no algorithm sees them, only scores do.

    feature, sample: the indices of each entry.
    value: the value of each entry.
    """

    def __init__(self, feature: Array, sample: Array, value: Array) -> None:
        self.feature, self.sample, self.value = (np.asarray(x) for x in (feature, sample, value))

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"HeldOut({len(self)} entries)"


def require_order(
    what: str, given: Any, members: str, *allowed: Any, axis: int = 0, groups: bool = False, renamed: bool = False
) -> None:
    """Raise if a pandas object has the names of an axis in another order, repeated, or other names than these.

    A default index, 0, 1, ..., has no names of samples and features. Numbers of which only some are names are taken for
    positions.

    Args:
        what: the argument.
        given: its value, of pandas or not.
        members: what the names belong to, such as samples.
        allowed: names, each in the right order: those that X came with, and those that were given; None for none.
        axis: of the value.
        groups: whether the members are groups: their labels are names even if they are 0, 1, ....
        renamed: whether the names allowed replace those of the value, so that some may differ.
    """
    if not isinstance(given, (pd.Series, pd.DataFrame)) or axis >= given.ndim:
        return
    index = given.axes[axis]
    if not groups and _is_default(index):
        return
    known = [
        _as_text(names)
        for names in allowed
        if names is not None and len(names) == len(index) and (groups or not _is_default(names))
    ]
    own = _as_text(index)
    if own in known:
        return
    remedy = f"pass {what}.to_numpy() if the index means nothing"
    for names in known:
        if sorted(own) == sorted(names):
            here, there = next((one, other) for one, other in zip(own, names, strict=True) if one != other)
            raise ValueError(
                f"expected {what} in the order of the {members}; "
                f"got an index with {here!r} where {there!r} is (sort it, or {remedy})"
            )
    theirs = set().union(*known)
    strange = [name not in theirs for name in own]
    if theirs and not any(strange) and len(set(own)) < len(own) and not all(isinstance(x, Number) for x in index):
        repeated = next(name for name, number in Counter(own).items() if number > 1)
        raise ValueError(f"expected {what} of these {members}; got an index with {repeated!r} twice ({remedy})")
    foreign = [name for name, other in zip(index, strange, strict=True) if other and not isinstance(name, Number)]
    if foreign and not renamed and not all(strange):
        raise ValueError(
            f"expected {what} of these {members}; got an index with {foreign[0]!r}, a name of none of them ({remedy})"
        )


def _is_default(names: Any) -> bool:
    """Return whether names are the numbers 0, 1, ..., as they are where nobody gave any; text is a name."""
    return all(isinstance(name, Number) for name in names) and _as_text(names) == _as_text(range(len(names)))


def _as_text(names: Any) -> list[str]:
    """Return names as they are compared: 1 and 1.0 are one name, and so are tuples and rows of the same parts."""
    return [str([str(x) for x in name] if isinstance(name, (tuple, np.ndarray)) else _whole(name)) for name in names]


def _whole(name: Any) -> Any:
    """Return a whole number as an int, as an index that had missing names holds it as a float."""
    return int(name) if isinstance(name, (float, np.floating)) and float(name).is_integer() else name
