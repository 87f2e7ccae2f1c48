"""The bound of a stream's result, by one more pass over the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ...model.priors import Priors
from ...model.types import Array
from ..results import factors_of, priors_of, rank_of
from .batches import Labelled, open_batches
from .begin import held, observe_batch, problem_of_batch
from .step import evaluate, global_terms


def stream_bound(
    result: Any,
    batches: Any,
    priors: Priors | None = None,
    *,
    groups: Any = None,
    group_names: Sequence[Any] | None = None,
    label_prior: Array | None = None,
    batch_size: int | None = None,
    form: str = "structured",
    max_steps: int = 200,
    tol: float = 1e-4,
) -> float:
    """Return the augmented bound ℒ of q(T) and q(λ), with q(V) of all samples iterated in one pass over them.

    Args:
        result: a `Fit` or `Posterior`, of which V is not read.
        batches: as in `stream`.
        priors: by default those of the fit.
        groups: as in `stream`.
        group_names: as in `stream`.
        label_prior: as in `stream`.
        batch_size: as in `stream`.
        form: of q for unlabelled samples, as in `cavi.labelling`.
        max_steps: updates of V at most.
        tol: as `local_tol` in `stream`.

    >>> import numpy as np
    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors
    >>> X, priors = np.random.default_rng(0).poisson(5.0, (3, 40)), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    >>> fit = cavi.stream(X, priors, key=jax.random.key(0), rank=1, batch_size=10, passes=2)
    >>> bool(abs(stream_bound(fit, X) - fit.elbo[-4:].mean()) < 10)
    True
    """
    learned, priors = factors_of(result), priors_of(result, priors)
    source = open_batches(batches, groups, None, Labelled(group_names, label_prior), batch_size)
    problem, q, total = None, None, 0.0
    for get in source.read(None):
        data = get()
        if problem is None:
            problem = problem_of_batch(data, priors, rank_of(learned), learned)
            q = held(problem, learned)
            total = float(jax.jit(global_terms)(problem.priors, q))
        seen = observe_batch(problem, data, form)
        total += float(evaluate(seen, problem.priors, q, max_steps, problem.dtype.type(tol)))
    if problem is None:
        raise ValueError("expected at least one batch; got none")
    return total
