"""The estimator's samples: validation, labels as indices, and the unit of X."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, validate_data

from ..model.labels import plain_labels, warn_of_single_samples
from ..model.units import unit_of
from ..sets import NamedSets, named_sets
from . import parameters
from .multilabel import as_indicator

OF_LABELS = (  # attributes that only a fit with labels has
    *("classes_", "validation_scores_", "transduction_", "label_distributions_", "temperature_"),
    *("predictor_", "predictor_scores_", "predictor_reason_", "_several"),
)
VALIDATION = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "accept_sparse": "csr"}


class SampleReader:
    """The part of the estimator that reads X and y; it sets `classes_`, `unit_` and the names of features."""

    counts: float | None
    unlabelled: Any
    seeds: Mapping[Any, Iterable[Any]] | None
    seed_strength: float
    classes_: NDArray[Any]
    unit_: float
    n_features_in_: int

    def _read(self, X: ArrayLike, y: ArrayLike | None) -> tuple[Any, NDArray[Any] | None]:
        """Return X, features × samples, and the classes' indices; clear the attributes of an earlier fit."""
        for name in OF_LABELS:
            self.__dict__.pop(name, None)
        X, y = parameters.unmasked(X), plain_labels(y)
        several = as_indicator(y)
        index: NDArray[Any] | None = None
        if several is not None:
            matrix = validate_data(self, X, **VALIDATION)
            index, self.classes_ = several
            parameters.check_several(self, matrix, index)
        elif y is not None:
            matrix, index = self._read_labelled(X, y)
        else:
            matrix = validate_data(self, X, **VALIDATION)
        if index is not None:
            warn_of_single_samples(len(self.classes_), int((index >= 0).sum()))
        parameters.check_nonnegative(matrix)
        self.unit_ = 1.0 if self.counts is None else unit_of(matrix, self.counts)
        return self._turned(matrix), index

    def _read_labelled(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, NDArray[Any]]:
        """Return X, samples × features, and the index of each class, −1 for unlabelled samples."""
        parameters.check_single(y)
        unlabelled = parameters.find_unlabelled(y, self.unlabelled)
        if not unlabelled.any():
            matrix, labels = validate_data(self, X, y, **VALIDATION)
            self.classes_, index = parameters.index_labels(labels)
            return matrix, index
        matrix = validate_data(self, X, **VALIDATION)
        check_consistent_length(matrix, unlabelled)
        index = np.full(len(unlabelled), -1)
        self.classes_, index[~unlabelled] = parameters.index_labels(parameters.read_known(y, unlabelled))
        return matrix, index

    def _read_batch(
        self, X: ArrayLike, y: ArrayLike | None, classes: ArrayLike | None, first: bool
    ) -> tuple[Any, NDArray[Any] | None]:
        """Return a batch as `_read` does; the first one decides classes and unit."""
        y = plain_labels(y)
        if y is not None:
            parameters.check_single(y)
        known = getattr(self, "classes_", None)
        if not first and classes is not None and set(np.ravel(classes).tolist()) != set([] if known is None else known):
            raise ValueError(f"expected the classes of the first batch, {known}; got {list(np.ravel(classes))}")
        if first and classes is None:
            return self._read(X, y)
        matrix = validate_data(self, parameters.unmasked(X), reset=first, **VALIDATION)
        parameters.check_nonnegative(matrix)
        if first:
            self.classes_ = parameters.index_labels(np.asarray(classes))[0]
            self.unit_ = 1.0 if self.counts is None else unit_of(matrix, self.counts)
        if (y is None) == hasattr(self, "classes_"):
            said = "labels in every batch, as in the first" if y is None else "no labels, as in the first batch"
            raise ValueError(f"expected {said}; got {'y=None' if y is None else 'labels'}")
        index = None if y is None else parameters.index_known(y, self.unlabelled, self.classes_)
        check_consistent_length(matrix, index)
        return self._turned(matrix), index

    def _new(self, X: ArrayLike) -> Any:
        """Return new samples as features × samples, in the unit of the fit."""
        matrix = validate_data(self, parameters.unmasked(X), reset=False, **VALIDATION)
        parameters.check_nonnegative(matrix)
        return self._turned(matrix)

    def _turned(self, matrix: Any) -> Any:
        """Return samples × features as features × samples in the unit of the fit; a sparse matrix, in columns."""
        if scipy.sparse.issparse(matrix):
            matrix = scipy.sparse.csr_array(matrix)
            if not matrix.has_canonical_format:  # SciPy would sum duplicates in the user's own arrays
                matrix = matrix.copy()
                matrix.sum_duplicates()
        return matrix.T if self.unit_ == 1 and scipy.sparse.issparse(matrix) else matrix.T * self.unit_

    def _name_seeds(self) -> NamedSets | None:
        """Return the seeds with the names of features and classes."""
        features = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        classes = np.asarray(getattr(self, "classes_", ())).tolist()
        return named_sets(self.seeds, features, classes, self.seed_strength)
