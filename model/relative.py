"""Priors on V in the units of the data: what suits pixels from 0 to 255 suits the same from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .data import Data
from .priors import Gamma, label_driven


def relative_rates(
    data: Data,
    per_group: int | Sequence[int] | None = None,
    small: float = 0.003,
    large: float = 0.03,
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
    return Gamma(shares.a * (sample_size(data) * sizes)[None, :], shares.b)


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
    unit = rank * float(np.mean(np.asarray(dictionary.a, float) * np.asarray(dictionary.b, float)))
    size = sample_size(data) / data.num_features
    return Gamma(1.0, size / unit if size > 0 and unit > 0 else 1.0)


def sample_size(data: Data) -> float:
    """S̄, the counts of a sample on average; 1 where there are none at all."""
    return float(np.sum(np.asarray(data.X), dtype=float)) / data.num_samples or 1.0
