import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from conftest import paper_priors, problem
from sklearn.exceptions import ConvergenceWarning

from gsnmf.inference import cavi
from gsnmf.inference.bound import prior_terms
from gsnmf.inference.convergence import _explain
from gsnmf.inference.engine import advance
from gsnmf.inference.moments import Moments
from gsnmf.inference.observations import observe
from gsnmf.inference.observed import dense
from gsnmf.inference.posterior import Posterior
from gsnmf.inference.sweep import extrapolate, moments, rescale, sweep
from gsnmf.model import Gamma, GroupSparse, Priors, as_data
from gsnmf.model.conjugacy import moves_rates
from gsnmf.model.problem import Problem

PLAIN = {"tol": None, "accelerate": False}


def slow(data, priors, q, p=None):
    """What the reference takes, from a posterior."""
    _, full, K = Problem(data, priors, q.T.a.shape[1])
    family, rows, z = full.coefficients, np.arange(K), np.zeros(data.num_samples, int)
    if family.axes[1] == "group":
        z = data.membership.argmax(axis=1)
    if family.axes[1] == "sample":
        z = np.arange(data.num_samples)
    if family.axes[0] == "all_components":
        rows = np.zeros(K, int)
    gamma, size = (family, (K, data.num_samples)) if q.lam is None else (family.hyperprior, q.lam.a.shape)
    p = reference.allocation(data.X, q.T.log_mean, q.V.log_mean) if p is None else p
    prior_T, prior_V = full.dictionary.broadcast(data.num_features, K), gamma.broadcast(*size)
    priors_of = {"prior_T": prior_T, "prior_V": prior_V, "rows": rows, "shape": family.shape if q.lam else 1.0}
    return {"X": data.X, "z": z, "T": q.T, "V": q.V, "lam": q.lam, "p": p, "W": data.mask, **priors_of}


@pytest.mark.parametrize("hidden", [False, True])
def test_bound_equals_explicit_loops(family, hidden):
    data, _ = problem(0, F=3, N=4, hidden=hidden)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0]])), family)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=3, **PLAIN)
    np.testing.assert_allclose(fit.elbo[-1], reference.bound(**slow(data, priors, fit.posterior)), rtol=1e-12)
    np.testing.assert_allclose(fit.elbo[-1], cavi.bound(fit.posterior, data, priors), rtol=1e-13)


def test_every_recorded_bound_is_the_bound_after_that_sweep():
    data, priors = problem(1)
    elbo = cavi.run(data, priors, key=jax.random.key(0), max_steps=30, **PLAIN).elbo
    for n in (1, 2, 24, 25, 26, 30):  # on both sides of a chunk's end
        fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=n, **PLAIN)
        np.testing.assert_allclose(cavi.bound(fit.posterior, data, priors), elbo[n - 1], rtol=1e-13)


@pytest.mark.parametrize("hidden", [False, True])
def test_each_update_is_the_block_maximiser(family, hidden):
    """Each factor, with q(S) held where the sweep held it: the gradient of the slow bound vanishes there."""
    data, _ = problem(2, F=3, N=4, fractions=True, hidden=hidden)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0]])), family)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=2, **PLAIN)
    old = fit.posterior
    new = cavi.run(data, priors, start=fit, max_steps=1, **PLAIN).posterior
    held = slow(data, priors, old)

    def gradient(site, at):
        def bound(log_q):
            q = at._replace(**{site: jax.tree.map(jnp.exp, log_q)})
            return reference.bound(**{**held, "T": q.T, "V": q.V, "lam": q.lam})

        slopes = jax.grad(bound)(jax.tree.map(jnp.log, getattr(at, site)))
        return max(float(abs(g).max()) for g in slopes)

    assert gradient("T", Posterior(new.T, old.V, old.lam)) < 1e-8
    assert gradient("V", Posterior(new.T, new.V, old.lam)) < 1e-8
    if new.lam is not None:
        assert gradient("lam", new) < 1e-8
    assert gradient("T", old) > 1e-3  # the check can fail: an older factor is no maximiser


