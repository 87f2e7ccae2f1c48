"""A console that is full or closed does not end a command, and what could not be printed is not passed over."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gsnmf import cli
from gsnmf.consoles import Lossy, forgiving

GSNMF = [sys.executable, "-c", "from gsnmf.cli import main; raise SystemExit(main())"]


class Broken(io.StringIO):
    """A stream into which nothing can be written after some characters."""

    def __init__(self, error: Exception, room: int = 0) -> None:
        super().__init__()
        self.error, self.room = error, room

    def write(self, text: str) -> int:
        if self.tell() + len(text) > self.room:
            raise self.error
        return super().write(text)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).poisson(5.0, (5, 6)))
    return ["fit", str(tmp_path / "x.npy"), "--rank", "2", "--max-steps", "5", "--out", str(tmp_path / "fit.npz")]


def test_the_first_failure_is_remembered() -> None:
    first = OSError(28, "No space left on device")
    stream: Any = Lossy(Broken(first, room=4))
    assert stream.write("kept") == 4
    assert stream.lost is None
    stream.write("lost")
    stream.stream.error = OSError(5, "Input/output error")
    stream.write("lost")
    assert stream.lost is first
    assert stream.getvalue() == "kept"  # all else is the stream's own


def test_streams_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", None)
    with forgiving():
        print("said")
        print("into nothing", file=sys.stderr)
    assert sys.stdout is out
    assert sys.stderr is None
    assert out.getvalue() == "said\n"


def test_a_stream_that_was_closed_ends_no_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress bars and colours ask it whether it is a terminal."""
    closed = [io.TextIOWrapper(io.BytesIO(), encoding="ascii"), io.StringIO()]
    for stream in closed:
        stream.close()
    monkeypatch.setattr(sys, "stdout", closed[0])
    monkeypatch.setattr(sys, "stderr", closed[1])
    assert cli.main(words) == 2
    assert Path(words[-1]).exists()


def test_two_threads_give_the_streams_back(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    one, other = forgiving(), forgiving()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert sys.stdout is out


@pytest.mark.parametrize("words", [["--version"], ["fit", "--help"]])
def test_help_that_cannot_be_printed_is_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    monkeypatch.setattr(sys, "stdout", Broken(OSError(28, "No space left on device")))
    assert cli.main(words) == 2
    assert "not all could be printed (No space left on device)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (ValueError("I/O operation on closed file."), 2, "I/O operation on closed file."),
        (BrokenPipeError(32, "Broken pipe"), 0, None),
    ],
    ids=["full", "closed", "a reader that has enough"],
)
def test_a_fit_is_saved_although_nothing_can_be_printed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any, error: Exception, code: int, said: str | None
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(error))
    assert cli.main(words) == code
    assert Path(words[-1]).exists()
    assert not list(Path(words[-1]).parent.glob("*checkpoint*"))
    expected = f"gsnmf: error: not all could be printed ({said}); files are as without this error"
    assert (capsys.readouterr().err.splitlines()[-1] == expected) == (said is not None)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("redirection", "code"), [(">/dev/full", 2), ("2>/dev/full", 0), (">&- 2>&-", 0), ("| true", 0)]
)
def test_redirections_of_a_shell(words: list[str], redirection: str, code: int) -> None:
    """Python's own end flushes what is left, and must not fail at that."""
    command = f'set -o pipefail; "$@" {redirection}'
    ran = subprocess.run(["bash", "-c", command, "-", *GSNMF, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert Path(words[-1]).exists()
    assert Path(words[-1]).read_bytes()[:2] == b"PK"  # and no message


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a command that is a process: elsewhere warnings go where the caller wants them."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["gsnmf", "fit"])
    monkeypatch.setattr(cli, "_run", lambda *_, **__: 0)
    assert cli.main() == 0
    warnings.showwarning("two\nlines", UserWarning, "somewhere.py", 1)
    assert capsys.readouterr().err == "gsnmf: warning: two lines\n"


@pytest.mark.parametrize(("command", "at_once"), [("fit", True), ("choose", True), ("reproduce", False)])
def test_an_interruption_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch, command: str, at_once: bool) -> None:
    """Python's own end crashes now and then in JAX's compilers, but it clears away other processes."""
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    for code, words in ((143, None), (0, None), (2, None), (143, [command])):
        monkeypatch.setattr(sys, "argv", ["gsnmf", command])
        monkeypatch.setattr(cli, "_run", lambda *_, code=code, **__: code)
        assert cli.main(words) == code
    assert exits == [143] * at_once
