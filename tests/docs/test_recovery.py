"""The true model comes first, and the printed bound chooses wrongly where it was built to."""

import sys

import numpy as np
import pytest
from scipy.special import digamma


@pytest.fixture(autouse=True)
def recovery(monkeypatch):
    """The folder is no package: its files are found as they are when the command is run."""
    monkeypatch.syspath_prepend("benchmarks")
    yield
    sys.modules.pop("recovery", None)


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


@pytest.mark.slow
def test_the_printed_bound_chooses_wrongly():
    """Drawn with known rates, which all valid measures find; the printed bound takes the rates that are learned.

    Over 40 other draws the known rates were first 40 times by the collapsed bound, 39 by the augmented one, 32 by
    held-out entries and 9 by the printed bound. Were these the probabilities, the bars of 16 and 10 of 20 would be
    missed once in 10,000 and once in 1,800 runs, and that of 11 for the printed bound once in 3,000. A measure that is
    right in half of all draws reaches 16 once in 170 runs, and has at most 11 in three of four: hence the last line.
    """
    from recovery import two_strengths, winners

    ahead = winners(two_strengths(), "known rates", range(20), restarts=2, draws=64)
    first = (ahead > 0).sum()
    for measure, least in {"augmented": 16, "collapsed": 16, "held_out": 10}.items():
        assert first[measure] >= least, measure
    assert first["printed"] <= 11
    # Of 400 rates each, N_c (log α − ψ(α)) with α = a + N_c, N_c = 2: what the printed bound adds for a = 4 and 400.
    gaps = [800 * (np.log(a + 2) - digamma(a + 2)) for a in (4.0, 400.0)]
    np.testing.assert_allclose(ahead["augmented"] - ahead["printed"], gaps[0] - gaps[1], rtol=1e-9)


# Of 20 draws, how often held-out entries have to put the true model first.
HELD_OUT = {"own": 12, "pairs": 12, "shared": 12, "dense": 5}


@pytest.mark.slow
def test_the_true_model_comes_first():
    """Twenty draws from each of four models; the bars are binomial.

    Over 38 other draws each, the true model was first by the collapsed bound in 38, 37, 38 and 38 (with two starts; a
    median lead of at least 116 nats), by held-out entries in 35, 34, 35 and 23, and over 40 more in 25 for "dense".
    Were these the probabilities, a bar of 16 of 20 for the bound would be missed once in 4,000 runs, the bars for
    held-out entries once in 10,000, in 3,000 for "dense", and their sum once in 300,000. A measure that chooses among
    the four at random reaches 16 of 20 once in 2 million runs, 12 once in 1,000, and 52 of 80 never.
    """
    from recovery import four_models, winners

    total = 0
    for true, least in HELD_OUT.items():
        ahead = winners(four_models(), true, range(20), restarts=2, draws=200)
        assert (ahead["collapsed"] > 0).sum() >= 16, true
        assert ahead["collapsed"].median() > 60, true
        first = (ahead["held_out"] > 0).sum()
        assert first >= least, true
        total += first
    assert total >= 52
