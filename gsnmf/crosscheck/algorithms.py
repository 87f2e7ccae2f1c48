"""The five algorithms of the cross-check, each run on the same problem and read by the same invariants."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer import MCMC
from numpyro.optim import Adam

from ..inference import Fit, cavi, mcmc, svi, to_arviz
from ..inference.alignment import blocks
from ..inference.arviz_compat import dataset
from ..inference.warning import quiet
from ..intervals import REFINING
from ..model import Data, Names, Priors
from ..model.problem import Problem
from ..model.types import Array
from ..packing import pack, unpack
from .corrected import Corrected, corrected_draws
from .invariants import choose, evaluate

HOW = {
    "CAVI": "closed-form coordinate ascent, with its own initialisation",
    "refined": "CAVI continued with S summed out, its means and widths corrected by linear response",
    "SVI": "stochastic gradients for the same Gamma family, with its own initialisation",
    "NUTS": "No-U-Turn sampler on the marginal model, chains from draws of CAVI's posterior",
    "Gibbs": "conjugate sampler on the augmented model, chains with their own initialisations",
}
SWEEPS = 5  # of Gibbs for every draw that is kept: a sweep costs a fraction of a trajectory of NUTS
GRADIENT_STEPS, STEP_SIZE = 4000, 0.05  # of SVI, by Adam


class Answer(NamedTuple):
    """The result of one algorithm.

    draws: chains × draws of every invariant, by name; independent draws from a variational posterior, as one chain.
    seconds: time of the algorithm itself, compilation and warm-up included.
    fit: the fit of a variational algorithm; None for chains.
    divergences: number of divergent transitions of NUTS, after warm-up.
    widths: kind of the draws' standard deviations, "mean field", "linear response" or "exact" up to Monte Carlo error.
    log_evidence: about log p(X), by linear response; NaN for others.
    note: what went wrong with corrected draws; empty if nothing did.
    """

    draws: dict[str, np.ndarray]
    seconds: float
    fit: Fit | None
    divergences: int = 0
    widths: str = "exact"
    log_evidence: float = np.nan
    note: str = ""


class Work(NamedTuple):
    """Arguments of `crosscheck` that all algorithms share; the problem is that of data and priors."""

    data: Data
    priors: Priors
    problem: Problem
    keys: dict[str, Array]
    options: dict[str, Any]
    progress_bar: bool


def answer_by(name: str, work: Work, before: dict[str, Answer]) -> Answer:
    """Run one algorithm, and read its invariants."""
    data, priors, K, keys, given = work.data, work.priors, work.problem.rank, work.keys, work.options
    begin = time.perf_counter()
    options: dict[str, Any] = {"key": keys[name], "rank": K, "init": given["init"]}
    options["start"] = fit_of(before["CAVI"]) if name in ("refined", "NUTS") else None
    options |= {"lam_start": given["lam_start"]} if name == "CAVI" else {}
    result = _run(name, data, priors, options, given["draws"], given["chains"], work.progress_bar)
    jax.block_until_ready(result.posterior if isinstance(result, Fit) else result.get_samples())  # type: ignore[no-untyped-call]  # NumPyro's
    number, better = given["draws"] * given["chains"], Corrected(None)
    if name == "refined" and isinstance(result, Fit):
        better = corrected_draws(result, work.problem, number, keys[name])
    seconds = time.perf_counter() - begin
    fitted = result if isinstance(result, Fit) else None
    first = fitted if name == "CAVI" and fitted is not None else fit_of(before["CAVI"])
    # Label switching: components that the priors do not distinguish may change places within a chain.
    align = None if len(np.unique(blocks(work.problem))) == K else "draw"
    reading: dict[str, Any] = {"key": keys["draws"], "num_samples": number, "align": align, "reference": first}
    drawn = result if better.draws is None else better.draws
    tree = to_arviz(drawn, work.problem, log_likelihood=None, posterior_predictive=False, **reading)
    diverging = int(tree["sample_stats"]["diverging"].sum()) if name == "NUTS" else 0
    values = evaluate(dataset(tree, "posterior"), choose(data, priors, first.posterior))
    widths = "exact" if fitted is None else "mean field" if better.draws is None else "linear response"
    return Answer(values, seconds, fitted, diverging, widths, *better[1:])


def fit_of(answer: Answer) -> Fit:
    """Return the fit of a variational algorithm."""
    if answer.fit is None:
        raise ValueError("expected the result of a variational algorithm; got that of chains")
    return answer.fit


def keep(answer: Answer, names: Names) -> dict[str, Any]:
    """Return an answer as a piece of a journal."""
    return answer._asdict() | {"fit": None if answer.fit is None else pack(answer.fit, None, names)}


def restore(piece: dict[str, Any]) -> Answer:
    """Invert `keep`."""
    return Answer(**piece | {"fit": None if piece["fit"] is None else unpack(*piece["fit"]).fit})


def _run(
    name: str, data: Data, priors: Priors, options: dict[str, Any], draws: int, chains: int, progress_bar: bool
) -> Fit | MCMC:
    sampling: dict[str, Any] = {
        "num_warmup": draws,
        "num_samples": draws,
        "num_chains": chains,
        "progress_bar": progress_bar,
    }
    with quiet():  # the report has the sentence, and all are compared whatever components are in use
        if name == "CAVI":
            return cavi.run(data, priors, max_steps=2000, tol=1e-7, **options)
        if name == "refined":
            return cavi.refine(options["start"], data, priors, **REFINING)
        if name == "SVI":
            return svi.run(
                data, priors, optimizer=Adam(STEP_SIZE), num_steps=GRADIENT_STEPS, progress_bar=progress_bar, **options
            )
        if name == "NUTS":
            return mcmc.run_nuts(data, priors, extra_fields=("diverging",), **sampling, **options)
        sampling |= {"num_samples": draws * SWEEPS, "thinning": SWEEPS}
        return mcmc.run_gibbs(data, priors, **sampling, **options)
