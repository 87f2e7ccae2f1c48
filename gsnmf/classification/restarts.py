"""The estimator's fits: priors, restarts, and the choice of the restart to keep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from tqdm import tqdm

from ..inference import Fit, Posterior, cavi
from ..inference.warning import ConvergenceWarning, quiet, warn
from ..memory import components_of, plan
from ..model import Data, Priors, as_data, default_priors
from ..model.defaults import RANK, num_components
from ..model.forks import require_own_threads
from ..model.missing import with_nan
from ..model.priors import canonical
from ..sets import NamedSets
from .least_squares import nnls
from .projection import accuracy

ROUGH = 1e-4  # tolerance of fits that are only compared or judged: the last sweeps hardly matter there


class Recipe(NamedTuple):
    """The parameters of the estimator that determine a fit, given data and key."""

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
    seeds: NamedSets | None = None

    def roughly(self) -> Recipe:
        """Return the recipe of a fit that stops earlier, at the tolerance `ROUGH`, unless all sweeps are asked for."""
        return self if self.tol is None else self._replace(tol=max(self.tol, ROUGH))

    def make_priors(self, data: Data) -> Priors:
        """Return the priors given, or the default ones for these data, with seeds if there are any."""
        priors = self.priors
        if priors is None:
            plan(data, self.num_components(data)).check()
            with quiet():  # see `parameters.warn_of_choices`
                priors = default_priors(data, **self.prior_options())
        return priors if self.seeds is None else self.seeds.seed(priors, data, self.rank(data))

    def num_components(self, data: Data) -> int:
        """Return the number of components of the default priors."""
        options = self.prior_options()
        return num_components(data.num_groups, **{name: options[name] for name in ("rank", "per_group", "common")})

    def prior_options(self) -> dict[str, Any]:
        """Return the options of `default_priors`, by name."""
        names = ("common", "prior", "small", "large", "scale", "a_t", "b_t")
        return {name: getattr(self, name) for name in names} | {"per_group": self.per_class, "rank": self.n_components}

    def rank(self, data: Data) -> int | None:
        """Return the number of components, where the priors' shapes leave it open."""
        return self.n_components or (RANK if self.priors is None and data.num_groups == 0 else None)

    def run(self, data: Data, priors: Priors, key: Any, begin: Posterior | None = None) -> Fit:
        """Fit once, starting from the means of `begin` if it is given."""
        start, lam_start = None, self.lam_start
        if begin is not None:
            # Coefficients at 0 would take many sweeps to grow.
            V = nnls(begin.T.mean, with_nan(data))
            shared = "sample" not in canonical(priors).coefficients.axes  # else λ belongs to those samples only
            lam = begin.lam.mean if begin.lam is not None and shared else None
            start, lam_start = cavi.start(T=begin.T.mean, V=V + 0.01 * V.mean(), lam=lam), "prior"
        options = {
            "init": self.init,
            "lam_start": lam_start,
            "max_steps": self.max_iter,
            "tol": self.tol,
            "accelerate": self.accelerate,
        }
        # With unlabelled samples a fit warm-starts from the labelled ones, which are initialised by `init`: on digits,
        # "random" made the better classifier there too. `gsnmf fit` and `choose_rank` do the same.
        options |= {"learn": self.learn, "labels": cavi.labelling_for(data, self.init)}
        fit = cavi.run(data, priors, key=key, start=start, rank=self.rank(data), **options)  # type: ignore[arg-type]  # a mixture
        return fit._replace(posterior=jax.device_get(fit.posterior))  # NumPy arrays, for portable pickles


class Found(NamedTuple):
    """Fits from several starts.

    fits: one for each key; bounds: the last bound of each.
    scores: the ranking criterion, ties broken by the bound; best: the index of the winner.
    sound: indices of the fits whose bounds are finite.
    """

    fits: list[Fit]
    bounds: NDArray[Any]
    scores: NDArray[Any]
    best: int
    sound: list[int]


def draw_seeds(random_state: Any, num_restarts: int) -> tuple[int, list[int]]:
    """Draw a seed for the validation part, then one for each restart; the former does not depend on their number.

    `gsnmf fit --seed N` uses the seed of the first restart of random_state=N, so that both give the same fit.
    """
    require_own_threads()  # before the first key
    try:
        rng = check_random_state(random_state)
    except ValueError:
        raise ValueError(
            f"expected random_state to be None, a whole number or a RandomState of NumPy; got {random_state!r}"
        ) from None
    part = int(rng.randint(2**31 - 1))
    return part, [int(seed) for seed in rng.randint(2**31 - 1, size=num_restarts)]


