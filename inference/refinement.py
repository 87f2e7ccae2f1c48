"""Less biased factors: the mean field refined with S summed out.

CAVI's q(S) makes it too sure of which component caused which count. With S summed out the data term of the bound is
Σ x E[log m], m = (TV)_ντ, which has no closed form but a good approximation (see `observed.dense.expected_log`):

    ℒ ≈ Σ w [x E[log m] − log Γ(x+1) − (E_T E_V)] − KL(q(T)‖p(T)) − E KL(q(V)‖p(V|λ)) − KL(q(λ)‖p(λ)) + terms of labels.

It has no noise, and is raised by L-BFGS in the coordinates of `coordinates` from the optimum of CAVI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.checks import whole
from ..model.conjugacy import require_closed_forms
from ..model.data import Data
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .bound import augmented_bound, prior_terms
from .coordinates import Chart, chart
from .lbfgs import Ascent, advance, begin
from .moments import Transposed
from .observations import Observations, form_of, observe
from .posterior import Fit
from .results import factors_of, match, problem_of, require_own_data
from .sweep import moments

CHUNK = 25  # steps between returns to the host: progress, Ctrl-C, checkpoints
ENDINGS = (
    "All steps were made before the tolerance was met.",
    "The tolerance was met.",
    "No step could raise the objective.",
)


def collapsed_objective(data: Observations, priors: Priors, q: Transposed) -> tuple[Array, Transposed]:
    """Return the bound with S summed out, about, and the factors with q(z) at its optimum.

    The difference from `collapsed_bound`, which is exact up to Monte Carlo error, is that of `expected_log`.
    """
    X, labels = data
    q = labels.optimum(priors, q)
    total, q = labels.weigh(X, priors, q, X.expected_log_ratios(q.T, q.V))
    return X.base + total + prior_terms(data, priors, q), q


def objective(kind: str, data: Observations, priors: Priors, q: Transposed) -> Array:
    """Return the function of which a fit is the optimum.

    Args:
        kind: of its bound, "augmented" or "collapsed".
        data: as sweeps read them.
        priors: of a `Problem`.
        q: the factors.
    """
    if kind == "collapsed":
        return collapsed_objective(data, priors, q)[0]
    return augmented_bound(data, priors, data.labels.optimum(priors, q))


def with_best_labels(kind: str, data: Observations, priors: Priors, q: Transposed) -> Transposed:
    """Return the factors with q(z) at its optimum for `objective`."""
    if kind == "collapsed":
        return collapsed_objective(data, priors, q)[1]
    q = data.labels.optimum(priors, q)
    z = data.labels.allocate(data.X, moments(data, priors, q)).labels
    return q if z is None else q._replace(labels=q.labels._replace(z=z))


class Located(NamedTuple):
    """A fit and its problem, in coordinates around the fit.

    data: as sweeps read them.
    priors: of a `Problem`.
    around: the coordinates.
    """

    data: Observations
    priors: Priors
    around: Chart

    def bound(self, kind: str) -> Callable[[Array], Array]:
        """Return `objective` as a function of the coordinates."""
        return lambda u: objective(kind, self.data, self.priors, self.around.at(u))

    @property
    def zero(self) -> Array:
        """The coordinates of the fit itself."""
        return jnp.zeros(self.around.size, self.around.origin.T.a.dtype)


@jax.jit
def _begin(fit: Located) -> Ascent:
    return begin(jax.value_and_grad(fit.bound("collapsed")), fit.zero)


@jax.jit
def _advance(fit: Located, state: Ascent, tol: Array, limit: Array) -> tuple[Ascent, Array, Array]:
    return advance(jax.value_and_grad(fit.bound("collapsed")), state, tol, limit, CHUNK)


@jax.jit
def _settled(fit: Located, u: Array) -> Transposed:
    return with_best_labels("collapsed", fit.data, fit.priors, fit.around.at(u))


def refine(
    fit: Fit,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    max_steps: int = 400,
    tol: float | None = 1e-9,
    callback: Callable[[Fit], object] | None = None,
) -> Fit:
    """Continue from a fit of CAVI with S summed out, for less bias: a better second opinion than generic SVI.

    Args:
        fit: of `cavi.run`, or of `svi.run` with Gamma factors.
        data: the data that it was fitted to.
        priors: by default those of the fit.
        max_steps: steps of L-BFGS at most; each takes about the time of three sweeps.
        tol: stop when the next step promises a rise of the objective below this, relatively; None for all steps.
        callback: called with the `Fit` so far every 25 steps, for progress and checkpoints.

    Returns a `Fit` whose `bound` is "collapsed". Its `elbo`, the objective after every step, is close to the collapsed
    bound but **not a bound itself**: report `collapsed_bound`, by Monte Carlo, with it. The coordinates, hence the
    steps, depend on the fit that it begins with: several calls go further than one.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=2)
    >>> refined = cavi.refine(fit, data)
    >>> refined.bound, bool(refined.elbo[-1] > fit.elbo[-1])
    ('collapsed', True)
    """
    whole("max_steps", max_steps, 1)
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, (int, float)) or not 0 <= tol < 1):
        raise ValueError(f"expected tol to be None or a number from 0 to 1; got {tol!r}")
    if not isinstance(fit, Fit):
        raise ValueError(f"expected a Fit, as returned by cavi.run; got {type(fit).__name__}")
    _, located = prepared(fit, data, priors, "refining")
    state, trace = _begin(located), [np.zeros(0)]
    if not np.isfinite(state.value):
        raise ValueError(f"expected a fit with finite factors; got one whose objective is {float(state.value)}")

    def so_far(message: str) -> Fit:
        elbo = np.concatenate(trace)
        posterior = _settled(located, state.u).posterior
        found = {"posterior": posterior, "elbo": elbo, "num_steps": len(elbo), "bound": "collapsed"}
        return fit._replace(**found, converged=int(state.stop) == 1, message=message)

    while int(state.stop) == 0 and (done := sum(map(len, trace))) < max_steps:
        state, record, n = _advance(located, state, 0.0 if tol is None else tol, min(CHUNK, max_steps - done))
        trace.append(np.asarray(record, float)[: int(n)])
        if callback is not None:
            callback(so_far("Not all steps have been made yet."))
    return so_far(ENDINGS[int(state.stop)])


def prepared(fit: Any, data: Data | Problem, priors: Priors | None, what: str) -> tuple[Problem, Located]:
    """Return the problem of a fit, and the fit in coordinates around it.

    Args:
        fit: a `Fit` or `Posterior` of Gamma factors.
        data: the data that it was fitted to.
        priors: by default those of the fit.
        what: the use, in the message for priors without closed forms.
    """
    problem = problem_of(fit, data, priors)
    require_closed_forms(problem.priors, what)
    require_own_data(fit, data)
    q = match(factors_of(fit), problem)
    seen = observe(problem.data, form_of(q, problem.data))
    held = seen.labels.hold(q)
    return problem, Located(seen, problem.priors, chart(held, seen.labels.weights_of(held)))
