"""Mean-field coordinate ascent in closed form: the paper's algorithm, and the same with momentum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..model.conjugacy import rate_shape, require_closed_forms
from ..model.data import Data, with_several
from ..model.missing import fingerprint
from ..model.priors import Priors
from ..model.problem import prepare
from ..model.types import Array
from ..model.validation import whole
from .bound import bound, paper_bound, paper_bound_gap
from .components import DeadComponentsWarning, warn_of_dead
from .engine import Plan, State, plain, run_batch, run_one, temper
from .hyper import Learn, learn, tie
from .labels.unlabelled import form_of, is_unknown
from .labels.warm_start import Labelling, is_warm, joined, label_posterior, labelled, labelling
from .observed.dense import Observed, observe
from .posterior import Fit, Posterior, Transposed, match, rank_of, transposed
from .starts import Start, check_method, fill, first_moments, start, start_at_shape
from .sweep import Moments, moments, sweep

__all__ = [
    "Labelling", "Learn", "Moments", "State", "bound", "init", "labelling", "learn", "paper_bound", "paper_bound_gap",
    "run", "run_many", "start", "start_at_shape", "step",
]  # fmt: skip


def init(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    rank: int | None = None,
    labels: Labelling | None = None,
) -> State:
    """The state before the first sweep; the arguments are those of `run`.

    Given means E become exp E[log] = E + 1e-12, as in the paper's program. The factors of the state are not yet
    meaningful: a start has means but no shapes.
    """
    begun: Any = start.posterior if isinstance(start, Fit) else start
    if isinstance(begun, Posterior) and rank is None:
        rank = rank_of(begun)
    ready, hyper, K = prepare(data, priors, rank)
    require_closed_forms(hyper, "coordinate ascent")
    check_method(init)
    unknown, how = is_unknown(ready), labelling() if labels is None else labels
    if unknown and isinstance(begun, Posterior):
        if labels is None and begun.labels is not None:
            how = how._replace(form=form_of(begun, ready))
        begun = begun if begun.labels is not None else begun.with_labels(label_posterior(ready))
        how = how._replace(tempering=0)
    elif unknown and is_warm(how, data, begun):
        begun = _warm(data, ready, priors, K, key, begun, how)
    if ready.num_groups == 1:  # then a label says nothing
        how = how._replace(form="mean_field")
    if isinstance(begun, Posterior):
        m = jax.jit(moments)(observe(ready, how.form), hyper, transposed(match(begun, ready, hyper, K), how.form))
    else:
        m = first_moments(fill(begun, data, priors, K, key, init), ready, ready.X.dtype, how.form)
    zero = jnp.zeros((), ready.X.dtype)
    state = State(m, _placeholder(ready, hyper, m), None, zero, zero, zero - 1)
    return temper(observe(ready, how.form), hyper, state, how.tempering) if unknown and how.tempering else state


def _warm(data: Data, ready: Data, priors: Priors, K: int, key: Any, start: Start | None, how: Labelling) -> Posterior:
    """What the labelled samples say, and the others under it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not have converged
        warnings.simplefilter("ignore", DeadComponentsWarning)  # which the run itself will warn of
        fit = run(labelled(data), priors, key=key, start=start, init=str(how.warm_start), rank=K, tol=1e-5)
    return joined(data, ready, fit, priors)


def _placeholder(data: Data, priors: Priors, m: Moments) -> Transposed:
    """Factors of the shapes that a sweep gives them: their scales are only as large as the priors make them."""
    shapes, _ = jax.eval_shape(lambda: sweep(observe(data, _form(m, data)), priors, m))
    factors: Transposed = jax.tree.map(lambda s: jax.device_put(np.ones(s.shape, s.dtype)), shapes)
    return factors


def step(data: Data, priors: Priors, state: State) -> tuple[State, float]:
    """One plain sweep: the next state, and the bound of the state given (meaningless before the first sweep)."""
    if not isinstance(state, State):
        raise ValueError(f"expected a State, as made by cavi.init; got {type(state).__name__}")
    seen, hyper, state = _see(data, priors, state)
    state, bounds = jax.jit(plain)(seen, hyper, state)
    return state, float(bounds.kept)


def _see(data: Data, priors: Priors, state: State, learn: Learn | None = None) -> tuple[Observed, Priors, State]:
    """What sweeps read, and the state with room for what they learn; the copy of X that was prepared does not stay."""
    data, priors, K = prepare(data, priors, state.moments.T.shape[0])
    if learn is not None:
        of_V = rate_shape(priors.coefficients, data, K) or (K, data.num_samples)
        tied = tie(priors, learn, {"dictionary": (data.num_features, K), "coefficients": of_V})
        state = state._replace(factors=_placeholder(data, tied, state.moments), priors=tied)
    return observe(data, _form(state.moments, data)), priors, state


