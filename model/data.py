"""What was observed: X, who belongs to which group, and what the axes are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from .labels import Dirichlet, Labels, read_labels
from .metadata import HeldOut, Names
from .missing import split
from .types import Array


class Data(NamedTuple):
    """Validated observations; build it with `as_data`.

    X: features × samples, nonnegative and finite; 0 where it is hidden.
    membership: samples × groups, the paper's Δ; None when no groups were given. 1 at the label, 1/n at each of n
        labels, and the prior of a label that is unknown.
    names: what the axes are called.
    mask: features × samples, 1 where x was seen and 0 where it is hidden; None when everything was seen.
    held_out: what is known of the hidden entries, for scores alone; None when nothing is.
    labels: which labels are unknown, and which samples have several; None when all have one that is known.
    """

    X: Array
    membership: Array
    names: Names
    mask: Array | None = None
    held_out: HeldOut | None = None
    labels: Labels | None = None

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
    def num_observed(self) -> int:
        """How many entries of X were seen."""
        return int(np.size(self.X) if self.mask is None else np.asarray(self.mask).sum())

    @property
    def observed_mean(self) -> float:
        """The mean of the entries that were seen."""
        if self.mask is None:
            return float(np.mean(np.asarray(self.X), dtype=float))
        return float(np.sum(np.asarray(self.X), dtype=float)) / self.num_observed

    @property
    def group_sizes(self) -> Array:
        """N_c = Σ_τ Δ_τc; where labels are unknown, what is expected beforehand."""
        if self.membership is None:
            raise ValueError("expected data with groups, as_data(X, groups); got data without")
        return self.membership.sum(axis=0)

    @property
    def several(self) -> Array | None:
        """Of every sample, 1 if it has several labels; None when none has."""
        return None if self.labels is None else self.labels.several

    @property
    def known(self) -> np.ndarray:
        """Of every sample, whether its label is known, or its labels are."""
        if self.labels is None:
            return np.ones(self.num_samples, bool)
        return ~np.asarray(self.labels.unknown, bool)


def as_data(
    X: Array,
    groups: Sequence[Any] | Array | None = None,
    *,
    label_prior: Array | Dirichlet | None = None,
    mask: Array | None = None,
    feature_names: Sequence[Any] | None = None,
    sample_names: Sequence[Any] | None = None,
    group_names: Sequence[Any] | None = None,
) -> Data:
    """Check X and its groups once, and gather them.

    Args:
        X: features × samples, real, finite, nonnegative; counts or not. Columns are samples. Arrays stay where and
            in the precision they are; every algorithm reads them in the precision that JAX is set to. NaN are
            missing entries, and so are those that a masked array of NumPy's hides.
        groups: one label per column of X, any sortable kind (numbers, strings); groups are ordered as sorted
            labels. A label that is None or NaN is unknown, and is learned. A sample may have several labels, a set or
            list of them, whose rates λ it shares evenly. Or a matrix of 0 and 1, samples × groups, whose columns are
            called by group_names, or 0, 1, ...; a sample without a 1 has an unknown label. Lists of 0 and 1 of one
            length are rows of such a matrix. None for a model without groups.
        label_prior: what is believed about unknown labels: weights, one per group or samples × groups (the paper's U),
            rows of samples with known labels being ignored; or a `Dirichlet`. Left out, all groups are as likely.
        mask: of X's shape, true (or 1) where X was **observed**, the opposite of NumPy's masked arrays. What it hides
            no algorithm sees; values there that are known (finite, not negative) are kept in `held_out` to score
            predictions by. A feature or a sample may be hidden as a whole: the prior speaks there.
        feature_names: one per row; those of a DataFrame, or 0, 1, ..., when left out.
        sample_names: one per column; likewise.
        group_names: all groups there are, in the order wanted, when some have no sample here.

    >>> data = as_data([[1, 0, 2], [0, 3, 1]], ["b", "a", "b"])
    >>> data.names.group.tolist(), data.group_sizes.tolist()
    (['a', 'b'], [1.0, 2.0])
    >>> as_data([[1, 0, 2], [0, 3, 1]], ["b", None, {"a", "b"}]).membership.tolist()
    [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    >>> as_data([[1, 0, float("nan")], [0, 3, 1]]).mask.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    if hasattr(X, "columns") and hasattr(X, "index"):
        feature_names = X.index if feature_names is None else feature_names
        sample_names = X.columns if sample_names is None else sample_names
    X, seen, held_out = _check_matrix(X, mask)
    F, N = X.shape
    membership: Array = None
    levels: list[Any] = []
    labels = None
    if groups is not None:
        membership, levels, labels = read_labels(groups, X.shape, group_names, label_prior)
    elif group_names is not None or label_prior is not None:
        given = "label_prior" if group_names is None else "group_names"
        raise ValueError(f"expected groups, one label per sample, with {given}; got groups=None")
    names = Names(
        _check_names("feature_names", feature_names, F), _check_names("sample_names", sample_names, N), levels
    )
    return Data(X, membership, names, seen, held_out, labels)


def with_several(data: Data) -> Labels:
    """Its `labels`, in which `several` is stated even if no sample has several."""
    N, C = data.num_samples, data.num_groups
    labels = Labels(np.zeros(N, bool), np.zeros((0, C))) if data.labels is None else data.labels
    return labels._replace(several=np.zeros(N, bool) if labels.several is None else labels.several)


def take(data: Data, samples: Array) -> Data:
    """Some of the samples, as often as they are named, all of whose labels are known, or none.

    Args:
        data: as made by `as_data`.
        samples: their indices.
    """
    X, mask = (None if x is None else x[:, samples] for x in (data.X, data.mask))
    names = Names(*(list(x) for x in (data.names.feature, data.names.sample[samples], data.names.group)))
    taken = Data(X, data.membership[samples], names, mask)
    if data.several is None or not np.asarray(data.several)[samples].any():
        return taken
    return taken._replace(labels=with_several(taken)._replace(several=np.asarray(data.several)[samples]))


def _check_matrix(X: Array, mask: Array | None) -> tuple[Array, np.ndarray | None, HeldOut | None]:
    if hasattr(X, "tocoo"):
        raise ValueError(f"expected X to be a dense array; got {type(X).__name__}")
    hidden = np.ma.getmask(X)  # False unless X is a masked array
    X = X if isinstance(X, jax.Array) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"expected X with 2 dimensions, features × samples; got {X.ndim} (shape {X.shape})")
    if 0 in X.shape:
        raise ValueError(f"expected X with at least one feature and one sample; got shape {X.shape}")
    if X.dtype.kind == "O":
        try:
            X = np.where(pd.isna(X), np.nan, X).astype(float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected X to hold real numbers; got objects ({error})") from None
    if X.dtype.kind not in "biuf" and X.dtype != jax.numpy.bfloat16:
        raise ValueError(f"expected X to hold real numbers; got dtype {X.dtype}")
    X, seen, held_out = split(X, hidden, mask)
    finite = np.isfinite(X)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~np.asarray(finite))[0])
        raise ValueError(
            f"expected X to be finite; got {X[where]} at feature {where[0]}, sample {where[1]} "
            f"({int((~finite).sum())} such entries)"
        )
    if X.dtype.kind not in "bu" and X.min() < 0:
        raise ValueError(f"expected X to be nonnegative; got a minimum of {X.min()}")
    return X, seen, held_out


def _check_names(what: str, names: Sequence[Any] | None, length: int | None) -> list[Any]:
    """Names as a list: 0, 1, ... when there are none, of any length when that is None."""
    if names is None:
        return list(range(length or 0))
    if isinstance(names, (str, bytes)) or np.ndim(names) != 1:
        raise ValueError(f"expected {what} to be a sequence of names; got {names!r}")
    if length is not None and len(names) != length:
        raise ValueError(f"expected {what} to hold {length} names; got {len(names)}")
    return list(names)
