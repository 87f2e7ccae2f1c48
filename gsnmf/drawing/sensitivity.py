"""Sensitivity of a conclusion to the numbers of the prior: a table, and bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..inference import LinearResponse
from ..inference.statistics import Statistic
from .axes import new_axes

DISTINCT = 4  # values of a hyperparameter that have a row each; of more, single entries have
LARGEST = 4  # single entries with a row each; the others share one
UP, DOWN = "#0072B2", "#D55E00"  # Okabe and Ito's


def sensitivity_table(response: LinearResponse, f: Statistic) -> pd.DataFrame:
    """Return by how much E[f] would move if a number of the prior doubled, the largest move first.

        move = dE[f]/d log α · log 2

    It is linearised: a doubling is a large step, and the table ranks hyperparameters rather than predicting a refit.

    Args:
        response: from `linear_response`.
        f: a function of a `Posterior` to one number.

    Returns a table with columns hyperparameter, such as coefficients.rate.a; entries, those that double together: all,
    or all of one value, or, if there are many values, the entries with the largest moves one by one and the others;
    value, their (mean) value; number, how many they are; derivative, dE[f]/d log α; move; and sds, the move in standard
    deviations of f by linear response.

    >>> from gsnmf.inference import cavi, linear_response
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data, priors = as_data([[30.0, 10.0], [5.0, 20.0]]), Priors(Gamma(1.0, 1.0), Gamma(1.0, 10.0))
    >>> fit = cavi.run(data, priors, key=jax.random.key(0), rank=1)
    >>> table = sensitivity_table(linear_response(fit, data), lambda q: (q.T.mean @ q.V.mean).sum())
    >>> sorted(table["hyperparameter"])
    ['coefficients.a', 'coefficients.b', 'dictionary.a', 'dictionary.b']
    """
    shape = np.shape(response.mean(f))
    if shape != ():
        raise ValueError(f"expected f to return one number; got an array of shape {shape}")
    sd = float(response.sd(f))
    found = jax.tree_util.tree_leaves_with_path(response.sensitivity(f))
    stated = jax.tree.leaves(response.problem.priors)
    rows: list[dict[str, Any]] = []
    for (path, slope), value in zip(found, stated, strict=True):
        name = jax.tree_util.keystr(path).lstrip(".")
        value = np.asarray(value, float)
        for entries, where in _entries(value, value * slope):
            total = float((value * slope)[where].sum())
            one = {"hyperparameter": name, "entries": entries, "value": value[where].mean(), "number": where.sum()}
            rows.append(
                one | {"derivative": total, "move": total * np.log(2), "sds": total * np.log(2) / (sd or np.nan)}
            )
    return pd.DataFrame(rows).sort_values("sds", key=np.abs, ascending=False, kind="stable", ignore_index=True)


def _entries(value: NDArray[np.float64], moves: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield names and places of the entries of a hyperparameter that have a row together."""
    values = np.unique(value)
    if len(values) == 1:
        yield "all", np.ones(value.shape, bool)
    elif len(values) <= DISTINCT:
        for x in values:
            yield f"{x:.4g}", value == x
    else:
        rest = np.ones(value.shape, bool)
        for flat in np.argsort(-np.abs(moves), axis=None, kind="stable")[:LARGEST]:
            at = np.unravel_index(flat, value.shape)
            one = np.zeros(value.shape, bool)
            one[at], rest[at] = True, False
            yield f"[{', '.join(str(int(i)) for i in at)}]", one
        yield "others", rest


def sensitivity_plot(
    response: LinearResponse, f: Statistic, ax: Axes | None = None, *, title: str = "sensitivity to the prior"
) -> Axes:
    """Draw the moves of `sensitivity_table` as bars, in standard deviations of f, the largest on top.

    Args:
        response: from `linear_response`.
        f: a function of a `Posterior` to one number.
        ax: axes to draw on; a new figure by default.
        title: title of the axes.
    """
    table = sensitivity_table(response, f)
    ax = new_axes(8, 1.2 + 0.34 * len(table)) if ax is None else ax
    names = [_name(row) for row in table.itertuples()]
    y = np.arange(len(table))
    ax.barh(y, table["sds"], height=0.62, color=np.where(table["sds"] >= 0, UP, DOWN))
    reach = max(float(table["sds"].abs().max()), 1e-12)
    for place, x in enumerate(table["sds"]):
        side = 1 if x >= 0 else -1
        ax.text(x + 0.02 * side * reach, place, f"{x:+.2g}".replace("-", "−"), fontsize=8, color="0.3",
                ha="left" if side > 0 else "right", va="center")  # fmt: skip
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set_yticks(y, names, fontsize=9)
    ax.tick_params(axis="y", length=0)
    low, high = min(0.0, float(table["sds"].min())), max(0.0, float(table["sds"].max()))
    ax.set(xlim=(low - 0.2 * reach, high + 0.2 * reach), ylim=(len(table) - 0.4, -0.6), title=title)
    ax.set_xlabel("move of E[f], in its standard deviations, if the number doubled (linearised)", fontsize=9)
    ax.spines[["left", "top", "right"]].set_visible(False)
    return ax


def _name(row: Any) -> str:
    """Return a label: the hyperparameter, its entries, and how many numbers they are.

    >>> from collections import namedtuple
    >>> _name(namedtuple("Row", "hyperparameter entries value number")("coefficients.rate.a", "32", 32.0, 10))
    'coefficients.rate.a = 32 (10 entries)'
    """
    many = f" ({row.number:,} entries)" if row.number > 1 else ""
    if row.entries.startswith("[") or row.entries == "others":
        joint = "" if row.entries.startswith("[") else ", "
        return f"{row.hyperparameter}{joint}{row.entries}{many}"
    return f"{row.hyperparameter} = {row.value:.4g}{many}"
