"""The model's bound and updates with explicit loops: slow, plain, and sharing nothing with the library.

Factors are dicts of nested (shape, scale) arrays; q(S) is an explicit array p of features × components × samples.
JAX's own special functions, so that the bound can be differentiated.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln


def mean(q, *index):
    return q[0][index] * q[1][index]


def log_mean(q, *index):
    return digamma(q[0][index]) + jnp.log(q[1][index])


def log_gamma_density(a, b, x, log_x):
    """E log Gamma(x | a, b) from E[x] and E[log x]."""
    return (a - 1) * log_x - x / b - a * jnp.log(b) - gammaln(a)


def gamma_entropy(q, *index):
    a, b = q[0][index], q[1][index]
    return -(a - 1) * digamma(a) + jnp.log(b) + a + gammaln(a)


def allocation(X, log_T, log_V):
    """p_νiτ ∝ exp(E[log t] + E[log v]), one entry of X at a time."""
    F, N = X.shape
    p = np.zeros((F, log_T.shape[1], N))
    for f in range(F):
        for n in range(N):
            w = np.exp(log_T[f] + log_V[:, n] - np.max(log_T[f] + log_V[:, n]))
            p[f, :, n] = w / w.sum()
    return p


def bound(X, z, T, V, lam, p, prior_T, prior_V, terms=None, W=None):
    """ℒ(q) = E log p(X, S, T, V, λ) + H(q), for any factors and any q(S).

    prior_T: (a, b) matrices. prior_V: (a, b) of λ, components × groups; or of V, components × samples, if lam is None.
    W: features × samples, 0 where x is hidden; ones when left out.
    """
    F, N = X.shape
    W = np.ones((F, N)) if W is None else W
    K = V[0].shape[0]
    out = dict.fromkeys(("x", "T", "V", "lam"), 0.0)
    for f in range(F):
        for n in range(N):
            if not W[f, n]:
                continue
            for i in range(K):
                # E log Poisson(s | t v) + H(multinomial); the log s! of the two cancel but for log x!
                out["x"] += X[f, n] * p[f, i, n] * (log_mean(T, f, i) + log_mean(V, i, n))
                out["x"] -= mean(T, f, i) * mean(V, i, n)
                out["x"] -= X[f, n] * jnp.where(p[f, i, n] > 0, p[f, i, n] * jnp.log(p[f, i, n]), 0.0)
            out["x"] -= gammaln(X[f, n] + 1)
    for f in range(F):
        for i in range(K):
            a, b = prior_T[0][f, i], prior_T[1][f, i]
            out["T"] += log_gamma_density(a, b, mean(T, f, i), log_mean(T, f, i)) + gamma_entropy(T, f, i)
    for i in range(K):
        for n in range(N):
            x, log_x = mean(V, i, n), log_mean(V, i, n)
            if lam is None:
                out["V"] += log_gamma_density(prior_V[0][i, n], prior_V[1][i, n], x, log_x)
            else:
                out["V"] += log_mean(lam, i, z[n]) - mean(lam, i, z[n]) * x
            out["V"] += gamma_entropy(V, i, n)
    if lam is not None:
        for i in range(K):
            for c in range(lam[0].shape[1]):
                a, b = prior_V[0][i, c], prior_V[1][i, c]
                out["lam"] += log_gamma_density(a, b, mean(lam, i, c), log_mean(lam, i, c)) + gamma_entropy(lam, i, c)
    return sum(out.values()) if terms is None else out
