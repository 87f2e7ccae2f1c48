"""Compiled kernels, against loops in NumPy. Without a library, and without a compiler, most tests are skipped."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats

from gsnmf.inference import native
from gsnmf.inference.native import build, library
from gsnmf.model import special

compiled = pytest.mark.skipif(not native.is_available(), reason=library.load().reason)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
PRECISION = {np.float32: 3e-6, np.float64: 1e-13}  # some ten roundings of 6e-8 and 1e-16, in sums without cancellation
FLOOR = {dtype: np.finfo(dtype).tiny ** (2 / 3) for dtype in PRECISION}


@pytest.fixture(params=build.LEVELS)
def level(request, monkeypatch):
    """The kernels of each level that this processor has."""
    if list(build.LEVELS).index(request.param) > library.open_library().gsnmf_level():
        pytest.skip("not on this processor")
    monkeypatch.setattr(native, "load", lambda: library.load()._replace(level=request.param))


def set_threads(number):
    library.open_library().gsnmf_set_threads(number)


def matrix(rows, columns, seed=0, mean=3.0):
    """A sparse matrix with rows of 0, 1, 2, … entries, up to the number of columns; an empty column; stored zeros."""
    rng = np.random.default_rng(seed)
    places = rng.permuted(np.tile(np.arange(columns), (rows, 1)), axis=1) < np.arange(rows)[:, None] % (columns + 1)
    places[:, columns // 2] &= columns < 10  # in the larger ones
    X = scipy.sparse.csr_array((1.0 + rng.poisson(mean, (rows, columns))) * places)
    X.data[::17] = 0
    return X


def parts(X, dtype):
    return native.row_pointers(X.indptr), X.indices.astype(np.int32), jnp.asarray(X.data, dtype)


def logs(rows, columns, K, dtype, seed=1):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(-5, 3, (n, K)), dtype) for n in (rows, columns)]


def loop(X, log_rows, log_columns, weights, floor):
    """The definition, an entry and a candidate at a time."""
    g_rows, g_columns = np.exp(np.asarray(log_rows, float)), np.exp(np.asarray(log_columns, float))
    copies = len(g_rows) // X.shape[0]
    rows, columns, ratios = np.zeros_like(g_rows), np.zeros_like(g_columns), np.zeros(len(g_rows))
    for i in range(X.shape[0]):
        for p in range(X.indptr[i], X.indptr[i + 1]):
            j, x = X.indices[p], X.data[p]
            for r in range(i * copies, (i + 1) * copies):
                product = g_rows[r] * g_columns[j]
                m = max(product.sum(), floor)
                rows[r] += x * product / m
                columns[j] += weights[r] * x * product / m
                ratios[r] += scipy.special.xlogy(x, m) - scipy.special.xlogy(x, x)
    return rows, columns, ratios


@compiled
@DTYPES
@pytest.mark.parametrize("K", [1, 7, 64, 100, 130])
@pytest.mark.usefixtures("level")
def test_sums_agree_with_a_loop(dtype, K):
    X, (log_rows, log_columns) = matrix(37, 36), logs(37, 36, K, dtype)
    with jax.enable_x64(dtype is np.float64):
        sums = native.allocate(*parts(X, dtype), log_rows, log_columns)
    expected = loop(X, log_rows, log_columns, np.ones(37), 0)
    for ours, reference in zip(sums, expected, strict=True):
        assert ours.dtype == dtype
        # A sum of terms of both signs, such as the log ratio, is exact relative to its largest values.
        np.testing.assert_allclose(ours, reference, rtol=PRECISION[dtype], atol=PRECISION[dtype] * abs(reference).max())


@compiled
@pytest.mark.parametrize(("rows", "columns", "every"), [(1100, 60, 20), (40, 1500, 1), (3, 17_000, 1)])
@pytest.mark.usefixtures("level")
def test_rows_and_entries_of_several_tiles(rows, columns, every):
    """More rows than a tile has, in one block; more entries, in two; rows that are longer than a tile."""
    X = (1.0 + np.random.default_rng(0).poisson(1.0, (rows, columns))) * (
        np.add.outer(*map(np.arange, (rows, columns))) % every == 0
    )
    log_rows, log_columns = logs(rows, columns, 5, float)
    sums = native.allocate(*parts(scipy.sparse.csr_array(X), float), log_rows, log_columns)
    g_rows, g_columns = np.exp(log_rows), np.exp(log_columns)
    M = g_rows @ g_columns.T
    ratios = scipy.special.xlogy(X, M) - scipy.special.xlogy(X, X)
    expected = g_rows * (X / M @ g_columns), g_columns * ((X / M).T @ g_rows), ratios.sum(1)
    for ours, reference in zip(sums, expected, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-10, atol=1e-10)


@compiled
def test_candidates_share_a_row_and_have_weights():
    X, (log_rows, log_columns) = matrix(8, 6), logs(24, 6, 5, float)
    weights = np.random.default_rng(2).uniform(size=24) * (np.arange(24) % 4 > 0)
    sums = jax.jit(native.allocate)(*parts(X, float), log_rows, log_columns, weights)
    for ours, reference in zip(sums, loop(X, log_rows, log_columns, weights, 0), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-12)


@compiled
@DTYPES
def test_disjoint_supports_stay_finite(dtype):
    """As in dense sweeps: the entry is left out of the counts, and the floor stands in for M."""
    x, far = jnp.asarray([3.0], dtype), -2000.0
    log_rows, log_columns = jnp.asarray([[0.0, far]], dtype), jnp.asarray([[far, 0.0]], dtype)
    sums = native.allocate(np.array([0, 1]), np.zeros(1, np.int32), x, log_rows, log_columns)
    np.testing.assert_array_equal(sums.rows, [[0, 0]])
    np.testing.assert_allclose(sums.log_ratios, 3 * np.log(FLOOR[dtype] / 3), rtol=1e-5)


@compiled
@DTYPES
def test_what_is_not_a_number_is_seen(dtype):
    X, (log_rows, log_columns) = matrix(6, 5), logs(6, 5, 3, dtype)
    row, column = np.argwhere(X.toarray() > 0)[3]
    spoil_row, spoil_column = log_rows.at[row, 2].set(jnp.nan), log_columns.at[column, 2].set(jnp.nan)
    for rows, columns in (spoil_row, log_columns), (log_rows, spoil_column):
        sums = native.allocate(*parts(X, dtype), rows, columns)
        S = native.thin(jax.random.key(0), *parts(X, dtype), jnp.exp(rows), jnp.exp(columns))
        for spoiled in (sums.rows[row], sums.log_ratios[row], sums.columns[column], S[0][row], S[1][column]):
            assert np.isnan(spoiled).all()


def run_both(threads):
    """Sums and draws of a problem that is large enough for several threads."""
    X, (log_rows, log_columns) = matrix(3000, 12), logs(3000, 12, 9, np.float32)
    arrays = parts(X, np.float32)
    set_threads(threads)
    sums = native.allocate(*arrays, log_rows, log_columns)
    return [*sums, *native.thin(jax.random.key(3), *arrays, jnp.exp(log_rows), jnp.exp(log_columns))]


@compiled
def test_the_same_bits_whatever_the_number_of_threads():
    one, two = run_both(1), run_both(2)
    set_threads(library.load().threads)
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)


@compiled
def test_kernels_work_in_loops_and_under_vmap():
    X, (log_rows, log_columns) = matrix(9, 7), logs(9, 7, 3, float)
    arrays = parts(X, float)

    def step(_, state):
        sums = native.allocate(*arrays, *state)
        return jnp.log(1 + sums.rows), jnp.log(1 + sums.columns)

    looped = jax.jit(lambda *start: jax.lax.fori_loop(0, 3, step, start))(log_rows, log_columns)
    plain = log_rows, log_columns
    for _ in range(3):
        plain = step(0, plain)
    np.testing.assert_array_equal(looped[0], plain[0])
    both = jax.vmap(lambda shift: native.allocate(*arrays, log_rows + shift, log_columns).rows)(jnp.array([0.0, 5.0]))
    np.testing.assert_allclose(both[0], both[1], rtol=1e-12)  # no sum depends on shifts by row


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from gsnmf.inference import native

rng = np.random.default_rng(0)
X, V, T = rng.poisson(1.0, (6, 4)).astype(np.float32), rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
indptr, indices = np.arange(4, dtype=np.int32) * 4, np.tile(np.arange(4, dtype=np.int32), 3)

def part(x, V, T):
    sums = native.allocate(indptr, indices, x.reshape(-1), V, T)
    return sums.rows, jax.lax.psum(sums.columns, "n"), sums.log_ratios

mesh = Mesh(np.array(jax.devices()), "n")
split = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(P("n"), P("n"), P()), out_specs=(P("n"), P(), P("n"))))
V, T = jnp.asarray(V, jnp.float32), jnp.asarray(T, jnp.float32)
whole = native.allocate(np.arange(7, dtype=np.int32) * 4, np.tile(indices[:4], 6), X.reshape(-1), V, T)
for ours, reference in zip(split(X, V, T), whole):
    np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-6)
print(len(jax.devices()), "devices")
"""


