"""What was observed: X, who belongs to which group, and what the axes are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from .types import Array


@jax.tree_util.register_pytree_node_class
class Names:
    """What the user calls the features, samples and groups.

    Names are not data: JAX sees no leaf here, and any two `Names` count as equal, so that relabelling
    neither reaches compiled code nor compiles it anew.
    """

    def __init__(self, feature: Sequence[Any], sample: Sequence[Any], group: Sequence[Any]) -> None:
        self.feature, self.sample, self.group = (np.asarray(names) for names in (feature, sample, group))

    def __repr__(self) -> str:
        return f"Names(feature={len(self.feature)}, sample={len(self.sample)}, group={self.group.tolist()})"

    def tree_flatten(self) -> tuple[tuple[()], _Unseen]:
        """No leaves; the names ride along unseen."""
        return (), _Unseen(self)

    @classmethod
    def tree_unflatten(cls, unseen: _Unseen, _: tuple[()]) -> Names:
        """The names that rode along."""
        return unseen.names


class _Unseen:
    """Carries names through a pytree's structure, equal to every other such carrier."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unseen)

    def __hash__(self) -> int:
        return 0


class Data(NamedTuple):
    """Validated observations; build it with `as_data`.

    X: features × samples, nonnegative and finite.
    membership: samples × groups, the paper's Δ; None when no groups were given.
    names: what the axes are called.
    """

    X: Array
    membership: Array
    names: Names

    @property
    def num_features(self) -> int:
        """F."""
        return int(self.X.shape[0])

    @property
    def num_samples(self) -> int:
        """N."""
        return int(self.X.shape[1])

    @property
    def num_groups(self) -> int:
        """C; 0 when no groups were given."""
        return 0 if self.membership is None else int(self.membership.shape[1])

    @property
    def group_sizes(self) -> Array:
        """N_c = Σ_τ Δ_τc."""
        if self.membership is None:
            raise ValueError("expected data with groups, as_data(X, groups); got data without")
        return self.membership.sum(axis=0)


def as_data(
    X: Array,
    groups: Sequence[Any] | Array | None = None,
    *,
    feature_names: Sequence[Any] | None = None,
    sample_names: Sequence[Any] | None = None,
    group_names: Sequence[Any] | None = None,
) -> Data:
    """Check X and its groups once, and gather them.

    Args:
        X: features × samples, real, finite, nonnegative; counts or not. Columns are samples. Arrays stay where and
            in the precision they are; every algorithm reads them in the precision that JAX is set to.
        groups: one label per column of X, any sortable kind (numbers, strings); groups are ordered as sorted
            labels. None for a model without groups.
        feature_names: one per row; those of a DataFrame, or 0, 1, ..., when left out.
        sample_names: one per column; likewise.
        group_names: all groups there are, in the order wanted, when some have no sample here.

    >>> data = as_data([[1, 0, 2], [0, 3, 1]], ["b", "a", "b"])
    >>> data.names.group.tolist(), data.group_sizes.tolist()
    (['a', 'b'], [1.0, 2.0])
    """
    if hasattr(X, "columns") and hasattr(X, "index"):
        feature_names = X.index if feature_names is None else feature_names
        sample_names = X.columns if sample_names is None else sample_names
    X = _check_matrix(X)
    F, N = X.shape
    if groups is not None and np.shape(groups) == (F,) != (N,):
        raise ValueError(f"expected one label for each of the {N} samples; got {F}, as many as rows: transpose X?")
    membership, levels = (None, ()) if groups is None else _membership(groups, N, group_names)
    if groups is None and group_names is not None:
        raise ValueError("expected groups, one label per sample, with group_names; got groups=None")
    names = Names(
        _check_names("feature_names", feature_names, F), _check_names("sample_names", sample_names, N), levels
    )
    return Data(X, membership, names)


def _check_matrix(X: Array) -> Array:
    if isinstance(X, np.ma.MaskedArray) or hasattr(X, "tocoo"):
        raise ValueError(f"expected X to be a dense array without a mask; got {type(X).__name__}")
    X = X if isinstance(X, jax.Array) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"expected X with 2 dimensions, features × samples; got {X.ndim} (shape {X.shape})")
    if 0 in X.shape:
        raise ValueError(f"expected X with at least one feature and one sample; got shape {X.shape}")
    if X.dtype.kind == "O":
        try:
            X = X.astype(float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected X to hold real numbers; got objects ({error})") from None
    if X.dtype.kind not in "biuf" and X.dtype != jax.numpy.bfloat16:
        raise ValueError(f"expected X to hold real numbers; got dtype {X.dtype}")
    finite = np.isfinite(X)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~np.asarray(finite))[0])
        raise ValueError(
            f"expected X to be finite; got {X[where]} at feature {where[0]}, sample {where[1]} "
            f"({int((~finite).sum())} such entries)"
        )
    if X.dtype.kind not in "bu" and X.min() < 0:
        raise ValueError(f"expected X to be nonnegative; got a minimum of {X.min()}")
    return X


def _membership(groups: Any, N: int, group_names: Sequence[Any] | None) -> tuple[Array, Sequence[Any]]:
    """One-hot Δ (samples × groups) and the names of its columns."""
    if isinstance(groups, (str, bytes, set, frozenset, Mapping)) or np.ndim(groups) == 0:
        raise ValueError(f"expected groups to be a sequence, one label per sample; got {type(groups).__name__}")
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"expected one label per sample; got a nested sequence or matrix, {type(groups).__name__}")
    if len(groups) != N:
        raise ValueError(f"expected groups to hold one label for each of the {N} samples; got {len(groups)}")
    labels = list(np.asarray(groups)) if hasattr(groups, "dtype") else list(groups)
    if any(np.ndim(label) != 0 for label in labels):
        raise ValueError("expected one label per sample; got a nested sequence or matrix")
    unknown = [t for t, label in enumerate(labels) if pd.isna(label)]
    if unknown:
        raise ValueError(f"expected a label for every sample; got {labels[unknown[0]]} for sample {unknown[0]}")
    try:
        levels = sorted(set(labels))
    except TypeError as error:
        raise ValueError(f"expected labels of one sortable kind; got a mixture ({error})") from None
    if group_names is not None:
        levels = _check_names("group_names", group_names, None)
    if len(set(levels)) != len(levels):
        raise ValueError(f"expected distinct group_names; got {levels}")
    index = {level: c for c, level in enumerate(levels)}
    strangers = sorted({str(label) for label in labels if label not in index})
    if strangers:
        raise ValueError(f"expected every label among group_names {levels}; got {', '.join(strangers[:5])} as well")
    membership = np.zeros((N, len(levels)))
    membership[np.arange(N), [index[label] for label in labels]] = 1
    return membership, levels


def _check_names(what: str, names: Sequence[Any] | None, length: int | None) -> list[Any]:
    """Names as a list: 0, 1, ... when there are none, of any length when that is None."""
    if names is None:
        return list(range(length or 0))
    if isinstance(names, (str, bytes)) or np.ndim(names) != 1:
        raise ValueError(f"expected {what} to be a sequence of names; got {names!r}")
    if length is not None and len(names) != length:
        raise ValueError(f"expected {what} to hold {length} names; got {len(names)}")
    return list(names)
