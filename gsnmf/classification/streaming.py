"""The estimator's `partial_fit`: a stream whose batches come call by call."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..inference import Fit, cavi
from ..memory import plan
from ..model import Data, Priors, as_data
from ..model.silence import quiet
from ..streams import sampled_priors
from .prediction import Memory
from .restarts import Recipe, draw_seeds


def learn_batch(
    recipe: Recipe, X: Any, y: NDArray[Any] | None, num_classes: int, total: int | None, random_state: Any, last: Any
) -> Fit:
    """Make one step of a stream.

    Args:
        recipe: the parameters of the estimator; default priors are built from the first batch.
        X: the batch, features × samples.
        y: the class of each sample as an index, −1 for unlabelled samples; None without labels.
        num_classes: number of classes.
        total: samples of the collection that batches come from; None for those so far.
        random_state: as in the estimator, for the start.
        last: the fit so far; None before the first batch.
    """
    if recipe.learn is not None:
        raise ValueError(f"expected learn=None, as partial_fit learns no hyperparameters; got {recipe.learn!r}")
    labels = None if y is None else np.array([None if c < 0 else c for c in y.tolist()], object)
    data = as_data(X) if y is None else as_data(X, labels, group_names=range(num_classes))
    priors = recipe.priors if last is None else last.priors
    priors = _first_priors(recipe, data, X, labels, total) if priors is None else priors
    if recipe.seeds is not None and last is None:
        priors = recipe.seeds.seed(priors, data, recipe.rank(data))
    _, [seed] = draw_seeds(random_state if last is None else 0, 1)
    fit = cavi.stream(
        iter([data]),
        priors,
        key=jax.random.key(seed),
        num_samples=total,
        rank=recipe.rank(data),
        start=last,
        init=recipe.init,
        lam_start=recipe.lam_start,
        accelerate=recipe.accelerate,
    )
    return jax.device_get(fit)  # type: ignore[no-any-return]  # NumPy arrays, for portable pickles


def _first_priors(recipe: Recipe, data: Data, X: Any, labels: NDArray[Any] | None, total: int | None) -> Priors:
    """Return the default priors for a collection that begins with this batch."""
    plan(data, recipe.num_components(data)).check()
    levels = None if labels is None else range(data.num_groups)
    with quiet():  # see `parameters.warn_of_choices`
        return sampled_priors(X, labels, group_names=levels, num_samples=total, **recipe.prior_options())


def memory_of(fit: Fit, transform_by: str) -> Memory:
    """Return what predictions need: the dictionary and the sizes of classes, but no samples."""
    groups = None if fit.stream is None else fit.stream.groups
    shares = None if groups is None else np.maximum(groups, 0.5) / np.maximum(groups, 0.5).sum()
    priors: Any = fit.priors
    return Memory([fit.posterior], [priors], 0, [0], transform_by, shares, np.array([], int), {}, {})
