"""AnnData in, AnnData out: cells are samples, genes are features (docs/cells.md).

`factorize` writes, under a key that is "gsnmf" by default,

    obsm["X_gsnmf"]                             E[V], cells × components
    varm["gsnmf"]                               E[T], genes × components; NaN for genes outside mask_var
    varm["gsnmf_shape"], varm["gsnmf_scale"]    q(T) = Gamma(shape, scale)
    uns["gsnmf"]                                parameters, groups, what each component serves, bound, q(λ), priors
    obs["gsnmf_group"]                          with groups: labels as given, or the most probable

all of which survive subsetting and h5ad files. Nothing here imports anndata: a caller with an AnnData has it installed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .annotations import GAMMA_PARTS, find_result, known_genes, rebuild, write_result
from .classification.restarts import draw_seeds
from .features import top_features_table
from .inference import Fit, LinearResponse, Posterior, cavi, fold_in
from .inference.defaults import INIT, LAM_START, MAX_STEPS, TOL
from .intervals import PROB
from .model import Data, Gamma, Priors, as_data, crossed, default_priors, seeded_priors
from .model.crossing import Crossed
from .model.defaults import PER_GROUP, RANK, said_of_choices
from .model.metadata import Names
from .model.seeds import STRENGTH
from .model.silence import quiet
from .reading.annotated import CHUNK, read_genes, read_obs, read_var, require_writable
from .reading.counts import warn_unless_counts

__all__ = ["data_of", "factorize", "project", "top_features"]

EXACT = 1e-6  # scale of Gammas that stand for exact values


def factorize(
    adata: Any,
    groups: str | None = "cell_type",
    *,
    layer: str | None = None,
    mask_var: Any = None,
    key_added: str = "gsnmf",
    unlabelled: Any = None,
    batch: str | None = None,
    per_batch: int = 1,
    rank: int | None = None,
    seeds: Mapping[Any, Iterable[str]] | None = None,
    seed_strength: float = STRENGTH,
    init: str = INIT,
    lam_start: str = LAM_START,
    max_steps: int = MAX_STEPS,
    tol: float | None = TOL,
    random_state: int = 0,
    **priors: Any,
) -> Fit:
    """Fit the group-sparse model to counts in an AnnData, and write the result into it; return the fit.

    Args:
        adata: cells × genes, in memory or backed; backed counts are read in chunks.
        groups: a column of obs with labels; NaN are unlabelled cells, whose labels are learned. None for no groups.
        layer: the layer that has the counts; None or "X" for X.
        mask_var: a column of var of booleans, such as "highly_variable", or booleans: the genes to use; None for all.
        key_added: the key of results; see the top of this file.
        unlabelled: a label that stands for unlabelled cells, such as "Unknown".
        batch: a column of obs with a second grouping, such as plates: some components then serve a batch in all groups,
            so that what belongs to the batch is not mistaken for the group (`gsnmf.model.crossed`).
        per_batch: components of each batch.
        rank: components in all; by default three for each group, and 10 without groups.
        seeds: gene sets, genes by the name of the set, each of which is expected to be large in one component: of the
            group or batch that the set is named after, else of those that serve all (`common`; without groups, any).
            Genes that do not occur, or are outside mask_var, are listed in a warning (`gsnmf.model.seeded`).
        seed_strength: the ratio of the prior means of seeds and of other genes.
        init: as in `cavi.run`.
        lam_start: as in `cavi.run`.
        max_steps: sweeps at most.
        tol: relative change of the bound at which the fit stops.
        random_state: seed, as in `GroupSparseNMF`.
        priors: per_group, common, prior, small, large, scale, a_t and b_t, as in `default_priors`.
    """
    require_writable(adata, key_added)
    _check_batch(batch, groups, rank)
    genes = read_var(adata, mask_var)
    data, two = _read(adata, genes, groups, layer, unlabelled, batch)
    if isinstance(seeds, Mapping):  # iterators are read twice below
        seeds = {name: list(those) if isinstance(those, Iterator) else those for name, those in seeds.items()}
    known = rank if rank is not None or data.num_groups else RANK
    believed = _make_priors(data, two, rank, per_batch, priors)
    asked = dict(priors) | ({} if two is None else {"batch": batch, "per_batch": per_batch})
    if seeds is not None:
        unions = None if two is None else two.unions
        believed = seeded_priors(believed, data, seeds, rank=known, unions=unions, strength=seed_strength)
        as_text = json.dumps({str(name): list(those) for name, those in seeds.items()})  # names of sets may have a "/"
        asked |= {"seeds": as_text, "seed_strength": seed_strength}
    _, [seed] = draw_seeds(random_state, 1)
    run: dict[str, Any] = {"init": init, "lam_start": lam_start, "max_steps": max_steps, "tol": tol}
    labels = cavi.labelling_for(data, init)
    fit = cavi.run(data, believed, key=jax.random.key(seed), rank=known, labels=labels, **run)
    asked |= run | {"groups": groups, "layer": layer, "unlabelled": unlabelled, "random_state": random_state}
    asked |= {"mask_var": mask_var if isinstance(mask_var, str) else None, "rank": fit.posterior.T.mean.shape[1]}
    write_result(adata, key_added, fit, data, genes, asked, two)
    return fit


def _check_batch(batch: str | None, groups: str | None, rank: int | None) -> None:
    if batch is not None and (groups is None or rank is not None):
        raise ValueError(f"expected groups and no rank with batch={batch!r}; got groups={groups!r}, rank={rank}")
    if batch is not None and batch == groups:
        raise ValueError(f"expected batch to be another column than groups; got {batch!r} for both")


def _make_priors(
    data: Data, two: Crossed | None, rank: int | None, per_batch: int, options: Mapping[str, Any]
) -> Priors:
    """Return the default priors; with batches, some components serve one group and some serve one batch."""
    others = dict(options)
    if two is not None:
        serving = two.serving(others.pop("per_group", PER_GROUP), per_batch, others.pop("common", 0))
        others["structure"] = serving
    with quiet():
        made = default_priors(data, rank=rank, **others)
    counted = None if others.get("structure") is not None else rank
    chosen = {name: others[name] for name in ("common", "prior", "small", "large") if name in others}
    for said in said_of_choices(data.num_groups, "rank, or per_group", rank=counted, **chosen):
        warnings.warn(said, stacklevel=3)
    return made


def data_of(adata: Any, key: str = "gsnmf") -> Data:
    """Return the data that were fitted: for `gsnmf.report(fit, data)`, `linear_response(fit, data)` and others.

    Args:
        adata: with the result of `factorize`, its cells and the counts, layer and columns that it was made from.
        key: the key of the result.
    """
    stored = find_result(adata, key)
    asked, known = stored["params"], known_genes(adata, key)
    return _read(adata, known, *(asked.get(name) for name in ("groups", "layer", "unlabelled", "batch")))[0]


def project(
    adata_new: Any,
    adata: Any,
    *,
    key: str = "gsnmf",
    key_added: str | None = None,
    layer: str | None = None,
    max_steps: int = 500,
    tol: float = 1e-6,
) -> None:
    """Write the coefficients of new cells under the dictionary of `adata` into `adata_new`.

    Genes are matched by name; genes of the dictionary that the new cells do not have count as not observed. Writes
    obsm["X_gsnmf"], E[v], and with groups obs["gsnmf_group"], the group with the highest bound.

    Args:
        adata_new: cells × genes.
        adata: with the result of `factorize`; subsets of its cells and genes will do.
        key: the key of that result.
        key_added: the key of the coefficients; the same by default.
        layer: the layer of the new counts, or "X" for X; None for the layer that was fitted, or X.
        max_steps: as in `fold_in`.
        tol: as in `fold_in`.
    """
    key_added = key if key_added is None else key_added
    require_writable(adata_new, key_added)
    if not adata_new.n_obs:
        raise ValueError("expected one cell or more in adata_new; got none")
    stored = find_result(adata, key)
    layer = stored["params"].get("layer") if layer is None else layer
    known = known_genes(adata, key)
    _require_distinct(adata_new.var_names, "adata_new", "before the projection")
    _require_distinct(adata.var_names[known], "the dictionary of adata", "before factorize")
    places = adata_new.var_names.get_indexer(adata.var_names[known])
    kept, places = known[places >= 0], places[places >= 0]
    if not len(kept):
        wanted, got = adata.var_names[known[:3]].tolist(), adata_new.var_names[:3].tolist()
        raise ValueError(f"expected genes of the dictionary, such as {', '.join(wanted)}; got {', '.join(got)}, …")
    posterior, priors = rebuild(adata, stored, key, kept)
    X = read_genes(adata_new, layer, places)
    warn_unless_counts(X, adata_new)
    groups = stored.get("groups")
    V, best = [], []
    for start in range(0, X.shape[1], CHUNK):
        folded = fold_in(posterior, X[:, start : start + CHUNK], priors, max_steps=max_steps, tol=tol)
        V.append(np.asarray(folded.mean()).T)
        best.append(np.asarray(folded.bound).argmax(axis=1))
    adata_new.obsm[f"X_{key_added}"] = np.concatenate(V)
    if groups is not None:
        pairs = np.concatenate(best)
        if "class_of" in stored:  # groups are pairs of a class and a batch
            groups, pairs = stored["classes"], np.asarray(stored["class_of"])[pairs]
        names = [*groups]  # a list, as zarr returns its own string type
        adata_new.obs[f"{key_added}_group"] = pd.Categorical([names[n] for n in pairs], categories=names)


def _require_distinct(names: Any, where: str, when: str) -> None:
    if not names.is_unique:
        twice = ", ".join(map(str, names[names.duplicated()].unique()[:3]))
        raise ValueError(
            f"expected distinct names of genes in {where}; got {twice} twice (var_names_make_unique() {when})"
        )


def top_features(
    adata: Any,
    n: int = 10,
    *,
    by: str = "probability",
    key: str = "gsnmf",
    prob: float = PROB,
    response: LinearResponse | None = None,
) -> pd.DataFrame:
    """Return the largest genes of every component, with intervals of their proportions t/Σt of the component.

    Sums are over the genes of the dictionary that `adata` has: after subsetting genes, proportions are larger than in
    the whole.

    Args:
        adata: with the result of `factorize`.
        n: genes of each component.
        by: "probability", "lift" or "frex", as in `gsnmf.top_features_table`; lift is relative to these cells.
        key: the key of the result.
        prob: probability of the intervals.
        response: from `linear_response(fit, data)`, for widths that take into account how factors depend on each
            other; None for those of the mean field, from the stored q(T), which are too narrow.

    Returns the table of `gsnmf.top_features_table`, with columns groups, those that the component serves, and in_use.
    """
    stored = find_result(adata, key)
    mean = np.asarray(adata.varm[key], float)
    known = known_genes(adata, key)
    if not len(known):
        raise ValueError(f"expected genes of the dictionary in varm[{key!r}]; got {len(mean)} genes outside it")
    if response is not None and np.shape(response.posterior.T.mean) != (len(known), mean.shape[1]):
        F, K = np.shape(response.posterior.T.mean)
        wanted = f"{len(known)} genes and {mean.shape[1]} components"
        raise ValueError(f"expected a response of these {wanted}; got one of {F} genes and {K} components")
    T = Gamma(*(np.asarray(adata.varm[f"{key}_{part}"], float)[known] for part in GAMMA_PARTS))
    V = np.asarray(adata.obsm[f"X_{key}"], float).T
    narrow = Gamma(V / EXACT, np.full_like(V, EXACT))  # coefficients are stored without their widths
    names = Names(adata.var_names[known], [], [])
    table = top_features_table(response or Posterior(T, narrow, None), names, n, by=by, prob=prob)
    i = table["component"].to_numpy()
    served_by = np.array([str(name) for name in stored["components"]], object)  # zarr returns its own string type
    table.insert(1, "groups", served_by[i])
    table.insert(2, "in_use", np.asarray(stored["in_use"], bool)[i])
    return table


def _read(
    adata: Any,
    genes: NDArray[np.intp],
    groups: str | None,
    layer: str | None,
    unlabelled: Any,
    batch: str | None,
) -> tuple[Data, Crossed | None]:
    """Return counts with names and labels, and the crossing with batches if there are any."""
    X = read_genes(adata, layer, genes)
    warn_unless_counts(X, adata)
    labels = read_obs(adata, groups, unlabelled)
    named: dict[str, Any] = {
        "feature_names": adata.var_names[genes].tolist(),
        "sample_names": adata.obs_names.tolist(),
    }
    if batch is None:
        return as_data(X, labels, **named), None
    two = crossed(list(labels), list(read_obs(adata, batch, what="batch")))
    if len(two.batches) == 1:
        warnings.warn(f"obs[{batch!r}] has one value only: components of this batch serve all cells", stacklevel=3)
    return as_data(X, two.labels, **named, group_names=two.group_names, label_prior=two.label_prior), two
