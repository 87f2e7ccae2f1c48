"""Sizes from headers: a file that states more than memory holds is refused before it is read."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gsnmf import memory
from gsnmf.cli import main
from gsnmf.headers import Header, read_header


@pytest.mark.parametrize("name", ["X.npy", "X.npz", "s.npz", "X.mtx", "X.h5"])
def test_a_file_that_states_more_than_memory_holds_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    write_files(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr("gsnmf.reading.read_matrix", None)  # nothing is read
    assert main(["fit", str(tmp_path / name), "--rank", "2", "--out", str(tmp_path / "fit")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert "expected a fit that fits in memory" in said
    assert "gsnmf fit --stream" in said


def test_a_false_header_tells_nothing(tmp_path: Path):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})
    (tmp_path / "a.npy").write_bytes(buffer.getvalue() + bytes(80))
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix array integer general\n10000000 10000000\n1\n")
    assert read_header(tmp_path / "a.npy") is read_header(tmp_path / "a.mtx") is None


def write_files(folder: Path) -> np.ndarray:
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(folder / "X.npy", X)
    np.savez_compressed(folder / "X.npz", X=X, y=[1, 2, 3])
    scipy.sparse.save_npz(folder / "s.npz", scipy.sparse.csr_array(X))
    scipy.io.mmwrite(folder / "X.mtx", scipy.sparse.coo_array(X))
    with h5py.File(folder / "X.h5", "w") as file:
        file["X"] = X.T
    return X


def test_headers_state_what_files_hold(tmp_path: Path):
    write_files(tmp_path)
    for name in ("X.npy", "X.npz", "X.h5"):
        assert read_header(tmp_path / name) == Header((2, 3), 4)
    assert read_header(tmp_path / "s.npz") == Header((2, 3), 4, 5)
    assert read_header(tmp_path / "X.mtx") == Header((2, 3), 8, 5)
    (tmp_path / "bad.npz").write_bytes(b"not a file")
    assert read_header(tmp_path / "bad.npz") is None
    assert read_header(tmp_path / "none.csv") is None
    assert memory.plan_file(tmp_path / "s.npz", 2).kind == "sparse"  # type: ignore[union-attr]  # it is not None


def test_headers_of_hdf5_are_of_the_matrix_that_is_read(tmp_path: Path):
    """AnnData's rows and columns, 10x's layout, and the place that --key names."""
    X = scipy.sparse.csr_array(np.arange(6, dtype=np.float32).reshape(3, 2))  # samples × features
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        for name, some in (("X", X), ("layers/columns", X.tocsc())):
            for part in ("data", "indices", "indptr"):
                file[f"{name}/{part}"] = getattr(some, part)
            file[name].attrs["encoding-type"], file[name].attrs["shape"] = f"{some.format}_matrix", X.shape
        file["layers/dense"], file["obs/_index"] = X.toarray().astype(np.int16), [b"a", b"b", b"c"]
    with h5py.File(tmp_path / "b.h5", "w") as file:
        for part in ("data", "indices", "indptr"):
            file[f"matrix/{part}"] = getattr(X, part)
        file["matrix/shape"], file["matrix/barcodes"] = (2, 3), [b"a", b"b", b"c"]
    assert read_header(tmp_path / "a.h5ad") == read_header(tmp_path / "b.h5") == Header((2, 3), 4, 5)
    assert read_header(tmp_path / "a.h5ad", "layers/columns") == Header((2, 3), 4, 5)
    assert read_header(tmp_path / "a.h5ad", "layers/dense") == Header((2, 3), 2)
    assert read_header(tmp_path / "a.h5ad", "layers/none") is None


def test_the_matrix_that_key_names_is_refused_by_its_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"], file["layers/large"] = np.ones((1, 1)), np.ones((300, 400))
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    fit = ["fit", str(tmp_path / "a.h5ad"), "--rank", "1", "--out", str(tmp_path / "fit"), "--key", "layers/large"]
    monkeypatch.setattr("gsnmf.reading.read_matrix", None)  # nothing is read
    assert main(fit) == 2
    assert "dense X of 400 × 300" in capsys.readouterr().err
