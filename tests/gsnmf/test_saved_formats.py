"""Fits saved by former versions are loaded for ever."""

import numpy as np
import pytest

from gsnmf.inference import cavi, label_probabilities
from gsnmf.saving import load_fit

FOLDER = "tests/data/saved_0.1"  # written by version 0.1.0 in double precision, 20 sweeps each


def test_a_fit_with_unlabelled_samples():
    fit, priors, names, data, *_ = load_fit(f"{FOLDER}/unlabelled")
    assert np.flatnonzero(data.labels.unlabelled).tolist() == [1, 5]
    assert np.flatnonzero(data.labels.several).tolist() == [4]
    assert np.flatnonzero(fit.posterior.labels.unlabelled).tolist() == [1, 5]
    assert names.feature.tolist() == list("vwxyz")
    assert len(data.held_out) == 4
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)
    again = cavi.run(data, priors, start=fit, max_steps=5, tol=None, accelerate=False)
    assert again.elbo[0] >= fit.elbo[-1]
    assert label_probabilities(fit, data, num_samples=10).shape == (7, 2)


def test_a_fit_with_learned_hyperparameters():
    fit, priors, _, data, *_ = load_fit(f"{FOLDER}/learned")
    assert fit.learned
    assert fit.priors is priors
    assert cavi.bound(fit, data) == pytest.approx(fit.elbo[-1], rel=1e-12)
