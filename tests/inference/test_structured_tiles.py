"""The structured form of unlabelled samples reads X in tiles, without copies of X for its candidates."""

import jax
import numpy as np
import pytest

from gsnmf.inference import cavi
from gsnmf.inference.observations import arrange, observe
from gsnmf.inference.observed import candidates, dense
from gsnmf.inference.sweep import moments, sweep
from gsnmf.model import Dirichlet, Gamma, GroupSparse, Priors, Problem, as_data

F, N, K, C = 11, 14, 4, 3
PRIORS = Priors(Gamma(0.7, 2.0), GroupSparse(Gamma(2.0, 1.0)))


def data(mask):
    rng = np.random.default_rng(1)
    groups = [None if n % 3 == 0 else (n // 3) % C for n in range(N)]
    seen = rng.uniform(size=(F, N)) < 0.8 if mask else None
    return as_data(rng.poisson(4.0, (F, N)).astype(float), groups, mask=seen, label_prior=Dirichlet([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_tiles_change_nothing(monkeypatch, width, mask):
    """Unlabelled samples cut into tiles, the last one not full, against the whole at once."""
    problem = Problem(data(mask), PRIORS, K)
    start = cavi.run(data(mask), PRIORS, key=jax.random.key(0), rank=K, max_steps=3, tol=None, accelerate=False)
    whole = observe(problem.data, "structured")
    monkeypatch.setattr(dense, "TILE", width * F * C * 8)
    cut = arrange(problem.data, "structured")
    assert whole.X.unlabelled.tiles.shape == (1, 5, F)
    assert cut.X.unlabelled.tiles.shape == (-(-5 // width), width, F)
    q = whole.labels.hold(start.posterior)
    for seen in (whole, cut):
        assert seen.X.exposure_of_V(q.T).shape == (9 + 5 * C, K)
    m = moments(whole, problem.priors, q)
    one, other = (sweep(seen, problem.priors, m) for seen in (whole, cut))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), one, other)


def test_x_is_held_once():
    """Every entry of X once in all tiles, and nothing of candidates × features that is not made of products."""
    problem = Problem(data(False), PRIORS, K)
    seen = observe(problem.data, "structured")
    assert isinstance(seen.X, candidates.Candidates)
    numbers = sum(np.size(x) for x in jax.tree.leaves(seen.X))
    assert numbers == F * N + (F + 9) + (F + 5) + 2  # X, its totals by feature and sample, two parts of the bound


def test_all_samples_may_be_unlabelled():
    some = as_data(np.asarray(data(False).X), [None] * N, group_names=[0, 1, 2])
    fit = cavi.run(some, PRIORS, key=jax.random.key(0), rank=K, max_steps=20, tol=None, accelerate=False)
    assert (np.diff(fit.elbo) > -1e-9 * np.abs(fit.elbo[1:])).all()
    np.testing.assert_allclose(cavi.bound(fit, some), fit.elbo[-1], rtol=1e-12)
    np.testing.assert_allclose(fit.posterior.z.sum(axis=1), 1, rtol=1e-12)
