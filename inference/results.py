"""Factors, priors and the problem of a result, as functions that take results read them."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..model.conjugacy import rate_shape
from ..model.data import Data
from ..model.matrix import is_traced
from ..model.missing import fingerprint, label_fingerprint
from ..model.priors import Gamma, Priors, canonical
from ..model.problem import Problem
from ..model.unlabelled import labels_of, unlabelled_samples
from .labels.unlabelled import label_prior
from .posterior import Fit, Posterior


def rank_of(posterior: Any) -> int:
    """Return K; raise if this is not a `Posterior`."""
    if not isinstance(posterior, Posterior) or np.ndim(posterior.T[0]) != 2:
        raise ValueError(f"expected a Posterior, as in fit.posterior; got {type(posterior).__name__}")
    return int(np.shape(posterior.T[0])[1])


def factors_of(result: Any) -> Posterior:
    """Return the posterior of a `Fit`, or the `Posterior` itself; raise for anything else."""
    posterior = result.posterior if isinstance(result, Fit) else result
    rank_of(posterior)
    return posterior


def priors_of(result: Any, priors: Priors | None = None) -> Priors:
    """Return the priors to read a result with: its own, unless others are given.

    Args:
        result: a `Fit`, or chains of `mcmc`, which have priors of their own; or a `Posterior`, which has none.
        priors: others, or None. Other priors than its own are refused for a fit with learned hyperparameters.
    """
    own = getattr(result, "priors", None)
    if priors is None:
        if own is None:
            raise ValueError(f"expected priors, as a {type(result).__name__} does not have its own; got priors=None")
        return own  # type: ignore[no-any-return]  # of a Fit or of chains
    if isinstance(result, Fit) and result.learned and own is not None and not same_priors(priors, own):
        raise ValueError(
            "expected no priors, or fit.priors, for a fit whose hyperparameters were learned, as its factors belong to "
            f"the learned ones; got {difference(priors, own)}"
        )
    return priors


def same_priors(one: Priors, other: Priors, rtol: float = 0.0) -> bool:
    """Return whether two priors have the same families and numbers; see `difference`."""
    return difference(one, other, rtol) is None


def difference(one: Priors, other: Priors, rtol: float = 0.0) -> str | None:
    """Return the first parameter in which two priors differ, in words; None if they do not.

    Numbers of `Gamma` may be broadcast in either; a distribution of NumPyro has its shape.

    Args:
        one: priors.
        other: priors.
        rtol: relative difference that numbers may have, such as that of another precision.
    """
    if one is other:
        return None
    (ours, form), (theirs, other_form) = (_parameters(canonical(priors)) for priors in (one, other))
    if form != other_form:
        return "other families, or shapes of them"
    for (path, here), (_, there) in zip(ours, theirs, strict=True):
        try:
            same = np.allclose(np.asarray(here), np.asarray(there), rtol=rtol, atol=0)
        except ValueError:  # shapes that do not broadcast
            same = False
        if not same:
            return f"another {jax.tree_util.keystr(path, simple=True, separator='.')}"
    return None


def _parameters(priors: Priors) -> Any:
    """Return the parameters of priors with their paths, and the families; lists of numbers are matrices."""
    return jax.tree_util.tree_flatten_with_path(priors, is_leaf=_is_matrix)


def _is_matrix(x: Any) -> bool:
    """Return whether this is a list of numbers or of such lists, not one of NumPyro's transforms or distributions."""
    return isinstance(x, list) and all(isinstance(y, list) or jax.tree_util.all_leaves([y]) for y in x)


def problem_of(result: Any, data: Data | Problem, priors: Priors | None = None, rank: int | None = None) -> Problem:
    """Return the problem that a result answers: as it is, or prepared from data and priors (see `priors_of`).

    Args:
        result: a `Fit`, `Posterior` or chains.
        data: the data that it was fitted to, or the problem.
        priors: by default those of the result.
        rank: by default that of a `Fit` or `Posterior`.
    """
    if isinstance(data, Problem):
        if priors is not None:
            raise ValueError(f"expected no priors with a Problem, which has its own; got {priors}")
        if isinstance(result, Fit) and result.learned and result.priors is not None:
            priors_of(result, data.priors if not _answers(result.priors, data) else None)
        return data
    return Problem(data, priors_of(result, priors), rank_of(factors_of(result)) if rank is None else rank)


