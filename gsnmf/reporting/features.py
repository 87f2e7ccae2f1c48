"""The part of a report about components of data that are not images: a table of names, and a search over features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..features import describe_components
from ..features.measures import Measures, largest, measures
from .markup import Html, commas, embed, percent, shorten, tag
from .summary import Summary

LISTED = 8  # features in each list
LETTERS = 40  # of a name, at most
PLACES = 3  # components that are listed for a feature
ROOM = 600_000  # characters of the search index at most, so that pages stay below 2 MB


def names_block(s: Summary) -> tuple[Html, dict[str, Any]]:
    """Return a search form and a table of components by name, and the index that the script searches.

    Args:
        s: the fit in numbers.
    """
    index = search_index(s)
    return tag("div", _form(index, s.data.num_features), _table(s, measures(s.fit.posterior, s.data))), index


def _table(s: Summary, found: Measures) -> Html:
    """Return a row for each component: size, groups, top features by two measures, and example samples."""
    about = describe_components(s.fit, s.data, LISTED, priors=s.priors)
    best = {by: largest(getattr(found, by), LISTED, found.probability) for by in ("probability", "frex")}
    grouped = s.home is not None
    heads = ["component", "part of ΣTV", *(["class"] if grouped else [])]
    heads += ["most probable features", "distinctive features (FREX)", "example samples"]
    rows = []
    for k in s.orders.get("class", s.orders["size"]):
        row = about.iloc[k]
        if not s.used[k]:
            blank = tag("td", "dead: it explains nothing", colspan=len(heads) - 1)
            rows.append(tag("tr", tag("td", tag("b", f"#{k}")), blank, data_k=k, id=f"named-{k}", class_="dead"))
            continue
        cells: list[Any] = [tag("b", f"#{k}"), percent(s.share[k])]
        if grouped:
            serves = f"bound to {row['serves']}" if row["serves"] else "not bound"
            tip = f"{percent(row['group_share'])} of its counts are in {row['group']}; {serves} by the prior"
            cells.append(tag("span", shorten(row["group"], 24), f" {percent(row['group_share'])}", data_tip=tip))
        cells += [commas([_feature(s, found, int(f), k) for f in best[by][:, k]]) for by in best]
        cells.append(shorten(row["samples"], 3 * LETTERS))
        rows.append(tag("tr", [tag("td", cell) for cell in cells], data_k=k, id=f"named-{k}"))
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in heads]))
    whole = tag("table", head, tag("tbody", rows, id="named"), class_="numbers words")
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label="Components by name")


def _feature(s: Summary, found: Measures, f: int, k: int) -> Html:
    words = f"{percent(found.probability[f, k])} of component {k}, {found.lift[f, k]:.3g} times its part of all counts"
    return tag("span", shorten(s.data.names.feature[f], LETTERS), data_tip=words)


def _form(index: dict[str, Any], number: int) -> Html:
    """Return the search form, which the script shows: without one it could not answer."""
    some = f"the {len(index['names']):,} most frequent of {number:,}" if len(index["names"]) < number else f"{number:,}"
    field = tag("input", type="search", id="find", placeholder="part of a name", autocomplete="off")
    form = tag("form", tag("label", f"Search {some} features ", field), hidden=True, id="find-form", role="search")
    return tag("div", form, tag("ul", id="find-results", aria_live="polite"), class_="find")


def search_index(s: Summary, room: int = ROOM) -> dict[str, Any]:
    """Return features by name, the most frequent first, with the components that explain most of their counts.

    The counts of feature ν that component i explains are about exp E[log t_νi] Σ_τ exp E[log v_iτ], as in `in_use`.

    Args:
        s: the fit in numbers.
        room: characters in the encoded index at most.
    """
    T, V = (np.exp(np.asarray(q.log_mean, float)) for q in s.fit.posterior[:2])
    counts = T * V.sum(axis=1)
    overall = counts.sum(axis=1)
    part = counts / np.maximum(overall, np.finfo(float).tiny)[:, None]
    best: NDArray[np.intp] = np.argsort(-part, axis=1, kind="stable")[:, :PLACES]
    names, places = [], []
    for f in np.argsort(-overall, kind="stable"):
        name = shorten(s.data.names.feature[f], LETTERS)
        where = [[int(k), round(100 * float(part[f, k]))] for k in best[f] if part[f, k] >= 0.01]
        room -= len(embed([name, where]))
        if room < 0:
            break
        names.append(name)
        places.append(where)
    homes = [s.belongs(k) for k in range(s.rank)]
    return {"names": names, "places": places, "homes": homes}
