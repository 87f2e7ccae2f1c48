"""Validation of the arguments of `compare`: fits, data, the ranking measure and test samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..inference import Fit, cavi
from ..inference.results import match, other_data, problem_of
from ..model import Data, Gamma, Problem
from ..model.checks import require_flag
from ..model.compressed import is_sparse
from ..model.conjugacy import require_closed_forms
from .summary import RANKED

TOLERANCE = 1e-4  # relative, between a fit's last bound and its bound on these data: rounding in single precision


class Candidate(NamedTuple):
    """A fit, its problem, and its augmented bound, NaN where it does not exist."""

    fit: Fit
    problem: Problem
    augmented: float


class Trial(NamedTuple):
    """Input of the paper's classifier: labels of the fitted samples, new samples and their labels."""

    labels: NDArray[Any]
    new: NDArray[Any]
    new_labels: NDArray[Any]


def named(fits: Any) -> dict[Any, Sequence[Fit]]:
    """Return the restarts of every model, by name."""
    if isinstance(fits, Fit) or not isinstance(fits, (Mapping, list, tuple)) or not fits:
        raise ValueError(f"expected fits by name, or a list of them; got {type(fits).__name__} {fits or ''}".rstrip())
    items = fits if isinstance(fits, Mapping) else dict(enumerate(fits))
    return {name: [some] if isinstance(some, Fit) else some for name, some in items.items()}


def check_model(name: Any, some: Any, data: Data) -> list[Candidate]:
    """Return the restarts of a model with finite bounds; raise unless all are of one model and of these data."""
    if not isinstance(some, (list, tuple)) or not some or not all(isinstance(fit, Fit) for fit in some):
        raise ValueError(f"expected a Fit, or several, for {name!r}; got {type(some).__name__} {some!r:.60}")
    kinds = sorted({fit.bound for fit in some})
    if "log_joint" in kinds:
        raise ValueError(f"expected fits with a bound; got a MAP estimate, bound='log_joint', for {name!r}")
    if any(fit.priors is None for fit in some):
        raise ValueError(
            f"expected fits with their priors, as by fit._replace(priors=...); got priors=None for {name!r}"
        )
    forms = len({_form(fit) for fit in some})
    if len(kinds) > 1 or forms > 1:
        raise ValueError(
            f"expected restarts of one model by one algorithm for {name!r}; "
            f"got kinds of bound {', '.join(kinds)} and a number of distinct priors of {forms}"
        )
    sound = [fit for fit in some if np.isfinite(fit.elbo[-1])]
    if not sound:
        raise ValueError(f"expected a finite bound for {name!r}; got {some[0].elbo[-1]}: {some[0].message}")
    dtype = jax.numpy.result_type(float)  # once for all problems
    cast = data._replace(X=data.X.astype(dtype) if is_sparse(data) else jax.device_put(np.asarray(data.X, dtype)))
    return [_candidate(name, fit, cast, other_data(fit, data)) for fit in sound]


def _candidate(name: Any, fit: Fit, data: Data, difference: str | None) -> Candidate:
    """Return the fit with its problem and augmented bound, NaN without one; raise unless it is of these data.

    Args:
        name: of the model.
        fit: of it.
        data: in the precision that JAX is set to.
        difference: of the data, in words, as from `other_data`.
    """
    try:
        problem = problem_of(fit, data)
        match(fit.posterior, problem, tuple)
    except ValueError as error:
        raise ValueError(f"expected fits of these data; got for {name!r}: {error}") from None
    if difference is not None:
        raise ValueError(
            f"expected the data of the fits, with the same entries held out; got {difference} for {name!r}"
        )
    if not is_gamma(fit):
        return Candidate(fit, problem, float("nan"))
    try:
        bound = float(cavi.bound(fit, problem))
    except ValueError:  # shapes fit: the priors are not conjugate
        return Candidate(fit, problem, float("nan"))
    if fit.bound == "augmented" and abs(bound - fit.elbo[-1]) > TOLERANCE * abs(bound):
        raise ValueError(
            f"expected fits of these data, with the same entries held out; got {name!r}, which recorded a bound of "
            f"{fit.elbo[-1]:.6g} where these data give {bound:.6g}"
        )
    return Candidate(fit, problem, bound)


def is_gamma(fit: Fit) -> bool:
    """Return whether all factors are Gamma, as closed forms need."""
    return all(isinstance(factor, Gamma) for factor in fit.posterior.sites.values())


