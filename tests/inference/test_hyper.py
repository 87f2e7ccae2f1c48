"""Learned hyperparameters: the best there are for the factors, tied as asked, and never at the bound's cost."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from conftest import problem
from scipy import optimize, special

from gsnmf.inference import align, cavi, engine, momentum
from gsnmf.inference.alignment import permute
from gsnmf.inference.beginning import with_ties
from gsnmf.inference.hyper import WHAT, best, relearn, tie
from gsnmf.inference.observations import observe
from gsnmf.inference.sweep import moments
from gsnmf.model import Gamma, GroupSparse, Priors, Relevance, as_data
from gsnmf.model.problem import Problem

TIES = {"group sparse": ("all", "component", "group"), "gamma": ("all", "component", "sample")}
FAMILIES = {"group sparse": GroupSparse(Gamma(2.0, 0.5)), "gamma": Gamma(1.5, 2.0)}
DICTIONARY = ("all", "feature", "component")
KEY = jax.random.key(0)


def gamma_of(priors):
    return priors.coefficients.hyperprior or priors.coefficients


def rises(elbo):
    return (np.diff(elbo) >= -1e-10 * abs(elbo[1:])).all()


@pytest.fixture(scope="module", params=FAMILIES)
def slow(request):
    """A small fit of each family, and the gradient of the slow bound in every entry's own log a and log b."""
    with jax.enable_x64(True):
        data, priors = problem(2, F=3, N=4, K=2)[0], Priors(Gamma(0.7, 2.0), FAMILIES[request.param])
        q = cavi.run(data, priors, key=KEY, rank=2, max_steps=3, tol=None, accelerate=False).posterior
        ready, hyper, _ = Problem(data, priors, 2)
        p, z = reference.allocation(data.X, q.T.log_mean, q.V.log_mean), data.membership.argmax(axis=1)

        def bound(log_T, log_V):
            prior_T, prior_V = jax.tree.map(jnp.exp, (log_T, log_V))
            return reference.bound(data.X, z, *q[:3], p, prior_T, prior_V)

        seen = observe(ready)
        held = seen.labels.hold(q)
        columns = 3 if request.param == "group sparse" else 4
        gradient = jax.jit(jax.grad(bound, argnums=(0, 1)))
        return request.param, hyper, held, moments(seen, hyper, held), columns, gradient


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("n", range(3))
def test_learned_values_are_the_block_maximisers(slow, what, n):
    family, hyper, q, m, columns, gradient = slow
    ties, shapes = (DICTIONARY[n], TIES[family][n]), {"dictionary": (3, 2), "coefficients": (2, columns)}
    learn = cavi.learn(*ties, what=what)

    def slopes(priors):
        """By block: the sum over its entries, as their logarithms move together."""
        full = (priors.dictionary.broadcast(3, 2), gamma_of(priors).broadcast(2, columns))
        found = []
        for slope, axis, names in zip(
            gradient(*jax.tree.map(jnp.log, full)), ties, (DICTIONARY[1:], TIES[family][1:]), strict=True
        ):
            over = tuple(k for k, name in enumerate(names) if name != axis)
            found += [slope.a.sum(over)] * (what != "scale") + [slope.b.sum(over)] * (what != "shape")
        return max(float(abs(x).max()) for x in found)

    tied = tie(hyper, learn, shapes)
    learned = relearn(tied, learn, q, m, jnp.ones(len(q.V.a)))
    assert jax.tree.map(jnp.shape, learned) == jax.tree.map(jnp.shape, tied)
    assert slopes(learned) < 1e-9  # rounding of sums of order 10
    assert slopes(tied) > 1e-3  # the check can fail


def test_unequal_values_that_are_not_learned_are_held():
    """The scale of a block of unequal shapes, the shape of one of unequal scales: SciPy finds no better."""
    rng = np.random.default_rng(0)
    E, a, b = rng.gamma(2.0, 3.0, (3, 4)), rng.uniform(0.5, 3, (3, 4)), rng.uniform(0.5, 3, (3, 4))
    L = np.log(E) - 0.2

    def loss(a, b):
        return -np.sum(a * (L - np.log(b)) - E / b - special.gammaln(a))

    for what, f in {"scale": lambda u: loss(a, np.exp(u)), "shape": lambda u: loss(np.exp(u), b)}.items():
        given = Gamma(jnp.asarray(a), jnp.ones((1, 1))) if what == "scale" else Gamma(jnp.ones((1, 1)), jnp.asarray(b))
        found = best(given, jnp.asarray(E), jnp.asarray(L), None, what)
        learned, held = (found.b, found.a) if what == "scale" else (found.a, found.b)
        assert held is (given.a if what == "scale" else given.b)
        top = optimize.minimize_scalar(f, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10})
        np.testing.assert_allclose(learned, np.exp(top.x), rtol=1e-6)  # SciPy compares values, good to √eps