@compiled
def test_kernels_work_in_shard_map():
    assert run(SHARDED, XLA_FLAGS=f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2") == "2 devices"


@compiled
@pytest.mark.usefixtures("level")
def test_philox_is_that_of_numpy():
    """The numbers of entry 5 are those of counters (0, 5), (1, 5), …: NumPy's is increased before its first use."""
    key = np.array([7, 9], np.uint32)
    counter = np.array([2**64 - 1, 4, 0, 0], np.uint64)
    random = np.random.Philox(key=7 + 9 * 2**32, counter=counter).random_raw(4)
    # Each of 4 units of entry 5 falls into one of 1000 equal intervals: the first word has the bits that they share.
    fraction = ((random[0] >> 43) + 0.5) * 2.0**-21
    units = np.stack([random[1:3] >> 33, random[1:3] >> 1 & (2**31 - 1)], axis=1).ravel()
    x, K = np.array([0, 0, 0, 0, 0, 4.0]), 1000
    indptr, indices = np.array([0, 6]), np.arange(6, dtype=np.int32)
    S, _ = native.thin(key, indptr, indices, jnp.asarray(x), jnp.ones((1, K)), jnp.ones((6, K)))
    drawn = np.repeat(np.arange(K), np.asarray(S[0], int))
    np.testing.assert_array_equal(drawn, np.sort((units + fraction) * 2.0**-31 * K // 1))


@compiled
@DTYPES
@pytest.mark.usefixtures("level")
def test_every_count_is_shared_out(dtype):
    X = matrix(7, 6, mean=40.0)
    X.data[:3] = 1, 1e6, 3e4
    rng = np.random.default_rng(0)
    T, V = (jnp.asarray(rng.gamma(0.3, size=(n, 5)), dtype) for n in X.shape)
    T = T.at[0].set(1e-30).at[:, 4].set(0)  # products that would underflow in single precision, and a component alone
    S = native.thin(jax.random.key(0), *parts(X, dtype), T, V)
    np.testing.assert_array_equal(S[0].sum(axis=1), X.sum(axis=1))
    np.testing.assert_array_equal(S[1].sum(axis=1), X.sum(axis=0))
    np.testing.assert_array_equal(S[0].sum(axis=0), S[1].sum(axis=0))
    assert (S[0] >= 0).all()
    assert S[0][:, 4].sum() == 0
    again = native.thin(jax.random.key(0), *parts(X, dtype), T, V)
    other = native.thin(jax.random.key(1), *parts(X, dtype), T, V)
    np.testing.assert_array_equal(S[0], again[0])
    assert (S[0] != other[0]).any()


@compiled
def test_a_component_takes_all_where_all_products_are_zero():
    S, _ = native.thin(
        jax.random.key(0), np.array([0, 1]), np.zeros(1, np.int32), jnp.ones(1) * 3, *jnp.zeros((2, 1, 2))
    )
    np.testing.assert_array_equal(S, [[0, 3]])


@compiled
@DTYPES
@pytest.mark.parametrize(("x", "K", "draws"), [(1, 70, 40_000), (3, 9, 20_000), (200, 5, 20_000), (10**6, 20, 2_000)])
def test_an_entry_is_multinomial(dtype, x, K, draws):
    """Means, covariances and the whole distribution of a component: by units, by both and by binomials.

    Each of the three fails by chance in 1 of 10,000 runs; seeds are fixed, so it fails always or never.
    """
    share = np.random.default_rng(4).gamma(0.7, size=K)
    v = jnp.ones((draws, K), dtype)
    entries = np.array([0, draws]), np.arange(draws, dtype=np.int32), jnp.full(draws, x, dtype)
    S = native.thin(jax.random.key(5), *entries, jnp.asarray(share[None], dtype), v)[1]
    p, s = share / share.sum(), np.asarray(S, float)
    # K − 1 of the components, made independent: squares of DRAWS standardised means add up to χ².
    covariance = x * (np.diag(p) - np.outer(p, p))[1:, 1:]
    white = np.linalg.solve(np.linalg.cholesky(covariance), (s - x * p)[:, 1:].T)
    assert scipy.stats.chi2(K - 1).sf(draws * (white.mean(axis=1) ** 2).sum()) > 1e-4
    # Products of two such numbers have mean 0 and a variance that is estimated from them.
    i, j = np.triu_indices(min(K - 1, 8), 1)
    products = white[i] * white[j]
    z = products.mean(axis=1) / products.std(axis=1) * np.sqrt(draws)
    assert abs(z).max(initial=0) < scipy.stats.norm.isf(0.5e-4 / max(1, len(z)))
    k = p.argmax()
    distribution = scipy.stats.binom(x, p[k])
    uniform = distribution.cdf(s[:, k] - 1) + np.random.default_rng(6).uniform(size=draws) * distribution.pmf(s[:, k])
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-4


def binomial_pvalue(x, p, draws, key):
    """χ² of Binomial(x, p) in about 40 bins, from draws of two components, each in a row of its own."""
    entries = np.arange(draws + 1), np.zeros(draws, np.int32), jnp.full(draws, float(x))
    S = native.thin(jax.random.key(key), *entries, jnp.tile(jnp.array([[1 - p, p]]), (draws, 1)), jnp.ones((1, 2)))[0]
    distribution = scipy.stats.binom(x, p)
    edges = np.unique(distribution.ppf(np.linspace(0, 1, 42)[1:-1]))  # fewer if x is small
    expected = draws * np.diff(np.concatenate([[0], distribution.cdf(edges), [1]]))
    seen = np.bincount(np.searchsorted(edges, S[:, 1], side="left"), minlength=len(edges) + 1)
    return scipy.stats.chisquare(seen, expected).pvalue


@compiled
@pytest.mark.parametrize(("x", "p"), [(40, 0.02), (40, 0.3), (10**4, 5e-4), (10**4, 0.4), (10**4, 0.9)])
def test_binomials_have_their_distribution(x, p):
    """By inversion and by rejection, both ends: each fails by chance in 1 of 10,000 runs."""
    assert binomial_pvalue(x, p, 100_000, 7) > 1e-4


@compiled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "p"),
    [(20, 0.3), (36, 0.3), (36, 0.1), (1000, 0.3), (10**6, 2e-6), (10**6, 0.5), (10**10, 0.2), (10**15, 0.3)],
)
def test_binomials_are_exact(x, p):
    """Small errors in the test of acceptance: 0.02 added to log f(k) / f(mode) moves 0.2 % of the draws at x = 10⁶.

    By units for the first; each fails by chance in 1 of 10,000 runs.
    """
    assert binomial_pvalue(x, p, 6_000_000, 8) > 1e-4


@compiled
def test_units_are_counted_as_they_are_found():
    """Many units are compared with whole numbers, few with the bounds themselves: the distributions are the same.

    Shares from 1e-3 on, some of them 0, at either end too: a χ² fails by chance in 1 of 10,000 runs.
    """
    share = np.array([0, 1e-3, 0.5, 0, 0, 2.0, 0.02, 7.0, 1e-12, 0.3, 0])
    for x, draws in ((3, 200_000), (7, 100_000), (100, 10_000)):
        entries = np.arange(draws + 1), np.zeros(draws, np.int32), jnp.full(draws, float(x))
        S = native.thin(jax.random.key(9), *entries, jnp.tile(share, (draws, 1)), jnp.ones((1, 11)))[0]
        assert (S.sum(axis=1) == x).all()
        seen, some = np.asarray(S.sum(axis=0)), share > 1e-6
        assert seen[~some].sum() == 0
        expected = x * draws * share[some] / share[some].sum()
        assert scipy.stats.chisquare(seen[some], expected).pvalue > 1e-4, x


@compiled
@pytest.mark.parametrize(("x", "draws"), [(120.0, 2_000_000), (2.0**23, 40)])
def test_small_shares_are_drawn_in_single_precision(x, draws):
    """A share of 5e-8 after one of 1: their sum in single precision is 1.

    By units and by binomials; 12 and 17 are expected: outside these bounds in 1 of 10,000 runs.
    """
    K = 8
    shares = np.zeros((1, K))
    shares[0, [0, -1]] = 1, 5e-8
    entries = np.arange(draws + 1), np.zeros(draws, np.int32), jnp.full(draws, x, np.float32)
    rows = jnp.tile(jnp.asarray(shares, np.float32), (draws, 1))
    total = float(native.thin(jax.random.key(2), *entries, rows, jnp.ones((1, K), np.float32))[0][:, -1].sum())
    least, most = scipy.stats.poisson(x * draws * 5e-8).ppf([5e-5, 1 - 5e-5])
    assert least <= total <= most


@compiled
@DTYPES
@pytest.mark.usefixtures("level")
def test_gammas_have_their_distribution(dtype):
    """Means, variances and the whole distribution, for shapes that are boosted and for large ones.

    Each of 3 × 7 numbers fails by chance in 1 of 10,000 runs; seeds are fixed, so it fails always or never.
    """
    shapes, draws = np.array([0.05, 0.3, 1.0, 1.5, 30.0, 1e4, 1e8]), 100_000
    with jax.enable_x64(dtype is np.float64):
        drawn = native.gamma(jax.random.key(3), jnp.repeat(jnp.asarray(shapes, dtype), draws))
        assert drawn.dtype == dtype
    # In single precision, 1 % of the draws for 0.05 are so small that they are 0.
    tiny = np.finfo(np.float32).tiny
    every = np.maximum(np.asarray(drawn, float), tiny).reshape(len(shapes), draws)
    for a, x in zip(np.asarray(shapes, dtype).astype(float), every, strict=True):
        z = (x - a) / np.sqrt(a)
        assert abs(z.mean()) * np.sqrt(draws) < 3.9, a
        assert abs((z**2 - 1).mean()) / (z**2).std() * np.sqrt(draws) < 3.9, a
        uniform, least = scipy.stats.gamma(a).cdf(x), scipy.stats.gamma(a).cdf(tiny)
        uniform[x <= tiny] = np.linspace(0, least, (x <= tiny).sum())
        assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-4, a


@compiled
def test_gammas_depend_on_key_and_place_only():
    shapes = jnp.asarray(0.1 + np.random.default_rng(0).gamma(0.5, 3.0, 10_001))  # no draw underflows
    set_threads(2)
    two = native.gamma(jax.random.key(0), shapes)
    set_threads(1)
    one = native.gamma(jax.random.key(0), shapes)
    set_threads(library.load().threads)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(native.gamma(jax.random.key(0), shapes[:7]), one[:7])
    assert (native.gamma(jax.random.key(1), shapes) != one).all()
    correlation = np.corrcoef(one[:-1] - shapes[:-1], one[1:] - shapes[1:])[0, 1]
    assert abs(correlation) < 0.04  # 4 standard errors: neighbours are independent


@compiled
def test_gammas_of_shapes_that_are_no_numbers():
    drawn = native.gamma(jax.random.key(0), jnp.array([jnp.nan, 2.0, jnp.inf]))
    assert drawn[1] > 0
    assert not (drawn[jnp.array([0, 2])] < 1e300).any()


@compiled
@DTYPES
@pytest.mark.usefixtures("level")
def test_log_moments_agree_with_scipy(dtype):
    x = np.concatenate([np.logspace(-6, 8, 20_001), np.linspace(0.5, 4, 20_001)]).astype(dtype)  # log Γ is near 0 there
    with jax.enable_x64(dtype is np.float64):
        mean, entropy = (np.asarray(value, float) for value in native.log_moments(jnp.asarray(x)[:, None]))
    x = x.astype(float)
    psi = scipy.special.digamma(x)
    # Where a function crosses zero its rounding is absolute.
    tolerance = {np.float32: 1e-6, np.float64: 1e-14}[dtype]
    np.testing.assert_array_less(abs(mean[:, 0] - psi) / np.maximum(1, abs(psi)), tolerance)
    small = x < 100  # beyond, SciPy's terms cancel
    exact = (x + scipy.special.gammaln(x) - x * psi)[small]
    np.testing.assert_array_less(abs(entropy[small] - exact) / np.maximum(1, abs(exact)), 3 * tolerance + 2e-13)


@compiled
@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,), (5, 7), (700, 50), (2, 2**14 + 3)])
def test_log_moments_of_any_size(shape):
    x = jnp.arange(1.0, np.prod(shape) + 1).reshape(shape)
    mean, entropy = native.log_moments(x)
    np.testing.assert_allclose(mean, scipy.special.digamma(x), rtol=1e-13)
    np.testing.assert_allclose(entropy, special.log_entropy(x).sum(-1), rtol=1e-13)
    if len(shape) > 1:
        np.testing.assert_array_equal(jax.vmap(native.log_moments)(x)[1], entropy)


