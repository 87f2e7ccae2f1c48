"""Every notebook runs from top to bottom, here in its reduced form, and is kept as a full run left it."""

import re
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, "notebooks")  # the folder is no package
import run_notebooks as run

NOTEBOOKS = run.notebooks()
NUMBERS = [path.name[:2] for path in NOTEBOOKS]
LARGEST = 600_000  # bytes: a repository keeps every version
# A machine's folders, a kernel's own files, and what Python says before a warning.
PRIVATE = re.compile(r"/(home|root|tmp|work|Users|usr|opt|var)/|ipykernel_\d+|site-packages|Warning:|\bobject at 0x")


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def text_of(output):
    """What a reader sees as letters; pictures are left out."""
    data = output.get("data", {})
    return "".join([output.get("text", ""), *(text for kind, text in data.items() if kind.startswith("text/"))])


def complaints(notebook):
    """Errors, and whatever was written to stderr: a warning is explained in the text and switched off, or mended."""
    return [o for o in outputs(notebook) if o.output_type == "error" or o.get("name") == "stderr"]


# One of them in every run of the suite: each begins a process, and the others compile for minutes.
SHORT = ("01",)
RUNS = [
    pytest.param(path, id=number, marks=() if number in SHORT else pytest.mark.slow)
    for path, number in zip(NOTEBOOKS, NUMBERS, strict=True)
]


@pytest.mark.parametrize("path", RUNS)
def test_runs_without_a_complaint(path):
    done = run.execute(path, quick=True)
    assert not complaints(done)
    assert any("image/png" in output.get("data", {}) for output in outputs(done))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NUMBERS)
def test_is_kept_as_a_full_run_left_it(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook == run.tidy(deepcopy(notebook))
    assert not complaints(notebook)
    assert not [found for output in outputs(notebook) if (found := PRIVATE.search(text_of(output)))]
    assert sum("image/png" in output.get("data", {}) for output in outputs(notebook)) >= 2
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NUMBERS)
def test_asks_a_question_and_points_to_what_is_there(path):
    words = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert re.match(r"# .+\?\n", words[0])
    links = [link for text in words for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert all((path.parent / link).exists() for link in links), links


def test_the_index_names_all_of_them():
    index = Path("notebooks/README.md").read_text()
    assert re.findall(r"\]\((\d\d_\w+\.ipynb)\)", index) == [path.name for path in NOTEBOOKS]


def test_a_complaint_is_seen(tmp_path):
    """The check can fail: a notebook that warns, in the environment's own kernel."""
    source = "import sys, warnings\nprint(sys.prefix)\nwarnings.warn('too few sweeps', stacklevel=1)"
    path = tmp_path / "warns.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), path)
    done = run.execute(path, quick=True)
    assert outputs(done)[0].text.strip() == sys.prefix
    assert len(complaints(done)) == 1
    assert PRIVATE.search(complaints(done)[0].text)
