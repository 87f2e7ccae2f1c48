"""How good is q? Bounds with S summed out, by Monte Carlo, and how far q can be trusted.

With weights w = p(X, T, V, λ) / q(T, V, λ) and draws from q,

    collapsed bound               E log w ≤ log p(X)
    importance-weighted bound     E log (1/R) Σ_r w_r,    higher with every R, and log p(X) in the limit
    k̂                             the tail of w; above 0.7 no average over it can be trusted

Labels that are unknown are summed out as S is, of p and of q: in the mean field q(z) has no part in w, and in the
structured form q(v_τ) = Σ_c q(z_τ = c) q(v_τ | c). π, if it has a prior, is drawn like T, V and λ.

For the same factors the collapsed bound is at least the augmented one that CAVI records. The two are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import Trace_ELBO, psis_diagnostic
from numpyro.infer.util import log_density

from ..model.data import Data
from ..model.generative import group_sparse_nmf, labels_summed_out
from ..model.missing import blank
from ..model.priors import Priors
from ..model.problem import prepare
from ..model.types import Array
from ..model.unlabelled import num_unlabelled
from ..model.validation import whole
from . import cavi
from .engine import plain
from .factors import Point
from .guide import guide
from .observed.dense import observe
from .posterior import Fit, LabelPosterior, Posterior, factors_of, match, rank_of
from .starts import check_key

ENTRIES = 2**22  # numbers of the size of X that are held at once; what does not fit waits


class Estimate(NamedTuple):
    """A Monte Carlo estimate.

    value: the mean over draws.
    error: its standard error.
    """

    value: float
    error: float


def collapsed_bound(
    result: Fit | Posterior,
    data: Data,
    priors: Priors,
    *,
    key: Array,
    num_samples: int = 1000,
    num_importance: int = 1,
) -> Estimate:
    """E log (1/R) Σ_r w_r by Monte Carlo, with its standard error; for R = 1 the collapsed bound E log w.

    Args:
        result: a `Fit` of CAVI or SVI, or a `Posterior`; not a MAP estimate, which has no density.
        data: what it was fitted to.
        priors: those it was fitted with.
        key: a JAX key. The same key gives differences between results less noise than each alone.
        num_samples: how many terms are averaged.
        num_importance: R, draws in each term: it tightens the bound, and takes R times as long.

    The error is meaningful as long as `psis` is below 0.7 or R is 1.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> bound = collapsed_bound(fit, data, priors, key=jax.random.key(1))
    >>> bool(abs(bound.value - fit.elbo[-1]) < 4 * bound.error)  # with one component S = X: the bounds agree
    True
    """
    num_samples = whole("num_samples", num_samples, 2)
    num_importance = whole("num_importance", num_importance, 1)
    weights = log_weights(result, data, priors, key=key, num_samples=num_samples * num_importance)
    terms = logsumexp(weights.reshape(num_samples, num_importance), axis=1) - np.log(num_importance)
    return estimate(np.asarray(terms, float))


def estimate(terms: np.ndarray) -> Estimate:
    """The mean of independent terms and its standard error."""
    return Estimate(float(terms.mean()), float(terms.std(ddof=1) / np.sqrt(len(terms))))


def log_weights(result: Fit | Posterior, data: Data, priors: Priors, *, key: Array, num_samples: int) -> Array:
    """Log p(X, T, V, λ) − log q(T, V, λ) of draws from q; the arguments are those of `collapsed_bound`."""
    check_key(key)
    data, priors, q = _ready(result, data, priors)
    size = batch(data.X.size, num_samples)
    keys = jax.random.split(key, (-(-num_samples // size), size))
    return jnp.concatenate([_log_weights(q, data, priors, some) for some in keys])[:num_samples]


@jax.jit
def _log_weights(q: Posterior, data: Data, priors: Priors, keys: Array) -> Array:
    K = rank_of(q)

    def one(key: Array) -> Array:
        traced = handlers.trace(handlers.seed(_summed_out(q), key)).get_trace(data, priors, rank=K)
        drawn = {name: site for name, site in traced.items() if site["type"] == "sample"}
        log_q = sum(site["fn"].log_prob(site["value"]).sum() for site in drawn.values())
        values = {name: site["value"] for name, site in drawn.items()}
        return log_density(labels_summed_out, (data, priors), {"rank": K}, values)[0] - log_q

    return jax.vmap(one)(keys)


def _summed_out(q: Posterior) -> Callable[..., dict[str, Array]]:
    """The guide, z summed out: its own density is that of V given z, so what q(v_τ) is more or less is put in."""
    drawing = guide(q, together=True)
    if q.labels is None:
        return drawing

    def without_z(data: Data, priors: Priors, rank: int | None = None) -> dict[str, Array]:
        with handlers.block(hide=["z"]):
            drawn = drawing(data, priors, rank)
        if q.labels is not None and q.labels.V is not None:
            numpyro.factor("labels", _margin(q.labels, drawn["z"], drawn["V"]))
        return drawn

    return without_z


def _margin(labels: LabelPosterior, z: Array, V: Array) -> Array:
    """Σ_τ [log Σ_c q(z_τ = c) q(v_τ | c) − log q(v_τ | z_τ)] over the samples without a label."""
    given: Any = labels.V
    M = given.a.shape[2]
    without = jnp.nonzero(labels.unknown, size=M)[0]
    each = given.distribution().log_prob(V[:, without]).sum(axis=1)  # groups × samples without a label
    return jnp.sum(logsumexp(each, axis=0, b=labels.z[without].T) - each[z[without], jnp.arange(M)])


def batch(entries: int, num: int) -> int:
    """How many of `num` draws to hold at once, each with an array of so many entries; few sizes, to compile few."""
    return 1 << (max(1, min(256, num, ENTRIES // max(entries, 1))).bit_length() - 1)


def psis(result: Fit | Posterior, data: Data, priors: Priors, *, key: Array, num_samples: int = 1000) -> float:
    """k̂ of the weights w by NumPyro's `psis_diagnostic`: below 0.7, q is close enough to correct by importance weights.

    The arguments are those of `collapsed_bound`. It judges all of T, V and λ at once, so a mean field over many
    entries hardly ever passes; it says nothing about a single margin.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> psis(fit, data, priors, key=jax.random.key(1)) > 0
    True
    """
    num_samples = whole("num_samples", num_samples, 25)  # fewer leave less than the five of the tail it needs
    check_key(key)
    data, priors, q = _ready(result, data, priors)
    size = num_samples if data.X.size * num_samples <= ENTRIES else batch(data.X.size, num_samples)
    options: dict[str, Any] = {"rank": rank_of(q), "num_particles": num_samples, "chunk_size": size}
    return float(psis_diagnostic(key, {}, labels_summed_out, _summed_out(q), data, priors, **options))


def calibration(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    num_simulations: int = 100,
    num_sweeps: int = 100,
    num_samples: int = 500,
) -> Any:
    """NumPyro's `vsbc_diagnostic` for CAVI: is q, over data drawn from the model, centred where the truth is?

    Each simulation draws T, V, λ and X from the model, fits X by plain sweeps, and ranks the truth among draws from q.
    A q that is right on average puts p = Pr_q(x < truth) as often above ½ as below, for every entry of every site.
    A q that is centred but too narrow passes: only its centre is judged.

    Args:
        data: its shape, groups and mask; the values of X do not matter.
        priors: what T, V and λ are drawn from; proper enough that X drawn from them is of a size one can fit.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open. Components that the priors do not
            tell apart come back in any order: judge rank 1, or priors that bind each to a group.
        num_simulations: data sets drawn and fitted.
        num_sweeps: sweeps of each fit.
        num_samples: draws from each q.

    Returns NumPyro's `VSBCResult`: probabilities, ks_stats, ks_pvalues and ranks by site.
    """
    from numpyro.infer.calibration import vsbc_diagnostic

    for name, number in {"num_simulations": num_simulations, "num_samples": num_samples}.items():
        whole(name, number, 2)
    whole("num_sweeps", num_sweeps, 1)
    check_key(key)
    if num_unlabelled(prepare(data, priors, rank)[0]) > 0:
        raise ValueError("expected data whose labels are all known, as entries of T, V and λ are judged; got others")
    key, key_X, key_start = jax.random.split(key, 3)
    data, priors, K = prepare(data, priors, rank)

    def seen(X: Array) -> Data:
        X = X.astype(data.X.dtype)
        return data._replace(X=X if data.mask is None else blank(X, data.mask > 0))

    drawn = seen(handlers.seed(handlers.uncondition(group_sparse_nmf), key_X)(data, priors, rank=K))
    begun = cavi.init(drawn, priors, key=key_start, rank=rank)

    def model(X: Array = None) -> Array:
        if X is None:
            return handlers.uncondition(group_sparse_nmf)(data, priors, rank=K)
        return group_sparse_nmf(seen(X), priors, rank=K)

    def fitted(X: Array) -> dict[str, Array]:
        observed = observe(seen(X))
        state = jax.lax.fori_loop(0, num_sweeps, lambda _, state: plain(observed, priors, state)[0], begun)
        return guide(state.posterior, together=True)(seen(X), priors, rank=K)

    still = numpyro.optim.SGD(0.0)  # the sweeps have done it all: the one step of SVI that is made moves nothing
    options: dict[str, Any] = {"num_simulations": num_simulations, "num_svi_steps": 1, "num_samples": num_samples}
    fit: Callable[..., Any] = lambda X=None: fitted(data.X if X is None else X)  # noqa: E731 (typed)
    bits = jax.random.key_data(key)  # `vsbc_diagnostic` handles keys of the older style only
    return vsbc_diagnostic(bits, model, fit, still, Trace_ELBO(), observed_sites=["X"], **options)


def _ready(result: Fit | Posterior, data: Data, priors: Priors) -> tuple[Data, Priors, Posterior]:
    """All three in one precision and checked against each other."""
    q = factors_of(result)
    if isinstance(q.T, Point):
        raise ValueError("expected a posterior with a density; got a point (a MAP estimate), for which no bound exists")
    data, priors, K = prepare(data, priors, rank_of(q))
    return data, priors, match(q, data, priors, K, tuple)
