"""Results of `gsnmf.anndata.factorize` in an AnnData: how they are written, found and rebuilt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .inference import Fit, Posterior, in_use
from .model import Data, Gamma, GroupSparse, Priors
from .model.crossing import Crossed
from .model.indexed import Indexed
from .model.structures import served
from .reading.annotated import require_annotated

GAMMA_PARTS = ("shape", "scale")  # of a Gamma


def known_genes(adata: Any, key: str) -> NDArray[np.intp]:
    """Return the genes of the dictionary."""
    return np.flatnonzero(np.isfinite(np.asarray(adata.varm[key], float)).all(axis=1))


def _served_names(serving: NDArray[np.bool_], names: NDArray[Any], two: Crossed | None) -> NDArray[Any]:
    """Return the groups that each component serves, in words; of pairs, the class or the batch that it serves."""
    known: dict[tuple[bool, ...], str] = {}
    if two is not None:
        known |= {tuple(row): str(name) for name, row in two.unions.items()}
    known[tuple(np.ones(len(names), bool))] = "all"
    found = [known.get(tuple(row)) or "; ".join(map(str, names[row])) for row in serving]
    return np.array(found, object)


def write_result(
    adata: Any,
    key: str,
    fit: Fit,
    data: Data,
    genes: NDArray[np.intp],
    asked: dict[str, Any],
    two: Crossed | None,
) -> None:
    """Write a fit into an AnnData, in types that h5ad files hold."""
    q: Any = fit.posterior
    K = np.shape(q.T.mean)[1]
    adata.obsm[f"X_{key}"] = np.asarray(q.V.mean).T
    for name, values in ((key, q.T.mean), (f"{key}_shape", q.T.a), (f"{key}_scale", q.T.b)):
        full = np.full((adata.n_vars, K), np.nan)
        full[genes] = np.broadcast_to(np.asarray(values), (len(genes), K))
        adata.varm[name] = full
    priors: Any = fit.priors
    rate = priors.coefficients.rate if data.num_groups else priors.coefficients
    stored: dict[str, Any] = {
        "params": {name: value for name, value in asked.items() if value is not None},
        "bound": float(fit.elbo[-1]),
        "num_steps": int(fit.num_steps),
        "converged": bool(fit.converged),
        "in_use": np.asarray(in_use(q, data)),
        "components": np.full(K, "all", object),
        "prior": {
            f"coefficients_{part}": np.asarray(value, float) for part, value in zip(GAMMA_PARTS, rate, strict=True)
        },
    }
    if data.num_groups:
        names = data.names.group
        serving = served(rate, np.asarray(data.group_sizes), K)
        stored["groups"] = _writable(names)
        stored["components"] = _served_names(serving, names, two)
        if two is not None:
            stored |= {"classes": _writable(np.asarray(two.classes)), "class_of": two.class_of}
        stored["lam"] = {"shape": np.asarray(q.lam.a), "scale": np.asarray(q.lam.b)}
    adata.uns[key] = stored
    if data.num_groups:
        names = data.names.group if two is None else np.asarray(two.classes)
        adata.obs[f"{key}_group"] = pd.Categorical(names[_most_probable(q, data, two)], categories=names.tolist())
    elif f"{key}_group" in adata.obs:  # of an earlier fit
        del adata.obs[f"{key}_group"]


def _most_probable(q: Any, data: Any, two: Any) -> NDArray[Any]:
    """Return the index of the group, or of the class of two groupings, of every sample."""
    if q.z is None and isinstance(data.membership, Indexed):
        index = np.asarray(data.membership.index)
        return index if two is None else np.asarray(two.class_of)[index]
    z = np.asarray(data.membership if q.z is None else q.z)
    found: NDArray[Any] = (z if two is None else two.by_class(z)).argmax(axis=1)
    return found


def _writable(names: NDArray[Any]) -> NDArray[Any]:
    """Return names as h5ad files hold them."""
    return names.astype(object) if names.dtype.kind == "U" else names


def find_result(adata: Any, key: str) -> dict[str, Any]:
    """Return uns[key]; raise if there is no result by this key."""
    require_annotated(adata)
    if key not in adata.uns or key not in adata.varm:
        raise ValueError(f"expected the result of gsnmf.anndata.factorize in uns and varm; got none by the key {key!r}")
    return dict(adata.uns[key])


def rebuild(adata: Any, stored: dict[str, Any], key: str, genes: NDArray[np.intp]) -> tuple[Posterior, Priors]:
    """Return q(T) of some genes, q(λ), and the priors."""
    T = Gamma(*(np.asarray(adata.varm[f"{key}_{part}"])[genes] for part in GAMMA_PARTS))
    K = T.a.shape[1]
    lam = Gamma(stored["lam"]["shape"], stored["lam"]["scale"]) if "lam" in stored else None
    prior = {name: np.asarray(value)[()] for name, value in stored["prior"].items()}
    rate = Gamma(prior["coefficients_shape"], prior["coefficients_scale"])
    coefficients: Any = rate if lam is None else GroupSparse(rate)
    empty = Gamma(np.ones((K, 0)), np.ones((K, 0)))
    return Posterior(T, empty, lam), Priors(Gamma(1.0, 1.0), coefficients)  # with q(T) given, its prior does not count
