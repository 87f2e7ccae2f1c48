"""Labels of samples: one, several (multi-label) or none (unlabelled), and the prior of the latter."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse

from .checks import require_positive
from .indexed import Indexed, as_membership
from .types import Array

SEVERAL = (set, frozenset, list, tuple)
MISSING = frozenset(("", "na", "nan", "-nan", "n/a", "#n/a", "#na", "<na>", "null", "none"))  # in files of text
NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*"
MANY = 20  # labelled samples, from which a label for each of them is suspicious


class Dirichlet(NamedTuple):
    """A prior over the proportions of groups, π ~ Dirichlet(u), from which labels are drawn, z ~ Categorical(π).

    u: one positive number per group, for a π that all samples share, labelled ones included; or samples × groups, the
        paper's U, for a separate π_τ of every unlabelled sample. In the latter case π_τ could equally be integrated
        out, which leaves the weights u_τ / Σ_c u_τc: `as_data(..., label_prior=U)`.
    """

    u: Array


class Labels(NamedTuple):
    """Unlabelled and multi-label samples; None in `Data` if there are neither.

    unlabelled: 1 for unlabelled samples, 0 for others.
    weights: π, unlabelled samples in their order × groups; each row adds up to 1.
    dirichlet: u of a `Dirichlet`: by group if π is shared, else unlabelled samples × groups; None when π is known.
    several: 1 for multi-label samples, 0 for others; None without multi-label samples.
    """

    unlabelled: Array
    weights: Array
    dirichlet: Array | None = None
    several: Array | None = None

    @property
    def num_unlabelled(self) -> int:
        """M, the number of unlabelled samples."""
        return int(self.weights.shape[0])


def read_labels(
    groups: Any, shape: tuple[int, int], group_names: Sequence[Any] | None, label_prior: Any
) -> tuple[np.ndarray | Indexed, list[Any], Labels | None]:
    """Return membership (samples × groups), the names of its columns, and the `Labels` if there are any.

    Membership is 1 at a known label, 1/n at each of n known labels, and π for an unlabelled sample. A large one, if
    every sample has one known label, is `Indexed`.

    Args:
        groups: as in `as_data`.
        shape: of X, features × samples.
        group_names: as in `as_data`.
        label_prior: as in `as_data`.
    """
    N = shape[1]
    sets, levels = _sets(plain_labels(groups), shape, group_names)
    index = {level: c for c, level in enumerate(levels)}
    unlabelled = np.array([len(labels) == 0 for labels in sets])
    several = np.array([len(labels) > 1 for labels in sets])
    weights, u = _read_prior(label_prior, unlabelled, len(levels))
    if not (unlabelled.any() or several.any()):
        return as_membership([index[label] for [label] in sets], len(levels)), levels, None
    membership = np.zeros((N, len(levels)))
    for t, labels in enumerate(sets):
        for label in labels:
            membership[t, index[label]] = 1 / len(labels)
    membership[unlabelled] = weights
    return membership, levels, Labels(unlabelled, weights, u, several if several.any() else None)


def plain_labels(groups: Any) -> Any:
    """Return labels with None where a NumPy masked array hides them, and a sparse matrix of groups as a dense one.

    >>> plain_labels(np.ma.masked_equal([1, 2, -9], -9)).tolist()
    [1, 2, None]
    """
    if scipy.sparse.issparse(groups):
        return groups.toarray()
    if not np.ma.isMaskedArray(groups):
        return groups
    hidden = np.ma.getmaskarray(groups)
    if not hidden.any():
        return groups.data
    if groups.ndim > 1 and groups.shape[1] > 1:
        found = f"{hidden.sum()} masked entries"
        raise ValueError(f"expected a matrix of groups without masked entries (an unlabelled row is 0); got {found}")
    labels = np.array(groups.data, object)
    labels[hidden] = None
    return labels


def _sets(groups: Any, shape: tuple[int, int], group_names: Sequence[Any] | None) -> tuple[list[list[Any]], list[Any]]:
    """Return the labels of every sample, none if it is unlabelled, and all labels in order."""
    F, N = shape
    no_sequence = isinstance(groups, (str, bytes, set, frozenset, Mapping)) or not hasattr(groups, "__len__")
    if no_sequence or getattr(groups, "ndim", 1) == 0:
        raise ValueError(f"expected groups to be a sequence, one label per sample; got {type(groups).__name__}")
    if getattr(groups, "ndim", 1) == 2:
        return _columns(groups, N, group_names)
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"expected one label per sample, or a matrix samples × groups; got {groups.ndim} dimensions")
    if len(groups) == F != N:
        raise ValueError(f"expected one label for each of the {N} samples; got {F}, as many as rows: transpose X?")
    if len(groups) != N:
        raise ValueError(f"expected groups to hold one label for each of the {N} samples; got {len(groups)}")
    labels = list(np.asarray(groups)) if hasattr(groups, "dtype") else list(groups)
    if is_matrix(labels):
        return _columns(np.asarray(labels), N, group_names)
    sets = [list(label) if isinstance(label, SEVERAL) else [label] for label in labels]
    for t, some in enumerate(sets):
        if any(np.ndim(label) != 0 or isinstance(label, (set, frozenset, Mapping)) for label in some):
            raise ValueError(f"expected a label, or a set of labels, per sample; got {labels[t]!r} for sample {t}")
        sets[t] = some = list(dict.fromkeys(some))
        if len(some) > 1 and any(pd.isna(label) for label in some):
            raise ValueError(f"expected known labels in a set of several; got {labels[t]!r} for sample {t}")
    sets = [[label for label in some if not pd.isna(label)] for some in sets]
    distinct = {label for some in sets for label in some}
    check_kinds(distinct)
    try:
        levels = sorted(distinct)
    except TypeError as error:
        raise ValueError(f"expected labels of one sortable kind; got a mixture ({error})") from None
    if group_names is None:
        warn_of_single_samples(len(levels), sum(map(bool, sets)))
    if group_names is not None:
        levels = _distinct(group_names)
        named = set(levels)
        strangers = sorted({str(label) for some in sets for label in some if label not in named})
        if strangers:
            raise ValueError(f"expected every label among group_names {levels}; got {', '.join(strangers[:5])} as well")
    if not levels:
        raise ValueError(
            f"expected a known label, or group_names; got {len(sets)} unlabelled samples and group_names=None"
        )
    return sets, levels


def is_whole(text: str) -> bool:
    """Return whether text is a whole number, with or without a point: 1 and 1.0 are, 007 and 1e3 are names.

    >>> [is_whole(text) for text in ("1", "-1.0", "007", "1.5")]
    [True, True, False, False]
    """
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.0*)?", text, re.ASCII) is not None


def _exactly(text: str) -> Decimal | None:
    """Return the number that text states, without rounding; None if it states none."""
    return Decimal(text) if re.fullmatch(NUMBER, text, re.ASCII) else None


def check_kinds(labels: Iterable[Any]) -> None:
    """Raise if labels are text and numbers, or state a whole number in two ways; warn of words for missing ones.

    Args:
        labels: distinct known labels.

    >>> check_kinds({1, 2.0}), check_kinds({"a", "1"}), check_kinds({"1.1", "1.10"})
    (None, None, None)
    """
    labels = list(labels)
    texts = [label for label in labels if isinstance(label, str)]
    numbers = [label for label in labels if isinstance(label, (int, float, np.number))]
    if texts and numbers:
        raise ValueError(
            f"expected labels of one sortable kind; got a mixture of text and numbers, {min(texts)!r} and "
            f"{min(numbers)!r}"
        )
    written: dict[Decimal, str] = {}
    for text in sorted(texts):
        value = _exactly(text)
        if value is None or value != value.to_integral_value():  # "1.1" and "1.10" are names of clusters
            continue
        first = written.setdefault(value, text)
        if first != text:
            found = f"{first!r} and {text!r}"
            raise ValueError(f"expected a label to be written in one way; got {found} (make them numbers)")
    words = sorted(text for text in texts if text.strip().lower() in MISSING)
    if words:
        warnings.warn(
            f"the label {words[0]!r} is text and counts as a group; unlabelled samples have None or NaN", stacklevel=2
        )


def warn_of_single_samples(num_groups: int, num_labelled: int) -> None:
    """Warn if there are as many groups as labelled samples, from 20 samples on.

    Args:
        num_groups: distinct labels.
        num_labelled: samples with a label.
    """
    if num_groups >= num_labelled >= MANY:
        warnings.warn(
            f"{num_groups} groups for {num_labelled} labelled samples: labels should be shared by several samples "
            "(are these names of samples, or measurements?)",
            stacklevel=2,
        )


def is_matrix(labels: list[Any]) -> bool:
    """Return whether lists of 0 and 1 of equal length are rows of a matrix; sets are always sets of labels."""
    if not all(isinstance(label, (list, tuple, np.ndarray)) for label in labels) or len(set(map(len, labels))) != 1:
        return False
    entries = [x for row in labels for x in row]
    numbers = len(labels[0]) > 1 and all(isinstance(x, (bool, int, float, np.bool, np.number)) for x in entries)
    return numbers and all(x in (0, 1) for x in entries)


def _columns(groups: Any, N: int, group_names: Sequence[Any] | None) -> tuple[list[list[Any]], list[Any]]:
    """Return the same as `_sets` from a matrix samples × groups of 0 and 1."""
    said = f"expected a matrix of 0 and 1, {N} samples × groups (two or more)"
    matrix = np.asarray(groups)
    if len(matrix) != N or matrix.shape[1] < 2:
        raise ValueError(f"{said}; got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf" or not ((matrix == 0) | (matrix == 1)).all():
        found = np.array2string(matrix.ravel()[:6], separator=", ")
        raise ValueError(f"{said}; got values {found} (label_prior takes weights for unlabelled samples)")
    if group_names is None:
        group_names = list(groups.columns) if hasattr(groups, "columns") else list(range(matrix.shape[1]))
    levels = _distinct(group_names)
    if len(levels) != matrix.shape[1]:
        raise ValueError(f"expected a name for each of the {matrix.shape[1]} columns of groups; got {len(levels)}")
    return [[levels[c] for c in np.flatnonzero(row)] for row in matrix], levels


def _distinct(names: Any) -> list[Any]:
    if isinstance(names, (str, bytes)) or np.ndim(names) != 1:
        raise ValueError(f"expected group_names to be a sequence of names; got {names!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"expected distinct group_names; got {list(names)}")
    return list(names)


def _read_prior(prior: Any, unlabelled: np.ndarray, C: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return π of the unlabelled samples, and u if π has a Dirichlet prior."""
    N, M = len(unlabelled), int(unlabelled.sum())
    if prior is None:
        return np.full((M, C), 1 / C), None
    given = prior.u if isinstance(prior, Dirichlet) else prior
    what = "the u of a Dirichlet" if isinstance(prior, Dirichlet) else "label_prior"
    try:
        values = np.asarray(given, float)
    except (TypeError, ValueError):
        raise ValueError(f"expected {what} to hold numbers; got {given!r}") from None
    if values.shape not in ((C,), (N, C)):
        raise ValueError(f"expected {what} of shape {(C,)}, groups, or {(N, C)}, samples × groups; got {values.shape}")
    rows = values if values.ndim == 1 else values[unlabelled]
    if isinstance(prior, Dirichlet):
        require_positive(what, rows)
    elif not (np.isfinite(rows) & (rows >= 0)).all() or not rows.any(axis=-1).all():
        raise ValueError(f"expected {what} to hold weights ≥ 0, with one > 0 for every sample; got {given!r}")
    weights = np.broadcast_to(rows / rows.sum(axis=-1, keepdims=True), (M, C))
    return weights, rows if isinstance(prior, Dirichlet) else None
