"""Parts of an AnnData in memory or backed: counts, genes, labels. anndata is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

CHUNK = 4096  # cells that are read at once from a file
SLOTS = ("obs", "var", "obsm", "varm", "uns", "X", "layers")
MOST_SHOWN = 10  # labels listed in an error


def require_annotated(adata: Any) -> None:
    """Raise unless this is an AnnData, or looks like one."""
    if not all(hasattr(adata, slot) for slot in SLOTS):
        hint = "anndata.read_h5ad reads one (pip install 'gsnmf[anndata]')"
        raise ValueError(f"expected an AnnData; got {type(adata).__name__}: {hint}")


def require_writable(adata: Any, key: str) -> None:
    """Raise unless results can be written into an AnnData under this key, and survive in an h5ad file."""
    require_annotated(adata)
    if getattr(adata, "isbacked", False) and getattr(adata, "is_view", False):
        raise ValueError(
            "expected an AnnData into which results can be written; got a view of a backed one: its method "
            ".to_memory() makes a copy"
        )
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"expected key_added to be a name without '/', which h5ad files do not keep; got {key!r}")


def read_var(adata: Any, mask_var: Any) -> NDArray[np.intp]:
    """Return the places of the genes to use.

    Args:
        adata: cells × genes.
        mask_var: a column of var of booleans, booleans, or None for all genes.
    """
    if mask_var is None:
        return np.arange(adata.n_vars)
    if isinstance(mask_var, str):
        if mask_var not in adata.var:
            said = f"got {mask_var!r}, and var has {_listed(adata.var)}"
            raise ValueError(f"expected mask_var to be a column of var; {said}")
        mask_var = adata.var[mask_var]
    mask = np.asarray(mask_var)
    if mask.dtype == object and all(isinstance(x, (bool, np.bool)) for x in mask.ravel()):
        mask = mask.astype(bool)
    if mask.dtype != bool or mask.shape != (adata.n_vars,) or not mask.any():
        said = f"got {mask.dtype} of shape {mask.shape}" + (
            f", {mask.sum()} of them true" if mask.dtype == bool else ""
        )
        raise ValueError(f"expected mask_var to be {adata.n_vars} booleans, some of them true; {said}")
    return np.flatnonzero(mask)


def read_genes(adata: Any, layer: str | None, genes: NDArray[np.intp]) -> Any:
    """Return genes × cells, sparse or dense as they are; backed ones are read in chunks of cells.

    Args:
        adata: cells × genes.
        layer: a layer; None or "X" for X.
        genes: places of the genes, from `read_var`.
    """
    if layer == "X" and "X" not in adata.layers:
        layer = None
    if layer is not None and layer not in adata.layers:
        raise ValueError(
            f"expected layer to be 'X' or the name of a layer ({_listed(layers_of(adata))}); got {layer!r}"
        )
    stored = adata.X if layer is None else adata.layers[layer]
    if stored is None:
        raise ValueError(f"expected counts in X, or layer= to name one of {_listed(layers_of(adata))}; got X=None")
    if isinstance(stored, np.ndarray) or scipy.sparse.issparse(stored):
        return (stored if np.array_equal(genes, np.arange(stored.shape[1])) else stored[:, genes]).T
    parts = [stored[start : start + CHUNK][:, genes] for start in range(0, stored.shape[0], CHUNK)]
    return (scipy.sparse.vstack(parts, format="csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)).T


def read_obs(adata: Any, groups: str | None, unlabelled: Any = None, *, what: str = "groups") -> Any:
    """Return the labels in a column of obs, None for unlabelled cells; None for no groups.

    Args:
        adata: cells × genes.
        groups: the column, or None.
        unlabelled: a label that stands for unlabelled cells, or None.
        what: the argument that names the column, for errors.
    """
    if groups is None:
        if unlabelled is not None:
            raise ValueError(f"expected groups with unlabelled={unlabelled!r}; got groups=None")
        return None
    if not isinstance(groups, str) or groups not in adata.obs:
        raise ValueError(f"expected {what} to be a column of obs; got {groups!r}, and obs has {_listed(adata.obs)}")
    labels = adata.obs[groups].to_numpy(object, copy=True)
    labels[pd.isna(labels)] = None
    if unlabelled is not None:
        if unlabelled not in labels:
            known = ", ".join(sorted({repr(label) for label in labels if label is not None})[:MOST_SHOWN])
            raise ValueError(f"expected unlabelled to be a label in obs[{groups!r}] ({known}); got {unlabelled!r}")
        labels = np.where(labels == unlabelled, None, labels)
    return labels


def layers_of(adata: Any) -> list[str]:
    """Return the names of layers; from version 0.13 on, X is among anndata's own by the name of None."""
    return [str(name) for name in adata.layers if name is not None]


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"
