"""Linear response: covariances and sensitivities of the posterior from the curvature of the bound at its optimum.

If t·g is added to the log density, the optimum of the bound moves, and so does E[f] for any other f:

    Cov(f, g) ≈ d E_q*[f]/dt = ∇E[f]ᵀ (−∇²ℒ)⁻¹ ∇E[g]            (Giordano, Broderick and Jordan, 2018)
    d E_q*[f]/dα = ∇E[f]ᵀ (−∇²ℒ)⁻¹ ∂²ℒ/∂η∂α                      for a hyperparameter α

with gradients and Hessian in any parameters η of q. The mean field's own widths ignore that its factors depend on each
other; these do not. They correct widths, not means. Means are corrected by the same argument, one order further. The
bound lacks the Gaussian fluctuations around its optimum, which add c = −½ log det(−∇²ℒ), relative to the Fisher
information of q, to log p(X); and E[f] is the derivative of log p(X) by t, hence

    log p(X) ≈ ℒ + c              E[f] ≈ E_q*[f] + ∇E[f]ᵀ (−∇²ℒ)⁻¹ ∇c + ½ tr((−∇²ℒ)⁻¹ ∇²E[f]).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.checks import require_flag, require_fraction, whole
from ..model.conjugacy import moves_rates
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .curvature import (
    Factorised,
    as_statistic,
    bend,
    by_priors,
    conjugate_gradients,
    factorised,
    fluctuation,
    fluctuation_slope,
    slope,
)
from .posterior import Fit, Posterior
from .refinement import Located, prepared
from .response_draws import quantiles_of_normals, scale_free, sites
from .starts import check_key
from .statistics import Statistic, require_entries, require_numbers, require_sites, require_statistic
from .supports import SUPPORTS, within

DENSE = 3e7  # numbers of a Hessian in memory at most: 240 MB
NUMBERS = 2**25  # of gradients in memory at once
PRODUCTS = 50  # by conjugate gradients for one statistic, about
BLOCK = 8  # right-hand sides of conjugate gradients at once
_NOT_AN_OPTIMUM = (
    "expected a fit at its optimum; got one where the bound curves upwards: continue it by cavi.run(data, priors, "
    "start=fit, tol=1e-9) or cavi.refine(fit, data, tol=1e-9), or set jax_enable_x64"
)
LARGE = 1.0  # standard deviations by which a mean of a refined fit may be corrected without a warning
FAR = 0.2  # standard deviations by which a statistic may still move without a warning


def linear_response(
    fit: Fit | Posterior, data: Data | Problem, priors: Priors | None = None, *, tol: float = 1e-3
) -> LinearResponse:
    """Return an object that gives widths, intervals, means and sensitivities of functions of the posterior.

    Args:
        fit: a `Fit` of `cavi.run`, or better of `cavi.refine`, at its optimum; or its `Posterior`, which is taken for
            one of `cavi.run`. Factors must be Gamma.
        data: the data that it was fitted to.
        priors: by default those of the fit.
        tol: the relative residual at which conjugate gradients stop. The error of a variance is of the second order in
            it, those of covariances and sensitivities of the first. Not used for small problems, whose Hessian is
            factorised.

    Functions f take a `Posterior` and return a number or an array, written with the `mean` and `log_mean` of its
    factors. For a function of several means, such as a proportion, the width is that of its linearisation.

        total       lambda q: (q.T.mean @ q.V.mean).sum()
        entry       lambda q: q.T.mean[3] @ q.V.mean[:, 5]
        proportion  lambda q: q.V.mean[0] * q.T.mean[:, 0].sum() / (q.T.mean @ q.V.mean).sum(axis=0)
        rate        lambda q: q.lam.log_mean
        profile     lambda q: q.T.mean[:, 0] / q.T.mean[:, 0].sum()

    Widths belong to the mode that the fit is in; permutations of equal components are other modes. Hyperparameters that
    were learned are taken as fixed.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[30.0, 10.0], [5.0, 20.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 10.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> response = linear_response(fit, data)
    >>> round(float(response.sd(lambda q: (q.T.mean @ q.V.mean).sum())))  # about √65, as of a Poisson total
    8
    """
    if not isinstance(fit, (Fit, Posterior)):
        raise ValueError(
            f"expected a Fit, as made by cavi.run or cavi.refine, or its Posterior; got {type(fit).__name__}"
        )
    if isinstance(fit, Fit) and fit.bound not in ("augmented", "collapsed"):
        raise ValueError(f"expected a Fit at the optimum of a bound; got one of {fit.bound}")
    require_fraction("tol", tol)
    problem, located = prepared(fit, data, priors, "linear response")
    return LinearResponse(problem, located, getattr(fit, "bound", "augmented"), tol)


class LinearResponse:
    """The response of a fit to small changes of its log density; made by `linear_response`.

    problem: the problem of the fit.
    bound: the bound at whose optimum the fit is, "augmented" or "collapsed".
    num_products: products with the Hessian so far, in conjugate gradients.
    """

    problem: Problem
    bound: str
    num_products: int

    def __init__(self, problem: Problem, optimum: Located, bound: str, tol: float) -> None:
        self.problem, self.bound, self.num_products = problem, bound, 0
        self._optimum, self._tol = optimum, tol
        self._last: tuple[Statistic, Array, Callable[[Array], Array]] | None = None  # linearised: it is asked for again

    def __repr__(self) -> str:
        how = "can be factorised" if self.is_dense else "by conjugate gradients"
        return f"LinearResponse({self.bound} bound, {self.size} coordinates, {how})"

    @property
    def size(self) -> int:
        """The number of coordinates: two for each entry of T, V and λ."""
        return self._optimum.around.size

    @property
    def is_dense(self) -> bool:
        """True if the Hessian can be factorised, as is done for many statistics: then further ones cost little."""
        return self.size * self.border <= DENSE and self.problem.data.num_unlabelled == 0

    @property
    def border(self) -> int:
        """The number of coordinates outside blocks, each of which takes a product to factorise."""
        q = self._optimum.around.origin
        return int(self.size - 2 * max(q.T.a.size, q.V.a.size))

    @property
    def posterior(self) -> Posterior:
        """The factors at the optimum."""
        return self._optimum.around.origin.posterior

    def mean(self, f: Statistic, corrected: bool = False) -> np.ndarray:
        """Return E[f], in the shape of f: f of the fit itself, or corrected for fluctuations around the optimum.

        Args:
            f: of a `Posterior`, to a number or an array.
            corrected: whether to correct. That needs the Hessian in memory and all labels known, and the first time
                takes longer than a width. On data drawn from the model it brought means to within a third of a standard
                deviation of exact ones (docs/checks.md). It is an expansion: where components are poorly identified,
                corrections are large and may be worse than none. Above one standard deviation they are reported in a
                `ConvergenceWarning` if the fit was refined.
        """
        require_flag("corrected", corrected)
        values, pull = self._linearised(f)
        if not corrected:
            return np.asarray(values, float)
        self._require_correction()
        shifts = np.concatenate([solved @ self._fluctuation for _, solved in self._solved(values, pull)])
        moved = shifts.reshape(values.shape) + self._bend(f)
        self._warn_of_large(np.abs(moved), self.sd(f))
        return np.asarray(np.asarray(values, float) + moved)

    def sd(self, f: Statistic) -> np.ndarray:
        """Return the standard deviation of f, in the shape of f.

        Args:
            f: of a `Posterior`, to a number or an array.
        """
        values, pull = self._linearised(f)
        variances = [(g * solved).sum(axis=1) for g, solved in self._solved(values, pull)]
        return np.asarray(np.sqrt(np.maximum(np.concatenate(variances), 0)).reshape(values.shape))

    def mean_field_sd(self, f: Statistic) -> np.ndarray:
        """Return the standard deviation of f in the mean field, as if its factors were independent; linearised, too."""
        values, pull = self._linearised(f)
        blocks = self._blocks(values)
        return np.concatenate([np.linalg.norm(self._slopes(values, pull, *b), axis=1) for b in blocks]).reshape(
            values.shape
        )

    def cov(self, f: Statistic, g: Statistic | None = None) -> np.ndarray:
        """Return the covariances of f and g, in the shape of f followed by that of g; of f with itself by default.

        Args:
            f: of a `Posterior`, to a number or an array.
            g: another function, or None.
        """
        values, pull = self._linearised(f)
        others, pull_g = (values, pull) if g is None else self._linearised(g)
        if others.size * self.size > NUMBERS:
            raise ValueError(
                f"expected at most {NUMBERS // self.size} entries of g for a covariance; got {others.size}"
            )
        slopes = self._slopes(others, pull_g, 0, others.size)
        found = np.concatenate([solved @ slopes.T for _, solved in self._solved(values, pull)])
        return found.reshape(*values.shape, *others.shape)

    def interval(
        self, f: Statistic, prob: float = 0.9, *, support: str = "real", corrected: bool = False
    ) -> np.ndarray:
        """Return central intervals of f, in the shape of f followed by 2.

        Args:
            f: of a `Posterior`, to a number or an array.
            prob: the probability of an interval.
            support: of f: "real" for normal, "positive" for Gamma and "unit" for Beta quantiles, with the mean and
                standard deviation of f.
            corrected: whether to correct the mean, as in `mean`.
        """
        require_fraction("prob", prob)
        require_flag("corrected", corrected)
        if not isinstance(support, str) or support not in SUPPORTS:
            raise ValueError(f"expected support to be one of {', '.join(map(repr, SUPPORTS))}; got {support!r}")
        plain, sd = self.mean(f), self.sd(f)
        if (support != "real" and (plain <= 0).any()) or (support == "unit" and (plain >= 1).any()):
            raise ValueError(f"expected f within the support {support!r}; got {plain.min():g} to {plain.max():g}")
        mean = plain if not corrected else within(support, plain, self.mean(f, corrected=True))
        tails = np.array([(1 - prob) / 2, (1 + prob) / 2])
        return SUPPORTS[support](tails, mean[..., None], np.maximum(sd, np.finfo(float).tiny)[..., None])

    def sensitivity(self, f: Statistic) -> Priors:
        """Return the derivative of E[f] by every hyperparameter, as `Priors` of arrays.

        Args:
            f: of a `Posterior`, to a number or an array.

        Each array has the axes of f, followed by the two of the hyperparameter (see `Problem`). A hyperparameter that
        is one number for all entries has one derivative, that of moving it for all of them.
        """
        values, pull = self._linearised(f)
        parts = [
            jax.device_get(by_priors(self.bound, self._optimum, jnp.asarray(solved, self.problem.dtype)))
            for _, solved in self._solved(values, pull)
        ]
        joined: Priors = jax.tree.map(lambda *x: np.concatenate(x).reshape(*values.shape, *x[0].shape[1:]), *parts)
        return joined

    def shift(self, f: Statistic) -> np.ndarray:
        """Return how far E[f] still is from the optimum, by one step of Newton's method: 0 after convergence."""
        values, pull = self._linearised(f)
        shifts = [solved @ self._slope for _, solved in self._solved(values, pull, check=False)]
        return np.concatenate(shifts).reshape(values.shape)

    def log_evidence(self) -> float:
        """Return ℒ − ½ log det(−∇²ℒ), relative to the Fisher information of q: about log p(X), and not a bound.

        It is that of the fit's mode alone: for exact values and errors see `evidence`.
        """
        self._require_correction()
        value = self._optimum.bound(self.bound)(self._optimum.zero)
        return float(value) + fluctuation(self._optimum, self._factor)

    def draws(self, num_samples: int, *, key: Array, corrected: bool = False) -> dict[str, np.ndarray]:
        """Return draws of T, V and λ with the covariance of linear response, 1 × draws × ... by site.

        Args:
            num_samples: the number of draws.
            key: a JAX key.
            corrected: whether to correct their means, as in `mean`.

        They are Gamma variables joined by a Gaussian copula (see `response_draws`). Like corrections, they need the
        Hessian in memory and all labels known.
        """
        whole("num_samples", num_samples, 1)
        require_flag("corrected", corrected)
        check_key(key)
        self._require_correction()
        moving = moves_rates(self.problem.priors.coefficients)

        def both(q: Posterior) -> Array:
            return jnp.concatenate(scale_free(q, moving))

        values, pull = self._linearised(both)
        num_logs = self.problem.rank
        seed = np.asarray(jax.random.bits(key, (4,), np.uint32))
        normal = np.random.default_rng(seed).standard_normal((num_samples, self.size))
        moves = self._factor.half(normal)
        moved = np.concatenate([moves @ self._slopes(values, pull, *block).T for block in self._blocks(values)], axis=1)
        plain, sd = np.asarray(values, float), self.sd(both)
        mean = self.mean(both, corrected=True) if corrected else plain
        positive = within("positive", plain[:-num_logs], mean[:-num_logs])
        z = moved[:, :-num_logs] / np.maximum(sd[:-num_logs], np.finfo(float).tiny)
        gammas = quantiles_of_normals(z, positive, sd[:-num_logs])
        q = self._optimum.around.origin.posterior
        return sites(gammas, mean[-num_logs:] + moved[:, -num_logs:], q, moving)

    def _require_correction(self) -> None:
        if self.problem.data.num_unlabelled > 0:
            number = self.problem.data.num_unlabelled
            raise ValueError(f"expected data without unlabelled samples for corrections; got {number} of them")
        if not self.is_dense:
            raise ValueError(
                f"expected a problem whose Hessian fits in {DENSE:.0e} numbers for corrections; got {self.size} "
                "coordinates: sd, cov, interval and sensitivity take larger problems"
            )

    @cached_property
    def _factor(self) -> Factorised:
        found = factorised(self.bound, self._optimum)
        if found is None:
            raise ValueError(_NOT_AN_OPTIMUM)
        return found

    @cached_property
    def _slope(self) -> np.ndarray:
        return np.asarray(slope(self.bound, self._optimum), float)

    @cached_property
    def _fluctuation(self) -> np.ndarray:
        return fluctuation_slope(self.bound, self._optimum, self._factor)

    def _linearised(self, f: Statistic) -> tuple[Array, Callable[[Array], Array]]:
        """Return f at the optimum, and the map from cotangents of f to gradients in the coordinates."""
        if self._last is not None and self._last[0] is f:
            return self._last[1:]
        require_statistic(f, self._optimum.around.origin.posterior)
        try:  # compiled as a whole: there may be a hundred operations in f and the factors
            values, pull = jax.vjp(jax.jit(self._of(f)), self._optimum.zero)
        except AttributeError as error:
            require_sites(error, self._optimum.around.origin.posterior)
            raise
        except (jax.errors.JAXTypeError, TypeError) as error:
            kind = type(error).__name__
            raise ValueError(
                f"expected f to be written with JAX, so that it can be differentiated; got {kind} in f"
            ) from error
        require_entries(values)
        self._last = f, values, lambda g: pull(g)[0]
        return self._last[1:]

    def _of(self, f: Statistic) -> Callable[[Array], Array]:
        """Return f as a function of the coordinates."""
        return lambda u: as_statistic(lambda q: require_numbers(f(q)), self.bound, self._optimum, u)

    def _slopes(self, values: Array, pull: Callable[[Array], Array], begin: int, end: int) -> np.ndarray:
        """Return the gradients of entries begin to end of f, entries × coordinates."""
        units = jnp.eye(end - begin, values.size, k=begin, dtype=values.dtype)
        slopes = np.asarray(jax.vmap(pull)(units.reshape(-1, *values.shape)), float)
        if not np.isfinite(slopes).all():
            raise ValueError("expected f to have finite derivatives at the optimum; got NaN or infinity")
        if slopes.size and not slopes.any():
            raise ValueError("expected f to depend on the factors, and not by steps; got derivatives of 0")
        return slopes

    def _factorises(self, num_sides: int) -> bool:
        """Return whether to factorise: if that was done already, or takes fewer products than so many solutions."""
        return self.is_dense and ("_factor" in vars(self) or num_sides * PRODUCTS > self.border)

    def _blocks(self, values: Array) -> list[tuple[int, int]]:
        size = max(1, NUMBERS // max(self.size, values.size)) if self._factorises(values.size) else BLOCK
        return [(begin, min(begin + size, values.size)) for begin in range(0, values.size, size)]

    def _solved(
        self, values: Array, pull: Callable[[Array], Array], check: bool = True
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield gradients g and solutions of −∇²ℒ x = g, entries × coordinates, a block of entries of f at a time."""
        for begin, end in self._blocks(values):
            slopes = self._slopes(values, pull, begin, end)
            solved = self._factor.solve(slopes) if self._factorises(values.size) else self._iterated(slopes)
            if check:
                self._warn_of_shift(slopes, solved)
            yield slopes, solved

    def _iterated(self, slopes: np.ndarray) -> np.ndarray:
        number = 1 << (len(slopes) - 1).bit_length()  # few sizes: every one is compiled
        lengths = np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), np.finfo(float).tiny)
        sides = np.concatenate([slopes / lengths, np.zeros((number - len(slopes), self.size))])
        found = conjugate_gradients(self.bound, self._optimum, jnp.asarray(sides, self.problem.dtype), self._tol)
        if not np.asarray(found.is_convex).all():
            raise ValueError(_NOT_AN_OPTIMUM)
        self.num_products += int(np.asarray(found.steps).sum())
        left = float(np.asarray(found.residual).max())
        if left > self._tol:
            warnings.warn(
                f"Conjugate gradients stopped at a relative residual of {left:.1g}, above tol = {self._tol:g}.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return np.asarray(np.asarray(found.x, float)[: len(slopes)] * lengths)

    def _warn_of_large(self, moved: np.ndarray, sd: np.ndarray) -> None:
        largest = float((moved / np.maximum(sd, np.finfo(float).tiny)).max(initial=0))
        if self.bound == "collapsed" and largest > LARGE:
            warnings.warn(
                f"A mean is corrected by {largest:.2g} standard deviations, more than an expansion around the optimum "
                "can be trusted with: components may be poorly identified. Compare with mcmc.run_gibbs.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _warn_of_shift(self, slopes: np.ndarray, solved: np.ndarray) -> None:
        sd = np.sqrt(np.maximum((slopes * solved).sum(axis=1), np.finfo(float).tiny))
        farthest = float(np.abs(solved @ self._slope / sd).max(initial=0))
        if farthest > FAR:
            warnings.warn(
                f"The fit is not at its optimum: E[f] would still move by {farthest:.2g} standard deviations. Continue "
                "it by cavi.run(data, priors, start=fit, tol=1e-9) or cavi.refine(fit, data, tol=1e-9).",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _bend(self, f: Statistic) -> np.ndarray:
        """Return ½ tr((−∇²ℒ)⁻¹ ∇²f) = ½ Σ_j of second derivatives along wⱼ, Σ_j wⱼ wⱼᵀ = (−∇²ℒ)⁻¹."""
        dtype = self.problem.dtype
        parts = (bend(f, self.bound, self._optimum, jnp.asarray(w, dtype)) for w in self._factor.directions())
        return 0.5 * np.asarray(sum(np.asarray(part, float) for part in parts))
