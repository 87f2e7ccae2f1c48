"""Several fits by coordinate ascent at once: restarts, or folds of equal shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..model.compressed import is_sparse
from ..model.data import Data, with_several
from ..model.missing import marks_of
from ..model.priors import Priors
from ..model.types import Array
from .beginning import Beginning, begin, check_options, problem_for, with_ties
from .convergence import Schedule, warn_of
from .engine import run_batch, run_one
from .hyper import Learn
from .labels.warm_start import Labelling
from .momentum import State
from .observations import Observations
from .posterior import Fit
from .starts import Start


def run_many(
    data: Data | Sequence[Data],
    priors: Priors,
    *,
    keys: Array | Sequence[Array],
    start: Start | None = None,
    init: str = "random",
    lam_start: str = "prior",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
    batch: bool | None = None,
) -> list[Fit]:
    """Fit once for each key: restarts on the same data, or folds of equal shape.

    Args:
        data: one for all keys, or one for each, all of the same shape with the same groups.
        priors: the same for all.
        keys: JAX keys, as from `jax.random.split`.
        start: as in `run`, the same for all.
        init: as in `run`.
        lam_start: as in `run`.
        rank: as in `run`.
        max_steps: as in `run`.
        tol: as in `run`.
        accelerate: as in `run`.
        learn: as in `run`; each fit learns its own.
        labels: as in `run`.
        batch: whether all fits are one batch under `jax.vmap`, each sweep one call for all of them, or are made one
            after another. None takes the cheaper way: a batch on accelerators, one after another on CPUs, where the
            products of one fit occupy all cores already and a batch has to be compiled for every size (`make bench`
            shows both). Fits of a sparse X are always made one after another.

    Returns the fits in the order of the keys. One warning covers all that did not converge, and one all with unused
    components.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fits = run_many(data, priors, keys=jax.random.split(jax.random.key(0), 3), rank=1)
    >>> max(fits, key=lambda fit: fit.elbo[-1]).posterior.T.mean.shape
    (2, 1)
    """
    check_options(max_steps, tol, accelerate, learn, labels)
    several = list(keys) if isinstance(keys, (list, tuple)) or getattr(keys, "ndim", 0) > 0 else []
    if not several:
        raise ValueError(f"expected several keys, jax.random.split(key, n); got {keys!r}")
    keys = several
    shared = isinstance(data, Data)
    given = _check_datas(data, len(keys))
    datas = _alike(given)
    batched = _in_one_batch(given, batch)
    begun: Any = start.posterior if isinstance(start, Fit) else start
    problems = [problem_for(d, priors, rank, begun) for d in datas]
    observed: list[Observations] = []
    states: list[State] = []
    for n, key in enumerate(keys):
        one = 0 if shared else n
        beginning = Beginning(key, begun, init, lam_start, labels)
        ready = observed[one] if len(observed) > one else None
        seen, state = begin(problems[one], datas[one], priors, beginning, ready)
        observed += [seen] if len(observed) <= one else []
        states.append(with_ties(problems[one], seen, state, learn))
    hyper = problems[0].priors
    del problems
    schedule = Schedule(priors, max_steps, tol, accelerate, learn)
    if batched:
        together = observed[0] if shared else _stack(observed)
        fits = run_batch(together, hyper, _stack(states), schedule, shared)
    else:
        pairs = zip(observed * len(keys) if shared else observed, states, strict=True)
        fits = [run_one(seen, hyper, [state], schedule) for seen, state in pairs]
    of = given * len(keys) if shared else given
    marks = [marks_of(d) for d in given] * (len(keys) if shared else 1)
    fits = [fit._replace(**mark) for fit, mark in zip(fits, marks, strict=True)]
    warn_of(fits, of, tol)
    return fits


def _check_datas(data: Any, number: int) -> list[Data]:
    """Return one `Data`, or one for each key if all have one shape."""
    datas: list[Any] = [data] if isinstance(data, Data) else list(data) if isinstance(data, (list, tuple)) else [None]
    if not all(isinstance(d, Data) for d in datas):
        raise ValueError(f"expected Data, as made by as_data, or a list of them; got {type(data).__name__}")
    shapes = {(*d.matrix.shape, tuple(d.names.group.tolist()), d.num_unlabelled, _prior_of_labels(d)) for d in datas}
    if not isinstance(data, Data) and (len(datas) != number or len(shapes) > 1):
        raise ValueError(
            f"expected one Data, or {number} of one shape with the same groups (features, samples, groups, unlabelled "
            f"samples, the prior of labels); got {len(datas)} of {sorted(shapes, key=str)}"
        )
    return datas


def _in_one_batch(datas: list[Data], batch: bool | None) -> bool:
    """Return whether all fits are one batch."""
    if not any(map(is_sparse, datas)):
        return jax.default_backend() != "cpu" if batch is None else batch
    if batch:
        raise ValueError(f"expected batch=False for a sparse X, whose fits are made in turn; got batch={batch}")
    return False


def _alike(datas: list[Data]) -> list[Data]:
    """Return the data such that all have a mask, and state multi-label samples, if one does."""
    if len({d.mask is None for d in datas}) > 1 and not any(map(is_sparse, datas)):
        datas = [d if d.mask is not None else d._replace(mask=np.ones(d.matrix.shape, bool)) for d in datas]
    if len({d.several is None for d in datas}) > 1:
        datas = [d._replace(labels=with_several(d)) for d in datas]
    return datas


def _prior_of_labels(data: Data) -> str:
    """Return the kind of prior of unlabelled samples, in words."""
    u = None if data.labels is None else data.labels.dirichlet
    return "weights" if u is None else f"Dirichlet of {np.shape(u)}"


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
