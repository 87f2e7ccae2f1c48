import functools

import jax
import numpy as np
import pytest
import results
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC

from gsnmf.inference import Posterior, cavi, mcmc, to_arviz
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data

RUNS = {"nuts": mcmc.run_nuts, "gibbs": mcmc.run_gibbs}
GROUPS = np.array([0, 0, 1, 1, 0, 0, 1, 1])
QUIET = {"key": jax.random.key(1), "progress_bar": False}


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def counts():
    """Six features of eight samples, of two components that each prefer a group."""
    rng = np.random.default_rng(0)
    T = rng.gamma(1.0, 5.0, size=(6, 2))
    V = np.where(np.arange(2)[:, None] == GROUPS, 1.0, 0.2) * rng.gamma(2.0, 1.0, size=(2, 8))
    return rng.poisson(T @ V)


X = counts()
DATA = as_data(X, GROUPS)
PRIORS = Priors(Gamma(1.0, 5.0), GroupSparse(Gamma(3.0, 0.5)))


def draws_of(run):
    return {site: np.asarray(draws) for site, draws in run.get_samples(group_by_chain=True).items()}


@functools.cache
def sampled(name):
    if name == "nuts":
        options = {"num_warmup": 300, "num_samples": 800, "num_chains": 2, "chain_method": "sequential"}
        return draws_of(mcmc.run_nuts(DATA, PRIORS, **QUIET, rank=2, **options))
    options = {"num_warmup": 200, "num_samples": 2000, "num_chains": 4, "scale_move": name == "gibbs"}
    return draws_of(mcmc.run_gibbs(DATA, PRIORS, **QUIET, rank=2, **options))


def invariants(z):
    """Of every draw, what the order and, but for the last, the scale of components do not change."""
    T, V, lam = z["T"], z["V"], z["lam"]
    M = T @ V
    return {
        "an entry of TV": M[..., 0, 0],
        "the sum of TV": M.sum((-1, -2)),
        "log likelihood": (X * np.log(M) - M).sum((-1, -2)),
        "Σ λv": (lam[..., GROUPS] * V).sum((-1, -2)),
        "log ΣT/Σλ": np.log((T.sum(-2) / lam.sum(-1)).sum(-1)),
        "log Σλ": np.log(lam.sum((-1, -2))),
    }


# Six |z| < 4 fail by chance in 4 of 10,000 runs; the seeds are fixed, so they fail always or never.
@pytest.mark.slow
def test_gibbs_agrees_with_nuts():
    one, two = invariants(sampled("nuts")), invariants(sampled("gibbs"))
    for name in one:
        error = 0.0
        for draws in (one[name], two[name]):
            size = effective_sample_size(draws)
            assert size > 400, (name, size)
            assert split_gelman_rubin(draws) < 1.02, name
            error += draws.var() / size
        z = (one[name].mean() - two[name].mean()) / np.sqrt(error)
        assert abs(z) < 4, (name, z)


@pytest.mark.slow
def test_the_scale_move_pays():
    """Forty times the effective draws of log ΣT, where the estimates of either vary by a third: ten is safe."""
    with_it, without = (
        effective_sample_size(np.log(sampled(name)["T"].sum((-1, -2)))) for name in ("gibbs", "gibbs without the move")
    )
    assert with_it > 10 * without, (with_it, without)


# K = 1 and T fixed by a prior too sharp for X to move it: then S = X, and v_τ is exactly Gamma. With a shape of 1e5 the
# ten or twenty counts of a feature move its t by 1e-4 of itself at most; the error of 2000 draws is fifty times that.
SHARP, V_PRIOR, T_FIXED = 1e5, Gamma(1.5, 2.0), np.array([[2.0], [5.0]])
FEW = np.array([[3, 0, 7], [9, 1, 20]])


def fixed(shape):
    return Gamma(shape, T_FIXED / shape)


def exact(V=V_PRIOR):
    return Gamma(V.a + FEW.sum(0), 1 / (1 / V.b + T_FIXED.sum()))


