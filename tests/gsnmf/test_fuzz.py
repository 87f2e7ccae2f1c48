"""The fuzzer finds a planted bug and repeats itself; every file that it found is refused in one sentence."""

import argparse
import gzip
import io
import json
import random
import sys
import zipfile

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from gsnmf import cli, reading
from gsnmf.checkpoints import Checkpoint
from gsnmf.inference import cavi
from gsnmf.reading import load_data, read_labels, read_matrix
from gsnmf.saving import load_fit
from gsnmf.streams import open_matrix

sys.path.insert(0, "tests/fuzz")
import fuzz
import fuzz_seeds


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Valid files in a folder."""
    return fuzz_seeds.write_seeds(tmp_path_factory.mktemp("seeds"))


def test_valid_files_are_read(seeds):
    assert len(seeds) > 20
    for seed in seeds:
        fuzz.read_any(seed, random.Random(0))


def test_an_input_has_a_number(seeds, tmp_path):
    wanted, options = [path for path in seeds if path.suffix in (".csv", ".npz", ".gz")], argparse.Namespace(seed=5)
    for number in range(6):
        contents = []
        for folder in ("one", "two"):
            fuzz.try_one(number, wanted, [b"other"], options, tmp_path / folder)
            contents.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
        assert contents[0] == contents[1]


def test_a_planted_bug_is_found(seeds, tmp_path, monkeypatch):
    """A reader that forgets that a cell may not be a number."""
    tables, options = [path for path in seeds if path.name == "bare.csv"], argparse.Namespace(seed=0)
    assert not any(fuzz.try_one(n, tables, [b"other"], options, tmp_path / "now") for n in range(40))
    monkeypatch.setattr(reading.naming, "as_float", lambda cell: {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0}[cell])
    found = [fuzz.try_one(n, tables, [b"other"], options, tmp_path / "now") for n in range(40)]
    assert any("KeyError" in said for said in found if said)


def test_options_of_commands_end_with_a_code(seeds, monkeypatch):
    own = cavi.run
    fuzz.run_command(["fit", str(seeds[0]), "--rank", "x"])
    assert cavi.run is own
    monkeypatch.setattr("gsnmf.cli.main", lambda words: 7)
    with pytest.raises(RuntimeError, match="exit code 7"):
        fuzz.run_command(["fit"])
    words = fuzz.command_line(random.Random(3), [path.name for path in seeds])
    assert words[0] in fuzz.COMMANDS


# What it found, and what became of it.


def refused(call, *given, **options):
    with pytest.raises(ValueError, match=r"^expected .*got ") as error:
        call(*given, **options)
    return str(error.value)


@pytest.mark.parametrize("end", [" ", "\t", "\r"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_market_file_that_ends_in_a_space(tmp_path, end, packed):
    """SciPy 1.17 reads beyond the end of it, and ends the process."""
    text = f"%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 1\n2 2 1{end}".encode()
    path = tmp_path / ("x.mtx.gz" if packed else "x.mtx")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert "ends in a space, not in a line break" in refused(read_matrix, path)


@pytest.mark.parametrize("shape", [[2**40, 3], [-1, 3], [2**31, 2**31]])
def test_a_sparse_archive_with_an_impossible_shape(tmp_path, shape):
    parts = {"row": [0], "col": [0], "data": [1], "shape": shape, "format": np.array(b"coo")}
    np.savez(tmp_path / "x.npz", **{name: np.asarray(value) for name, value in parts.items()})
    assert "a shape of" in refused(load_data, tmp_path / "x.npz")


@pytest.mark.parametrize(
    "damage", [lambda x: x[:40], lambda x: x[:-8], lambda x: x.replace(b"}", b" "), lambda x: b"?" * 50]
)
def test_damaged_arrays_that_would_be_streamed(tmp_path, damage):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((3, 4)))
    path.write_bytes(damage(path.read_bytes()))
    refused(open_matrix, path)


def test_labels_that_are_not_characters(tmp_path):
    np.save(tmp_path / "y.npy", np.array([0x7FFFFFFF, 65], np.uint32).view("<U1"))
    refused(read_labels, tmp_path / "y.npy")


@pytest.mark.parametrize("broken", ["indptr", "indices"])
def test_compressed_rows_that_are_not_whole_numbers(tmp_path, broken):
    rows = scipy.sparse.csr_array(np.ones((2, 3)))
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        for name in ("data", "indices", "indptr"):
            values = getattr(rows, name)
            file[f"X/{name}"] = np.where(values == values[-1], np.nan, values) if name == broken else values
        file["X"].attrs["encoding-type"], file["X"].attrs["shape"] = "csr_matrix", rows.shape
    for call in (read_matrix, open_matrix):
        assert f"expected whole numbers in {broken}" in refused(call, tmp_path / "x.h5ad")


def test_hdf5_without_a_shape_that_would_be_streamed(tmp_path):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["X/data"], file["X/indices"], file["X/indptr"] = [1.0], [0], [0, 1]
        file["var"] = [1.0]
    refused(open_matrix, tmp_path / "x.h5ad")


def test_archives_of_fits_and_checkpoints_with_a_broken_header(tmp_path):
    """NumPy's reader of headers raises errors of Python's tokenizer."""
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    with zipfile.ZipFile(tmp_path / "fit.npz", "w") as archive:
        for name in ("elbo.npy", "about.npy"):
            archive.writestr(name, buffer.getvalue().replace(b"(3,)", b"((3,"))
    refused(Checkpoint(tmp_path / "fit.npz", "mark").load)
    from gsnmf.saving import FORMAT, _checksum

    description = {"format": FORMAT, "format_version": 6}
    description["sha256"] = _checksum((tmp_path / "fit.npz").read_bytes(), description)
    (tmp_path / "fit.json").write_text(json.dumps(description))
    refused(load_fit, tmp_path / "fit")


@pytest.mark.parametrize("name", ["x.mtx", "x.npz"])
def test_coordinates_can_be_streamed(tmp_path, name):
    """SciPy's matrices of coordinates have no columns to take: a valid file ended in a TypeError."""
    X = scipy.sparse.coo_array(np.eye(3, 5))
    (scipy.sparse.save_npz if name == "x.npz" else scipy.io.mmwrite)(tmp_path / name, X)
    np.testing.assert_array_equal(open_matrix(tmp_path / name)[:, [1, 4]].toarray(), np.eye(3, 5)[:, [1, 4]])