def test_q_of_S_is_at_its_optimum():
    data, priors = problem(3, F=3, N=4, K=2)
    q = cavi.run(data, priors, key=jax.random.key(0), max_steps=2, **PLAIN).posterior
    given = slow(data, priors, q)
    best = reference.bound(**given)
    rng = np.random.default_rng(0)
    for _ in range(5):
        p = given["p"] * rng.uniform(0.9, 1.1, given["p"].shape)
        assert reference.bound(**{**given, "p": p / p.sum(axis=1, keepdims=True)}) < best


SHAPES = [(12, 15, 4, 3), (5, 40, 7, 2), (30, 6, 9, 5), (8, 8, 1, 1)]


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_bound_never_falls(seed, accelerate):
    F, N, K, C = SHAPES[seed % 4]
    data, priors = problem(100 + seed, F, N, K, C, fractions=seed % 2 == 0)
    elbo = cavi.run(data, priors, key=jax.random.key(seed), max_steps=600, tol=None, accelerate=accelerate).elbo
    assert len(elbo) == 600
    assert (np.diff(elbo) >= -1e-10 * abs(elbo[1:])).all()


@pytest.mark.parametrize("accelerate", [False, True])
def test_bound_never_falls_whatever_the_family(family, accelerate):
    data, _ = problem(22)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0, 3.0, 4.0]])), family)
    elbo = cavi.run(data, priors, key=jax.random.key(0), max_steps=200, tol=None, accelerate=accelerate).elbo
    assert (np.diff(elbo) >= -1e-10 * abs(elbo[1:])).all()


@pytest.mark.parametrize("n", [1, 2, 24, 25, 26, 60])
def test_accelerated_runs_end_with_the_bound_and_record_no_more_than_it(family, n):
    """Every entry but the last has q(S) as the sweep left it: a bound of the factors that sweep kept, and lower."""
    data, _ = problem(21)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0, 3.0]])), family)
    options = {"key": jax.random.key(3), "tol": None}
    fit = cavi.run(data, priors, max_steps=n, **options)
    np.testing.assert_allclose(fit.elbo[-1], cavi.bound(fit.posterior, data, priors), rtol=1e-13)
    assert (np.diff(fit.elbo) >= -1e-10 * abs(fit.elbo[1:])).all()
    longer = cavi.run(data, priors, max_steps=n + 1, **options)
    assert longer.elbo[n - 1] <= fit.elbo[-1] + 1e-10 * abs(fit.elbo[-1])


def permute(q: Posterior, feature=None, component=None, sample=None, group=None) -> Posterior:
    def take(gamma, rows, columns):
        for axis, order in ((0, rows), (1, columns)):
            gamma = gamma if order is None else Gamma(*(jnp.take(x, order, axis=axis) for x in gamma))
        return gamma

    return Posterior(take(q.T, feature, component), take(q.V, component, sample), take(q.lam, component, group))


@pytest.mark.parametrize("axis", ["feature", "component", "sample", "group"])
def test_permuting_the_problem_permutes_the_result(axis):
    F, N, K, C = 6, 10, 4, 3
    data, priors = problem(4, F, N, K, C)
    rng = np.random.default_rng(0)
    starts = cavi.start(T=rng.uniform(1, 2, (F, K)), V=rng.uniform(1, 2, (K, N)))
    order = rng.permutation({"feature": F, "component": K, "sample": N, "group": C}[axis])
    dictionary, rate = priors.dictionary, priors.coefficients.rate
    X, z, (T0, V0, _) = data.X, data.membership.argmax(axis=1), starts
    if axis == "feature":
        X, T0, dictionary = X[order], T0[order], Gamma(*(x[order] for x in dictionary))
    elif axis == "component":
        T0, V0, dictionary = T0[:, order], V0[order], Gamma(*(x[:, order] for x in dictionary))
        rate = Gamma(*(x[order] for x in rate))
    elif axis == "sample":
        X, z, V0 = X[:, order], z[order], V0[:, order]
    else:
        z, rate = np.argsort(order)[z], Gamma(*(x[:, order] for x in rate))
    one = cavi.run(data, priors, start=starts, max_steps=20, **PLAIN)
    other = cavi.run(
        as_data(X, z), Priors(dictionary, GroupSparse(rate)), start=cavi.start(T=T0, V=V0), max_steps=20, **PLAIN
    )
    expected = permute(one.posterior, **{axis: order})
    assert abs(np.log(expected.T.mean / one.posterior.T.mean)).max() > 0.1 or axis not in ("feature", "component")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), expected, other.posterior)
    np.testing.assert_allclose(other.elbo, one.elbo, rtol=1e-12)


