"""Samples on several devices: the same fit. Devices are JAX's pretended ones, which a process has from its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf.inference import cavi, shard
from gsnmf.model import Gamma, GroupSparse, Priors, as_data

SCRIPT = """
import jax, numpy as np, scipy.sparse
from gsnmf.inference import cavi, shard
from gsnmf.inference.warning import quiet
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, as_data

rng = np.random.default_rng(0)
X, y = rng.poisson(rng.gamma(1.0, 2.0, (6, 3)) @ rng.gamma(1.0, 2.0, (3, 11))), list("abcabcabcab")
mask = rng.uniform(size=X.shape) > 0.2
mask[2], mask[:, 4] = False, False  # a feature and a sample are hidden as a whole
sparse, hidden = scipy.sparse.csr_array(X), scipy.sparse.csr_array(~mask)
grouped = Priors(Gamma(1.0, 1.0), GroupSparse(Gamma(np.where(np.eye(3), 1.0, 9.0), 1.0)))
several = [*y[:-1], {"a", "c"}]
some = [None if n in (1, 2, 7, 8, 9) else label for n, label in enumerate(several)]
shared, each = Dirichlet(np.array([1.0, 2.0, 3.0])), Dirichlet(rng.uniform(1, 2, (11, 3)))
structured, mean_field = cavi.labelling("structured"), cavi.labelling("mean_field")
learn = cavi.learn("all", "all", what=("both", "scale"))
cases = {
    "several": [(as_data(X, several), {"learn": learn})],
    "masks": [
        (as_data(X, several, mask=mask), {"init": "groups"}),
        (as_data(sparse, several, hidden=hidden), {"init": "groups"}),
    ],
    "mean field": [
        (as_data(X, some, label_prior=shared, mask=mask), {"labels": mean_field, "accelerate": False}),
        (as_data(sparse, some, label_prior=each), {"labels": mean_field, "accelerate": False}),
    ],
    "structured": [
        (as_data(X, some, label_prior=each, mask=mask), {"labels": structured, "accelerate": False}),
        (as_data(sparse, some, label_prior=shared, hidden=hidden), {"labels": structured, "accelerate": False}),
    ],
    "without λ": [(as_data(X), {"learn": cavi.learn("all", "component")})],
}
assert len(jax.devices()) == 3
for data, more in cases[CASE]:
    priors = Priors(Gamma(1.0, 1.0), Gamma(1.0, 2.0)) if data.num_groups == 0 else grouped
    how, snapshots = {"key": jax.random.key(0), "rank": 3, "max_steps": 60, "tol": None, **more}, []
    with quiet():
        one = cavi.run(data, priors, **how)
        spread = cavi.run(shard(data), priors, checkpoint=lambda take: snapshots.append(take()), **how)
        np.testing.assert_allclose(spread.elbo, one.elbo, rtol=1e-11)
        for ours, theirs in zip(jax.tree.leaves(spread.posterior), jax.tree.leaves(one.posterior), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-15)  # probabilities of labels may be tiny
        for fewer in (shard(data, jax.devices()[:2]), data):
            resumed = cavi.run(fewer, priors, resume=snapshots[-2], **how)
            np.testing.assert_allclose(resumed.elbo, one.elbo, rtol=1e-11)
data, T, V = shard(cases["several"][0][0]), np.ones((6, 1)), np.ones((1, 11))
assert (data.matrix.mean(), data.matrix.shape) == (X.mean(), (6, 11))
np.testing.assert_allclose(data.matrix.divergence(T, V), as_data(X).matrix.divergence(T, V))
print("equal")
"""


def in_subprocess(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script with this checkout's package."""
    folder = Path(__file__).resolve().parents[2]
    values = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", script], env=values, capture_output=True, text=True, timeout=900)


@pytest.mark.slow  # each compiles many programs; `test_two_processes_give_the_fit_of_one` is their short form
@pytest.mark.parametrize("case", ["several", "masks", "mean field", "structured", "without λ"])
def test_samples_on_three_devices_give_the_same_fit(case: str):
    """Sums are added up in another order: 60 sweeps leave 1e-11 of the bound in double precision.

    Labels converge sooner. Rounding would then decide which sweeps momentum keeps, so these sweeps are plain.
    """
    flags = "--xla_force_host_platform_device_count=3 --xla_backend_optimization_level=0"
    ran = in_subprocess(SCRIPT.replace("CASE", repr(case)), XLA_FLAGS=flags, JAX_ENABLE_X64="1")
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


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_labels_are_learned_in_the_same_way_however_samples_are_spread(form: Any):
    data = as_data(form(np.eye(4, 6)), ["a", "b", None, "a", "b", "a"])
    assert cavi.labelling_for(shard(data), "random") == cavi.labelling_for(data, "random")


def test_what_cannot_be_spread():
    with pytest.raises(ValueError, match="expected Data"):
        shard([[1, 2]])  # type: ignore[arg-type]  # as a user might
    data = shard(as_data([[1, 2]]))
    assert shard(data) is data
    with pytest.raises(ValueError, match="spread over devices"):
        data.matrix.with_nan()
    with pytest.raises(ValueError, match="expected priors that are the same for all samples"):
        cavi.run(data, Priors(Gamma(1.0, 1.0), Gamma([[1.0, 2.0]], 1.0)), key=jax.random.key(0), rank=1)
