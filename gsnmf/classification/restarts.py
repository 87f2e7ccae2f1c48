"""What the estimator is made of: its priors, fits from several starts, and which of them to keep."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from tqdm import tqdm

from ..inference import DeadComponentsWarning, Fit, Posterior, cavi, fold_in
from ..model import (
    Data,
    Gamma,
    GroupSparse,
    Priors,
    as_data,
    common_and_individual,
    matching,
    relative_rates,
    structured,
)
from ..model.missing import with_nan
from ..model.priors import canonical
from ..model.problem import Problem
from ..model.units import LARGE, SMALL
from .projection import accuracy, nnls

# Shares of a sample's counts, and shapes of λ as in the paper's tables.
SHAPES = {"relative": (SMALL, LARGE), "paper": (32.0, 256.0)}
ALONE = 10  # components of a model without labels


class Recipe(NamedTuple):
    """All that decides a fit besides data and key; the fields are the estimator's parameters of those names."""

    n_components: int | None
    per_class: int
    common: int
    prior: str
    small: float | None
    large: float | None
    a_t: float
    b_t: float
    scale: float
    priors: Priors | None
    init: str
    lam_start: str
    max_iter: int
    tol: float | None
    accelerate: bool
    learn: cavi.Learn | None

    def make_priors(self, data: Data) -> Priors:
        """The priors of these data: group sparse with labels, Gamma without."""
        if self.priors is not None:
            return self.priors
        dictionary = Gamma(self.a_t, self.b_t)
        if data.num_groups == 0:
            return Priors(dictionary, matching(data, dictionary, self.n_components or ALONE))
        small, large = (
            default if given is None else given
            for given, default in zip((self.small, self.large), SHAPES[self.prior], strict=True)
        )
        per_group = self.per_class if self.n_components is None else None
        structure = common_and_individual(self.common, per_group, data.num_groups, rank=self.n_components)
        if self.prior == "relative":
            rates = relative_rates(data, None, small, large, self.scale, structure=structure)
        else:
            rates = structured(structure, small, large, self.scale)
        return Priors(dictionary, GroupSparse(rates))

    def run(self, data: Data, priors: Priors, key: Any, begin: Posterior | None = None) -> Fit:
        """One fit; from these factors' means, if given."""
        rank = self.n_components or (ALONE if self.priors is None and data.num_groups == 0 else None)
        rank = Problem(data, priors, rank).rank
        start = None
        if begin is not None:
            # Coefficients at 0 would take many sweeps to grow.
            V = nnls(begin.T.mean, with_nan(data))
            shared = "sample" not in canonical(priors).coefficients.axes  # else λ is of those samples alone
            lam = begin.lam.mean if begin.lam is not None and shared else None
            start = cavi.start(T=begin.T.mean, V=V + 0.01 * V.mean(), lam=lam)
        elif self.lam_start == "shape":
            start = cavi.start_at_shape(data, priors, rank)
        options = {"init": self.init, "max_steps": self.max_iter, "tol": self.tol, "accelerate": self.accelerate}
        # With labels unknown a fit begins with the labelled samples, and these from `init`: on digits, "random" made
        # the better classifier there too.
        options |= {"learn": self.learn, "labels": cavi.labelling(warm_start=self.init)}
        fit = cavi.run(data, priors, key=key, start=start, rank=rank, **options)  # type: ignore[arg-type]  # a mixture
        return fit._replace(posterior=jax.device_get(fit.posterior))  # NumPy's arrays: pickles go anywhere


class Found(NamedTuple):
    """What several starts led to.

    fits: one for each key; bounds: the last bound of each.
    scores: what they were ranked by, the bound among equals; best: which won.
    sound: those whose bounds are finite.
    """

    fits: list[Fit]
    bounds: NDArray[Any]
    scores: NDArray[Any]
    best: int
    sound: list[int]


def draw_seeds(random_state: Any, num_restarts: int) -> tuple[int, list[int]]:
    """A seed for the validation part, drawn first so that it is the same for any number of restarts; one for each."""
    rng = check_random_state(random_state)
    part = int(rng.randint(2**31 - 1))
    return part, [int(seed) for seed in rng.randint(2**31 - 1, size=num_restarts)]


def labelled(X: NDArray[Any], y: NDArray[Any] | None) -> Data:
    """Data of samples (features × samples) and the indices of their classes, −1 where a label is unknown."""
    if y is None or (y >= 0).all():
        return as_data(X, y)
    return as_data(X, [None if c < 0 else c for c in y.tolist()])


