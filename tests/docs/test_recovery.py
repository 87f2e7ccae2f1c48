"""The true model comes first, and the printed bound chooses wrongly where it was built to."""

import functools
import sys

import pytest

FOUR = ("own", "pairs", "shared", "dense")


@pytest.fixture(autouse=True)
def recovery(monkeypatch):
    """The folder is no package: its files are found as they are when the command is run."""
    monkeypatch.syspath_prepend("benchmarks")
    yield
    sys.modules.pop("recovery", None)


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


@functools.cache
def four():
    from recovery import four_models

    return four_models()


@pytest.mark.slow
@pytest.mark.parametrize("true", ["own", "dense"])  # one draw; below ten of each
def test_the_true_model_comes_first(true):
    """One draw of the ten that `benchmarks/recovery.py` makes, with fewer starts."""
    from recovery import drawn, side_by_side

    shape, models, share = four()
    found = side_by_side(drawn(shape, models[true], share, 0), models, restarts=2, seed=0, draws=64)
    assert found.best == true
    assert found.table.held_out.idxmax() == true


@pytest.mark.slow
def test_the_printed_bound_chooses_wrongly():
    """Drawn with known rates, which all valid measures find; the printed bound takes the rates that are learned."""
    from recovery import drawn, side_by_side, two_strengths

    shape, models, share = two_strengths()
    table = side_by_side(drawn(shape, models["known rates"], share, 0), models, restarts=2, seed=0, draws=64).table
    for measure in ("augmented_bound", "collapsed_bound", "held_out"):
        assert table[measure].idxmax() == "known rates"
    assert table.paper_bound.idxmax() == "learned rates"
    # Half for every rate, but for the share of it that the prior knew: a/(a + N_c).
    gaps = table.paper_bound_gap["learned rates"] - table.paper_bound_gap["known rates"]
    lead = table.augmented_bound["known rates"] - table.augmented_bound["learned rates"]
    assert 0 < lead < gaps


@pytest.mark.slow
@pytest.mark.parametrize("true", FOUR)
def test_the_true_model_comes_first_in_8_of_10(true):
    from recovery import winners

    ahead = winners(four(), true, range(10), restarts=5)
    assert (ahead["collapsed"] > 0).sum() >= 8
    assert (ahead["held_out"] > 0).sum() >= 8
