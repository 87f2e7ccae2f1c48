"""Sparse X: what `as_data` makes of scipy.sparse, compared with the same matrix as a dense array."""

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, group_sparse_nmf, hide, missing, unit_of
from gsnmf.model.compressed import compress

rng = np.random.default_rng(0)
X = rng.poisson(0.7, (7, 11)).astype(float)
MASK = rng.uniform(size=X.shape) < 0.7
MASK[2] = MASK[:, 4] = False  # a feature and a sample are hidden as a whole
T, V = rng.uniform(0.5, 2, (7, 3)), rng.uniform(0.5, 2, (3, 11))


def dense(data):
    return data.X.to_scipy().toarray()


@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
@pytest.mark.parametrize("turned", [False, True])
def test_every_format_is_read(form, turned):
    matrix = X.T if turned else X
    data = as_data(scipy.sparse.csr_array(matrix).asformat(form))
    np.testing.assert_array_equal(dense(data), matrix)
    assert data.X.by_sample == (not turned)  # rows along the longer axis
    assert data.X.indices.dtype == np.int32
    assert data.X.indptr.dtype == np.int64
    assert data.X.nnz == np.count_nonzero(X)


def test_duplicates_are_summed_zeros_removed_and_the_given_matrix_left_alone():
    given = scipy.sparse.coo_array(([1.0, 2.0, 0.0, 3.0], ([0, 0, 1, 1], [1, 1, 0, 2])), shape=(2, 3)).tocsr()
    given.data[:] = [1.0, 2.0, 0.0, 3.0][: given.nnz]
    before = given.copy()
    data = as_data(given)
    assert data.X.nnz == np.count_nonzero(before.toarray())
    assert (given.data == before.data).all()
    assert (given.indices == before.indices).all()
    repeated = scipy.sparse.csr_array((np.ones(3), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert dense(as_data(repeated)).tolist() == [[1.0, 0.0, 2.0]]
    assert not repeated.has_canonical_format
    assert repeated.nnz == 3


def malformed(form, indices, indptr):
    made = getattr(scipy.sparse, f"{form}_array")((3, 3))
    made.indices, made.indptr, made.data = np.array(indices), np.array(indptr), np.ones(len(indices))
    return made


def malformed_others():
    coo, lil, bsr = (scipy.sparse.csr_array(np.eye(4)).asformat(form) for form in ("coo", "lil", "bsr"))
    coo.coords[0][1], lil.rows[1] = 9, [9]
    bsr.indices[0] = -1
    return [coo, lil, bsr]


@pytest.mark.parametrize("read", [as_data, lambda X: as_data(np.ones(X.shape), hidden=X)])
def test_malformed_matrices_are_refused_before_compiled_code_reads_them(read):
    """Indices beyond the shape, negative ones, row ends that fall, that claim too much, or that come to nothing."""
    wrong = [([0, 5], [0, 1, 2, 2]), ([0, -5], [0, 1, 2, 2]), ([0, 1], [0, 2, 1, 2]), ([0], [0, 1, 1, 9]),
             ([0], [0, 9, 9, 0]), ([0], [1, 1, 1, 1]), ([0], [0, 1]), ([0], [0, 1, 1, -1])]  # fmt: skip
    for X in [malformed(form, *parts) for form in ("csr", "csc") for parts in wrong] + malformed_others():
        with pytest.raises(ValueError, match=r"with indices inside its shape, . × ., and row ends in order; got a mal"):
            read(X)
    more = malformed("csr", [0, 1, 7], [0, 1, 2, 2])  # SciPy allows room behind the last row
    assert as_data(more).X.nnz == 2


def test_canonical_matrices_are_not_copied():
    given = scipy.sparse.csr_array(X.T)
    data = as_data(given.T)
    assert np.shares_memory(data.X.values, given.data)
    assert np.shares_memory(data.X.indices, given.indices)


HIDDEN = {
    "everything observed": {},
    "mask": {"mask": MASK},
    "places": {"hidden": scipy.sparse.coo_array(~MASK)},
}


@pytest.mark.parametrize("how", HIDDEN)
def test_sums_and_selections_are_those_of_the_dense_matrix(how):
    ours, theirs = as_data(scipy.sparse.csr_array(X), **HIDDEN[how]), as_data(X, **HIDDEN[how])
    np.testing.assert_array_equal(dense(ours), theirs.X)
    a, b = ours.matrix, theirs.matrix
    for name in ("num_observed", "shape"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("total", "mean", "largest", "is_whole"):
        np.testing.assert_allclose(getattr(a, name)(), getattr(b, name)(), rtol=1e-14, err_msg=name)
    for axis in (0, 1):
        np.testing.assert_array_equal(a.observed_counts(axis), b.observed_counts(axis))
        np.testing.assert_allclose(a.sums()[axis], b.sums()[axis])
    np.testing.assert_allclose(a.divergences(T, V), b.divergences(T, V), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.divergence(T, V), b.divergence(T, V), rtol=1e-12)
    few = [3, 0, 3, 4]
    np.testing.assert_array_equal(a.columns(few), b.columns(few))
    np.testing.assert_array_equal(a.columns(2), b.columns(2))
    np.testing.assert_array_equal(a.with_nan().toarray(), b.with_nan())
    np.testing.assert_array_equal(np.sort(np.stack(a.hidden())), np.sort(np.stack(b.hidden())))
    taken, mask = a.take(few)
    np.testing.assert_array_equal(taken.to_scipy().toarray(), b.take(few)[0])
    assert (mask is None) == (theirs.mask is None)
    if mask is not None:
        assert len(mask) == (~MASK[:, few]).sum()
        assert sorted(ours.held_out.value) == sorted(theirs.held_out.value)


def test_stored_nan_are_missing():
    data = as_data(scipy.sparse.csr_array([[1.0, np.nan, 0.0], [2.0, 0.0, 3.0]]))
    assert data.num_observed == 5
    assert data.held_out is None
    np.testing.assert_array_equal(data.matrix.with_nan().toarray(), [[1.0, np.nan, 0.0], [2.0, 0.0, 3.0]])


@pytest.mark.parametrize("before", [None, MASK])
def test_hide_chooses_the_same_entries_of_small_matrices(before):
    ours, theirs = (hide(as_data(x, mask=before), 0.2, seed=3) for x in (scipy.sparse.csr_array(X), X))
    np.testing.assert_array_equal(dense(ours), theirs.X)
    np.testing.assert_array_equal(ours.mask.to_scipy().toarray() == 0, theirs.mask)
    assert sorted(ours.held_out.value) == sorted(theirs.held_out.value)


def test_hide_draws_entries_of_large_matrices(monkeypatch):
    """Each entry at most once, zeros as likely as others, no more than a limit, and what was hidden before stays."""
    monkeypatch.setattr(missing, "MOST", 200)
    big = scipy.sparse.random(60, 50, 0.2, random_state=0, format="csr")
    once = hide(as_data(big), 0.05)
    assert len(once.mask) == 150
    assert once.num_observed == 2850
    twice = hide(once, 0.5, seed=1)
    assert len(twice.mask) == len(twice.held_out) == 350
    marked = twice.mask.to_scipy().toarray()
    assert marked.max() == 1
    assert (marked >= once.mask.to_scipy().toarray()).all()
    held = twice.held_out
    np.testing.assert_array_equal(held.value, big.toarray()[held.feature, held.sample])
    # 350 of 3000 drawn without regard to values: the number above 0 is hypergeometric, here within 4 sd of 70.
    assert abs((held.value > 0).sum() - 70) < 4 * np.sqrt(350 * 0.2 * 0.8 * (1 - 350 / 3000))
    assert twice.X.nnz + (held.value > 0).sum() == big.nnz
    assert len(hide(as_data(big), 1e-6).held_out) == 1


def test_checksums_tell_data_apart():
    marks = {
        as_data(scipy.sparse.csr_array(x), **how).matrix.fingerprint() for x in (X, X + 1) for how in HIDDEN.values()
    }
    assert len(marks) == 4  # for mask and places it is the same
    assert (
        as_data(scipy.sparse.csc_array(X)).matrix.fingerprint()
        == as_data(scipy.sparse.coo_array(X)).matrix.fingerprint()
    )


def test_a_problem_has_one_copy_in_its_precision():
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    data = as_data(scipy.sparse.csr_array(X))
    problem = Problem(data, priors, 2)
    assert problem.data.X.values is data.X.values
    assert problem.dtype == np.float64
    assert repr(problem) == "Problem(7 features × 11 samples, 0 groups, rank 2)"
    with jax.enable_x64(False):
        single = Problem(data, priors, 2)
        assert single.dtype == np.float32
        assert single.data.X.indices is data.X.indices
    again = jax.tree.map(lambda x: x, problem)
    np.testing.assert_array_equal(dense(again.data), X)
    assert (
        compress(data.X.to_scipy(), True).rows_along(False).rows_along(True).indices.tolist() == data.X.indices.tolist()
    )


def test_units_count_zeros():
    assert unit_of(scipy.sparse.csr_array(X), 5.0) == pytest.approx(unit_of(X, 5.0))


REFUSED = {
    "nonnegative; got a minimum of -1": lambda x: as_data(-x),
    "finite; got inf": lambda x: as_data(x * np.inf),
    "real numbers; got dtype complex128": lambda x: as_data(x * 1j),
    "at least one feature and one sample": lambda x: as_data(x[:0]),
    "a dense mask": lambda x: as_data(x, mask=x > 0),
    "mask of shape": lambda x: as_data(x, mask=np.ones((2, 2))),
    "hidden to be a sparse matrix": lambda x: as_data(x, hidden=MASK),
    r"of shape \(7, 11\); got coo_array of shape \(11, 7\)": lambda x: as_data(
        x, hidden=scipy.sparse.coo_array(MASK.T)
    ),
    "at least one observed entry": lambda x: as_data(x, mask=np.zeros(x.shape)),
    "expected share to leave": lambda x: hide(as_data(x), 0.99),
    "7 × 11: .*dense in 616 bytes": lambda x: np.asarray(as_data(x).X),
    "hidden_places": lambda x: np.asarray(as_data(x, mask=MASK).mask),
    "as the NumPyro model reads": lambda x: group_sparse_nmf(
        as_data(x, ["a"] * 11), Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(1.0, 1.0))), 2
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refusals(said):
    with pytest.raises(ValueError, match=said.replace("hidden_places", "got a sparse one")):
        REFUSED[said](scipy.sparse.csr_array(np.clip(X, 0, 1)))
