"""What a sweep is measured against: its floor, a plain NumPy CAVI, and scikit-learn's NMF."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from measure import Clock, seconds
from scipy.special import gammaln, psi
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gsnmf.model import Data, Priors


class NumpyFloor:
    """Three products and a division, into arrays that are already there."""

    def __init__(self, X: np.ndarray, K: int) -> None:
        F, N = X.shape
        self.X, self.T, self.V = X, np.ones((F, K), X.dtype), np.ones((K, N), X.dtype)
        self.M, self.S_T, self.S_V = np.empty_like(X), np.empty_like(self.T), np.empty_like(self.V)

    def __call__(self, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
        """ξ = X / (T V),  ξ Vᵀ,  Tᵀ ξ, so many times."""
        for _ in range(sweeps):
            np.matmul(self.T, self.V, out=self.M)
            np.divide(self.X, self.M, out=self.M)
            np.matmul(self.M, self.V.T, out=self.S_T)
            np.matmul(self.T.T, self.M, out=self.S_V)
        return self.S_T, self.S_V


@partial(jax.jit, static_argnames="sweeps")
def jax_floor(X: jax.Array, T: jax.Array, V: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array]:
    """Run the same in one compiled loop; T and V move a little, so that no pass can be optimised away."""

    def one(factors: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        T, V = factors
        xi = X / (T @ V)
        return (T + 1e-9 * (xi @ V.T), V + 1e-9 * (T.T @ xi)), None

    return jax.lax.scan(one, (T, V), None, length=sweeps)[0]


class NumpyState(NamedTuple):
    """Shapes A and scales B of the factors; exp E[log] of T and V."""

    A_t: np.ndarray
    B_t: np.ndarray
    A_v: np.ndarray
    B_v: np.ndarray
    A_l: np.ndarray
    B_l: np.ndarray
    g_T: np.ndarray  # noqa: N815 (the paper's letters)
    g_V: np.ndarray  # noqa: N815 (the paper's letters)


class NumpyCavi:
    """Coordinate ascent as a NumPy user would write it: the formulas, SciPy's ψ and log Γ, no tricks.

    The bound is taken one sweep late, when M is formed anyway, so that it costs no product here either.
    """

    def __init__(self, data: Data, priors: Priors, dtype: str) -> None:
        def cast(array: object) -> np.ndarray:
            return np.asarray(array, dtype)

        self.X, self.membership = cast(data.X), cast(data.membership)
        (self.a_t, self.b_t), (self.a_l, self.b_l) = priors.dictionary, priors.coefficients.hyperprior
        self.a_t, self.b_t, self.a_l, self.b_l = map(cast, (self.a_t, self.b_t, self.a_l, self.b_l))
        self.log_factorial = gammaln(self.X + 1).sum(dtype=float)

    def start(self, T: np.ndarray, V: np.ndarray, lam: np.ndarray) -> NumpyState:
        """The state with these means; its shapes are not yet meaningful."""
        T, V, lam = (np.asarray(E, self.X.dtype) for E in (T, V, lam))
        one_T, one_V, one_l = np.ones_like(T), np.ones_like(V), np.ones_like(lam)
        return NumpyState(one_T, T, one_V, V, one_l, lam, T + T.dtype.type(1e-12), V + V.dtype.type(1e-12))

    def sweep(self, q: NumpyState) -> tuple[NumpyState, float]:
        """The next state, and the bound of the state given."""
        M = q.g_T @ q.g_V
        elbo = self.bound(q, M)
        xi = self.X / M
        A_t = self.a_t + q.g_T * (xi @ q.g_V.T)
        B_t = 1 / (1 / self.b_t + (q.A_v * q.B_v).sum(axis=1)) * np.ones_like(A_t)
        A_v = 1 + q.g_V * (q.g_T.T @ xi)
        B_v = 1 / ((q.A_l * q.B_l) @ self.membership.T + (A_t * B_t).sum(axis=0)[:, None])
        A_l = self.a_l + self.membership.sum(axis=0)
        B_l = 1 / (1 / self.b_l + (A_v * B_v) @ self.membership)
        return NumpyState(A_t, B_t, A_v, B_v, A_l, B_l, B_t * np.exp(psi(A_t)), B_v * np.exp(psi(A_v))), elbo

    def bound(self, q: NumpyState, M: np.ndarray) -> float:
        """The data, −KL(q(T) ‖ p(T)), −KL(q(Λ) ‖ p(Λ)), E log p(V | Λ) and the entropy of q(V)."""
        E_v, E_l = q.A_v * q.B_v, q.A_l * q.B_l
        L_l = psi(q.A_l) + np.log(q.B_l)
        fit = (self.X * np.log(M)).sum(dtype=float) - self.log_factorial
        fit -= ((q.A_t * q.B_t).sum(axis=0) * E_v.sum(axis=1)).sum()
        prior_V = (L_l @ self.membership.T - (E_l @ self.membership.T) * E_v).sum(dtype=float)
        entropy_V = (q.A_v + np.log(q.B_v) + gammaln(q.A_v) + (1 - q.A_v) * psi(q.A_v)).sum(dtype=float)
        kl_T, kl_l = kl(q.A_t, q.B_t, self.a_t, self.b_t), kl(q.A_l, q.B_l, self.a_l, self.b_l)
        return float(fit + prior_V + entropy_V - kl_T - kl_l)


def kl(A: np.ndarray, B: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """KL(Gamma(A, B) ‖ Gamma(a, b)), summed."""
    each = (A - a) * psi(A) - gammaln(A) + gammaln(a) + a * (np.log(b) - np.log(B)) + A * (B / b - 1)
    return float(each.sum(dtype=float))


def sklearn_iteration(X: np.ndarray, K: int, iterations: int) -> Clock:
    """Seconds per iteration of scikit-learn's KL-NMF: a fit with so many more iterations, less one with one.

    Args:
        X: samples × features, as scikit-learn has it.
        K: components.
        iterations: how many more.
    """

    def fit(max_iter: int) -> float:
        model = NMF(
            K, init="random", solver="mu", beta_loss="kullback-leibler", tol=0, max_iter=max_iter, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return seconds(lambda: model.fit(X))

    fit(1)
    return lambda: (fit(1 + iterations) - fit(1)) / iterations


def fewest_seconds(clocks: dict[str, Clock], judge: str) -> tuple[dict[str, Clock], int]:
    """The same clocks with as many BLAS threads as are fastest now, and how many these are.

    On a busy machine OpenBLAS's threads wait for each other, and one is faster than all: the peers get that chance.
    """

    def limited(clock: Clock, threads: int) -> float:
        with threadpool_limits(threads, "blas"):
            return clock()

    counts = sorted({1, os.cpu_count() or 1})
    threads = min(counts, key=lambda n: np.median([limited(clocks[judge], n) for _ in range(3)]))
    return {name: partial(limited, clock, threads) for name, clock in clocks.items()}, threads


def ones(X: jax.Array, K: int) -> tuple[jax.Array, jax.Array]:
    """Factors for the floor."""
    return jnp.ones((X.shape[0], K), X.dtype), jnp.ones((K, X.shape[1]), X.dtype)
