"""Fits from threads, processes and a cluster; what import and fit leave as it was."""

import random
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import matplotlib as mpl
import numpy as np
import pytest
from estimators import nearest_neighbour
from joblib import Parallel, delayed, parallel_config
from sklearn.model_selection import GridSearchCV

from gsnmf.inference import cavi
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

GROUPS = np.arange(12) % 2
X = np.random.default_rng(0).poisson(4.0 + 20 * (np.arange(6)[:, None] % 2 == GROUPS))
PRIORS = Priors(Gamma(0.6, 20.0), GroupSparse(Gamma(2.0, 1.0)))
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def double_precision():
    """The setting is of one thread: here all have JAX's default."""


@pytest.fixture(autouse=True)
def rank_promotion():
    """So is this one."""


def bound(seed, steps=20):
    """The bound of a fit; a function that processes can be sent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = cavi.run(as_data(X, GROUPS), PRIORS, key=jax.random.key(seed), rank=2, max_steps=steps, tol=None)
    return float(fit.elbo[-1])


def state():
    """What others rely on: JAX's configuration, NumPy's and Python's random state, filters of warnings, the backend."""
    kind, keys, *rest = np.random.get_state()
    return {
        "JAX": dict(jax.config.values),
        "NumPy": (kind, keys.tobytes(), *rest),
        "NumPy's errors": np.geterr(),
        "Python": random.getstate(),
        "warnings": list(warnings.filters),
        "matplotlib": dict.__getitem__(mpl.rcParams, "backend"),  # rcParams["backend"] would choose one
    }


def test_fits_in_threads_are_those_of_one_thread():
    alone = [bound(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(bound, range(4))) == alone
    assert len(set(alone)) == 4


def test_fits_in_threads_leave_everything_as_it_was():
    """Filters of warnings belong to all threads: those that one sets another would restore."""

    def fit(seed):
        nearest_neighbour(max_iter=3, random_state=seed).fit(X.T, GROUPS)

    fit(0)
    before = state()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fit, range(24)))
    assert state()["warnings"] == before["warnings"]


def test_fits_leave_everything_as_it_was():
    np.random.seed(3)
    before = state()
    bound(0, steps=3)
    nearest_neighbour(max_iter=3, random_state=0).fit(X.T, GROUPS).predict_proba(X.T)
    after = state()
    for name, value in before.items():
        assert after[name] == value, name


ALL = """
import importlib, os, pkgutil, random, sys, warnings
import jax, matplotlib, numpy as np
sys.path.insert(0, "tests/gsnmf"); sys.path.insert(0, "tests")
warnings.simplefilter("ignore", FutureWarning)  # ArviZ' own, at its import
import arviz, numpyro, sklearn, pandas, scipy.sparse, h5py, joblib  # which may change what they like
from test_concurrency import state, bound
for name in [name for name in sys.modules if name.split(".")[0] == "gsnmf"]:
    del sys.modules[name]
before, environment = state(), dict(os.environ)
import gsnmf
for module in pkgutil.walk_packages(gsnmf.__path__, "gsnmf."):
    if not module.name.endswith(("__main__", ".kernels")):  # the second is a library of C++, not of Python
        try:
            importlib.import_module(module.name)
        except ImportError as error:  # of an extra that is not installed
            assert error.name is None or not error.name.startswith("gsnmf"), error
imported = state()
bound(0, steps=3)
for name, value in before.items():
    assert imported[name] == value, f"import changed {name}"
    assert state()[name] == value, f"a fit changed {name}"
assert dict(os.environ) == environment, "the environment changed"
print("as it was")
"""


@pytest.mark.slow
def test_import_leaves_everything_as_it_was():
    """Of all modules, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ALL], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "as it was", done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading", "dask"])
def test_fits_in_workers_are_those_of_one_process(backend):
    """Bounds agree to rounding, as processes may share out work among threads in another way."""
    alone = [bound(seed) for seed in range(4)]
    if backend != "dask":
        found = Parallel(n_jobs=2, backend=backend)(delayed(bound)(seed) for seed in range(4))
    else:
        distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
            parallel_config(backend="dask"),
        ):
            found = Parallel()(delayed(bound)(seed) for seed in range(4))
    np.testing.assert_allclose(found, alone, rtol=1e-5)


@pytest.mark.slow
def test_grid_search_in_two_processes_is_that_of_one():
    model, grid = nearest_neighbour(max_iter=10, random_state=0, per_class=1), {"large": [0.01, 0.1]}
    scores = [
        GridSearchCV(model, grid, cv=2, n_jobs=jobs).fit(X.T, GROUPS).cv_results_["mean_test_score"] for jobs in (1, 2)
    ]
    np.testing.assert_array_equal(*scores)
