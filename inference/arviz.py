"""Export to ArviZ: chains × draws with named dims, and the user's labels as coordinates."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer.util import log_density

from ..model.checks import require_flag, whole
from ..model.compressed import is_sparse, require_dense
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .alignment import align_draws, blocks
from .arviz_compat import gather
from .draws import (
    AXIS,
    Source,
    all_draws,
    batch,
    cut_batches,
    default_key,
    held_draws,
    is_chains,
    sampler_stats,
    source_of,
)
from .labels.readout import with_drawn_labels
from .linear_response import linear_response
from .pointwise import integrated_likelihood, require_integrable
from .posterior import Fit
from .results import require_own_data

DIMS: dict[str, tuple] = {
    "T": ("feature", "component"),
    "V": ("component", "sample"),
    "lam": (),  # by family
    "pi": (),  # by data
    "z": ("sample",),
}
LIKELIHOODS = ("auto", "entry", "sample", "integrated", None)
NUM_INTEGRATION = 256  # draws of v for each integrated likelihood
ALIGN = ("chain", "draw", None)
WIDTHS = ("mean_field", "linear_response", "corrected")
NUMBERS = 2**29  # at most in the groups of the size of X: some gigabytes
DRAWN = 2**32  # at most of T and V in all draws


def to_arviz(
    result: Any,
    data: Data | Problem,
    priors: Priors | None = None,
    *,
    key: Array | None = None,
    num_samples: int = 1000,
    log_likelihood: str | None = "auto",
    posterior_predictive: bool | None = None,
    align: str | None = "chain",
    reference: Any = None,
    widths: str = "mean_field",
) -> Any:
    """Return a result of any algorithm as ArviZ's InferenceData (0.23) or DataTree (1.x).

    Args:
        result: a `Fit` of CAVI or SVI or its `Posterior`, of which draws are made, with chain = 1; or a NumPyro `MCMC`
            of NUTS or Gibbs that has run, whose draws are taken.
        data: the data that it was fitted to; its names become coordinates.
        priors: by default those of the result.
        key: a JAX key for the draws; `jax.random.key(0)` by default.
        num_samples: draws from a variational posterior.
        log_likelihood: of every "entry" x_ντ given T and V, which is as many numbers as draws times X; of every
            "sample" given T and V, summed over its features; "integrated", of every sample given T and λ, its own v
            integrated out, which `az.loo` and `az.compare` need to leave out samples (see `leave_one_out`); or None.
            By default ("auto") of every entry of a dense X, and None for a sparse X, for which only None is allowed.
            Hidden entries have none: with a mask observed ones lie along one dim `entry`, with feature and sample as
            coordinates of it, and samples without any observed entry are left out.
        posterior_predictive: whether to draw X, hidden entries included; as large as the log likelihood by "entry". By
            default (None) for a dense X only.
        align: put the components of every "chain", or of every "draw", in the order of the reference; None leaves them.
        reference: a `Fit`, `Posterior` or draws, as in `align`. None for the first chain: then a variational result,
            which is one chain, stays as it is.
        widths: of draws from a variational posterior: "mean_field", from its factors as they are; "linear_response",
            with the covariance of `linear_response`; "corrected", with its corrected means, too. The last two are for
            problems whose Hessian fits in memory, with all labels known (see `LinearResponse.draws`). The attribute
            `widths` of the result says which they are; those of chains are "exact", those of other draws "as given".

    With unlabelled samples the posterior has z too, the index of a group for every sample (a number along `group`), and
    pi, if it has a Dirichlet prior: by group, or by unlabelled sample (dim `unlabelled`) and group. For NUTS, which
    sums z out, it is drawn from p(z | V, λ, π). `lp` is then the density of T, V, λ, π and z.

    Groups: posterior (T, V, lam), posterior_predictive (X), log_likelihood (X), observed_data (X), and sample_stats:
    for MCMC what the sampler recorded, or else the log joint density `lp`; for a `Fit` the trace of its bound by
    `step`, under the name of the bound (`augmented_bound`, `collapsed_bound`, `log_joint`). Dims: feature, component,
    sample, group, or others that a family's λ has. `sample` is a column of X: `az.extract` needs `combined=False`, as
    it would use that name for draws.

    Draws of a MAP estimate are one point repeated: `az.loo` cannot compute weights from them, and 1.x refuses them. A
    variational posterior is narrower than the true one: conclusions of ArviZ from its draws (`az.loo`, `az.compare`)
    are optimistic, where `leave_one_out` fits again. Given T and V ("entry" or "sample"), `az.loo` fails even with
    exact draws: v_τ is known from x_τ alone, and Pareto k is above 0.7 for most samples.

    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[3.0, 1.0], [0.0, 2.0]], sample_names=["a", "b"])
    >>> priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> draws = to_arviz(fit, data, num_samples=10)
    >>> draws["posterior"]["V"].dims, draws["posterior"]["V"].coords["sample"].values.tolist()
    (('chain', 'draw', 'component', 'sample'), ['a', 'b'])
    """
    _check_choices(result, log_likelihood, align, widths)
    if posterior_predictive is not None:
        require_flag("posterior_predictive", posterior_predictive)
    whole("num_samples", num_samples, 1)
    key_draws, key_X = jax.random.split(default_key(key))
    source, given = source_of(result, data, priors, num_samples), data
    data = source.problem.data if isinstance(data, Problem) else data  # in the precision of the user
    log_likelihood, posterior_predictive = _asked_for(data, log_likelihood, posterior_predictive)
    _check_size(source.num * source.problem.size * ((log_likelihood == "entry") + posterior_predictive))
    _check_draws(source)
    if log_likelihood == "integrated":
        require_integrable(source.problem.priors.coefficients)
    require_own_data(result, given)
    if widths != "mean_field":
        response = linear_response(result, source.problem)
        source = source._replace(
            held=response.draws(num_samples, key=key_draws, corrected=widths == "corrected"), q=None
        )
    draws, stats = all_draws(source, key_draws), sampler_stats(result) or _trace(result)
    draws = with_drawn_labels(draws, source.problem, key=jax.random.fold_in(key_draws, 1))
    if align is not None and (reference is not None or is_chains(result)):
        draws = _aligned(draws, result, source.problem, reference, align)
    coords, attributes = _coordinates(data, draws), _attributes(result, widths)

    def dataset(variables: dict[str, tuple], coords: dict[str, Any] = coords) -> Any:
        return _dataset(variables, coords, attributes)

    axes = {**DIMS, "lam": source.problem.priors.coefficients.axes}
    if "pi" in draws:
        axes["pi"] = ("group",) if draws["pi"].ndim == 3 else ("unlabelled", "group")
    groups = {"posterior": dataset({site: (("chain", "draw", *axes[site]), x) for site, x in draws.items()})}
    conditional = None if log_likelihood == "integrated" else log_likelihood
    looks = Looks(conditional, posterior_predictive, not stats and is_chains(result))
    found = _predict(draws, source.problem, key_X, looks)
    if log_likelihood == "integrated":
        options: dict[str, Any] = {"key": jax.random.fold_in(key_X, 1), "num_integration": NUM_INTEGRATION}
        found["log_likelihood"] = integrated_likelihood(draws, source.problem, **options).log_p
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
    if not is_sparse(data):
        groups["observed_data"] = dataset({"X": (("feature", "sample"), data.matrix.with_nan())})
    return gather(groups)


def _check_choices(result: Any, log_likelihood: Any, align: Any, widths: Any) -> None:
    """Raise for unknown words, and for corrected widths of draws."""
    if log_likelihood not in LIKELIHOODS or align not in ALIGN:
        raise ValueError(
            f"expected log_likelihood among {LIKELIHOODS} and align among {ALIGN}; got {log_likelihood!r} and {align!r}"
        )
    if widths not in WIDTHS or (widths != "mean_field" and held_draws(result) is not None):
        got = repr(widths) if widths not in WIDTHS else f"{widths!r} for draws, whose widths are their own"
        raise ValueError(f"expected widths among {WIDTHS}; got {got}")


def _asked_for(data: Data, log_likelihood: str | None, posterior_predictive: bool | None) -> tuple[str | None, bool]:
    """Return both as asked for, or by default: as far as X is dense."""
    sparse = is_sparse(data)
    if log_likelihood == "auto":
        log_likelihood = None if sparse else "entry"
    predictive = not sparse if posterior_predictive is None else bool(posterior_predictive)
    if log_likelihood is not None or predictive:
        require_dense(data, "to_arviz with a log_likelihood or posterior_predictive")
    return log_likelihood, predictive


def _aligned(draws: dict[str, Any], result: Any, problem: Problem, reference: Any, align: str) -> dict[str, Any]:
    """Return the draws with their components in the order of the reference."""
    moving = {site: x for site, x in draws.items() if site in AXIS}
    learned = isinstance(result, Fit) and result.learned
    return draws | align_draws(moving, reference, blocks(problem, learned), align)


def _check_draws(source: Source) -> None:
    """Raise if draws of T and V are too many to hold, before they are made."""
    numbers = source.num * sum(source.problem.data.matrix.shape) * source.problem.rank
    if source.q is not None and numbers > DRAWN:
        raise ValueError(f"expected at most {DRAWN:.1e} numbers of T and V in all draws; got {numbers:.1e}")


def _check_size(numbers: int) -> None:
    """Raise if so many numbers of all draws together are too many to hold."""
    if numbers > NUMBERS:
        raise ValueError(
            f"expected at most {NUMBERS:.1e} numbers of log_likelihood and posterior_predictive; got {numbers:.1e}: "
            "take fewer draws, log_likelihood='sample' or None, or posterior_predictive=False"
        )


def _coordinates(data: Data, draws: dict[str, Any]) -> dict[str, Any]:
    """Return the coordinates of all dims."""
    chains, length, _, K = draws["T"].shape
    return {
        "chain": np.arange(chains),
        "draw": np.arange(length),
        "component": np.arange(K),
        **{axis: labels(getattr(data.names, axis)) for axis in ("feature", "sample", "group")},
        "unlabelled": labels(data.names.sample[~data.known]),
    }


def _dataset(variables: dict[str, tuple], coords: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """Return variables with those of the coordinates that they use."""
    import xarray

    used = {dim for dims, _ in variables.values() for dim in dims}
    used |= {name for name, values in coords.items() if isinstance(values, tuple)}  # of a dim with another name
    return xarray.Dataset(variables, {d: values for d, values in coords.items() if d in used}, attributes)


def _seen(likelihood: np.ndarray, mask: np.ndarray, coords: dict[str, Any]) -> tuple[np.ndarray, str, dict[str, Any]]:
    """Return the log likelihood of observed entries along one dim, its name, and the coordinates along it."""
    if likelihood.ndim == 3:  # by sample
        some = mask.any(axis=0)
        return likelihood[..., some], "sample", coords | {"sample": coords["sample"][some]}
    at = {"feature": np.nonzero(mask)[0], "sample": np.nonzero(mask)[1]}
    along = {axis: ("entry", coords[axis][index]) for axis, index in at.items()}
    return likelihood[..., mask], "entry", coords | along


def _trace(result: Any) -> dict[str, tuple]:
    if not isinstance(result, Fit):
        return {}
    name = result.bound if result.bound == "log_joint" else f"{result.bound}_bound"
    return {name: (("step",), np.asarray(result.elbo, float))}


class Looks(NamedTuple):
    """Quantities wanted for every draw: the log density of X, by "entry" or "sample"; a new X; the log joint."""

    likelihood: str | None
    predictive: bool
    joint: bool


def _predict(draws: dict[str, np.ndarray], problem: Problem, key: Array, looks: Looks) -> dict[str, np.ndarray]:
    """Return the quantities wanted, by chain and draw."""
    if not any(looks):
        return {}
    chains, length = draws["T"].shape[:2]
    size = batch(problem.size, chains * length)
    made: list[dict[str, np.ndarray]] = []
    for n, (some, _) in enumerate(cut_batches(draws, size)):
        keys = jax.random.split(jax.random.fold_in(key, n * size), size)
        made.append(jax.device_get(_look(some, keys, problem, looks)))
    joined = {group: np.concatenate([part[group] for part in made])[: chains * length] for group in made[0]}
    return {group: x.reshape(chains, length, *x.shape[1:]) for group, x in joined.items()}


@partial(jax.jit, static_argnames="looks")
def _look(draws: dict[str, Array], keys: Array, problem: Problem, looks: Looks) -> dict[str, Array]:
    """Return the quantities wanted given each draw."""

    def one(draw: dict[str, Array], key: Array) -> dict[str, Array]:
        X = handlers.trace(handlers.substitute(group_sparse_nmf, draw)).get_trace(problem)["X"]
        found = {}
        if looks.likelihood is not None:
            density = X["fn"].log_prob(X["value"])
            found["log_likelihood"] = density if looks.likelihood == "entry" else density.sum(axis=0)
        if looks.predictive:
            found["posterior_predictive"] = X["fn"].sample(key)
        if looks.joint:
            found["lp"] = log_density(group_sparse_nmf, (problem,), {}, draw)[0]
        return found

    return jax.vmap(one)(draws, keys)


def labels(names: np.ndarray) -> np.ndarray:
    """Return names that netCDF can hold: numbers, truth values and text as they are, anything else as text."""
    if names.ndim == 1 and names.dtype.kind in "biufU":
        return names
    return np.asarray([str(name.tolist() if isinstance(name, np.ndarray) else name) for name in names])


def _attributes(result: Any, widths: str) -> dict[str, str]:
    kind = "exact" if is_chains(result) else "as given" if held_draws(result) is not None else widths
    attributes = {"widths": kind}
    attributes |= {"inference_library": "gsnmf", "inference_library_version": version("gsnmf")}
    if isinstance(result, Fit):
        attributes |= {"bound": result.bound, "message": result.message}
    return attributes
