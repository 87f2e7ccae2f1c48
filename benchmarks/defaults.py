"""Compare the default priors "relative" and "paper" by accuracy and components in use, on images and on counts.

    python benchmarks/defaults.py --counts DIR

DIR holds pbmc68k.npz, immune_cells.npz and reuters_r8.npz: counts in CSR form, samples × features (arrays `data`,
`indices`, `indptr`, `shape`), with `labels` and, for reuters_r8, the training part as `train`. Files that are not
there are left out. All other parameters have the estimator's defaults. 1-NN and model: accuracy by the nearest
training sample and by the model's class posterior; seconds: CPU time of one fit and its predictions.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit
from tqdm import tqdm

from gsnmf import GroupSparseNMF
from gsnmf.demo import digits as demo

PRIORS = "relative", "paper"
GENES, FEWEST, WORDS, DOCUMENTS, TEST_DOCUMENTS = 2000, 10, 1500, 2000, 1000


class Split(NamedTuple):
    """Training and test samples as rows, their labels, and the names of features where they have some."""

    X: Any
    y: Any
    X_new: Any
    y_new: Any
    features: Any = None


def digits(size: int, splits: int, unit: float = 1.0) -> Iterator[Split]:
    """Split half of scikit-learn's digits, with this many images for training, pixels multiplied by the unit."""
    for split in demo.splits(size, splits, seed=0):
        yield Split(split.X.T * unit, split.labels, split.test.T * unit, split.test_labels)


def orl(splits: int) -> Iterator[Split]:
    """Split the ORL faces, prepared as in the paper: 5 images of each person for training."""
    from gsnmf.images.preprocessing import prepared

    faces = prepared("orl")
    yield from halves(faces.X.T, faces.labels, splits, 0.5)


def halves(X: Any, y: Any, splits: int, share: float) -> Iterator[Split]:
    """Draw random stratified splits with this share of the samples for training."""
    for old, new in StratifiedShuffleSplit(splits, train_size=share, random_state=0).split(X, y):
        yield Split(X[old], y[old], X[new], y[new])


def read(path: Path) -> tuple[Any, Any, Any]:
    """Read counts, labels and the training part (None without one)."""
    with np.load(path) as file:
        X = csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
        return X.astype(float), file["labels"], file["train"] if "train" in file.files else None


def cells(path: Path, splits: int) -> Iterator[Split]:
    """Split cells: the genes of highest variance of log counts, and the types with enough cells."""
    X, y, _ = read(path)
    names, sizes = np.unique(y, return_counts=True)
    enough = np.isin(y, names[sizes >= FEWEST])
    counts, y = X[np.flatnonzero(enough)].toarray(), y[enough]
    genes = np.sort(np.argsort(-np.log1p(counts).var(axis=0), kind="stable")[:GENES])
    with np.load(path) as file:
        names = file["features"][genes] if "features" in file.files else None
    yield from (split._replace(features=names) for split in halves(counts[:, genes], y, splits, 0.7))


def documents(path: Path, splits: int) -> Iterator[Split]:
    """Draw documents from the training and the test part of the collection; the words most frequent in the former."""
    X, y, train = read(path)
    rng = np.random.default_rng(0)
    for _ in range(splits):
        old = rng.choice(np.flatnonzero(train), DOCUMENTS, replace=False)
        new = rng.choice(np.flatnonzero(~train), TEST_DOCUMENTS, replace=False)
        words = np.sort(np.argsort(-np.asarray(X[old].sum(axis=0)).ravel(), kind="stable")[:WORDS])
        old_X, new_X = (X[part][:, words].toarray() for part in (old, new))
        yield Split(old_X, y[old], new_X, y[new])


def problems(folder: Path | None) -> dict[str, Callable[[int], Iterator[Split]]]:
    """List the data by name, each a function of the number of splits."""
    found: dict[str, Callable[[int], Iterator[Split]]] = {}
    for size, unit in [(100, 1.0), (600, 1.0), (600, 1 / 16), (600, 255.0)]:  # pixels from 0 to 16, to 1, to 4080
        found[f"digits, {size} images, 0 to {16 * unit:g}"] = partial(digits, size, unit=unit)
    found["ORL"] = orl
    for name, make in {"pbmc68k": cells, "immune_cells": cells, "reuters_r8": documents}.items():
        path = None if folder is None else folder / f"{name}.npz"
        if path is not None and path.exists():
            found[name] = partial(make, path)
    return found


def outcome(split: Split, prior: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fit one prior to one split and count what it gets right."""
    begin = time.process_time()
    model = GroupSparseNMF(prior=prior, calibrate=None, random_state=seed, max_iter=options.sweeps)
    nearest = model.fit(split.X, split.y).score(split.X_new, split.y_new)
    row = {"1-NN": nearest, "in use": model.in_use_.sum(), "of": model.n_components_, "sweeps": model.n_iter_}
    if not options.without_model:
        row["model"] = model.set_params(predict_by="model").score(split.X_new, split.y_new)
    return row | {"seconds": time.process_time() - begin}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Average over splits; the last row of each dataset has the paired difference and its standard error."""
    runs = pd.DataFrame(rows)
    shown: dict[tuple[str, str], dict[str, str]] = {}
    for name, part in runs.groupby("data", sort=False):
        by = {prior: part[part.prior == prior].drop(columns=["data", "prior"]).set_index("split") for prior in PRIORS}
        for prior, values in by.items():
            mean = values.mean()
            forms = {key: "{:.3f}" if key in ("1-NN", "model") else "{:.0f}" for key in mean.index}
            shown[str(name), prior] = {key: forms[key].format(value) for key, value in mean.items()}
        gain = by["relative"] - by["paper"]
        for key in {"1-NN", "model"} & set(gain.columns):
            shown.setdefault((str(name), "difference"), {})[key] = f"{gain[key].mean():+.3f} ± {gain[key].sem():.3f}"
    return pd.DataFrame(shown).T.rename_axis(["data", "prior"]).fillna("").to_string()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, metavar="DIR", help="folder with the count data")
    parser.add_argument("--splits", type=int, default=4, metavar="N", help="of each dataset (default: 4)")
    parser.add_argument("--sweeps", type=int, default=300, metavar="N", help="at most (default: 300)")
    parser.add_argument("--only", default="", help="part of the name of the data wanted")
    parser.add_argument("--without-model", action="store_true", help="leave out the model's class posterior")
    options = parser.parse_args(argv)
    wanted = {name: make for name, make in problems(options.counts).items() if options.only in name}
    rows = []
    with tqdm(total=len(wanted) * options.splits * len(PRIORS), unit="fit", disable=None) as progress:
        for name, make in wanted.items():
            for number, split in enumerate(make(options.splits)):
                for prior in PRIORS:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConvergenceWarning)  # the table has the number of sweeps
                        found = outcome(split, prior, number, options)
                    rows.append({"data": name, "prior": prior, "split": number, **found})
                    progress.update()
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