def can_refit(one: Candidate) -> bool:
    """Return whether a model has closed forms, to be fitted again without a sample."""
    try:
        require_closed_forms(one.problem.priors, "leaving out samples")
    except ValueError:
        return False
    return True


def _form(fit: Fit) -> Any:
    """Return the part of the priors that restarts share: families, shapes and, unless learned, the numbers."""
    leaves, families = jax.tree.flatten(fit.priors)
    numbers = () if fit.learned else tuple(np.asarray(leaf, float).tobytes() for leaf in leaves)
    return families, tuple(np.shape(leaf) for leaf in leaves), numbers


def leaves_out(loo: bool | None, by: str, data: Data) -> bool:
    """Return whether samples are left out: by default if X is dense, or if they rank the models."""
    return by == "loo" or not (isinstance(data, Data) and is_sparse(data)) if loo is None else loo


def check_by(by: str, data: Data, loo: bool) -> None:
    """Raise unless this measure can rank models with these data."""
    if by in ("paper", "printed", "paper_bound"):
        raise ValueError(
            f"expected by to be one of {', '.join(map(repr, RANKED))}; got {by!r}: the printed bound exceeds the valid "
            "bound by Σ N_c (log α − ψ(α)), which differs between priors, ranks and class sizes: it cannot rank models "
            "(printed=True shows it)"
        )
    if by not in RANKED:
        raise ValueError(f"expected by to be one of {', '.join(map(repr, RANKED))}; got {by!r}")
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    if by == "held_out" and not has_held_out(data):
        got = 0 if data.held_out is None else len(data.held_out)
        raise ValueError(f"expected two entries or more held out, hide(data, share), for by='held_out'; got {got}")
    if by == "loo" and not loo:
        raise ValueError("expected loo=True for by='loo'; got loo=False")
    if (loo or by == "conditional_loo") and is_sparse(data):
        raise ValueError(
            f"expected loo=False for a sparse X, of which no samples are left out; got loo={loo}, by={by!r}"
        )
    if (loo or by == "conditional_loo") and data.num_samples < 2:
        raise ValueError(f"expected two samples or more to leave one out, or loo=False; got {data.num_samples}")


def has_held_out(data: Data) -> bool:
    """Return whether enough entries are held out for a score and its standard error."""
    return data.held_out is not None and len(data.held_out) > 1


def check_test(test: Any, labels: Any, data: Data) -> Trial | None:
    """Return new samples and all labels; raise unless their shapes match the data."""
    if test is None:
        return None
    if not isinstance(test, (tuple, list)) or len(test) != 2:
        raise ValueError(f"expected test=(X, labels) of new samples; got {type(test).__name__}")
    if labels is None and data.membership is None:
        raise ValueError("expected labels of the fitted samples, as the data have no groups; got labels=None")
    if labels is None and data.labels is not None:
        raise ValueError(
            "expected labels, one per sample, as the data have unlabelled or multi-label samples; got labels=None"
        )
    known = data.names.group[np.asarray(data.membership).argmax(axis=1)] if labels is None else np.asarray(labels)
    new = test[0] if scipy.sparse.issparse(test[0]) else np.asarray(test[0])
    new_labels = np.atleast_1d(test[1])
    wanted = (data.num_samples,), (data.num_features, len(new_labels))
    if (known.shape, new.shape) != wanted:
        raise ValueError(f"expected labels and new X of shapes {wanted}; got {known.shape} and {new.shape}")
    _check_new(new)
    unknown = sorted(set(new_labels.tolist()) - set(known.tolist()), key=str)
    if unknown:
        raise ValueError(f"expected labels of new samples among those of the fitted ones; got {unknown[0]!r} as well")
    return Trial(known, new, new_labels)


def _check_new(X: Any) -> None:
    """Raise unless new samples are finite, nonnegative numbers; NaN is a missing one."""
    values = X.data if scipy.sparse.issparse(X) else X
    if values.dtype.kind not in "biuf" or not ((values >= 0) & (values < np.inf) | np.isnan(values)).all():
        raise ValueError(
            f"expected new X to be nonnegative and finite; got {np.array2string(np.asarray(values), threshold=6)}"
        )


def check_flags(loo: Any, printed: Any, evidence: Any) -> None:
    """Raise unless what to compute is said by True or False; loo may be None, which leaves the choice to `compare`."""
    for name, value in (("loo", loo), ("printed", printed), ("evidence", evidence)):
        if not (value is None and name == "loo"):
            require_flag(name, value)
