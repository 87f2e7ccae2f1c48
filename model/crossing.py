"""A second grouping: classes crossed with batches (plates, authors), and components that serve one of either or all.

A group of the model is then a pair, a class within a batch, written "class|batch". A component of a class serves its
class in all batches, a component of a batch serves all classes of that batch: what belongs to the batch need not be
explained by components of the classes that are frequent in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from .structures import Structure, common, counts_of

SEPARATOR = "|"


class Crossed(NamedTuple):
    """Classes crossed with batches, as made by `crossed`; the first three are arguments of `as_data`.

    labels: the pair of each sample, "class|batch"; None if its class or its batch is unknown.
    group_names: all pairs, by class, then by batch.
    label_prior: samples × pairs, even over the pairs that a sample may belong to; None if all labels are known.
    classes: the names of classes, sorted.
    batches: the names of batches, sorted.
    class_of: the index of the class of each pair.
    batch_of: the index of the batch of each pair.
    """

    labels: list[str | None]
    group_names: list[str]
    label_prior: NDArray[np.float64] | None
    classes: list[Any]
    batches: list[Any]
    class_of: NDArray[np.intp]
    batch_of: NDArray[np.intp]

    def serving(
        self, per_class: int | Sequence[int] = 1, per_batch: int | Sequence[int] = 1, num_common: int = 0
    ) -> Structure:
        """Return the structure of components that serve everything, a class in all batches, or a batch in all classes.

        Args:
            per_class: components of each class; one number, or one for each class.
            per_batch: components of each batch; one number, or one for each batch.
            num_common: components that serve every pair.

        Returns components × pairs, in this order: common, by class, by batch.

        >>> crossed(["a", "b", "b"], [1, 1, 2]).serving(num_common=1).astype(int).tolist()
        [[1, 1, 1], [1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1]]
        """
        rows = [common(num_common, len(self.group_names))]
        for name, count, of, names in (
            ("per_class", per_class, self.class_of, self.classes),
            ("per_batch", per_batch, self.batch_of, self.batches),
        ):
            nothing = isinstance(count, int) and count == 0
            counts = np.zeros(len(names), int) if nothing else counts_of(name, count, len(names))
            rows.append(np.repeat(np.arange(len(names))[:, None] == of, counts, axis=0))
        if not sum(map(len, rows)):
            raise ValueError(f"expected at least one component; got {per_class=}, {per_batch=}, {num_common=}")
        return np.vstack(rows)

    @property
    def unions(self) -> dict[Any, NDArray[np.bool_]]:
        """The pairs of every batch and of every class, booleans by name; of a name of both, those of the class."""
        levels = ((self.batch_of, self.batches), (self.class_of, self.classes))
        return {name: of == n for of, names in levels for n, name in enumerate(names)}

    def by_class(self, pairs: ArrayLike) -> NDArray[np.float64]:
        """Return sums over batches, samples × classes.

        Args:
            pairs: samples × pairs: q(z), as `fit.posterior.z`, `label_probabilities`, or membership.
        """
        return np.asarray(self._check(pairs) @ (self.class_of[:, None] == np.arange(len(self.classes))), float)

    def by_batch(self, pairs: ArrayLike) -> NDArray[np.float64]:
        """Return sums over classes, samples × batches; the argument is that of `by_class`."""
        return np.asarray(self._check(pairs) @ (self.batch_of[:, None] == np.arange(len(self.batches))), float)

    def posterior(
        self, bound: ArrayLike, batches: Sequence[Any] | None = None, temperature: float = 1.0
    ) -> NDArray[np.float64]:
        """Return q(pair) ∝ exp(ℒ_τ(pair) / temperature) of new samples, over the pairs of their batch alone.

        Args:
            bound: samples × pairs, as `fold_in(fit, X).bound`.
            batches: the batch of each sample; None or NaN if it is unknown.
            temperature: as in `Folded.class_posterior`.

        Returns samples × pairs; `by_class` sums it.
        """
        logits = self._check(bound) / temperature
        if batches is not None:
            unknown, codes = pd.isna(pd.Series(list(batches), dtype=object)).to_numpy(), _codes(batches, self.batches)
            if len(codes) != len(logits) or (codes < 0)[~unknown].any():
                raise ValueError(
                    f"expected one of the batches {self.batches} for each of {len(logits)} samples; got {batches}"
                )
            logits = np.where(unknown[:, None] | (codes[:, None] == self.batch_of), logits, -np.inf)
        return np.asarray(softmax(logits, axis=1))

    def mean_by_class(self, lam: ArrayLike, group_sizes: ArrayLike) -> NDArray[np.float64]:
        """Return E[v] of a class, components × classes: Σ_b N_cb/λ_cb / Σ_b N_cb over its batches b.

        Args:
            lam: components × pairs, as `fit.posterior.lam.mean`.
            group_sizes: N_cb, as `data.group_sizes`.
        """
        return _means(lam, group_sizes, self.class_of, len(self.classes))

    def mean_by_batch(self, lam: ArrayLike, group_sizes: ArrayLike) -> NDArray[np.float64]:
        """Return E[v] of a batch, components × batches; the arguments are those of `mean_by_class`."""
        return _means(lam, group_sizes, self.batch_of, len(self.batches))

    def _check(self, pairs: ArrayLike) -> NDArray[np.float64]:
        values = np.asarray(pairs, float)
        if values.ndim != 2 or values.shape[1] != len(self.group_names):
            raise ValueError(f"expected samples × {len(self.group_names)} pairs; got shape {values.shape}")
        return values


def crossed(classes: Sequence[Any], batches: Sequence[Any]) -> Crossed:
    """Cross classes with batches: the labels, names and label prior for `as_data`, and structures by `serving`.

    Pairs are those that occur. If the class of a sample is unknown, every class may occur in its batch, and its label
    is one of these pairs; if its batch is unknown, its class may occur in every batch.

    Args:
        classes: one per sample; None or NaN if unknown.
        batches: one per sample; None or NaN if unknown.

    >>> two = crossed(["a", "b", None], [1, 2, 2])
    >>> two.group_names, two.labels
    (['a|1', 'a|2', 'b|2'], ['a|1', 'b|2', None])
    >>> two.label_prior[2].tolist()
    [0.0, 0.5, 0.5]
    """
    for name, values in (("classes", classes), ("batches", batches)):
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise ValueError(f"expected {name} to be a sequence, one for each sample; got {values!r}")
    if len(classes) != len(batches):
        raise ValueError(f"expected a class and a batch for each sample; got {len(classes)} and {len(batches)}")
    (of_class, class_names), (of_batch, batch_names) = (_levels(*x) for x in (("class", classes), ("batch", batches)))
    occurs = np.zeros((len(class_names), len(batch_names)), bool)
    both = (of_class >= 0) & (of_batch >= 0)
    occurs[of_class[both], of_batch[both]] = True
    occurs[:, np.unique(of_batch[(of_class < 0) & (of_batch >= 0)])] = True
    occurs[np.unique(of_class[(of_class >= 0) & (of_batch < 0)])] = True
    occurs |= ((of_class < 0) & (of_batch < 0)).any()
    class_of, batch_of = np.nonzero(occurs)
    names = [f"{class_names[c]}{SEPARATOR}{batch_names[b]}" for c, b in zip(class_of, batch_of, strict=True)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"expected pairs with distinct names; got {twice!r} for two of them")
    number = np.full(occurs.shape, -1)
    number[class_of, batch_of] = np.arange(len(names))
    labels = [names[number[c, b]] if c >= 0 and b >= 0 else None for c, b in zip(of_class, of_batch, strict=True)]
    prior = None
    if not both.all():
        may = (of_class[:, None] < 0) | (of_class[:, None] == class_of)
        may &= (of_batch[:, None] < 0) | (of_batch[:, None] == batch_of)
        prior = may / may.sum(axis=1, keepdims=True)
    return Crossed(labels, names, prior, class_names, batch_names, class_of, batch_of)


def _levels(what: str, values: Sequence[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """Return the index of each sample's name, −1 if it is unknown, and all names in order."""
    listed = list(values)
    try:
        names = sorted({value for value in listed if not pd.isna(value)})
    except (TypeError, ValueError):
        raise ValueError(f"expected one {what} per sample, of one sortable kind; got {listed[:5]}") from None
    if not names:
        raise ValueError(f"expected a known {what}; got {len(listed)} samples without one")
    return _codes(listed, names), names


def _codes(values: Sequence[Any], names: list[Any]) -> NDArray[np.intp]:
    index = {name: n for n, name in enumerate(names)}
    return np.array([index.get(value, -1) for value in values], np.intp)


def _means(lam: ArrayLike, group_sizes: ArrayLike, of: Any, number: int) -> NDArray[np.float64]:
    sizes = np.asarray(group_sizes, float)
    sums = of[:, None] == np.arange(number)
    return np.asarray((sizes / np.asarray(lam, float)) @ sums / np.maximum(sizes @ sums, np.finfo(float).tiny))
