import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from gsnmf.inference import gibbs, native, thinning
from gsnmf.inference.gammas import draw_gammas
from gsnmf.inference.thinning import Group, group_counts, thin
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data

RNG = np.random.default_rng(0)
X = RNG.poisson(20.0, size=(4, 5)).astype(float)
X[3, 4] = 0
T, V = RNG.gamma(0.3, size=(4, 3)), RNG.gamma(0.3, size=(3, 5))
T[0] = [1e-200, 1e-200, 0.0]  # products that underflow: whoever is last takes them
V[:, 0] = [1.0, 0.0, 0.0]  # one component alone: it takes all
EVERYWHERE = np.indices(X.shape).reshape(2, -1)
WAYS = {
    "units": group_counts(X),
    "two groups": tuple(Group(*np.nonzero(chosen), units) for chosen, units in ((X <= 20, 4), (X > 20, 16))),
    "binomials": (Group(*EVERYWHERE, None),),
}
DRAWS = 2000


def many(X, groups):
    """Draws of the sums of S."""
    draw = jax.jit(lambda key: thin(key, jnp.asarray(X), jnp.asarray(T), jnp.asarray(V), groups))
    return jax.device_get(jax.vmap(draw)(jax.random.split(jax.random.key(0), DRAWS)))


@pytest.mark.parametrize("way", WAYS)
def test_thinning_shares_out_every_count(way):
    S_T, S_V = many(X, WAYS[way])
    np.testing.assert_array_equal(S_T.sum(axis=2), np.broadcast_to(X.sum(axis=1), (DRAWS, 4)))
    np.testing.assert_array_equal(S_V.sum(axis=1), np.broadcast_to(X.sum(axis=0), (DRAWS, 5)))
    assert (S_T >= 0).all()
    assert (S_V >= 0).all()
    np.testing.assert_array_equal(S_V[:, 1:, 0].sum(axis=1), np.zeros(DRAWS))
    # Rows 1 to 3 have the multinomial's means: |z| < 4.5 on 9 of them fails by chance in 6 of 100,000 runs.
    share = T[1:, None, :] * V.T[None] / (T[1:] @ V)[:, :, None]
    mean, variance = (X[1:, :, None] * share).sum(1), (X[1:, :, None] * share * (1 - share)).sum(1)
    assert (abs(S_T[:, 1:].mean(axis=0) - mean) < 4.5 * np.sqrt(variance / DRAWS) + 1e-12).all()
    # The variance of DRAWS nearly normal numbers has a relative error of √(2/DRAWS) = 0.03.
    np.testing.assert_allclose(S_T[:, 1:].var(axis=0), variance, rtol=0.2, atol=1e-3)


@pytest.mark.parametrize("way", ["units", "binomials"])
def test_an_entry_is_multinomial(way):
    """The whole distribution of one count of 3 among 2 components, by χ²; 1 of 10,000 runs fails by chance."""
    x, t, v = jnp.array([[3.0]]), jnp.array([[1.0, 2.0]]), jnp.array([[1.0], [0.3]])
    groups = (Group(np.array([0]), np.array([0]), 5 if way == "units" else None),)
    keys = jax.random.split(jax.random.key(1), 20_000)
    s = jax.jit(jax.vmap(lambda key: thin(key, x, t, v, groups).T[0, 0]))(keys)
    expected = 20_000 * scipy.stats.binom(3, 1 / 1.6).pmf(np.arange(4))
    assert scipy.stats.chisquare(np.bincount(np.asarray(s, int), minlength=4), expected).pvalue > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_one_component_has_all_counts(way):
    S = thin(jax.random.key(0), jnp.asarray(X), jnp.ones((4, 1)), jnp.ones((1, 5)), WAYS[way])
    np.testing.assert_array_equal(S.T[:, 0], X.sum(axis=1))
    np.testing.assert_array_equal(S.V[0], X.sum(axis=0))