# Six |z| < 4.5 fail by chance in 4 of 100,000 runs.
@pytest.mark.parametrize("name", RUNS)
def test_one_component_with_fixed_dictionary_is_exact(name):
    data, priors = as_data(FEW), Priors(fixed(SHARP), V_PRIOR)
    fit = cavi.run(data, priors, key=jax.random.key(0), rank=1, tol=None, max_steps=20)
    options = {"num_warmup": 500, "num_samples": 2000, "num_chains": 1}
    draws = draws_of(RUNS[name](data, priors, **QUIET, start=fit, **options))
    assert set(draws) == {"T", "V"}
    V, q = draws["V"][:, :, 0], exact()
    for power, moment in {1: q.mean, 2: q.b**2 * q.a * (q.a + 1)}.items():
        size = np.array([effective_sample_size(V[:, :, n] ** power) for n in range(3)])
        z = ((V**power).mean((0, 1)) - moment) / np.sqrt((V**power).var((0, 1)) / size)
        assert (abs(z) < 4.5).all(), z


@pytest.mark.parametrize("family", [V_PRIOR, GroupSparse(Gamma(1e14, 2e-14))], ids=["gamma", "group sparse"])
def test_coordinate_ascent_is_exact_there_too(family):
    """A fixed λ makes V's prior Gamma(1, 1/λ); sharper priors still, as here nothing has to move through them."""
    priors = Priors(fixed(1e14), family)
    fit = cavi.run(as_data(FEW, [0, 0, 1]), priors, key=jax.random.key(0), rank=1, tol=None, max_steps=50)
    q = exact(family if family is V_PRIOR else Gamma(1.0, 0.5))
    np.testing.assert_allclose(fit.posterior.V.a[0], q.a, rtol=1e-10)
    np.testing.assert_allclose(np.broadcast_to(fit.posterior.V.b, (1, 3)), np.full((1, 3), q.b), rtol=1e-10)


def test_single_precision_thinning_and_one_chain(capsys):
    with jax.enable_x64(False):
        options = {"num_warmup": 2, "num_samples": 14, "num_chains": 1, "thinning": 3, "chain_method": "parallel"}
        run = mcmc.run_gibbs(DATA, PRIORS, **QUIET, rank=3, **options)
        run.print_summary()
        draws = run.get_samples(group_by_chain=True)
        shapes = {"T": (1, 4, 6, 3), "V": (1, 4, 3, 8), "lam": (1, 4, 3, 2)}
        assert {site: values.shape for site, values in draws.items()} == shapes
        for values in draws.values():
            assert values.dtype == np.float32
            assert (values > 0).all()
    assert "lam[2,1]" in capsys.readouterr().out


def start_of(start, num_chains=3, priors=PRIORS, data=DATA, init="random"):
    return mcmc._begin(data, priors, jax.random.key(0), 2, start, init, num_chains).z


def posterior(F=6, K=2, N=8, C=2):
    rng = np.random.default_rng(3)
    return Posterior(*(Gamma(*rng.uniform(0.5, 9, (2, *shape))) for shape in ((F, K), (K, N), (K, C))))


def test_chains_start_at_draws_from_a_posterior():
    """Each at its own: 400 of them have the means and spreads of q.

    |z| < 5 on 32 means fails by chance in 2 of 100,000 runs. A shape of 0.5 has a kurtosis of 15: then a spread is off
    by √(14/400)/2 = 9 %, and by 50 % as rarely.
    """
    z = start_of(posterior(), num_chains=400)
    for site, q in posterior().sites.items():
        assert z[site].shape == (400, *q.a.shape)
        spread = np.sqrt(q.a) * q.b
        assert (abs(z[site].mean(axis=0) - q.mean) < 5 * spread / np.sqrt(400)).all()
        assert (abs(z[site].std(axis=0) / spread - 1) < 0.5).all()


def test_random_starts_differ_and_fit_the_data():
    z = start_of(None)
    assert (abs(np.diff(z["T"], axis=0)) > 0).all()
    M = (z["T"] @ z["V"]).mean((-1, -2))
    assert (3 * X.mean() > M).all()
    assert (X.mean() / 3 < M).all()
    # λ at its conditional mean: (a + N_c) / (1/b + Σ v).
    np.testing.assert_allclose(z["lam"][:, :, 0], (3.0 + 4) / (2.0 + z["V"][:, :, GROUPS == 0].sum(-1)), rtol=1e-12)


