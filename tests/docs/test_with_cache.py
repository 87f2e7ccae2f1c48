"""The compilation cache that `make test` sets up."""

import os
import sys
from pathlib import Path

import pytest
import with_cache

SHOW = "import os; cache = os.environ['JAX_COMPILATION_CACHE_DIR']; print(os.environ['PYTHONHASHSEED'], cache)"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Nothing is read from or written to the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_folder_depends_on_jaxlib_and_the_cpu(monkeypatch, tmp_path):
    first = with_cache.folder()
    assert first.parent == tmp_path / "gsnmf"
    monkeypatch.setattr(with_cache, "version", lambda name: f"{name} 0")
    other = with_cache.folder()
    monkeypatch.setattr(with_cache, "cpu", lambda: "another")
    assert len({first, other, with_cache.folder()}) == 3


def test_the_command_has_the_cache_and_its_status_is_passed_on(capfd):
    assert with_cache.main([sys.executable, "-c", SHOW]) == 0
    seed, folder = capfd.readouterr().out.split()
    assert (seed, Path(folder)) == ("0", with_cache.folder())
    assert with_cache.main([sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_a_cold_run_has_an_empty_cache_that_is_removed(capfd):
    assert with_cache.main(["--cold", sys.executable, "-c", f"{SHOW}; print(os.listdir(cache))"]) == 0
    seed, folder, listed = capfd.readouterr().out.split()
    assert (seed, listed) == ("random", "[]")
    assert not Path(folder).exists()


def test_the_least_recently_read_go_first(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - age, 2000))
    with_cache.trim(tmp_path, 40)
    assert len(list(tmp_path.iterdir())) == 4
    with_cache.trim(tmp_path, 39)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}


def test_folders_that_nobody_uses_are_removed():
    old, new = (with_cache.home() / f"jax-0-{name}" for name in ("old", "new"))
    for path, age in ((old, with_cache.UNUSED + 60), (new, with_cache.UNUSED - 60)):
        path.mkdir(parents=True)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    assert with_cache.main([sys.executable, "-c", ""]) == 0
    assert not old.exists()
    assert new.exists()
