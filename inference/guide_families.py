"""Families of q for stochastic gradients: the guide of each, and its parameters by their names in that guide."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoLowRankMultivariateNormal, AutoNormal
from numpyro.primitives import Messenger

from ..model.generative import labels_summed_out
from ..model.priors import Gamma
from ..model.types import Array
from .families import Correlated, LogNormal, Point, near_gamma, near_log_normal, spread
from .guide import draw_proportions, guide
from .posterior import LabelPosterior, Posterior

SPREAD = 0.05  # log E[x] − E[log x] of a factor that starts from means alone: a deviation of about a third of the mean
ORDER = ("T", "lam", "V")  # of sites in the model, and so in the parameters of AutoLowRankMultivariateNormal


@dataclass(frozen=True)
class GuideFamily:
    """A family of q: its guide, its factors, and the parameters of both.

    name: by which users choose it.
    factor: the class of its factors.
    near: the function that makes a factor from its mean and spread.
    auto: NumPyro's guide; None for the Gammas of `guide`.
    parameters: how the guide names a field of a site's factor.
    """

    name: str
    factor: type
    near: Callable[[Array, Array], Any]
    auto: Callable[..., Any] | None
    parameters: Callable[[str, str], str]

    @property
    def is_point(self) -> bool:
        """Whether q is a point, whose bound, the log joint density, needs no draws."""
        return self.factor is Point

    def convert(self, q: Posterior) -> Posterior:
        """Return the posterior in this family: unchanged if it belongs to it, else by mean and spread."""

        def converted(factor: Any) -> Any:
            if factor is None or isinstance(factor, self.factor):
                return factor
            s = spread(factor.mean, factor.log_mean)
            return self._convert(factor.mean, jnp.where(s > 0, s, SPREAD), q)  # a point has no spread

        labels = None if q.labels is None else q.labels._replace(V=None)  # V has its mean and spread
        return Posterior(converted(q.T), converted(q.V), converted(q.lam)).with_labels(labels)

    def guide(self, q: Posterior) -> Any:
        """Return the guide, which starts at q."""
        if self.auto is None:
            gammas = guide(q, together=True)
            return gammas if q.labels is None else handlers.block(gammas, hide=["z"])
        centre = {site: jnp.exp(f.log_mean) for site, f in q.sites.items()}
        model = Unplated(handlers.block(labels_summed_out, hide=["pi"]))
        auto = self.auto(model, init_loc_fn=init_to_value(values=centre), **self._options(q))
        if q.labels is None or q.labels.pi is None:
            return auto
        return partial(_with_proportions, auto, q.labels)

    def pack(self, q: Posterior) -> dict[str, Array]:
        """Return the parameters by their names in the guide."""
        pi = {} if q.labels is None or q.labels.pi is None else {"pi_u": q.labels.pi}
        return pi | self._pack(_ordered(q))

    def unpack(self, params: dict[str, Array], like: Posterior) -> Posterior:
        """Return the posterior from these parameters, the inverse of `pack`."""
        factors = self._unpack(params, _ordered(like))
        labels = None if like.labels is None else like.labels._replace(pi=params.get("pi_u"))
        return Posterior(factors["T"], factors["V"], factors.get("lam")).with_labels(labels)

    def _convert(self, mean: Array, s: Array, q: Posterior) -> Any:
        return self.near(mean, s)

    def _options(self, q: Posterior) -> dict[str, Any]:
        return {}

    def _pack(self, sites: dict[str, Any]) -> dict[str, Array]:
        return {self.parameters(site, name): x for site, f in sites.items() for name, x in f._asdict().items()}

    def _unpack(self, params: dict[str, Array], sites: dict[str, Any]) -> dict[str, Any]:
        return {s: type(f)(*(params[self.parameters(s, name)] for name in f._fields)) for s, f in sites.items()}


class LowRank(GuideFamily):
    """Correlated log-normals, whose guide has T, λ and V in one vector."""

    def _convert(self, mean: Array, s: Array, q: Posterior) -> Correlated:
        loc, scale = self.near(mean, s)
        rank = round(math.sqrt(sum(np.size(factor.mean) for factor in q.sites.values())))  # NumPyro's choice
        return Correlated(loc, scale, jnp.zeros((rank, *loc.shape), loc.dtype))

    def _options(self, q: Posterior) -> dict[str, Any]:
        return {"rank": len(q.T.factor)}

    def _pack(self, sites: dict[str, Any]) -> dict[str, Array]:
        loc, scale = (jnp.concatenate([jnp.ravel(f[n]) for f in sites.values()]) for n in (0, 1))
        factor = jnp.concatenate([f.factor.reshape(len(f.factor), -1) for f in sites.values()], axis=1)
        return {"auto_loc": loc, "auto_scale": scale, "auto_cov_factor": factor.T / scale[:, None]}

    def _unpack(self, params: dict[str, Array], sites: dict[str, Any]) -> dict[str, Any]:
        loc, scale = params["auto_loc"], params["auto_scale"]
        rows = (loc, scale, *(params["auto_cov_factor"] * scale[:, None]).T)
        ends = np.cumsum([f.loc.size for f in sites.values()])[:-1]
        cut = [jnp.split(row, ends) for row in rows]
        shaped = {s: [parts[n].reshape(f.loc.shape) for parts in cut] for n, (s, f) in enumerate(sites.items())}
        return {s: Correlated(x[0], x[1], jnp.stack(x[2:])) for s, x in shaped.items()}


class Unplated(Messenger):
    """The model without its plates, for NumPyro's guides, which expect a plate to keep its dim: component has two."""

    def process_message(self, msg: Any) -> None:
        """Drop the plates; the distributions have their full shapes already."""
        if msg["type"] == "sample":
            msg["cond_indep_stack"] = []


def _ordered(q: Posterior) -> dict[str, Any]:
    """Return the factors by site, in the order of the model."""
    return {site: getattr(q, site) for site in ORDER if getattr(q, site) is not None}


def _with_proportions(auto: Callable[..., Any], labels: LabelPosterior, *args: Any, **kwargs: Any) -> None:
    """Run NumPyro's guide for T, V and λ, and draw from q(π)."""
    auto(*args, **kwargs)
    draw_proportions(labels)


FAMILIES = {
    family.name: family
    for family in (
        GuideFamily("gamma", Gamma, near_gamma, None, "{}_{}".format),
        GuideFamily("normal", LogNormal, near_log_normal, AutoNormal, "{}_auto_{}".format),
        LowRank("lowrank", Correlated, near_log_normal, AutoLowRankMultivariateNormal, "{}_auto_{}".format),
        GuideFamily("map", Point, lambda mean, _: Point(mean), AutoDelta, lambda site, _: f"{site}_auto_loc"),
    )
}
NAMES = {name: name for name in FAMILIES} | {f.auto.__name__: name for name, f in FAMILIES.items() if f.auto}