def test_counts_below_those_that_were_grouped():
    """Particle filters split a part of X with the groups of the whole."""
    part = np.floor(X / 3)
    S_T, S_V = many(part, group_counts(X))
    np.testing.assert_array_equal(S_T.sum(axis=2), np.broadcast_to(part.sum(axis=1), (DRAWS, 4)))
    np.testing.assert_array_equal(S_V.sum(axis=1), np.broadcast_to(part.sum(axis=0), (DRAWS, 5)))


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        (np.zeros(5), []),
        (np.array([1, 1, 2, 16, 0]), [(4, 16)]),
        (np.repeat([1, 4, 7, 16], 20_000), [(20_000, 1), (20_000, 4), (40_000, 16)]),
        (np.repeat([3, 600], [10, 50]), [(60, 16)]),
        (np.repeat([3, 500, 5000], [30_000, 20, 50]), [(30_000, 4), (20, 16), (50, None)]),
    ],
)
def test_groups_have_entries_of_similar_size(counts, sizes):
    groups = group_counts(counts.reshape(1, -1))
    inside = [group.columns[group.columns < counts.size] for group in groups]
    assert [(len(columns), group.units) for columns, group in zip(inside, groups, strict=True)] == sizes
    assert sorted(np.concatenate([np.zeros(0, int), *inside])) == np.flatnonzero(counts).tolist()
    for group, (number, _) in zip(groups, sizes, strict=True):
        assert number <= len(group.rows) <= min(counts.size, 1.25 * number) or len(group.rows) == counts.size
        assert ((group.rows == 1) == (group.columns == counts.size)).all()  # places beyond X, in both directions


def test_blocks_bound_the_largest_array(monkeypatch):
    """No array of features × components × samples, in either way of splitting, and blocks change no total."""
    monkeypatch.setattr(thinning, "MOST", 200)
    large = Problem(
        as_data(np.full((7, 11), 3.0), [0, 1] * 5 + [0]), Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0))), 20
    )
    z = {"T": jnp.ones((7, 20)), "V": jnp.ones((20, 11)), "lam": jnp.ones((20, 2))}
    for entries in (None, (Group(*np.indices((7, 11)).reshape(2, -1), None),)):
        program = jax.make_jaxpr(lambda key, entries=entries: gibbs.sweep(key, large, z, entries=entries))
        largest, todo = 0, [program(jax.random.key(0)).jaxpr]
        while todo:
            for equation in todo.pop().eqns:
                largest = max(largest, *(v.aval.size for v in equation.outvars))
                todo += [
                    getattr(p, "jaxpr", p)
                    for p in jax.tree.leaves(
                        equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
                    )
                    if hasattr(getattr(p, "jaxpr", p), "eqns")
                ]
        assert 7 * 20 <= largest < 7 * 20 * 11
    S = thin(jax.random.key(0), large.data.X, z["T"], z["V"])
    np.testing.assert_array_equal(S.T.sum(axis=1), large.data.X.sum(axis=1))
    np.testing.assert_array_equal(S.V.sum(axis=0), large.data.X.sum(axis=0))


# 1 of 1,000 runs fails by chance for each shape; seeds are fixed, so it fails always or never. The kernel has tests of
# its own, in test_native.py.
def test_gammas_have_their_distribution(monkeypatch):
    """From shapes that are boosted to shapes at which single precision would cancel."""
    monkeypatch.setattr(native, "is_available", lambda: False)
    shapes = np.array([0.05, 0.6, 1.0, 1.5, 30.0, 1e7])
    with jax.enable_x64(False):
        draws = jax.jit(lambda a: draw_gammas(jax.random.key(0), a))(jnp.repeat(jnp.asarray(shapes), 20_000))
    for shape, drawn in zip(shapes, np.asarray(draws, float).reshape(len(shapes), -1), strict=True):
        assert scipy.stats.kstest(drawn, scipy.stats.gamma(shape).cdf).pvalue > 1e-3, shape


def test_gammas_of_shapes_that_are_no_numbers_end(monkeypatch):
    monkeypatch.setattr(native, "is_available", lambda: False)
    draws = draw_gammas(jax.random.key(0), jnp.array([jnp.nan, 2.0, jnp.inf]))
    assert draws[1] > 0
    assert not (draws[jnp.array([0, 2])] < 1e300).any()
