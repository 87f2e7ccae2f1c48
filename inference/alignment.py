"""Alignment of components, whose order differs between runs unless the priors distinguish them.

Component i of one result and j of another are compared by the cosine of their parts of TV,

    cos(t_i v_i, t'_j v'_j) = cos(t_i, t'_j) cos(v_i, v'_j),

which no rescaling (t, v, λ) → (γt, v/γ, γλ) changes. The Hungarian method finds the permutation with the largest sum of
cosines, among the permutations that keep every component within its block: the components with the same prior.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from ..model.conjugacy import rate_shape, stated_of_V
from ..model.data import Data
from ..model.priors import Gamma, Given, Priors
from ..model.problem import Problem
from ..model.types import Array
from .draws import AXIS, held_draws
from .posterior import Fit, Posterior
from .results import factors_of, priors_of, rank_of


def align(result: Any, reference: Any, data: Data, priors: Priors | None = None, *, by: str = "chain") -> Any:
    """Return the same result with its components in the reference's order.

    Args:
        result: a `Fit`, a `Posterior`, a NumPyro `MCMC` that has run, what `to_arviz` returned, or draws by site,
            chains × draws × ... each, as `mcmc.get_samples(group_by_chain=True)` gives them. All except the first two
            come back as draws by site.
        reference: any of these; for draws the means of their first chain count. None for draws: their own first chain.
        data: the data that both were fitted to.
        priors: by default those of the result, else of the reference; only components with the same hyperparameters
            change places. Hyperparameters that a fit has learned by component do not count: they go along.
        by: for draws, one permutation for each "chain", by its means, or for each "draw", if components switch within
            chains; without a reference, the first chain is then aligned with its last draw before its means are taken.

    >>> from gsnmf.model import Gamma, as_data
    >>> data, priors = as_data([[9.0, 0.0], [0.0, 9.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> a = np.array([[5.0, 1.0], [1.0, 9.0]])
    >>> one = Posterior(Gamma(a, 1.0), Gamma(a, 1.0), None)
    >>> other = Posterior(Gamma(a[:, ::-1], 1.0), Gamma(a[::-1], 1.0), None)
    >>> align(other, one, data, priors).T.a.tolist()
    [[5.0, 1.0], [1.0, 9.0]]
    """
    if by not in ("chain", "draw"):
        raise ValueError(f"expected by to be 'chain' or 'draw'; got {by!r}")
    draws = held_draws(result)
    if draws is None and reference is None:
        raise ValueError("expected a reference to align to, a Fit, a Posterior or draws; got None")
    owner = next((one for one in (result, reference) if getattr(one, "priors", None) is not None), result)
    priors, learned = priors_of(owner, priors), getattr(owner, "learned", False)
    if draws is not None:
        block = blocks(Problem(data, priors, draws["T"].shape[-1]), learned)
        return align_draws({site: x for site, x in draws.items() if site in AXIS}, reference, block, by)
    posterior = factors_of(result)
    order = permutation(means(posterior), means(reference), blocks(Problem(data, priors, rank_of(posterior)), learned))
    aligned = permute(posterior, order)
    if isinstance(result, Fit):
        return result._replace(posterior=aligned, priors=_permute_priors(result.priors, order))
    return aligned


def align_draws(draws: dict[str, np.ndarray], reference: Any, block: np.ndarray, by: str) -> dict[str, Any]:
    """Return draws of T, V and λ, chains × draws × ..., in the order of a reference; see `align`.

    Args:
        draws: by site.
        reference: as in `align`.
        block: a number for every component, as from `blocks`.
        by: "chain" or "draw".
    """
    chains = [{site: x[c] for site, x in draws.items()} for c in range(len(draws["T"]))]
    if by == "chain":
        to = means(draws if reference is None else reference)
        aligned = [_take(chain, permutation(_average(chain), to, block)) for chain in chains]
    else:
        to = {site: x[-1] for site, x in chains[0].items()} if reference is None else means(reference)
        if reference is None:
            to = _average(_each(chains[0], to, block))
        aligned = [_each(chain, to, block) for chain in chains]
    return {site: np.stack([chain[site] for chain in aligned]) for site in draws}


def _each(chain: dict[str, np.ndarray], to: dict[str, np.ndarray], block: np.ndarray) -> dict[str, np.ndarray]:
    """Align every draw of a chain on its own."""
    draws = [{site: x[n] for site, x in chain.items()} for n in range(len(chain["T"]))]
    moved = [_take(draw, permutation(draw, to, block)) for draw in draws]
    return {site: np.stack([draw[site] for draw in moved]) for site in chain}


def _average(chain: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return means over draws of equal scales: if scales drift, few draws would dominate the means."""
    unit = chain["T"].sum(axis=-2, keepdims=True)
    return {"T": (chain["T"] / unit).mean(axis=0), "V": (chain["V"] * np.swapaxes(unit, -1, -2)).mean(axis=0)}


def _take(draws: dict[str, np.ndarray], order: np.ndarray) -> dict[str, np.ndarray]:
    one = {site: x.shape[AXIS[site]] == 1 for site, x in draws.items()}  # a λ that all components share has one row
    return {site: x if one[site] else np.take(x, order, axis=AXIS[site]) for site, x in draws.items()}


def means(result: Any) -> dict[str, np.ndarray]:
    """Return the means of T and V, which identify components; for draws, those of the first chain."""
    draws = held_draws(result)
    if draws is not None:
        return _average({site: x[0] for site, x in draws.items()})
    q = factors_of(result)
    return {"T": np.asarray(q.T.mean, float), "V": np.asarray(q.V.mean, float)}


def blocks(problem: Problem, learned: bool = False) -> np.ndarray:
    """Return a number for every component, the same for components with the same hyperparameters.

    Args:
        problem: its priors count.
        learned: whether these were learned; then numbers that differ by component alone are results, and do not count.
    """
    data, priors, K = problem
    family = priors.coefficients
    size = rate_shape(family, data, K) or (K, data.num_samples)
    of_V = family if family.hyperprior is None else family.hyperprior

    def counted(values: Iterable[Any], by_component: tuple[int, int]) -> list[np.ndarray]:
        return [np.asarray(x) for x in values if not (learned and np.shape(x) == by_component)]

    rows = [np.zeros((K, 1))]
    rows += [np.broadcast_to(x, (data.num_features, K)).T for x in counted(_numbers(priors.dictionary), (1, K))]
    rows += [np.broadcast_to(np.broadcast_to(x, size), (K, size[1])) for x in counted(_numbers(of_V), (K, 1))]
    stated = counted(stated_of_V(family, data).values(), (K, 1))
    rows += [np.broadcast_to(x, (K, data.num_samples)) for x in stated]
    return np.asarray(np.unique(np.concatenate(rows, axis=1), axis=0, return_inverse=True)[1]).ravel()


def _numbers(prior: Any) -> list[np.ndarray]:
    """Return numbers that distinguish a prior's entries: parameters, or log densities at some points."""
    if isinstance(prior, Gamma):
        return [np.asarray(x) for x in prior]
    if isinstance(prior, Given):  # rounded, as equal entries may be computed in different ways
        return [np.asarray(prior.distribution().log_prob(x), float).round(4) for x in (0.3, 1.0, 3.0)]
    return []


def permutation(mine: dict[str, np.ndarray], to: dict[str, np.ndarray], block: np.ndarray) -> np.ndarray:
    """Return the order in which my components are most like the reference's.

    V counts if it has the same shape, which is taken to mean the same samples.

    Args:
        mine: T, features × components, and V, components × samples.
        to: the same of the reference.
        block: a number for every component, as from `blocks`.
    """
    if mine["T"].shape != to["T"].shape:
        raise ValueError(f"expected a reference with T of shape {mine['T'].shape}; got {to['T'].shape}")
    alike = _cosine(to["T"].T, mine["T"].T)
    if mine["V"].shape == to["V"].shape:
        alike = alike * _cosine(to["V"], mine["V"])
    return assignment(alike, block)


def assignment(alike: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Return the order of the columns with the largest sum of similarities along the diagonal, by the Hungarian method.

    Args:
        alike: similarities, components of the reference × components to order.
        block: a number for every component, as from `blocks`; components stay within their block.
    """
    order = np.arange(len(block))
    for b in np.unique(block):
        members = np.flatnonzero(block == b)
        rows, columns = linear_sum_assignment(alike[np.ix_(members, members)], maximize=True)
        order[members[rows]] = members[columns]
    return order


def _cosine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the cosines of rows with rows; 0 for rows of zeros."""
    A, B = (M / np.maximum(np.linalg.norm(M, axis=1, keepdims=True), np.finfo(float).tiny) for M in (A, B))
    cosine: np.ndarray = A @ B.T
    return cosine


def permute(posterior: Posterior, order: np.ndarray) -> Posterior:
    """Return the components of all factors in this order."""

    def move(site: str, factor: Any) -> Any:
        shape = np.shape(factor.mean)  # parameters may be of fewer dimensions, a loading has one more
        full = [x if np.ndim(x) >= 2 else np.broadcast_to(x, shape) for x in factor]
        size = len(order)
        return type(factor)(*(x if x.shape[AXIS[site]] != size else x.take(order, axis=AXIS[site]) for x in full))

    moved = posterior._replace(**{site: move(site, factor) for site, factor in posterior.sites.items()})
    if moved.labels is None or moved.labels.V is None:
        return moved
    return moved.with_labels(moved.labels._replace(V=move("V", moved.labels.V)))


def _permute_priors(priors: Priors | None, order: np.ndarray) -> Priors | None:
    """Return priors in this order, for hyperparameters learned by component; given ones are alike within a block."""

    def move(x: Array, axis: int) -> Array:
        return np.take(x, order, axis) if np.ndim(x) == 2 and np.shape(x)[axis] == len(order) else x

    if priors is None:
        return None
    axes = (AXIS["T"], AXIS["V"])
    return Priors(*(jax.tree.map(partial(move, axis=n), prior) for prior, n in zip(priors, axes, strict=True)))


def invariants(draws: Any) -> Any:
    """Return quantities that data determine, unlike the scales of T, V and λ: (t, v, λ) → (γt, v/γ, γλ).

        TV              features × samples; needs no alignment
        profile         t_νi / Σ_ν t_νi
        activation      v_iτ Σ_ν t_νi
        rate            λ_ic / Σ_ν t_νi

    R-hat and effective sizes belong to these. The last three are by component: align first, as `to_arviz` does.

    Args:
        draws: what `to_arviz` returned.

    Returns an `xarray.Dataset` with chains, draws and the dims of the draws, which `az.summary` and `az.rhat` take.
    """
    import xarray

    posterior = draws["posterior"]
    T, V = posterior["T"], posterior["V"]
    unit = T.sum("feature")
    found = {"TV": xarray.dot(T, V, dim="component"), "profile": T / unit, "activation": V * unit}
    if "lam" in posterior and "component" in posterior["lam"].dims:
        found["rate"] = posterior["lam"] / unit
    order = ("chain", "draw", "feature", "component", "sample", "group")
    return xarray.Dataset({name: x.transpose(*order, ..., missing_dims="ignore") for name, x in found.items()})
