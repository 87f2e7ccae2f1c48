"""Tables: our results next to the paper's, differences between methods, correlations of bounds with accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from .results import PREDICTORS, by_fold

# Tables 3 to 5 of the paper: maximum, mean, and the dimension of the subspace.
PAPER: dict[str, dict[str, tuple[float, float, int]]] = {
    "yale": {
        "pca": (0.7987, 0.7987, 73),
        "nmf_kl": (0.9267, 0.8690, 120),
        "nmf_vb": (0.8875, 0.8246, 60),
        "nmf_gs": (0.9825, 0.9417, 45),
    },
    "orl": {
        "pca": (0.9605, 0.9605, 67),
        "nmf_kl": (0.9775, 0.9529, 140),
        "nmf_vb": (0.9780, 0.9511, 60),
        "nmf_gs": (0.9885, 0.9750, 160),
    },
    "jaffe": {  # its nmf_kl row repeats that of Yale except for the dimension: see the errata page
        "pca": (0.9067, 0.9067, 18),
        "nmf_kl": (0.9267, 0.8690, 28),
        "nmf_vb": (0.9295, 0.8597, 14),
        "nmf_gs": (0.9438, 0.8789, 42),
    },
}
MEANING = {
    "max": "best of the restarts, which can be found only with the test labels",
    "mean": "mean over restarts",
    "roots": "mean over restarts, with the cosine of square roots of coefficients",
    "vote": "majority of the restarts",
    "cosine": "class nearest on average over the restarts",
    "blend": "class nearest on average over the restarts and both cosines",
    "chosen": "restart chosen on validation samples set aside from training",
}


def summary(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tabulate one line for each method: mean accuracies over folds with standard errors, next to the paper's.

    Args:
        rows: rows of one dataset, as returned by `results.read`.
    """
    folds = by_fold(rows)
    paper = PAPER.get(folds["dataset"].iloc[0], {})
    lines = {}
    for method, part in folds.groupby("method", sort=False):
        line: dict[str, Any] = {"K": int(part["rank"].iloc[0])}
        for name in ("max", "mean", "roots", *PREDICTORS):
            if name in part and part[name].notna().any():
                line[name] = _with_error(part[name].dropna().to_numpy(float), len(part))
        line["variance"] = f"{part['square'].mean() - part['mean'].mean() ** 2:.4f}"
        if method in paper:
            line |= dict(zip(("paper's max", "paper's mean", "paper's K"), paper[str(method)], strict=True))
        lines[method] = line | {"folds": len(part), "restarts": int(part["restarts"].max())}
    return pd.DataFrame.from_dict(lines, orient="index").fillna("–")


def _with_error(values: NDArray[Any], expected: int) -> str:
    """Format mean and standard error, with the number of folds if some are missing."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.4f} ± {error:.4f}" + (f" ({len(values)} folds)" if len(values) < expected else "")


def differences(rows: Sequence[Mapping[str, Any]], champion: str = "nmf_gs") -> pd.DataFrame:
    """Tabulate paired differences of one method from each other over folds: mean, standard error, corrected error.

    Training parts of different folds overlap, so folds are not independent and the plain standard error is too
    small. The corrected error is Nadeau and Bengio's: its variance has 1/n + 1/(folds − 1) in place of 1/n.

    Args:
        rows: rows of one dataset, as returned by `results.read`.
        champion: the method that the others are compared with.
    """
    table = by_fold(rows)
    share = 1 / (rows[0]["folds"] - 1)
    lines = {}
    for measure in ("mean", "max", "vote", "blend"):
        if measure not in table:
            continue
        wide = table.pivot(index=["run", "fold"], columns="method", values=measure)
        for other in map(str, wide.columns.drop(champion, errors="ignore")):
            gap = (wide[champion] - wide[other]).dropna() if champion in wide else pd.Series(dtype=float)
            if len(gap) > 1:
                error, corrected = gap.std() / np.sqrt(len(gap)), gap.std() * np.sqrt(1 / len(gap) + share)
                lines[measure, f"{champion} − {other}"] = (gap.mean(), error, corrected, len(gap))
    columns = ["difference", "standard error", "corrected", "folds"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns)


def correlations(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tabulate Spearman's rank correlations of bounds with accuracy: does a higher bound mean a better classifier?

    Across restarts: within each fold and setting, then averaged, with the standard error over folds and settings.
    Across priors: between mean bounds and mean accuracies of settings, for methods with three settings or more.

    Args:
        rows: as returned by `results.read`.
    """
    lines = []
    for name in ("bound", "collapsed"):
        within: dict[str, list[float]] = {}
        for row in rows:
            values, right = row.get(name) or [], row.get("correct", [])
            if len(values) > 2 and len(set(right)) > 1 and len(set(values)) > 1:
                within.setdefault(row["method"], []).append(float(spearmanr(values, right)[0]))
        for method, found in within.items():
            error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
            lines.append((method, _bound_name(name), "restarts", np.mean(found), error, len(found)))
        table = by_fold(rows)
        for method in table["method"].unique() if name in table else ():
            part = table[table["method"] == method]
            means = part.dropna(subset=[name]).groupby("settings")[[name, "mean"]].mean()
            if len(means) > 2:
                lines.append((method, _bound_name(name), "priors", spearmanr(means)[0], np.nan, len(means)))
    return pd.DataFrame(lines, columns=["method", "bound", "across", "Spearman's ρ", "standard error", "of"])


def _bound_name(name: str) -> str:
    return "augmented" if name == "bound" else name
