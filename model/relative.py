"""Priors on V in the units of the data: they grow with X and, those with groups, with the sizes of groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .checks import whole
from .data import Data
from .priors import Gamma, label_driven

# Chosen by 1-NN accuracy, three components a group, from nine pairs in {1e-5 … 1e-2} × {1e-3 … 1e-1} and both starts of
# λ, on the half of scikit-learn's digits that `gsnmf.demo` leaves alone (mean of four splits with 100 training images,
# of two with 600) and on the ORL faces, halved (four splits, 5 images a person). With λ starting at its prior mean:
#                      (1e-4, 1e-3)  (1e-4, 1e-2)  (1e-3, 1e-2)  (1e-3, 3e-2)
#     100 digits          0.894         0.894         0.898         0.890
#     600 digits          0.931         0.938         0.936         0.924
#     ORL                   –           0.956         0.955         0.964
#     From 0 to 1: 100 digits 0.873, 600 digits 0.916 to 0.921, ORL (one split) 0.905, whatever the pair.
# With λ starting at its shape those with large ≥ 0.01 do about as well in the data's own unit, but from 0 to 1 those
# with large ≤ 0.01 fall to 0.31–0.36 on 100 digits: that start does not keep groups apart there. What is lost from 0 to
# 1 in any case is lost to Poisson noise and not to this prior: the same picture with 1/255 of the counts says less.
SMALL, LARGE = 1e-3, 1e-2


def relative_rates(
    data: Data,
    per_group: int | Sequence[int] | None = None,
    small: float = SMALL,
    large: float = LARGE,
    scale: float = 1e6,
    *,
    rank: int | None = None,
) -> Gamma:
    """The paper's prior (11) on λ, its shapes as shares of a sample's counts: aˡ_ic = share · S̄ · N_c.

    S̄ is the mean of Σ_ν x_ντ over samples and N_c the size of a group. With a large scale bˡ a shape aˡ takes about
    aˡ/N_c counts from a component's part of every sample of the group, so that the shapes that serve grow with both.

    Args:
        data: as made by `as_data`, with groups.
        per_group: how many components each group gets; one number, or one for each group.
        small: the share that a component loses in the group it is bound to.
        large: the share that it loses elsewhere.
        scale: bˡ, the same everywhere.
        rank: instead of per_group, the number of components in all.

    Returns a Gamma of shape components × groups. A group without samples counts as one of one sample.

    >>> from gsnmf.model import as_data
    >>> data = as_data([[4.0, 0.0, 2.0], [6.0, 10.0, 8.0]], ["a", "b", "b"])
    >>> relative_rates(data, per_group=1, small=0.1, large=0.5).a.tolist()
    [[1.0, 10.0], [5.0, 2.0]]
    """
    sizes = np.maximum(np.asarray(data.group_sizes, float), 1.0)
    shares = label_driven(per_group, data.num_groups, small, large, scale, rank=rank)
    return Gamma(shares.a * (_sample_size(data) * sizes)[None, :], shares.b)


def matching(data: Data, dictionary: Gamma, rank: int) -> Gamma:
    """The prior on V of a model without groups: exponential, of the scale that makes TV as large as X a priori.

    Args:
        data: as made by `as_data`.
        dictionary: the prior on T.
        rank: the number of components.

    >>> from gsnmf.model import as_data
    >>> matching(as_data([[3.0, 5.0]]), Gamma(0.5, 2.0), rank=2).b
    2.0
    """
    unit = whole("rank", rank, 1) * float(np.mean(np.asarray(dictionary.a, float) * np.asarray(dictionary.b, float)))
    size = data.observed_mean
    return Gamma(1.0, size / unit if size > 0 and unit > 0 else 1.0)


def _sample_size(data: Data) -> float:
    """S̄, the counts of a sample on average, hidden entries like those seen; 1 where there are none at all."""
    if data.mask is not None:
        return data.observed_mean * data.num_features or 1.0
    return float(np.sum(np.asarray(data.X), dtype=float)) / data.num_samples or 1.0