@pytest.mark.parametrize("x64", [False, True])
def test_shapes_of_all_sizes_are_found(x64):
    """E and L of one entry x ~ Gamma(a, b) itself: what is learned from them is a and b."""
    a = np.logspace(-4, 3, 50)[:, None]
    with jax.enable_x64(x64):
        E, L = jnp.asarray(3.0 * a), jnp.asarray(special.digamma(a) + np.log(3.0))
        for what in ("both", "shape"):
            found = best(Gamma(jnp.ones((50, 1)), jnp.full((50, 1), 3.0)), E, L, 0, what)
            # L alone is rounded to eps of itself, and log a − ψ(a) is 1/2a.
            error = 50 * np.finfo(E.dtype).eps * np.maximum(a, 1)
            assert (abs(found.a / a - 1) < error).all()
            assert (abs(found.b / 3 - 1) < error).all()


@pytest.mark.parametrize("accelerate", [False, True])  # each way sees every tie and every kind; together 6 pairs of 9
@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_bound_never_falls_and_is_that_of_the_learned_priors(family, n, accelerate):
    what = WHAT[(n + accelerate) % 3]
    data, priors = problem(3)[0], Priors(Gamma(0.7, 2.0), FAMILIES[family])
    learn = cavi.learn(DICTIONARY[n], TIES[family][n], what=what)
    fit = cavi.run(data, priors, key=KEY, rank=4, max_steps=200, tol=None, accelerate=accelerate, learn=learn)
    assert rises(fit.elbo)
    np.testing.assert_allclose(fit.elbo[-1], cavi.bound(fit.posterior, data, fit.priors), rtol=1e-12)
    assert fit.elbo[-1] > cavi.bound(fit.posterior, data, priors) + 0.1  # and something was learned
    shapes = {"all": (1, 1), "feature": (12, 1), "sample": (1, 15), "group": (1, 3)}
    for gamma, given, axis, along in (
        (fit.priors.dictionary, priors.dictionary, learn.dictionary, (1, 4)),
        (gamma_of(fit.priors), gamma_of(priors), learn.coefficients, (4, 1)),
    ):
        for name in "ab":
            x = getattr(gamma, name)
            if what in ("both", {"a": "shape", "b": "scale"}[name]):
                assert isinstance(x, np.ndarray)
                assert x.shape == shapes.get(axis, along)
            else:
                assert x is getattr(given, name)


LEARN = cavi.learn("component", "group")
GROUPED = Priors(Gamma(0.7, 2.0), FAMILIES["group sparse"])


def run(data=None, priors=GROUPED, **options):
    data = problem(3)[0] if data is None else data
    return cavi.run(data, priors, **{"key": KEY, "rank": 4, "tol": None, "accelerate": False, "learn": LEARN} | options)


def same(one, other, rtol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), one, other)


def test_every_recorded_bound_is_with_the_priors_of_its_sweep():
    seen, data = [], problem(3)[0]
    elbo = run(max_steps=30, callback=seen.append).elbo
    for fit in (*seen, run(max_steps=1), run(max_steps=7)):
        np.testing.assert_allclose(cavi.bound(fit.posterior, data, fit.priors), elbo[fit.num_steps - 1], rtol=1e-12)
    assert [fit.num_steps for fit in seen] == [25, 30]


def test_a_dropped_sweep_drops_what_it_learned():
    """A state whose bound no sweep can reach, and the same with one that any does."""
    data = problem(3)[0]
    whole = Problem(data, GROUPED, 4)
    seen, hyper = observe(whole.data), whole.priors
    state = with_ties(whole, seen, cavi.init(data, GROUPED, key=KEY, rank=4), LEARN)
    state, _, _ = engine._begin(state, None, accelerate=True)
    sweep = jax.jit(momentum.accelerated, static_argnums=3)
    state, _ = sweep(seen, hyper, state, LEARN)  # now its factors mean something
    for bound, kept in ((np.inf, True), (-np.inf, False)):
        given = state._replace(bound=jnp.asarray(bound), momentum=jnp.asarray(3.0))
        after, _ = sweep(seen, hyper, given, LEARN)
        alike = [np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (after.priors, state.priors)), strict=True)]
        assert all(alike) if kept else not any(alike)


