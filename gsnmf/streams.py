"""Matrices in files that are opened, not loaded: samples are read when a stream asks for them.

`open_matrix` returns an object with a `shape`, features × samples, that reads columns by `X[:, rows]`, as `cavi.stream`
takes it:

    .npy            a memory map, features × samples
    .h5ad, .h5      HDF5 by h5py: AnnData's layout, 10x's, or one dataset, all samples × features
    .zarr           the same by zarr, if it is installed
    .npz, .mtx, …   what `read_matrix` reads; these are loaded, sparse ones as sparse matrices
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from .inference.stream.batches import read_levels
from .model import Gamma, GroupSparse, Priors, as_data, default_priors
from .model.defaults import said_of_shrinkage
from .model.silence import quiet, warn
from .reading import NamedMatrix, PathLike, read_matrix
from .reading.arrays import open_npy
from .reading.frames import read_column
from .reading.hdf5 import SUFFIXES, FileRows, open_hdf5

__all__ = ["LAZY", "FileRows", "open_matrix", "open_named", "read_column", "sampled_priors"]

LAZY = (".npy", *SUFFIXES)  # formats that are opened, not loaded
SAMPLE = 2048  # samples of which the default priors are made


def open_matrix(path: PathLike, key: str | None = None) -> Any:
    """Open a matrix, features × samples, without loading it if its format allows that; see the top of this file.

    Args:
        path: the file, or the folder of a .zarr.
        key: the place of the matrix in HDF5 or zarr, such as "layers/counts"; "X" by default, or the only dataset.

    Returns an object with `shape` and columns by `X[:, rows]`. In AnnData's files samples are rows; they are turned.
    """
    return open_named(path, key).X


def open_named(path: PathLike, key: str | None = None) -> NamedMatrix:
    """Open a matrix as `open_matrix` does, with the names that its file has.

    Args:
        path: as in `open_matrix`.
        key: as in `open_matrix`.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise ValueError(f"expected a file that exists; got {path}")
    if key is not None and suffix not in SUFFIXES:
        raise ValueError(f"expected a place in a file only for HDF5 and zarr; got {key!r} for {path.name}")
    if suffix == ".npy":
        X = open_npy(path)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"expected a matrix of real numbers in {path}; got {X.dtype} of shape {X.shape}")
        return NamedMatrix(X, None, None)
    if suffix in SUFFIXES:
        return open_hdf5(path, key)
    found = read_matrix(path)
    if scipy.sparse.issparse(found.X):  # MatrixMarket's form has no columns to take
        return found._replace(X=found.X.tocsc())
    return found


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
    with quiet():
        priors = default_priors(data, **options)
    shrinkage = {name: options[name] for name in ("prior", "small", "large") if name in options}
    if found := said_of_shrinkage(**shrinkage):
        warn(found, UserWarning, stacklevel=2)
    if options.get("prior", "relative") != "relative":
        return priors
    # A group that is not in the part counts as one of one sample there: see `relative_rates`.
    drawn = np.maximum(np.asarray(data.group_sizes, float), 1)
    wanted = drawn * N / len(rows) if sizes is None else np.maximum(sizes, 1)
    times = wanted / drawn * (1 if num_samples is None else num_samples / N)
    rate: Gamma = priors.coefficients.rate
    return priors._replace(coefficients=GroupSparse(Gamma(rate.a * times[None, :], rate.b)))
