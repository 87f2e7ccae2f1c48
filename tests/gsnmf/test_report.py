"""The page about a fit: what it says, and that names cannot become markup. How it behaves is in test_report_browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import gsnmf
from gsnmf import cli, intervals, reporting
from gsnmf.inference import Fit, Posterior, cavi, linear_response
from gsnmf.inference.families import LogNormal, Point
from gsnmf.inference.posterior import LabelPosterior
from gsnmf.model import Exponential, Gamma, GroupSparse, Priors, Relevance, as_data
from gsnmf.reporting import page as page_module
from gsnmf.reporting import widths
from gsnmf.reporting.features import search_index
from gsnmf.reporting.graph import layout, model_graph
from gsnmf.reporting.markup import Html, embed, escape, number, tag
from gsnmf.reporting.summary import guesses, interval, summarise

F, N, K, C = 6, 12, 4, 3
GROUPS = ["ash", "birch", "cedar"]


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks when it looks into a model."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True, scope="module")
def no_intervals() -> Iterator[None]:
    """They take a while, and these fits were made by nobody; see the tests at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "find_widths", lambda *_: widths.none("nobody asked"))
        yield


def gamma(rng: Any, *shape: int, size: float = 1.0) -> Gamma:
    return Gamma(rng.uniform(5, 50, shape), size * rng.uniform(0.02, 0.1, shape))


def problem(family: str = "group sparse", labels: Any = "all", **names: Any) -> tuple[Fit, Any]:
    """A fit that nobody made: the page is about its numbers, whatever they are. The last component is dead."""
    rng = np.random.default_rng(0)
    groups = None if labels is None else [GROUPS[n % C] for n in range(N)]
    if labels == "some":
        groups = [None if n < 3 else g for n, g in enumerate(groups)]
    X = rng.poisson(6, (F, N)).astype(float)
    data = as_data(X, groups, **names)
    T, V = gamma(rng, F, K), gamma(rng, K, N, size=5.0)
    T.a[:, -1], V.a[-1] = 0.1, 0.1
    family_of = {
        "group sparse": (GroupSparse(Gamma(np.array([[2.0, 8.0, 8.0]]), 1e3)), gamma(rng, K, C)),
        "gamma": (Gamma(1.0, 2.0), None),
        "relevance": (Relevance(Gamma(2.0, 1.0)), gamma(rng, K, 1)),
        "exponential": (Exponential(Gamma(2.0, 1.0)), gamma(rng, 1, 1)),
        "given": (GroupSparse(dist.HalfCauchy(3.0)), LogNormal(rng.normal(size=(K, C)), np.full((K, C), 0.2))),
        "point": (GroupSparse(Gamma(2.0, 1.0)), Point(rng.uniform(1, 2, (K, C)))),
    }
    coefficients, lam = family_of[family]
    z = None
    if labels == "some":
        probabilities = np.asarray(data.membership).copy()
        probabilities[:3] = [[0.5, 0.3, 0.2], [0.98, 0.01, 0.01], [0.1, 0.8, 0.1]]
        z = LabelPosterior(probabilities, None, None, data.labels.unlabelled)
    priors = Priors(Gamma(0.6, 20.0), coefficients)
    fit = Fit(
        Posterior(T, V, lam).with_labels(z), np.linspace(-900, -700, 30), 30, True, "It was enough.", priors=priors
    )
    return fit, data