def edge_cases():
    rng = np.random.default_rng(0)
    X = rng.poisson(3.0, size=(6, 8)).astype(float)
    zero = X.copy()
    zero[2], zero[:, 5] = 0, 0
    yield "zero row and column", as_data(zero, np.arange(8) % 3), 6
    yield "all zero", as_data(0 * X, np.arange(8) % 3), 6
    yield "rank above the samples", as_data(X[:, :4], [0, 1, 2, 0]), 9
    yield "one sample", as_data(X[:, :1], [0], group_names=[0, 1, 2]), 6
    yield "one feature", as_data(X[:1], np.arange(8) % 3), 6
    yield "one group", as_data(X, np.zeros(8, int), group_names=[0]), 3
    yield "an empty group", as_data(X, np.arange(8) % 2, group_names=[0, 1, 2]), 6


@pytest.mark.parametrize("init", ["random", "groups"])
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("data", "K"), [pytest.param(d, K, id=name) for name, d, K in edge_cases()])
def test_edges_of_the_input_stay_finite(data, K, x64, init):
    priors = paper_priors(data.num_groups, per_group=K // data.num_groups)
    with jax.enable_x64(x64):
        fit = cavi.run(data, priors, key=jax.random.key(0), init=init, max_steps=60, tol=None)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(fit.posterior))
        assert np.isfinite(fit.elbo).all()
        assert (fit.posterior.T.mean > 0).all()
        assert (fit.posterior.V.mean > 0).all()


@pytest.mark.parametrize("a", [1e-4, 1e-2])
@pytest.mark.parametrize("accelerate", [False, True])
def test_small_shapes_stay_finite_in_single_precision(a, accelerate):
    """exp E[log t] is exp(−10⁴) here, far below the smallest single; zero rows leave nothing else in a row."""
    rng = np.random.default_rng(0)
    X = rng.poisson(5.0, size=(20, 30)).astype(float)
    X[3:6] = 0
    X[:, 7] = 0
    priors = paper_priors(3)._replace(dictionary=Gamma(a, 20.0))
    data = as_data(X, np.arange(30) % 3)
    with jax.enable_x64(False):
        fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=100, tol=None, accelerate=accelerate)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(fit.posterior))
        moments = [getattr(q, m) for q in fit.posterior.sites.values() for m in ("mean", "log_mean")]
        assert all(np.isfinite(x).all() for x in moments)
        assert np.isfinite(fit.elbo).all()
        assert fit.posterior.T.a.dtype == np.float32
        # Rounding: the bound may waver by single precision of the sum of its terms' sizes.
        assert (np.diff(fit.elbo) >= -1e-5 * abs(fit.elbo[1:])).all()


def test_counts_far_below_one_agree_between_precisions():
    """Shapes near 0.005: exp E[log t] is exp(−200), 0 in single precision but for the shift, not yet in double."""
    data = as_data(np.random.default_rng(0).uniform(0.002, 0.008, size=(6, 1)))
    priors = Priors(Gamma(1e-4, 20.0), Gamma(1.0, 1.0))
    double = cavi.run(data, priors, rank=2, key=jax.random.key(0), max_steps=20, **PLAIN)
    assert np.exp(double.posterior.T.log_mean.max()) < 1e-50
    with jax.enable_x64(False):
        single = cavi.run(data, priors, rank=2, key=jax.random.key(0), max_steps=20, **PLAIN)
    np.testing.assert_allclose(single.elbo, double.elbo, rtol=1e-3)  # terms of 10⁴ cancel