def _form(m: Moments, data: Data) -> str:
    """The form of q that moments are of; of known labels both are the same."""
    return "mean_field" if m.labels is None or m.labels.rows is None else "structured"


def run(
    data: Data,
    priors: Priors,
    *,
    key: Array | None = None,
    start: Start | Posterior | Fit | None = None,
    init: str = "random",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
    callback: Callable[[Fit], object] | None = None,
) -> Fit:
    """Fit the mean field by sweeps of coordinate ascent.

    Args:
        data: as made by `as_data`.
        priors: what is believed about T and V; their shapes fix the rank, or `rank` does.
        key: a JAX key for the random start; not needed when `start` gives T and V.
        start: means from `cavi.start` or `cavi.start_at_shape`, or a `Fit` or `Posterior` to go on from.
        init: how what `start` leaves open is filled: "random" (the paper's) or "groups" (T from samples of the
            group each component is bound to). They lead to different optima.
        rank: the number of components, where the priors' shapes leave it open.
        max_steps: sweeps at most.
        tol: stop when the bound changes by less than this, relatively, in one sweep; None for all sweeps.
        accelerate: momentum on E[log T], E[log V], log Σ E[V] and log E[λ], and the scale step, for several times fewer
            sweeps (`make bench` counts them). A sweep after which the bound is lower is dropped and momentum begins
            anew, so what is kept never falls, but for rounding; a dropped sweep counts as a sweep. `elbo` then holds,
            but for its last entry, the bound with q(S) as the sweep left it: valid, and below the one with q(S) at
            its optimum.
        learn: which hyperparameters are learned with the factors, once a sweep, as made by `cavi.learn`; the fit's
            `priors` are then the learned ones, and what the bounds are with. None for none.
        labels: how labels that are unknown are learned, as made by `cavi.labelling`, which says what None does; without
            such labels it does not matter. `init` is then for fits without a warm start. What is found is in
            `fit.posterior.z` and `fit.posterior.labels`; the sweeps that led there are not in `elbo`.
        callback: called with the `Fit` so far about every 25 sweeps, for progress and checkpoints.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> run(data, priors, key=jax.random.key(0), rank=1).converged
    True
    >>> from gsnmf.model import GroupSparse
    >>> data = as_data([[9, 8, 1, 0, 7], [1, 0, 8, 9, 1]], ["a", "a", "b", "b", None])
    >>> priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma([[1.0, 9.0], [9.0, 1.0]], 1.0)))
    >>> run(data, priors, key=jax.random.key(0)).posterior.z[4].argmax().item()
    0

    Returns a `Fit`. With `accelerate=False, tol=None` it is exactly the paper's sweep, `max_steps` times; where labels
    are unknown, after what `labels` says of the start. A run that does not reach its tolerance says so in `converged`,
    `message` and one `ConvergenceWarning`; one in which components came to explain nothing says so in a
    `DeadComponentsWarning` (see `in_use` and `prune`).
    """
    _check_options(max_steps, tol, accelerate, learn, labels)
    if callback is not None and not callable(callback):
        raise ValueError(f"expected callback to be a function of a Fit; got {callback!r}")
    state = _init(data, priors, key=key, start=start, init=init, rank=rank, labels=labels)
    seen, hyper, state = _see(data, priors, state, learn)
    plan = Plan(priors, max_steps, tol, accelerate, learn)
    fit = run_one(seen, hyper, state, plan, callback)._replace(data=fingerprint(data))
    _warn([fit], [data], tol)
    return fit


_init = init  # `run` has an argument of that name