def test_starts_are_the_same_in_either_precision():
    for start in (None, posterior()):
        double = start_of(start)
        with jax.enable_x64(False):
            single = {site: np.asarray(values, float) for site, values in start_of(start).items()}
        for site, values in double.items():
            np.testing.assert_allclose(single[site], values, rtol=1e-5)


def test_given_means_start_every_chain():
    T, V = np.ones((6, 2)), np.zeros((2, 8))
    z = start_of(cavi.start(T=T, V=V, lam=np.full((2, 2), 7.0)))
    assert (z["V"] > 0).all()
    np.testing.assert_allclose(z["lam"], np.full((3, 2, 2), 7.0), rtol=1e-11)
    assert set(start_of(cavi.start(T=T), priors=Priors(PRIORS.dictionary, Gamma(1.0, 1.0)))) == {"T", "V"}


BAD = [
    ({"num_samples": 0}, "expected num_samples to be a whole number ≥ 1; got 0"),
    ({"num_samples": 10.0}, "num_samples to be a whole number"),
    ({"num_chains": True}, "num_chains to be a whole number"),
    ({"num_warmup": -1}, "num_warmup to be a whole number ≥ 0; got -1"),
    ({"thinning": 0}, "thinning to be a whole number ≥ 1"),
    ({"num_samples": 5, "thinning": 6}, "thinning ≤ num_samples=5, so that a draw is kept; got 6"),
    ({"chain_method": "quick"}, "chain_method to be one of 'vectorized', 'sequential', 'parallel'; got 'quick'"),
    ({"key": 3}, "expected key to be a JAX key"),
    ({"key": None}, "expected key to be a JAX key"),
    ({"key": jax.random.split(jax.random.key(0))}, "expected one key"),
    ({"rank": 0}, "rank to be a whole number"),
    ({"rank": None}, "expected rank, as no prior's shape fixes"),
    ({"start": posterior(F=5)}, "expected a posterior of shapes"),
    ({"start": posterior(K=3)}, "expected a posterior of shapes"),
    ({"start": posterior()._replace(lam=None)}, "expected a posterior of shapes"),
    ({"start": "fit"}, "expected start as made by"),
    ({"start": cavi.start(T=np.ones((5, 2)))}, "start of T to have shape"),
    ({"init": "best"}, "expected init to be one of"),
]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("options", "message"), BAD, ids=[f"{next(iter(o))}-{i}" for i, (o, _) in enumerate(BAD)])
def test_bad_input_is_refused_before_any_work(name, options, message, monkeypatch):
    monkeypatch.setattr(mcmc, "MCMC", None)
    with pytest.raises(ValueError, match=message):
        RUNS[name](DATA, PRIORS, **({"key": jax.random.key(0), "rank": 2} | options))


def test_bad_data_and_priors_are_refused(monkeypatch):
    monkeypatch.setattr(mcmc, "MCMC", None)
    with pytest.raises(ValueError, match="expected Data"):
        mcmc.run_gibbs(X, PRIORS, **QUIET)
    with pytest.raises(ValueError, match="expected data with groups"):
        mcmc.run_nuts(as_data(X), PRIORS, **QUIET)
    with pytest.raises(ValueError, match="whole numbers for the augmented model; got fractions"):
        mcmc.run_gibbs(as_data(X + 0.5, GROUPS), PRIORS, **QUIET, rank=2)


def test_chains_start_from_factors_of_any_kind():
    for kind in ("gamma", "normal", "correlated", "point"):
        z = mcmc._begin(results.DATA, results.PRIORS, jax.random.key(0), None, results.made(kind), "random", 2).z
        assert {site: x.shape for site, x in z.items()} == {"T": (2, 4, 2), "V": (2, 2, 6), "lam": (2, 2, 2)}
        assert (abs(z["T"][0] - z["T"][1]).max() > 0.01) == (kind != "point")


SHORT = {"num_warmup": 2, "num_samples": 6, "num_chains": 2}