class Reader(HTMLParser):
    """Elements and their attributes, text by element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))

    handle_startendtag = handle_starttag

    def handle_data(self, text: str) -> None:
        self.text.append(text)

    def having(self, key: str) -> list[str]:
        return [attributes[key] or "" for _, attributes in self.elements if key in attributes]


def numbers(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(scope="module")
def page() -> str:
    return gsnmf.report(*problem(), image_shape=(2, 3), title="Trees", seconds=1.25)


def test_the_page_says_what_the_fit_is(page: str) -> None:
    words = " ".join(Reader(page).text)
    for heading in ("The data", "The model and its priors", "The fit", "Components", "Reconstructions", "Classes in"):
        assert heading in words
    for said in ("Trees", "6 × 12", "3 of 4", "−700", "augmented bound", "It was enough.", "float64", "1.2", *GROUPS):
        assert said in words
    assert "Gamma, shape 2 or 8, scale 1,000" in words
    assert "not an estimate of the accuracy on new samples" in words
    assert "were unlabelled" not in words


@pytest.mark.parametrize(
    ("bound", "said"),
    [("collapsed", "collapsed bound"), ("log_joint", "log joint density"), ("augmented", "augmented")],
)
def test_the_kind_of_bound_is_named(bound: str, said: str) -> None:
    fit, data = problem("gamma", None)
    words = " ".join(Reader(gsnmf.report(fit._replace(bound=bound), data)).text)
    assert f"Last {said}" in words
    if bound != "augmented":
        assert "augmented bound\n" not in words
        assert "Last augmented" not in words


def test_nothing_is_fetched(page: str) -> None:
    assert "http://" not in page
    assert "https://" not in page
    reader = Reader(page)
    assert all(
        link.startswith(("#", "data:image/png;base64,")) for key in ("src", "href") for link in reader.having(key)
    )
    assert "@import" not in page
    (policy,) = [a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><b>",
    "{{body}}",
    "a&b;<",
    "' onclick='x",
]


def test_names_stay_names() -> None:
    names = [f"{name}{n}" for n, name in enumerate(NASTY * 2)]
    fit, data = problem(feature_names=NASTY, sample_names=names)
    data.names.group = np.array(["<svg onload=alert(1)>", "</script>", "<!--"])
    plain = Reader(gsnmf.report(*problem()))
    page = gsnmf.report(fit, data, title="<script>alert('title')</script>")
    reader = Reader(page)
    assert [name for name, _ in reader.elements].count("script") == 2
    assert {name for name, _ in reader.elements} == {name for name, _ in plain.elements}
    assert not [key for _, attributes in reader.elements for key in attributes if key.startswith("on")]
    assert numbers(page)["groups"] == data.names.group.tolist()
    assert set(numbers(page)["heat"]["samples"]) == set(names)
    assert any("alert(1)" in text for text in reader.text)  # as text it is there


def test_escape_lets_only_markup_through() -> None:
    assert tag("p", "<", Html("<b>"), ["&"], title='"') == '<p title="&quot;">&lt;<b>&amp;</p>'
    assert not set("<>&") & set(embed({"</script>": "<!--<script>&"}))
    assert escape("\ud800") == "?"  # half a surrogate pair could not be written to a file


@pytest.mark.parametrize("family", ["group sparse", "gamma", "relevance", "exponential", "given", "point"])
@pytest.mark.parametrize("image_shape", [None, (2, 3)])
def test_every_family_has_its_page(family: str, image_shape: Any) -> None:
    fit, data = problem(family)
    page = gsnmf.report(fit, data, image_shape=image_shape)
    reader = Reader(page)
    assert ("Relevance λ" in " ".join(reader.text)) == (family != "gamma")
    grouped = family in ("group sparse", "given", "point")
    assert ("hinton-lam" in reader.having("id")) == grouped
    assert "hinton-v" in reader.having("id")  # labels are there, whether the prior uses them or not
    assert (numbers(page)["lam"] is not None) == (grouped or family == "relevance")


def test_components_have_names_and_features_can_be_found() -> None:
    """Without a script the table is there and the search is not; the index says where a feature's counts are."""
    fit, data = problem(feature_names=[f"word{f}" for f in range(F)], sample_names=[f"doc{n}" for n in range(N)])
    page = gsnmf.report(fit, data)
    reader, about = Reader(page), gsnmf.describe_components(fit, data)
    form = next(attributes for _, attributes in reader.elements if attributes.get("id") == "find-form")
    assert "hidden" in form
    text = re.sub("<[^>]*>", "", re.search(r'<tr[^>]*id="named-0".*?</tr>', page)[0])
    for part in (about["top"][0], about["distinctive"][0], about["samples"][0], about["group"][0]):
        assert escape(part) in text
    assert "dead: it explains nothing" in re.search(rf'<tr[^>]*id="named-{K - 1}".*?</tr>', page)[0]
    index = numbers(page)["features"]
    assert sorted(index["names"]) == sorted(data.names.feature)
    q = fit.posterior
    counts = np.exp(q.T.log_mean) * np.exp(q.V.log_mean).sum(axis=1)
    f = int(index["names"][0].removeprefix("word"))
    assert f == int((counts.sum(axis=1)).argmax())
    k, share = index["places"][0][0]
    assert k == counts[f].argmax()
    assert share == round(100 * counts[f, k] / counts[f].sum())
    assert numbers(gsnmf.report(fit, data, image_shape=(2, 3)))["features"] is None


