import re
from pathlib import Path

import jax
import numpy as np
import pytest

from gsnmf.crosscheck.invariants import own_groups
from gsnmf.drawing.plots import component_order, home_groups
from gsnmf.inference import cavi
from gsnmf.model import (
    Gamma,
    GroupSparse,
    Priors,
    as_data,
    common,
    common_and_individual,
    individual,
    label_driven,
    relative_rates,
    structured,
    tree,
)
from gsnmf.model.structures import served

KINDS, NAMES = ["vehicle", "animal", "animal"], ["car", "cat", "dog"]
STRUCTURES = {
    "individual": individual(2, 3),
    "common and individual": common_and_individual(2, 1, 3),
    "tree": tree([["all"] * 3, KINDS, NAMES], per_node=[1, 2, 1]),
    "overlapping": np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool),
    "a group that all serve": np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1]], bool),
    "a group that none serves": np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], bool),
}


def with_structures(test):
    return pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)(test)


@with_structures
def test_shapes_are_small_where_a_component_serves_and_large_elsewhere(structure):
    rates = structured(structure.astype(int).tolist(), small=2.0, large=9.0, scale=7.0)
    assert ((rates.a == 2.0) == structure).all()
    assert ((rates.a == 9.0) == ~structure).all()
    assert (rates.b == 7.0).all()


@pytest.mark.parametrize("how", [{"per_group": 2}, {"per_group": [1, 0, 3]}, {"rank": 5}], ids=str)
def test_the_papers_prior_is_the_structure_of_single_groups(how):
    rates, rows = label_driven(num_groups=3, small=2.0, large=9.0, **how), individual(num_groups=3, **how)
    np.testing.assert_array_equal(rates.a, structured(rows, 2.0, 9.0).a)
    assert (rows.sum(axis=1) == 1).all()
    assert (np.diff(rows.argmax(axis=1)) >= 0).all()


def test_common_components_serve_all_and_come_first():
    both = common_and_individual(2, 3, 15)
    assert (structured(common(4, 15)).a == 32).all()
    assert common(0, 3).shape == (0, 3)
    assert both[:2].all()
    np.testing.assert_array_equal(both[2:], individual(3, 15))
    np.testing.assert_array_equal(common_and_individual(2, rank=7, num_groups=3)[2:], individual(rank=5, num_groups=3))
    np.testing.assert_array_equal(common_and_individual(0, [1, 2]), individual([1, 2]))


def test_a_node_of_a_tree_serves_the_groups_below_it():
    rows = tree([["all"] * 3, KINDS, NAMES], per_node=[1, 2, 0])
    assert rows.astype(int).tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1]]
    np.testing.assert_array_equal(tree([NAMES], 2), individual(2, 3))
    np.testing.assert_array_equal(tree([["all"] * 3, NAMES], [2, 1]), common_and_individual(2, 1, 3))


def test_permuting_groups_permutes_columns():
    """Up to the order of components: that follows the groups."""
    order = [2, 0, 1]
    rows = tree([KINDS, NAMES])[:, order]
    permuted = tree([[KINDS[c] for c in order], [NAMES[c] for c in order]])
    assert sorted(rows.tolist()) == sorted(permuted.tolist())


