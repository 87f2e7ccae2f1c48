"""Streams as people use them: files that are opened, `partial_fit`, `gsnmf fit --stream`."""

import h5py
import numpy as np
import pytest
import scipy.sparse
from estimators import nearest_neighbour

from gsnmf.cli import main
from gsnmf.commands import stream
from gsnmf.model import as_data, default_priors
from gsnmf.packing import pack, unpack
from gsnmf.saving import load_fit
from gsnmf.streams import FileRows, open_matrix, open_named, read_column, sampled_priors

F, N = 6, 40
GROUPS = np.arange(N) % 2
X = np.random.default_rng(0).poisson(np.where(np.arange(F)[:, None] % 2 == GROUPS[None, :], 9.0, 0.4))


def write(group, name, rows):
    """Compressed rows as AnnData writes them."""
    at = group.create_group(name)
    at.attrs["encoding-type"], at.attrs["shape"] = "csr_matrix", rows.shape
    at["data"], at["indices"], at["indptr"] = rows.data, rows.indices, rows.indptr


@pytest.fixture
def cells(tmp_path):
    """A small file in AnnData's layout."""
    path = tmp_path / "cells.h5ad"
    with h5py.File(path, "w") as file:
        write(file, "X", scipy.sparse.csr_array(X.T.astype(np.float32)))
        file["layers/dense"] = X.T
        file["layers/columns/indptr"] = [0]
        file["layers/columns"].attrs["encoding-type"] = "csc_matrix"
        kind = file.create_group("obs/kind")
        kind["codes"], kind["categories"] = np.where(np.arange(N) == 3, -1, GROUPS), np.array([b"left", b"right"])
        file["obs/number"] = GROUPS
        file["var/gene"] = [f"g{n}".encode() for n in range(F)]
        file["var"].attrs["_index"] = "gene"
    return path


def test_columns_of_files_are_those_of_the_matrix(cells, tmp_path):
    rows = np.array([0, 1, 2, 7, 30, 31, 39])
    for key, dense in ((None, False), ("layers/dense", True)):
        opened = open_matrix(cells, key)
        some = opened[:, rows]
        assert opened.shape == (F, N)
        assert isinstance(some, np.ndarray) == dense
        np.testing.assert_array_equal(some if dense else some.toarray(), X[:, rows])
        assert opened[:, rows[:0]].shape == (F, 0)
    np.save(tmp_path / "X.npy", X)
    assert isinstance(open_matrix(tmp_path / "X.npy"), np.memmap)
    scipy.sparse.save_npz(tmp_path / "X.npz", scipy.sparse.csr_array(X))
    assert open_matrix(tmp_path / "X.npz").shape == (F, N)
    with pytest.raises(IndexError, match=r"expected X\[:, rows\]"):
        open_matrix(cells)[0, rows]


def test_zarr_is_read_alike(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "cells.zarr"), mode="w")
    group.create_array("X", data=X.T)
    np.testing.assert_array_equal(open_matrix(tmp_path / "cells.zarr")[:, np.array([1, 2, 5])], X[:, [1, 2, 5]])


def test_labels_and_names_of_files(cells):
    labels = read_column(cells, "kind")
    assert labels[3] is None
    assert labels[:3].tolist() == ["left", "right", "left"]
    np.testing.assert_array_equal(read_column(cells, "number"), GROUPS)
    for key in (None, "layers/dense"):
        assert open_named(cells, key).feature_names == [f"g{n}" for n in range(F)]


def test_files_that_cannot_be_opened(cells, tmp_path):
    (tmp_path / "text.h5ad").write_text("no HDF5")
    (tmp_path / "none.zarr").mkdir()
    np.save(tmp_path / "line.npy", np.ones(3))
    cases = [
        (tmp_path / "nothing.h5ad", None, "file that exists"),
        (tmp_path / "text.h5ad", None, "HDF5 file"),
        (cells, "layers/counts", "expected 'layers/counts'"),
        (cells, "layers/columns", "csc_matrix"),
        (cells, "var/gene", "matrix of real numbers"),
        (tmp_path / "line.npy", None, r"shape \(3,\)"),
        (tmp_path / "line.npy", "X", "only for HDF5 and zarr"),
    ]
    for path, key, said in cases:
        with pytest.raises(ValueError, match=said):
            open_matrix(path, key)
    with pytest.raises(ValueError, match="column 'type'"):
        read_column(cells, "type")


