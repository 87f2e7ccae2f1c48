"""Matrices in files that are opened, not loaded: samples are read when a stream asks for them.

`open_matrix` returns an object with a `shape`, features × samples, that reads columns by `X[:, rows]`, as `cavi.stream`
takes it:

    .npy            a memory map, features × samples
    .h5ad, .h5      HDF5 by h5py: AnnData's layout or one dataset, both samples × features
    .zarr           the same by zarr, if it is installed
    .npz, .mtx, …   what `files.read_matrix` reads; these are loaded, sparse ones as sparse matrices
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .files import PathLike, read_matrix
from .inference.stream.batches import read_levels
from .model import Gamma, GroupSparse, Priors, as_data, default_priors

SAMPLE = 2048  # samples of which the default priors are made
BLOCK = 64  # consecutive samples read at once from a file
LAZY = (".npy", ".h5ad", ".h5", ".hdf5", ".zarr")


class Rows:
    """Samples that are rows of a file, dense or in compressed rows, as columns.

    shape: numbers of features and of samples.
    dtype: the type of the entries.
    block: consecutive samples that should be read together.

    Args:
        stored: a dataset samples × features; or a group with data, indices and indptr, as AnnData writes them.
    """

    block = BLOCK

    def __init__(self, stored: Any) -> None:
        self.stored = stored
        self.indptr: NDArray[np.int64] | None = None
        if hasattr(stored, "keys"):
            self.indptr = np.asarray(stored["indptr"][:], np.int64)
            N, F = (int(n) for n in stored.attrs["shape"])
            self.dtype = stored["data"].dtype
        else:
            N, F = stored.shape
            self.dtype = stored.dtype
        self.shape = int(F), int(N)

    def __getitem__(self, key: tuple[Any, NDArray[np.int64]]) -> Any:
        """Return columns, `X[:, rows]` for increasing rows: an array, or a sparse matrix."""
        every, rows = key
        if not (isinstance(every, slice) and every == slice(None)):
            raise IndexError(f"expected X[:, rows]; got X[{every!r}, …]")
        rows = np.asarray(rows)
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
        if self.indptr is None:
            parts = [self.stored[int(run[0]) : int(run[-1]) + 1] for run in runs]
            return np.concatenate(parts).T if parts else np.zeros((self.shape[0], 0), self.dtype)
        spans = [slice(int(self.indptr[run[0]]), int(self.indptr[run[-1] + 1])) for run in runs]
        values, indices = (
            np.concatenate([self.stored[name][span] for span in spans]) if spans else np.zeros(0, kind)
            for name, kind in (("data", self.dtype), ("indices", np.int32))
        )
        lengths = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return scipy.sparse.csc_array((values, indices, indptr), shape=(self.shape[0], len(rows)))


def open_matrix(path: PathLike, key: str | None = None) -> Any:
    """Open a matrix, features × samples, without loading it if its format allows that; see the top of this file.

    Args:
        path: the file, or the folder of a .zarr.
        key: the place of the matrix in HDF5 or zarr, such as "layers/counts"; "X" by default, or the only dataset.

    Returns an object with `shape` and columns by `X[:, rows]`. In AnnData's files samples are rows; they are turned.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise ValueError(f"expected a file that exists; got {path}")
    if key is not None and suffix not in LAZY[1:]:
        raise ValueError(f"expected a place in a file only for HDF5 and zarr; got {key!r} for {path.name}")
    if suffix == ".npy":
        X = np.load(path, mmap_mode="r", allow_pickle=False)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"expected a matrix of real numbers in {path}; got {X.dtype} of shape {X.shape}")
        return X
    if suffix in LAZY[1:]:
        return Rows(_stored(open_group(path), key, path))
    return read_matrix(path).X


def open_group(path: Path) -> Any:
    """Open an HDF5 file or a zarr folder for reading."""
    if path.suffix.lower() != ".zarr":
        import h5py

        try:
            return h5py.File(path, "r")
        except OSError as error:
            raise ValueError(f"expected an HDF5 file in {path}; got {error}") from None
    try:
        import zarr  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        raise ValueError(f"expected the package zarr, to open {path} (pip install zarr); got none") from None
    return zarr.open(str(path), mode="r")


