"""The digamma and log-gamma functions, their derivatives, and a logarithm: the only place where they are computed.

XLA's own versions cost more than the three matrix products of a sweep. Here both are read off asymptotic series at
y = x + n, n even, and brought back to x by the recurrence

    ψ(x) = ψ(y) − Σ_{k<n} 1/(x+k)        log Γ(x) = log Γ(y) − Σ_{k<n} log(x+k).

The factors pair up: with u = x(x+n−1), (x+k)(x+n−1−k) = u + k(n−1−k). So one polynomial in u of degree n/2, and its
slope, give the sum by a single division and the product by a single logarithm; taken relative to y², neither overflows.

The code is shaped by XLA: if several loops have an expression in common, it stores divisions and logarithms and
computes the rest again. So `digamma` ends with its division and is stored once as a whole, and `log_entropy` shifts by
another n, so that the two have nothing else in common. Loops use `lax.mul` and `lax.add`: the same programs as by * and
+, but traced three times as fast, and these functions are most of what JAX traces in a fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import psi

from .types import Array

# (n, terms of the series): the first term left out, at y = n, is below the unit roundoff.
_FOR_DIGAMMA = {np.dtype(np.float32): (4, 4), np.dtype(np.float64): (10, 8)}
_FOR_GAMMALN = {np.dtype(np.float32): (6, 3), np.dtype(np.float64): (12, 7)}
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ...
_DIGAMMA = [B / (2 * j) for j, B in enumerate(_BERNOULLI, start=1)]
_GAMMALN = [B / (2 * j * (2 * j - 1)) for j, B in enumerate(_BERNOULLI, start=1)]

Kernel: TypeAlias = Callable[[Array], tuple[Array, Array]]  # see `computed_by`
LARGE = 1 << 14  # numbers in an array; below, the call of a kernel costs more than it saves
_kernel: ContextVar[Kernel | None] = ContextVar("kernel", default=None)


@contextmanager
def computed_by(kernel: Kernel | None) -> Iterator[None]:
    """Within, take ψ(x) and `log_entropy(x)` of large arrays from a compiled kernel; None for XLA.

    The kernel returns ψ(x) and the sums of `log_entropy(x)` along the last axis, so that no array of the latter is
    stored: **within, `log_entropy` returns their average along this axis**, which has the same sums when it broadcasts.
    XLA makes one call of the two if both are asked for. The choice is made while JAX traces: what is compiled inside by
    a `jax.jit` of its own may have been traced elsewhere.
    """
    token = _kernel.set(kernel)
    try:
        yield
    finally:
        _kernel.reset(token)


@jax.custom_jvp
def log(x: Array) -> Array:
    """Return log x for positive x that are not subnormal: in double precision faster than XLA's own.

    With x = 2ᵉ m and √½ ≤ m < √2, read off the bits of x, log x = e log 2 + 2 artanh s, where s = (m − 1) / (m + 1)
    is below 0.172, so that eleven terms of artanh s = s + s³/3 + s⁵/5 + … are exact to rounding.

    >>> round(float(log(jnp.asarray(10.0))), 4)
    2.3026
    """
    if x.dtype != np.float64:  # here XLA's own is as fast, and compiles faster
        return jnp.log(x)
    bits = lax.bitcast_convert_type(x, np.int64)
    e = (bits - 0x3FE6A09E667F3BCD) >> 52  # the bits of √½; 52 of the mantissa
    m = lax.bitcast_convert_type(bits - (e << 52), x.dtype)
    s = (m - 1) / (m + 1)
    exponent = e.astype(np.int32).astype(x.dtype)  # processors convert vectors of 32 bits only
    return exponent * math.log(2) + 2 * s * _series([1 / (2 * k + 1) for k in range(11)], s * s)


log.defjvps(lambda slope, _, x: slope / x)


def digamma(x: Array, times: Array = 1.0) -> Array:
    """Return ψ(x) + log(times), ψ(x) = d log Γ(x) / dx: E[log y] of a Gamma with shape x and scale `times`.

    >>> round(float(digamma(jnp.asarray(1.0))), 4)
    -0.5772
    """
    x = jnp.asarray(x, jnp.result_type(x, float))
    return _digamma(_kernel_for(x), x, jnp.asarray(times, x.dtype))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _digamma(kernel: Kernel | None, x: Array, times: Array) -> Array:
    if kernel is not None:
        return kernel(x)[0] + log(times)
    n, terms = _FOR_DIGAMMA[x.dtype]
    y, r, product, slope = _shifted(x, n)
    return (product * (log(y * times) + _digamma_series(r, terms)) - slope) / product


@_digamma.defjvp
def _digamma_jvp(
    kernel: Kernel | None, primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    value, (x, times), (dx, dtimes) = _digamma(kernel, *primals), primals, tangents
    return value, jnp.broadcast_to(dx * polygamma(1, x), value.shape) + dtimes / times


def log_entropy(x: Array) -> Array:
    """Return x + log Γ(x) − x ψ(x): the entropy of log y for y ~ Gamma(x, any scale); see also `computed_by`.

    It is of order log x, but its terms are of order x log x: they are cancelled analytically here.

    >>> round(float(log_entropy(jnp.asarray(1.0))), 4)  # 1 + Euler's constant
    1.5772
    """
    x = jnp.asarray(x, jnp.result_type(x, float))
    return _log_entropy(_kernel_for(x), x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_entropy(kernel: Kernel | None, x: Array) -> Array:
    if kernel is not None:
        return kernel(x)[1][..., None] / x.shape[-1]
    n, terms = _FOR_GAMMALN[x.dtype]
    y, r, product, slope = _shifted(x, n)
    rest = _digamma_series(r, terms) - slope / product
    tail = _gammaln_series(r, terms)
    return (0.5 * math.log(2 * math.pi) - n) + tail - x * rest - log(product * jnp.sqrt(y))


@_log_entropy.defjvp
def _log_entropy_jvp(kernel: Kernel | None, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    slope = dx * (1 - x * polygamma(1, x))
    return _log_entropy(kernel, x), slope if kernel is None else slope.mean(axis=-1, keepdims=True)


def _kernel_for(x: Array) -> Kernel | None:
    return _kernel.get() if x.size >= LARGE else None


def gammaln(x: Array) -> Array:
    """Return log Γ(x)."""
    return _gammaln(jnp.asarray(x, jnp.result_type(x, float)))


@jax.custom_jvp
def _gammaln(x: Array) -> Array:
    n, terms = _FOR_GAMMALN[x.dtype]
    y, r, product, _ = _shifted(x, n)
    return (x - 0.5) * log(y) - y + 0.5 * math.log(2 * math.pi) + _gammaln_series(r, terms) - log(product)


_gammaln.defjvps(lambda slope, _, x: slope * digamma(x))


def polygamma(m: int, x: Array) -> Array:
    """Return the m-th derivative of ψ, m ≥ 1, by its series at y = x + n and the recurrence down to x.

    (−1)^(m+1) ψ^(m)(x) = (m−1)!/y^m + m!/(2 y^(m+1)) + Σ_j B_2j (2j+m−1)!/(2j)! / y^(2j+m) + m! Σ_{k<n} 1/(x+k)^(m+1)

    >>> round(float(polygamma(1, jnp.asarray(1.0))), 4)  # π²/6
    1.6449
    """
    return _polygamma(m, x)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _polygamma(m: int, x: Array) -> Array:
    n, terms = _FOR_GAMMALN[x.dtype]
    y = x + n
    coefficients = [B * math.factorial(2 * j + m - 1) / math.factorial(2 * j) for j, B in enumerate(_BERNOULLI, 1)]
    series = math.factorial(m - 1) + math.factorial(m) / (2 * y) + _series(coefficients[:terms], y**-2) / y**2
    shifted = sum((x + k) ** -(m + 1) for k in range(n))
    return (-1) ** (m + 1) * (series / y**m + math.factorial(m) * shifted)


@_polygamma.defjvp
def _polygamma_jvp(m: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _polygamma(m, *primals), tangents[0] * _polygamma(m + 1, *primals)


def exp_digamma(x: np.ndarray) -> np.ndarray:
    """Return exp ψ(x) of a NumPy array, by SciPy: for reading results, where compilation would take longer.

    >>> round(float(exp_digamma(np.ones(1))[0]), 4)
    0.5615
    """
    value: np.ndarray = np.exp(psi(x))
    return value


def _shifted(x: Array, n: int) -> tuple[Array, Array, Array, Array]:
    """Return y = x + n, 1/y, P = Π_{k<n} (x+k)/y, and the slope with ψ(x) = ψ(y) − slope / P."""
    y = x + n
    r = 1 / y
    r2 = r * r
    u = (x * r) * ((x + (n - 1)) * r)
    product, slope = lax.full_like(x, 1.0), lax.full_like(x, 0.0)
    for k in range(n // 2):
        factor = lax.add(u, lax.mul(r2, x.dtype.type(k * (n - 1 - k))))
        product, slope = lax.mul(product, factor), lax.add(lax.mul(slope, factor), product)
    return y, r, product, (2 * x + (n - 1)) * r * (r * slope)


def _digamma_series(r: Array, terms: int) -> Array:
    """Return ψ(y) − log y at r = 1/y."""
    r2 = r * r
    return -0.5 * r - r2 * _series(_DIGAMMA[:terms], r2)


def _gammaln_series(r: Array, terms: int) -> Array:
    """Return log Γ(y) − (y − ½) log y + y − ½ log 2π at r = 1/y."""
    return r * _series(_GAMMALN[:terms], r * r)


def _series(coefficients: list[float], r2: Array) -> Array:
    """Return Σ_j c_j r2^j by Horner's rule."""
    value = lax.full_like(r2, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = lax.add(lax.mul(value, r2), r2.dtype.type(c))
    return value


def shape_of_gap(gap: Array) -> Array:
    """Return a with log a − ψ(a) = gap > 0: between 1/(2 gap) and 1/gap, as a (log a − ψ(a)) falls from 1 to ½."""

    def excess(u: Array) -> Array:
        share = jnp.clip(jnp.exp(u) * (u - digamma(jnp.exp(u))), 0.5, 1.0)
        return jnp.log(share) - u - jnp.log(gap)

    return jnp.clip(_newton(excess, -jnp.log(gap)), 0.5 / gap, 1 / gap)


def inverse_digamma(value: Array) -> Array:
    """Return a with ψ(a) = value, by Newton's method from Minka's start."""
    euler = np.euler_gamma
    large = value >= -2.22
    u = jnp.where(large, jnp.log(jnp.exp(value) + 0.5), -jnp.log(-jnp.where(large, -2.22, value) - euler))
    return _newton(lambda u: digamma(jnp.exp(u)) - value, u)


def _newton(f: Callable[[Array], Array], u: Array) -> Array:
    """Return a = exp(u) with f(u) = 0: in log a it stays positive, and the functions above are nearly linear."""

    def step(_: int, u: Array) -> Array:
        value, slope = jax.jvp(f, (u,), (jnp.ones_like(u),))
        return u - value / slope

    return jnp.exp(lax.fori_loop(0, 5, step, u))
