"""Priors on V in the units of the data, which grow with X and with the sizes of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from .checks import whole
from .conjugacy import prior_mean
from .data import Data
from .priors import Gamma, Priors, canonical
from .structures import check_structure, individual, structured
from .types import Array

# Chosen by 1-NN accuracy, three components a group, from nine pairs in {1e-5 … 1e-2} × {1e-3 … 1e-1} and both starts of
# λ, on the half of scikit-learn's digits that `gsnmf.demo` leaves alone (mean of four splits with 100 training images,
# of two with 600) and on the ORL faces, halved (four splits, 5 images a person). With λ starting at its prior mean:
#                      (1e-4, 1e-3)  (1e-4, 1e-2)  (1e-3, 1e-2)  (1e-3, 3e-2)
#     100 digits          0.894         0.894         0.898         0.890
#     600 digits          0.931         0.938         0.936         0.924
#     ORL                   –           0.956         0.955         0.964
#     From 0 to 1: 100 digits 0.873, 600 digits 0.916 to 0.921, ORL (one split) 0.905, for every pair.
# With λ starting at its shape, pairs with large ≥ 0.01 do about as well in the data's own unit, but from 0 to 1 pairs
# with large ≤ 0.01 fall to 0.31–0.36 on 100 digits: that start does not keep groups apart there. The loss from 0 to 1
# that remains is due to Poisson noise, not to this prior: 1/255 of the counts of a picture hold less information.
# Nor is it due to the dictionary's prior, whose scale bᵗ has no effect as long as 1/bˡ is nearly 0: docs/structures.md.
SMALL, LARGE = 1e-3, 1e-2


def relative_rates(
    data: Data,
    per_group: int | Sequence[int] | None = None,
    small: float = SMALL,
    large: float = LARGE,
    scale: float = 1e6,
    *,
    rank: int | None = None,
    structure: ArrayLike | None = None,
) -> Gamma:
    """Return the paper's prior (11) on λ with shapes relative to the counts of a sample: aˡ_ic = fraction · S̄ · N_c.

    S̄ is the mean of Σ_ν x_ντ over samples and N_c the size of a group. With a large scale bˡ a shape aˡ takes about
    aˡ/N_c counts from a component's part of every sample of the group, so that useful shapes grow with both.

    Args:
        data: as made by `as_data`, with groups.
        per_group: components of each group; one number, or one for each group.
        small: the fraction of counts that a component loses in a group it is bound to.
        large: the fraction that it loses elsewhere.
        scale: bˡ, the same everywhere.
        rank: instead of per_group, the number of components in all.
        structure: instead of both, components × groups, true where a component may serve a group, as in `structured`.

    Returns a Gamma of shape components × groups. A group without samples counts as a group of one sample.

    >>> from gsnmf.model import as_data
    >>> data = as_data([[4.0, 0.0, 2.0], [6.0, 10.0, 8.0]], ["a", "b", "b"])
    >>> relative_rates(data, per_group=1, small=0.1, large=0.5).a.tolist()
    [[1.0, 10.0], [5.0, 2.0]]
    >>> relative_rates(data, structure=[[1, 1]], small=0.1).a.tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data; got {type(data).__name__}")
    sizes = np.maximum(np.asarray(data.group_sizes, float), 1.0)
    if structure is None:
        structure = individual(per_group, data.num_groups, rank=rank)
    elif per_group is not None or rank is not None:
        raise ValueError(f"expected per_group, rank or structure; got per_group={per_group}, rank={rank} and structure")
    shares = structured(check_structure(structure, data.num_groups), small, large, scale)
    return Gamma(shares.a * (_sample_size(data) * sizes)[None, :], shares.b)


def unit_of(X: Array, mean: float = 128.0) -> float:
    """Return the factor that gives X this mean over observed entries, in counts; 1 if all entries are 0.

    The unit of X decides how precise X is, as Poisson noise is √x: if X is not counts, choose its unit. Multiplied by
    this factor, pixels from 0 to 1 and from 0 to 255 are the same data, and the same arguments of `relative_rates` give
    the same prior.

    Args:
        X: nonnegative; NaN and entries that a NumPy masked array hides are left out.
        mean: counts of the mean entry; 128 for pixels as in 8 bits.

    >>> unit_of([[0.25, 0.75]])
    256.0
    """
    if isinstance(mean, bool) or not isinstance(mean, (int, float, np.number)) or not 0 < mean < np.inf:
        raise ValueError(f"expected the mean to be a positive number of counts; got {mean!r}")
    if scipy.sparse.issparse(X):
        array, number = X.tocsr().data.astype(float), X.shape[0] * X.shape[1]
        _check_sign(array)
        size = np.nansum(array) / max(1, number - np.isnan(array).sum())
        return float(mean / size) if size > 0 else 1.0
    if X is None:
        raise ValueError("expected X to hold real numbers; got None")
    array = np.ma.filled(np.ma.asarray(X).astype(float), np.nan) if np.ma.isMaskedArray(X) else np.asarray(X, float)
    _check_sign(array)
    size = np.mean(array, where=~np.isnan(array)) if array.size and not np.isnan(array).all() else 0.0
    return float(mean / size) if size > 0 else 1.0


def _check_sign(array: np.ndarray) -> None:
    if (array < 0).any():
        raise ValueError(f"expected X to be nonnegative; got {array[array < 0][0]}")
    if np.isinf(array).any():
        raise ValueError("expected X to be finite; got inf")


def matching(data: Data, dictionary: Any, rank: int) -> Gamma:
    """Return a prior on V for a model without groups: exponential, with the scale that makes TV as large as X a priori.

    Args:
        data: as made by `as_data`.
        dictionary: the prior on T, a Gamma or a NumPyro distribution, whose median takes the place of its mean.
        rank: the number of components.

    >>> from gsnmf.model import as_data
    >>> matching(as_data([[3.0, 5.0]]), Gamma(0.5, 2.0), rank=2).b
    2.0
    """
    prior = canonical(Priors(dictionary, Gamma(1.0, 1.0))).dictionary
    unit = whole("rank", rank, 1) * float(np.mean(prior_mean(prior)))
    size = data.observed_mean
    return Gamma(1.0, size / unit if size > 0 and unit > 0 else 1.0)


def _sample_size(data: Data) -> float:
    """Return S̄, the mean counts of a sample, hidden entries counted like observed ones; 1 if X is all zero."""
    if data.mask is not None:
        return data.observed_mean * data.num_features or 1.0
    return data.matrix.total() / data.num_samples or 1.0
