"""The digamma and log-gamma functions: the only place where they are computed.

XLA's own versions cost more than the three matrix products of a sweep. Here both are read off
one asymptotic series at y = x + n, and brought back to x by the recurrence

    ψ(x) = ψ(y) − Σ_{k<n} 1/(x+k)        log Γ(x) = log Γ(y) − log Π_{k<n} (x+k).

The factors pair up: with u = x(x+n−1), (x+k)(x+n−1−k) = u + k(n−1−k), so that n/2 terms do the work
of n, and the two functions share log y, 1/y and the paired factors.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from .types import Array

# n, and how many terms of the series: the first omitted term at y = n is below the unit roundoff.
_SHIFT = {np.dtype(np.float32): (6, 3), np.dtype(np.float64): (10, 8)}
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ...


def digamma_gammaln(x: Array) -> tuple[Array, Array]:
    """(ψ(x), log Γ(x)) for x > 0, elementwise, in the precision of x.

    >>> [round(float(f), 4) for f in digamma_gammaln(jnp.asarray(1.0))]
    [-0.5772, 0.0]
    """
    x = jnp.asarray(x, jnp.result_type(x, float))
    n, terms = _SHIFT[x.dtype]
    y, u = x + n, x * (x + (n - 1))
    log_y, r = jnp.log(y), 1 / y
    r2 = r * r
    slope, product = 1 / u, u * r2
    for k in range(1, n // 2):
        v = u + k * (n - 1 - k)
        slope, product = slope + 1 / v, product * (v * r2)
    psi_tail, gammaln_tail = jnp.zeros_like(y), jnp.zeros_like(y)
    for j in range(terms, 0, -1):
        psi_tail = psi_tail * r2 + _BERNOULLI[j - 1] / (2 * j)
        gammaln_tail = gammaln_tail * r2 + _BERNOULLI[j - 1] / (2 * j * (2 * j - 1))
    psi = log_y - 0.5 * r - psi_tail * r2 - (2 * x + (n - 1)) * slope
    # The product was formed of (x+k)/y, which cannot overflow; y^n went into the factor of log y.
    gammaln = (y - (n + 0.5)) * log_y - y + 0.5 * math.log(2 * math.pi) + gammaln_tail * r - jnp.log(product)
    return psi, gammaln


def digamma(x: Array) -> Array:
    """ψ(x) = d log Γ(x) / dx."""
    return digamma_gammaln(x)[0]


def gammaln(x: Array) -> Array:
    """Log Γ(x)."""
    return digamma_gammaln(x)[1]