def test_single_and_double_precision_agree():
    data, priors = problem(5, 40, 50, 6, 3)
    double = cavi.run(data, priors, key=jax.random.key(0), max_steps=50, **PLAIN)
    with jax.enable_x64(False):
        single = cavi.run(data, priors, key=jax.random.key(0), max_steps=50, **PLAIN)
        assert single.posterior.V.a.dtype == np.float32
        assert not jax.config.jax_enable_x64
    assert double.posterior.V.a.dtype == np.float64
    np.testing.assert_allclose(single.elbo, double.elbo, rtol=1e-5)


def test_tolerance_stops_and_says_so():
    data, priors = problem(6)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=5000, tol=1e-7, accelerate=False)
    assert fit.converged
    assert "at most 1e-07" in fit.message
    assert 2 < fit.num_steps == len(fit.elbo) < 5000
    change = abs(np.diff(fit.elbo)) / abs(fit.elbo[1:])
    assert change[-2] <= 1e-7 < change[:-2].min()  # it is noticed one sweep late, when the bound is at hand


def test_max_steps_stops_and_warns_once():
    data, priors = problem(6)
    with pytest.warns(ConvergenceWarning, match="After 7 sweeps the bound still changed by") as caught:
        fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=7)
    assert len(caught) == 1
    assert not fit.converged
    assert fit.num_steps == 7


def test_a_bound_that_is_not_finite_stops_with_a_sentence():
    data, priors = problem(7)
    huge = priors._replace(dictionary=Gamma(0.6, 1e38))  # a scale whose sums leave the range of single precision
    with jax.enable_x64(False), pytest.warns(ConvergenceWarning, match=r"The bound became \S+ at sweep \d+"):
        fit = cavi.run(data, huge, key=jax.random.key(0), accelerate=False)
    assert not fit.converged
    assert fit.num_steps < 300


def test_a_bound_that_falls_by_more_than_rounding_is_named_with_its_cause():
    data, priors = problem(7)
    large = priors._replace(dictionary=Gamma(np.full((12, 4), 1e6), 20.0))
    said = r"The bound fell by \S+ of itself in sweep \d+, more than rounding explains: float32 .* up to 1.0e\+06"
    with jax.enable_x64(False), pytest.warns(ConvergenceWarning, match=said):
        fit = cavi.run(data, large, key=jax.random.key(0), max_steps=40, **PLAIN)
    assert not fit.converged
    assert (np.diff(fit.elbo) < 0).any()
    exact = cavi.run(data, large, key=jax.random.key(0), max_steps=40, **PLAIN)  # in double precision
    assert exact.message == "All 40 sweeps were made."


def test_shapes_too_small_for_both_factors_are_named_as_the_cause_of_a_fall():
    data, _ = problem(7)
    small = Priors(Gamma(1e-6, 1e-6), Gamma(1e-6, 1.0))
    said = r"float64 cannot hold its terms, with shapes of both T and V down to 1.0e-06: .* is 0; use larger ones\."
    with pytest.warns(ConvergenceWarning, match=said):
        cavi.run(as_data(data.X * 1e-6), small, key=jax.random.key(0), rank=4, max_steps=40, tol=None)


@pytest.mark.parametrize(
    ("T", "V", "said"),
    [
        (Gamma(1e8, 1.0), GroupSparse(Gamma(1e-6, 1.0)), "hyperparameters up to 1.0e+08; use smaller ones"),
        (Gamma(1.0, 1e-6), GroupSparse(Gamma(1.0, 1.0)), "hyperparameters down to 1.0e-06; use larger ones"),
        (Gamma(1e-6, 1.0), Gamma(0.1, 1e3), "hyperparameters down to 1.0e-06; use larger ones"),
    ],
)
def test_the_hyperparameters_farthest_from_1_are_named(T, V, said):
    elbo = np.array([-3.0, -2.0, -2.5])
    assert _explain(2, elbo, np.dtype(float), Priors(T, V)).endswith(f"with {said}.")


