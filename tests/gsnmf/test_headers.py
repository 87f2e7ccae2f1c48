"""Sizes from headers: a file that states more than memory holds is refused before it is read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gsnmf import memory
from gsnmf.cli import main
from gsnmf.headers import Header, read_header

HUGE = (10**7, 10**7)


def header(shape: tuple[int, ...]) -> bytes:
    """Return the beginning of a .npy file that states this shape and holds ten numbers."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + bytes(80)


def write_huge(folder: Path) -> None:
    """Write small files that state 10¹⁴ numbers."""
    (folder / "a.npy").write_bytes(header(HUGE))
    (folder / "flat.npy").write_bytes(header((10**14,)))
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", header(HUGE))
    head = "%%MatrixMarket matrix {} integer general\n% a comment\n10000000 10000000"
    (folder / "a.mtx").write_text(head.format("coordinate") + " 100000000000000\n1 1 1\n")
    (folder / "dense.mtx").write_text(head.format("array") + "\n1\n")
    scipy.sparse.save_npz(folder / "sparse.npz", scipy.sparse.csc_array(np.eye(2)))
    with zipfile.ZipFile(folder / "sparse.npz") as old, zipfile.ZipFile(folder / "b.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, header((10**14,)) if name == "data.npy" else old.read(name))


@pytest.mark.parametrize("name", ["a.npy", "flat.npy", "a.npz", "b.npz", "a.mtx", "dense.mtx"])
def test_a_file_that_states_more_than_memory_holds_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_huge(tmp_path)
    assert main(["fit", str(tmp_path / name), "--rank", "2", "--out", str(tmp_path / "fit")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert "expected a fit that fits in memory" in said
    assert "gsnmf fit --stream" in said


def test_headers_state_what_files_hold(tmp_path: Path):
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "X.npy", X)
    np.savez_compressed(tmp_path / "X.npz", X=X, y=[1, 2, 3])
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_array(X))
    scipy.io.mmwrite(tmp_path / "X.mtx", scipy.sparse.coo_array(X))
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = X.T
    for name in ("X.npy", "X.npz", "X.h5"):
        assert read_header(tmp_path / name) == Header((2, 3), 4)
    assert read_header(tmp_path / "s.npz") == Header((2, 3), 4, 5)
    assert read_header(tmp_path / "X.mtx") == Header((2, 3), 8, 5)
    (tmp_path / "bad.npz").write_bytes(b"not a file")
    assert read_header(tmp_path / "bad.npz") is None
    assert read_header(tmp_path / "none.csv") is None
    assert memory.plan_file(tmp_path / "s.npz", 2).kind == "sparse"  # type: ignore[union-attr]  # it is not None
