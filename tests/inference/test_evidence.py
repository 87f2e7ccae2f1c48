import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import results
from scipy.special import gammaln, logsumexp

from gsnmf.inference import Evidence, evidence, gibbs, upper_evidence
from gsnmf.inference.evidence import _gather
from gsnmf.inference.gibbs import draw_prior, reverse_sweep
from gsnmf.inference.particles import Run, resample
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, Problem, as_data

KEY = jax.random.key(0)
X = np.array([[2, 0, 5], [1, 3, 1]])
MASK = np.array([[1, 1, 0], [1, 1, 1]])
PRIORS = Priors(Gamma(1.5, 1.0), GroupSparse(Gamma(3.0, 0.5)))
FEW = {"rank": 2, "num_particles": 200, "num_stages": 20}
CASES = {
    "labels": as_data(X, [0, 0, 1]),
    "hidden and unlabelled": as_data(X, [0, None, 1], mask=MASK, label_prior=Dirichlet(np.array([2.0, 1.0]))),
    "multi-label": as_data(X, [0, {0, 1}, 1]),
}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def from_the_prior(data, draws=400_000):
    """log p(X) and its error, by the mean of p(X | T, V) over draws of the model's prior, in NumPy."""
    rng = np.random.default_rng(1)
    z = np.tile(np.argmax(np.asarray(data.membership), axis=1), (draws, 1))
    log_p = np.zeros(draws)
    if data.num_unlabelled:  # known labels are 0 and 1
        pi = rng.beta(2.0, 1.0, size=draws)
        z[:, 1] = rng.uniform(size=draws) > pi
        log_p += np.log(pi) + np.log1p(-pi)
    lam = rng.gamma(3.0, 0.5, (draws, 2, 2))
    rates = np.take_along_axis(lam, z[:, None, :], axis=2)
    if data.several is not None:
        rates[:, :, 1] = lam.mean(axis=2)
    M = rng.gamma(1.5, 1.0, (draws, 2, 2)) @ rng.exponential(1 / rates)
    W = np.ones(X.shape) if data.mask is None else np.asarray(data.mask)
    log_p += (W * (X * np.log(M) - M - gammaln(X + 1))).sum((1, 2))
    value = logsumexp(log_p) - np.log(draws)
    return value, np.exp(log_p - value).std() / np.sqrt(draws)


@pytest.mark.parametrize("case", CASES)
def test_evidence_is_the_mean_of_the_likelihood_over_the_prior(case):
    """Within 4 standard errors, both sides' together: 0.03 to 0.12 over 24 keys, 0.075 on average."""
    truth, error = from_the_prior(CASES[case])
    found = evidence(CASES[case], PRIORS, key=KEY, **FEW, num_filters=8)
    assert error < 0.01
    assert 0 < found.error < 0.2
    assert abs(found.value - truth) < 4 * np.hypot(found.error, error), (found, truth)
    assert found.effective.shape == (8, 20)
    assert ((found.effective > 0) & (found.effective <= 1 + 1e-9)).all()
    assert ((found.ancestors >= 1) & (found.ancestors <= 200)).all()
    assert found.stages[-1] == 1


def test_evidence_from_above_is_near():
    """From one draw of the posterior, the end of a chain: 1/Ẑ of 8 filters has an error of about 0.1."""
    data = CASES["labels"]
    problem = Problem(data, PRIORS, 2)
    keys = jax.random.split(KEY, 200)
    z, _ = jax.jit(lambda z: jax.lax.scan(lambda z, k: (gibbs.sweep(k, problem, z), None), z, keys))(
        draw_prior(KEY, problem)
    )
    found = upper_evidence(data, PRIORS, z, key=KEY, num_particles=200, num_stages=20, num_filters=8)
    assert abs(found.value - from_the_prior(data)[0]) < 0.4, found


