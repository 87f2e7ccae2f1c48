"""Observations: X, the group of every sample, and the names of the axes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse

from .compressed import Compressed, Places, is_sparse, require_consistent
from .forks import require_own_threads
from .groups import Groups, as_groups
from .labels import Dirichlet, Labels, read_labels
from .matrix import DenseMatrix, Matrix
from .metadata import HeldOut, Names, require_order
from .missing import check_hidden, check_mask, split, split_sparse
from .sparse import SparseMatrix
from .types import Array


class Data(NamedTuple):
    """Validated observations; build it with `as_data`.

    X: features × samples, nonnegative and finite; 0 where it is hidden. A sparse X is a `Compressed`.
    membership: samples × groups, the paper's Δ; None when no groups were given. 1 at the label, 1/n at each of n
        labels, and the prior probabilities of an unlabelled sample. A large one is `Indexed` if every sample has one
        known label: it multiplies as the matrix does, and `np.asarray` forms it.
    names: the names of features, samples and groups.
    mask: features × samples, 1 where x was observed and 0 where it is hidden; None when everything was observed. For a
        sparse X, the hidden `Places`.
    held_out: known values of hidden entries, used for scores only; None without any.
    labels: the unlabelled and the multi-label samples; None when every sample has one known label.
    """

    X: Array
    membership: Array
    names: Names
    mask: Array | None = None
    held_out: HeldOut | None = None
    labels: Labels | None = None

    @property
    def num_features(self) -> int:
        """F, the number of features."""
        return int(self.X.shape[0])

    @property
    def num_samples(self) -> int:
        """N, the number of samples."""
        return int(self.X.shape[1])

    @property
    def num_groups(self) -> int:
        """C, the number of groups; 0 when no groups were given."""
        return 0 if self.membership is None else int(self.membership.shape[1])

    @property
    def num_observed(self) -> int:
        """The number of observed entries of X."""
        return self.matrix.num_observed

    @property
    def observed_mean(self) -> float:
        """The mean of the observed entries."""
        return self.matrix.mean()

    @property
    def matrix(self) -> Matrix:
        """The entries of X: sums, checks and selections."""
        if hasattr(self.X, "fingerprint"):  # it answers for itself, as data of `shard` do
            return self.X  # type: ignore[no-any-return]  # X may be anything that is a matrix
        return SparseMatrix(self.X, self.mask) if is_sparse(self) else DenseMatrix(self.X, self.mask)

    @property
    def group_sizes(self) -> Array:
        """N_c = Σ_τ Δ_τc; an unlabelled sample counts with its prior probabilities."""
        if self.membership is None:
            raise ValueError("expected data with groups, as_data(X, groups); got data without groups")
        return self.membership.sum(axis=0)

    @property
    def several(self) -> Array | None:
        """1 for multi-label samples, 0 for others; None without multi-label samples."""
        return None if self.labels is None else self.labels.several

    @property
    def groups(self) -> Groups:
        """The membership of samples as closed forms read it."""
        return as_groups(self.membership, self.several)

    @property
    def num_unlabelled(self) -> int:
        """M, the number of unlabelled samples."""
        return 0 if self.labels is None else self.labels.num_unlabelled

    @property
    def known(self) -> np.ndarray:
        """True for samples with one known label or several, false for unlabelled ones."""
        if self.labels is None:
            return np.ones(self.num_samples, bool)
        return ~np.asarray(self.labels.unlabelled, bool)


def as_data(
    X: Array,
    groups: Sequence[Any] | Array | None = None,
    *,
    label_prior: Array | Dirichlet | None = None,
    mask: Array | None = None,
    hidden: Any = None,
    feature_names: Sequence[Any] | None = None,
    sample_names: Sequence[Any] | None = None,
    group_names: Sequence[Any] | None = None,
) -> Data:
    """Validate X and its groups, and gather them.

    Args:
        X: features × samples, real, finite, nonnegative; counts or not. Columns are samples. Arrays stay where and
            in the precision they are; every algorithm reads them in the precision that JAX is set to. NaN are
            missing entries, and so are entries that a NumPy masked array hides. Or a sparse matrix of SciPy, in any
            format, whose entries that are not stored are observed zeros; it is never made dense. Or an AnnData, whose
            X is turned, with its names; or the path of a file, read as by `gsnmf.load_data`.
        groups: one label per column of X, any sortable kind (numbers, strings); groups are ordered as sorted
            labels. A sample whose label is None, NaN or masked is unlabelled, and its label is learned. A multi-label
            sample has a set or list of labels, whose rates λ it averages. Or a matrix of 0 and 1, samples × groups,
            dense or sparse, whose columns are named by group_names, or 0, 1, ...; a sample without a 1 is unlabelled.
            Lists of 0 and 1 of one length are rows of this matrix. All are in the order of samples: a pandas Series or
            DataFrame whose index has their names in another order is refused, as are a mask and a label_prior with such
            an index. With an AnnData or a path, also the name of a column of obs. None for a model without groups.
        label_prior: the prior of the labels of unlabelled samples: weights, one per group or samples × groups (the
            paper's U; rows of labelled samples are ignored); or a `Dirichlet`. By default all groups are equally
            likely.
        mask: of X's shape, true (or 1) where X was **observed**, the opposite of NumPy's masked arrays. No algorithm
            sees hidden entries; values there that are known (finite, not negative) are kept in `held_out` to score
            predictions. A feature or a sample may be hidden as a whole: its posterior is then its prior.
        hidden: of X's shape, a sparse matrix of SciPy that is not 0 where X is hidden: the opposite of `mask`, for
            matrices that are too large for a dense mask.
        feature_names: one per row; by default the index of a DataFrame, or 0, 1, ....
        sample_names: one per column; by default the columns of a DataFrame, or 0, 1, ....
        group_names: all groups, in the desired order, if some have no sample in X.

    >>> data = as_data([[1, 0, 2], [0, 3, 1]], ["b", "a", "b"])
    >>> data.names.group.tolist(), data.group_sizes.tolist()
    (['a', 'b'], [1.0, 2.0])
    >>> as_data([[1, 0, 2], [0, 3, 1]], ["b", None, {"a", "b"}]).membership.tolist()
    [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    >>> as_data([[1, 0, float("nan")], [0, 3, 1]]).mask.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1]]
    >>> as_data(scipy.sparse.coo_array([[1, 0, 2], [0, 3, 1]])).X
    Compressed(2 features × 3 samples, 4 nonzero entries)
    """
    require_own_threads()
    if isinstance(X, (str, os.PathLike)) or (hasattr(X, "obs_names") and hasattr(X, "var_names")):
        # Files and AnnData are read by the package's readers: the only place where this folder needs them.
        X, groups, features, samples = import_module("gsnmf.reading").read_source(X, groups)
    elif hasattr(X, "columns") and hasattr(X, "index"):
        features, samples = X.index, X.columns
    else:
        features = samples = None
    feature_names = features if feature_names is None else feature_names
    sample_names = samples if sample_names is None else sample_names
    check: Any = _check_sparse if scipy.sparse.issparse(X) else _check_matrix
    X, seen, held_out = check(X, mask, hidden)
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
    require_order("groups", groups, "samples", samples, names.sample)
    require_order("groups", groups, "group_names", names.group, axis=1, groups=True, renamed=True)
    what, weights = (
        ("label_prior.u", label_prior.u) if isinstance(label_prior, Dirichlet) else ("label_prior", label_prior)
    )
    of_samples = getattr(weights, "ndim", 1) == 2
    if of_samples:
        require_order(what, weights, "samples", samples, names.sample)
    require_order(what, weights, "groups", names.group, axis=int(of_samples), groups=True)
    require_order("mask", mask, "features", features, names.feature)
    require_order("mask", mask, "samples", samples, names.sample, axis=1)
    return Data(X, membership, names, seen, held_out, labels)


def with_several(data: Data) -> Labels:
    """Return `data.labels` with `several` stated even if there are no multi-label samples."""
    N, C = data.num_samples, data.num_groups
    labels = Labels(np.zeros(N, bool), np.zeros((0, C))) if data.labels is None else data.labels
    return labels._replace(several=np.zeros(N, bool) if labels.several is None else labels.several)


def take(data: Data, samples: Array) -> Data:
    """Return these samples, as often as their indices occur; unlabelled ones keep membership, but not their flag.

    Args:
        data: as made by `as_data`.
        samples: indices of the samples.
    """
    X, mask = data.matrix.take(samples)
    names = Names(*(list(x) for x in (data.names.feature, data.names.sample[samples], data.names.group)))
    taken = Data(X, data.membership[samples], names, mask)
    if data.several is None or not np.asarray(data.several)[samples].any():
        return taken
    return taken._replace(labels=with_several(taken)._replace(several=np.asarray(data.several)[samples]))


def _check_sparse(X: Any, mask: Any, hidden: Any) -> tuple[Compressed, Places | None, HeldOut | None]:
    _check_shape(X)
    if X.dtype.kind not in "biuf":
        raise ValueError(f"expected X to hold real numbers; got dtype {X.dtype}")
    require_consistent(X)
    kept, places, held_out = split_sparse(X, mask, hidden)
    values = kept.values
    if not np.isfinite(values).all():
        raise ValueError(
            f"expected X to be finite; got {values[~np.isfinite(values)][0]} "
            f"({int((~np.isfinite(values)).sum())} entries are not finite)"
        )
    if values.min(initial=0) < 0:
        raise ValueError(f"expected X to be nonnegative; got a minimum of {values.min()}")
    return kept, places, held_out


def _check_shape(X: Any) -> None:
    if X.ndim != 2:
        raise ValueError(f"expected X with 2 dimensions, features × samples; got {X.ndim} (shape {X.shape})")
    if 0 in X.shape:
        raise ValueError(f"expected X with at least one feature and one sample; got shape {X.shape}")


def _check_matrix(X: Array, mask: Any, places: Any) -> tuple[Array, np.ndarray | None, HeldOut | None]:
    if hasattr(X, "tocoo"):
        raise ValueError(f"expected X to be a dense array or a sparse matrix of SciPy; got {type(X).__name__}")
    hidden = np.ma.getmask(X)  # False unless X is a masked array
    try:
        X = X if isinstance(X, jax.Array) else np.asarray(X)
    except ValueError:  # lists of different lengths
        raise ValueError("expected X with 2 dimensions, features × samples; got rows of different lengths") from None
    _check_shape(X)
    if places is not None:
        seen = check_hidden(places, X.shape).toarray() == 0
        mask = seen if mask is None else seen & check_mask(mask, X.shape)
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
            f"({int((~finite).sum())} entries are not finite)"
        )
    if X.dtype.kind not in "bu" and X.min() < 0:
        raise ValueError(f"expected X to be nonnegative; got a minimum of {X.min()}")
    return X, seen, held_out


def _check_names(what: str, names: Sequence[Any] | None, length: int | None) -> list[Any]:
    """Return names as a list: 0, 1, ... by default, of any length if `length` is None."""
    if names is None:
        return list(range(length or 0))
    if isinstance(names, (str, bytes)) or np.ndim(names) != 1:
        raise ValueError(f"expected {what} to be a sequence of names; got {names!r}")
    if length is not None and len(names) != length:
        raise ValueError(f"expected {what} to hold {length} names; got {len(names)}")
    return list(names)
