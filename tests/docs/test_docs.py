"""The documentation holds together: links lead somewhere, names exist, every page is found, and the site builds."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PAGES = sorted([*Path().glob("*.md"), *Path("docs").rglob("*.md")])
FENCES = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)


def prose(page):
    """The page without its code."""
    return FENCES.sub("", page.read_text())


def links(page):
    """Relative links of a page, as paths and anchors."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", prose(page))):
        if not re.match(r"\w+:", link):
            path, _, anchor = link.partition("#")
            yield link, Path(page.parent, path) if path else page, anchor


def anchors(page):
    """What headings are called in addresses, here and on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files_and_headings(page):
    for link, path, anchor in links(page):
        assert path.is_file(), f"{link}: no such file (a folder has no page: link its README.md)"
        assert not anchor or anchor in anchors(path), f"{link}: no such heading"


def test_every_page_is_reached_from_the_index():
    reached, ahead = set(), [Path("docs/index.md").resolve()]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += [path.resolve() for _, path, _ in links(page) if path.suffix == ".md" and path.is_file()]
    assert not {str(page) for page in PAGES if page.resolve() not in reached}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tests_that_pages_name_exist(page):
    for file, name in re.findall(r"(?:(\btest_\w+\.py)::|`)(test_\w+)\b(?!\.py)", page.read_text()):
        files = Path("tests").rglob(file or "test_*.py")
        assert any(f"def {name}(" in path.read_text() for path in files), f"{file}::{name}"


def test_every_promise_has_a_test():
    """The names themselves are looked up above."""
    rows = [line for line in Path("docs/promises.md").read_text().splitlines() if line.startswith("| ")]
    promised = [row for row in rows if "test_" in row or len(row.split("|")) == 4]
    assert len(promised) > 22  # with two headings
    for row in promised:
        assert row == "| promise | test |" or re.search(r"`test_\w+\.py::test_\w+`", row.split("|")[2]), row


def test_functions_that_the_algorithm_names_exist():
    named = re.findall(r"`((?:model|inference)(?:\.\w+){2,})`", Path("docs/algorithm.md").read_text())
    assert len(named) > 35
    for name in named:
        parts = f"gsnmf.{name}".split(".")
        modules = [".".join(parts[:n]) for n in range(2, len(parts)) if Path(*parts[1:n]).with_suffix(".py").is_file()]
        assert len(modules) == 1, f"{name}: no such file"  # a former name is forwarded, but has no file
        found = import_module(modules[0])
        for attribute in parts[modules[0].count(".") + 1 :]:
            found = getattr(found, attribute)
        assert callable(found), name


@pytest.mark.parametrize("module", ["gsnmf", "gsnmf.anndata", "gsnmf.model", "gsnmf.inference"])
def test_the_reference_has_all_public_names(module):
    page = Path("docs/api", f"{module.split('.')[-1]}.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: (\w+)$", page, flags=re.MULTILINE)
    elsewhere = {"__version__", "cavi", "mcmc", "svi"}  # which have pages of their own
    assert sorted(named) == sorted(set(import_module(module).__all__) - elsewhere)


def test_docstrings_become_what_sphinx_reads(monkeypatch):
    monkeypatch.syspath_prepend("docs")
    translate = import_module("docstrings").translate
    lines = [
        "Fit `T` to `as_data(X)`, see `as_data`.",
        "",
        "    a = b   c",
        "",
        "low, high: ends of unit_.",
        "Args:",
        "    X: features,",
        "        samples.",
        "    K: K.",
    ]
    said = list(translate(lines, ("low", "high"), {"as_data": "gsnmf.model.as_data"}))
    assert said[0] == "Fit ``T`` to ``as_data(X)``, see :py:obj:`as_data <gsnmf.model.as_data>`."
    assert said[said.index("::") : said.index("::") + 3] == ["::", "", "    a = b   c"]
    assert [line for line in said if line.startswith(":ivar")] == [
        ":ivar low: ends of unit\\_.",
        ":ivar high: ends of unit\\_.",
    ]
    assert said[-3:] == [":param X: features,", "        samples.", ":param K: \\K."]


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path):
    pytest.importorskip("sphinx", reason="make docs installs it")
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", "docs", "."]
    done = subprocess.run([*build, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text())
        assert not [address for address in loaded if address.startswith(("http", "//"))], page
