"""Sparse X in the estimator, files, saved fits, reports and comparisons, against the same matrix, dense."""

import gzip
import shutil

import jax
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from estimators import nearest_neighbour

from gsnmf import choose_rank, compare, report
from gsnmf.classification.projection import nnls
from gsnmf.classification.transduction import transduce
from gsnmf.cli import main
from gsnmf.inference import cavi, to_arviz
from gsnmf.model import Gamma, GroupSparse, Priors, as_data
from gsnmf.reading import read_matrix
from gsnmf.saving import load_fit, save_fit

rng = np.random.default_rng(0)
X = rng.poisson(1.0, (9, 14)).astype(float)
MASK = rng.uniform(size=X.shape) < 0.8
GROUPS = ["a", "b"] * 7
PRIORS = Priors(Gamma(0.8, 2.0), GroupSparse(Gamma(2.0, 0.5)))


@pytest.fixture
def rank_promotion():
    """NumPyro promotes ranks in the graph of a report."""


def fitted(mask=None):
    datas = [as_data(x, GROUPS, mask=mask) for x in (X, scipy.sparse.coo_array(X))]
    fits = [cavi.run(data, PRIORS, key=jax.random.key(1), rank=2, max_steps=10, tol=None) for data in datas]
    return list(zip(fits, datas, strict=True))


def test_least_squares():
    T = rng.uniform(size=(9, 3))
    T[:, 2] = T[:, 0] + T[:, 1]  # of rank 2: some columns are left to SciPy
    for given in (X, np.where(MASK, X, np.nan)):
        np.testing.assert_allclose(nnls(T, scipy.sparse.csr_array(given)), nnls(T, given), atol=1e-9)
    with pytest.raises(ValueError, match="the same number of features; got 9 and 14"):
        nnls(T, scipy.sparse.csr_array(X.T))


def test_labels_spread():
    index = [0, 1, -1, -1, 0, 1, -1, 0, 1, -1, -1, 0, 1, -1]
    T = rng.uniform(size=(9, 3))
    for given in (X, np.where(MASK, X, np.nan)):
        ours, theirs = (transduce(x, index, 2, [T], neighbours=(3, 3)) for x in (scipy.sparse.csr_array(given), given))
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("options", [{}, pytest.param({"predict_by": "model", "counts": 9.0}, marks=pytest.mark.slow)])
def test_estimator(options):
    """Coefficients are found in the same way here; by default they are the posterior's where X is sparse."""
    ours, theirs = (x.T for x in (scipy.sparse.csr_matrix(X), X))
    one, other = (
        nearest_neighbour(per_class=1, random_state=0, max_iter=10, tol=None, transform_by="nnls", **options).fit(
            x, GROUPS
        )
        for x in (ours, theirs)
    )
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9)
    np.testing.assert_allclose(one.reconstruction_err_, other.reconstruction_err_, rtol=1e-9)
    np.testing.assert_allclose(one.transform(ours), other.transform(theirs), atol=1e-9)
    np.testing.assert_allclose(one.predict_proba(ours), other.predict_proba(theirs), atol=1e-6)
    with pytest.raises(ValueError, match="Negative values in data"):
        one.transform(-ours)


@pytest.mark.parametrize("mask", [pytest.param(None, marks=pytest.mark.slow), MASK])
def test_saved_fits_and_reports(mask, tmp_path):
    (dense_fit, dense), (fit, data) = fitted(mask)
    saved = load_fit(save_fit(tmp_path / "fit", fit, None, data))
    assert saved.data.matrix.fingerprint() == data.matrix.fingerprint() == saved.fit.data
    np.testing.assert_array_equal(saved.data.matrix.with_nan().toarray(), dense.matrix.with_nan())
    assert saved.data.X.dtype == data.X.dtype
    if mask is not None:
        assert sorted(saved.data.held_out.value) == sorted(dense.held_out.value)
    assert report(saved.fit, saved.data, widths=False) == report(dense_fit, dense, widths=False)