def require_own_data(result: Any, data: Data | Problem) -> None:
    """Raise if a fit is of other data or labels; a `Posterior` and the data of a `Problem` are trusted."""
    found = other_data(result, data)
    if found is not None:
        raise ValueError(f"expected the data of the fit; got {found}")


def other_data(result: Any, data: Data | Problem) -> str | None:
    """Return how these data differ from those of a fit, in words; None if they do not, or are trusted.

    Labels count if the priors of the fit have groups.
    """
    if not isinstance(result, Fit) or not isinstance(data, Data):
        return None
    mark = fingerprint(data)
    if result.data not in (None, mark):
        return f"other data (checksum {mark}, that of the fit {result.data})"
    grouped = result.priors is None or "group" in canonical(result.priors).coefficients.axes
    mark = label_fingerprint(data)
    if grouped and result.labels not in (None, mark):
        return f"the same X with other labels of samples (checksum {mark}, that of the fit {result.labels})"
    return None


def _answers(priors: Priors, problem: Problem) -> bool:
    """Return whether a problem has these priors, prepared."""
    return same_priors(Problem(problem.data, priors, problem.rank).priors, problem.priors)


def divergence(result: Any, data: Data) -> float:
    """Return KL(X ‖ E[T] E[V]) = Σ x log(x/m) − x + m over observed entries.

    Args:
        result: a `Fit`, or its `Posterior`.
        data: the data that it was fitted to.
    """
    T, V = (np.asarray(q.mean, float) for q in factors_of(result)[:2])
    return data.matrix.divergence(T, V)


def match(posterior: Posterior, problem: Problem, kind: type | tuple = Gamma) -> Posterior:
    """Return the posterior in the precision of the problem; raise if its factors do not fit.

    Args:
        posterior: the factors.
        problem: the problem that they answer.
        kind: the classes that factors may have.
    """
    data, priors, rank = problem
    other = {type(q).__name__ for q in posterior.sites.values() if not isinstance(q, kind)}
    if other:
        raise ValueError(
            f"expected Gamma factors, which closed forms need; got {', '.join(sorted(other))} "
            "(their means suffice: start=cavi.start(T=posterior.T.mean, V=..., lam=...))"
        )
    shapes = {"T": (data.num_features, rank), "V": (rank, data.num_samples)}
    size = rate_shape(priors.coefficients, data, rank)
    if size is not None:
        shapes["lam"] = size
    found = {site: jax.eval_shape(lambda q: q.mean, q).shape for site, q in posterior.sites.items()}
    if found != shapes:
        raise ValueError(f"expected a posterior of shapes {shapes} for these data and priors; got {found}")
    labels = posterior.labels
    if labels is not None and not is_traced(labels.unlabelled, data.labels):
        flags, unlabelled = np.asarray(labels.unlabelled, bool), ~data.known
        if flags.tolist() != unlabelled.tolist() or labels.z.shape[1] != data.num_groups:
            raise ValueError(
                f"expected a posterior of data with the same {unlabelled.sum()} unlabelled samples and "
                f"{data.num_groups} groups; got one with {flags.sum()} and {labels.z.shape[1]}"
            )
    cast: Posterior = jax.tree.map(lambda x: jnp.asarray(x, problem.dtype), posterior)
    if cast.labels is None or data.num_unlabelled == 0:
        return cast
    has, needs = (None if x is None else np.shape(x) for x in (cast.labels.pi, labels_of(data).dirichlet))
    if has != needs:  # it was made with another prior of labels
        pi = label_prior(data).dirichlet(cast.labels.z[unlabelled_samples(data)])
        cast = cast.with_labels(cast.labels._replace(pi=pi))
    return cast


def warn_of_former_order(call: str) -> None:
    """Warn that arguments came in an order that is no longer documented.

    Args:
        call: the documented call.
    """
    warnings.warn(f"The order of arguments is now result, data, priors: {call}.", DeprecationWarning, stacklevel=3)
