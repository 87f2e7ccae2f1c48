"""Validation, casting and broadcasting happen once a call, and X reaches the device once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gsnmf.model.problem as module
from gsnmf import compare
from gsnmf.inference import cavi, collapsed_bound, fold_in, label_probabilities, mcmc, svi, to_arviz
from gsnmf.model import Gamma, GroupSparse, Priors, Problem, as_data, group_sparse_nmf

KEY = jax.random.key(0)
X = np.random.default_rng(0).poisson(5.0, (6, 9)).astype(float)
PRIORS = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0)))
DATA, SOME = as_data(X, [0, 1, 2] * 3), as_data(X, [0, 1, None] * 3)
RUN = {"key": KEY, "rank": 2}
CHAIN = {"num_warmup": 3, "num_samples": 5, "progress_bar": False}


@pytest.fixture
def counted(monkeypatch):
    """The number of preparations since the last look."""
    calls = []
    prepare = module._prepare
    monkeypatch.setattr(module, "_prepare", lambda *args: calls.append(1) or prepare(*args))

    def look():
        number = len(calls)
        calls.clear()
        return number

    return look


@pytest.fixture(scope="module")
def fits():
    with jax.enable_x64(True):
        return [cavi.run(DATA, PRIORS, key=KEY, rank=K, max_steps=20, tol=None) for K in (1, 2)]


CALLS = {
    "cavi.run": (1, lambda fits: cavi.run(DATA, PRIORS, max_steps=3, tol=None, **RUN)),
    "cavi.run, unlabelled samples": (1, lambda fits: cavi.run(SOME, PRIORS, max_steps=3, tol=None, **RUN)),
    "cavi.run_many": (1, lambda fits: cavi.run_many(DATA, PRIORS, keys=[KEY, KEY], rank=2, max_steps=3, tol=None)),
    "svi.run": (1, lambda fits: svi.run(DATA, PRIORS, num_steps=50, progress_bar=False, **RUN)),
    "run_gibbs": (1, lambda fits: mcmc.run_gibbs(DATA, PRIORS, **RUN, **CHAIN)),
    "to_arviz": (1, lambda fits: to_arviz(fits[1], DATA, num_samples=10)),
    "collapsed_bound": (1, lambda fits: collapsed_bound(fits[1], DATA, key=KEY, num_samples=10)),
    "cavi.bound": (1, lambda fits: cavi.bound(fits[1], DATA)),
    "fold_in": (1, lambda fits: fold_in(fits[1], X)),
    "compare, two models": (2, lambda fits: compare(fits, DATA, num_samples=30, loo=False)),
}


SLOW = ("compare, two models", "svi.run")
RUNS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CALLS]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", RUNS)
def test_a_call_prepares_its_problem_once(counted, fits, name):
    expected, call = CALLS[name]
    counted()
    call(fits)
    assert counted() == expected


def test_a_problem_is_taken_as_it_is(counted):
    problem = Problem(DATA, PRIORS, 2)
    assert counted() == 1
    jax.make_jaxpr(lambda p: jax.tree.map(jnp.sum, p))(problem)
    drawn = jax.jit(lambda key, p: __import__("numpyro").handlers.seed(group_sparse_nmf, key)(p))(KEY, problem)
    assert drawn.shape == (6, 9)
    assert counted() == 0
    assert jax.tree.map(lambda x: x, problem).rank == 2
    assert repr(problem) == "Problem(6 features × 9 samples, 3 groups, rank 2)"


def test_x_of_a_problem_is_on_the_device_and_shared():
    problem = Problem(DATA, PRIORS, 2)
    assert isinstance(problem.data.X, jax.Array)
    again = Problem(problem.data, PRIORS, 2)
    assert again.data.X.unsafe_buffer_pointer() == problem.data.X.unsafe_buffer_pointer()


def test_readouts_of_labels_prepare_once(counted):
    fit = cavi.run(SOME, PRIORS, max_steps=3, tol=None, **RUN)
    counted()
    label_probabilities(fit, SOME, num_samples=10)
    assert counted() == 1
