"""Validation of the estimator's parameters and labels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_non_negative, column_or_1d

from ..inference import cavi
from ..inference.starts import METHODS
from ..model import Priors
from ..model.checks import whole
from ..model.compressed import require_consistent
from ..model.defaults import SHAPES, said_of_choices
from ..model.labels import check_kinds
from ..model.priors import is_grouped
from .heads import LEARNED
from .projection import COMBINED
from .restarts import Recipe

SEVERAL = "several labels per sample are a matrix of 0 and 1, or a list of sets, in fit only"
CHOICES = {
    "transform_by": ("auto", "nnls", "posterior"),
    "predict_by": ("auto", "nearest", *COMBINED, "model", *LEARNED),
    "select": ("bound", "validation"),
}


def check_number(name: str, value: Any, below: float = math.inf) -> None:
    """Raise unless the value is a number above 0 and below this limit."""
    good = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and 0 < value < below
    if not good:
        what = "a positive number" if below == math.inf else f"a number between 0 and {below:g}"
        raise ValueError(f"expected {name} to be {what}; got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_recipe(recipe: Recipe) -> None:
    """Raise if the recipe is invalid whatever the data."""
    for name in ("a_t", "b_t", "scale"):
        check_number(name, getattr(recipe, name))
    for name in ("small", "large"):
        if (value := getattr(recipe, name)) is not None:
            check_number(name, value)
    whole("per_class", recipe.per_class, 1)
    whole("common", recipe.common, 0)
    whole("max_iter", recipe.max_iter, 1)
    if recipe.n_components is not None:
        whole("n_components", recipe.n_components, 1 + recipe.common)
    if recipe.priors is not None and not isinstance(recipe.priors, Priors):
        raise ValueError(f"expected priors to be None or gsnmf.model.Priors; got {type(recipe.priors).__name__}")
    if recipe.learn is not None and not isinstance(recipe.learn, cavi.Learn):
        raise ValueError(f"expected learn to be None or made by cavi.learn; got {recipe.learn!r}")
    if recipe.learn is not None and recipe.learn.coefficients == "sample":
        raise ValueError("expected learn to leave a prior for new samples; got coefficients='sample'")
    check_choice("prior", recipe.prior, tuple(SHAPES))
    check_choice("init", recipe.init, tuple(METHODS))
    check_choice("lam_start", recipe.lam_start, ("prior", "shape"))


def warn_of_choices(recipe: Recipe, num_classes: int) -> None:
    """Warn of classes without a component of their own, and of shrinkage that is rarely meant."""
    if recipe.priors is not None:
        return
    shrinkage = {name: getattr(recipe, name) for name in ("prior", "small", "large")}
    larger = "n_components, or per_class"
    for said in said_of_choices(num_classes, larger, rank=recipe.n_components, common=recipe.common, **shrinkage):
        warnings.warn(said, stacklevel=3)


def check_choices(estimator: Any) -> None:
    """Raise if an option of the estimator is invalid; called before every use, as parameters may change after fit."""
    for name, choices in CHOICES.items():
        check_choice(name, getattr(estimator, name), choices)


def check_restarts(estimator: Any, y: ArrayLike | None) -> None:
    """Raise if the restarts, or the way to choose one of them, are invalid whatever the data or without labels."""
    whole("n_restarts", estimator.n_restarts, 1)
    if estimator.counts is not None:
        check_number("counts", estimator.counts)
    check_number("seed_strength", estimator.seed_strength)
    check_number("validation_fraction", estimator.validation_fraction, below=1)
    folds = isinstance(estimator.calibrate, (int, np.integer)) and not isinstance(estimator.calibrate, bool)
    if estimator.calibrate not in (None, "training") and not (folds and estimator.calibrate > 1):
        got = repr(estimator.calibrate)
        raise ValueError(f"expected calibrate to be 'training', None, or a number of folds from 2; got {got}")
    if y is None and estimator.select == "validation":
        raise ValueError("expected labels, fit(X, y), for select='validation'; got y=None")


def check_class_posterior(priors: Priors, predict_by: str = "model") -> None:
    """Raise if the priors do not distinguish classes, though predictions are by the model's class bounds."""
    if predict_by == "model" and not is_grouped(priors):
        got = type(priors.coefficients).__name__
        raise ValueError(f"expected priors with GroupSparse coefficients for predict_by={predict_by!r}; got {got}")


def coefficients_by(transform_by: str, X: Any) -> str:
    """Return how coefficients of samples like X are found, where "auto" leaves it open."""
    if transform_by != "auto":
        return transform_by
    return "posterior" if scipy.sparse.issparse(X) else "nnls"


def unmasked(X: Any) -> Any:
    """Return a NumPy masked array with NaN in masked entries, which scikit-learn would read; other input as it is.

    A malformed sparse matrix is refused here, before scikit-learn converts it by compiled code, and so are dates, which
    it would take for numbers.
    """
    for dtype in X.dtypes if isinstance(X, pd.DataFrame) else [getattr(X, "dtype", None)]:
        if getattr(dtype, "kind", None) in ("m", "M"):
            raise ValueError(f"expected X to hold real numbers; got dtype {dtype}")
    if scipy.sparse.issparse(X) and X.ndim == 2:
        require_consistent(X)
    return np.ma.filled(X.astype(float), np.nan) if isinstance(X, np.ma.MaskedArray) else X