def run_many(
    data: Data | Sequence[Data],
    priors: Priors,
    *,
    keys: Array | Sequence[Array],
    start: Start | None = None,
    init: str = "random",
    rank: int | None = None,
    max_steps: int = 300,
    tol: float | None = 1e-6,
    accelerate: bool = True,
    learn: Learn | None = None,
    labels: Labelling | None = None,
    batch: bool | None = None,
) -> list[Fit]:
    """One fit for each key: restarts on the same data, or folds of equal shape.

    Args:
        data: one for all keys, or one for each, all of the same shape with the same groups.
        priors: the same for all.
        keys: JAX keys, as from `jax.random.split`.
        start: as in `run`, the same for all; likewise init, rank, max_steps, tol and accelerate.
        init: as in `run`.
        rank: as in `run`.
        max_steps: as in `run`.
        tol: as in `run`.
        accelerate: as in `run`.
        learn: as in `run`; each fit learns its own.
        labels: as in `run`.
        batch: whether all fits are one batch under `jax.vmap`, each sweep one call for all of them, or are made one
            after another. None takes what is cheapest: a batch on accelerators, one after another on CPUs, where
            the products of one fit occupy all cores already and a batch has to be compiled anew for every size
            (`make bench` shows both).

    Returns the fits in the order of the keys. All that did not converge give one warning together, and so do all with
    dead components.

    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[3.0, 1.0], [0.0, 2.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fits = run_many(data, priors, keys=jax.random.split(jax.random.key(0), 3), rank=1)
    >>> max(fits, key=lambda fit: fit.elbo[-1]).posterior.T.mean.shape
    (2, 1)
    """
    _check_options(max_steps, tol, accelerate, learn, labels)
    keys = list(keys) if isinstance(keys, (list, tuple)) or getattr(keys, "ndim", 0) > 0 else []
    if not keys:
        raise ValueError("expected several keys, jax.random.split(key, n); got none, or a single one")
    shared = isinstance(data, Data)
    datas: list[Any] = [data] if isinstance(data, Data) else list(data) if isinstance(data, (list, tuple)) else [None]
    if not all(isinstance(d, Data) for d in datas):
        raise ValueError(f"expected Data, as made by as_data, or a list of them; got {type(data).__name__}")
    shapes = {(*d.X.shape, tuple(d.names.group.tolist()), int((~d.known).sum()), _prior_of_labels(d)) for d in datas}
    if not shared and (len(datas) != len(keys) or len(shapes) > 1):
        raise ValueError(
            f"expected one Data, or {len(keys)} of one shape with the same groups (features, samples, groups, samples "
            f"without a label, the prior of labels); got {len(datas)} of {sorted(shapes, key=str)}"
        )
    batched = jax.default_backend() != "cpu" if batch is None else batch
    if len({d.mask is None for d in datas}) > 1:  # then all have one
        datas = [d if d.mask is not None else d._replace(mask=np.ones(d.X.shape, bool)) for d in datas]
    if len({d.several is None for d in datas}) > 1:  # likewise
        datas = [d._replace(labels=with_several(d)) for d in datas]
    of = [datas[0]] * len(keys) if shared else datas
    options = {"start": start, "init": init, "rank": rank, "labels": labels}
    states = [_init(d, priors, key=k, **options) for d, k in zip(of, keys, strict=True)]  # type: ignore[arg-type]  # each
    seen, hypers, ready = zip(*(_see(d, priors, states[0], learn) for d in datas), strict=True)
    states = [state._replace(factors=ready[0].factors, priors=ready[0].priors) for state in states]
    plan = Plan(priors, max_steps, tol, accelerate, learn)
    if batched:
        together = seen[0] if shared else _stack(seen)
        fits = run_batch(together, hypers[0], _stack(states), plan, shared)
    else:
        pairs = zip(seen * len(keys) if shared else seen, states, strict=True)
        fits = [run_one(d, hypers[0], s, plan) for d, s in pairs]
    marks = [fingerprint(d) for d in ([data] if isinstance(data, Data) else data)]
    fits = [fit._replace(data=mark) for fit, mark in zip(fits, marks * len(keys) if shared else marks, strict=True)]
    _warn(fits, of, tol)
    return fits


def _prior_of_labels(data: Data) -> str:
    """What kind of prior unknown labels have, in words."""
    u = None if data.labels is None else data.labels.dirichlet
    return "weights" if u is None else f"Dirichlet of {np.shape(u)}"


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _check_options(
    max_steps: int, tol: float | None, accelerate: bool, learn: Learn | None, labels: Labelling | None
) -> None:
    whole("max_steps", max_steps, 1)
    if tol is not None and not (isinstance(tol, (int, float, np.number)) and 0 <= tol < np.inf):
        raise ValueError(f"expected tol to be None or a number ≥ 0; got {tol!r}")
    if not isinstance(accelerate, (bool, np.bool)):
        raise ValueError(f"expected accelerate to be True or False; got {accelerate!r}")
    if learn is not None and not isinstance(learn, Learn):
        raise ValueError(f"expected learn to be None or made by cavi.learn; got {learn!r}")
    if labels is not None and not isinstance(labels, Labelling):
        raise ValueError(f"expected labels to be None or made by cavi.labelling; got {labels!r}")


def _warn(fits: list[Fit], datas: list[Data], tol: float | None) -> None:
    """One warning for all that did not reach their tolerance, or whose bound is not finite; one for dead components."""
    late = [fit for fit in fits if not (fit.converged if tol is not None else np.isfinite(fit.elbo).all())]
    if late:
        count = f"{len(late)} of {len(fits)} fits did not converge. " if len(fits) > 1 else ""
        warnings.warn(count + late[0].message, ConvergenceWarning, stacklevel=3)
    warn_of_dead(fits, datas, stacklevel=3)