@compiled
def test_large_arrays_use_the_kernel_where_it_is_asked_for():
    x = jnp.linspace(0.5, 4, special.LARGE).reshape(-1, 8)
    asked: list[int] = []

    def kernel(x):
        asked.append(x.size)
        return native.log_moments(x)

    def both(x):
        return special.digamma(x, 2.0), special.log_entropy(x)

    with special.computed_by(kernel):
        ours, slopes = jax.jvp(both, (x,), (jnp.ones_like(x),))
        special.digamma(x[1:])  # too small
    assert asked == [x.size] * 2
    expected, expected_slopes = jax.jvp(both, (x,), (jnp.ones_like(x),))  # beyond the block nothing asks for it
    assert asked == [x.size] * 2
    for found, wanted in ((ours, expected), (slopes, expected_slopes)):
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-13, atol=1e-14)
        total = jnp.broadcast_to(found[1], x.shape).sum(axis=-1)  # entropies: within, their average along this axis
        np.testing.assert_allclose(total, wanted[1].sum(axis=-1), rtol=1e-13, atol=1e-14)


@compiled
def test_log_moments_want_an_axis():
    for call in (native.log_moments, jax.vmap(native.log_moments)):
        with pytest.raises(ValueError, match="expected an array with an axis to sum along"):
            call(jnp.ones(()) if call is native.log_moments else jnp.ones(3))


