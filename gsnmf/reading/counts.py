"""Counts, and values that are not: what to do where counts were expected."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .annotated import layers_of

LARGEST = 20.0  # log(1 + x) of half a billion counts
LOOK = 100_000  # entries that are looked at


def counts_advice(X: Any, layers: Sequence[str] = (), raw: bool = False) -> str | None:
    """Return a sentence about X if it does not hold counts, with where to find them; None if it does.

    Args:
        X: any orientation, dense or sparse.
        layers: names of other matrices of the same data.
        raw: whether the data have another matrix in `raw`.

    >>> counts_advice(np.array([[0.0, 3.0]])) is None
    True
    """
    values = np.asarray(X.data if scipy.sparse.issparse(X) else X).ravel()
    values = values[:: max(1, len(values) // LOOK)]
    values = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if values.dtype.kind in "biu" or not len(values):
        return None
    lowest, largest, whole = values.min(), values.max(), bool((values == np.round(values)).all())
    if lowest >= 0 and whole:
        return None
    got = "negative values, as after scaling" if lowest < 0 else "values that are not whole numbers"
    if lowest >= 0 and largest < LARGEST:
        got += f", the largest {largest:.3g}, as after log1p"
    places = [f"layers[{name!r}]" for name in sorted(layers, key=lambda name: (name != "counts", name))[:3]]
    places += ["adata.raw"] if raw else []
    others = f"look in {', '.join(places)}" if places else "there are no layers and no raw to look in"
    undo = ", or undo log1p by gsnmf.reading.counts.undo_log1p" if lowest >= 0 and largest < LARGEST else ""
    return f"expected counts; got {got}: {others}{undo}"


def warn_unless_counts(X: Any, adata: Any) -> None:
    """Warn if X does not hold counts, raise if it has negative values; say where else an AnnData may have counts.

    Args:
        X: any orientation, dense or sparse.
        adata: the AnnData that it comes from.
    """
    said = counts_advice(X, layers_of(adata), getattr(adata, "raw", None) is not None)
    if said is not None and "negative" in said:
        raise ValueError(said)
    if said is not None:
        warnings.warn(said, stacklevel=3)


def undo_log1p(X: Any) -> Any:
    """Return counts of which X is log(1 + s·count), with an s for every sample that is found from its smallest value.

    A sample without any count of 1 comes out divided by the greatest common divisor of its counts, at least.

    Args:
        X: samples × features, dense or sparse, as AnnData has it.

    >>> undo_log1p(np.log1p(np.array([[1, 0, 3], [2, 1, 0]]) * [[0.5], [20.0]])).tolist()
    [[1.0, 0.0, 3.0], [2.0, 1.0, 0.0]]
    """
    rows = scipy.sparse.csr_array(X, dtype=float, copy=True)
    rows.eliminate_zeros()
    values = np.expm1(rows.data)
    lengths = np.diff(rows.indptr)
    smallest: NDArray[np.float64] = np.ones(len(lengths))
    full = lengths > 0
    smallest[full] = np.minimum.reduceat(values, rows.indptr[:-1][full])
    counts = values / np.repeat(smallest, lengths)
    off = np.abs(counts - np.round(counts)) / np.maximum(counts, 1)
    if off.size and not off.max() <= 1e-2:
        raise ValueError(
            f"expected log(1 + s·count) with one s for each sample; got values {off.max():.2g} from multiples of the "
            "smallest, relatively: they are not counts, or not of these features alone"
        )
    result = scipy.sparse.csr_array((np.round(counts), rows.indices, rows.indptr), shape=rows.shape)
    return result if scipy.sparse.issparse(X) else result.toarray()