def test_files(tmp_path):
    """The three files of one matrix, and files that are not what they seem."""
    counts = scipy.sparse.csr_array(X.astype(int))
    scipy.io.mmwrite(tmp_path / "x.mtx", counts)
    with (tmp_path / "x.mtx").open("rb") as file, gzip.open(tmp_path / "x.mtx.gz", "wb") as packed:
        shutil.copyfileobj(file, packed)
    scipy.sparse.save_npz(tmp_path / "x.npz", counts)
    for name in ("x.mtx", "x.mtx.gz", "x.npz"):
        np.testing.assert_array_equal(as_data(read_matrix(tmp_path / name).X).X.to_scipy().toarray(), X)
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n5 5 1.0\n")
    (tmp_path / "bad.mtx.gz").write_bytes(b"not packed")
    for name in ("bad.mtx", "bad.mtx.gz"):
        with pytest.raises(ValueError, match="expected a sparse matrix in"):
            read_matrix(tmp_path / name)
    scipy.io.mmwrite(tmp_path / "complex.mtx", counts * 1j)
    with pytest.raises(ValueError, match="expected real numbers in"):
        read_matrix(tmp_path / "complex.mtx")
    np.savez(tmp_path / "dense.npz", X=X)
    assert isinstance(read_matrix(tmp_path / "dense.npz").X, np.ndarray)


def test_command(tmp_path, capsys):
    scipy.io.mmwrite(tmp_path / "x.mtx", scipy.sparse.csr_array(X))
    assert main(["fit", str(tmp_path / "x.mtx"), "--rank", "2", "--max-steps", "3", "--out", str(tmp_path / "f")]) == 0
    assert f"{np.count_nonzero(X)}" in capsys.readouterr().out
    assert load_fit(tmp_path / "f").data.X.nnz == np.count_nonzero(X)


@pytest.mark.slow
def test_comparisons():
    tables = [
        compare({"one": fit}, data, num_samples=25, loo=False).table.drop(columns="optimised").astype(float)
        for fit, data in fitted(MASK)
    ]
    np.testing.assert_allclose(*tables, rtol=1e-8)
    options = {"num_splits": 1, "restarts": 1, "num_samples": 20, "max_steps": 5, "tol": None, "progress_bar": False}
    tables = [choose_rank(x, [1, 2], **options).table for x in (X, scipy.sparse.csr_array(X))]
    np.testing.assert_allclose(*tables, rtol=1e-8, atol=1e-10)


def test_samples_are_not_left_out_unless_asked_for():
    _, (fit, data) = fitted()
    assert "loo" not in compare({"one": fit}, data, num_samples=25).table
    for asked in ({"loo": True}, {"by": "loo"}, {"by": "conditional_loo"}):
        with pytest.raises(ValueError, match="expected loo=False for a sparse X"):
            compare({"one": fit}, data, **asked)


def test_draws_are_exported_without_what_needs_a_dense_matrix():
    _, (fit, data) = fitted()
    groups = to_arviz(fit, data, num_samples=5)
    found = {str(name).strip("/") for name in (groups.groups() if callable(groups.groups) else groups.groups)}
    assert found - {""} == {"posterior", "sample_stats"}
    for asked in ({"log_likelihood": "entry"}, {"posterior_predictive": True}):
        with pytest.raises(
            ValueError, match="expected a dense array, as to_arviz with a log_likelihood or posterior_p"
        ):
            to_arviz(fit, data, num_samples=5, **asked)


def test_the_estimator_leaves_duplicates_in_its_input_alone():
    once = scipy.sparse.csr_array(X.T)
    numbers = np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr
    given = scipy.sparse.csr_array(tuple(x.copy() for x in numbers), shape=once.shape)
    model = nearest_neighbour().fit(given, GROUPS)
    np.testing.assert_allclose(model.transform(given), model.transform(once))
    np.testing.assert_allclose(model.predict_proba(given), model.predict_proba(once))
    assert model.score(given, GROUPS) == np.mean(model.predict(given) == GROUPS)
    for now, before in zip((given.data, given.indices, given.indptr), numbers, strict=True):
        np.testing.assert_array_equal(now, before)
