"""Metadata that pass through JAX with the data, unseen by compiled code: names, and entries held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

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