def test_going_on_from_a_fit_equals_not_stopping():
    data, priors = problem(8)
    whole = cavi.run(data, priors, key=jax.random.key(0), max_steps=40, **PLAIN)
    first = cavi.run(data, priors, key=jax.random.key(0), max_steps=15, **PLAIN)
    for start in (first, first.posterior):
        rest = cavi.run(data, priors, start=start, max_steps=25, **PLAIN)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), rest.posterior, whole.posterior)


def test_steps_one_by_one_equal_a_run():
    data, priors = problem(8)
    state, elbos = cavi.init(data, priors, key=jax.random.key(0)), []
    for _ in range(6):
        state, elbo = cavi.step(data, priors, state)
        elbos.append(elbo)
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=5, **PLAIN)
    np.testing.assert_allclose(elbos[1:], fit.elbo, rtol=1e-13)


def test_callback_sees_the_fit_so_far():
    data, priors = problem(8)
    seen = []
    fit = cavi.run(data, priors, key=jax.random.key(0), max_steps=60, tol=None, callback=seen.append)
    assert [f.num_steps for f in seen] == [25, 50, 60]
    np.testing.assert_array_equal(seen[-1].elbo, fit.elbo)
    jax.tree.map(np.asarray, seen[0])  # still alive: later sweeps did not take its memory


def test_same_key_same_fit_other_key_other_fit():
    data, priors = problem(9)
    a, b, c = (cavi.run(data, priors, key=jax.random.key(k), max_steps=3, **PLAIN) for k in (0, 0, 1))
    np.testing.assert_array_equal(a.posterior.T.a, b.posterior.T.a)
    assert abs(a.posterior.T.a - c.posterior.T.a).max() > 1e-3
    old_style = cavi.run(data, priors, key=jax.random.PRNGKey(0), max_steps=3, **PLAIN)
    np.testing.assert_array_equal(a.posterior.T.a, old_style.posterior.T.a)


def test_start_from_the_groups_binds_components_to_them():
    rng = np.random.default_rng(0)
    centres = rng.gamma(0.3, 30.0, size=(40, 3))
    z = np.arange(30) % 3
    data = as_data(rng.poisson(centres[:, z]), z)
    state = cavi.init(data, paper_priors(3), key=jax.random.key(0), init="groups")
    T, V = np.exp(state.moments.T).T, np.exp(state.moments.V).T
    for i in range(6):
        distances = [np.linalg.norm(T[:, i] - centres[:, c]) for c in range(3)]
        assert np.argmin(distances) == i // 2
        assert V[i, z == i // 2].min() > 5 * V[i, z != i // 2].max()


def test_start_at_shape_is_the_shape_whatever_its_form():
    data, priors = problem(3)
    np.testing.assert_array_equal(cavi.start_at_shape(data, priors).lam, priors.coefficients.rate.a)
    options = {"key": jax.random.key(0), "max_steps": 1, "tol": None}
    low, given, usual = (
        cavi.run(data, priors, start=s, **options).elbo[0]
        for s in (cavi.start_at_shape(data, priors), cavi.start(lam=priors.coefficients.rate.a), None)
    )
    assert low == given != usual
    for a in (2.0, [2.0, 2.0, 2.0], [[2.0]] * 4):  # what priors may leave to broadcasting is spread out
        open_priors = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(a, 1e6)))
        start = cavi.start_at_shape(data, open_priors, rank=4)
        np.testing.assert_array_equal(start.lam, np.full((4, 3), 2.0))
        assert start.T is start.V is None
        cavi.init(data, open_priors, start=start, rank=4, key=jax.random.key(0))
    assert cavi.start_at_shape(data, Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), rank=4) is None
    with pytest.raises(ValueError, match="expected rank, as no prior's shape fixes"):
        cavi.start_at_shape(data, Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1e6))))


def test_no_array_of_features_components_samples():
    F, N, K, C = 31, 37, 29, 3
    data, priors = problem(10, F, N, K, C)
    state = cavi.init(data, priors, key=jax.random.key(0))
    data, priors, _ = Problem(data, priors)
    jaxpr = jax.make_jaxpr(sweep)(observe(data), priors, state.moments)
    sizes = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars]
    assert max(sizes) == max(F * N, F * K, K * N)