def test_the_search_index_has_a_bounded_size() -> None:
    fit, data = problem(feature_names=[f"{f}" + "ß" * 99 for f in range(F)])
    s = summarise(fit, data, fit.priors)
    whole = search_index(s)
    assert max(map(len, whole["names"])) == 40
    some = search_index(s, room=800)
    assert 0 < len(some["names"]) < F
    assert some["names"] == whole["names"][: len(some["names"])]  # the most frequent
    assert len(embed([some["names"], some["places"]])) <= 800


def test_without_labels_nothing_is_by_class() -> None:
    page = gsnmf.report(*problem("relevance", None))
    words = " ".join(Reader(page).text)
    assert "Classes in coefficient space" not in words
    assert "Mean coefficients by class" not in words
    assert list(numbers(page)["orders"]) == ["size", "number"]
    assert 'value="class"' not in page


def test_labels_that_were_unknown_are_listed_least_certain_first() -> None:
    fit, data = problem(labels="some")
    page = gsnmf.report(fit, data)
    part = page.split("Unlabelled samples")[-1]
    assert re.findall(r"(\w+): (0\.\d+)</td>", part)[:3] == [("ash", "0.500"), ("birch", "0.300"), ("cedar", "0.200")]
    assert re.findall(r'<th scope="row">(\d+)</th>', part) == ["0", "2", "1"]
    found = guesses(summarise(fit, data, fit.priors))
    assert found is not None
    assert found.classified == N - 3


def test_missing_entries_are_counted_and_left_out() -> None:
    fit, data = problem()
    X = np.array(data.X)
    X[0, :5], X[:, 3] = np.nan, np.nan
    holes = as_data(X, [GROUPS[n % C] for n in range(N)])
    for shape in (None, (2, 3)):
        words = " ".join(Reader(gsnmf.report(fit, holes, image_shape=shape)).text)
        assert "10 (13.9 %)" in words
        assert "of 11 fitted samples" in words  # one is hidden as a whole


def test_orders_and_dead_components() -> None:
    page = gsnmf.report(*problem())
    found = numbers(page)
    assert found["live"] == [True, True, True, False]
    fit, _ = problem()
    T, V = np.asarray(fit.posterior.T.mean), np.asarray(fit.posterior.V.mean)
    assert found["orders"]["size"] == np.argsort(-T.sum(axis=0) * V.sum(axis=1)).tolist()
    cards = [a for name, a in Reader(page).elements if name == "figure" and "data-k" in a]
    assert {int(a["data-k"]) for a in cards if "dead" in a["class"]} == {3}
    assert [int(a["data-k"]) for a in cards] == found["orders"]["class"]


def test_areas_of_the_hinton_diagram_are_in_proportion() -> None:
    page = gsnmf.report(*problem())
    s = summarise(*problem(), None)
    svg = re.search(r'<svg id="hinton-v".*?</svg>', page, re.DOTALL)[0]
    cells = re.findall(r'data-k="(\d)" data-c="(\d)".*?<rect [^>]*width="([\d.]+)" height="([\d.]+)"', svg)
    areas = np.full((C, K), np.nan)
    for k, c, width, height in cells:
        areas[int(c), int(k)] = float(width) * float(height)
    drawn = np.isfinite(areas)
    assert drawn[:, :3].all()
    # sides are written to a tenth of a pixel, of some 20
    np.testing.assert_allclose((areas / np.nanmax(areas))[drawn], (s.means / s.means.max())[drawn], rtol=0.03)


def test_intervals_are_quantiles() -> None:
    rng = np.random.default_rng(1)
    q = gamma(rng, K, C)
    mean, low, high = interval(q, 0.8)
    np.testing.assert_allclose(mean, q.a * q.b)
    np.testing.assert_allclose(low, stats.gamma.ppf(0.1, q.a, scale=q.b))
    np.testing.assert_allclose(high, stats.gamma.ppf(0.9, q.a, scale=q.b))
    law = LogNormal(np.zeros((1, 1)), np.ones((1, 1)))
    np.testing.assert_allclose(interval(law).low, stats.lognorm.ppf(0.05, 1.0))


