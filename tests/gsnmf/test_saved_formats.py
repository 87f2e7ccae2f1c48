"""Fits saved by former versions are loaded for ever."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse

from gsnmf.inference import cavi, label_probabilities
from gsnmf.saving import load_fit

# Written by versions 0.1.0 and 0.2.0 in double precision, 20 sweeps each.
FOLDERS = ["tests/data/saved_0.1", "tests/data/saved_0.2"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_fit_with_unlabelled_samples(folder):
    fit, priors, names, data, *_ = load_fit(f"{folder}/unlabelled")
    assert np.flatnonzero(data.labels.unlabelled).tolist() == [1, 5]
    assert np.flatnonzero(data.labels.several).tolist() == [4]
    assert np.flatnonzero(fit.posterior.labels.unlabelled).tolist() == [1, 5]
    assert names.feature.tolist() == list("vwxyz")
    assert len(data.held_out) == 4
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)
    again = cavi.run(data, priors, start=fit, max_steps=5, tol=None, accelerate=False)
    assert again.elbo[0] >= fit.elbo[-1]
    assert label_probabilities(fit, data, num_samples=10).shape == (7, 2)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_fit_with_learned_hyperparameters(folder):
    fit, priors, _, data, *_ = load_fit(f"{folder}/learned")
    assert fit.learned
    assert fit.priors is priors
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)


def test_a_fit_with_groups_and_a_missing_entry():
    """As fits of one label per sample are saved today."""
    fit, priors, names, data, *_ = load_fit("tests/data/saved_0.2/groups")
    assert fit.posterior.lam.mean.shape == priors.coefficients.rate.a.shape == (4, 2)
    assert (names.group.tolist(), names.feature.tolist()) == (["a", "b"], list("uvwxyz"))
    assert data.num_observed == 6 * 7 - 1
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)


def test_a_fit_of_a_sparse_matrix():
    fit, _, names, data, *_ = load_fit("tests/data/saved_0.2/sparse")
    assert scipy.sparse.issparse(data.X.to_scipy())
    assert data.num_observed == 5 * 7 - 4
    assert names.group.tolist() == ["a", "b"]
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_those_of_their_version(folder):
    """Nobody writes them again by a later version."""
    for path in Path(folder).glob("*.json"):
        assert json.loads(path.read_text())["gsnmf_version"] == folder.removeprefix("tests/data/saved_") + ".0"


def test_a_stream_is_resumed():
    """As it was begun, and only so."""
    fit, priors, names, *_ = load_fit("tests/data/saved_0.2/stream")
    X, again = (7 * np.arange(120) % 11).reshape(5, 24).astype(float), {"key": jax.random.key(0), "passes": 2}
    after = cavi.stream(X, priors, groups=["a", "b"] * 12, start=fit, batch_size=8, **again)
    assert names.group.tolist() == ["a", "b"]
    assert after.num_steps == 2 * fit.num_steps == 6
    assert after.posterior.T.mean.shape == (5, 2)
    with pytest.raises(ValueError, match="expected the X of the stream that is resumed; got another one"):
        cavi.stream(X + 1, priors, groups=["a", "b"] * 12, start=fit, batch_size=8, **again)
