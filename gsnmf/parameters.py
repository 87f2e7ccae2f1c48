"""What the estimator's parameters and labels may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_non_negative

from .inference import cavi
from .model import Priors
from .model.checks import whole
from .model.priors import is_grouped
from .projection import COMBINED
from .restarts import SHAPES, Recipe

CHOICES = {
    "transform_by": ("nnls", "posterior"),
    "predict_by": ("nearest", *COMBINED, "model"),
    "select": ("bound", "validation"),
}


def check_number(name: str, value: Any, below: float = math.inf) -> None:
    """Refuse what is not a number between 0 and this."""
    good = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and 0 < value < below
    if not good:
        what = "a positive number" if below == math.inf else f"a number between 0 and {below:g}"
        raise ValueError(f"expected {name} to be {what}; got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse what is not among the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that no data could make good."""
    for name in ("a_t", "b_t", "scale"):
        check_number(name, getattr(recipe, name))
    for name in ("small", "large"):
        if getattr(recipe, name) is not None:
            check_number(name, getattr(recipe, name))
    whole("per_class", recipe.per_class, 1)
    whole("common", recipe.common, 0)
    whole("max_iter", recipe.max_iter, 1)
    if recipe.n_components is not None:
        whole("n_components", recipe.n_components, 1 + recipe.common)
    if recipe.priors is not None and not isinstance(recipe.priors, Priors):
        raise ValueError(f"expected priors to be None or gsnmf.model.Priors; got {recipe.priors!r}")
    if recipe.learn is not None and not isinstance(recipe.learn, cavi.Learn):
        raise ValueError(f"expected learn to be None or made by cavi.learn; got {recipe.learn!r}")
    if recipe.learn is not None and recipe.learn.coefficients == "sample":
        raise ValueError("expected learn to leave new samples a prior; got coefficients='sample'")
    check_choice("prior", recipe.prior, tuple(SHAPES))
    check_choice("lam_start", recipe.lam_start, ("prior", "shape"))


def check_choices(estimator: Any) -> None:
    """Refuse an estimator one of whose choices is none; before every use, as parameters may change after fit."""
    for name, choices in CHOICES.items():
        check_choice(name, getattr(estimator, name), choices)


def check_restarts(estimator: Any, y: ArrayLike | None) -> None:
    """Refuse numbers of restarts and ways to choose one that no data, or none without labels, could make good."""
    whole("n_restarts", estimator.n_restarts, 1)
    if estimator.counts is not None:
        check_number("counts", estimator.counts)
    check_number("validation_fraction", estimator.validation_fraction, below=1)
    if y is None and estimator.select == "validation":
        raise ValueError("expected labels, fit(X, y), for select='validation'; got y=None")


def check_class_posterior(priors: Priors) -> None:
    """Refuse priors under which classes are all the same."""
    if not is_grouped(priors):
        got = type(priors.coefficients).__name__
        raise ValueError(f"expected priors with GroupSparse coefficients for predict_by='model'; got {got}")


def unmasked(X: Any) -> Any:
    """A NumPy masked array with NaN for what it masks, which scikit-learn would read; anything else as it is."""
    return np.ma.filled(X.astype(float), np.nan) if isinstance(X, np.ma.MaskedArray) else X


def check_nonnegative(X: NDArray[Any]) -> None:
    """Refuse negative entries as scikit-learn does, which would not find them beside NaN."""
    seen = X[~np.isnan(X)]
    if seen.size:
        check_non_negative(seen, "GroupSparseNMF (input X)")


def check_known(y: ArrayLike) -> None:
    """Refuse labels of which some are missing: None, NaN, or pandas' own."""
    labels = np.asarray(y, object).ravel()
    unknown = np.flatnonzero(pd.isna(labels))
    if len(unknown):
        raise ValueError(f"expected a known label for every sample; got {labels[unknown[0]]} for sample {unknown[0]}")


def index_labels(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The classes in sorted order, and which of them each sample is of."""
    try:
        check_classification_targets(labels)
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"expected labels of one sortable kind; got a mixture ({error})") from None
    return classes, index
