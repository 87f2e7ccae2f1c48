"""Tests run in double precision with rank promotion forbidden; single precision is asked for where it is meant."""

from __future__ import annotations

import gc
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

# Most of the suite's time is compilation, of problems so small that optimised code gains nothing. Of two values XLA
# takes the last: make test-slow, whose programs run for long, asks for optimised code. Without fusion emitters XLA
# compiles in half the time; an XLA that does not know an option ends the process, so this is for known versions only.
os.environ["XLA_FLAGS"] = " ".join(
    ["--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"]
    + ["--xla_cpu_use_fusion_emitters=false"] * (version("jaxlib")[:4] in ("0.8.", "0.9.", "0.10"))
    + [os.environ.get("XLA_FLAGS", "")]
)

import hypothesis
import jax
import numpy as np
import pytest

from gsnmf.model import Exponential, Gamma, GroupSparse, Priors, Relevance, as_data, label_driven

# Property tests: the same few examples in every run, of a few shapes, as a new shape is a new program.
SHARED = hypothesis.HealthCheck.function_scoped_fixture  # precision is the same for all examples
hypothesis.settings.register_profile(
    "fixed",
    derandomize=True,
    max_examples=15,
    deadline=None,
    database=None,
    suppress_health_check=[SHARED],
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # to shrink a failure: --hypothesis-profile=default
)
hypothesis.settings.load_profile("fixed")
jax.config.update("jax_platforms", "cpu")
gc.set_threshold(50_000, 20, 20)  # what JAX has traced stays alive: passes over it took a twentieth of the time


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro itself promotes ranks in a few places: its tests override this fixture."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_what_was_compiled():
    """Every compiled program maps memory, and a process may have 65,530 mappings by Linux' default: too few for all."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def golden():
    """Inputs and results of the paper author's program."""
    with np.load("tests/data/reference_small.npz") as file:
        return dict(file)


class Volume(NamedTuple):
    """A family from outside the library: v_iτ ~ Gamma(2, rate λ_τ), λ_τ ~ `rate`, a volume of each sample's own."""

    rate: Any

    @property
    def hyperprior(self):
        return self.rate

    @property
    def axes(self):
        return "all_components", "sample"

    @property
    def shape(self):
        return 2.0

    def rates(self, lam, data):
        return lam

    def collect(self, V, data):
        return V.sum(axis=0, keepdims=True)


# A conjugate prior on V of each kind, for any number of groups; Exponential(number) is a Gamma (test_families).
FAMILIES = {
    "group sparse": GroupSparse(Gamma(2.0, 0.5)),
    "gamma": Gamma(1.5, 2.0),
    "relevance": Relevance(Gamma(2.0, 0.5)),
    "exponential, learned": Exponential(Gamma(2.0, 0.5)),
    "from outside": Volume(Gamma(2.0, 0.5)),
}


@pytest.fixture(params=FAMILIES)
def family(request):
    """Each of them in turn."""
    return FAMILIES[request.param]


def problem(seed, F=12, N=15, K=4, C=3, mean=5.0, fractions=False, hidden=False):
    """Random data and random full-matrix priors; with a feature, a sample and a fifth of the rest hidden, if so."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, 2 * mean, size=(F, N))).astype(float)
    if fractions:
        X += rng.uniform(size=(F, N))
    groups = np.concatenate([np.arange(C), rng.integers(C, size=N - C)])
    rate = Gamma(rng.uniform(0.3, 20, (K, C)), rng.uniform(0.1, 50, (K, C)))
    dictionary = Gamma(rng.uniform(0.3, 3, (F, K)), rng.uniform(0.5, 20, (F, K)))
    mask = None
    if hidden:
        mask = rng.uniform(size=(F, N)) > 0.2
        mask[F // 2] = mask[:, N // 2] = False
    return as_data(X, groups, mask=mask), Priors(dictionary, GroupSparse(rate))


def paper_priors(num_groups, per_group=2, small=4.0, large=40.0):
    return Priors(Gamma(0.6, 20.0), GroupSparse(label_driven(per_group, num_groups, small, large, scale=1e3)))