def test_the_page_on_structures_says_what_runs():
    names: dict = {}
    block, _ = re.findall(  # test_what_pages_show_is_so runs both
        r"```python\n(.*?)```", Path("docs/structures.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    exec(compile(block, "docs/structures.md", "exec"), names)
    np.testing.assert_array_equal(structured(names["paper"]).a, label_driven(3, 3).a)
    assert names["rates"].a.shape == names["proportions"].a.shape == (7, 3)
    assert structured(names["other"]).a.shape == (3, 3)


BAD = {
    "a structure, components × groups; got shape .3,.": lambda: structured([1, 0, 1]),
    "a structure, components × groups; got shape .0, 3.": lambda: structured(common(0, 3)),
    r"a structure of 0 and 1; got \[\[0.5": lambda: structured([[0.5, 1.0]]),
    r"a structure of 0 and 1; got \[\['a'": lambda: structured([["a", "b"]]),
    "every component to serve a group; got none for component 1": lambda: structured([[1, 0], [0, 0]]),
    "large to be a positive number; got 0": lambda: structured([[1, 0]], large=0),
    "number to be a whole number ≥ 0; got -1": lambda: common(-1, 3),
    "num_groups to be a whole number ≥ 1; got 0": lambda: common(1, 0),
    "num_common to be a whole number ≥ 0; got 1.5": lambda: common_and_individual(1.5, 1, 3),
    "rank to be a whole number ≥ 3; got 2": lambda: common_and_individual(2, rank=2, num_groups=3),
    "either per_group or rank; got per_group=None, rank=None": lambda: common_and_individual(2, num_groups=3),
    r"levels with one node for each group; got lengths \[3, 2\]": lambda: tree([KINDS, NAMES[:2]]),
    r"levels with one node for each group; got lengths \[\]": lambda: tree([]),
    "every node below one other; got 'cat' below 'animal', 'pet'": lambda: tree([["animal", "pet"], ["cat", "cat"]]),
    "per_node to be a whole number or 2 of them; got .1, 2, 3.": lambda: tree([KINDS, NAMES], [1, 2, 3]),
    "at least one component; got per_node=0": lambda: tree([NAMES], 0),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_structures_are_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


UNEQUAL = as_data(np.random.default_rng(0).uniform(size=(5, 45)), np.repeat([0, 1, 2], [40, 2, 3]))


@with_structures
def test_relative_shapes_take_any_structure(structure):
    """aˡ/N_c is the same share of a sample in every group, whatever its size."""
    rates = relative_rates(UNEQUAL, small=0.02, large=0.3, structure=structure)
    shares = rates.a / UNEQUAL.group_sizes / UNEQUAL.X.sum(axis=0).mean()
    np.testing.assert_allclose(shares, structured(structure, 0.02, 0.3).a)


def test_relative_shapes_refuse_structures_of_other_data():
    with pytest.raises(ValueError, match=r"components × 3 groups; got shape \(2, 2\)"):
        relative_rates(UNEQUAL, structure=np.eye(2))
    with pytest.raises(ValueError, match="per_group, rank or structure; got per_group=2, rank=None and structure"):
        relative_rates(UNEQUAL, 2, structure=np.eye(3))


@with_structures
def test_a_prior_tells_the_structure_it_was_made_of(structure):
    """Also where a component's own class is so large that its shape there is above those of others."""
    for rates in (structured(structure), relative_rates(UNEQUAL, structure=structure)):
        rounded = Gamma(np.float32(rates.a), np.float32(rates.b))
        for rate in (rates, rounded):
            np.testing.assert_array_equal(served(rate, UNEQUAL.group_sizes, len(structure)), structure)
            own = own_groups(UNEQUAL, Priors(Gamma(1.0, 1.0), GroupSparse(rate)), len(structure))
            np.testing.assert_array_equal(own, structure)
    nobody = Priors(Gamma(1.0, 1.0), GroupSparse(structured(common(2, 3))))
    assert own_groups(UNEQUAL, nobody, 2) is None


@with_structures
def test_start_from_the_groups_has_a_component_serve_where_it_may(structure):
    rng = np.random.default_rng(0)
    centres = np.kron(np.eye(3), np.ones((4, 1)))  # each group has features of its own
    z = np.repeat([0, 1, 2], [40, 2, 3])
    data = as_data(rng.poisson(100 * centres[:, z]), z)
    for rates in (structured(structure), relative_rates(data, structure=structure)):
        priors = Priors(Gamma(0.6, 20.0), GroupSparse(rates))
        state = cavi.init(data, priors, key=jax.random.key(0), init="groups")
        T, V = np.exp(state.moments.T).T, np.exp(state.moments.V).T
        for i, row in enumerate(structure):
            # Draws from U(0.5, 1.5), at most 6 components together: 0.5/6 at home, 1.5 · 0.02 elsewhere.
            assert V[i, row[z]].min() > 0.05 > 0.031 > V[i, ~row[z]].max(initial=0)
            seen = T[:, i].reshape(3, 4).mean(axis=1)
            assert (seen[~row] < 1).all()
            assert seen[row].min() > 10  # means of samples, a quarter of them or more of each group
        # Those that serve a group explain it together: E[Σ_i v_iτ] = 1 there, within ± 0.5.
        together = np.where(structure[:, z], V, 0).sum(axis=0)
        assert ((together > 0.5) & (together < 1.5))[structure.any(axis=0)[z]].all()


C, K = 3, 5
Z = np.arange(45) % C
RIVALS = {"common and individual": common_and_individual(2, 1, C), "individual": individual(rank=K, num_groups=C)}
BELIEF = {"small": 2.0, "large": 40.0, "scale": 0.5}  # E[λ] of 1 and of 20: what V is drawn with


def draw(structure, seed):
    """Counts of components that serve some groups, 20 times weaker in others."""
    rng = np.random.default_rng(seed)
    T, V = rng.gamma(0.5, 10.0, (30, K)), rng.exponential(size=(K, 45)) * np.where(structure, 1.0, 0.05)[:, Z]
    return as_data(rng.poisson(T @ V).astype(float), Z)


def fit(data, rates, dictionary=None, init="groups", seed=0, **options):
    priors = Priors(dictionary or Gamma(0.5, 10.0), GroupSparse(rates))
    return cavi.run(data, priors, key=jax.random.key(seed), init=init, **options)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("truth", RIVALS)
def test_the_structure_that_data_have_reaches_the_higher_bound(truth, seed):
    """The best of four starts of each; for all of seeds 0 to 3 by 29 nats or more."""
    data, fits = draw(RIVALS[truth], seed), {}
    for name, rows in RIVALS.items():
        starts = [fit(data, structured(rows, **BELIEF), max_steps=150, tol=None, seed=start) for start in range(4)]
        fits[name] = max(starts, key=lambda one: one.elbo[-1])
    assert max(fits, key=lambda name: fits[name].elbo[-1]) == truth
    lam = np.asarray(fits[truth].posterior.lam.mean)
    ratio = lam.max(axis=1) / lam.min(axis=1)
    shared = RIVALS[truth].all(axis=1)
    assert (ratio[shared] < 3).all()  # each E[λ] is a mean over 15 samples: 1.2 to 1.7 in four seeds
    assert (ratio[~shared] > 8).all()  # 20 in truth; 13 to 58 in four seeds
    V = fits[truth].posterior.V.mean
    assert home_groups(V, data.membership)[~shared].tolist() == RIVALS[truth][~shared].argmax(axis=1).tolist()
    assert sorted(component_order(V, data.membership)) == list(range(K))


def test_the_unit_of_the_dictionary_is_none():
    """(bᵗ, bˡ) → (γbᵗ, γbˡ) is (T, V, λ) → (γT, V/γ, γλ): the same bound after every sweep, the same TV.

    As bˡ is large and 1/bˡ hardly there, bᵗ alone decides nothing either: what a unit of X changes is its noise.
    """
    data, gamma = draw(RIVALS["individual"], 0), 255.0
    rates = relative_rates(data, structure=RIVALS["individual"])
    one, other = (
        fit(data, Gamma(rates.a, u * rates.b), Gamma(0.6, u * 20.0), "random", max_steps=20, tol=None)
        for u in (1.0, gamma)
    )
    np.testing.assert_allclose(other.elbo, one.elbo, rtol=1e-9)  # rounding, over 20 sweeps
    np.testing.assert_allclose(other.posterior.T.mean, gamma * one.posterior.T.mean, rtol=1e-6)
    np.testing.assert_allclose(other.posterior.V.mean, one.posterior.V.mean / gamma, rtol=1e-6)


@pytest.mark.parametrize("rows", RIVALS.values(), ids=RIVALS)
def test_equal_shares_give_the_same_fit_where_noise_is_small(rows):
    """Ten times the counts leave every component the same part of every group; with the same shapes they do not.

    The shape 1 of V, aᵗ and N_c, which have no unit, are small beside all counts here; at fewer counts they are not.
    """
    data = draw(rows, 0)
    scaled = [data._replace(X=data.X * u) for u in (1e3, 1e4)]

    def parts(data, rates):
        T, V, _ = (np.asarray(q.mean) for q in fit(data, rates, max_steps=300, tol=None).posterior[:3])
        return (T.sum(axis=0)[:, None] * V / data.X.sum(axis=0)) @ data.membership / data.group_sizes

    rates = [relative_rates(x, structure=rows, small=0.05, large=0.1) for x in scaled]
    few, many, fixed = parts(scaled[0], rates[0]), parts(scaled[1], rates[1]), parts(scaled[1], rates[0])
    np.testing.assert_allclose(many, few, atol=1e-3)  # 1e-5 in three seeds, 0.45 and more between shapes
    assert np.abs(fixed - few).max() > 0.1


def test_a_level_is_no_word():
    with pytest.raises(ValueError, match="expected levels to be sequences of nodes"):
        tree(["v", "a", "a"])