def data_with_index(X: NDArray[Any], y: NDArray[Any] | None) -> Data:
    """Build Data from X (features × samples) and class indices, −1 for unlabelled samples; or samples × labels."""
    if y is None or y.ndim == 2 or (y >= 0).all():
        return as_data(X, y)
    return as_data(X, [None if c < 0 else c for c in y.tolist()])


def by_bound(recipe: Recipe, X: NDArray[Any], y: NDArray[Any] | None, keys: Sequence[Any], verbose: int) -> Found:
    """Fit once for each key and keep the highest bound. X: features × samples; y: class indices, −1 if unlabelled."""
    data = data_with_index(X, y)
    fits, sound = _run_all(recipe, data, recipe.make_priors(data), keys, verbose)
    bounds = np.array([fit.elbo[-1] for fit in fits])
    return Found(fits, bounds, bounds, max(sound, key=lambda r: bounds[r]), sound)


def by_validation(
    recipe: Recipe, X: NDArray[Any], y: NDArray[Any], parts: Sequence[NDArray[Any]], keys: Sequence[Any], verbose: int
) -> Found:
    """Fit the first part once for each key; resume the fit of highest 1-NN accuracy on the second with all samples.

    Starting again with all samples from the same key might lead to another optimum than the one that was assessed;
    keeping the dictionary that was assessed would waste the second part. Resuming avoids both, in few sweeps.
    A fit whose bound is not finite has accuracy NaN. Unlabelled samples, −1, belong to the first part and do not count
    towards the accuracy.
    """
    data = data_with_index(X[:, parts[0]], y[parts[0]])
    old, new = ((X[:, part], y[part]) for part in (parts[0][y[parts[0]] >= 0], parts[1]))
    fits, sound = _run_all(recipe, data, recipe.make_priors(data), keys, verbose)
    bounds, scores = np.array([fit.elbo[-1] for fit in fits]), np.full(len(fits), np.nan)
    scores[sound] = [accuracy(fits[r].posterior.T.mean, *old, *new) for r in sound]
    best = max(sound, key=lambda r: (scores[r], bounds[r]))
    data = data_with_index(X, y)
    [fits[best]], _ = _run_all(recipe, data, recipe.make_priors(data), [keys[best]], 0, begin=fits[best].posterior)
    return Found(fits, bounds, scores, best, sound)


def _run_all(
    recipe: Recipe, data: Data, priors: Priors, keys: Sequence[Any], verbose: int, begin: Posterior | None = None
) -> tuple[list[Fit], list[int]]:
    """Fit once for each key; return the fits and the indices of those with finite bounds. Warn once, of all others."""
    planned = plan(data, components_of(priors, recipe.n_components)).check()
    if verbose:
        print(f"gsnmf: {planned}", file=sys.stderr)
    with quiet():  # one warning below; `in_use_` reports unused components, and columns of 0 do no harm here
        fits = [recipe.run(data, priors, key, begin) for key in tqdm(keys, unit="restart", disable=not verbose)]
    sound = [r for r, fit in enumerate(fits) if fit.is_finite]
    broken = [fit for r, fit in enumerate(fits) if r not in sound]
    if not sound:
        raise ValueError(
            f"expected a fit with a finite bound; got 0 of {len(fits)}. {broken[0].message} Check the scale of X."
        )
    late = [fits[r] for r in sound if recipe.tol is not None and not fits[r].converged]
    said = []
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        said.append(f"{count}{late[0].message} Raise max_iter or tol.")
    if broken:
        said.append(f"{len(broken)} of {len(fits)} fits failed and are left out. {broken[0].message}")
    if said:
        warn(" ".join(said), ConvergenceWarning, stacklevel=5)
    return fits, sound


def hold_out(y: NDArray[Any], classes: NDArray[Any], fraction: float, seed: int) -> list[NDArray[Any]]:
    """Split samples into indices for fitting and for validation, stratified, at least one of each class in both.

    Args:
        y: class indices; −1 for unlabelled samples, which are used for fitting.
        classes: the class labels.
        fraction: the proportion for validation.
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
