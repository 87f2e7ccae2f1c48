"""Missing entries of X: NaN, masks, and entries hidden on purpose."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .checks import require_fraction, whole
from .metadata import HeldOut
from .types import Array

if TYPE_CHECKING:
    from .data import Data


def fingerprint(data: Data) -> int:
    """Return a checksum of the observed entries of X, which identifies X, but not labels and names."""
    return data.matrix.fingerprint()


def label_fingerprint(data: Data) -> int:
    """Return a checksum of the labels of samples and of their prior; 0 for data without groups."""
    if data.membership is None:
        return 0
    labels = data.labels
    parts = [data.membership]
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

    At least one observed entry of every feature and of every sample stays. Entries held out before stay held out.

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
    seen = np.ones(data.X.shape, bool) if data.mask is None else np.array(data.mask, bool)
    feature, sample = np.random.default_rng(whole("seed", seed, 0)).permutation(np.argwhere(seen)).T
    spare = np.ones(len(feature), bool)
    for index in (feature, sample):  # the first entry of each in this order stays
        spare[np.unique(index, return_index=True)[1]] = False
    number = max(1, round(share * len(feature)))
    if number > spare.sum():
        raise ValueError(
            f"expected share to leave an entry of every feature and sample, "
            f"{spare.sum()} of {len(feature)} at most; got {share}"
        )
    feature, sample = (index[spare][:number] for index in (feature, sample))
    seen[feature, sample] = False
    held_out = HeldOut(feature, sample, np.asarray(data.X)[feature, sample])
    before = data.held_out
    if before is not None:
        fields = ("feature", "sample", "value")
        held_out = HeldOut(*(np.concatenate([getattr(before, name), getattr(held_out, name)]) for name in fields))
    return data._replace(X=blank(data.X, seen), mask=seen, held_out=held_out)


def split(X: Array, hidden: Array, mask: Any) -> tuple[Array, np.ndarray | None, HeldOut | None]:
    """Return X with 0 at hidden entries, the mask of observed ones (None for all), and the values that it hides.

    Args:
        X: features × samples; NaN are hidden.
        hidden: the mask of NumPy's masked arrays, true where X is hidden; it broadcasts.
        mask: None, or true (or 1) where X was observed.
    """
    known = ~(np.isnan(np.asarray(X)) | hidden)
    seen = known if mask is None else known & _check_mask(mask, X.shape)
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


def with_nan(data: Data) -> np.ndarray:
    """Return X in the user's form, with NaN for hidden entries."""
    return data.matrix.with_nan()


def _check_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(mask)
    said = f"expected mask of shape {shape}, True where X was observed"
    if isinstance(mask, np.ma.MaskedArray) or array.shape != shape:
        raise ValueError(f"{said}; got {type(mask).__name__} of shape {array.shape}")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{said}; got values other than 0 and 1 (dtype {array.dtype})")
    return array.astype(bool)