def test_priors_of_a_part_are_those_of_all_samples(monkeypatch):
    """Here every sample has the same total, so that a part tells as much as all samples."""
    same, groups = np.full((3, 90), 4), ["a"] * 30 + ["b"] * 60
    wanted = default_priors(as_data(same, groups)).coefficients.rate
    monkeypatch.setattr("gsnmf.streams.SAMPLE", 20)
    np.testing.assert_allclose(sampled_priors(same, groups).coefficients.rate.a, wanted.a)
    twice = sampled_priors(same, groups, num_samples=180).coefficients.rate
    np.testing.assert_allclose(twice.a, 2 * wanted.a)
    fixed = sampled_priors(same, groups, prior="paper").coefficients.rate
    assert set(np.unique(fixed.a)) == {32.0, 256.0}
    assert sampled_priors(same, rank=2).coefficients.b == default_priors(as_data(same), rank=2).coefficients.b
    blocks = FileRows(same.T)
    assert sampled_priors(blocks, groups).coefficients.rate.a.shape == (6, 2)


def test_partial_fit():
    model = nearest_neighbour(per_class=1, predict_by="model", random_state=0, total_samples=N)
    names = np.array(["left", "right"])
    for _ in range(3):
        for rows in np.split(np.arange(N), 4):
            model.partial_fit(X.T[rows], names[GROUPS[rows]], classes=names)
    assert model.n_iter_ == 12
    assert model.score(X.T, names[GROUPS]) == 1.0
    assert model.transform(X.T).shape == (N, 2)
    np.testing.assert_allclose(model.predict_proba(X.T).sum(axis=1), 1)
    for changes, call, said in (
        ({"predict_by": "nearest"}, lambda m: m.predict(X.T), "keeps no samples"),
        ({}, lambda m: m.partial_fit(X.T[:3]), "labels in every batch"),
        ({}, lambda m: m.partial_fit(X.T[:3], ["up", "left", "left"]), "got up"),
        ({}, lambda m: m.partial_fit(X.T, names[GROUPS], classes=["left", "up"]), "expected the classes of the first"),
        ({}, lambda m: m.partial_fit(X.T[:, :3], names[GROUPS]), "features"),
    ):
        with pytest.raises(ValueError, match=said):
            call(model.set_params(**changes))
    refitted = model.set_params(predict_by="nearest").fit(X.T, GROUPS)
    assert refitted.n_iter_ != 12
    assert refitted.predict(X.T).tolist() == GROUPS.tolist()


def test_partial_fit_without_labels():
    model = nearest_neighbour(n_components=2, random_state=0)
    for rows in np.split(np.arange(N), 4):
        model.partial_fit(X.T[rows])
    assert model.posterior_.V.mean.shape == (2, 0)
    with pytest.raises(ValueError, match="no labels"):
        model.partial_fit(X.T, GROUPS)


def test_the_command_resumes(cells, tmp_path, capsys):
    """One pass and then another give the files of two passes."""
    options = ["fit", str(cells), "--stream", "--labels", "number", "--per-group", "1", "--batch-size", "10"]
    assert main([*options, "--passes", "2", "--out", str(tmp_path / "both.npz")]) == 0
    assert main([*options, "--passes", "1", "--out", str(tmp_path / "one.npz")]) == 0
    assert main([*options, "--passes", "2", "--resume", "--out", str(tmp_path / "one.npz")]) == 0
    said = capsys.readouterr()
    assert "40" in said.out
    line = f"gsnmf: read {F} features × {N} samples; samples in rows; names of features from var"
    assert said.err.count(line) == 3
    assert "warning" not in said.err
    both, resumed = (load_fit(tmp_path / name) for name in ("both.npz", "one.npz"))
    assert both.fit.num_steps == resumed.fit.num_steps
    np.testing.assert_array_equal(both.fit.posterior.T.a, resumed.fit.posterior.T.a)
    np.testing.assert_array_equal(both.fit.stream.groups, [40, 40])
    assert both.names.feature.tolist()[:2] == ["g0", "g1"]
    content, about = pack(resumed.fit, None, resumed.names)
    assert unpack(content, about).fit.stream.mark == both.fit.stream.mark
    del about["stream"]["mark"]  # as in files up to version 6
    assert unpack(content, about).fit.stream.mark is None
    assert main([*options, "--passes", "3", "--seed", "1", "--resume", "--out", str(tmp_path / "one.npz")]) == 2
    assert "expected the key or seed of the stream that is resumed; got another one" in capsys.readouterr().err


