"""Pieces of long work: they come back bit by bit, and only whole ones."""

import errno
import json
import os

import numpy as np
import pytest

from gsnmf.journal import Journal, append, read_rows

PARTS = [None, "text", {"e": np.ones((2, 1))}]
VALUE = {"a": np.array([0.1, np.nan, -0.0]), "b": np.float32(1 / 3), "c": b"\x00\xff", "d": PARTS}


def test_a_piece_comes_back_to_the_bit_and_is_computed_once(tmp_path):
    path = tmp_path / "j.jsonl"
    first = Journal(path).piece("key", lambda: VALUE)
    second = Journal(path).piece("key", lambda: pytest.fail("computed again"))
    for found in (first, second):
        np.testing.assert_array_equal(found["a"], VALUE["a"])
        assert np.signbit(found["a"][2])
        assert np.float32(found["b"]) == VALUE["b"]
        assert found["c"] == VALUE["c"]
        assert found["d"][:2] == [None, "text"]
        assert found["d"][2]["e"].shape == (2, 1)
    Journal(path).remove()
    assert not path.exists()
    assert Journal(None).piece("key", lambda: VALUE) is VALUE


def test_a_piece_that_was_cut_off_or_altered_is_computed_again(tmp_path):
    path = tmp_path / "j.jsonl"
    for n in range(3):
        Journal(path).piece(str(n), lambda n=n: {"n": n})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b'"n": 1', b'"n": 7') + lines[2][:-9])
    assert Journal(path).lines.keys() == {"0"}
    assert Journal(path).piece("2", lambda: {"n": 2}) == {"n": 2}
    assert [json.loads(line)["key"] for line in path.read_bytes().splitlines()] == ["0", "1", "2"]
    for number in range(len(lines[0])):  # the first line, after any of its bytes
        path.write_bytes(lines[0][:number])
        assert Journal(path).lines.keys() == ({"0"} if number == len(lines[0]) - 1 else set())


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    for text in ("mine", "{}", '{"format": "gsnmf-journal", "format_version": 2}', "[" * 100_000):
        path.write_text(text + "\n")
        with pytest.raises(ValueError, match=r"expected .* to hold pieces of a run that gsnmf resumes; got the line"):
            Journal(path)


def test_a_full_disk_is_named_and_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "j.jsonl"
    append(path, {"n": 0})
    write = os.fsync

    def full(handle):
        os.ftruncate(handle, os.fstat(handle).st_size - 4)  # the end of the line did not fit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"{path} could not be written: No space left on device"):
        append(path, {"n": 1})
    monkeypatch.setattr(os, "fsync", write)
    append(path, {"n": 2})
    assert read_rows(path, "numbers", lambda row: "n" in row) == [{"n": 0}, {"n": 2}]
