"""What rides along with the data through JAX without being data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .types import Array


class Unseen:
    """A pytree without leaves: any two of a kind count as equal, so that another one neither reaches compiled code
    nor compiles it anew.
    """

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node_class(cls)

    def tree_flatten(self) -> tuple[tuple[()], _Carrier]:
        """No leaves; the object itself rides along unseen."""
        return (), _Carrier(self)

    @classmethod
    def tree_unflatten(cls, carrier: _Carrier, _: tuple[()]) -> Unseen:
        """What rode along."""
        return carrier.load


class _Carrier:
    """Carries something through a pytree's structure, equal to every other such carrier."""

    def __init__(self, load: Unseen) -> None:
        self.load = load

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Carrier)

    def __hash__(self) -> int:
        return 0


class Names(Unseen):
    """What the user calls the features, samples and groups; no algorithm sees it."""

    def __init__(self, feature: Sequence[Any], sample: Sequence[Any], group: Sequence[Any]) -> None:
        self.feature, self.sample, self.group = (np.asarray(names) for names in (feature, sample, group))

    def __repr__(self) -> str:
        return f"Names(feature={len(self.feature)}, sample={len(self.sample)}, group={self.group.tolist()})"


class HeldOut(Unseen):
    """Entries of X that a mask hid and whose values are known; no algorithm sees them, only scores do.

    feature, sample: where they are, one index for each.
    value: what they are.
    """

    def __init__(self, feature: Array, sample: Array, value: Array) -> None:
        self.feature, self.sample, self.value = (np.asarray(x) for x in (feature, sample, value))

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"HeldOut({len(self)} entries)"
