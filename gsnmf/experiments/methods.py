"""The four methods of the paper: each learns a space from training samples and maps samples into it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF, PCA
from sklearn.exceptions import ConvergenceWarning

from ..classification.projection import nnls
from ..inference import DeadComponentsWarning, Fit, cavi
from ..inference.diagnostics import collapsed_bound
from ..model import Data, Gamma, GroupSparse, Priors, as_data, label_driven

Array: TypeAlias = NDArray[Any]
COLLAPSED_DRAWS = 8  # rows of results have the standard error along with the estimate


class Space(NamedTuple):
    """A space learned by a method.

    project: map from features × samples to components × samples, the same for training and test samples.
    sweeps: number of sweeps.
    bound: the augmented bound of a variational method, else None.
    made: the fit, data and priors of a variational method, else None.
    """

    project: Callable[[Array], Array]
    sweeps: int = 0
    bound: float | None = None
    made: tuple[Fit, Data, Priors] | None = None

    def collapsed(self, seed: int) -> tuple[float, float] | None:
        """Return the collapsed bound and its standard error; None without a bound.

        Using the same seed for several spaces leaves less noise in their differences.
        """
        if self.made is None:
            return None
        fit, data, priors = self.made
        found = collapsed_bound(fit, data, priors, key=jax.random.key(seed), num_samples=COLLAPSED_DRAWS)
        return float(found.value), float(found.error)


def pca(X: Array, labels: Array, seed: int, *, rank: int) -> Space:
    """Fit principal components, most significant first.

    Args:
        X: features × samples.
        labels: not used.
        seed: not used: principal components do not depend on a start.
        rank: number of components.
    """
    learned = PCA(rank, svd_solver="full").fit(X.T)
    return Space(lambda Y: learned.transform(Y.T).T)


def nmf_kl(X: Array, labels: Array, seed: int, *, rank: int, l1: float, max_steps: int = 300) -> Space:
    """Fit NMF by scikit-learn's multiplicative updates of the KL divergence, with an L1 penalty on the coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: seed of the random start.
        rank: number of components.
        l1: the weight of the penalty, as scikit-learn scales it.
        max_steps: number of iterations, all of which are made.
    """
    model = NMF(
        rank, solver="mu", beta_loss="kullback-leibler", init="random", random_state=seed, max_iter=max_steps, tol=0,
        alpha_W=l1, alpha_H=0.0, l1_ratio=1.0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's protocol is a number of iterations
        model.fit(np.asarray(X.T, np.float32))
    T = model.components_.T
    return Space(partial(nnls, T), model.n_iter_)


def nmf_vb(
    X: Array,
    labels: Array,
    seed: int,
    *,
    rank: int,
    a_t: float,
    b_t: float,
    a_v: float,
    b_v: float,
    max_steps: int = 300,
    tol: float | None = None,
    accelerate: bool = False,
) -> Space:
    """Fit Cemgil's variational NMF: our engine, with Gamma priors on dictionary and coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: seed of the random start.
        rank: number of components.
        a_t: shape of the dictionary's prior.
        b_t: scale of the dictionary's prior.
        a_v: shape of the coefficients' prior.
        b_v: scale of the coefficients' prior.
        max_steps: maximum number of sweeps; all are made, as in the paper, unless there is a tol.
        tol: as in `cavi.run`.
        accelerate: as in `cavi.run`.
    """
    options = {"max_steps": max_steps, "tol": tol, "accelerate": accelerate}
    return _variational(as_data(X), Priors(Gamma(a_t, b_t), Gamma(a_v, b_v)), seed, rank=rank, **options)


def nmf_gs(
    X: Array,
    labels: Array,
    seed: int,
    *,
    rank: int,
    a_t: float,
    b_t: float,
    small: float,
    large: float,
    scale: float = 1e6,
    lam_start: str = "shape",
    init: str = "random",
    max_steps: int = 300,
    tol: float | None = None,
    accelerate: bool = False,
) -> Space:
    """Fit the paper's model with its prior (11): components bound to classes.

    Args:
        X: features × samples.
        labels: one per sample: the groups.
        seed: seed of the random start.
        rank: total number of components.
        a_t: shape of the dictionary's prior.
        b_t: scale of the dictionary's prior.
        small: shape of λ where a component is bound.
        large: shape of λ elsewhere.
        scale: scale of λ.
        lam_start: initialisation of λ: "prior", its prior mean as in the author's program, or "shape", its shape.
        init: as in `cavi.run`.
        max_steps: maximum number of sweeps; all are made, as in the paper, unless there is a tol.
        tol: as in `cavi.run`.
        accelerate: as in `cavi.run`.
    """
    if lam_start not in ("prior", "shape"):
        raise ValueError(f"expected lam_start to be 'prior' or 'shape'; got {lam_start!r}")
    data = as_data(X, labels)
    rates = label_driven(rank=rank, num_groups=data.num_groups, small=small, large=large, scale=scale)
    priors = Priors(Gamma(a_t, b_t), GroupSparse(rates))
    start = cavi.start_at_shape(data, priors) if lam_start == "shape" else None
    options = {"max_steps": max_steps, "tol": tol, "accelerate": accelerate}
    return _variational(data, priors, seed, start=start, init=init, **options)


def _variational(data: Data, priors: Priors, seed: int, **options: Any) -> Space:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's protocol is a number of sweeps
        warnings.simplefilter("ignore", DeadComponentsWarning)  # sweeps over shapes go where components die
        fit: Fit = cavi.run(data, priors, key=jax.random.key(seed), **options)
    if not np.isfinite(fit.elbo[-1]):
        raise ValueError(
            f"expected a finite bound with these settings, from seed {seed}; got {fit.elbo[-1]}: {fit.message}"
        )
    T = np.asarray(fit.posterior.T.mean, float)
    return Space(partial(nnls, T), fit.num_steps, float(fit.elbo[-1]), (fit, data, priors))


METHODS: dict[str, Callable[..., Space]] = {"pca": pca, "nmf_kl": nmf_kl, "nmf_vb": nmf_vb, "nmf_gs": nmf_gs}


def resolve(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a method, with defaults filled in and numbers converted to their types.

    Args:
        method: name of the method.
        settings: some of its settings by name.

    >>> resolve("pca", {"rank": 5})
    {'rank': 5}
    """
    if method not in METHODS:
        raise ValueError(f"expected a method out of {', '.join(METHODS)}; got {method!r}")
    known = {k: p for k, p in inspect.signature(METHODS[method]).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for name in settings:
        if name not in known:
            raise ValueError(f"expected a setting of {method} out of {', '.join(known)}; got {name!r}")
    found = {name: settings.get(name, parameter.default) for name, parameter in known.items()}
    missing = [name for name, value in found.items() if value is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"expected {method} with {', '.join(missing)}; got {', '.join(settings) or 'no settings'}")
    real = [name for name, parameter in known.items() if str(parameter.annotation).startswith("float")]
    return {k: float(v) if k in real and isinstance(v, int) else v for k, v in found.items()}