@pytest.mark.slow
def test_evidence_from_above_is_unbiased_for_the_inverse():
    """The mean of p(X)/Ẑ over exact draws from the posterior is 1, within 4 standard errors of about 0.05.

    A filter that did not keep the path would have a mean of about exp(variance) > 1.2.
    """
    data = CASES["hidden and unlabelled"]
    problem = Problem(data, PRIORS, 2)
    log_p, _ = from_the_prior(data)
    z, ratios = draw_prior(KEY, problem), []
    many = jax.jit(lambda z, keys: jax.lax.scan(lambda z, key: (gibbs.sweep(key, problem, z), None), z, keys)[0])
    for seed in range(150):
        z = many(z, jax.random.split(jax.random.key(seed), 30))  # nearly independent of the one before
        found = upper_evidence(
            data, PRIORS, z, key=jax.random.key(seed), num_particles=32, num_stages=15, num_filters=1
        )
        ratios.append(np.exp(log_p - found.value))
    error = np.std(ratios) / np.sqrt(150)
    assert error < 0.08
    assert abs(np.mean(ratios) - 1) < 4 * error, (np.mean(ratios), error)


@pytest.mark.slow
def test_reverse_sweeps_leave_the_posterior_alone():
    """Forwards and backwards have one invariant distribution: means of logs agree within 4 standard errors."""
    problem = Problem(CASES["hidden and unlabelled"], PRIORS, 2)

    def chain(step):
        def one(z, key):
            z = step(key, problem, z)
            return z, jnp.stack([jnp.log(z[site]).mean() for site in ("T", "V", "lam")] + [z["pi"][0], 1.0 * z["z"][1]])

        keys = jax.random.split(jax.random.key(2), (200, 100))
        return jax.vmap(lambda keys: jax.lax.scan(one, draw_prior(keys[0], problem), keys)[1][20:].mean(axis=0))(keys)

    one, two = (np.asarray(jax.jit(chain, static_argnums=0)(step)) for step in (gibbs.sweep, reverse_sweep))
    error = np.sqrt((one.var(axis=0) + two.var(axis=0)) / 200)
    assert (abs(one.mean(axis=0) - two.mean(axis=0)) < 4 * error).all(), (one.mean(axis=0), two.mean(axis=0), error)


def test_resampling_is_unbiased_and_keeps_the_first():
    weights = jnp.array([0.34, 0.05, 0.6, 0.01])
    keys = jax.random.split(KEY, 4000)
    chosen = np.asarray(jax.vmap(lambda key: resample(key, weights))(keys))
    counts = np.stack([(chosen == n).sum(axis=1) for n in range(4)], axis=1)
    np.testing.assert_allclose(counts.mean(axis=0), 4 * weights, atol=0.04)  # 4 standard errors of at most 0.008
    assert (abs(counts - 4 * np.asarray(weights)) < 1).all()
    kept = np.asarray(jax.vmap(lambda key: resample(key, weights, True))(keys))
    assert (kept[:, 0] == 0).all()
    # Given that the first slot of four has the first particle: as often as counts² says among all that have it.
    expected = (counts[:, 0] * (counts[:, 0] == 2)).mean() / counts[:, 0].mean()
    assert abs(((kept == 0).sum(axis=1) == 2).mean() - expected) < 0.04


def test_filters_are_averaged_with_a_jackknife_error():
    problem = Problem(CASES["labels"], PRIORS, 2)
    runs = [Run(total, np.ones(3), np.ones(3), 5) for total in (0.0, 1.0, 2.5)]
    base = -gammaln(X + 1).sum()
    lower, upper = (_gather(runs, np.ones(3), problem, sign) for sign in (1, -1))
    assert isinstance(lower, Evidence)
    np.testing.assert_allclose(lower.value, base + np.log(np.mean(np.exp([0, 1, 2.5]))))
    np.testing.assert_allclose(upper.value, base - np.log(np.mean(np.exp([0, -1, -2.5]))))
    without = [np.log(np.mean(np.exp(x))) for x in ([1, 2.5], [0, 2.5], [0, 1])]
    np.testing.assert_allclose(lower.error, np.sqrt(2 * np.var(without)))
    assert np.isnan(_gather(runs[:1], np.ones(3), problem, 1).error)