def test_an_interrupted_stream_is_not_replaced(cells, tmp_path, capsys, monkeypatch):
    """A finished one is replaced, as every fit is."""
    out, run = tmp_path / "one.npz", stream._run
    options = ["fit", str(cells), "--stream", "--rank", "1", "--batch-size", "40", "--passes", "1", "--out", str(out)]
    assert main(options) == 0
    with monkeypatch.context() as patch:
        patch.setattr(stream, "_run", lambda *given: (run(*given)[0], True))  # as if Ctrl-C had come
        assert main(options) == 130
    before = out.read_bytes()
    for words in (options, ["fit", str(cells), "--rank", "1", "--max-steps", "2", "--out", str(out)]):  # and no stream
        assert main(words) == 2
        assert "--stream --resume resumes it, --force replaces it" in capsys.readouterr().err
        assert out.read_bytes() == before
    assert main([*options, "--force"]) == 0
    assert main([*options, "--resume"]) == 0


@pytest.mark.parametrize("passes", ["1", "2"])  # without passes that are left, and with one
def test_a_stream_is_not_resumed_with_other_priors(cells, tmp_path, capsys, passes):
    options = ["fit", str(cells), "--stream", "--batch-size", "40", "--out", str(tmp_path / "o.npz")]
    priors = ["--a-t", "2", "--b-t", "5"]
    assert main([*options, "--rank", "2", *priors, "--passes", "1"]) == 0
    before = (tmp_path / "o.npz").read_bytes()
    resumed = "of the stream that is resumed; got"
    for words, said in (
        (["--rank", "2", "--a-t", "30", "--b-t", "0.5"], f"the priors {resumed} others with --a-t 30.0, --b-t 0.5"),
        (["--rank", "2", "--a-t", "2"], f"the priors {resumed} others with --a-t 2.0"),
        (["--rank", "3"], f"--rank 2, as {resumed} --rank 3"),
        (["--rank", "3", *priors], f"--rank 2, as {resumed} --rank 3"),
    ):
        capsys.readouterr()
        assert main([*options, "--resume", "--passes", passes, *words]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"gsnmf: error: expected {said}"
        assert (tmp_path / "o.npz").read_bytes() == before
    assert main([*options, "--resume", "--passes", passes, "--rank", "2", *priors]) == 0


def test_labelled_streams_are_not_resumed_with_other_priors(cells, tmp_path, capsys):
    options = ["fit", str(cells), "--stream", "--labels", "number", "--batch-size", "40", "--out", str(tmp_path / "o")]
    assert main([*options, "--per-group", "1", "--passes", "1"]) == 0
    for words in (["--per-group", "2"], ["--small", "0.005"], ["--common", "1"]):
        assert main([*options, "--resume", *words]) == 2
        assert "expected the priors of the stream that is resumed; got others" in capsys.readouterr().err
    assert main([*options, "--resume", "--passes", "2"]) == 0  # its own


def test_a_stream_of_values_that_are_not_counts_says_so(cells, tmp_path, capsys):
    with h5py.File(cells, "a") as file:
        file["layers/log"] = np.log1p(X.T)
    options = ["--stream", "--key", "layers/log", "--rank", "2", "--passes", "1", "--out", str(tmp_path / "o")]
    assert main(["fit", str(cells), *options]) == 0
    assert "warning: expected counts; got values that are not whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--passes", "2"], "expected --stream with --passes"),
        (["--resume"], "expected --stream with --resume"),
        (["--stream", "--tol", "0.1"], "no --tol with --stream"),
    ],
)
def test_options_that_do_not_go_together(options, said, cells, tmp_path, capsys):
    assert main(["fit", str(cells), "--rank", "2", "--out", str(tmp_path / "o.npz"), *options]) == 2
    assert said in capsys.readouterr().err
