"""Stochastic variational inference (SVI) on the model with S summed out, for any family and optimiser."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoLowRankMultivariateNormal, AutoNormal
from numpyro.primitives import Messenger
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
from .families import Correlated, LogNormal, Point, near_gamma, near_log_normal, spread
from .guide import draw_proportions, guide
from .labels.readout import label_probabilities
from .labels.warm_start import label_posterior
from .posterior import Fit, LabelPosterior, Posterior
from .results import factors_of, match, rank_of
from .starts import Start, check_key, fill, first_rates

__all__ = ["run"]

CHUNK = 100  # steps between returns to the host: progress, Ctrl-C
SPREAD = 0.05  # log E[x] − E[log x] of a factor that starts from means alone: a deviation of about a third of the mean


class Family(NamedTuple):
    """A family of q: its guide and its factors.

    auto: NumPyro's guide; None for the Gammas of `guide`.
    factor: the class of its factors.
    start: the function that makes a factor from its mean and spread.
    """

    auto: Callable[..., Any] | None
    factor: type
    start: Callable[[Array, Array], Any]


FAMILIES = {
    "gamma": Family(None, Gamma, near_gamma),
    "normal": Family(AutoNormal, LogNormal, near_log_normal),
    "lowrank": Family(AutoLowRankMultivariateNormal, Correlated, near_log_normal),
    "map": Family(AutoDelta, Point, lambda mean, _: Point(mean)),
}
NAMES = {name: name for name in FAMILIES} | {f.auto.__name__: name for name, f in FAMILIES.items() if f.auto}


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
    family = _check(family, key, num_steps, num_particles, num_samples)
    begun = start if start is None or isinstance(start, Start) else factors_of(start)
    if isinstance(begun, Posterior) and rank is None:
        rank = rank_of(begun)
    problem = Problem(data, priors, rank)
    require_dense(problem.data, "SVI on the marginal model")
    if family == "map":
        _check_bounded(problem)
        if problem.data.labels is not None and problem.data.labels.dirichlet is not None:
            raise ValueError("expected known weights as label_prior for a MAP estimate; got a Dirichlet")
    if FAMILIES[family].factor in (LogNormal, Correlated):
        _check_logarithms(family, problem.priors)
    if isinstance(begun, Posterior):
        q = match(begun, problem, tuple)
    else:
        q = _posterior(fill(begun, data, priors, problem.rank, key, init), begun, problem)
    if problem.data.num_unlabelled > 0 and q.labels is None:
        q = q.with_labels(label_posterior(problem.data))
    q = _as(family, q)
    key_init, key_run, key_compare = jax.random.split(key, 3)
    svi = _svi(family, q, optimizer, num_particles)
    begin = partial(svi.init, init_params=_pack(family, q))
    # NumPyro's guides inspect the model when they are first called, and may not do so under jit.
    state = (jax.jit(begin) if FAMILIES[family].auto is None else begin)(key_init, problem)
    last, average, losses = _optimise(svi, state._replace(rng_key=key_run), problem, num_steps, progress_bar)
    candidates = [q, *(_unpack(family, params, q) for params in (last, average))]
    names = ["the start", "the last iterate", "the average iterate"]

    def value(q: Posterior) -> np.ndarray:
        if family == "map":  # the loss is exact
            loss = svi.loss.loss(key_compare, _pack(family, q), labels_summed_out, svi.guide, problem)
            return np.asarray([-loss, -loss], float)
        return np.asarray(weights_of(problem, q, key=key_compare, num_samples=num_samples), float)

    best, at = 0, value(candidates[0])
    for n in (1, 2):
        now = value(candidates[n])
        gain = estimate(now - at)
        if gain.value > 2 * gain.error or (np.isfinite(now).all() and not np.isfinite(at).all()):
            best, at = n, now
    elbo = -np.asarray(losses, float)
    converged, message = _verdict(elbo, names[best], estimate(at), family)
    if not converged:
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    kind = "log_joint" if family == "map" else "collapsed"
    kept = candidates[best]
    if kept.labels is not None:
        z = label_probabilities(kept, problem, key=key_compare, num_samples=num_samples)
        kept = kept.with_labels(kept.labels._replace(z=jnp.asarray(z, problem.dtype)))
    return Fit(kept, elbo, len(elbo), converged, message, kind, priors, **marks_of(data))


def _check(family: str, key: Array, num_steps: int, num_particles: int, num_samples: int) -> str:
    if not isinstance(family, str) or family not in NAMES:
        raise ValueError(f"expected family to be one of {', '.join(map(repr, NAMES))}; got {family!r}")
    check_key(key)
    least = {"num_steps": (num_steps, 1), "num_particles": (num_particles, 1), "num_samples": (num_samples, 2)}
    for name, (value, low) in least.items():
        whole(name, value, low)
    return NAMES[family]


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
        if isinstance(prior, Given) and not np.isclose(biject_to(prior.law.support)(-1.0), np.exp(-1.0)):
            raise ValueError(f"expected priors that NumPyro transforms by logarithms for {family!r}; got {prior.name}")


def _posterior(means: Start, given: Start | None, problem: Problem) -> Posterior:
    """Return Gammas about these means; λ at its optimum given V, unless its mean was given."""
    E_T, E_V = (jnp.maximum(jnp.asarray(E, problem.dtype), 1e-12) for E in (means.T, means.V))
    lam = first_rates(problem.priors, E_V, problem.data)
    if given is not None and given.lam is not None:
        lam = near_gamma(jnp.maximum(jnp.asarray(means.lam, problem.dtype), 1e-12), SPREAD)
    return Posterior(near_gamma(E_T, SPREAD), near_gamma(E_V, SPREAD), lam)


def _as(family: str, q: Posterior) -> Posterior:
    """Return the posterior in this family: unchanged if it belongs to it, else by mean and spread."""
    made = FAMILIES[family]

    def convert(factor: Any) -> Any:
        if factor is None or isinstance(factor, made.factor):
            return factor
        s = spread(factor.mean, factor.log_mean)
        near = made.start(factor.mean, jnp.where(s > 0, s, SPREAD))  # a point has no spread
        if family == "lowrank":
            near = Correlated(near.loc, near.scale, jnp.zeros((_rank(q), *near.loc.shape), near.loc.dtype))
        return near

    labels = None if q.labels is None else q.labels._replace(V=None)  # V has its mean and spread
    return Posterior(convert(q.T), convert(q.V), convert(q.lam)).with_labels(labels)


def _rank(q: Posterior) -> int:
    """Return √dimension, NumPyro's choice."""
    return round(math.sqrt(sum(np.size(factor.mean) for factor in q.sites.values())))