def test_only_values_changing_compiles_nothing():
    data, priors = problem(11, F=13, N=17)
    cavi.run(data, priors, key=jax.random.key(0), max_steps=30, tol=None)
    compiled = advance._cache_size()
    other = as_data(2 * data.X, data.membership.argmax(axis=1), sample_names=list("abcdefghijklmnopq"))
    harder = jax.tree.map(lambda x: 2 * x, priors)
    cavi.run(other, harder, key=jax.random.key(1), max_steps=55, tol=1e-3)
    assert advance._cache_size() == compiled


@pytest.mark.parametrize("batch", [False, True, None])
def test_many_fits_equal_as_many_runs(batch):
    data, priors = problem(13)
    other = as_data(data.X[::-1].copy(), data.membership.argmax(axis=1))
    keys = jax.random.split(jax.random.key(0), 2)
    options = {"max_steps": 200, "tol": 1e-4}
    for datas in (data, [data, other]):
        fits = cavi.run_many(datas, priors, keys=list(keys), batch=batch, **options)
        each = [data, data] if datas is data else datas
        for fit, key, one in zip(fits, keys, each, strict=True):
            alone = cavi.run(one, priors, key=key, **options)
            assert fit.num_steps == alone.num_steps
            assert fit.converged
            np.testing.assert_allclose(fit.elbo, alone.elbo, rtol=1e-9)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), fit.posterior, alone.posterior)


def test_many_fits_warn_once_together():
    data, priors = problem(13)
    with pytest.warns(ConvergenceWarning, match="2 of 2 fits did not converge. After 3 sweeps") as caught:
        cavi.run_many(data, priors, keys=jax.random.split(jax.random.key(0), 2), max_steps=3)
    assert len(caught) == 1


OTHER_GROUPS = as_data(problem(13)[0].X, [f"other {n}" for n in problem(13)[0].membership.argmax(axis=1)])


@pytest.mark.parametrize(
    ("data", "keys", "message"),
    [
        (problem(13)[0], jax.random.key(0), "several keys, jax.random.split"),
        (problem(13)[0].X, jax.random.split(jax.random.key(0), 2), "expected Data, as made by as_data, or a list"),
        ([problem(13)[0]], jax.random.split(jax.random.key(0), 2), "expected one Data, or 2 of one shape"),
        ([OTHER_GROUPS, problem(13)[0]], jax.random.split(jax.random.key(0), 2), "with the same groups"),
        ([problem(13)[0], problem(13, N=16)[0]], jax.random.split(jax.random.key(0), 2), "or 2 of one shape"),
    ],
)
def test_bad_batches_are_refused(data, keys, message):
    with pytest.raises(ValueError, match=message):
        cavi.run_many(data, problem(13)[1], keys=keys)