@pytest.mark.parametrize("sizes", ["0 8", "8 0"])
def test_a_market_file_without_rows_or_columns(tmp_path, sizes):
    """Values that follow all the same ended the process."""
    (tmp_path / "x.mtx").write_text(f"%%MatrixMarket matrix array real general\n{sizes}\n2.5\n3.5\n")
    said = refused(read_matrix, tmp_path / "x.mtx")
    assert f"a header that claims {sizes.replace(' ', ' × ')}" in said


def test_row_ends_below_zero(tmp_path):
    """SciPy's own check takes a matrix with a negative number of entries for an empty one."""
    rows = scipy.sparse.csr_array(np.eye(3, 5))
    rows.indptr[-1] = -1
    scipy.sparse.save_npz(tmp_path / "x.npz", rows)
    assert "row ends that do not belong together" in refused(load_data, tmp_path / "x.npz")


def test_more_empty_rows_than_memory_holds(tmp_path, monkeypatch):
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(2**30, 3)))

    def no_room(*_, **__):
        raise MemoryError("no room for row ends")

    monkeypatch.setattr("gsnmf.model.missing.compress", no_room)
    monkeypatch.setattr("gsnmf.memory.available", lambda: None)
    assert "got 1,073,741,824 × 3 (no room for row ends)" in refused(load_data, tmp_path / "x.npz")


def test_more_samples_than_memory_has_names_for(tmp_path, monkeypatch):
    """One flipped bit of a shape asked for 29 GB."""
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(5, 10**7)))
    monkeypatch.setattr("gsnmf.memory.available", lambda: 10**8)
    monkeypatch.setattr("gsnmf.reading.open.as_data", None)  # would ask for memory
    assert "got 5 × 10,000,000 (names and row ends take 640 MB)" in refused(load_data, tmp_path / "x.npz")


def test_a_sparse_image_mask_and_a_prior_without_a_mean(seeds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(seeds[0].parent)
    for words, message in (
        (["report", "fit.npz", "--image-mask", "csr.npz", "--out", str(tmp_path / "x.html")], "got a sparse matrix"),
        (["fit", "coo.npz", "--rank", "2", "--a-t", "1e308", "--out", str(tmp_path / "x")], "with a finite mean"),
    ):
        assert cli.main(words) == 2
        assert message in capsys.readouterr().err


def test_row_ends_that_are_truth_values_are_refused(tmp_path):
    X = scipy.sparse.random_array((5, 8), density=0.5, format="csc", random_state=0)
    parts = {"data": X.data, "indices": X.indices, "shape": X.shape, "format": b"csc"}
    np.savez(tmp_path / "X.npz", indptr=X.indptr % 2 > 0, **parts)
    assert "row ends that do not belong together" in refused(load_data, tmp_path / "X.npz")


def test_a_column_of_labels_with_several_axes_is_refused(seeds, tmp_path):
    source = next(path for path in seeds if path.name == "dense.h5ad")
    (tmp_path / "x.h5ad").write_bytes(source.read_bytes())
    with h5py.File(tmp_path / "x.h5ad", "r+") as file:
        length = file["X"].shape[0]
        file["obs"].attrs["column-order"] = ["cube"]
        file["obs"]["cube"] = np.zeros((length, 2, 2))
    assert (
        f"expected one label per sample in the column 'cube' of {tmp_path / 'x.h5ad'}; got values {length} × 2 × 2"
        in (refused(load_data, tmp_path / "x.h5ad", "obs:cube"))
    )