def test_row_pointers_of_both_widths():
    wide = native.row_pointers(np.array([0, 1, 2**33]))
    assert wide.dtype == np.int32
    np.testing.assert_array_equal(wide.view(np.int64)[:, 0], [0, 1, 2**33])


@compiled
def test_wide_row_pointers_give_the_same():
    X, (log_rows, log_columns) = matrix(9, 7), logs(9, 7, 3, np.float32)
    indptr, *entries = parts(X, np.float32)
    wide = np.ascontiguousarray(X.indptr, np.int64).view(np.int32).reshape(-1, 2)
    with jax.enable_x64(True):
        longer = jnp.asarray(X.indptr, jnp.int64)
    for other in (wide, longer):
        with jax.enable_x64(other is longer):
            sums = native.allocate(other, *entries, log_rows, log_columns)
        np.testing.assert_array_equal(sums.rows, native.allocate(indptr, *entries, log_rows, log_columns).rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.zeros(2, np.int64)}, "indices of 32 bits"),
        ({"values": np.ones(3)}, "as many indices as values"),
        ({"values": np.ones(2, np.float32)}, "expected arrays of float32 or of float64; got float32, float64"),
        ({"log_columns": np.ones((2, 4))}, "as many components"),
        ({"log_rows": np.ones((3, 3))}, "expected 2 rows, or candidates"),
    ],
)
def test_parts_that_do_not_fit(change, message):
    arguments = {
        "indptr": np.array([0, 1, 2], np.int32),
        "indices": np.zeros(2, np.int32),
        "values": jnp.ones(2),
        "log_rows": jnp.ones((2, 3)),
        "log_columns": jnp.ones((2, 3)),
    }
    with pytest.raises(ValueError, match=message):
        native.allocate(**arguments | change)


