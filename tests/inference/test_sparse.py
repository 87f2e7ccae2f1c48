"""Sparse X against the same matrix, dense: by the compiled kernel, and by JAX alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gsnmf.inference import (
    cavi,
    collapsed_bound,
    engine,
    fold_in,
    held_out_score,
    impute,
    leave_one_out,
    mcmc,
    native,
    svi,
)
from gsnmf.inference.compiling import least_memory
from gsnmf.inference.observations import observe
from gsnmf.inference.observed import segments, sparse
from gsnmf.inference.observed.entries import Rows, read_entries
from gsnmf.inference.sweep import sweep
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, hide
from gsnmf.model.compressed import compress
from tests.conftest import FAMILIES

K, C = 3, 3
PRIORS = Priors(Gamma(0.8, 2.0), GroupSparse(Gamma(2.0, 0.5)))


@pytest.fixture(params=["kernel", "JAX"])
def form(request, monkeypatch):
    """Each form of the nonzero entries in turn; the kernel may not have been compiled here."""
    if request.param == "JAX":
        monkeypatch.setattr(native, "is_available", lambda: False)
    elif not native.is_available():
        pytest.skip(native.describe())
    return request.param


def problem(shape=(8, 11), mask=False, unlabelled=(), several=()):
    """The same data, dense and sparse; with a feature, a sample and some of the rest hidden, if so."""
    rng = np.random.default_rng(1)
    X = rng.poisson(0.8, shape).astype(float)
    groups = [None if n in unlabelled else {0, 1} if n in several else n % C for n in range(shape[1])]
    seen = rng.uniform(size=shape) < 0.8 if mask else None
    if mask:
        seen[shape[0] // 2] = seen[:, shape[1] // 2] = False
    return tuple(as_data(x, groups, mask=seen, group_names=range(C)) for x in (X, scipy.sparse.csr_array(X)))


def fits(datas, priors=PRIORS, **options):
    options = {"key": jax.random.key(0), "rank": K, "max_steps": 30, "tol": None} | options
    return [cavi.run(data, priors, **options) for data in datas]


def assert_same(one, other, rtol):
    np.testing.assert_allclose(one.elbo, other.elbo, rtol=rtol)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol), one.posterior, other.posterior)


COLD = cavi.labelling(warm_start=None, annealing=0)  # a warm start ends at a tolerance, by rounding a sweep earlier
CASES = {
    "rows are samples": ({}, {}),
    "rows are features, hidden, multi-label": (
        {"shape": (11, 8), "mask": True, "several": (5, 6)},
        {"init": "groups", "accelerate": False},
    ),
    "structured, hidden": ({"mask": True, "unlabelled": (4, 7)}, {"labels": COLD, "accelerate": False}),
    "structured, rows are features": ({"shape": (11, 8), "unlabelled": (4, 7)}, {"labels": COLD}),
    "mean field": ({"unlabelled": (4, 7)}, {"labels": COLD._replace(form="mean_field"), "accelerate": False}),
    "learned": ({}, {"learn": cavi.learn("component", "all"), "accelerate": False}),
}
QUICK = {"kernel": ("rows are samples", "structured, hidden"), "JAX": ("rows are features, hidden, multi-label",)}


@pytest.mark.parametrize(
    ("case", "form"),
    [
        pytest.param(case, form, marks=() if case in QUICK[form] else pytest.mark.slow)
        for case in CASES
        for form in ("kernel", "JAX")
    ],
    indirect=["form"],
)
def test_posterior_and_bound_are_those_of_the_dense_matrix(case, form):
    given, options = CASES[case]
    data = problem(**given)[1]
    one, other = _dense(case), fits([data], **options)[0]
    assert_same(one, other, 1e-10)
    np.testing.assert_allclose(cavi.bound(other, data), other.elbo[-1], rtol=1e-12)


@functools.cache
def _dense(case):
    given, options = CASES[case]
    return fits(problem(**given)[:1], **options)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "group sparse"])
def test_every_family(name):
    options = {"max_steps": 30, "accelerate": False}
    assert_same(*fits(problem(), Priors(Gamma(0.8, 2.0), FAMILIES[name]), **options), 1e-10)


@pytest.mark.parametrize("form", ["kernel", pytest.param("JAX", marks=pytest.mark.slow)], indirect=True)
def test_single_precision(form):
    """Plain sweeps: with momentum, rounding decides now and then whether a sweep is kept."""
    with jax.enable_x64(False):
        assert_same(*fits(problem(mask=True), accelerate=False), 1e-5)


def arranged(shape, density, seed=0):
    matrix = scipy.sparse.random(*shape, density, random_state=seed, format="csr")
    matrix.data = np.ceil(3 * matrix.data)
    return matrix


def by_loops(X, log_rows, log_cols, weights):
    """Sums of q(S) by loops over entries, for rows with consecutive candidates."""
    by_row, by_col, logs = np.zeros_like(log_rows), np.zeros_like(log_cols), np.zeros(len(log_rows))
    copies = len(log_rows) // X.shape[0]
    for i, j in zip(*X.nonzero(), strict=True):
        for r in range(i * copies, (i + 1) * copies):
            products = np.exp(log_rows[r] + log_cols[j])
            s = X[i, j] * products / products.sum()
            by_row[r] += s
            by_col[j] += weights[r] * s
            logs[r] += X[i, j] * np.log(products.sum() / X[i, j])
    return by_row, by_col, logs


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("block", [8, 8192])
def test_sums_of_counts(form, copies, block, monkeypatch):
    """Rows of several segments, of none, and blocks of which the last is not full."""
    monkeypatch.setattr(segments, "BLOCK", block)
    monkeypatch.setattr(segments, "WIDTHS", (4,))
    X = arranged((9, 30), 0.15).toarray()
    X[2], X[:, 3] = 0, 0
    rng = np.random.default_rng(3)
    log_rows, log_cols = (jnp.asarray(rng.normal(0, 3, (n, K))) for n in (9 * copies, 30))
    weights = jnp.asarray(rng.uniform(size=9 * copies))
    entries = read_entries(compress(scipy.sparse.csr_array(X), by_sample=False))
    by_row, by_col, logs = by_loops(X, np.asarray(log_rows), np.asarray(log_cols), np.asarray(weights))
    for ours, theirs in zip(entries.row_sums(log_rows, log_cols), (by_row, logs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(entries.column_sums(log_rows, log_cols, weights), by_col, rtol=1e-11, atol=1e-12)
    if copies == 1:
        by_row, by_col, logs = by_loops(X, np.asarray(log_rows), np.asarray(log_cols), np.ones(9))
        for ours, theirs in zip(entries.allocate(log_rows, log_cols), (by_row, by_col, logs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


def test_counts_are_the_derivative_of_the_bound(form):
    """∂ Σ x log M / ∂ E[log ·] = Σ E[s], by rows and by columns; and both forms have the same second derivative."""
    entries = read_entries(compress(arranged((5, 12), 0.4), by_sample=False))
    rng = np.random.default_rng(3)
    rows, cols = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(12, 2)))

    def total(rows, cols):
        return entries.allocate(rows, cols)[2].sum()

    by_row, by_col, _ = entries.allocate(rows, cols)
    slopes = jax.grad(total, (0, 1))
    along = jnp.asarray(rng.normal(size=(5, 2)))
    found, bent = jax.jit(lambda x: jax.jvp(lambda x: slopes(x, cols), (x,), (along,)))(rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, (by_row, by_col))
    step = 1e-5
    above, below = (entries.allocate(rows + sign * step * along, cols) for sign in (1, -1))
    numeric = [(a - b) / (2 * step) for a, b in zip(above[:2], below[:2], strict=True)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), bent, tuple(numeric))


def arrays_of(jaxpr):
    """Sizes of all arrays that a program forms, in its inner programs too."""
    for equation in jaxpr.eqns:
        yield from (np.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(value, "eqns"):
                yield from arrays_of(value)


@pytest.mark.parametrize("mask", [False, True])
def test_a_sweep_forms_nothing_of_the_size_of_x_or_of_nonzeros_by_components(form, mask, monkeypatch):
    for module in (segments, sparse):
        monkeypatch.setattr(module, "BLOCK", 64)
    F, N, rank = 90, 120, 7
    X = arranged((F, N), 0.05)
    hidden = arranged((F, N), 0.03, seed=1) if mask else None
    problem = Problem(as_data(X, ["a", "b"] * (N // 2), hidden=hidden), PRIORS, rank)
    seen = observe(problem.data)
    state = cavi.init(problem.data, PRIORS, key=jax.random.key(0), rank=rank)
    program = jax.make_jaxpr(sweep)(seen, problem.priors, state.moments)
    assert X.nnz * rank > 3000
    assert max(arrays_of(program.jaxpr)) <= max(N * rank, 2 * X.nnz)


def test_memory_of_nonzeros(form):
    """8 bytes a nonzero in single precision for the kernel; JAX alone may fill up rows."""
    with jax.enable_x64(False):
        X = arranged((400, 900), 0.05)
        problem = Problem(as_data(X), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), 2)
        size = sum(x.nbytes for x in jax.tree.leaves(observe(problem.data).X.entries))
    assert size <= (8.0 if form == "kernel" else 12.0) * X.nnz * 1.15 + 4 * 901


@pytest.mark.slow
@pytest.mark.skipif(not least_memory(), reason="this version of XLA does not order loops by memory")
@pytest.mark.parametrize(("groups", "arrays"), [(1, 7.3), (3, 8.6)])
def test_memory_of_sweeps(groups, arrays):
    """X, and arrays of the size of T and V: what XLA reserves for accelerated sweeps in single precision.

    The rest, three tenths of an array, is the membership of samples in groups.
    """
    F, N, rank = 50, 4000, 20
    with jax.enable_x64(False):
        data = as_data(arranged((F, N), 0.05), np.arange(N) % groups)
        priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0) if groups == 1 else GroupSparse(Gamma(2.0, 0.5)))
        problem = Problem(data, priors, rank)
        seen = observe(problem.data)
        state, last, tol = engine._begin(cavi.init(data, priors, key=jax.random.key(0), rank=rank), None, True)
        given = seen, problem.priors, state, 0, 1, last, tol
        needs = engine.advance_in_place().lower(*given, accelerate=True).compile().memory_analysis()
        outside = sum(x.nbytes for x in jax.tree.leaves(seen.X))
        size = needs.argument_size_in_bytes + needs.temp_size_in_bytes - outside
    assert size <= arrays * rank * (F + N) * 4


def test_similar_matrices_share_programs(form):
    shapes = [
        jax.tree.map(np.shape, observe(Problem(as_data(x), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), 2).data))
        for x in (arranged((50, 80), 0.10), arranged((50, 80), 0.101, seed=2))
    ]
    assert shapes[0] == shapes[1]


def test_new_samples(form):
    ours, theirs = problem(mask=True)
    fit = _dense("rows are samples")
    one, other = (fold_in(fit, data, max_steps=6, tol=1e-5) for data in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), one, other)
    assert 0 < one.converged.sum() < one.converged.size  # samples stop at their own steps


@pytest.mark.slow
def test_scores_and_densities():
    ours, theirs = (hide(data, 0.1) for data in problem())
    one, other = fits((ours, theirs), max_steps=3)
    key = jax.random.key(1)
    for score in (
        lambda fit, data: held_out_score(fit, data, key=key, num_samples=20).per_entry,
        lambda fit, data: collapsed_bound(fit, data, key=key, num_samples=4).value,
    ):
        np.testing.assert_allclose(score(one, ours), score(other, theirs), rtol=1e-9)
    for a, b in zip(*(impute(f, d, key=key, num_samples=20) for f, d in ((one, ours), (other, theirs))), strict=True):
        np.testing.assert_allclose(a, b.toarray(), rtol=1e-9)


@pytest.mark.slow
def test_refined_fits_are_those_of_the_dense_matrix():
    ours, theirs = problem(shape=(11, 8), mask=True)
    pairs = zip(fits((ours, theirs)), (ours, theirs), strict=True)
    one, other = (cavi.refine(fit, data, max_steps=3) for fit, data in pairs)
    assert_same(one, other, 1e-8)


REFUSED = {
    "SVI": lambda fit, data: svi.run(data, PRIORS, key=jax.random.key(0), rank=K),
    "NUTS": lambda fit, data: mcmc.run_nuts(data, PRIORS, key=jax.random.key(0), rank=K),
    "leaving samples out": lambda fit, data: leave_one_out(fit, data),
    "batch=False": lambda fit, data: cavi.run_many(
        data, PRIORS, keys=jax.random.split(jax.random.key(0)), rank=K, batch=True
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_needs_a_dense_matrix_says_so(said):
    data = problem()[1]
    fit = _dense("rows are samples")._replace(data=None, labels=None)
    with pytest.raises(ValueError, match=said):
        REFUSED[said](fit, data)


@pytest.mark.parametrize("unlabelled", [(), pytest.param((4, 7), marks=pytest.mark.slow)])
def test_checkpoints_outlive_the_sweeps_that_follow(unlabelled):
    """The arrays of a state are used again for the next one: not those that a callback was given, or a start."""
    data, kept = problem(unlabelled=unlabelled)[1], []
    options = {"tol": None, "rank": K, "key": jax.random.key(0), "labels": COLD}
    start = cavi.start(T=np.ones((8, K)), V=np.ones((K, 11)))
    last = cavi.run(data, PRIORS, max_steps=60, callback=kept.append, start=start, **options)
    assert [len(fit.elbo) for fit in kept] == [25, 50, 60]
    first = cavi.run(data, PRIORS, max_steps=25, start=start, **options)
    jax.tree.map(np.testing.assert_array_equal, kept[0].posterior, first.posterior)
    on = cavi.run(data, PRIORS, max_steps=1, start=kept[0], **options)
    again = cavi.run(data, PRIORS, max_steps=1, start=first.posterior, **options)
    jax.tree.map(np.testing.assert_array_equal, on.posterior, again.posterior)
    assert last.elbo[-1] >= kept[0].elbo[-1]


@pytest.mark.slow
def test_several_fits_one_after_another():
    keys = jax.random.split(jax.random.key(0), 2)
    many = [cavi.run_many(data, PRIORS, keys=keys, rank=K, max_steps=30, tol=None) for data in problem()]
    for one, other in zip(*many, strict=True):
        assert_same(one, other, 1e-10)


def test_kernel_is_used_where_there_is_one(form):
    entries = read_entries(compress(arranged((5, 6), 0.5)))
    assert isinstance(entries, Rows if form == "kernel" else segments.Segments)
