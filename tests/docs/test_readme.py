"""The code of the README and of the pages runs as it stands, and what the README points to is there."""

import re
from pathlib import Path

import numpy as np
import pytest

README, TOUR, CELLS = (Path(page).read_text() for page in ("README.md", "docs/tour.md", "docs/cells.md"))


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


@pytest.fixture(autouse=True)
def double_precision():
    """Readers run it in JAX's default, single precision."""


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def readme():
    """The names that the README's code leaves, for the tour, which goes on from there."""
    names: dict = {}
    for block in blocks(README):
        exec(compile(block, "README.md", "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_readmes_code_runs(readme):
    assert len(blocks(README)) == 2
    assert readme["fit"].converged
    assert readme["accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_tours_code_runs(readme):
    assert len(blocks(TOUR)) == 3
    names = dict(readme)
    for block in blocks(TOUR):
        exec(compile(block, "tour.md", "exec"), names)
    assert names["replicates"].shape == (5, 64, 1797)
    # Of 140 digits without a label; one in a hundred thousand would find fewer if 0.85 were found on average.
    assert names["found"] > 0.7
    np.testing.assert_allclose(names["sure"].sum(axis=1), 1, atol=1e-6)
    compared, missing = names["compared"], names["missing"]
    assert (compared.table["held_out"].diff().dropna() <= 0).all()  # best first
    assert ((missing.low <= missing.mean) & (missing.mean <= missing.high)).mean() > 0.99
    assert names["choice"].complete


@pytest.mark.slow
@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/priors.md"])
def test_pages_run_too(page, recwarn):
    """From top to bottom, and no fit fails to converge."""
    names: dict = {}
    for block in blocks(Path(page).read_text()):
        exec(compile(block, page, "exec"), names)
    assert names["fit"].converged
    assert np.isfinite(names["approximate"].elbo).all()
    assert not [w for w in recwarn if "SVI" not in str(w.message) and "steps" not in str(w.message)]


@pytest.mark.parametrize(
    "page",
    [
        *("index", "model", "hyperparameters"),
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("structures", "components", "faq")),
    ],
)
def test_what_pages_show_is_so(page):
    """Snippets on tiny data, from top to bottom; and what stands in their comments."""
    names: dict = {}
    for block in blocks(Path(f"docs/{page}.md").read_text()):
        exec(compile(block, page, "exec"), names)
    if page == "index":
        assert names["fit"].posterior.T.mean.shape == (6, 3)
    elif page == "model":
        assert names["fit"].converged
        assert names["several"].membership[0].tolist() == [0.5, 0.5, 0.0]
    elif page == "hyperparameters":
        assert names["per_sample"] == pytest.approx(90, abs=0.01)
        assert names["rates"].a[0] == pytest.approx([12.288, 122.88])  # 128 counts · 16 pixels · 6 samples · shares
    elif page == "structures":
        assert names["two"].group_names == ["B|1", "B|2", "T|1", "T|2"]
        assert names["found"][-1].argmax() == 1  # a T
    elif page == "components":
        assert names["found"].comes_back == 1
        assert names["again"].posterior.T.mean.shape == (8, 3)
    else:
        assert names["fit"].converged
        assert names["choice"].rank == 3
        assert names["right"] == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gsnmf.inference.warning.DeadComponentsWarning")
def test_the_code_about_cells_runs(tmp_path, monkeypatch):
    """On 30 cells, 12 genes, with files of the names on the page."""
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    kind = np.arange(30) % 2
    counts = rng.poisson(np.where(np.arange(12)[None, :] % 2 == kind[:, None], 9.0, 0.4))
    counts[:, 11] = 1  # so that undo_log1p finds the unit of every cell
    cells = anndata.AnnData(np.log1p(counts * 0.5), layers={"counts": counts})
    cells.var["highly_variable"] = np.arange(12) < 10
    cells.obs["cell_type"] = ["Unknown" if n == 0 else f"type {k}" for n, k in enumerate(kind)]
    monkeypatch.chdir(tmp_path)
    cells.write_h5ad("cells.h5ad")
    cells[:, ::-1].write_h5ad("new_cells.h5ad")
    names: dict = {}
    for block in blocks(CELLS):
        exec(compile(block, "cells.md", "exec"), names)
    again = anndata.read_h5ad("cells_with_factors.h5ad")
    assert again.obs["gsnmf_group"].astype(str).iloc[0] == "type 0"
    np.testing.assert_array_equal(names["adata"].layers["counts"], counts)
    assert (names["new_cells"].obs["gsnmf_group"].astype(str) == [f"type {k}" for k in kind]).all()
    assert len(names["genes"]) == 10 * again.obsm["X_gsnmf"].shape[1]
    assert "<html" in Path("cells.html").read_text()


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_links_and_files_exist():
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    named = re.findall(r"`((?:tests|docs|model|inference|gsnmf|benchmarks|CONTRIBUTING)[\w/.]*)`", README)
    paths = links + [name for name in named if "/" in name or name.endswith(".md")]
    assert len(paths) > 5
    for path in paths:
        assert Path(path).exists(), path