@pytest.mark.slow
def test_stages_are_placed_and_both_sides_meet():
    """On data from the model; the estimates differ by less than 4 of their errors, and by less than 2 nats."""
    rng = np.random.default_rng(0)
    groups = np.arange(8) % 2
    shape = as_data(np.zeros((6, 8)), groups)
    z = draw_prior(KEY, Problem(shape, PRIORS, 2))
    data = as_data(rng.poisson(z["T"] @ z["V"]), groups)
    lower = evidence(data, PRIORS, key=KEY, rank=2)
    upper = upper_evidence(data, PRIORS, z, key=KEY)
    assert len(lower.stages) % 20 == 0
    assert (np.diff(lower.stages) > 0).all()
    assert abs(lower.value - upper.value) < min(2, 4 * np.hypot(lower.error, upper.error))


BAD = {
    "fractions": ({"data": as_data(X + 0.5, [0, 0, 1])}, "expected X to hold whole numbers, .* round X"),
    "particles": ({"num_particles": 3}, "expected num_particles to be a whole number ≥ 8; got 3"),
    "stages": ({"num_stages": 0}, "expected num_stages to be a whole number ≥ 1; got 0"),
    "filters": ({"num_filters": 0}, "expected num_filters to be a whole number ≥ 1; got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    wrong, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        evidence(**{"data": CASES["labels"], "priors": PRIORS, "key": KEY, "rank": 2} | wrong)


def test_a_truth_of_other_shapes():
    with pytest.raises(ValueError, match=r"expected the truth to have sites of shapes .*lam.*; got \{'T': \(2, 2\)\}"):
        upper_evidence(CASES["labels"], PRIORS, {"T": np.ones((2, 2))}, key=KEY)


def test_the_kept_particle_is_any_of_its_siblings():
    """A filter of two states by its own code of resampling: E[p/Ẑ] is 1, as conditional filters must have it.

    If the kept path were always the first of its siblings, the mean would be 0.990 here, ten standard errors below.
    """
    stages, num, repeats = 5, 5, 20_000
    likelihood, move = np.array([0.9, 0.2]), np.array([[0.8, 0.2], [0.3, 0.7]])
    exact = np.array([0.5, 0.5])
    for _ in range(stages):
        exact = (exact * likelihood) @ move
    # paths of (z_0, ..., z_stages) given all observations, by enumeration
    paths = np.array(list(itertools.product((0, 1), repeat=stages + 1)))
    steps = [likelihood[paths[:, n]] * move[paths[:, n], paths[:, n + 1]] for n in range(stages)]
    p = 0.5 * np.prod(steps, axis=0)
    assert p.sum() == pytest.approx(exact.sum())

    def one(key):
        keys = jax.random.split(key, stages + 2)
        path = jnp.asarray(paths)[jax.random.choice(keys[0], len(paths), p=jnp.asarray(p / p.sum()))]
        z = jax.random.bernoulli(keys[1], 0.5, (num,)).astype(int).at[0].set(path[0])
        total = 0.0
        for n in range(stages):
            weights = jnp.asarray(likelihood)[z]
            total += jnp.log(weights.mean())
            chosen = resample(keys[n + 2], weights / weights.sum(), keep_first=True)
            u = jax.random.uniform(jax.random.fold_in(keys[n + 2], 7), (num,))
            z = (u < jnp.asarray(move)[z[chosen], 1]).astype(int).at[0].set(path[n + 1])
        return jnp.exp(-total)

    inverse = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), repeats))) * p.sum()
    assert abs(inverse.mean() - 1) < 4.5 * inverse.std() / np.sqrt(repeats)  # one failure in 10⁵ seeds


def test_other_data_of_the_same_shape_compile_nothing():
    one, other = (as_data(X + n, [0, 0, 1]) for n in (1, 2))
    options = {"rank": 2, "num_particles": 8, "num_stages": 5, "num_filters": 1}
    evidence(one, PRIORS, key=KEY, **options)
    assert results.compilations(lambda: evidence(other, PRIORS, key=KEY, **options)) == 0