@functools.cache
def plain_and_accelerated(seed):
    """Two fits from one start, on data drawn from the model with a component for each of two groups."""
    rng = np.random.default_rng(seed)
    z = np.arange(14) % 2
    T, V = rng.gamma(0.5, 20.0, size=(10, 2)), rng.exponential(size=(2, 14)) * np.where(z == [[0], [1]], 1.0, 0.02)
    data, priors, key = as_data(rng.poisson(T @ V), z), paper_priors(2, per_group=1), jax.random.key(seed)
    plain = cavi.run(data, priors, key=key, max_steps=20_000, tol=1e-15, accelerate=False)
    return data, priors, plain, cavi.run(data, priors, key=key, max_steps=20_000, tol=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_acceleration_ends_no_lower_and_at_a_fixed_point(seed):
    """Where a bound has many optima, as with more components than the data need, either run may find the better one."""
    data, priors, plain, fast = plain_and_accelerated(seed)
    assert fast.elbo[-1] >= plain.elbo[-1] - 1e-10 * abs(plain.elbo[-1])
    again = cavi.run(data, priors, start=fast, max_steps=1, **PLAIN).posterior
    for before, after in zip(fast.posterior.sites.values(), again.sites.values(), strict=True):
        np.testing.assert_allclose(after.mean, before.mean, rtol=1e-6)


def test_acceleration_needs_fewer_sweeps():
    """To within 1e-9 of the plain run's last bound; momentum that goes backwards is dropped, and costs sweeps."""
    needed = np.zeros(2)
    for seed in range(20):
        *_, plain, fast = plain_and_accelerated(seed)
        enough = plain.elbo[-1] - 1e-9 * abs(plain.elbo[-1])
        needed += [np.argmax(run.elbo >= enough) + 1 for run in (plain, fast)]
    assert needed[1] < 0.7 * needed[0], needed


def test_momentum_goes_on_in_the_direction_of_the_last_sweep():
    """x + w (x − x_previous) + w/5 (x − x_ahead) with w = t/(t + ½), and half of it for T; labels stay."""
    rng = np.random.default_rng(0)
    new, old, begun = (Moments(*rng.normal(size=(4, 2, 3)), labels=rng.uniform(size=3)) for _ in range(3))
    w = 4 / 4.5
    moved = extrapolate(new, old, begun, np.array(4.0))
    for name, by in {"T": w / 2, "V": w, "exposure": w, "lam": w}.items():
        x, previous, ahead = (getattr(m, name) for m in (new, old, begun))
        np.testing.assert_allclose(getattr(moved, name), x + by * (x - previous) + by / 5 * (x - ahead), rtol=1e-12)
    np.testing.assert_array_equal(moved.labels, new.labels)


def test_bound_with_an_older_q_of_S_equals_explicit_loops(family):
    data, _ = problem(15, F=3, N=4)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0]])), family)
    old = cavi.run(data, priors, key=jax.random.key(0), max_steps=2, **PLAIN).posterior
    new = cavi.run(data, priors, start=old, max_steps=5, **PLAIN).posterior
    ready, hyper, _ = Problem(data, priors, 2)
    seen = observe(ready)
    before, after = (seen.labels.hold(q) for q in (old, new))
    m, moved = (moments(seen, hyper, q) for q in (before, after))
    S = seen.labels.allocate(seen.X, m)
    value = seen.labels.moved(S, m, moved) + seen.X.base + prior_terms(seen, hyper, after)
    held = slow(data, priors, old)["p"]
    np.testing.assert_allclose(value, reference.bound(**slow(data, priors, new, held)), rtol=1e-12)


@pytest.mark.parametrize("width", [1, 4, 5, 15])
def test_tiles_change_nothing(width, monkeypatch):
    """Samples cut into tiles, the last one not full, against the whole at once."""
    data, priors = problem(16)
    m = cavi.init(data, priors, key=jax.random.key(0)).moments
    ready, hyper, _ = Problem(data, priors)
    whole = observe(ready)
    monkeypatch.setattr(dense, "TILE", width * 12 * 8)
    cut = whole._replace(X=dense.cut_into_tiles(ready.X, ready.mask))
    assert whole.X.tiles.shape == (1, 15, 12)
    assert cut.X.tiles.shape == (-(-15 // width), width, 12)
    one, other = sweep(whole, hyper, m), sweep(cut, hyper, m)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one, other)


def test_going_on_in_another_precision_and_with_another_problem():
    data, priors = problem(8)
    with jax.enable_x64(False):
        single = cavi.run(data, priors, key=jax.random.key(0), max_steps=5, **PLAIN)
        single = jax.tree.map(np.asarray, single.posterior)
    assert cavi.run(data, priors, start=single, max_steps=2, **PLAIN).posterior.T.a.dtype == np.float64
    with pytest.raises(ValueError, match=r"expected a posterior of shapes .* got .*'V': .4, 15."):
        cavi.run(problem(8, N=16)[0], priors, start=single)
    with pytest.raises(ValueError, match="one number of components; got rank=2"):
        cavi.run(data, priors, start=single, rank=2)
    free = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(1.0, 1.0)))
    assert cavi.run(data, free, start=single, max_steps=2, **PLAIN).posterior.T.a.shape == (12, 4)
    with pytest.raises(ValueError, match=r"expected a Posterior, as in fit.posterior; got Priors"):
        cavi.bound(priors, data, priors)


