"""Stochastic variational inference (SVI) on the model with S summed out, for any family and optimiser."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import biject_to
from numpyro.infer import SVI, Trace_ELBO
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from ..model.checks import whole
from ..model.compressed import require_dense
from ..model.data import Data
from ..model.generative import labels_summed_out
from ..model.missing import marks_of
from ..model.priors import Gamma, Given, Priors
from ..model.problem import Problem
from ..model.types import Array
from .diagnostics import estimate, weights_of
from .families import Correlated, LogNormal, near_gamma
from .guide_families import FAMILIES, NAMES, SPREAD, GuideFamily
from .labels.readout import label_probabilities
from .labels.warm_start import label_posterior
from .posterior import Fit, Posterior
from .results import factors_of, match, rank_of
from .starts import Start, check_key, fill, first_rates
from .warning import warn

__all__ = ["run"]

CHUNK = 100  # steps between returns to the host: progress, Ctrl-C


def run(
    data: Data,
    priors: Priors,
    family: str = "gamma",
    *,
    key: Array,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    rank: int | None = None,
    num_steps: int = 2000,
    optimizer: Any = None,
    num_particles: int = 4,
    num_samples: int = 1024,
    progress_bar: bool = True,
) -> Fit:
    """Raise the collapsed bound E_q[log p(X, T, V, λ) − log q(T, V, λ)] by stochastic gradients.

    Args:
        data: as made by `as_data`.
        priors: the priors of T and V.
        family: "gamma", the mean field of CAVI; "normal", "lowrank" or "map", which are NumPyro's AutoNormal,
            AutoLowRankMultivariateNormal (rank √dimension) and AutoDelta on the logarithms, also by these names.
        key: a JAX key, for the start and for the draws.
        start: a `Fit` or `Posterior` of any algorithm to resume from, or means from `cavi.start`. What is left open is
            initialised as in CAVI, except λ, which starts at its optimum given V: its prior mean may be many powers of
            ten away, which closed forms cross in a sweep and small steps do not.
        init: as in `cavi.run`.
        rank: the number of components, where the priors' shapes leave it open.
        num_steps: gradient steps.
        optimizer: one of `numpyro.optim` or of optax; by default Adam with steps of 0.02.
        num_particles: draws for each gradient.
        num_samples: draws by which the start, the last and the average iterate are compared at the end.
        progress_bar: whether to show one.

    Returns a `Fit` with `bound="collapsed"` and minus the loss of each step in `elbo`. Its posterior is the best of
    three: the start, the last iterate, and the average of the second half of the iterates (in the unconstrained
    parameters). They are compared by their collapsed bounds under common random numbers, and a later one is taken
    only if it is higher by two standard errors of the difference: so, except for Monte Carlo error, the result is never
    below the start, even if the optimiser diverged. For "map" the log joint density is compared, which is exact.

    Labels of unlabelled samples are summed out in closed form, and q is of T, V, λ and, if it has a Dirichlet prior, π,
    whose factor is a Dirichlet (so "map" takes known weights only). z is then E[p(z | V, λ, π)] over draws from q.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = run(data, priors, "map", key=jax.random.key(0), rank=1, num_steps=300, progress_bar=False)
    >>> fit.bound, bool(fit.elbo[-1] > fit.elbo[0])
    ('log_joint', True)
    """
    chosen = _check(family, key, num_steps, num_particles, num_samples)
    begun = start if start is None or isinstance(start, Start) else factors_of(start)
    problem = Problem(data, priors, rank_of(begun) if isinstance(begun, Posterior) and rank is None else rank)
    require_dense(problem.data, "SVI on the marginal model")
    _check_priors(chosen, problem)
    if isinstance(begun, Posterior):
        q = match(begun, problem, tuple)
    else:
        q = _posterior(fill(begun, data, priors, problem.rank, key, init), begun, problem)
    if problem.data.num_unlabelled > 0 and q.labels is None:
        q = q.with_labels(label_posterior(problem.data))
    q = chosen.convert(q)
    key_init, key_run, key_compare = jax.random.split(key, 3)
    svi = _svi(chosen, q, optimizer, num_particles)
    state = _begin(svi, chosen, q, problem, key_init)._replace(rng_key=key_run)
    last, average, losses = _optimise(svi, state, problem, num_steps, progress_bar)
    candidates = {
        "the start": q,
        "the last iterate": chosen.unpack(last, q),
        "the average iterate": chosen.unpack(average, q),
    }
    value = partial(_value, svi, chosen, problem, key=key_compare, num_samples=num_samples)
    best, at = _best(candidates, value)
    elbo = -np.asarray(losses, float)
    converged, message = _verdict(elbo, best, estimate(at), chosen)
    if not converged:
        warn(message, ConvergenceWarning, stacklevel=2)
    kept = _with_z(candidates[best], problem, key_compare, num_samples)
    kind = "log_joint" if chosen.is_point else "collapsed"
    return Fit(kept, elbo, len(elbo), converged, message, kind, priors, **marks_of(data))


def _check(family: str, key: Array, num_steps: int, num_particles: int, num_samples: int) -> GuideFamily:
    """Return the family by its name; raise for options that are not what they should be."""
    if not isinstance(family, str) or family not in NAMES:
        raise ValueError(f"expected family to be one of {', '.join(map(repr, NAMES))}; got {family!r}")
    check_key(key)
    least = {"num_steps": (num_steps, 1), "num_particles": (num_particles, 1), "num_samples": (num_samples, 2)}
    for name, (value, low) in least.items():
        whole(name, value, low)
    return FAMILIES[NAMES[family]]


def _check_priors(family: GuideFamily, problem: Problem) -> None:
    """Raise for priors that the family cannot approximate."""
    if family.is_point:
        _check_bounded(problem)
        if problem.data.labels is not None and problem.data.labels.dirichlet is not None:
            raise ValueError("expected known weights as label_prior for a MAP estimate; got a Dirichlet")
    if family.factor in (LogNormal, Correlated):
        _check_logarithms(family.name, problem.priors)


def _check_bounded(problem: Problem) -> None:
    """Raise if a shape is below 1: a Gamma's density is then infinite at 0, and there is no most probable value."""
    data, priors, rank = problem
    dictionary, family = priors
    shapes = {"dictionary.a": dictionary.a} if isinstance(dictionary, Gamma) else {}
    if hasattr(family, "shape"):
        shapes["the shape of coefficients"] = family.shape
    lam = first_rates(priors, jnp.ones((rank, data.num_samples)), data)
    if lam is not None and isinstance(family.hyperprior, Gamma):
        shapes["the shape of λ given V, aˡ + N_c,"] = lam.a
    for name, shape in shapes.items():
        if np.min(shape) < 1:
            raise ValueError(
                f"expected {name} ≥ 1 for a MAP estimate, else its density is infinite; got {np.min(shape)}"
            )


