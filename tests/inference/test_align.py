import arviz as az
import numpy as np
import pytest

from gsnmf.inference import Posterior, align, invariants
from gsnmf.inference.alignment import blocks, permute
from gsnmf.inference.arviz_compat import gather
from gsnmf.inference.families import Correlated, LogNormal, Point
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, label_driven

F, K, N, C = 7, 4, 9, 2
DATA = as_data(np.ones((F, N)), list("aabbababa"))
ALIKE = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(1.0, 1.0)))
BOUND = Priors(Gamma(1.0, 1.0), GroupSparse(label_driven(per_group=2, num_groups=2)))


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def draws(seed=0, chains=2, length=20, noise=0.05):
    """Chains about the same sparse factors, each draw with noise and a scale of its own."""
    rng = np.random.default_rng(seed)
    T, V, lam = rng.gamma(0.3, size=(F, K)) + 0.01, rng.gamma(0.3, size=(K, N)) + 0.01, rng.gamma(1.0, size=(K, C))
    scale = np.exp(rng.normal(size=(chains, length, 1, K)))

    def near(x):
        return x * np.exp(noise * rng.normal(size=(chains, length, *x.shape)))

    turned = np.swapaxes(scale, -1, -2)
    return {"T": near(T) * scale, "V": near(V) / turned, "lam": near(lam) * turned}


def shuffled(sample, order):
    return {"T": sample["T"][..., order], "V": sample["V"][..., order, :], "lam": sample["lam"][..., order, :]}


def same(one, other):
    for site in one:
        np.testing.assert_array_equal(one[site], other[site], err_msg=site)


def factors(kind):
    rng = np.random.default_rng(1)

    def one(*shape):
        a, b = rng.gamma(0.5, size=shape) + 0.1, rng.gamma(2.0, size=shape)
        return {
            "gamma": Gamma(a, b),
            "scalar": Gamma(a, 2.0),
            "normal": LogNormal(np.log(a), b),
            "correlated": Correlated(np.log(a), b, rng.normal(size=(3, *shape))),
            "point": Point(a),
        }[kind]

    return Posterior(one(F, K), one(K, N), one(K, C))


@pytest.mark.parametrize("kind", ["gamma", "scalar", "normal", "correlated", "point"])
def test_a_permuted_posterior_comes_back(kind):
    q = factors(kind)
    other = permute(q, np.array([2, 0, 3, 1]))
    assert not np.allclose(other.T.mean, q.T.mean)
    np.testing.assert_allclose(other.T.mean @ other.V.mean, q.T.mean @ q.V.mean, rtol=1e-5)
    back = align(other, q, DATA, ALIKE)
    for mine, its in zip(back[:3], q[:3], strict=True):
        for x, y in zip(mine, its, strict=True):
            np.testing.assert_array_equal(x, np.broadcast_to(y, np.shape(x)))


def test_no_scale_matters():
    q = factors("gamma")
    gamma = np.array([1e-3, 1.0, 50.0, 7.0])
    scaled = Posterior(
        Gamma(q.T.a, q.T.b * gamma), Gamma(q.V.a, q.V.b / gamma[:, None]), Gamma(q.lam.a, q.lam.b * gamma[:, None])
    )
    other = permute(scaled, np.array([3, 2, 1, 0]))
    np.testing.assert_array_equal(align(other, q, DATA, ALIKE).T.a, q.T.a)


def test_no_size_matters():
    """Components overlap; one is a hundred times larger in one result, another in the other."""
    T = np.array([[4.0, 3.0], [3.0, 4.0], [0.0, 1.0]])
    V = np.array([[4.0, 3.0, 1.0], [3.0, 4.0, 2.0]])
    data, priors = as_data(np.ones((3, 3))), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    q = Posterior(Gamma(T, 1.0), Gamma(V, 1.0), None)
    large = Posterior(Gamma(T, np.array([[1.0, 100.0]])), Gamma(V, np.array([[1.0], [100.0]])), None)
    small = Posterior(Gamma(T, np.array([[100.0, 1.0]])), Gamma(V, np.array([[100.0], [1.0]])), None)
    for one in (q, large, small):
        for other in (q, large, small):
            np.testing.assert_array_equal(align(permute(other, np.array([1, 0])), one, data, priors).T.a, T)


def test_blocks_are_components_with_the_same_prior():
    assert len(set(blocks(Problem(DATA, ALIKE, K)))) == 1
    first = blocks(Problem(DATA, BOUND, K))
    assert first[0] == first[1] != first[2] == first[3]
    by_dictionary = Priors(Gamma(np.array([1.0, 1.0, 2.0, 1.0]), 1.0), GroupSparse(Gamma(1.0, 1.0)))
    assert blocks(Problem(DATA, by_dictionary, K)).tolist() == [0, 0, 1, 0]