def test_guesses_are_leave_one_out_nearest_neighbours_that_know_no_labels() -> None:
    fit, data = problem()
    found = guesses(summarise(fit, data, None))
    T = np.asarray(fit.posterior.T.mean)
    from scipy.optimize import nnls

    V = np.array([nnls(T, np.asarray(data.X)[:, n])[0] for n in range(N)])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    matrix = np.zeros((C, C), int)
    for n in range(N):
        others = [m for m in range(N) if m != n]
        matrix[n % C, max(others, key=lambda m: V[n] @ V[m]) % C] += 1
    np.testing.assert_array_equal(found.matrix, matrix)
    few = guesses(summarise(fit, data, None), most=5)
    assert (few.classified, few.possible) == (5, N)


@pytest.mark.parametrize(
    ("family", "parents", "plates"),
    [
        ("group sparse", {"V": ["lam"], "X": ["T", "V"]}, {"group": {"lam"}, "component": {"T", "V", "lam"}}),
        ("gamma", {"X": ["T", "V"]}, {"component": {"T", "V"}}),
        ("exponential", {"V": ["lam"], "X": ["T", "V"]}, {"component": {"T", "V"}}),
    ],
)
def test_the_graph_is_that_of_the_model(family: str, parents: Any, plates: Any) -> None:
    fit, data = problem(family)
    graph = model_graph(data, fit.priors, K)
    assert {site: list(above) for site, above in graph.parents.items() if above} == parents
    always = {"feature": {"T", "X"}, "sample": {"V", "X"}}
    assert {name: set(sites) for name, sites in graph.plates.items()} == plates | always
    places = layout(graph)
    for site, above in graph.parents.items():
        assert all(places[parent][1] < places[site][1] for parent in above)  # arrows go down
    for sites in graph.plates.values():
        x, y = zip(*(places[site] for site in sites), strict=True)
        covered = {s for s, p in places.items() if min(x) <= p[0] <= max(x) and min(y) <= p[1] <= max(y)}
        assert covered == set(sites)


def test_a_page_of_faces_is_small() -> None:
    """As large as the Yale faces, of noise, which cannot be compressed."""
    rng = np.random.default_rng(0)
    pixels = np.zeros((116, 98), bool)
    pixels.ravel()[rng.permutation(pixels.size)[:4484]] = True
    data = as_data(rng.integers(0, 256, (4484, 165)), np.arange(165) % 15)
    fit = Fit(Posterior(gamma(rng, 4484, 45), gamma(rng, 45, 165), gamma(rng, 45, 15)), np.arange(5.0), 5, True, "")
    assert len(gsnmf.report(fit, data, image_shape=pixels).encode()) < 5e6


