"""Choice of the number of components by the predictive density of hidden entries of X."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from ..classification.pointless import said_of_zeros
from ..inference import Fit, cavi, held_out_score, in_use
from ..inference.defaults import INIT, LAM_START, MAX_STEPS, TOL
from ..inference.starts import check_lam_start, check_method
from ..inference.warning import ConvergenceWarning, DeadComponentsWarning, quiet, warn
from ..journal import Journal, piece_key
from ..model import Data, Priors, as_data, default_priors, hide
from ..model.checks import require_flag, whole
from ..reading import PathLike
from .stability import consensus

POSITIONAL = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


class Choice(NamedTuple):
    """Result of `choose_rank`.

    table: one row for every rank, by rank: `score`, the mean log predictive density of a hidden entry (higher is
        better), and its standard `error` over entries; `behind`, the mean difference from the best rank, entry by
        entry, and the standard error of this difference, `behind_error`, usually far smaller than the errors of the
        scores; `in_use`, the number of components that explain anything, and `bound`, the highest of the restarts,
        both means over splits. Both errors treat entries as independent; those of one row or column are
        not quite, so the errors are slightly too small. With stability=True also `comes_back` and `silhouette` of the
        restarts (`consensus`), means over splits: both fall beyond the number of components that the data support.
    complete: False if Ctrl-C ended the run; the table then holds the results so far.
    """

    table: pd.DataFrame
    complete: bool = True

    @property
    def best(self) -> int:
        """The rank with the highest score."""
        return int(self.table.index[int(self.table["score"].argmax())])

    @property
    def rank(self) -> int:
        """The smallest rank that is behind the best by at most one standard error of the difference.

        Beyond the K that the data support the score is nearly flat, as superfluous components die: `best` is then one
        of many equally good ranks, and this is the smallest of them.
        """
        return int(self.table.index[self.table["behind"] <= self.table["behind_error"].fillna(0)].min())


class _Scored(NamedTuple):
    """One rank on one split: the log predictive density of every hidden entry, the best fit, and all restarts."""

    per_entry: NDArray[Any]
    in_use: int
    bound: float
    late: bool
    comes_back: float = float("nan")
    silhouette: float = float("nan")


def choose_rank(
    data: Any,
    ranks: Sequence[int],
    *,
    priors: Priors | Callable[[int], Priors] | Callable[[int, Data], Priors] | None = None,
    share: float = 0.1,
    num_splits: int = 3,
    restarts: int = 3,
    seed: int = 0,
    init: str = INIT,
    lam_start: str = LAM_START,
    max_steps: int = MAX_STEPS,
    tol: float | None = TOL,
    num_samples: int = 300,
    stability: bool = False,
    progress_bar: bool = True,
    checkpoint: PathLike | Journal | None = None,
) -> Choice:
    """Choose the number of components that predicts hidden entries of X best.

    Args:
        data: as made by `as_data`; or X, features × samples, for a model without groups.
        ranks: the numbers of components to try.
        priors: a function of the rank, or priors whose shapes leave the rank open. A function of two arguments is also
            given the data of each split, so that priors in the unit of the data do not depend on the hidden entries.
            None means `default_priors`, computed for each split.
        share: proportion of the entries hidden at random in every split.
        num_splits: how many random choices of hidden entries.
        restarts: fits of every rank to every split; the one with the highest bound is scored.
        seed: of all random choices; all ranks are scored on the same hidden entries.
        init: as in `cavi.run`; with unlabelled samples also the warm start.
        lam_start: initialisation of λ: "prior", its prior mean, or "shape", as in `cavi.run`.
        max_steps: as in `cavi.run`.
        tol: as in `cavi.run`.
        num_samples: draws from the posterior to predict with, as in `held_out_score`.
        stability: whether to say how stable components are over the restarts, of which there should be five or more;
            it does not change the choice.
        progress_bar: whether to show one.
        checkpoint: a file that keeps the score of every rank and split as soon as it is known. After an interruption of
            any kind, a call with the same file does not compute them again; remove it when the result is saved.

    Ctrl-C keeps the splits that every rank was fitted to, or, before the first of them is complete, its ranks so far.

    >>> from gsnmf import choose_rank
    >>> X = np.outer([1, 5, 9, 20], [3, 1, 4, 2, 8, 5])  # one component
    >>> choose_rank(X, [1, 2], num_splits=1, restarts=1, progress_bar=False).rank
    1
    """
    data = data if isinstance(data, Data) else as_data(data)
    ranks = _check_ranks(ranks)
    whole("seed", seed, 0, most=2**64)
    _check(priors, stability, {"num_splits": num_splits, "restarts": restarts, "num_samples": num_samples})
    check_lam_start(lam_start)
    check_method(init)
    data = data._replace(held_out=None)  # entries held out before stay out of the choice
    parts = [hide(data, share, seed=seed + split) for split in range(num_splits)]
    number = sum(len(part.held_out or ()) for part in parts)
    if number < 2:  # scores have standard errors
        raise ValueError(f"expected share and the splits to hide at least 2 entries; got {number} with share={share:g}")
    if found := said_of_zeros(data):
        warn(found, DeadComponentsWarning, stacklevel=2)
    options: dict[str, Any] = {"init": init, "lam_start": lam_start, "max_steps": max_steps, "tol": tol}
    options["labels"] = cavi.labelling_for(data, init)
    journal = checkpoint if isinstance(checkpoint, Journal) else Journal(checkpoint)

    def score(split: int, K: int) -> _Scored:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), split), restarts + 1)
        made = _priors(priors, parts[split], K)
        own: dict[str, Any] = {"num_samples": num_samples, "stability": stability}
        chosen = {"K": K, "share": share, "keys": (seed, split, restarts)}
        key = piece_key(data, made, options | own | chosen)  # data with hidden entries: scores depend on them too
        return _Scored(**journal.piece(key, lambda: _score(parts[split], made, K, keys, **own, **options)._asdict()))

    scores = _score_all(score, num_splits, ranks, progress_bar)
    choice = _choice(scores, ranks, stability)
    late = [K for found in scores for K, scored in found.items() if scored.late]
    if late and tol is not None:
        said = f"{len(late)} of {sum(map(len, scores))} fits did not converge, the first with {late[0]} components."
        warn(f"{said} Raise max_steps or tol.", ConvergenceWarning, stacklevel=2)
    return choice


def _score_all(
    score: Callable[[int, int], _Scored], num_splits: int, ranks: list[int], progress_bar: bool
) -> list[dict[int, _Scored]]:
    """Return the scores of all ranks, for each split; those so far if Ctrl-C comes after the first."""
    scores: list[dict[int, _Scored]] = [{} for _ in range(num_splits)]
    with tqdm(total=num_splits * len(ranks), unit="rank", disable=None if progress_bar else True) as progress:
        try:
            for split, found in enumerate(scores):
                for K in ranks:
                    progress.set_description(f"split {split + 1}, {K} components")
                    found[K] = score(split, K)
                    progress.update()
        except KeyboardInterrupt:
            if not scores[0]:
                raise
    return scores


def _check(priors: Any, stability: Any, numbers: dict[str, int]) -> None:
    for name, value in numbers.items():
        whole(name, value, 1)
    require_flag("stability", stability)
    if stability:
        whole("restarts, with stability=True,", numbers["restarts"], 2)
    if priors is not None and not isinstance(priors, Priors) and not callable(priors):
        raise ValueError(f"expected priors to be None, Priors, or a function of the rank; got {type(priors).__name__}")


def _check_ranks(ranks: Any) -> list[int]:
    if isinstance(ranks, (str, bytes)) or np.ndim(ranks) != 1 or len(ranks) == 0:
        raise ValueError(f"expected ranks to be a sequence of whole numbers; got {ranks!r}")
    return sorted({whole("every rank", K, 1) for K in ranks})


def _priors(given: Any, data: Data, K: int) -> Priors:
    """Return the priors for this rank; default ones depend on the entries that are not hidden only."""
    if given is None:
        return default_priors(data, rank=K)
    if isinstance(given, Priors):
        return given
    required = [p for p in signature(given).parameters.values() if p.default is p.empty and p.kind in POSITIONAL]
    made: Priors = given(K, data) if len(required) == 2 else given(K)
    return made


def _score(data: Data, priors: Priors, K: int, keys: Any, num_samples: int, stability: bool, **options: Any) -> _Scored:
    with quiet():  # one warning for all fits at the end; too many components are tried on purpose
        fits = cavi.run_many(data, priors, keys=list(keys[1:]), rank=K, **options)
    sound = [fit for fit in fits if np.isfinite(fit.elbo[-1])]
    if not sound:
        raise ValueError(f"expected a fit with a finite bound for {K} components; {fits[0].message}")
    fit: Fit = max(sound, key=lambda fit: fit.elbo[-1])
    score = held_out_score(fit, data, key=keys[0], num_samples=num_samples)
    scored = _Scored(score.per_entry, int(in_use(fit.posterior, data).sum()), float(fit.elbo[-1]), not fit.converged)
    if not stability or len(sound) < 2:
        return scored
    matched = consensus(sound, data)
    return scored._replace(comes_back=matched.comes_back, silhouette=matched.silhouette)


def _choice(scores: list[dict[int, _Scored]], ranks: list[int], stability: bool) -> Choice:
    """Tabulate the splits that have all ranks, or the first one if none is complete."""
    whole_splits = [found for found in scores if len(found) == len(ranks)]
    used = whole_splits or scores[:1]
    by_rank = {K: [found[K] for found in used] for K in used[0]}
    entries = pd.DataFrame({K: np.concatenate([scored.per_entry for scored in all]) for K, all in by_rank.items()})
    behind = -entries.sub(entries[entries.mean().idxmax()], axis=0)
    means = ("in_use", "bound") + (("comes_back", "silhouette") if stability else ())
    table = pd.DataFrame(
        {"score": entries.mean(), "error": entries.sem(), "behind": behind.mean(), "behind_error": behind.sem()}
        | {
            name: {K: np.mean([getattr(scored, name) for scored in all]) for K, all in by_rank.items()}
            for name in means
        }
    )
    return Choice(table.rename_axis("rank"), len(whole_splits) == len(scores))
