"""Missing entries of X: NaN, masks, and entries hidden on purpose."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from .checks import require_fraction, whole
from .compressed import Compressed, Places, compress, is_sparse, places, require_consistent
from .indexed import Indexed
from .metadata import HeldOut
from .types import Array

if TYPE_CHECKING:
    from .data import Data

MOST = 1_000_000  # entries of a sparse X that are hidden at most


def fingerprint(data: Data) -> int:
    """Return a checksum of the observed entries of X, which identifies X, but not labels and names."""
    return data.matrix.fingerprint()


def label_fingerprint(data: Data) -> int:
    """Return a checksum of the labels of samples and of their prior; 0 for data without groups."""
    if data.membership is None:
        return 0
    labels = data.labels
    parts = [data.membership.index if isinstance(data.membership, Indexed) else data.membership]
    if labels is not None and labels.num_unlabelled > 0:
        parts += [labels.unlabelled, labels.weights] + ([] if labels.dirichlet is None else [labels.dirichlet])
    if data.several is not None and np.any(data.several):
        parts.append(data.several)
    arrays = [np.ascontiguousarray(part, np.float32) for part in parts]
    return zlib.crc32(b"".join(str(array.shape).encode() + array.tobytes() for array in arrays))


def marks_of(data: Data) -> dict[str, Any]:
    """Return the checksums that identify the data of a fit, by field of `Fit`."""
    return {"data": fingerprint(data), "labels": label_fingerprint(data)}


def hide(data: Data, share: float = 0.1, *, seed: int = 0) -> Data:
    """Hide a random fraction of the observed entries and hold their values out.

    At least one observed entry of every feature and of every sample stays. Entries held out before stay held out. Zeros
    of a sparse X are hidden like other entries; at most a million entries are hidden, whatever the fraction, because
    the places of hidden entries are stored.

    Args:
        data: as made by `as_data`.
        share: the fraction of observed entries to hide, between 0 and 1; at least one is hidden.
        seed: of the random choice.

    >>> from gsnmf.model import as_data
    >>> data = hide(as_data([[1, 2, 3], [4, 5, 6]]), share=0.3)
    >>> data.num_observed, len(data.held_out)
    (4, 2)
    >>> bool((data.X[~data.mask] == 0).all())  # no algorithm sees hidden values
    True
    """
    if not hasattr(data, "held_out"):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    require_fraction("share", share)
    rng = np.random.default_rng(whole("seed", seed, 0, most=2**64))
    if is_sparse(data):
        feature, sample = (_drawn if data.X.size > MOST else _chosen)(data, share, rng)
        hidden = _hidden(data.mask, feature, sample, data.X.shape)
        held_out = _joined(data.held_out, HeldOut(feature, sample, data.X.at(feature, sample)))
        return data._replace(X=blank_places(data.X, hidden), mask=hidden, held_out=held_out)
    feature, sample = _chosen(data, share, rng)
    seen = _seen(data)
    seen[feature, sample] = False
    held_out = _joined(data.held_out, HeldOut(feature, sample, np.asarray(data.X)[feature, sample]))
    return data._replace(X=blank(data.X, seen), mask=seen, held_out=held_out)


def _seen(data: Data) -> np.ndarray:
    """Return a mask of X, true where it was observed."""
    if is_sparse(data):
        seen = np.ones(data.X.shape, bool)
        if data.mask is not None:
            seen[np.asarray(data.mask.feature), np.asarray(data.mask.sample)] = False
        return seen
    return np.ones(data.X.shape, bool) if data.mask is None else np.array(data.mask, bool)


def _chosen(data: Data, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return places to hide, from a permutation of all observed ones."""
    feature, sample = rng.permutation(np.argwhere(_seen(data))).T
    spare = np.ones(len(feature), bool)
    for index in (feature, sample):  # the first entry of each in this order stays
        spare[np.unique(index, return_index=True)[1]] = False
    number = max(1, round(share * len(feature)))
    if number > spare.sum():
        raise ValueError(
            f"expected share to leave an entry of every feature and sample, "
            f"{spare.sum()} of {len(feature)} at most; got {share}"
        )
    return feature[spare][:number], sample[spare][:number]


def _drawn(data: Data, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return places to hide in a large sparse X, drawn until enough of them differ: nothing has the size of X."""
    F, N = data.X.shape
    number = min(max(1, round(share * data.num_observed)), MOST)
    before = np.zeros(0, np.int64)
    if data.mask is not None:
        before = np.asarray(data.mask.feature, np.int64) * N + np.asarray(data.mask.sample)
    drawn = before
    while len(drawn) < len(before) + number:
        both = np.concatenate([drawn, rng.integers(F * N, size=number)])
        drawn = both[np.sort(np.unique(both, return_index=True)[1])]  # in the order in which they were drawn
    feature, sample = np.divmod(drawn[len(before) : len(before) + number], N)
    for index, axis in ((feature, 1), (sample, 0)):
        left = data.matrix.observed_counts(axis) - np.bincount(index, minlength=data.X.shape[1 - axis])
        if (left < 1).any():
            raise ValueError(f"expected share to leave an entry of every feature and sample; got {share}")
    return feature, sample


def _hidden(before: Places | None, feature: Array, sample: Array, shape: tuple[int, int]) -> Places:
    """Return hidden places with some more."""
    if before is not None:
        feature, sample = np.append(before.feature, feature), np.append(before.sample, sample)
    return places(scipy.sparse.coo_array((np.ones(len(feature)), (feature, sample)), shape))


def _joined(before: HeldOut | None, new: HeldOut) -> HeldOut:
    if before is None:
        return new
    fields = ("feature", "sample", "value")
    return HeldOut(*(np.concatenate([getattr(before, name), getattr(new, name)]) for name in fields))


def split(X: Array, hidden: Array, mask: Any) -> tuple[Array, np.ndarray | None, HeldOut | None]:
    """Return X with 0 at hidden entries, the mask of observed ones (None for all), and the values that it hides.

    Args:
        X: features × samples; NaN are hidden.
        hidden: the mask of NumPy's masked arrays, true where X is hidden; it broadcasts.
        mask: None, or true (or 1) where X was observed.
    """
    known = ~(np.isnan(np.asarray(X)) | hidden)
    seen = known if mask is None else known & check_mask(mask, X.shape)
    if seen.all():
        return X, None, None
    if not seen.any():
        raise ValueError(f"expected at least one observed entry of X; got {X.size} hidden entries")
    values = np.asarray(X)
    with np.errstate(invalid="ignore"):
        scored = known & ~seen & (values >= 0) & (values < np.inf)  # a code for "missing" is not an observation
    feature, sample = np.nonzero(scored)
    held_out = HeldOut(feature, sample, values[scored]) if scored.any() else None
    return blank(X, seen), seen, held_out


def blank(X: Array, seen: Array) -> Array:
    """Return X with 0 at hidden entries, where x log x, log Γ(x + 1) and x/(TV) are then 0."""
    where = jnp.where if isinstance(X, jax.Array) else np.where
    return where(seen, X, X.dtype.type(0))


def split_sparse(X: Any, mask: Any, hidden: Any) -> tuple[Compressed, Places | None, HeldOut | None]:
    """Return a sparse X without its hidden entries, the hidden places (None for none), and the values that they hide.

    Args:
        X: a sparse matrix of SciPy, features × samples; stored NaN are hidden.
        mask: None, or a dense array, true (or 1) where X was observed.
        hidden: None, or a sparse matrix that is not 0 where X is hidden.
    """
    kept = compress(X)
    unknown = np.isnan(kept.values) if kept.dtype.kind == "f" else np.zeros(kept.nnz, bool)
    if mask is None and hidden is None and not unknown.any():
        return kept, None, None
    missing = kept.with_values(unknown).to_scipy()
    marked = scipy.sparse.csr_array(kept.shape, dtype=bool)
    if mask is not None:
        if scipy.sparse.issparse(mask):
            raise ValueError("expected a dense mask, or hidden=, a sparse matrix of hidden places; got a sparse mask")
        marked = marked + scipy.sparse.csr_array(~check_mask(mask, kept.shape))
    if hidden is not None:
        marked = marked + check_hidden(hidden, kept.shape).astype(bool)
    hides = places(missing + marked)
    if len(hides) == 0:
        return kept, None, None
    if len(hides) == kept.size:
        raise ValueError(f"expected at least one observed entry of X; got {kept.size} hidden entries")
    values = kept.at(hides.feature, hides.sample)
    with np.errstate(invalid="ignore"):
        scored = (values >= 0) & (values < np.inf)  # a code for "missing" is not an observation
    held_out = HeldOut(hides.feature[scored], hides.sample[scored], values[scored]) if scored.any() else None
    return blank_places(kept, hides), hides, held_out


def blank_places(X: Compressed, hidden: Places) -> Compressed:
    """Return a sparse X without its entries at hidden places."""
    entries = X.to_scipy().tocoo()
    N = X.shape[1]
    feature, sample = entries.coords
    there = np.isin(feature.astype(np.int64) * N + sample, np.asarray(hidden.feature, np.int64) * N + hidden.sample)
    rows = X.to_scipy().copy()
    rows.data[there] = 0
    return compress(rows, X.by_sample)


def check_hidden(hidden: Any, shape: tuple[int, ...]) -> Any:
    """Return a sparse matrix of hidden places in compressed rows; raise if it is none, or of another shape."""
    if not scipy.sparse.issparse(hidden) or hidden.shape != shape:
        got = f"{type(hidden).__name__} of shape {np.shape(hidden)}"
        raise ValueError(f"expected hidden to be a sparse matrix of SciPy of shape {shape}; got {got}")
    require_consistent(hidden, "hidden")
    return scipy.sparse.csr_array(hidden)


def with_nan(data: Data) -> Any:
    """Return X in the user's form, dense or SciPy's, with NaN for hidden entries."""
    return data.matrix.with_nan()


def check_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a dense mask as booleans; raise if it has another shape or values other than 0 and 1."""
    array = np.asarray(mask)
    said = f"expected mask of shape {shape}, True where X was observed"
    if isinstance(mask, np.ma.MaskedArray) or array.shape != shape:
        raise ValueError(f"{said}; got {type(mask).__name__} of shape {array.shape}")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{said}; got values other than 0 and 1 (dtype {array.dtype})")
    return array.astype(bool)
