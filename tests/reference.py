"""The model's bound and updates with explicit loops: slow, plain, and sharing nothing with the library.

Factors are dicts of nested (shape, scale) arrays; q(S) is an explicit array p of features × components × samples.
NumPy and SciPy, except for what is being differentiated: JAX's operations one by one would take seconds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special


def digamma(x):
    return (jax.scipy.special if isinstance(x, jax.Array) else special).digamma(x)


def gammaln(x):
    return (jax.scipy.special if isinstance(x, jax.Array) else special).gammaln(x)


def log(x):
    return (jnp if isinstance(x, jax.Array) else np).log(x)


def plain(tree):
    """As NumPy arrays, except for what is being differentiated."""
    return jax.tree.map(lambda x: x if isinstance(x, jax.core.Tracer) else np.asarray(x), tree)


def entries(x):
    """By index: {(f, i): x[f, i], ...}."""
    return {index: x[index] for index in np.ndindex(x.shape)}


def mean(q, *index):
    return q[0][index] * q[1][index]


def log_mean(q, *index):
    return digamma(q[0][index]) + log(q[1][index])


def log_gamma_density(a, b, x, log_x):
    """E log Gamma(x | a, b) from E[x] and E[log x]."""
    return (a - 1) * log_x - x / b - a * log(b) - gammaln(a)


def gamma_entropy(q):
    a, b = q[0], q[1]
    return -(a - 1) * digamma(a) + log(b) + a + gammaln(a)


def allocation(X, log_T, log_V):
    """p_νiτ ∝ exp(E[log t] + E[log v]), one entry of X at a time."""
    F, N = X.shape
    p = np.zeros((F, log_T.shape[1], N))
    for f in range(F):
        for n in range(N):
            w = np.exp(log_T[f] + log_V[:, n] - np.max(log_T[f] + log_V[:, n]))
            p[f, :, n] = w / w.sum()
    return p


def bound(X, z, T, V, lam, p, prior_T, prior_V, terms=None, W=None, rows=None, shape=1.0):
    """ℒ(q) = E log p(X, S, T, V, λ) + H(q), for any factors and any q(S).

    prior_T: (a, b) matrices. prior_V: (a, b) of λ, components × groups; or of V, components × samples, if lam is None.
    W: features × samples, 0 where x is hidden; ones when left out.
    The λ of v_in is that of row rows[i] and column z[n], rows are components when left out; shape is v's given λ.
    """
    X, T, V, lam, p, prior_T, prior_V = plain((X, T, V, lam, p, prior_T, prior_V))
    F, N = X.shape
    W = np.ones((F, N)) if W is None else W
    K = V[0].shape[0]
    rows = np.arange(K) if rows is None else rows
    (t, log_t), (v, log_v) = ((entries(mean(q)), entries(log_mean(q))) for q in (T, V))
    out = dict.fromkeys(("x", "T", "V", "lam"), 0.0)
    for f in range(F):
        for n in range(N):
            if not W[f, n]:
                continue
            for i in range(K):
                # E log Poisson(s | t v) + H(multinomial); the log s! of the two cancel but for log x!
                out["x"] += X[f, n] * p[f, i, n] * (log_t[f, i] + log_v[i, n])
                out["x"] -= t[f, i] * v[i, n]
                out["x"] -= X[f, n] * special.xlogy(p[f, i, n], p[f, i, n])
            out["x"] -= gammaln(X[f, n] + 1)
    entropy = entries(gamma_entropy(T))
    for f in range(F):
        for i in range(K):
            a, b = prior_T[0][f, i], prior_T[1][f, i]
            out["T"] += log_gamma_density(a, b, t[f, i], log_t[f, i]) + entropy[f, i]
    entropy = entries(gamma_entropy(V))
    if lam is not None:
        rate, log_rate = entries(mean(lam)), entries(log_mean(lam))
    for i in range(K):
        for n in range(N):
            if lam is None:
                out["V"] += log_gamma_density(prior_V[0][i, n], prior_V[1][i, n], v[i, n], log_v[i, n])
            else:
                r, log_r = rate[rows[i], z[n]], log_rate[rows[i], z[n]]
                out["V"] += shape * log_r + (shape - 1) * log_v[i, n] - r * v[i, n] - gammaln(shape)
            out["V"] += entropy[i, n]
    if lam is not None:
        entropy = entries(gamma_entropy(lam))
        for i, c in rate:
            a, b = prior_V[0][i, c], prior_V[1][i, c]
            out["lam"] += log_gamma_density(a, b, rate[i, c], log_rate[i, c]) + entropy[i, c]
    return sum(out.values()) if terms is None else out


def nmf_vb(X, prior_T, prior_V, T, V, sweeps):
    """Cemgil's nmf_vb (2009): E[T], E[V] and the bound after every sweep, from starting means, in NumPy and SciPy.

    L = exp E[log], E = mean, S the expected counts of each source; hyperparameters are shapes and scales.
    """
    (a_T, b_T), (a_V, b_V) = prior_T, prior_V
    L_T, L_V, E_V, bounds = T + 1e-12, V + 1e-12, V, []
    for _ in range(sweeps):
        ratio = X / (L_T @ L_V)
        S_T, S_V = L_T * (ratio @ L_V.T), L_V * (L_T.T @ ratio)
        alpha_T, beta_T = a_T + S_T, 1 / (1 / b_T + E_V.sum(axis=1))
        E_T = alpha_T * beta_T
        alpha_V, beta_V = a_V + S_V, 1 / (1 / b_V + E_T.sum(axis=0)[:, None])
        E_V = alpha_V * beta_V
        L_T, L_V = np.exp(special.digamma(alpha_T)) * beta_T, np.exp(special.digamma(alpha_V)) * beta_V
        bound = (X * np.log(L_T @ L_V) - special.gammaln(X + 1)).sum() - (E_T @ E_V).sum()
        for a, b, alpha, beta, E, L in ((a_T, b_T, alpha_T, beta_T, E_T, L_T), (a_V, b_V, alpha_V, beta_V, E_V, L_V)):
            prior = (a - 1) * np.log(L) - E / b - special.gammaln(a) - a * np.log(b)
            entropy = -(alpha - 1) * special.digamma(alpha) + np.log(beta) + alpha + special.gammaln(alpha)
            bound += (prior + entropy).sum()
        bounds.append(bound)
    return E_T, E_V, np.array(bounds)