def test_going_on_from_a_fit_equals_not_stopping():
    whole, first = run(max_steps=40), run(max_steps=15)
    rest = run(priors=first.priors, start=first, max_steps=25)
    same((rest.posterior, rest.priors), (whole.posterior, whole.priors), 1e-10)


def test_aligned_fits_take_their_learned_priors_along():
    data, fit = problem(3)[0], run(max_steps=7)
    aligned = align(fit, permute(fit.posterior, np.array([2, 0, 3, 1])), data)
    assert not np.allclose(aligned.priors.dictionary.a, fit.priors.dictionary.a)
    np.testing.assert_allclose(cavi.bound(aligned.posterior, data, aligned.priors), fit.elbo[-1], rtol=1e-12)


@pytest.mark.parametrize("batch", [False, True])
def test_many_fits_learn_each_their_own(batch):
    data, keys = problem(3)[0], jax.random.split(KEY, 2)
    options = {"rank": 4, "max_steps": 30, "tol": None, "learn": LEARN}
    fits = cavi.run_many(data, GROUPED, keys=keys, batch=batch, **options)
    for fit, key in zip(fits, keys, strict=True):
        alone = cavi.run(data, GROUPED, key=key, **options)
        same((fit.posterior, fit.priors, fit.elbo), (alone.posterior, alone.priors, alone.elbo), 1e-6)
    assert abs(np.log(fits[0].priors.dictionary.a / fits[1].priors.dictionary.a)).max() > 0.01


def test_the_shape_stays_above_the_one_allowed():
    """Where the free run goes below; and at the limit the scale is still at its best."""
    priors = GROUPED._replace(dictionary=Gamma(2.0, 2.0))
    free, held = (
        run(priors=priors, max_steps=100, learn=cavi.learn("component", least_shape=least)) for least in (None, 1.0)
    )
    assert (free.priors.dictionary.a < 1).any()
    a, b = held.priors.dictionary
    assert a.min() == 1
    np.testing.assert_allclose(b, np.mean(held.posterior.T.mean, axis=0, keepdims=True) / a, rtol=1e-12)
    assert rises(held.elbo)
    assert held.elbo[-1] < free.elbo[-1]


def test_learning_nothing_is_no_part_of_the_program(monkeypatch):
    def never(*_):
        raise AssertionError("learned")

    monkeypatch.setattr(momentum, "relearn", never)
    data = problem(3)[0]
    state = cavi.init(data, GROUPED, key=KEY, rank=4)
    assert state.priors is None
    ready, hyper, _ = Problem(data, GROUPED, 4)
    program = inspect.unwrap(engine.advance)
    for accelerate in (False, True):
        begun, last, tol = engine._begin(state, None, accelerate)
        jax.make_jaxpr(program, static_argnums=7)(observe(ready), hyper, begun, 0, 1, last, tol, accelerate)
    fit = run(learn=None, max_steps=2)
    assert fit.priors is GROUPED
    with pytest.raises(AssertionError, match="learned"):  # the check can fail
        momentum.plain(observe(ready), hyper, state._replace(priors=hyper), LEARN)


@pytest.mark.parametrize("a", [0.5, 2.0])
def test_learned_prior_is_near_the_one_that_drew_the_dictionary(a):
    """Given the prior of V, which fixes the scale. Against the prior that T itself would choose: no sampling error.

    The mean field takes T for sparser than it is: over six seeds and either shape, the learned one was 0.61 to 0.88 of
    T's own, the mean within 6 % of it. The tolerances are about twice as wide.
    """
    rng = np.random.default_rng(0)
    T, V = rng.gamma(a, 10 / a, (40, 3)), rng.gamma(1.5, 1.0, (3, 100))
    one = Gamma(jnp.ones((1, 1)), jnp.ones((1, 1)))
    of_T = best(one, jnp.asarray(T), jnp.asarray(np.log(T)), None, "both")
    data, priors = as_data(rng.poisson(T @ V)), Priors(Gamma(1.0, 1.0), Gamma(1.5, 1.0))
    learned = cavi.run(
        data, priors, key=KEY, rank=3, max_steps=2000, tol=1e-8, learn=cavi.learn("all")
    ).priors.dictionary
    assert 0.4 < (learned.a / of_T.a).item() < 1.1
    assert 0.88 < (learned.mean / of_T.mean).item() < 1.12  # it began at a tenth