@pytest.mark.parametrize("name", ["gibbs", pytest.param("nuts", marks=pytest.mark.slow)])
def test_only_what_is_asked_for_is_kept(name):
    """The same chains, of which less is stored; the last state is whole, so that a run can be resumed."""
    everything = draws_of(RUNS[name](DATA, PRIORS, **QUIET, rank=2, **SHORT))
    keep = {"total": lambda z: (z["T"] @ z["V"]).sum(), "lam": lambda z: z["lam"]}
    run = RUNS[name](DATA, PRIORS, **QUIET, rank=2, **SHORT, keep=keep)
    some = draws_of(run)
    assert some.keys() == keep.keys()
    np.testing.assert_allclose(some["lam"], everything["lam"], rtol=1e-10)
    np.testing.assert_allclose(some["total"], (everything["T"] @ everything["V"]).sum((-1, -2)), rtol=1e-10)
    assert run.last_state.z.keys() == everything.keys()
    with pytest.raises(ValueError, match=r"collected T and V; got \['lam', 'total'\]"):
        to_arviz(run, DATA)


def test_sites_by_name_are_kept():
    run = mcmc.run_gibbs(DATA, PRIORS, **QUIET, rank=2, **SHORT, keep=["T", "V"])
    assert draws_of(run).keys() == {"T", "V"}
    with pytest.raises(ValueError, match=r"expected draws of shapes .*lam"):
        to_arviz(run, DATA)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("keep", ["T", [], {}, ["z"], {"T": 1.0}])
def test_keep_names_sites_or_functions(name, keep):
    with pytest.raises(
        ValueError, match="expected keep to have some of the sites T, V, lam, or functions by name; got"
    ):
        RUNS[name](DATA, PRIORS, **QUIET, rank=2, **SHORT, keep=keep)


@pytest.mark.parametrize(
    ("function", "message"),
    [(lambda z: z["W"], "got KeyError: 'W'"), (lambda z: None, "got NoneType"), (lambda z: z, "got dict")],
)
def test_functions_to_keep_are_tried_before_the_first_draw(function, message):
    said = rf"expected keep\['mine'\] to return an array for the sites T, V, lam of a draw; {message}"
    for run in RUNS.values():
        with pytest.raises(ValueError, match=said):
            run(DATA, PRIORS, **QUIET, rank=2, **SHORT, keep={"mine": function})


def test_the_kernel_takes_data_that_jax_traces():
    """NumPyro hands data over as arguments of its compiled program if asked to."""
    few = as_data(FEW, [0, 0, 1])
    run = MCMC(mcmc.Gibbs(), num_warmup=0, num_samples=5, jit_model_args=True, progress_bar=False)
    run.run(jax.random.key(0), Problem(few, PRIORS, 2))
    T, V = (run.get_samples()[site] for site in "TV")
    assert np.isfinite(T @ V).all()


def test_other_data_of_the_same_shape_compile_nothing():
    """With a progress bar or without, and with sites by name."""
    options = {"rank": 2, "num_warmup": 2, "num_samples": 3, "num_chains": 1, "keep": ["lam"]}

    def run(counts, seed, bar):
        mcmc.run_gibbs(as_data(counts, GROUPS), PRIORS, key=jax.random.key(seed), progress_bar=bar, **options)

    some, fewer = (np.where(np.arange(X.size).reshape(X.shape) < number, X + number, 0) for number in (31, 30))
    run(some, 0, False)
    assert results.compilations(lambda: run(fewer, 1, True)) == 0


def test_chains_are_thinned_and_resumed():
    """Of every two sweeps the last is stored, and from its last state a chain goes on as if it had not stopped."""
    options = {"rank": 2, "key": jax.random.key(0), "progress_bar": False, "num_warmup": 1, "num_chains": 1}
    whole = draws_of(mcmc.run_gibbs(DATA, PRIORS, num_samples=6, **options))
    half = mcmc.run_gibbs(DATA, PRIORS, num_samples=3, **options)
    thinned = draws_of(mcmc.run_gibbs(DATA, PRIORS, num_samples=6, thinning=2, **options))
    half.post_warmup_state = half.last_state
    half.run(half.last_state.rng_key, Problem(DATA, PRIORS, 2))
    for site, values in draws_of(half).items():
        np.testing.assert_array_equal(values, whole[site][:, 3:])
        np.testing.assert_array_equal(thinned[site], whole[site][:, 1::2])
