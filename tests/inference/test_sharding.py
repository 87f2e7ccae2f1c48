"""Samples on several devices: the same fit. Devices are JAX's pretended ones, which a process has from its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from gsnmf.inference import cavi, shard
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

SCRIPT = """
import jax, numpy as np
from gsnmf.inference import cavi, shard
from gsnmf.inference.warning import quiet
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

rng = np.random.default_rng(0)
X, y = rng.poisson(rng.gamma(1.0, 2.0, (6, 3)) @ rng.gamma(1.0, 2.0, (3, 11))), list("abcabcabcab")
grouped = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(np.where(np.eye(3), 1.0, 9.0), 1.0)))
several = [*y[:-1], {"a", "c"}]
cases = [(several, grouped, cavi.learn("all", "all", what=("both", "scale")))]
cases += [(None, Priors(Gamma(1.0, 1.0), Gamma(1.0, 2.0)), None)]
assert len(jax.devices()) == 3
for groups, priors, learn in cases:
    data, snapshots = as_data(X, groups), []
    how = {"key": jax.random.key(0), "rank": 3, "max_steps": 60, "tol": None, "learn": learn}
    with quiet():
        one = cavi.run(data, priors, **how)
        spread = cavi.run(shard(data), priors, checkpoint=lambda take: snapshots.append(take()), **how)
        np.testing.assert_allclose(spread.elbo, one.elbo, rtol=1e-11)
        for ours, theirs in zip(jax.tree.leaves(spread.posterior), jax.tree.leaves(one.posterior), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        resumed = cavi.run(shard(data, jax.devices()[:2]), priors, resume=snapshots[-2], **how)
        np.testing.assert_allclose(resumed.elbo, one.elbo, rtol=1e-11)
assert (shard(data).matrix.mean(), shard(data).matrix.shape) == (data.matrix.mean(), (6, 11))
T, V = np.ones((6, 1)), np.ones((1, 11))
np.testing.assert_allclose(shard(data).matrix.divergence(T, V), data.matrix.divergence(T, V))
print("equal")
"""


def in_subprocess(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script with this checkout's package."""
    folder = Path(__file__).resolve().parents[2]
    values = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", script], env=values, capture_output=True, text=True, timeout=600)


@pytest.mark.slow  # compiles four programs; `test_two_processes_give_the_fit_of_one` is its short form
def test_samples_on_three_devices_give_the_same_fit():
    """Sums are added up in another order: 60 sweeps leave 1e-11 of the bound in double precision."""
    flags = "--xla_force_host_platform_device_count=3 --xla_backend_optimization_level=0"
    ran = in_subprocess(SCRIPT, XLA_FLAGS=flags, JAX_ENABLE_X64="1")
    assert ran.stdout.endswith("equal\n"), ran.stderr[-2000:]


def test_a_run_resumes_as_if_it_had_not_been_interrupted():
    data, priors = (
        as_data([[9, 8, 1], [1, 0, 8]], ["a", "a", "b"]),
        Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(2.0, 1.0))),
    )
    how = {"key": jax.random.key(0), "rank": 2, "max_steps": 60, "tol": None}
    snapshots: list[cavi.Snapshot] = []
    whole = cavi.run(data, priors, checkpoint=lambda take: snapshots.append(take()), **how)
    assert [s.num_steps for s in snapshots] == [25, 50, 60]
    resumed = cavi.run(data, priors, resume=snapshots[0], **how)
    for ours, theirs in zip(jax.tree.leaves(resumed), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert cavi.run(data, priors, resume=snapshots[-1], **how).num_steps == 60
    with pytest.raises(ValueError, match="expected a snapshot of the same problem, with an array of"):
        cavi.run(as_data([[9, 8], [1, 0]], ["a", "b"]), priors, resume=snapshots[0], **how)
    with pytest.raises(ValueError, match="expected a snapshot of a run with the same options"):
        cavi.run(data, priors, resume=snapshots[0], accelerate=False, **how)
    with pytest.raises(ValueError, match="expected checkpoint to be a function"):
        cavi.run(data, priors, checkpoint=3, **how)


@pytest.mark.parametrize(
    ("groups", "mask", "message"),
    [(["a", None], None, "without unlabelled samples"), (["a", "b"], [[1, 0]], "without hidden entries")],
)
def test_what_cannot_be_spread(groups: list[str], mask: list[list[int]] | None, message: str):
    with pytest.raises(ValueError, match=message):
        shard(as_data([[1, 2]], groups, mask=mask))
    with pytest.raises(ValueError, match="expected Data"):
        shard([[1, 2]])  # type: ignore[arg-type]  # as a user might
    data = shard(as_data([[1, 2]]))
    assert shard(data) is data
    with pytest.raises(ValueError, match="spread over devices"):
        data.matrix.with_nan()