def test_components_stay_within_their_block():
    q = factors("gamma")
    within, across = np.array([1, 0, 3, 2]), np.array([2, 3, 0, 1])
    np.testing.assert_array_equal(align(permute(q, within), q, DATA, BOUND).T.a, q.T.a)
    # Each block can only be turned in itself: its members are still the others'.
    kept = align(permute(q, across), q, DATA, BOUND).T.a
    assert {tuple(column) for column in kept[:, :2].T} == {tuple(column) for column in q.T.a[:, 2:].T}


def test_chains_are_aligned_to_the_first():
    sample = draws()
    moved = {site: x.copy() for site, x in sample.items()}
    for site, x in shuffled(sample, [1, 3, 0, 2]).items():
        moved[site][1] = x[1]
    same(align(moved, None, DATA, ALIKE), sample)


def test_labels_that_switch_within_a_chain_are_aligned_by_draw():
    sample = draws()
    rng = np.random.default_rng(5)
    moved = {site: x.copy() for site, x in sample.items()}
    for n in range(20):
        for site, x in shuffled(sample, rng.permutation(K)).items():
            moved[site][0, n] = x[0, n]
    reference = {site: x[1:] for site, x in sample.items()}
    same(align(moved, reference, DATA, ALIKE, by="draw"), sample)
    # Without a reference the order is anyone's, but it is one order.
    alone = align(moved, None, DATA, ALIKE, by="draw")
    order = align({s: x[:1, :1] for s, x in alone.items()}, reference, DATA, ALIKE)
    same({s: x[:, :1] for s, x in align(alone, reference, DATA, ALIKE).items()}, {s: sample[s][:, :1] for s in sample})
    np.testing.assert_array_equal(order["T"], sample["T"][:1, :1])


def as_arviz(sample):
    import xarray

    dims = {"T": ("feature", "component"), "V": ("component", "sample"), "lam": ("component", "group")}
    return gather({"posterior": xarray.Dataset({s: (("chain", "draw", *dims[s]), x) for s, x in sample.items()})})


def test_invariants_do_not_change_with_the_scale():
    sample = draws()
    gamma = np.exp(np.random.default_rng(6).normal(size=(2, 20, 1, K)))
    turned = np.swapaxes(gamma, -1, -2)
    moved = {"T": sample["T"] * gamma, "V": sample["V"] / turned, "lam": sample["lam"] * turned}
    one, other = invariants(as_arviz(sample)), invariants(as_arviz(moved))
    assert set(one) == {"TV", "profile", "activation", "rate"}
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(one["TV"], sample["T"] @ sample["V"], rtol=1e-12)
    np.testing.assert_allclose(one["profile"].sum("feature"), 1.0)
    np.testing.assert_allclose(
        (one["rate"] * one["activation"].isel(sample=0)).values, sample["lam"] * sample["V"][..., :1]
    )


def test_rhat_is_of_use_only_after_alignment():
    sample = draws(length=400)
    moved = {site: x.copy() for site, x in sample.items()}
    for site, x in shuffled(sample, [1, 3, 0, 2]).items():
        moved[site][1] = x[1]
    before = az.rhat(invariants(as_arviz(moved)))
    after = az.rhat(invariants(as_arviz(align(moved, None, DATA, ALIKE))))
    assert float(before["profile"].max()) > 1.5
    # 800 independent draws: R-hat − 1 is of the order of 1/400, its largest of 28 well below 0.05.
    assert float(after["profile"].max()) < 1.05
    assert float(after["rate"].max()) < 1.05
    assert float(before["TV"].max()) < 1.05  # no order matters to it


@pytest.mark.parametrize(
    ("result", "reference", "by", "message"),
    [
        (draws(), None, "sweep", "expected by to be 'chain' or 'draw'; got 'sweep'"),
        (factors("gamma"), None, "chain", "expected a reference to align to"),
        ("text", factors("gamma"), "chain", "expected a Posterior"),
        ({"T": np.ones((2, 3, F, K))}, None, "chain", "expected draws of T and V"),
        ({"T": np.ones((F, K)), "V": np.ones((K, N))}, None, "chain", "expected draws of T and V"),
        (
            {"T": np.ones((2, 3, F, K)), "V": np.ones((2, 3, 3, N))},
            None,
            "chain",
            "as many chains, draws and components",
        ),
    ],
)
def test_what_cannot_be_aligned_is_refused(result, reference, by, message):
    with pytest.raises(ValueError, match=message):
        align(result, reference, DATA, ALIKE, by=by)


def test_a_reference_of_another_shape_is_refused():
    other = Posterior(Gamma(np.ones((F + 1, K)), 1.0), Gamma(np.ones((K, N)), 1.0), None)
    with pytest.raises(ValueError, match=r"expected a reference with T of shape \(7, 4\); got \(8, 4\)"):
        align(factors("gamma"), other, DATA, ALIKE)