def _check_logarithms(family: str, priors: Priors) -> None:
    """Raise unless NumPyro transforms a prior's support by logarithms, as the log-normal factors here assume."""
    for prior in (priors.dictionary, priors.coefficients, priors.coefficients.hyperprior):
        if isinstance(prior, Given) and not np.isclose(biject_to(prior.distribution().support)(-1.0), np.exp(-1.0)):
            raise ValueError(f"expected priors that NumPyro transforms by logarithms for {family!r}; got {prior.name}")


def _posterior(means: Start, given: Start | None, problem: Problem) -> Posterior:
    """Return Gammas about these means; λ at its optimum given V, unless its mean was given."""
    E_T, E_V = (jnp.maximum(jnp.asarray(E, problem.dtype), 1e-12) for E in (means.T, means.V))
    lam = first_rates(problem.priors, E_V, problem.data)
    if given is not None and given.lam is not None:
        lam = near_gamma(jnp.maximum(jnp.asarray(means.lam, problem.dtype), 1e-12), SPREAD)
    return Posterior(near_gamma(E_T, SPREAD), near_gamma(E_V, SPREAD), lam)


def _svi(family: GuideFamily, q: Posterior, optimizer: Any, num_particles: int) -> SVI:
    guided, optimizer = family.guide(q), optimizer or numpyro.optim.Adam(0.02)
    try:
        return SVI(labels_summed_out, guided, optimizer, Trace_ELBO(num_particles))
    except (ImportError, TypeError) as error:
        raise ValueError(f"expected an optimizer of numpyro.optim or optax; got {optimizer!r} ({error})") from None


def _begin(svi: SVI, family: GuideFamily, q: Posterior, problem: Problem, key: Array) -> Any:
    """Return NumPyro's state before the first step."""
    begin = partial(svi.init, init_params=family.pack(q))
    # NumPyro's guides inspect the model when they are first called, and may not do so under jit.
    return (jax.jit(begin) if family.auto is None else begin)(key, problem)


