"""The four methods of the paper: each learns a space from training samples, and maps samples into it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF, PCA
from sklearn.exceptions import ConvergenceWarning

from ..inference import Fit, cavi
from ..inference.collapsed import collapsed_bound
from ..model import Data, Gamma, GroupSparse, Priors, as_data, label_driven
from ..projection import nnls

Matrix: TypeAlias = NDArray[Any]
COLLAPSED_DRAWS = 8  # of which the standard error is far below the differences between restarts


class Space(NamedTuple):
    """What a method has learned.

    project: features × samples to components × samples, the same map for training and test samples.
    sweeps: how many it made.
    bound: the augmented bound, of a variational method.
    collapsed: a function that estimates the collapsed bound, likewise.
    made: the fit, what it was fitted to, and its priors, likewise.
    """

    project: Callable[[Matrix], Matrix]
    sweeps: int = 0
    bound: float | None = None
    collapsed: Callable[[], float] | None = None
    made: tuple[Fit, Data, Priors] | None = None


def pca(X: Matrix, labels: Matrix, seed: int, *, rank: int) -> Space:
    """Principal components, most significant first.

    Args:
        X: features × samples.
        labels: not used.
        seed: of the solver.
        rank: how many components.
    """
    learned = PCA(rank, random_state=seed).fit(X.T)
    return Space(lambda Y: learned.transform(Y.T).T)


def nmf_kl(X: Matrix, labels: Matrix, seed: int, *, rank: int, l1: float, max_steps: int = 300) -> Space:
    """scikit-learn's multiplicative updates of the KL divergence, with an L1 penalty on the coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: of the random start.
        rank: how many components.
        l1: the weight of the penalty, as scikit-learn scales it.
        max_steps: iterations, all of which are made.
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
    X: Matrix, labels: Matrix, seed: int, *, rank: int, a_t: float, b_t: float, a_v: float, b_v: float, **options: Any
) -> Space:
    """Cemgil's variational NMF: our engine, with Gamma priors on dictionary and coefficients.

    Args:
        X: features × samples.
        labels: not used.
        seed: of the random start.
        rank: how many components.
        a_t: shape of the dictionary's prior.
        b_t: its scale.
        a_v: shape of the coefficients' prior.
        b_v: its scale.
        options: max_steps, tol and accelerate, as in `cavi.run`.
    """
    return _variational(as_data(X), Priors(Gamma(a_t, b_t), Gamma(a_v, b_v)), seed, rank=rank, **options)


def nmf_gs(
    X: Matrix,
    labels: Matrix,
    seed: int,
    *,
    rank: int,
    a_t: float,
    b_t: float,
    small: float,
    large: float,
    scale: float = 1e6,
    lam_start: str = "shape",
    **options: Any,
) -> Space:
    """The paper's model with its prior (11): components bound to classes.

    Args:
        X: features × samples.
        labels: one per sample: the groups.
        seed: of the random start.
        rank: how many components in all.
        a_t: shape of the dictionary's prior.
        b_t: its scale.
        small: shape of λ where a component is bound.
        large: shape of λ elsewhere.
        scale: of λ.
        lam_start: where λ starts: "prior", its prior mean as in the author's program, or "shape", its shape.
        options: init, max_steps, tol and accelerate, as in `cavi.run`.
    """
    data, priors = group_sparse(X, labels, rank, a_t, b_t, small, large, scale)
    start = cavi.start(lam=priors.coefficients.hyperprior.a) if lam_start == "shape" else None  # type: ignore[union-attr]  # it has one
    return _variational(data, priors, seed, start=start, **options)


def group_sparse(
    X: Matrix, labels: Matrix, rank: int, a_t: float, b_t: float, small: float, large: float, scale: float = 1e6
) -> tuple[Data, Priors]:
    """Data and priors of `nmf_gs`; the arguments are the same."""
    data = as_data(X, labels)
    rates = label_driven(rank=rank, num_groups=data.num_groups, small=small, large=large, scale=scale)
    return data, Priors(Gamma(a_t, b_t), GroupSparse(rates))


def _variational(data: Data, priors: Priors, seed: int, **options: Any) -> Space:
    # Plain sweeps, all 300 of them, as in the paper: a fit that is closer to its optimum classifies worse.
    options = {"max_steps": 300, "tol": None, "accelerate": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's protocol is a number of sweeps
        fit: Fit = cavi.run(data, priors, key=jax.random.key(seed), **options)

    def collapsed() -> float:
        return float(collapsed_bound(fit, data, priors, key=jax.random.key(seed), num_samples=COLLAPSED_DRAWS).value)

    T = np.asarray(fit.posterior.T.mean, float)
    return Space(partial(nnls, T), fit.num_steps, float(fit.elbo[-1]), collapsed, (fit, data, priors))


METHODS: dict[str, Callable[..., Space]] = {"pca": pca, "nmf_kl": nmf_kl, "nmf_vb": nmf_vb, "nmf_gs": nmf_gs}