def test_scale_step_is_the_best_there_is(family):
    """No other γ gives a higher bound, for each component; and it moves."""
    data, _ = problem(14, F=6, N=9)
    priors = Priors(Gamma(0.7, np.array([[1.0, 2.0]])), family)
    q = cavi.run(data, priors, key=jax.random.key(0), max_steps=2, **PLAIN).posterior
    ready, hyper, _ = Problem(data, priors, 2)
    seen = observe(ready)
    best = rescale(seen, hyper, seen.labels.hold(q)).posterior
    top = cavi.bound(best, data, priors)
    assert top > cavi.bound(q, data, priors) + 1e-6
    np.testing.assert_allclose(best.T.mean @ best.V.mean, q.T.mean @ q.V.mean, rtol=1e-12)
    for factor in (0.99, 1.01):
        for i in range(2):
            gamma = jnp.ones(2).at[i].set(factor)
            lam = best.lam
            if moves_rates(family):  # a λ for all components stays
                lam = lam._replace(b=lam.b * gamma[:, None])
            V = best.V._replace(b=best.V.b / gamma[:, None])
            moved = Posterior(best.T._replace(b=best.T.b * gamma[None, :]), V, lam)
            assert cavi.bound(moved, data, priors) < top


DATA, PRIORS = problem(12)
BAD_CALLS = {
    "expected key=jax.random.key": {},
    "expected key to be a JAX key, jax.random.key.0.; got 3": {"key": 3},
    "init to be one of 'random', 'groups'; got 'nndsvd'": {"key": jax.random.key(0), "init": "nndsvd"},
    "max_steps to be a whole number ≥ 1; got 0": {"key": jax.random.key(0), "max_steps": 0},
    "max_steps to be a whole number ≥ 1; got 2.5": {"key": jax.random.key(0), "max_steps": 2.5},
    "tol to be None or a number ≥ 0; got -1": {"key": jax.random.key(0), "tol": -1},
    "tol to be None or a number ≥ 0; got 'a'": {"key": jax.random.key(0), "tol": "a"},
    "accelerate to be True or False; got 'no'": {"key": jax.random.key(0), "accelerate": "no"},
    "callback to be a function of a Fit; got 3": {"key": jax.random.key(0), "callback": 3},
    "expected one key, jax.random.key": {"key": jax.random.split(jax.random.key(0), 2)},
    r"start of T to have shape \(12, 4\); got \(4, 12\)": {"start": cavi.start(T=np.ones((4, 12)))},
    "start of V to be nonnegative and finite": {"start": cavi.start(V=-np.ones((4, 15)))},
    r"start of lam to have shape \(4, 3\); got \(3,\)": {"start": cavi.start(lam=np.ones(3))},
    "start as made by cavi.start.*got .*tuple": {"start": (1, 2)},
    "one number of components; got rank=5": {"key": jax.random.key(0), "rank": 5},
}


@pytest.mark.parametrize("message", BAD_CALLS)
def test_bad_calls_are_refused(message):
    with pytest.raises(ValueError, match=message):
        cavi.run(DATA, PRIORS, **BAD_CALLS[message])


def test_families_without_lambda_refuse_what_needs_it():
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
    with pytest.raises(ValueError, match="expected no lam, as Gamma"):
        cavi.run(DATA, priors, rank=4, start=cavi.start(lam=np.ones((4, 3))))
    with pytest.raises(ValueError, match="coefficients with λ by group for init='groups'; got Gamma"):
        cavi.run(DATA, priors, rank=4, key=jax.random.key(0), init="groups")
    fit = cavi.run(DATA, priors, rank=4, key=jax.random.key(0), max_steps=3, tol=None)
    assert fit.posterior.lam is None
    assert cavi.paper_bound_gap(fit.posterior, DATA) == 0