def run(program, **settings):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_kernels_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("GSNMF_KERNEL", "off")
    load = library.load.__wrapped__
    for module in (library, native):
        monkeypatch.setattr(module, "load", load)
    assert not native.is_available()
    assert native.describe() == "JAX, rows padded: no compiled kernel (switched off by GSNMF_KERNEL)"
    with pytest.raises(RuntimeError, match="expected a compiled kernel; got none: switched off"):
        native.log_moments(jnp.ones(3))


def test_settings_are_checked(monkeypatch):
    monkeypatch.setenv("GSNMF_THREADS", "many")
    with pytest.raises(ValueError, match="expected GSNMF_THREADS to be a whole number of at least 1; got 'many'"):
        library.load.__wrapped__()
    monkeypatch.setenv("GSNMF_THREADS", "2")
    monkeypatch.setenv("GSNMF_KERNEL", "yes")
    with pytest.raises(ValueError, match="expected GSNMF_KERNEL to be on or off; got 'yes'"):
        library.load.__wrapped__()


def test_a_library_of_other_sources_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "fingerprint", lambda: "other")
    reason = library.load.__wrapped__().reason
    assert "library" in reason
    monkeypatch.setattr(library, "HERE", tmp_path)
    assert library.load.__wrapped__().reason == f"no library: {library.BUILD}"