def _optimise(
    svi: SVI, state: Any, problem: Problem, num_steps: int, progress_bar: bool
) -> tuple[dict[str, Array], dict[str, Array], np.ndarray]:
    """Make all steps; return the last parameters, their average over the second half, and the losses."""
    half = num_steps // 2

    @jax.jit
    def advance(state: Any, average: Any, done: Array, count: Array, problem: Problem) -> tuple:
        def step(n: Array, carry: tuple) -> tuple:
            state, average, losses = carry
            state, loss = svi.update(state, problem)
            weight = 1 / jnp.maximum(done + n + 1 - half, 1)  # the first half is dropped at its end
            params = svi.optim.get_params(state.optim_state)
            average = jax.tree.map(lambda mean, x: mean + (x - mean) * weight.astype(x.dtype), average, params)
            return state, average, losses.at[n].set(loss)

        losses = jnp.zeros(CHUNK, problem.dtype)
        return jax.lax.fori_loop(0, count, step, (state, average, losses))  # type: ignore[no-any-return]  # a tuple

    average, losses = svi.optim.get_params(state.optim_state), []
    with tqdm(total=num_steps, disable=not progress_bar, desc="SVI", unit="step") as bar:
        for done in range(0, num_steps, CHUNK):
            count = min(CHUNK, num_steps - done)
            state, average, some = advance(state, average, jnp.asarray(done), jnp.asarray(count), problem)
            losses.append(np.asarray(some)[:count])
            bar.update(count)
            bar.set_postfix_str(f"loss {losses[-1].mean():.6g}", refresh=False)
    constrain: Any = svi.constrain_fn  # set by svi.init
    return svi.get_params(state), constrain(average), np.concatenate(losses)


def _value(
    svi: SVI, family: GuideFamily, problem: Problem, q: Posterior, *, key: Array, num_samples: int
) -> np.ndarray:
    """Return draws whose mean is the collapsed bound; for a point, the log joint density, which is exact, twice."""
    if family.is_point:
        loss = svi.loss.loss(key, family.pack(q), labels_summed_out, svi.guide, problem)
        return np.asarray([-loss, -loss], float)
    return np.asarray(weights_of(problem, q, key=key, num_samples=num_samples), float)


def _best(candidates: dict[str, Posterior], value: Callable[[Posterior], np.ndarray]) -> tuple[str, np.ndarray]:
    """Return the name and the draws of the best: a later one only if higher by two errors, or if it alone is finite."""
    first, *later = candidates
    best, at = first, value(candidates[first])
    for name in later:
        now = value(candidates[name])
        gain = estimate(now - at)
        if gain.value > 2 * gain.error or (np.isfinite(now).all() and not np.isfinite(at).all()):
            best, at = name, now
    return best, at


def _with_z(q: Posterior, problem: Problem, key: Array, num_samples: int) -> Posterior:
    """Return the posterior with z = E[p(z | V, λ, π)] over draws from it, if samples are unlabelled."""
    if q.labels is None:
        return q
    z = label_probabilities(q, problem, key=key, num_samples=num_samples)
    return q.with_labels(q.labels._replace(z=jnp.asarray(z, problem.dtype)))


def _verdict(elbo: np.ndarray, kept: str, bound: Any, family: GuideFamily) -> tuple[bool, str]:
    """Return whether the bound no longer rose, by the last two fifths of the steps, and a sentence about it."""
    n = len(elbo)
    what = "log joint density" if family.is_point else "collapsed bound"
    said = f"kept {kept}, {what} {bound.value:.6g}" + ("" if family.is_point else f" ± {bound.error:.2g}")
    finite = np.isfinite(elbo)
    if not finite.all():
        return False, f"The loss became {-elbo[~finite][0]} at step {np.argmin(finite) + 1}; {said}."
    before, after = elbo[3 * n // 5 : 4 * n // 5], elbo[4 * n // 5 :]
    if len(before) < 20:
        return False, f"{n} steps are too few to tell whether the bound still rises; {said}."
    error = np.hypot(before.std() / np.sqrt(len(before)), after.std() / np.sqrt(len(after)))
    rise = float(after.mean() - before.mean())
    if abs(rise) > max(3 * float(error), 1e-6 * abs(float(after.mean()))):
        way = "rose" if rise > 0 else "fell"
        return False, f"After {n} steps the bound still {way}, by {abs(rise):.2g} over their last fifth; {said}."
    return True, f"After {n} steps the bound no longer changed beyond its noise; {said}."
