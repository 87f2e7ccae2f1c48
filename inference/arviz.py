"""Results as ArviZ reads them: chains × draws with named dims, the user's labels as coordinates."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC
from numpyro.infer.util import log_density

from ..model.conjugacy import rate_shape
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.missing import with_nan
from ..model.priors import Priors, canonical
from ..model.problem import prepare
from ..model.types import Array
from ..model.validation import whole
from .alignment import align as align_components
from .arviz_compat import gather
from .diagnostics import batch
from .guide import guide
from .labels.readout import shapes_of_labels, with_drawn_labels
from .posterior import Fit, Posterior, factors_of, match, rank_of
from .starts import check_key

DIMS: dict[str, tuple] = {
    "T": ("feature", "component"),
    "V": ("component", "sample"),
    "lam": (),  # by family
    "pi": (),  # by data
    "z": ("sample",),
}
STATS = {"num_steps": "n_steps", "accept_prob": "acceptance_rate", "adapt_state.step_size": "step_size"}  # as in ArviZ
LIKELIHOODS = ("entry", "sample", None)
ALIGN = ("chain", "draw", None)
NUMBERS = 2**29  # that the groups about X may hold: some gigabytes


def to_arviz(
    result: Any,
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    num_samples: int = 1000,
    log_likelihood: str | None = "entry",
    posterior_predictive: bool = True,
    align: str | None = "chain",
    reference: Any = None,
) -> Any:
    """A result of any algorithm as ArviZ's InferenceData (0.23) or DataTree (1.x).

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, with chain = 1; or a NumPyro `MCMC`
            of NUTS or Gibbs that has run, whose draws are taken.
        data: what it was fitted to; its names become coordinates.
        priors: those it was fitted with.
        key: a JAX key for the draws; `jax.random.key(0)` when left out.
        num_samples: draws from a variational posterior.
        log_likelihood: of every "entry" x_ντ, which is as many numbers as draws times X; of every "sample", summed
            over its features, for leaving out whole samples; or None. Hidden entries have none: with a mask observed
            ones lie along one dim `entry`, with feature and sample as coordinates of it, and samples of which nothing
            was seen are left out.
        posterior_predictive: draws of X too, likewise large; of hidden entries as well.
        align: put the components of every "chain", or of every "draw", in the order of the reference; None leaves them.
        reference: a `Fit`, `Posterior` or draws, as in `align`. None for the first chain: then a variational result,
            which is one chain, stays as it is.

    Where labels are unknown the posterior has z too, of every sample the index of its group (a number along `group`),
    and pi, if it has a Dirichlet prior: by group, or by sample without a label (dim `unlabelled`) and group. Of NUTS,
    which sums z out, it is drawn from p(z | V, λ, π). `lp` is then the density of T, V, λ, π and z.

    Groups: posterior (T, V, lam), posterior_predictive (X), log_likelihood (X), observed_data (X), and sample_stats: of
    MCMC what the sampler recorded, and if it recorded nothing the log joint density `lp`; of a `Fit` the trace of its
    bound by `step`, under the name of the bound (`augmented_bound`, `collapsed_bound`, `log_joint`). Dims: feature,
    component, sample, group, or others that a family's λ has. `sample` is a column of X: `az.extract` needs
    `combined=False`, as it would use that name for draws.

    Draws of a MAP estimate are one point over and over: `az.loo` has nothing to weigh there, and 1.x refuses it.
    A variational posterior is narrower than the true one: what ArviZ says of its draws (`az.loo`, `az.compare`) is only
    as good as `psis` of it.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[3.0, 1.0], [0.0, 2.0]], sample_names=["a", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> draws = to_arviz(fit, data, priors, num_samples=10)
    >>> draws["posterior"]["V"].dims, draws["posterior"]["V"].coords["sample"].values.tolist()
    (('chain', 'draw', 'component', 'sample'), ['a', 'b'])
    """
    import xarray

    if log_likelihood not in LIKELIHOODS or align not in ALIGN:
        raise ValueError(
            f"expected log_likelihood among {LIKELIHOODS} and align among {ALIGN}; got {log_likelihood!r} and {align!r}"
        )
    whole("num_samples", num_samples, 1)
    key = jax.random.key(0) if key is None else key
    check_key(key)
    key_draws, key_X = jax.random.split(key)
    if isinstance(result, MCMC):
        draws, stats = sampled(result)
        num_samples = draws["T"].shape[0] * draws["T"].shape[1]
    numbers = num_samples * np.size(data.X) * ((log_likelihood == "entry") + posterior_predictive)
    if numbers > NUMBERS:
        raise ValueError(
            f"expected at most {NUMBERS:.1e} numbers of log_likelihood and posterior_predictive; got {numbers:.1e}: "
            "take fewer draws, log_likelihood='sample' or None, or posterior_predictive=False"
        )
    if not isinstance(result, MCMC):
        draws, stats = _drawn(result, data, priors, key_draws, num_samples), _trace(result)
    check_shapes(draws, data, priors)
    draws = with_drawn_labels(draws, data, priors, key=jax.random.fold_in(key_draws, 1))
    if align is not None and (reference is not None or isinstance(result, MCMC)):
        draws = draws | align_components(draws, reference, data, priors, by=align)
    chains, length, _, K = draws["T"].shape
    coords = {
        "chain": np.arange(chains),
        "draw": np.arange(length),
        "component": np.arange(K),
        **{axis: labels(getattr(data.names, axis)) for axis in ("feature", "sample", "group")},
        "unlabelled": labels(data.names.sample[~data.known]),
    }

    def dataset(variables: dict[str, tuple], coords: dict[str, Any] = coords) -> Any:
        used = {dim for dims, _ in variables.values() for dim in dims}
        used |= {name for name, values in coords.items() if isinstance(values, tuple)}  # of a dim with another name
        return xarray.Dataset(variables, {d: values for d, values in coords.items() if d in used}, _attributes(result))

    axes = {**DIMS, "lam": canonical(priors).coefficients.axes}
    if "pi" in draws:
        axes["pi"] = ("group",) if draws["pi"].ndim == 3 else ("unlabelled", "group")
    groups = {"posterior": dataset({site: (("chain", "draw", *axes[site]), x) for site, x in draws.items()})}
    looks = Looks(log_likelihood, posterior_predictive, not stats and isinstance(result, MCMC))
    found = _predict(draws, data, priors, key_X, looks)
    if looks.joint:
        stats = {"lp": (("chain", "draw"), found.pop("lp"))}
    if data.mask is not None and "log_likelihood" in found:
        likelihood, dim, seen = _seen(found.pop("log_likelihood"), np.asarray(data.mask, bool), coords)
        groups["log_likelihood"] = dataset({"X": (("chain", "draw", dim), likelihood)}, seen)
    for group, X in found.items():
        dims = ("sample",) if X.ndim == 3 else ("feature", "sample")
        groups[group] = dataset({"X": (("chain", "draw", *dims), X)})
    if stats:
        groups["sample_stats"] = dataset(stats)
    groups["observed_data"] = dataset({"X": (("feature", "sample"), with_nan(data))})
    return gather(groups)


def _seen(likelihood: np.ndarray, mask: np.ndarray, coords: dict[str, Any]) -> tuple[np.ndarray, str, dict[str, Any]]:
    """The log likelihood of what was seen, along one dim, its name, and the coordinates with those of it."""
    if likelihood.ndim == 3:  # by sample
        some = mask.any(axis=0)
        return likelihood[..., some], "sample", coords | {"sample": coords["sample"][some]}
    at = {"feature": np.nonzero(mask)[0], "sample": np.nonzero(mask)[1]}
    along = {axis: ("entry", coords[axis][index]) for axis, index in at.items()}
    return likelihood[..., mask], "entry", coords | along


def _drawn(result: Fit | Posterior, data: Data, priors: Priors, key: Array, num: int) -> dict[str, np.ndarray]:
    """One chain of draws from q."""
    if not isinstance(result, (Fit, Posterior)):
        raise ValueError(f"expected a Fit, a Posterior or a NumPyro MCMC that has run; got {type(result).__name__}")
    ready, priors, K = prepare(data, priors, rank_of(factors_of(result)))
    q = match(factors_of(result), ready, priors, K, tuple)
    size = batch(ready.X.size, num)
    keys = jax.random.split(key, (-(-num // size), size))
    parts = [jax.device_get(_draw(q, ready, priors, some)) for some in keys]
    return {s: np.concatenate([part[s] for part in parts])[None, :num] for s in DIMS if s in parts[0]}


@jax.jit
def _draw(q: Posterior, data: Data, priors: Priors, keys: Array) -> dict[str, Array]:
    def one(key: Array) -> dict[str, Array]:
        drawn: dict[str, Array] = handlers.seed(guide(q, together=True), key)(data, priors, rank=rank_of(q))
        return drawn

    return jax.vmap(one)(keys)


def sampled(mcmc: MCMC) -> tuple[dict[str, np.ndarray], dict[str, tuple]]:
    """The draws of a sampler, and what it recorded of each."""
    try:
        samples, extra = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)
    except AssertionError:  # NumPyro's way to say that it has not run
        samples, extra = {}, {}
    draws = {site: np.asarray(samples[site]) for site in DIMS if site in samples}
    if not {"T", "V"} <= set(draws):
        raise ValueError(f"expected an MCMC that has run and collected T and V; got {sorted(samples) or 'no samples'}")
    if "potential_energy" in extra:
        extra = {"lp": -extra["potential_energy"]} | extra
    fields = {STATS.get(name, name.replace(".", "_")): np.asarray(x) for name, x in extra.items()}
    stats = {name: (("chain", "draw"), x) for name, x in fields.items() if x.ndim == 2 and x.dtype.kind in "biuf"}
    return draws, stats


def _trace(result: Fit | Posterior) -> dict[str, tuple]:
    if not isinstance(result, Fit):
        return {}
    name = result.bound if result.bound == "log_joint" else f"{result.bound}_bound"
    return {name: (("step",), np.asarray(result.elbo, float))}


def check_shapes(draws: dict[str, np.ndarray], data: Data, priors: Priors) -> None:
    """Refuse draws, chains × draws × rows × columns by site, that are of other data or priors; z may be left out."""
    _, ready, K = prepare(data, priors, draws["T"].shape[-1])
    wanted: dict[str, tuple[int, ...]] = {"T": (data.num_features, K), "V": (K, data.num_samples)}
    size = rate_shape(ready.coefficients, data, K)
    wanted |= {} if size is None else {"lam": size}
    wanted |= shapes_of_labels(data, priors, draws)
    found = {site: x.shape[2:] for site, x in draws.items()}
    if found != wanted:
        raise ValueError(f"expected draws of shapes {wanted} for these data and priors; got {found}")


class Looks(NamedTuple):
    """What is wanted to know of every draw: the log density of X, by "entry" or "sample"; a new X; all of log p."""

    likelihood: str | None
    predictive: bool
    joint: bool


def _predict(
    draws: dict[str, np.ndarray], data: Data, priors: Priors, key: Array, looks: Looks
) -> dict[str, np.ndarray]:
    """What is wanted, by chain and draw."""
    if not any(looks):
        return {}
    data, priors, K = prepare(data, priors, draws["T"].shape[-1])
    chains, length = draws["T"].shape[:2]
    num = chains * length
    flat = {site: x.reshape(num, *x.shape[2:]) for site, x in draws.items()}
    size = batch(data.X.size, num)
    made: list[dict[str, np.ndarray]] = []
    for begin in range(0, num, size):
        some = {site: x[np.arange(begin, begin + size) % num] for site, x in flat.items()}  # the last is filled up
        keys = jax.random.split(jax.random.fold_in(key, begin), size)
        made.append(jax.device_get(_look(some, keys, data, priors, K, looks)))
    joined = {group: np.concatenate([part[group] for part in made])[:num] for group in made[0]}
    return {group: x.reshape(chains, length, *x.shape[1:]) for group, x in joined.items()}


@partial(jax.jit, static_argnames=("rank", "looks"))
def _look(
    draws: dict[str, Array], keys: Array, data: Data, priors: Priors, rank: int, looks: Looks
) -> dict[str, Array]:
    """What the model says given each draw."""

    def one(draw: dict[str, Array], key: Array) -> dict[str, Array]:
        X = handlers.trace(handlers.substitute(group_sparse_nmf, draw)).get_trace(data, priors, rank=rank)["X"]
        found = {}
        if looks.likelihood is not None:
            density = X["fn"].log_prob(X["value"])
            found["log_likelihood"] = density if looks.likelihood == "entry" else density.sum(axis=0)
        if looks.predictive:
            found["posterior_predictive"] = X["fn"].sample(key)
        if looks.joint:
            found["lp"] = log_density(group_sparse_nmf, (data, priors), {"rank": rank}, draw)[0]
        return found

    return jax.vmap(one)(draws, keys)


def labels(names: np.ndarray) -> np.ndarray:
    """Names that netCDF can hold: numbers, truth values and text as they are, anything else as text."""
    if names.ndim == 1 and names.dtype.kind in "biufU":
        return names
    return np.asarray([str(name.tolist() if isinstance(name, np.ndarray) else name) for name in names])


def _attributes(result: Any) -> dict[str, str]:
    attributes = {"inference_library": "gsnmf", "inference_library_version": version("gsnmf")}
    if isinstance(result, Fit):
        attributes |= {"bound": result.bound, "message": result.message}
    return attributes
