"""One small problem and its results by every algorithm, each made once a process."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

from gsnmf.inference import Fit, Posterior, cavi, mcmc, svi
from gsnmf.inference.families import Correlated, LogNormal, Point
from gsnmf.model import Gamma, GroupSparse, Priors, as_data, group_sparse_nmf

K = 2
X = np.random.default_rng(0).poisson(3.0, size=(4, 6)) + 0.25  # fractions, as of pixels
DATA = as_data(X, list("abbaab"), feature_names=list("wxyz"), sample_names=[f"s{n}" for n in range(6)])
PRIORS = Priors(Gamma(1.2, 2.0), GroupSparse(Gamma(2.0, 0.5)))  # shapes above 1: there is a MAP estimate
COUNTS = as_data(np.floor(X), list("abbaab"), feature_names=list("wxyz"), sample_names=[f"s{n}" for n in range(6)])
KINDS = ("gamma", "normal", "correlated", "point")


@functools.cache
def cavi_fit():
    return cavi.run(DATA, PRIORS, key=jax.random.key(1), rank=K, max_steps=300, tol=None)


@functools.cache
def svi_fit(family="gamma", num_steps=600):
    return svi.run(
        DATA, PRIORS, family, key=jax.random.key(2), start=cavi_fit(), num_steps=num_steps, progress_bar=False
    )


@functools.cache
def nuts():
    chains = MCMC(
        NUTS(group_sparse_nmf),
        num_warmup=150,
        num_samples=150,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.key(3), DATA, PRIORS, rank=K, extra_fields=("diverging", "accept_prob", "potential_energy"))
    return chains


@functools.cache
def gibbs():
    """On whole numbers, which it needs."""
    options = {"num_warmup": 150, "num_samples": 150, "num_chains": 2, "progress_bar": False}
    return mcmc.run_gibbs(COUNTS, PRIORS, key=jax.random.key(3), rank=K, **options)


@functools.cache
def posterior(kind):
    """CAVI's factors, turned into those of another kind without fitting them."""
    rng = np.random.default_rng(4)

    def turn(q):
        loc, scale = q.log_mean, 1 / jnp.sqrt(q.a)
        if kind == "normal":
            return LogNormal(loc, scale)
        if kind == "correlated":
            return Correlated(loc, scale, jnp.asarray(rng.normal(0, 0.2, (3, *loc.shape))))
        return Point(q.mean) if kind == "point" else q

    return Posterior(*map(turn, cavi_fit().posterior[:3]))


def made(kind):
    """A `Fit` with such factors."""
    bound = {"gamma": "augmented", "point": "log_joint"}.get(kind, "collapsed")
    return Fit(posterior(kind), np.linspace(-90.0, -80.0, 7), 7, True, "Made by hand.", bound)


def compilations(run):
    """Return how many programs XLA compiled during a call."""
    count = []

    def listen(event, duration, **_):
        if "backend_compile" in event:
            count.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run()
    finally:
        if hasattr(jax.monitoring, "unregister_event_duration_listener"):  # not in JAX 0.8
            jax.monitoring.unregister_event_duration_listener(listen)
    return len(count)
