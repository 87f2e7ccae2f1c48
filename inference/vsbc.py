"""Variational simulation-based calibration of CAVI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpyro
from numpyro import handlers
from numpyro.infer import Trace_ELBO

from ..model.checks import whole
from ..model.compressed import require_dense
from ..model.data import Data
from ..model.generative import group_sparse_nmf
from ..model.missing import blank
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from . import cavi
from .guide import guide
from .momentum import plain
from .observations import observe
from .starts import check_key


def calibration(
    data: Data,
    priors: Priors,
    *,
    key: Array,
    rank: int | None = None,
    num_simulations: int = 100,
    num_sweeps: int = 100,
    num_samples: int = 500,
) -> Any:
    """Run NumPyro's `vsbc_diagnostic` for CAVI, which tests whether q is centred at the truth for data from the model.

    Each simulation draws T, V, λ and X from the model, fits X by plain sweeps, and ranks the truth among draws from q.
    A q that is right on average puts p = Pr_q(x < truth) as often above ½ as below, for every entry of every site.
    A q that is centred but too narrow passes: only its centre is judged.

    Args:
        data: its shape, groups and mask are used; the values of X are ignored.
        priors: of T, V and λ; X drawn from them must be of a size that can be fitted.
        key: a JAX key.
        rank: the number of components, where the priors' shapes leave it open. Components that the priors do not
            distinguish come back in any order: judge rank 1, or priors that bind each to a group.
        num_simulations: the number of data sets.
        num_sweeps: sweeps of each fit.
        num_samples: draws from each q.

    Returns NumPyro's `VSBCResult`: probabilities, ks_stats, ks_pvalues and ranks by site.
    """
    from numpyro.infer.calibration import vsbc_diagnostic

    for name, number in {"num_simulations": num_simulations, "num_samples": num_samples}.items():
        whole(name, number, 2)
    whole("num_sweeps", num_sweeps, 1)
    check_key(key)
    problem = Problem(data, priors, rank)
    require_dense(problem.data, "simulation-based calibration")
    if problem.data.num_unlabelled > 0:
        raise ValueError(
            "expected data whose labels are all known, as entries of T, V and λ are judged; got "
            f"{problem.data.num_unlabelled} unlabelled samples"
        )
    key, key_X, key_start = jax.random.split(key, 3)
    data, priors, _ = problem

    def seen(X: Array) -> Problem:
        X = X.astype(problem.dtype)
        return problem.with_data(data._replace(X=X if data.mask is None else blank(X, data.mask > 0)))

    drawn = seen(handlers.seed(handlers.uncondition(group_sparse_nmf), key_X)(problem))
    begun = cavi.init(drawn.data, priors, key=key_start, rank=rank)

    def model(X: Array = None) -> Array:
        if X is None:
            return handlers.uncondition(group_sparse_nmf)(problem)
        return group_sparse_nmf(seen(X))

    def fitted(X: Array) -> dict[str, Array]:
        observed = observe(seen(X).data)
        state = jax.lax.fori_loop(0, num_sweeps, lambda _, state: plain(observed, priors, state)[0], begun)
        return guide(state.posterior, together=True)(seen(X))

    still = numpyro.optim.SGD(0.0)  # the sweeps do all the work: the single SVI step has length 0
    options: dict[str, Any] = {"num_simulations": num_simulations, "num_svi_steps": 1, "num_samples": num_samples}
    fit: Callable[..., Any] = lambda X=None: fitted(data.X if X is None else X)  # noqa: E731 (typed)
    bits = jax.random.key_data(key)  # `vsbc_diagnostic` handles keys of the older style only
    return vsbc_diagnostic(bits, model, fit, still, Trace_ELBO(), observed_sites=["X"], **options)