def by_bound(recipe: Recipe, X: NDArray[Any], y: NDArray[Any] | None, keys: Sequence[Any], verbose: int) -> Found:
    """A fit for each key; the highest bound wins. X: features × samples; y: classes, −1 where unknown."""
    data = labelled(X, y)
    fits, sound = _run_all(recipe, data, recipe.make_priors(data), keys, verbose)
    bounds = np.array([fit.elbo[-1] for fit in fits])
    return Found(fits, bounds, bounds, max(sound, key=lambda r: bounds[r]), sound)


def by_validation(
    recipe: Recipe, X: NDArray[Any], y: NDArray[Any], parts: Sequence[NDArray[Any]], keys: Sequence[Any], verbose: int
) -> Found:
    """A fit of the first part for each key; the best 1-NN accuracy on the second wins, and goes on with all samples.

    To begin anew with all samples, from the same key, might lead to another optimum than the one that was judged; to
    leave it at the dictionary that was judged would waste the second part. As it is, both are seen, in few sweeps.
    A fit whose bound is not finite has no accuracy, NaN. Samples without a label, −1, are in the first part and have no
    say in the accuracy.
    """
    data = labelled(X[:, parts[0]], y[parts[0]])
    old, new = ((X[:, part], y[part]) for part in (parts[0][y[parts[0]] >= 0], parts[1]))
    fits, sound = _run_all(recipe, data, recipe.make_priors(data), keys, verbose)
    bounds, scores = np.array([fit.elbo[-1] for fit in fits]), np.full(len(fits), np.nan)
    scores[sound] = [accuracy(fits[r].posterior.T.mean, *old, *new) for r in sound]
    best = max(sound, key=lambda r: (scores[r], bounds[r]))
    data = labelled(X, y)
    [fits[best]], _ = _run_all(recipe, data, recipe.make_priors(data), [keys[best]], 0, begin=fits[best].posterior)
    return Found(fits, bounds, scores, best, sound)


def _run_all(
    recipe: Recipe, data: Data, priors: Priors, keys: Sequence[Any], verbose: int, begin: Posterior | None = None
) -> tuple[list[Fit], list[int]]:
    """One fit for each key, and which of them have finite bounds. All that went amiss give one warning together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DeadComponentsWarning)  # `in_use_` says it, and columns of 0 do no harm here
        fits = [recipe.run(data, priors, key, begin) for key in tqdm(keys, unit="restart", disable=not verbose)]
    sound = [r for r, fit in enumerate(fits) if np.isfinite(fit.elbo).all()]
    broken = [fit for r, fit in enumerate(fits) if r not in sound]
    if not sound:
        raise ValueError(
            f"expected a fit with a finite bound; got none out of {len(fits)}. {broken[0].message} Is X scaled well?"
        )
    late = [fits[r] for r in sound if recipe.tol is not None and not fits[r].converged]
    said = []
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        said.append(f"{count}{late[0].message} Raise max_iter or tol.")
    if broken:
        said.append(f"{len(broken)} of {len(fits)} fits broke off and are left out. {broken[0].message}")
    if said:
        warnings.warn(" ".join(said), ConvergenceWarning, stacklevel=5)
    return fits, sound


def represent(X: NDArray[Any], posterior: Posterior, priors: Priors, by: str, shares: Any = None) -> NDArray[Any]:
    """Samples (features × samples) as coefficients, components × samples: "nnls" or "posterior"."""
    if by == "nnls":
        return nnls(posterior.T.mean, X)
    return np.asarray(fold_in(posterior, X, priors).mean(shares), float)


def hold_out(y: NDArray[Any], classes: NDArray[Any], fraction: float, seed: int) -> list[NDArray[Any]]:
    """Indices of the samples to fit and of those to validate with: this share of every class, at least one in either.

    Args:
        y: which class each sample is of, as indices; −1 if that is unknown, and then it is among those to fit.
        classes: what they are called.
        fraction: the share to validate with.
        seed: of the draw.
    """
    sizes = np.bincount(y[y >= 0], minlength=len(classes))
    if sizes.min() < 2:
        few = classes[sizes.argmin()]
        raise ValueError(f"expected 2 samples or more of every class for select='validation'; got 1 of class {few}")
    rng = np.random.default_rng(seed)
    counts = [max(1, min(size - 1, round(fraction * size))) for size in sizes]
    held = [rng.choice(np.flatnonzero(y == c), count, replace=False) for c, count in enumerate(counts)]
    part = np.sort(np.concatenate(held))
    return [np.setdiff1d(np.arange(len(y)), part), part]
