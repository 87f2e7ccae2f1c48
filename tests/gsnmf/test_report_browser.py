"""The page about a fit in a real browser: Debian's chromium, without a window. Elsewhere these tests are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import gsnmf
from gsnmf.inference import Fit, Posterior
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

F, N, K, C = 64, 60, 9, 3
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)


def a_fit() -> tuple[Fit, Any]:
    """Three components of each group, of different sizes; 4 and 8 are dead."""
    rng = np.random.default_rng(0)
    label = np.arange(N) % C
    V = np.where(label[None] == np.arange(K)[:, None] // 3, 6.0, 0.2) * rng.uniform(0.5, 2, (K, 1))
    T = rng.gamma(0.3, 10.0, (F, K))
    data = as_data(rng.poisson(T @ V), [("north", "east", "a rather long name")[c] for c in label])
    q_T, q_V = Gamma(50 * np.ones((F, K)), T / 50), Gamma(50 * np.ones((K, N)), V / 50)
    for k in (4, 8):
        q_T.a[:, k], q_V.a[k] = 0.2, 0.2
    lam = Gamma(rng.uniform(5, 30, (K, C)), rng.uniform(0.1, 2, (K, C)))
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(Gamma(2.0, 1.0)))
    elbo = -9e6 - 1e6 / np.arange(1, 80)
    return Fit(Posterior(q_T, q_V, lam), elbo, len(elbo), True, "Enough.", priors=priors), data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, (fit, data) = tmp_path_factory.mktemp("pages"), a_fit()
    with jax.numpy_rank_promotion("allow"):
        for name, shape in (("pictures", (8, 8)), ("names", None)):
            gsnmf.report(
                fit, data, image_shape=shape, title="Points of the compass", widths=False, path=folder / f"{name}.html"
            )
    return {path.stem: path for path in folder.glob("*.html")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in found.values():
        pytest.skip(f"no {' and no '.join(name for name, path in found.items() if path is None)} on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found["chromedriver"]))
    yield driver
    driver.quit()


def visit(browser: Any, page: Path, width: int = 1200) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())


def shown(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).map(e => e.dataset.k)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def choose(browser: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("id", name)).select_by_value(value)


def hover(browser: Any, element: Any) -> str:
    """What is shown when the mouse comes to the middle of the element, once scrolling, which hides it, is over."""
    middle = "const box = arguments[0].getBoundingClientRect(), x = (box.left + box.right) / 2, "
    middle += "y = (box.top + box.bottom) / 2;"
    browser.execute_script(f"{middle} scrollBy(0, y - innerHeight / 2)", element)
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
    x, y = browser.execute_script(f"{middle} return [x, y]", element)
    for at in (x - 2, x):
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": at, "y": y})
    tip: str = browser.find_element("id", "tip").text
    return tip


def columns(browser: Any, diagram: str) -> list[str]:
    """Components of a Hinton diagram from left to right, by where they are on the screen."""
    script = (
        "return [...document.querySelectorAll(`#${arguments[0]} .head:not([hidden])`)]"
        ".map(e => [e.getBoundingClientRect().left, e.dataset.k]).sort((a, b) => a[0] - b[0]).map(e => e[1])"
    )
    found: list[str] = browser.execute_script(script, diagram)
    return found


@pytest.mark.parametrize("name", ["pictures", "names"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_loads_without_errors_requests_or_overflow(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    browser.get_log("browser"), browser.get_log("performance")
    visit(browser, pages[name], width)
    assert browser.get_log("browser") == []  # no errors, nothing forbidden by the policy was tried
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith(("file://", "data:")) for url in asked)
    assert len([url for url in asked if url.startswith("file://")]) == 1
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true; })")  # a wide table
    inner, scroll = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert inner == width
    assert scroll <= width
    assert browser.title == "Points of the compass · gsnmf"


def test_sorting_moves_components_everywhere(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["pictures"])
    orders = json.loads(browser.execute_script("return document.getElementById('data').textContent"))["orders"]
    assert len({tuple(order) for order in orders.values()}) == 3
    for by in ("size", "number", "class"):
        choose(browser, "sort", by)
        expected = [str(k) for k in orders[by]]
        assert shown(browser, "#gallery > [data-k]") == expected
        assert shown(browser, "#lam-rows > [data-k]") == expected
        assert columns(browser, "hinton-v") == columns(browser, "hinton-lam") == expected


def test_dead_components_can_be_hidden_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["names"])
    assert set(shown(browser, "#gallery > [data-k]")) == {str(k) for k in range(K)}
    box = browser.find_element("id", "hide-dead")
    box.send_keys(" ")
    living = {str(k) for k in range(K)} - {"4", "8"}
    assert set(shown(browser, "#gallery > [data-k]")) == living
    assert set(columns(browser, "hinton-v")) == set(shown(browser, "#lam-rows > [data-k]")) == living
    assert browser.find_element("id", "status").text == "7 of 9 components"
    box.send_keys(" ")
    assert len(columns(browser, "hinton-v")) == K


def test_values_are_shown_where_one_points(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["pictures"])
    assert not browser.find_element("id", "tip").is_displayed()
    find = browser.find_element
    said = hover(browser, find("css selector", "#hinton-v .cell[data-k='0'][data-c='2']"))  # groups are sorted by name
    assert said.startswith("component 0 in north: mean coefficient ")
    said = hover(browser, find("css selector", "#lam-rows > [data-k='1'] .track"))
    assert said.startswith("component 1 in north: E[λ] ")
    assert hover(browser, find("id", "heat")).startswith("component ")
    sweep, value = hover(browser, find("id", "trace")).removeprefix("sweep ").split(": ")
    elbo = a_fit()[0].elbo
    assert float(value.replace(",", "").replace("−", "-")) == pytest.approx(elbo[int(sweep) - 1], abs=0.006)
    assert "have their nearest neighbour in" in hover(browser, find("css selector", ".confusion td[data-tip]"))
    hover(browser, find("css selector", "h1"))
    assert not find("id", "tip").is_displayed()


def test_features_can_be_searched(browser: Any, pages: dict[str, Path]) -> None:
    """Names that begin with the text come first; markup in names is text, and links lead to components."""
    visit(browser, pages["names"])
    field = browser.find_element("id", "find")
    assert field.is_displayed()
    results = "return [...document.querySelectorAll('#find-results > li')].map(e => e.textContent)"
    assert browser.execute_script(results) == []
    field.send_keys("6")
    found = browser.execute_script(results)
    assert sorted(line.split(":")[0] for line in found) == [
        "16",
        "26",
        "36",
        "46",
        "56",
        *(str(f) for f in [6, *range(60, 64)]),
    ]
    assert all(line[0] == "6" for line in found[:5])
    link = browser.find_element("css selector", "#find-results a")
    k = link.text.split()[0].removeprefix("#")
    link.click()
    assert browser.current_url.endswith(f"#named-{k}")
    field.clear()
    field.send_keys("<b>")
    assert browser.execute_script(results) == ["no such feature in the index"]
    visit(browser, pages["pictures"])
    assert not browser.find_elements("id", "find")


def test_another_class_and_other_pictures_on_request(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["pictures"])
    value = "return document.querySelector('#lam-rows > [data-k=\"0\"] .value').textContent"
    lam = np.asarray(a_fit()[0].posterior.lam.mean)
    assert float(browser.execute_script(value)) == pytest.approx(lam[0, 2], rel=1e-3)
    choose(browser, "lam-class", "1")
    assert float(browser.execute_script(value)) == pytest.approx(lam[0, 1], rel=1e-3)
    drawn = "return getComputedStyle(document.querySelector('#hinton-v .cell .pic')).display"
    assert browser.execute_script(drawn) != "none"
    browser.find_element("id", "squares").click()
    assert browser.execute_script(drawn) == "none"


def test_on_a_phone_components_are_rows(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["pictures"], 390)
    boxes = "return [...document.querySelectorAll('#hinton-v .head')].map(e => e.getBoundingClientRect().toJSON())"
    heads = browser.execute_script(boxes)
    assert len({round(head["left"]) for head in heads}) == 1
    assert len({round(head["top"]) for head in heads}) == K
    edge = "return document.querySelector('#hinton-v').getBoundingClientRect().right"
    assert browser.execute_script(edge) <= 390