def test_refusals(tmp_path: Path) -> None:
    fit, data = problem()
    for arguments, options, message in [
        (("fit", data), {}, "expected a Fit"),
        ((fit, np.ones((F, N))), {}, "expected Data"),
        ((fit, as_data(np.ones((F, N + 1)))), {}, "expected the data of the fit"),
        ((fit._replace(data=1), data), {}, "expected the data of the fit"),
        ((fit, data), {"image_shape": (2, 2)}, "expected an image shape of 6 pixels; got 2×2 with 4"),
        ((fit, data), {"image_shape": "2x3"}, "expected a height and a width"),
        ((fit, data), {"image_shape": (-2, -3)}, "expected a height and a width"),
        ((fit, data), {"path": tmp_path / "no" / "page.html"}, "expected a folder that exists"),
        ((fit._replace(priors=None), data), {"khat": True}, "expected priors with khat"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            gsnmf.report(*arguments, **options)
    broken = fit.posterior._replace(T=Gamma(np.full((F, K), np.nan), 1.0))
    with pytest.raises(ValueError, match="whose factors are finite"):
        gsnmf.report(fit._replace(posterior=broken), data)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.poisson(5, size=(6, 9))
    rows = [
        "gene," + ",".join(f"s{n}" for n in range(9)),
        *(f"<g{f}>," + ",".join(map(str, x)) for f, x in enumerate(X)),
    ]
    (tmp_path / "counts.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "classes.csv").write_text("\n".join("abc"[n % 3] for n in range(9)) + "\n")
    return tmp_path


def run(folder: Path, *words: str) -> int:
    return cli.main([word.replace("@", f"{folder}/") for word in words])


FIT = (
    "fit",
    "@counts.csv",
    "--labels",
    "@classes.csv",
    "--per-group",
    "1",
    "--prior",
    "paper",
    "--small",
    "1",
    "--large",
    "4",
)


def test_two_commands_from_a_matrix_to_a_page(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting.page, "psis", lambda *_, **__: 1.25)  # which takes 20 seconds to compile
    assert run(files, *FIT, "--max-steps", "20", "--out", "@my_fit.npz") == 0
    assert "gsnmf report" in capsys.readouterr().out
    assert run(files, "report", "@my_fit.npz") == 0
    assert "my_fit.html" in capsys.readouterr().out
    page = (files / "my_fit.html").read_text("utf-8")
    assert "<h1>my_fit</h1>" in page
    assert "&lt;g0&gt;" in page
    options = ("--image-shape", "2x3", "--out", "@other.html", "--title", "Genes & co", "--khat")
    assert run(files, "report", "@my_fit", *options) == 0
    page = (files / "other.html").read_text("utf-8")
    assert "<h1>Genes &amp; co</h1>" in page
    assert "1.25: q as a whole is far from the exact posterior" in page
    np.save(files / "mask.npy", np.array([[1, 1, 1, 0], [1, 1, 1, 0]]))
    assert run(files, "report", "@my_fit", "--image-mask", "@mask.npy") == 0
    # Without the data the page cannot be made; with them from their file it is the same.
    assert run(files, *FIT, "--max-steps", "20", "--out", "@my_fit.npz", "--without-data", "--image-shape", "2x3") == 0
    capsys.readouterr()
    assert run(files, "report", "@my_fit.npz") == 2
    assert "expected --data FILE" in capsys.readouterr().err
    assert run(files, "report", "@my_fit.npz", "--data", "@counts.csv") == 2
    assert "expected --labels with --data" in capsys.readouterr().err
    given = ("--data", "@counts.csv", "--labels", "@classes.csv", "--title", "Genes & co", "--khat")
    assert run(files, "report", "@my_fit.npz", *given) == 0

    def timeless(path: Path) -> str:
        return re.sub(r"<tr><th[^>]*>Seconds.*?</tr>", "", path.read_text("utf-8"))

    assert timeless(files / "my_fit.html") == timeless(files / "other.html")


def test_the_command_refuses_in_one_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "fake.npz").write_bytes(b"no")
    (files / "fake.json").write_text("{}")
    for words, message in [
        (("@nothing.npz",), "expected a saved fit in"),
        (("@fake.npz",), "to have format 'gsnmf-fit'"),
        (("@fake.npz", "--labels", "@classes.csv"), "expected --data with --labels"),
        (("@fake.npz", "--out", "@fake.npz"), "expected --out to name a file other than"),
        (("@fake.npz", "--image-shape", "8"), "expected HxW"),
        (("@fake.npz", "--image-shape", "2x3", "--image-mask", "@m.npy"), "--image-shape or --image-mask; got both"),
    ]:
        assert run(files, "report", *words) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1


def test_plates_of_a_model_with_unknown_labels_are_the_models():
    """NumPyro counts how often a plate is entered in its name."""
    data = as_data(np.ones((3, 4)), ["a", "b", None, "a"])
    graph = model_graph(data, Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0))), 2)
    assert set(graph.plates) == {"feature", "component", "sample", "group"}
    assert "lam" in graph.plates["component"]


class Answers:
    """A response that differentiates nothing: widths are a tenth of the mean, the mean field's half of that."""

    is_dense = True

    def __init__(self, fit: Fit, *_: Any) -> None:
        self.q = fit.posterior

    def mean(self, f: Any) -> Any:
        return np.asarray(f(jax.tree.map(np.asarray, self.q)))

    def sd(self, f: Any) -> Any:
        return 0.1 * self.mean(f)

    def mean_field_sd(self, f: Any) -> Any:
        return 0.05 * self.mean(f)


