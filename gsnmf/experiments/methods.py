"""The paper's four methods: each learns a space from training samples and maps samples into it."""

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

from ..classification.least_squares import nnls
from ..inference import Fit, cavi
from ..inference.beginning import check_options
from ..inference.diagnostics import collapsed_bound
from ..inference.starts import check_lam_start, check_method
from ..inference.warning import quiet
from ..model import Data, Gamma, Priors, as_data, default_priors
from ..model.checks import whole
from ..model.defaults import SCALE

Array: TypeAlias = NDArray[Any]
POSITIVE = ("small", "large", "scale", "a_t", "b_t", "a_v", "b_v")  # settings
COLLAPSED_DRAWS = 8  # results have a column for its standard error


class Space(NamedTuple):
    """A space that a method has learned.

    project: map from features × samples to components × samples, the same for training and test samples.
    sweeps: number of sweeps.
    bound: the augmented bound; None if the method is not variational.
    made: the fit, its data and its priors; None if the method is not variational.
    """

    project: Callable[[Array], Array]
    sweeps: int = 0
    bound: float | None = None
    made: tuple[Fit, Data, Priors] | None = None

    def collapsed(self, seed: int) -> tuple[float, float] | None:
        """Estimate the collapsed bound and its standard error; None without a bound.

        Sharing a seed between spaces reduces the noise in their differences.
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
        seed: not used: the result does not depend on an initialisation.
        rank: number of components.
    """
    learned = PCA(rank, svd_solver="full").fit(X.T)
    return Space(lambda Y: learned.transform(Y.T).T)


def nmf_kl(X: Array, labels: Array, seed: int, *, rank: int, l1: float, max_steps: int = 300) -> Space:
    """Fit by scikit-learn's multiplicative updates of the KL divergence, with an L1 penalty on the coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: of the random initialisation.
        rank: number of components.
        l1: weight of the penalty, in scikit-learn's scaling.
        max_steps: number of iterations; there is no early stopping.
    """
    model = NMF(
        rank, solver="mu", beta_loss="kullback-leibler", init="random", random_state=seed, max_iter=max_steps, tol=0,
        alpha_W=l1, alpha_H=0.0, l1_ratio=1.0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's protocol fixes the number of iterations
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
    """Fit Cemgil's variational NMF: `cavi.run` with Gamma priors on dictionary and coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: of the random initialisation.
        rank: number of components.
        a_t: shape of the dictionary's prior.
        b_t: scale of the dictionary's prior.
        a_v: shape of the coefficients' prior.
        b_v: scale of the coefficients' prior.
        max_steps: sweeps at most; exactly as many, as in the paper, if tol is None.
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
    scale: float = SCALE,
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
        seed: of the random initialisation.
        rank: number of components in all.
        a_t: shape of the dictionary's prior.
        b_t: scale of the dictionary's prior.
        small: shape of λ where a component is bound.
        large: shape of λ elsewhere.
        scale: scale of λ's prior.
        lam_start: initialisation of λ: "prior", its prior mean as in the author's program, or "shape", its shape.
        init: as in `cavi.run`.
        max_steps: sweeps at most; exactly as many, as in the paper, if tol is None.
        tol: as in `cavi.run`.
        accelerate: as in `cavi.run`.
    """
    check_lam_start(lam_start)
    data = as_data(X, labels)
    with quiet():  # sweeps try any shapes
        priors = default_priors(data, rank=rank, prior="paper", small=small, large=large, scale=scale, a_t=a_t, b_t=b_t)
    options = {"lam_start": lam_start, "max_steps": max_steps, "tol": tol, "accelerate": accelerate}
    return _variational(data, priors, seed, init=init, **options)


def _variational(data: Data, priors: Priors, seed: int, **options: Any) -> Space:
    with quiet():  # the paper's protocol fixes the number of sweeps; some settings leave components unused
        fit: Fit = cavi.run(data, priors, key=jax.random.key(seed), **options)
    if not np.isfinite(fit.elbo[-1]):
        raise ValueError(
            f"expected a finite bound with these settings, from seed {seed}; got {fit.elbo[-1]}: {fit.message}"
        )
    T = np.asarray(fit.posterior.T.mean, float)
    return Space(partial(nnls, T), fit.num_steps, float(fit.elbo[-1]), (fit, data, priors))


METHODS: dict[str, Callable[..., Space]] = {"pca": pca, "nmf_kl": nmf_kl, "nmf_vb": nmf_vb, "nmf_gs": nmf_gs}


def resolve(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a method: defaults for those left out, numbers cast to the declared type.

    Args:
        method: name of the method.
        settings: some of its settings, by name.

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
    for name in found.keys() & {"rank", "max_steps"}:
        whole(name, found[name], 1)
    _check_run({name: value for name, value in found.items() if name in ("tol", "accelerate", "init", "lam_start")})
    for name in found.keys() & set(POSITIVE):
        if isinstance(found[name], bool) or not isinstance(found[name], (int, float)) or not 0 < found[name] < np.inf:
            raise ValueError(f"expected {name} to be a positive number; got {found[name]!r}")
    return {k: float(v) if k in real and isinstance(v, int) else v for k, v in found.items()}


def _check_run(given: Mapping[str, Any]) -> None:
    """Raise for options of a run that `cavi.run` would refuse in the first fold."""
    check_options(1, given.get("tol"), given.get("accelerate", True))
    if "init" in given:
        check_method(given["init"])
    if "lam_start" in given:
        check_lam_start(given["lam_start"])
