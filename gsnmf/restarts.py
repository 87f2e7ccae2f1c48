"""What the estimator is made of: its priors, fits from several starts, and which of them to keep."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from .inference import Fit, Posterior, cavi, fold_in
from .model import Data, Gamma, GroupSparse, Priors, as_data, label_driven, matching, relative_rates
from .model.checks import whole
from .model.problem import prepare
from .model.relative import LARGE, SMALL
from .projection import nearest_cosine, nnls

# Shares of a sample's counts, and shapes of λ as in the paper's tables.
SHAPES = {"relative": (SMALL, LARGE), "paper": (32.0, 256.0)}
ALONE = 10  # components of a model without labels


class Recipe(NamedTuple):
    """All that decides a fit besides data and key; the fields are the estimator's parameters of those names."""

    n_components: int | None
    per_class: int
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
        if self.prior == "relative":
            rates = relative_rates(data, per_group, small, large, self.scale, rank=self.n_components)
        else:
            rates = label_driven(per_group, data.num_groups, small, large, self.scale, rank=self.n_components)
        return Priors(dictionary, GroupSparse(rates))

    def run(self, data: Data, priors: Priors, key: Any, begin: Posterior | None = None) -> Fit:
        """One fit; from these factors' means, if given."""
        rank = self.n_components or (ALONE if self.priors is None and data.num_groups == 0 else None)
        rank = prepare(data, priors, rank)[2]
        start = None
        if begin is not None:
            # Coefficients at 0 would take many sweeps to grow.
            V = nnls(begin.T.mean, data.X)
            start = cavi.start(T=begin.T.mean, V=V + 0.01 * V.mean(), lam=begin.lam and begin.lam.mean)
        elif self.lam_start == "shape":
            start = cavi.start_at_shape(data, priors, rank)
        options = {"init": self.init, "max_steps": self.max_iter, "tol": self.tol, "accelerate": self.accelerate}
        fit = cavi.run(data, priors, key=key, start=start, rank=rank, **options)  # type: ignore[arg-type]  # a mixture
        return fit._replace(posterior=jax.device_get(fit.posterior))  # NumPy's arrays: pickles go anywhere


class Found(NamedTuple):
    """What several starts led to.

    fits: one for each key; bounds: the last bound of each.
    scores: what they were ranked by, the bound among equals; best: which won.
    priors: those of all training samples.
    """

    fits: list[Fit]
    bounds: NDArray[Any]
    scores: NDArray[Any]
    best: int
    priors: Priors


def by_bound(recipe: Recipe, X: NDArray[Any], y: NDArray[Any] | None, keys: Sequence[Any], verbose: int) -> Found:
    """A fit for each key; the highest bound wins. X: features × samples."""
    data = as_data(X, y)
    priors = recipe.make_priors(data)
    fits = _run_all(recipe, data, priors, keys, verbose)
    bounds = np.array([fit.elbo[-1] for fit in fits])
    return Found(fits, bounds, bounds, int(bounds.argmax()), priors)


def by_validation(
    recipe: Recipe, X: NDArray[Any], y: NDArray[Any], parts: Sequence[NDArray[Any]], keys: Sequence[Any], verbose: int
) -> Found:
    """A fit of the first part for each key; the best 1-NN accuracy on the second wins, and goes on with all samples.

    To begin anew with all samples, from the same key, might lead to another optimum than the one that was judged; to
    leave it at the dictionary that was judged would waste the second part. As it is, both are seen, in few sweeps.
    """
    data = as_data(X[:, parts[0]], y[parts[0]])
    fits = _run_all(recipe, data, recipe.make_priors(data), keys, verbose)
    bounds = np.array([fit.elbo[-1] for fit in fits])
    scores = np.array([validation_score(X, y, parts, fit.posterior.T.mean) for fit in fits])
    best = int(np.lexsort((bounds, scores))[-1])
    data = as_data(X, y)
    priors = recipe.make_priors(data)
    [fits[best]] = _run_all(recipe, data, priors, [keys[best]], 0, begin=fits[best].posterior)
    return Found(fits, bounds, scores, best, priors)


def _run_all(
    recipe: Recipe, data: Data, priors: Priors, keys: Sequence[Any], verbose: int, begin: Posterior | None = None
) -> list[Fit]:
    """One fit for each key. All that did not converge give one warning together."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        fits = [recipe.run(data, priors, key, begin) for key in tqdm(keys, unit="restart", disable=not verbose)]
    late = [warning for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    for warning in caught:
        if warning not in late:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        warnings.warn(f"{count}{late[0].message} Raise max_iter or tol.", ConvergenceWarning, stacklevel=4)
    return fits


def represent(X: NDArray[Any], posterior: Posterior, priors: Priors, by: str, shares: Any = None) -> NDArray[Any]:
    """Samples (features × samples) as coefficients, components × samples: "nnls" or "posterior"."""
    if by == "nnls":
        return nnls(posterior.T.mean, X)
    return np.asarray(fold_in(X, posterior, priors).mean(shares), float)


def hold_out(y: NDArray[Any], classes: NDArray[Any], fraction: float, seed: int) -> list[NDArray[Any]]:
    """Indices of the samples to fit and of those to validate with: of every class at least one in either."""
    sizes = np.bincount(y)
    if sizes.min() < 2:
        few = classes[sizes.argmin()]
        raise ValueError(f"expected 2 samples or more of every class for select='validation'; got 1 of class {few}")
    size = min(max(math.ceil(fraction * len(y)), len(sizes)), len(y) - len(sizes))
    return list(train_test_split(np.arange(len(y)), test_size=size, stratify=y, random_state=seed))


def validation_score(X: NDArray[Any], y: NDArray[Any], parts: Sequence[NDArray[Any]], T: NDArray[Any]) -> float:
    """1-NN accuracy in the space of T on the second part of the samples, their neighbours being the first."""
    old, new = (nnls(T, X[:, part]) for part in parts)
    return float(np.mean(nearest_cosine(old, y[parts[0]], new) == y[parts[1]]))


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
    whole("max_iter", recipe.max_iter, 1)
    if recipe.n_components is not None:
        whole("n_components", recipe.n_components, 1)
    if recipe.priors is not None and not isinstance(recipe.priors, Priors):
        raise ValueError(f"expected priors to be None or gsnmf.model.Priors; got {recipe.priors!r}")
    check_choice("prior", recipe.prior, tuple(SHAPES))
    check_choice("lam_start", recipe.lam_start, ("prior", "shape"))