class Unplated(Messenger):
    """The model without its plates, for NumPyro's guides, which expect a plate to keep its dim: component has two."""

    def process_message(self, msg: Any) -> None:
        """Drop the plates; the distributions have their full shapes already."""
        if msg["type"] == "sample":
            msg["cond_indep_stack"] = []


def _svi(family: str, q: Posterior, optimizer: Any, num_particles: int) -> SVI:
    auto = FAMILIES[family].auto
    if auto is None:
        guided: Any = guide(q, together=True)
        if q.labels is not None:
            guided = handlers.block(guided, hide=["z"])
    else:
        options = {"rank": len(q.T.factor)} if family == "lowrank" else {}
        centre = {site: jnp.exp(f.log_mean) for site, f in q.sites.items()}
        model = Unplated(handlers.block(labels_summed_out, hide=["pi"]))
        guided = auto(model, init_loc_fn=init_to_value(values=centre), **options)
        if q.labels is not None and q.labels.pi is not None:
            guided = partial(_with_proportions, guided, q.labels)
    try:
        return SVI(labels_summed_out, guided, optimizer or numpyro.optim.Adam(0.02), Trace_ELBO(num_particles))
    except (ImportError, TypeError) as error:
        raise ValueError(f"expected an optimizer of numpyro.optim or optax; got {optimizer!r} ({error})") from None


def _with_proportions(auto: Callable[..., Any], labels: LabelPosterior, *args: Any, **kwargs: Any) -> None:
    """Run NumPyro's guide for T, V and λ, and draw from q(π)."""
    auto(*args, **kwargs)
    draw_proportions(labels)


ORDER = ("T", "lam", "V")  # of sites in the model, and so in the parameters of AutoLowRankMultivariateNormal


def _pack(family: str, q: Posterior) -> dict[str, Array]:
    """Return the parameters by their names in the family's guide."""
    sites = {site: getattr(q, site) for site in ORDER if getattr(q, site) is not None}
    pi = {} if q.labels is None or q.labels.pi is None else {"pi_u": q.labels.pi}
    if family == "gamma":
        return pi | {f"{site}_{name}": x for site, f in sites.items() for name, x in f._asdict().items()}
    if family == "normal":
        return pi | {f"{site}_auto_{name}": x for site, f in sites.items() for name, x in f._asdict().items()}
    if family == "map":
        return {f"{site}_auto_loc": f.value for site, f in sites.items()}
    loc, scale = (jnp.concatenate([jnp.ravel(f[n]) for f in sites.values()]) for n in (0, 1))
    factor = jnp.concatenate([f.factor.reshape(len(f.factor), -1) for f in sites.values()], axis=1)
    return pi | {"auto_loc": loc, "auto_scale": scale, "auto_cov_factor": factor.T / scale[:, None]}


def _unpack(family: str, params: dict[str, Array], like: Posterior) -> Posterior:
    """Return the posterior from these parameters, the inverse of `_pack`."""
    sites = {site: getattr(like, site) for site in ORDER if getattr(like, site) is not None}
    if family == "lowrank":
        loc, scale = params["auto_loc"], params["auto_scale"]
        rows = (loc, scale, *(params["auto_cov_factor"] * scale[:, None]).T)
        ends = np.cumsum([f.loc.size for f in sites.values()])[:-1]
        cut = [jnp.split(row, ends) for row in rows]
        shaped = {s: [parts[n].reshape(f.loc.shape) for parts in cut] for n, (s, f) in enumerate(sites.items())}
        factors: dict[str, Any] = {s: Correlated(x[0], x[1], jnp.stack(x[2:])) for s, x in shaped.items()}
    else:
        infix, value = ("", "value") if family == "gamma" else ("auto_", "loc")
        factors = {
            s: type(f)(*(params[f"{s}_{infix}{value if name == 'value' else name}"] for name in f._fields))
            for s, f in sites.items()
        }
    labels = None if like.labels is None else like.labels._replace(pi=params.get("pi_u"))
    return Posterior(factors["T"], factors["V"], factors.get("lam")).with_labels(labels)


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


def _verdict(elbo: np.ndarray, kept: str, bound: Any, family: str) -> tuple[bool, str]:
    """Return whether the bound no longer rose, by the last two fifths of the steps, and a sentence about it."""
    n = len(elbo)
    what = "log joint density" if family == "map" else "collapsed bound"
    said = f"kept {kept}, {what} {bound.value:.6g}" + ("" if family == "map" else f" ± {bound.error:.2g}")
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