def _stored(group: Any, key: str | None, path: Path) -> Any:
    """Return the matrix in a file: a dataset with two axes, or a group in compressed rows."""
    if key is None and hasattr(group, "keys"):
        names = list(group.keys())
        key = "X" if "X" in names else names[0] if len(names) == 1 else None
        if key is None:
            raise ValueError(f"expected one matrix in {path}, or the one called X; got {', '.join(names) or 'none'}")
    try:
        found = group if key is None else group[key]
    except KeyError:
        raise ValueError(f"expected {key!r} in {path}; got {', '.join(group.keys())}") from None
    if hasattr(found, "keys"):
        kind = str(found.attrs.get("encoding-type", "csr_matrix" if "indptr" in found else "group"))
        if kind != "csr_matrix":
            raise ValueError(f"expected a dense matrix or compressed rows (csr_matrix) in {path}; got {kind}")
        return found
    if len(found.shape) != 2 or found.dtype.kind not in "biuf":
        raise ValueError(f"expected a matrix of real numbers in {path}; got {found.dtype} of shape {found.shape}")
    return found


def read_column(path: PathLike, column: str) -> NDArray[Any]:
    """Read a column of AnnData's `obs`, one label per sample; None where it is missing.

    Args:
        path: .h5ad or .zarr.
        column: its name.
    """
    group = open_group(Path(path))
    if "obs" not in group or column not in group["obs"]:
        found = ", ".join(group["obs"].keys()) if "obs" in group else "no obs"
        raise ValueError(f"expected a column {column!r} in the obs of {path}; got {found}")
    stored = group["obs"][column]
    if not hasattr(stored, "keys"):
        values = np.asarray(stored[:])
        return _text(values)
    codes = np.asarray(stored["codes"][:])
    labels = np.array([*_text(np.asarray(stored["categories"][:])).tolist(), None], object)  # the last for code −1
    read = labels[codes]
    return read if (codes < 0).any() else np.asarray(read.tolist())


def _text(values: NDArray[Any]) -> NDArray[Any]:
    """Return bytes, as HDF5 stores text, as text."""
    if values.dtype.kind not in "SO":
        return values
    return np.asarray([x.decode() if isinstance(x, bytes) else x for x in values.tolist()])


def read_names(path: PathLike, num_features: int) -> list[Any]:
    """Read the names of features: the index of AnnData's `var`, or those of `files.read_matrix`; else 0, 1, ....

    Args:
        path: the file.
        num_features: their number.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    names: Any = None
    if suffix not in LAZY:
        names = read_matrix(path).feature_names
    elif suffix != ".npy":
        group = open_group(path)
        var: Any = group["var"] if hasattr(group, "keys") and "var" in group else None
        if hasattr(var, "keys"):
            index = _text(np.asarray(var[str(var.attrs.get("_index", "_index"))][:]))
            names = index.tolist() if len(index) == num_features else None
    return list(range(num_features)) if names is None else list(names)


def sampled_priors(
    X: Any,
    groups: Any = None,
    *,
    num_samples: int | None = None,
    group_names: Sequence[Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Priors:
    """Build the default priors for a matrix that is not read as a whole, from a random part of its samples.

    Shapes of λ that are fractions of a sample's counts (`relative_rates`) are for all samples of a group.

    Args:
        X: features × samples, as `cavi.stream` takes it.
        groups: one label per sample, or None.
        num_samples: samples of the collection that X is the beginning of; by default those of X.
        group_names: all groups in their order; by default those that occur.
        seed: of the random part.
        options: as in `default_priors`.

    >>> X, groups = np.full((2, 5000), 3), np.arange(5000) % 2
    >>> sampled_priors(X, groups, per_group=1).coefficients.rate.a.tolist()
    [[15.0, 150.0], [150.0, 15.0]]
    """
    N = int(X.shape[1])
    rows = np.arange(N)
    if N > SAMPLE:
        block = getattr(X, "block", 1)
        some = np.random.default_rng(seed).choice(-(-N // block), -(-SAMPLE // block), replace=False)
        rows = (np.sort(some)[:, None] * block + np.arange(block)[None, :]).ravel()
        rows = rows[rows < N]
    if groups is None:
        return default_priors(as_data(X[:, rows]), **options)
    labels, levels, sizes = read_levels(groups, group_names)
    data = as_data(X[:, rows], labels[rows], group_names=levels)
    priors = default_priors(data, **options)
    if options.get("prior", "relative") != "relative":
        return priors
    # A group that is not in the part counts as one of one sample there: see `relative_rates`.
    drawn = np.maximum(np.asarray(data.group_sizes, float), 1)
    wanted = drawn * N / len(rows) if sizes is None else np.maximum(sizes, 1)
    times = wanted / drawn * (1 if num_samples is None else num_samples / N)
    rate: Gamma = priors.coefficients.rate
    return priors._replace(coefficients=GroupSparse(Gamma(rate.a * times[None, :], rate.b)))