def test_every_interval_belongs_to_what_it_stands_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means by hand; a Beta with a deviation of a tenth of its mean has 5 % beyond about 1.64 deviations."""
    fit, data = problem()
    monkeypatch.setattr(page_module, "find_widths", widths.find_widths)
    monkeypatch.setattr(widths, "linear_response", Answers)
    monkeypatch.setattr(widths, "_refine", lambda s: s.fit)
    s = summarise(fit, data, fit.priors)
    s = s._replace(widths=page_module._widths(s, listed=True))
    counts = s.T.sum(axis=0)[:, None] * s.V
    for (kind, one, other), width in s.widths.found.items():
        mean = {
            "feature": lambda f, k: s.T[f, k] / s.T[:, k].sum(),
            "sample": lambda k, n: counts[k, n] / counts[:, n].sum(),
            "total": lambda k, _: s.share[k],
        }[kind](one, other)
        assert width.mean == pytest.approx(mean, rel=1e-5)
        assert width.high == pytest.approx(mean * 1.164, rel=0.02)
        assert width.low == pytest.approx(mean * 0.836, rel=0.03)
        assert width.own_high - width.own_low == pytest.approx((width.high - width.low) / 2, rel=0.02)
    kinds = [kind for kind, _, _ in s.widths.found]
    assert (kinds.count("feature"), kinds.count("total")) == (F * K, K)
    page = gsnmf.report(fit, data)
    f = int(s.T[:, 0].argmax())
    tip = f"{f}: E[t] = {number(s.T[f, 0])}; {s.widths.found['feature', f, 0]}"
    assert tip in Reader(page).having("data-tip")
    words = " ".join(Reader(page).text)
    assert "90 % intervals come from linear response at this fit continued with S summed out" in words
    assert words.count("mean field's interval, which ignores") == 1
    assert gsnmf.report(fit, data, widths=False).count("linear response") == 0


def fails(*_: Any) -> None:
    raise ValueError("the bound curves upwards")


@pytest.mark.parametrize(
    ("family", "options", "why"),
    [
        ("group sparse", {"WORK": 10}, f"with {2 * K * (F + N + C):,} coordinates they would take long"),
        ("group sparse", {"DENSE": 0, "PRODUCTS": 10**6}, f"with {2 * K * (F + N + C):,} coordinates they would"),
        ("point", {}, "linear response needs Gamma factors"),
        ("gamma", {"linear_response": fails}, "the bound curves upwards"),
    ],
)
def test_why_there_are_no_intervals(
    family: str, options: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "find_widths", widths.find_widths)
    monkeypatch.setattr(widths, "linear_response", Answers)
    monkeypatch.setattr(intervals, "linear_response", Answers)
    for name, value in options.items():
        monkeypatch.setattr(intervals, name, value)
    fit, data = problem(family)
    words = " ".join(Reader(gsnmf.report(fit, data)).text)
    assert f"Intervals are left out: {why}" in words
    assert "90 % intervals come" not in words


def test_intervals_are_left_out_with_unlabelled_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "find_widths", widths.find_widths)
    data = as_data([[3.0, 1.0, 4.0], [1.0, 5.0, 9.0]], ["a", None, "b"])
    priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
    fit = cavi.run(data, priors, key=jax.random.key(0), rank=2, max_steps=5, tol=None)
    assert "Intervals are left out: with unlabelled samples they would take long" in gsnmf.report(fit, data)


@pytest.mark.slow
def test_intervals_of_a_page_are_those_of_linear_response() -> None:
    """From end to end, beside the refined fit's own response."""
    rng = np.random.default_rng(0)
    data = as_data(rng.poisson(rng.gamma(1.0, 5.0, (5, 1)) * rng.gamma(1.0, 1.0, (1, 7))))
    fit = cavi.run(data, Priors(Gamma(1.0, 5.0), Gamma(1.0, 1.0)), key=jax.random.key(0), rank=2)
    s = summarise(fit, data, fit.priors)
    found = widths.find_widths(s, [(1, 0)], [(1, 3)]).found
    response = linear_response(cavi.refine(fit, data, max_steps=1000, tol=1e-12), data)
    expected = response.interval(lambda q: q.T.mean[1, 0] / q.T.mean[:, 0].sum(), support="unit")
    np.testing.assert_allclose(found["feature", 1, 0][1:3], expected, rtol=1e-6)
    proportion = response.mean(lambda q: q.V.mean[1, 3] * q.T.mean[:, 1].sum() / (q.T.mean @ q.V.mean)[:, 3].sum())
    np.testing.assert_allclose(found["sample", 1, 3].mean, proportion, rtol=1e-6)