def check_nonnegative(X: NDArray[Any]) -> None:
    """Raise as scikit-learn does for negative entries, which it would not find in data that contain NaN."""
    values: Any = X.data if scipy.sparse.issparse(X) else X
    seen = values[~np.isnan(values)]
    if seen.size:
        check_non_negative(seen, "GroupSparseNMF (input X)")


def find_unlabelled(y: ArrayLike, marker: Any) -> NDArray[np.bool_]:
    """Return whether each sample is unlabelled: its label is None, NaN, pandas' NA, or the estimator's `unlabelled`.

    −1 is also an ordinary name of a class, as in {−1, 1}. If the marker is "auto", −1 stands for unlabelled samples if
    there is no other label, or two or more that are whole numbers ≥ 0; {−1, 0, 1} could be either, and is refused.
    """
    check_single(y)
    labels: list[Any] = list(np.asarray(y, object).ravel())
    unlabelled: NDArray[np.bool_] = np.array([pd.isna(label) for label in labels], bool)
    known: set[Any] = {label for label, none in zip(labels, unlabelled, strict=True) if not none}
    check_kinds(known if marker is None else {label for label in known if label != marker})
    if isinstance(marker, str) and marker == "auto":
        numbers = all(isinstance(label, Real) and not isinstance(label, (bool, np.bool)) for label in known)
        others = known - {-1}
        if known == {-1}:
            return np.ones(len(labels), bool)
        if not numbers or len(others) == len(known) or len(others) < 2 or any(c < 0 or c % 1 for c in others):
            return unlabelled
        if others == {0, 1}:
            raise ValueError(
                "expected unlabelled=-1 if -1 stands for unlabelled samples, or unlabelled=None if it is a class; "
                "got labels -1, 0 and 1, which may mean either"
            )
        marker = -1
    marked = np.array([marker is not None and label == marker for label in labels], bool)
    return unlabelled | (marked & ~unlabelled)


def read_known(y: ArrayLike, unlabelled: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the labels of the labelled samples, of one type, in the order of samples."""
    labels: NDArray[Any] = column_or_1d(np.asarray(y, object), warn=True)[~unlabelled]
    if len(labels) == 0:
        raise ValueError(
            "expected at least one labelled sample, or y=None for a model without labels; "
            f"got {len(unlabelled)} unlabelled samples"
        )
    if not all(isinstance(label, str) for label in labels):
        numbers = np.asarray(labels.tolist())
        labels = numbers if numbers.dtype.kind in "biuf" else labels
    return labels


def check_single(y: ArrayLike) -> None:
    """Raise for multi-label targets, which `as_data` and `cavi.run` take."""
    shape = np.shape(y if hasattr(y, "shape") else np.asarray(y, object))
    if len(shape) > 1 and shape[1] != 1:
        raise ValueError(f"expected one label per sample ({SEVERAL}); got y of shape {shape}")
    sets = (set, frozenset, list, tuple, dict, np.ndarray)
    several = [label for label in np.asarray(y, object).ravel() if isinstance(label, sets)]
    if several:
        raise ValueError(f"expected one label per sample ({SEVERAL}); got {several[0]!r}")


def check_several(estimator: Any, X: Any, Y: NDArray[Any]) -> None:
    """Raise if several labels per sample do not fit X or the estimator's options.

    Args:
        estimator: with its options.
        X: samples × features.
        Y: samples × labels.
    """
    check_consistent_length(X, Y)
    if estimator.select != "bound":
        raise ValueError(f"expected select='bound' for several labels per sample; got {estimator.select!r}")
    values = X.data if scipy.sparse.issparse(X) else X
    if np.isnan(values).any():
        raise ValueError(
            f"expected X without missing entries for several labels per sample; got {np.isnan(values).sum()}"
        )
    if not Y.any():
        raise ValueError(f"expected at least one label of a sample; got {Y.shape[0]} × {Y.shape[1]} zeros")


def index_labels(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the classes in sorted order, and the index of each sample's class."""
    if found := [label for label in labels.tolist() if isinstance(label, bytes)]:
        raise ValueError(f"expected labels that are text or numbers; got bytes, {found[0]!r}")
    try:
        check_classification_targets(labels)
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"expected labels of one sortable kind; got a mixture: {error}") from None
    return classes, index


def index_known(y: ArrayLike, marker: Any, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the index of each sample's class among known ones, −1 for unlabelled samples.

    Args:
        y: one label per sample.
        marker: as in `find_unlabelled`; with "auto", −1 is a class if it is among them.
        classes: sorted.
    """
    if isinstance(marker, str) and marker == "auto" and classes.dtype.kind in "biuf":
        marker = None if -1 in classes else -1
    unlabelled = find_unlabelled(y, marker)
    index = np.full(len(unlabelled), -1)
    if not unlabelled.all():
        labels = read_known(y, unlabelled)
        strangers = sorted({str(label) for label in labels if label not in set(classes.tolist())})
        if strangers:
            raise ValueError(f"expected labels among the classes {classes.tolist()}; got {', '.join(strangers[:5])}")
        index[~unlabelled] = np.searchsorted(classes, labels)
    return index
