"""How many components? Some entries of X are hidden, models of every size fitted to the rest and asked for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from ..drawing.axes import DARK, new_axes
from ..inference import DeadComponentsWarning, Fit, cavi, held_out_score, in_use
from ..model import Data, Gamma, GroupSparse, Priors, as_data, hide, matching, relative_rates
from ..model.validation import whole

DICTIONARY = Gamma(0.6, 20.0)  # the paper's
POSITIONAL = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


class Choice(NamedTuple):
    """What `choose_rank` found.

    table: one row for every rank, by rank: `score`, the mean log predictive density of a hidden entry (higher is
        better), and its standard `error` over entries; `behind`, by how much that is below the best, entry by entry,
        and the standard error of that, `behind_error`, mostly far smaller than those of the scores; `in_use`, how many
        components explain anything, and `bound`, the best of the restarts, means over splits. Both errors take entries
        for independent, which those of one row or column are not quite: they are on the small side.
    complete: False if Ctrl-C came first; the table then has what was done by then.
    """

    table: pd.DataFrame
    complete: bool = True

    @property
    def best(self) -> int:
        """The rank with the highest score."""
        return int(self.table.index[int(self.table["score"].argmax())])

    @property
    def rank(self) -> int:
        """The smallest rank that is behind the best by one standard error of that difference at most.

        Beyond the K that the data ask for the score is nearly flat, as components that are not needed die: then `best`
        is any of many, and this the least of them.
        """
        return int(self.table.index[self.table["behind"] <= self.table["behind_error"].fillna(0)].min())


class _Scored(NamedTuple):
    """One rank on one split: the log predictive density of every hidden entry, and the fit that was taken."""

    per_entry: NDArray[Any]
    in_use: int
    bound: float
    late: bool


def choose_rank(
    data: Any,
    ranks: Sequence[int],
    *,
    priors: Priors | Callable[[int], Priors] | Callable[[int, Data], Priors] | None = None,
    share: float = 0.1,
    num_splits: int = 3,
    restarts: int = 3,
    seed: int = 0,
    init: str = "random",
    lam_start: str = "prior",
    max_steps: int = 1000,
    tol: float | None = 1e-6,
    num_samples: int = 300,
    progress_bar: bool = True,
) -> Choice:
    """The number of components that predicts hidden entries of X best.

    Args:
        data: as made by `as_data`; or X, features × samples, for a model without groups.
        ranks: the numbers of components to try.
        priors: a function of the rank, or priors whose shapes leave it open. A function of two arguments is also given
            the data of each split: priors in their unit, as `matching` makes them, are to know nothing of the entries
            hidden there. None takes such: `matching` without groups, `relative_rates` with groups, the dictionary's as
            in the paper.
        share: of the entries, hidden at random in every split.
        num_splits: how often entries are hidden anew.
        restarts: fits of every rank to every split; that with the highest bound is asked.
        seed: of all that is random; all ranks are given the same hidden entries.
        init: as in `cavi.run`.
        lam_start: where λ starts: "prior", its prior mean, or "shape" (`cavi.start_at_shape`).
        max_steps: as in `cavi.run`.
        tol: as in `cavi.run`.
        num_samples: draws from the posterior to predict with, as in `held_out_score`.
        progress_bar: whether to show one.

    Ctrl-C keeps what is done: the splits that every rank was fitted to, or of the first one what there is.

    >>> from gsnmf import choose_rank
    >>> X = np.outer([1, 5, 9, 20], [3, 1, 4, 2, 8, 5])  # one component
    >>> choose_rank(X, [1, 2], num_splits=1, restarts=1, progress_bar=False).rank
    1
    """
    data = data if isinstance(data, Data) else as_data(data)
    ranks = _check_ranks(ranks)
    for name, value in {"num_splits": num_splits, "restarts": restarts, "num_samples": num_samples}.items():
        whole(name, value, 1)
    if priors is not None and not isinstance(priors, Priors) and not callable(priors):
        raise ValueError(f"expected priors to be None, Priors, or a function of the rank; got {priors!r}")
    if lam_start not in ("prior", "shape"):
        raise ValueError(f"expected lam_start to be 'prior' or 'shape'; got {lam_start!r}")
    data = data._replace(held_out=None)  # what was held out before is not for choosing
    parts = [hide(data, share, seed=whole("seed", seed, 0) + split) for split in range(num_splits)]
    options = {"init": init, "max_steps": max_steps, "tol": tol}
    scores: list[dict[int, _Scored]] = [{} for _ in parts]
    with tqdm(total=num_splits * len(ranks), unit="rank", disable=None if progress_bar else True) as progress:
        try:
            for split, (part, found) in enumerate(zip(parts, scores, strict=True)):
                keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), split), restarts + 1)
                for K in ranks:
                    progress.set_description(f"split {split + 1}, {K} components")
                    made = _priors(priors, part, K)
                    start = cavi.start_at_shape(part, made, K) if lam_start == "shape" else None
                    found[K] = _score(part, made, K, keys, num_samples, start=start, **options)
                    progress.update()
        except KeyboardInterrupt:
            if not scores[0]:
                raise
    choice = _choice(scores, ranks)
    late = [K for found in scores for K, scored in found.items() if scored.late]
    if late and tol is not None:
        said = f"{len(late)} of {sum(map(len, scores))} fits did not converge, the first with {late[0]} components."
        warnings.warn(f"{said} Raise max_steps or tol.", ConvergenceWarning, stacklevel=2)
    return choice


def _check_ranks(ranks: Any) -> list[int]:
    if isinstance(ranks, (str, bytes)) or np.ndim(ranks) != 1 or len(ranks) == 0:
        raise ValueError(f"expected ranks to be a sequence of whole numbers; got {ranks!r}")
    return sorted({whole("every rank", K, 1) for K in ranks})


def _priors(given: Any, data: Data, K: int) -> Priors:
    """The priors of this rank, those in the unit of the data from what is not hidden."""
    if given is None:
        family = GroupSparse(relative_rates(data, rank=K)) if data.num_groups else matching(data, DICTIONARY, K)
        return Priors(DICTIONARY, family)
    if isinstance(given, Priors):
        return given
    required = [p for p in signature(given).parameters.values() if p.default is p.empty and p.kind in POSITIONAL]
    made: Priors = given(K, data) if len(required) == 2 else given(K)
    return made


def _score(data: Data, priors: Priors, K: int, keys: Any, num_samples: int, **options: Any) -> _Scored:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one for all at the end
        warnings.simplefilter("ignore", DeadComponentsWarning)  # too many components are tried on purpose
        fits = cavi.run_many(data, priors, keys=list(keys[1:]), rank=K, **options)
    sound = [fit for fit in fits if np.isfinite(fit.elbo[-1])]
    if not sound:
        raise ValueError(f"expected a fit with a finite bound for {K} components; {fits[0].message}")
    fit: Fit = max(sound, key=lambda fit: fit.elbo[-1])
    score = held_out_score(fit, data, priors, key=keys[0], num_samples=num_samples)
    return _Scored(score.per_entry, int(in_use(fit.posterior, data).sum()), float(fit.elbo[-1]), not fit.converged)


def _choice(scores: list[dict[int, _Scored]], ranks: list[int]) -> Choice:
    """The table of the splits that have all ranks, or of the first one as far as it went."""
    whole_splits = [found for found in scores if len(found) == len(ranks)]
    used = whole_splits or scores[:1]
    by_rank = {K: [found[K] for found in used] for K in used[0]}
    entries = pd.DataFrame({K: np.concatenate([scored.per_entry for scored in all]) for K, all in by_rank.items()})
    behind = -entries.sub(entries[entries.mean().idxmax()], axis=0)
    table = pd.DataFrame(
        {
            "score": entries.mean(),
            "error": entries.sem(),
            "behind": behind.mean(),
            "behind_error": behind.sem(),
            "in_use": {K: np.mean([scored.in_use for scored in all]) for K, all in by_rank.items()},
            "bound": {K: np.mean([scored.bound for scored in all]) for K, all in by_rank.items()},
        }
    )
    return Choice(table.rename_axis("rank"), len(whole_splits) == len(scores))


def plot_rank_choice(choice: Choice, ax: Axes | None = None) -> Axes:
    """How far every rank is behind the best, with standard errors; the rank chosen is marked.

    Args:
        choice: as `choose_rank` returns it.
        ax: where to draw; a new figure when left out.
    """
    ax = new_axes(6, 3.5) if ax is None else ax
    table = choice.table
    ax.axhline(0, color=DARK, linewidth=0.5)
    ax.errorbar(table.index, -table["behind"], table["behind_error"], marker="o", markersize=4, capsize=2, color=DARK)
    ax.axvline(choice.rank, color="tab:red", linewidth=0.8, label=f"{choice.rank}: least within one standard error")
    ax.set(xlabel="components", ylabel="log density of a hidden\nentry, less the best")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax
