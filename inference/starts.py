"""Initialisation: given means, random ones (the paper's), or means of samples of each group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from ..model.compressed import Places, is_sparse
from ..model.conjugacy import prior_mean, rate_shape, stand_in
from ..model.data import Data
from ..model.priors import Gamma, Priors, canonical, is_grouped
from ..model.problem import Problem
from ..model.structures import served
from ..model.types import Array
from .labels import Known
from .moments import Moments
from .sharding import ShardedMatrix
from .sweep import rate_sums, update_lam


class Start(NamedTuple):
    """Starting means of T, V and λ; means that are None are initialised by `init` and `lam_start`."""

    T: Array | None = None
    V: Array | None = None
    lam: Array | None = None


def start(T: Array | None = None, V: Array | None = None, lam: Array | None = None) -> Start:
    """Return explicit starting means, as the paper's program takes them.

    Args:
        T: features × components, nonnegative.
        V: components × samples, nonnegative.
        lam: components × groups or as the family specifies, nonnegative. The optimum that is reached depends on it: see
            `lam_start` in `run`.

    Means that are left out are initialised by `init`, for which `run` then needs a key:
    `cavi.run(data, priors, key=key, start=cavi.start(lam=means))`.
    """
    return Start(T, V, lam)


def start_at_shape(data: Data, priors: Priors, rank: int | None = None) -> Start | None:
    """Return a start of λ at its shape aˡ, far below its prior mean aˡ∘bˡ if scales are large; T and V are left open.

    `run(..., lam_start="shape")` does the same.

    Args:
        data: as made by `as_data`.
        priors: the priors of the run.
        rank: the number of components, where the priors' shapes leave it open.

    Returns None for coefficients without λ.

    >>> from gsnmf.model import Gamma, GroupSparse, as_data
    >>> data = as_data([[3.0, 1.0]], ["a", "b"])
    >>> start_at_shape(data, Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1e6))), rank=1).lam.tolist()
    [[2.0, 2.0]]
    """
    K, family = Problem(data, priors, rank).rank, canonical(priors).coefficients
    size = rate_shape(family, data, K)
    return None if size is None else Start(lam=_first_lam(family, size, "shape"))


def _first_lam(family: Any, size: tuple[int, int], lam_start: str) -> np.ndarray:
    """Return λ at its prior mean or at its shape, in double precision."""
    prior = family.hyperprior
    values = np.asarray(stand_in(prior).a, float) if lam_start == "shape" else prior_mean(prior)
    return np.broadcast_to(values, size)


def first_rates(priors: Priors, V: Array, data: Data) -> Gamma | None:
    """Return q(λ) given V as a start; at the prior's median if the family has no closed form."""
    family, size = priors.coefficients, rate_shape(priors.coefficients, data, V.shape[0])
    if size is None or hasattr(family, "collect"):
        return update_lam(family, rate_sums(family, V, data.groups))
    return stand_in(family.hyperprior).broadcast(*size)


def fill(
    start: Start | None,
    data: Data,
    priors: Priors,
    K: int,
    key: Array | None,
    init: str,
    lam_start: str = "prior",
) -> Start:
    """Check the means given and initialise the others, all in double precision at any setting of JAX.

    Random numbers come from NumPy for the same reason: single and double precision start from the same point.

    Args:
        start: means, or None.
        data: as made by `as_data`.
        priors: as the user gave them.
        K: the rank.
        key: a JAX key; not needed if T and V are given.
        init: "random" or "groups".
        lam_start: "prior" or "shape".
    """
    check_method(init)
    given = Start() if start is None else start
    if not isinstance(given, Start):
        raise ValueError(
            f"expected start as made by cavi.start(T=..., V=..., lam=...), or a Fit or Posterior; got {type(start)}"
        )
    priors = canonical(priors)
    family, size = priors.coefficients, rate_shape(priors.coefficients, data, K)
    if size is None and given.lam is not None:
        raise ValueError(
            f"expected no lam, as {type(family).__name__} coefficients have none; got shape {np.shape(given.lam)}"
        )
    shapes: dict[str, Any] = {"T": (data.num_features, K), "V": (K, data.num_samples), "lam": size}
    for name, values in given._asdict().items():
        _check_mean(name, values, shapes[name])
    lam = given.lam
    if size is not None:
        lam = _first_lam(family, size, lam_start) if lam is None else np.asarray(lam, float)
    if given.T is not None and given.V is not None:
        return Start(given.T, given.V, lam)
    if key is None:
        raise ValueError("expected key=jax.random.key(...), or start=cavi.start(T=..., V=...); got neither")
    rng = np.random.default_rng(np.asarray(check_key(key)).ravel())
    T, V = METHODS[init](data, priors, K, rng)
    return Start(T if given.T is None else given.T, V if given.V is None else given.V, lam)