def test_learning_stays_finite_in_single_precision():
    """With features and samples without counts, and three components of four that large shapes of λ leave unused."""
    X = np.random.default_rng(0).poisson(2.0, size=(12, 15)).astype(float)
    X[3:5], X[:, 7] = 0, 0
    shapes = np.full((4, 3), [[9.0], [900.0], [900.0], [900.0]])
    priors = Priors(Gamma(0.7, 2.0), GroupSparse(Gamma(shapes, 1e3)))
    with jax.enable_x64(False):
        learn = cavi.learn("feature", "component")
        fit = run(as_data(X, np.arange(15) % 3), priors, max_steps=300, learn=learn, accelerate=True)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves((fit.elbo, fit.posterior, fit.priors)))
        assert all((x > 0).all() for x in jax.tree.leaves(fit.priors))
        # Rounding: the bound may waver by single precision of the sum of its terms' sizes, with shapes of a thousand.
        sizes = [(fit.priors.dictionary, fit.posterior.T), (fit.priors.coefficients.rate, fit.posterior.lam)]
        size = sum(float(np.sum(prior.a * (1 + abs(q.log_mean) + abs(np.log(prior.b))))) for prior, q in sizes)
        assert np.diff(fit.elbo).min() >= -1e-6 * size


BAD = {
    "dictionary to be None or one of 'all', 'feature', 'component'; got 'sample'": {"dictionary": "sample"},
    "coefficients to be None or one of 'all', 'component', 'group', 'sample'; got 'entry'": {"coefficients": "entry"},
    "expected dictionary or coefficients to be learned; got neither": {},
    "what to be one of 'both', 'scale', 'shape', or a pair of them; got 'mean'": {"dictionary": "all", "what": "mean"},
    "or a pair of them; got .'both',.": {"dictionary": "all", "what": ("both",)},
    "dictionary's shape to be learned with least_shape": {"dictionary": "all", "what": "scale", "least_shape": 1.0},
    "least_shape to be None or a positive number; got 0": {"dictionary": "all", "least_shape": 0},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_wishes_are_refused(message):
    with pytest.raises(ValueError, match=message):
        cavi.learn(**BAD[message])


UNEQUAL = Priors(Gamma(np.full((12, 4), 0.7), np.arange(1.0, 5.0)), GroupSparse(Gamma(np.eye(4, 3) + 1, 1e3)))
UNFIT = {
    "learn to be None or made by cavi.learn; got 'all'": (GROUPED, "all"),
    "λ to be learned by 'all', 'component' or 'group'; got 'sample'": (GROUPED, cavi.learn(coefficients="sample")),
    "Gamma coefficients to be learned by 'all', 'component' or 'sample'; got 'group'": (
        Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)),
        cavi.learn(coefficients="group"),
    ),
    "dictionary.b to be tied as it is to be learned, by 'feature'": (UNEQUAL, cavi.learn("feature")),
    "coefficients.a to be tied as it is to be learned, by 'all'": (UNEQUAL, cavi.learn(coefficients="all")),
    "blocks of several values, to learn shape and scale of coefficients together; got blocks of 1, by 'component'": (
        Priors(Gamma(1.0, 1.0), Relevance(Gamma(1.0, 1.0))),
        cavi.learn(coefficients="component"),
    ),
    "dictionary.a ≥ least_shape=1; got 0.7": (GROUPED, cavi.learn("all", least_shape=1)),
}


@pytest.mark.parametrize("message", UNFIT)
def test_priors_that_do_not_fit_the_ties_are_refused(message):
    priors, learn = UNFIT[message]
    with pytest.raises(ValueError, match=message):
        run(priors=priors, learn=learn)
    with pytest.raises(ValueError, match=message):
        cavi.run_many(problem(3)[0], priors, keys=jax.random.split(KEY, 2), rank=4, learn=learn)


def test_ties_that_hold_are_taken_whatever_the_form():
    shapes = {"dictionary": (12, 4), "coefficients": (4, 3)}
    hyper = Problem(problem(3)[0], UNEQUAL, 4).priors
    tied = tie(hyper, cavi.learn("component", "all", what=("both", "scale")), shapes)
    np.testing.assert_array_equal(tied.dictionary.a, np.full((1, 4), 0.7))
    np.testing.assert_array_equal(tied.dictionary.b, [[1.0, 2.0, 3.0, 4.0]])
    assert tied.coefficients.rate.a.shape == (4, 3)  # not learned: unequal it stays
    np.testing.assert_array_equal(tied.coefficients.rate.b, [[1e3]])
