"""What processes tell each other arrives whole, whatever its length."""

import jax
import numpy as np
import pytest

from gsnmf.inference import processes


@pytest.fixture
def other(monkeypatch):
    """A second process, which sends what is put into the list, in the same order of calls."""
    sent = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "process_allgather", lambda x: np.stack([x, sent.pop(0)]))
    return sent


def halves(length):
    return np.array([length], np.int64).view(np.uint32)


@pytest.mark.parametrize(("ours", "theirs"), [(10, 3), (0, 7), (8, 8), (5, 0)])
def test_contents_in_pieces_are_whole(other, monkeypatch, ours, theirs):
    monkeypatch.setattr(processes, "PIECE", 4)
    mine, yours = (np.arange(n, dtype=np.uint8) + 1 for n in (ours, theirs))
    longest = max(ours, theirs)
    padded = np.append(yours, np.zeros(longest - theirs, np.uint8))
    other += [halves(theirs), *(padded[n : n + 4] for n in range(0, longest, 4))]
    first, second = processes._ragged(mine)
    np.testing.assert_array_equal(first, mine)
    np.testing.assert_array_equal(second, yours)
    assert not other


@pytest.mark.parametrize(("ours", "theirs"), [(2, 2**32 + 3), (2**32 + 3, 2)])
def test_lengths_beyond_two_gibibytes_are_not_cut(other, monkeypatch, ours, theirs):
    """Of 2³² + 3 bytes an int32 would keep 3; they take no memory here."""

    class AskedError(Exception):
        pass

    def ask(begin, longest, step):
        assert (begin, longest, step) == (0, 2**32 + 3, processes.PIECE)
        raise AskedError

    other.append(halves(theirs))
    monkeypatch.setattr(processes, "range", ask, raising=False)
    with pytest.raises(AskedError):
        processes._ragged(np.broadcast_to(np.uint8(0), (ours,)))
