"""The graph of the model: sites, arrows and plates as NumPyro finds them in the model, laid out and drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpyro.infer.inspect import get_model_relations

from ..model import Data, Gamma, Priors, Problem, group_sparse_nmf
from ..model.compressed import is_sparse
from ..model.distributions import unexpanded
from ..model.priors import Given, canonical
from .markup import Html, number, tag

LETTERS = {"lam": "λ", "pi": "π"}
ROLES = {
    "T": "dictionary, features × components",
    "V": "coefficients, components × samples",
    "lam": "rates of the coefficients",
    "X": "observations, features × samples",
    "z": "labels",
    "pi": "proportions of the labels",
}
GRID = 4  # columns and rows in which nodes are placed
STEP = (132, 100)
RADIUS = 22
SHARES = np.linspace(0, 1, 25)  # places along an arrow that names of plates keep away from

Place = tuple[int, int]


class Graph(NamedTuple):
    """A directed graph of the model's sites.

    parents: the sites that each site depends on.
    distributions: the name of each site's distribution.
    plates: the sites on each plate.
    observed: the observed sites.
    """

    parents: Mapping[str, Sequence[str]]
    distributions: Mapping[str, str]
    plates: Mapping[str, Sequence[str]]
    observed: Sequence[str]


def model_graph(data: Data, priors: Priors, rank: int) -> Graph:
    """Return the graph of the NumPyro model of these data and priors."""
    problem = Problem(data, priors, rank)

    def model() -> Any:
        if not is_sparse(data):
            return group_sparse_nmf(problem)
        X = jnp.zeros(data.X.shape, problem.dtype)  # only its shape counts: nothing is computed
        return group_sparse_nmf(problem.with_data(problem.data._replace(X=X, mask=None)))

    found = get_model_relations(model)
    plates: dict[str, list[str]] = {}
    for name, sites in found["plate_sample"].items():  # NumPyro has a plate twice if it is entered twice
        plates.setdefault(name.split("__CLONE")[0], []).extend(sites)
    return Graph(found["sample_sample"], found["sample_dist"], plates, found["observed"])


def layout(graph: Graph) -> dict[str, Place]:
    """Find columns and rows of sites so that arrows go down and no plate covers a site that is not on it.

    All placements on a small grid are tried, and the one with the shortest arrows and smallest plates is taken.
    """
    best: tuple[float, dict[str, Place]] = np.inf, {}
    for places in _placements(list(graph.parents), graph, {}):
        cost = _cost(graph, places)
        if cost < best[0] - 1e-9:
            best = cost, dict(places)
    if best[1]:
        return best[1]
    return {site: (n % 2, n) for n, site in enumerate(graph.parents)}  # no layout found: plates will cover too much


def _placements(todo: list[str], graph: Graph, places: dict[str, Place]) -> Iterator[dict[str, Place]]:
    if not todo:
        if min(x for x, _ in places.values()) == 0:
            yield places
        return
    site, *rest = todo
    above = max((places[parent][1] + 1 for parent in graph.parents[site] if parent in places), default=0)
    for y in range(above, GRID):
        for x in range(GRID):
            if (x, y) not in places.values():
                places[site] = x, y
                if all(_is_apart(sites, places) for sites in graph.plates.values()):
                    yield from _placements(rest, graph, places)
                del places[site]


def _box(sites: Sequence[str], places: Mapping[str, Place]) -> tuple[int, int, int, int] | None:
    on = [places[site] for site in sites if site in places]
    if not on:
        return None
    (x, y) = zip(*on, strict=True)
    return min(x), min(y), max(x), max(y)


def _is_apart(sites: Sequence[str], places: Mapping[str, Place]) -> bool:
    box = _box(sites, places)
    return box is None or not any(
        box[0] <= x <= box[2] and box[1] <= y <= box[3] for site, (x, y) in places.items() if site not in sites
    )


def _cost(graph: Graph, places: Mapping[str, Place]) -> float:
    edges = [(places[a], places[b]) for b, above in graph.parents.items() for a in above]
    length = sum(abs(a[0] - b[0]) + 1.1 * abs(a[1] - b[1]) for a, b in edges)
    boxes = [box for sites in graph.plates.values() if (box := _box(sites, places))]
    last = max(y for _, y in places.values())
    low = sum(0.3 * (last - places[site][1]) for site in graph.observed)
    return length + low + 0.2 * sum((box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in boxes)


def draw(graph: Graph, sizes: Mapping[str, int]) -> Html:
    """Draw the graph as SVG: observed sites grey, plates with their sizes.

    Args:
        graph: from `model_graph`.
        sizes: sizes of plates.
    """
    places = layout(graph)
    centres = {site: (64 + STEP[0] * x, 54 + STEP[1] * y) for site, (x, y) in places.items()}
    edges = [(a, b) for b, above in graph.parents.items() for a in above]
    taken = [np.add(centres[a], share * np.subtract(centres[b], centres[a])) for a, b in edges for share in SHARES]
    plates, boxes = [], []
    for n, (name, sites) in enumerate(sorted(graph.plates.items(), key=lambda item: len(item[1]))):
        plate, box = _plate(f"{sizes.get(name, 0):,} {name}s", sites, centres, n, taken)
        plates.append(plate)
        boxes.append(box)
    arrows = [_arrow(centres[a], centres[b]) for a, b in edges]
    nodes = [_node(site, centres[site], site in graph.observed) for site in graph.parents]
    (left, top), (right, bottom) = np.min(boxes, axis=0)[:2] - 4, np.max(boxes, axis=0)[2:] + 4
    frame = f"{left:.0f} {top:.0f} {right - left:.0f} {bottom - top:.0f}"
    said = "; ".join(
        f"{LETTERS.get(site, site)} {'given ' + ', '.join(LETTERS.get(a, a) for a in above) if above else 'a priori'}"
        for site, above in graph.parents.items()
    )
    head = tag("marker", tag("path", d="M0 0L7 3.5L0 7z"), id="tip-of-arrow", markerWidth=7, markerHeight=7, refX=6,
               refY=3.5, orient="auto")  # fmt: skip
    return tag(
        "svg", tag("defs", head), plates, arrows, nodes, class_="graph", viewBox=frame, role="img",
        aria_label=f"Graph of the model: {said}",
    )  # fmt: skip


def _plate(
    label: str, sites: Sequence[str], centres: Mapping[str, tuple[int, int]], n: int, taken: list[Any]
) -> tuple[Html, tuple[float, float, float, float]]:
    """Draw a plate around its sites, its name where it overlaps least with what is taken; return it with its ends."""
    x, y = zip(*(centres[site] for site in sites), strict=True)
    room = RADIUS + 16 + 5 * n  # so that edges of plates do not lie on each other
    left, top, right, bottom = min(x) - room, min(y) - room, max(x) + room, max(y) + room
    length = 6.3 * len(label)
    wider = max(0.0, (length + 12 - (right - left)) / 2)
    left, right = left - wider, right + wider
    across = np.linspace(left + 7, max(right - 7 - length, left + 7), 9)[::-1]
    spots = [(x, y) for y in (bottom - 5, top + 11) for x in across]

    def crowding(spot: tuple[float, float]) -> int:
        dx, dy = np.abs(np.array(taken) - (spot[0] + length / 2, spot[1] - 4)).T
        return int(((dx < length / 2 + 5) & (dy < 10)).sum())

    spot = min(spots, key=crowding)
    taken.extend((spot[0] + share * length, spot[1] - 4) for share in SHARES)
    rect = tag("rect", x=f"{left:.1f}", y=f"{top:.1f}", width=f"{right - left:.1f}", height=f"{bottom - top:.1f}", rx=9)
    text = tag("text", label, x=f"{spot[0]:.1f}", y=f"{spot[1]:.1f}")
    return tag("g", rect, text, class_="plate"), (left, top, right, bottom)


def _arrow(a: tuple[int, int], b: tuple[int, int]) -> Html:
    along = np.subtract(b, a) / np.hypot(*np.subtract(b, a))
    (x1, y1), (x2, y2) = a + RADIUS * along, b - (RADIUS + 2) * along
    return tag("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_="arrow", marker_end="url(#tip-of-arrow)")


def _node(site: str, centre: tuple[int, int], observed: bool) -> Html:
    circle = tag("circle", cx=centre[0], cy=centre[1], r=RADIUS)
    letter = tag("text", LETTERS.get(site, site), x=centre[0], y=centre[1] + 6, text_anchor="middle")
    return tag("g", circle, letter, class_="node observed" if observed else "node")


def stated(graph: Graph, priors: Priors) -> list[tuple[str, str, str]]:
    """Return the letter, the distribution with parameters, and the role of every site."""
    priors = canonical(priors)
    own = {"T": priors.dictionary, "V": priors.coefficients, "lam": priors.coefficients.hyperprior}
    rows = []
    for site, distribution in graph.distributions.items():
        given = ", ".join(LETTERS.get(parent, parent) for parent in graph.parents[site])
        words = f"{distribution} given {given}" if given else distribution
        if not given and isinstance(own.get(site), (Gamma, Given)):
            words = parameters(own[site])
        rows.append((LETTERS.get(site, site), words, ROLES.get(site, "")))
    return rows


def parameters(prior: Gamma | Given) -> str:
    """Describe a prior in a line, a matrix of parameters by its values or their range.

    >>> parameters(Gamma(np.array([[32.0, 256.0]]), 20.0))
    'Gamma, shape 32 or 256, scale 20'
    """
    if isinstance(prior, Gamma):
        return f"Gamma, shape {_values(prior.a)}, scale {_values(prior.b)}"
    distribution = unexpanded(prior.distribution())
    known = [name for name in distribution.arg_constraints if hasattr(distribution, name)]
    return ", ".join([prior.name, *(f"{name} {_values(getattr(distribution, name))}" for name in known)])


def _values(x: Any) -> str:
    values = np.unique(np.asarray(x, float))
    if len(values) > 3:
        return f"{number(values[0])} to {number(values[-1])}"
    return " or ".join(map(number, values))
