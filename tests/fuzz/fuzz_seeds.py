"""Valid files of every kind that is read: what the fuzzer damages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse

from gsnmf.inference import Fit, Posterior
from gsnmf.model import Gamma, GroupSparse, Priors, as_data
from gsnmf.saving import save_fit

F, N, K = 5, 8, 2
X = np.random.default_rng(0).poisson(3.0, (F, N))
GENES, CELLS = [f"g{n}" for n in range(F)], [f"c{n}" for n in range(N)]
LABELS = [("B", "T")[n % 2] for n in range(N)]
DOCUMENTS = ["the cat sat", "the dog sat", "a cat, a dog", "sat, sat", "dog cat", "the the", "a", "cat"]


def write_arrays(folder: Path) -> None:
    """.npy and .npz: dense, compressed, sparse, labels."""
    np.save(folder / "counts.npy", X)
    np.save(folder / "real.npy", np.asfortranarray(X + 0.5))
    np.savez(folder / "several.npz", X=X, labels=np.array(LABELS))
    np.savez_compressed(folder / "packed.npz", X=X.astype(float))
    for form in ("csr", "csc", "coo"):
        scipy.sparse.save_npz(folder / f"{form}.npz", getattr(scipy.sparse, f"{form}_array")(X))
    np.save(folder / "labels.npy", np.arange(N) % 2)
    np.savez(folder / "labels.npz", labels=np.array(LABELS))


def write_text(folder: Path) -> None:
    """Tables with and without names, MatrixMarket, documents, labels, sets of features."""
    frame = pd.DataFrame(X, index=GENES, columns=CELLS)
    frame.to_csv(folder / "named.csv")
    frame.to_csv(folder / "named.tsv", sep="\t")
    frame.to_csv(folder / "bare.csv", header=False, index=False)
    frame.to_parquet(folder / "named.parquet")
    scipy.io.mmwrite(folder / "counts.mtx", scipy.sparse.coo_array(X))
    scipy.io.mmwrite(folder / "dense.mtx", X + 0.5)
    (folder / "packed.mtx.gz").write_bytes(gzip.compress((folder / "counts.mtx").read_bytes()))
    documents = pd.DataFrame({"text": DOCUMENTS, "label": LABELS})
    documents.to_csv(folder / "text_documents.csv", index=False)
    documents.to_parquet(folder / "text_documents.parquet")
    (folder / "labels.txt").write_text("label\n" + "\n".join(LABELS) + "\n")
    (folder / "labels.csv").write_text("1\n2\n1.0\nNA\n2;1\n2\n\n1\n")
    (folder / "sets.gmt").write_text("B\tabout\tg0\tg1\nT\tabout\tg2\n")
    (folder / "sets.json").write_text(json.dumps({"B": ["g0", "g1"], "T": ["g2"]}))


def write_hdf5(folder: Path) -> None:
    """AnnData's .h5ad with sparse and dense X, one dataset, and 10x's .h5 and folder."""
    rows = scipy.sparse.csr_array(X.T.astype(np.float32))
    for name in ("sparse.h5ad", "dense.h5ad", "tenx.h5"):
        with h5py.File(folder / name, "w") as file:
            place = "matrix" if name == "tenx.h5" else "X"
            if name == "dense.h5ad":
                file["X"] = X.T
            else:
                file[f"{place}/data"], file[f"{place}/indices"], file[f"{place}/indptr"] = (
                    rows.data, rows.indices, rows.indptr,
                )  # fmt: skip
            if name == "tenx.h5":
                file["matrix/shape"], file["matrix/barcodes"] = X.shape, [cell.encode() for cell in CELLS]
                for field, values in {"id": GENES, "name": GENES, "feature_type": ["Gene Expression"] * F}.items():
                    file[f"matrix/features/{field}"] = [value.encode() for value in values]
                continue
            if name == "sparse.h5ad":
                file["X"].attrs["encoding-type"], file["X"].attrs["shape"] = "csr_matrix", rows.shape
            for axis, names in (("obs", CELLS), ("var", GENES)):
                file[f"{axis}/_index"] = [one.encode() for one in names]
                file[axis].attrs["_index"] = "_index"
            file["obs/kind/codes"], file["obs/kind/categories"] = [n % 2 for n in range(N)], [b"B", b"T"]
    with h5py.File(folder / "one.h5", "w") as file:
        file["counts"] = X.T
    tenx = folder / "tenx"
    tenx.mkdir()
    scipy.io.mmwrite(tenx / "matrix.mtx", scipy.sparse.coo_array(X))
    (tenx / "features.tsv").write_text("".join(f"E{n}\t{name}\tGene Expression\n" for n, name in enumerate(GENES)))
    (tenx / "barcodes.tsv").write_text("".join(f"{name}\n" for name in CELLS))


def write_fits(folder: Path) -> None:
    """Saved fits, with labels or sparse data; nothing is run, so that nothing is compiled."""
    data = as_data(X, [*LABELS[:-2], None, ["B", "T"]], feature_names=GENES, sample_names=CELLS)
    sparse = as_data(scipy.sparse.csr_array(X), LABELS)
    priors = Priors(Gamma(0.6, 20.0), GroupSparse(Gamma(np.ones((K, 2)), np.ones((K, 2)))))
    shapes = {"T": (F, K), "V": (K, N), "lam": (K, 2)}
    posterior = Posterior(**{site: Gamma(np.full(shape, 2.0), np.full(shape, 0.5)) for site, shape in shapes.items()})
    fit = Fit(posterior, np.array([-9.0, -8.0]), 2, True, "All 2 sweeps were made.", priors=priors)
    for name, some in {"fit": data, "fit_sparse": sparse, "fit_bare": data.names}.items():
        save_fit(folder / f"{name}.npz", fit, priors, some)


def write_seeds(folder: Path) -> list[Path]:
    """Write all; return the files and folders, one entry for each thing that is read."""
    for write in (write_arrays, write_text, write_hdf5, write_fits):
        write(folder)
    return sorted(path for path in folder.iterdir() if not (path.name.startswith("fit") and path.suffix == ".json"))
