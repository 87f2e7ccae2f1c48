"""What is said of memory before a fit."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gsnmf import memory
from gsnmf.inference import shard
from gsnmf.memory import in_units, plan
from gsnmf.model import as_data


def test_a_plan_says_how_x_is_read_and_what_it_takes():
    X = np.zeros((50, 400))
    X[0] = 1
    dense, sparse, spread = (plan(d, 3) for d in (as_data(X), as_data(scipy.sparse.csr_array(X)), shard(as_data(X))))
    assert (dense.kind, sparse.kind, spread.kind) == ("dense", "sparse", "sharded")
    assert "sparse X of 50 × 400, 400 entries above 0 (0.02 of all), read by the " in str(sparse)
    assert str(dense).startswith("dense X of 50 × 400; about ")
    assert "over 1 devices, 400 samples in this process" in str(spread)
    size = jnp.result_type(float).itemsize
    factors = 10 * 450 * 3 * size
    assert sparse.needed == 2 * 400 * (4 + size) + factors
    assert dense.needed == 50 * 400 * (8 + 2 * size) + 3 * 50 * 400 * size + factors
    assert dense.check() is dense


def test_too_much_memory_is_refused_with_the_alternative(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(ValueError, match=r"1 kB of which are free; got one that takes about .*: give X as a sparse"):
        plan(as_data(np.ones((5, 5))), 2).check()
    monkeypatch.setattr(memory, "available", lambda: None)
    assert plan(as_data(np.ones((5, 5))), 2).check().kind == "dense"


def test_available_memory_is_that_of_the_machine():
    found = memory.available()
    assert found is None or 1e6 < found < 1e15
    assert in_units(2.5e12) == "2.5 TB"