def test_there_is_a_library_where_there_is_a_compiler():
    """Else all tests above would be skipped, and nobody would notice."""
    if build.find_compiler() and library.load().reason != "switched off by GSNMF_KERNEL":
        assert library.load().reason == ""


def test_without_a_compiler_there_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(build.BuildError, match=r"found no C\+\+ compiler, and no package ziglang"):
        build.compile_library(tmp_path)


LAYOUT = """
#include "ffi.h"
#include "xla/ffi/api/c_api.h"
#define SAME(ours, field, theirs, other) static_assert(offsetof(ffi::ours, field) == offsetof(theirs, other), #field);
SAME(Frame, extensions, XLA_FFI_CallFrame, extension_start) SAME(Frame, api, XLA_FFI_CallFrame, api)
SAME(Frame, stage, XLA_FFI_CallFrame, stage) SAME(Frame, arguments, XLA_FFI_CallFrame, args)
SAME(Frame, results, XLA_FFI_CallFrame, rets) SAME(Buffers, size, XLA_FFI_Args, size)
SAME(Buffers, buffers, XLA_FFI_Args, args) SAME(Buffers, buffers, XLA_FFI_Rets, rets)
SAME(Buffer, dtype, XLA_FFI_Buffer, dtype) SAME(Buffer, data, XLA_FFI_Buffer, data)
SAME(Buffer, rank, XLA_FFI_Buffer, rank) SAME(Buffer, dims, XLA_FFI_Buffer, dims)
SAME(Api, version, XLA_FFI_Api, api_version) SAME(Api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create)
SAME(Version, minor, XLA_FFI_Api_Version, minor_version)
SAME(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata)
SAME(Metadata, version, XLA_FFI_Metadata, api_version) SAME(Metadata, traits, XLA_FFI_Metadata, traits)
SAME(Metadata, state_type, XLA_FFI_Metadata, state_type_id) SAME(ErrorArguments, code, XLA_FFI_Error_Create_Args, errc)
static_assert(ffi::kMetadata == XLA_FFI_Extension_Metadata && ffi::kExecute == XLA_FFI_ExecutionStage_EXECUTE);
static_assert(ffi::kInt64 == XLA_FFI_DataType_S64 && ffi::kResourceExhausted == XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
"""


@pytest.mark.skipif(not build.find_compiler(), reason="no compiler")
def test_the_interface_is_that_of_the_installed_jaxlib(tmp_path):
    source = tmp_path / "layout.cc"
    source.write_text(LAYOUT)
    headers = [f"-I{Path(build.HERE)}", f"-I{jax.ffi.include_dir()}"]
    command = [*build.find_compiler(), "-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", *headers, str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