def first_moments(means: Start, data: Data, labels: Known) -> Moments:
    """Return the moments that the first sweep reads: exp E[log] = E + 1e-12, as in the paper's program.

    Args:
        means: of T, V and λ.
        data: of a `Problem`.
        labels: the strategy of labels.
    """
    T, V, lam = (np.asarray(mean, float) if mean is not None else np.ones(()) for mean in means)

    def log(x: np.ndarray) -> Array:
        return jax.device_put(np.log(np.maximum(x, 1e-30)).astype(data.X.dtype))  # sums and rates may be 0

    rates = None if means.lam is None else log(lam)
    exposure = _exposure(V, data)
    log_V, exposure, believed = labels.first(log(V.T + 1e-12), log(exposure))
    log_lam = None if data.several is None else rates
    return Moments(log(T.T + 1e-12), log_V, exposure, rates, log_lam, believed)


def _exposure(V: np.ndarray, data: Data) -> Any:
    """Return Σ_τ w_ντ v_iτ, components × 1, or × features if entries are hidden."""
    X: Any = data.X
    if isinstance(X, ShardedMatrix):
        if X.num_observed == X.shape[0] * X.shape[1]:
            return V.sum(axis=1, keepdims=True)
        own = _exposure(V[:, X.part.samples], X.part.data)
        return X.sum(np.broadcast_to(own, (len(V), data.num_features)))
    if data.mask is None:
        return V.sum(axis=1, keepdims=True)
    if is_sparse(data):
        left = V.sum(axis=1, keepdims=True) - (data.mask.to_scipy() @ V.T).T
        return np.where(data.matrix.observed_counts(1) > 0, left, 0)
    return V @ np.asarray(data.mask, float).T


