"""The page: a template, its style and script, and the sections that this fit allows."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..images.preprocessing import pixels_of
from ..inference import Fit, psis
from ..inference.results import priors_of, rank_of, require_own_data
from ..intervals import PROB
from ..model import Data, Priors
from ..reading import PathLike
from ..writing import write_whole
from . import components, features, samples, sections
from .charts import trace
from .markup import Html, embed, escape, percent, tag
from .pictures import as_pictures, symbols
from .summary import Summary, examples, guesses, summarise
from .widths import MARKS, Widths, find_widths

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LIGHT = 0.2  # images with a smaller proportion of zeros are not strokes on paper: their large values are shown light

NAMED = (
    "Most probable features are those with the largest t/Σt; distinctive ones are both probable and rare in other "
    "components (FREX). Example samples: those with the largest proportions of the component, among the larger half. "
    "The search says which parts of a feature's counts components explain."
)


def report(
    fit: Fit,
    data: Data,
    priors: Priors | None = None,
    *,
    image_shape: Any = None,
    title: str = "A fitted model",
    path: PathLike | None = None,
    seconds: float | None = None,
    khat: bool = False,
    widths: bool = True,
) -> str:
    """Make a self-contained HTML page about a fit, without any network requests.

    Args:
        fit: from `cavi.run` or `svi.run`.
        data: the data of the fit.
        priors: the priors of the fit; by default the fit's own.
        image_shape: height and width if samples are images, or height × width of booleans, true at the pixels that are
            features (`Images.mask`). By default, features are listed by name.
        title: title of the page.
        path: a file to which the page is also written.
        seconds: duration of the fit, to be shown on the page.
        khat: whether to draw from q for k̂, which takes as long as a thousand evaluations of the model.
        widths: whether to show intervals of components' top features and of samples' proportions, by linear response
            on the refined fit; the page says so if they would take too long.

    Returns the page.

    >>> import jax
    >>> from gsnmf.inference import cavi
    >>> from gsnmf.model import Gamma, Priors, as_data
    >>> data = as_data([[30, 10, 20], [60, 20, 40]], feature_names=["tea", "milk"])
    >>> fit = cavi.run(data, Priors(Gamma(1.0, 1.0), Gamma(1.0, 20.0)), key=jax.random.key(0), rank=1)
    >>> "milk" in report(fit, data, title="Breakfast")
    True
    """
    _check(fit, data)
    priors = None if fit.priors is None and priors is None else priors_of(fit, priors)
    pixels = None if image_shape is None else pixels_of(image_shape, data.num_features)
    k = psis_of(fit, data, priors) if khat else None
    s = summarise(fit, data, priors)
    if widths:
        s = s._replace(widths=_widths(s, pixels is None))
    page = _fill(title, {"tiles": sections.tiles(s)} | _body(s, pixels, seconds, k))
    if path is not None:
        _write(Path(path), page)
    return page


def _check(fit: Any, data: Any) -> None:
    if not isinstance(fit, Fit):
        raise ValueError(f"expected a Fit, as made by cavi.run or svi.run; got {type(fit).__name__}")
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data(X, groups); got {type(data).__name__}")
    T, V = (np.asarray(q.mean) for q in fit.posterior[:2])
    if data.X.shape != (len(T), V.shape[1]):
        raise ValueError(
            f"expected the data of the fit, {len(T)} features × {V.shape[1]} samples; got data of shape {data.X.shape}"
        )
    require_own_data(fit, data)
    if not (np.isfinite(T).all() and np.isfinite(V).all()):
        raise ValueError(f"expected a fit whose factors are finite; got a failed fit: {fit.message}")


def _widths(s: Summary, listed: bool) -> Widths:
    """Return the intervals of everything that the page shows; features only if they are listed."""
    features = [(int(f), k) for k in range(s.rank) for f in s.top_features(k)] if listed else []
    typical, worst = examples(s)
    shown = dict.fromkeys(typical + worst)
    return find_widths(s, features, [(int(k), n) for n in shown for k in s.made_of(n)[0]])


def psis_of(fit: Fit, data: Data, priors: Priors | None) -> float:
    """Return k̂ of the fit, with a key of its own; raise for a fit without priors."""
    import jax

    if priors is None:
        raise ValueError("expected priors with khat=True; got priors=None")
    return psis(fit, data, priors, key=jax.random.key(rank_of(fit.posterior)))


def _body(s: Summary, pixels: Any, seconds: float | None, khat: float | None) -> dict[str, Html]:
    """Return all sections, links to them, and the numbers that the script needs."""
    draw = None if pixels is None else partial(as_pictures, pixels=pixels)
    pictures = None if draw is None else draw(s.T)
    name = sections.BOUNDS[s.fit.bound][0]
    chart, points = trace(np.asarray(s.fit.elbo, float), name, sections.unit(s))
    canvas, shades = components.heat(s)
    lam, rates = (None, None) if s.lam is None else components.relevance(s, pictures)
    found = guesses(s)
    named, index = (None, None) if pictures is not None else features.names_block(s)
    parts = {
        "The data": sections.data_section(s),
        "The model and its priors": sections.model_section(s),
        "The fit": sections.fit_section(s, chart, seconds, khat),
        "Components": _components(s, pictures, named, lam, canvas),
        "Reconstructions": samples.reconstruction_section(s, draw, pictures, examples(s)),
    }
    if found is not None:
        parts["Classes in coefficient space"] = samples.confusion_section(s, found)
    if s.fit.posterior.z is not None and not s.data.known.all():
        parts["Unlabelled samples"] = samples.unlabelled_section(s)
    body = [
        tag("section", tag("h2", heading, id=f"heading-{n}"), content, id=f"part-{n}", aria_labelledby=f"heading-{n}")
        for n, (heading, content) in enumerate(parts.items())
    ]
    links = [tag("a", heading, href=f"#part-{n}") for n, heading in enumerate(parts)]
    drawn = "" if pictures is None else symbols(pictures)
    numbers = {
        "orders": s.orders,
        "live": s.used.tolist(),
        "groups": s.groups,
        "trace": points,
        "heat": shades,
        "lam": rates,
        "features": index,
        "light": pictures is not None and _zeros(s) < LIGHT,
    }
    return {"links": escape(links), "body": escape([drawn, *body]), "data": embed(numbers)}


def _zeros(s: Summary) -> float:
    """Return the proportion of zeros among observed entries."""
    return float(1 - np.count_nonzero(s.data.matrix.stored()) / s.data.num_observed)


def _components(
    s: Summary, pictures: components.Pictures, named: Html | None, lam: Html | None, canvas: Html
) -> list[Any]:
    """Return the blocks about components, below the controls that sort them."""
    what = (
        "E[T] as pictures, each on its own scale"
        if pictures is not None
        else "The features with the largest E[t] of each component, as proportions of its Σ t"
    )
    dead = "A component is dead if the counts allocated to it are less than half of those it is expected to cause. "
    if pictures is None and s.widths is not None:
        dead += s.widths.note + (MARKS if s.widths.found else "")
    blocks = [components.controls(s, pictures)]
    if named is not None:
        blocks.append(_block("Components by name", NAMED, named))
    words = f"{what}. In percent: the component's part of ΣTV. {dead}"
    blocks.append(_block("Dictionary", words, components.gallery(s, pictures)))
    if s.means is not None:
        blocks.append(
            _block(
                "Mean coefficients by class",
                "A Hinton diagram: areas are proportional to the mean of E[v] over the samples of a class.",
                components.hinton(s, s.means, "mean coefficient", pictures, "hinton-v"),
            )
        )
    if s.lam is not None and lam is not None:
        if s.means is not None and s.lam.mean.shape == s.means.T.shape and s.lam_axes == ("component", "group"):
            inverse = components.hinton(s, 1 / s.lam.mean.T, "1/E[λ]", pictures, "hinton-lam")
            blocks.append(
                _block("1/E[λ] by class", "The size of coefficients that the learned prior expects.", inverse)
            )
        many = s.lam_axes == ("component", "group")
        note = " Pale points: E[λ] of other classes, within the range of the axis." if many else ""
        words = (
            f"E[λ] with its {percent(PROB)} interval under q, on a logarithmic axis; small λ, large coefficients.{note}"
        )
        blocks.append(_block("Relevance λ", words, lam))
    sort = "samples sorted by class" if s.home is not None else "samples in their order"
    blocks.append(_block("Coefficients", f"E[V], dark is large, {sort}; hover for values.", canvas))
    return [*blocks, components.table(s)]


def _block(heading: str, words: str, content: Html) -> Html:
    return tag("div", tag("h3", heading), tag("p", words, class_="quiet"), content, class_="block panel")


def _fill(title: str, parts: dict[str, Html]) -> str:
    """Fill the template; a content security policy forbids every request, and all scripts except our own."""
    template, style, script = (
        files(__package__).joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js")
    )
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"{POLICY}; script-src 'sha256-{ours}'"
    values = {"title": escape(title), "policy": policy, "style": style, "script": script, **parts}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)  # once: names may hold braces too


def _write(path: Path, page: str) -> None:
    """Write the page, so that the file appears whole or not at all."""
    if not path.parent.is_dir():
        raise ValueError(f"expected a folder that exists; got {path.parent}")
    write_whole({path: page.encode()})
