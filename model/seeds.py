"""Knowledge about features: sets of features, such as gene sets or seed words, as a prior on T."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import whole
from .conjugacy import prior_mean
from .data import Data
from .defaults import A_T, B_T
from .priors import Gamma, Priors, canonical, is_grouped
from .problem import Problem
from .structures import check_structure, common, served

STRENGTH = 1000.0  # chosen by benchmarks/seeds.py: docs/priors.md has the table


def seeded(
    sets: Mapping[Any, Iterable[Any]],
    feature_names: Sequence[Any],
    *,
    rank: int | None = None,
    structure: ArrayLike | None = None,
    group_names: Sequence[Any] = (),
    unions: Mapping[Any, ArrayLike] | None = None,
    per_set: int = 1,
    strength: float = STRENGTH,
    a: ArrayLike = A_T,
    b: ArrayLike = B_T,
) -> Gamma:
    """Return a prior on T in which the features of a set are large in a component: t_νi ~ Gamma(aᵗ, bᵗ w_νi).

    w_νi is `strength` times as large for the features that component i's set names as for others, and 1 on average over
    features: a seed is expected to be `strength` times as large as another feature, and a component as large as before.
    Components without a set have w = 1. The shape aᵗ, which decides how sparse T is, does not change.

    A set whose name is a group's takes components that serve this group alone, in their order; another set takes
    components that serve all groups. Without a structure, sets take components in the order of the sets. What remains
    is free.

    Args:
        sets: the names of features by the name of the set.
        feature_names: one per row of X, as in `data.names.feature`. Of a name that occurs twice, both are seeds.
        rank: K, without a structure.
        structure: components × groups, as in `structured`: which component may serve which group.
        group_names: the names of its columns, as in `data.names.group`.
        unions: names of several groups together, each with a boolean for each group: a set of such a name takes
            components that serve these groups and no other. For classes crossed with batches, `Crossed.unions`.
        per_set: components of each set.
        strength: the ratio of prior means; 1 for no knowledge.
        a: aᵗ, a number or a matrix that broadcasts to features × components.
        b: bᵗ, in the same way.

    Returns a Gamma of shape features × components, for `Priors(dictionary=...)`. Names that do not occur are listed in
    a warning; a set of which no name occurs is an error.

    >>> seeded({"T cell": ["CD3D"]}, ["CD3D", "MS4A1", "LYZ", "ACTB"], rank=2, strength=5.0, b=2.0).b.tolist()
    [[5.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    if isinstance(strength, bool) or not isinstance(strength, (int, float, np.number)) or not 0 < strength < np.inf:
        raise ValueError(f"expected strength to be a positive number; got {strength!r}")
    if (rank is None) == (structure is None):
        raise ValueError(f"expected either rank or structure; got rank={rank!r}, structure={structure!r}")
    rows = _rows(sets, feature_names)
    if structure is None:
        serves, names = common(whole("rank", rank, 1), 1), []
    elif isinstance(structure, Gamma):
        raise ValueError(
            "expected structure to be components × groups of 0 and 1, as common_and_individual returns; got a prior on "
            "λ: seeded_priors(priors, data, sets) finds the structure of priors"
        )
    else:
        serves, names = check_structure(structure), list(group_names)
        if len(names) not in (0, serves.shape[1]):
            raise ValueError(f"expected a name for each of the {serves.shape[1]} groups; got {len(names)} group_names")
    columns = {name: np.arange(len(names)) == n for n, name in enumerate(names)}
    columns |= {name: _union(name, row, serves.shape[1]) for name, row in (unions or {}).items()}
    weights = np.ones((len(feature_names), len(serves)))
    for name, components in _claims(list(rows), serves, columns, whole("per_set", per_set, 1)).items():
        of_set = np.where(np.isin(np.arange(len(weights)), rows[name]), float(strength), 1.0)
        weights[:, components] = (of_set / of_set.mean())[:, None]
    shape = np.broadcast_to(np.asarray(a, float), weights.shape)
    return Gamma(np.array(shape), np.asarray(b, float) * weights)


def _union(name: Any, groups: ArrayLike, number: int) -> NDArray[np.bool_]:
    """Return which groups a union has, checked."""
    row = np.asarray(groups)
    if row.dtype != bool or row.shape != (number,):
        expected = f"expected unions to have a boolean for each of the {number} groups"
        raise ValueError(f"{expected}; got {row.dtype} of shape {row.shape} for {name!r}")
    return row


def seeded_priors(
    priors: Priors,
    data: Data,
    sets: Mapping[Any, Iterable[Any]],
    *,
    rank: int | None = None,
    unions: Mapping[Any, ArrayLike] | None = None,
    per_set: int = 1,
    strength: float = STRENGTH,
) -> Priors:
    """Return the priors with `seeded` in their dictionary: names, groups and structure are those of data and priors.

    Args:
        priors: with a Gamma on T, as made by `default_priors` for example.
        data: as made by `as_data`.
        sets: as in `seeded`.
        rank: K, where the priors' shapes leave it open.
        unions: as in `seeded`.
        per_set: as in `seeded`.
        strength: as in `seeded`.

    >>> from gsnmf.model import as_data, default_priors
    >>> data = as_data([[9, 0], [1, 8]], ["B", "T"], feature_names=["CD19", "CD3D"])
    >>> seeded_priors(default_priors(data, per_group=1), data, {"T": ["CD3D"]}, strength=3.0).dictionary.b.tolist()
    [[20.0, 10.0], [20.0, 30.0]]
    """
    K, given = Problem(data, priors, rank).rank, canonical(priors)
    if not isinstance(given.dictionary, Gamma):
        raise ValueError(f"expected a Gamma dictionary for seeds; got {given.dictionary.name}")
    rate = given.coefficients.hyperprior
    bound = is_grouped(priors) and isinstance(rate, Gamma)
    structure = served(rate, data.group_sizes, K) if bound else common(K, max(1, data.num_groups))
    names = data.names.group.tolist() if bound else []
    a, b = given.dictionary
    dictionary = seeded(
        sets,
        data.names.feature.tolist(),
        structure=structure,
        group_names=names,
        unions=unions if bound else None,
        per_set=per_set,
        strength=strength,
        a=a,
        b=b,
    )
    return priors._replace(dictionary=dictionary)


def known_seeds(sets: Any, feature_names: Sequence[Any]) -> dict[Any, list[Any]]:
    """Return the sets without the names that do not occur, which are listed in a warning.

    Args:
        sets: as in `seeded`; a set of which no name occurs is an error.
        feature_names: as in `seeded`.

    >>> known_seeds({"T cell": ["CD3D"]}, ["CD3D", "MS4A1"])
    {'T cell': ['CD3D']}
    """
    return {
        name: list(dict.fromkeys(feature_names[row] for row in found))
        for name, found in _rows(sets, feature_names).items()
    }


def relative_mean(prior: Any, num_features: int) -> NDArray[np.float64]:
    """Return the prior mean of T divided by its mean over features; 1 if all features are alike.

    Args:
        prior: of T.
        num_features: F.
    """
    mean = np.atleast_2d(prior_mean(prior))
    if len(mean) == 1 or (mean == mean[:1]).all():
        return np.ones((num_features, 1))
    return np.asarray(mean / mean.mean(axis=0))


def _rows(sets: Any, feature_names: Sequence[Any]) -> dict[Any, list[int]]:
    """Return the rows that each set names; warn of names that do not occur."""
    if not isinstance(sets, Mapping) or not sets:
        raise ValueError(f'expected sets of features by name, as in {{"T cell": ["CD3D"]}}; got {sets!r}')
    places: dict[Hashable, list[int]] = {}
    for row, feature in enumerate(feature_names):
        places.setdefault(feature, []).append(row)
    rows, absent = {}, []
    for name, members in sets.items():
        if isinstance(members, (str, bytes)) or not isinstance(members, Iterable):
            raise ValueError(f"expected the set {name!r} to be a sequence of names of features; got {members!r}")
        members = list(dict.fromkeys(members))
        rows[name] = [row for feature in members for row in places.get(feature, ())]
        if not rows[name]:
            known = ", ".join(map(repr, list(places)[:3]))
            raise ValueError(f"expected the set {name!r} to name features of X, such as {known}; got {members[:5]}")
        absent += [f"{feature} ({name})" for feature in members if feature not in places]
    if absent:
        more = f" and {len(absent) - 20} more" if len(absent) > 20 else ""
        warnings.warn(
            f"{len(absent)} names in sets are not features of X: {', '.join(absent[:20])}{more}.", stacklevel=3
        )
    return rows


def _claims(
    names: list[Any], serves: NDArray[np.bool_], columns: Mapping[Any, NDArray[np.bool_]], per_set: int
) -> dict[Any, NDArray[np.intp]]:
    """Return the components of each set: those that serve what it is named after, or those that serve all groups."""
    everywhere = serves.all(axis=1)
    claims, free = {}, np.flatnonzero(everywhere)
    for name in names:
        if name in columns and not everywhere.all():
            of_set = np.flatnonzero((serves == columns[name]).all(axis=1))
            where = f"that serve the group {name!r} alone"
        else:
            of_set, free = free, free[per_set:]
            where = "that serve all groups, for each set that no group is named after" if columns else "in all"
        if len(of_set) < per_set:
            raise ValueError(
                f"expected {per_set} free components {where}; got {len(of_set)} for the set {name!r} of {len(names)}"
            )
        claims[name] = of_set[:per_set]
    return claims