def _random(data: Data, priors: Priors, K: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw exponential T about its prior mean, and V scaled so that TV has the mean of X."""
    F, N = data.matrix.shape
    T = prior_mean(priors.dictionary) * rng.exponential(size=(F, K))
    V = rng.exponential(size=(K, N)) * data.observed_mean / (K * T.mean())
    return T, V


def _groups(data: Data, priors: Priors, K: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw T's columns at noisy means of a few samples of each group they serve, and V small in other groups.

    A component serves the groups whose prior mean of λ is least; if no mean differs, or λ has no Gamma prior, groups
    take turns. Hidden entries are taken to be the mean of what their group has observed of that feature.
    """
    family = priors.coefficients
    if not is_grouped(priors):
        raise ValueError(f"expected coefficients with λ by group for init='groups'; got {type(family).__name__}")
    X, membership = _complete(data), np.asarray(data.membership)
    (F, N), mean = X.shape, float(X.mean())
    sure = np.where(data.known[:, None], membership, 0)
    rate = family.hyperprior
    serves = served(rate, data.group_sizes, K) if isinstance(rate, Gamma) else np.ones((K, data.num_groups), bool)
    if serves.all():
        serves = np.arange(data.num_groups) == (np.arange(K) * data.num_groups // K)[:, None]
    T = np.empty((F, K))
    for i, row in enumerate(serves):
        members = [np.flatnonzero(column) for column in sure.T[row] if column.any()] or [np.arange(N)]
        few = np.concatenate([rng.choice(group, size=min(3, len(group)), replace=False) for group in members])
        T[:, i] = (np.asarray(X[:, few].mean(axis=1)) + 1e-3 * mean) * rng.uniform(0.5, 1.5, size=F)
    at_home = serves @ membership.T > 0
    # Components that serve a group explain its samples together; in other groups V is small compared with its own.
    together = serves.sum(axis=0)
    elsewhere = (serves @ together) / serves.sum(axis=1)
    size = np.where(at_home, (membership @ together)[None, :], elsewhere[:, None])
    V = np.where(at_home, 1.0, 0.02) / size * rng.uniform(0.5, 1.5, size=at_home.shape)
    return T, V


@dataclass(frozen=True)
class Completed:
    """X of several processes with means in the place of hidden entries: what `_groups` reads of it.

    X: as made by `shard`.
    own: the samples of this process.
    """

    X: ShardedMatrix
    own: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of features and of samples."""
        return self.X.shape

    def mean(self) -> float:
        """Return the mean of all entries; all processes must ask for it."""
        return float(self.X.sum(self.own.sum())) / (self.shape[0] * self.shape[1])

    def __getitem__(self, place: tuple[slice, Array]) -> np.ndarray:
        """Return columns; all processes must ask for the same ones."""
        return self.X.columns(self.own, place[1])[place[0]]


def _complete(data: Data) -> Any:
    """Return X with hidden entries at the feature's mean in their group, else over all samples, else at X's mean.

    It reads entries of X because samples initialise the dictionary.
    """
    X: Any = data.X
    if isinstance(X, ShardedMatrix):
        if X.num_observed == X.shape[0] * X.shape[1]:
            return X
        own = X.part.data
        return Completed(X, (_filled_sparse if is_sparse(own) else _filled)(own, data.observed_mean, X.sum))
    return (_filled_sparse if is_sparse(data) else _filled)(data, data.observed_mean, np.asarray)


def _filled(data: Data, mean: float, add: Callable[[Any], np.ndarray]) -> Any:
    """Return a dense X with means in the place of hidden entries.

    Args:
        data: samples.
        mean: of all observed entries.
        add: returns the sum over processes.
    """
    X = np.asarray(data.X, float)
    if data.mask is None and add is np.asarray:
        return X
    mask = np.ones(X.shape) if data.mask is None else np.asarray(data.mask, float)
    filled = np.full_like(X, mean)
    for of in (np.ones((X.shape[1], 1)), np.asarray(data.membership, float)):
        seen = add(mask @ of) @ of.T  # counts of observations of the feature in the sample's group
        filled = np.where(seen > 0, add(X @ of) @ of.T / np.maximum(seen, 1), filled)
    return np.where(mask > 0, X, filled)


def _filled_sparse(data: Data, mean: float, add: Callable[[Any], np.ndarray]) -> Any:
    """Return the same as `_filled` for a sparse X, as a sparse matrix of SciPy in which columns can be taken."""
    X = data.X.to_scipy().astype(float).tocsc()
    if data.mask is None and add is np.asarray:
        return X
    none = np.zeros(0, np.int32)
    mask = Places(none, none, X.shape) if data.mask is None else data.mask
    feature, sample = np.asarray(mask.feature), np.asarray(mask.sample)
    filled = np.full(len(feature), mean)
    for of in (np.ones((X.shape[1], 1)), np.asarray(data.membership, float)):
        counts = add(of.sum(axis=0) - mask.to_scipy() @ of)
        seen, sums = (np.einsum("hc,hc->h", x[feature], of[sample]) for x in (counts, add(X @ of)))
        filled = np.where(seen > 1e-9, sums / np.maximum(seen, 1), filled)
    return X + type(X)((filled, (feature, sample)), shape=X.shape)


METHODS = {"random": _random, "groups": _groups}
LAM_STARTS = ("prior", "shape")


def check_method(init: Any) -> None:
    """Raise for an unknown initialisation."""
    if not isinstance(init, str) or init not in METHODS:
        raise ValueError(f"expected init to be one of {', '.join(map(repr, METHODS))}; got {init!r}")


def check_lam_start(lam_start: Any) -> None:
    """Raise for an unknown start of λ."""
    if not isinstance(lam_start, str) or lam_start not in LAM_STARTS:
        raise ValueError(f"expected lam_start to be one of {', '.join(map(repr, LAM_STARTS))}; got {lam_start!r}")


def _check_mean(name: str, values: Array | None, shape: tuple[int, int]) -> None:
    if values is None:
        return
    if np.shape(values) != shape:
        raise ValueError(f"expected the start of {name} to have shape {shape}; got {np.shape(values)}")
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not (np.isfinite(array) & (array >= 0)).all():
        least = np.array2string(array.ravel()[:6], separator=", ")
        raise ValueError(f"expected the start of {name} to be nonnegative and finite; got {least}")


def check_key(key: Array) -> Array:
    """Return the bits of one JAX key, of either style."""
    try:
        bits = jax.random.key_data(key)
    except (TypeError, ValueError):
        raise ValueError(f"expected key to be a JAX key, jax.random.key(0); got {key!r}") from None
    if bits.ndim != 1:
        raise ValueError(f"expected one key, jax.random.key(0); got {key.shape} of them (run_many takes several)")
    return bits
