"""Run a command with JAX's persistent compilation cache: compilation is most of the time that the tests take.

    python tests/with_cache.py python -m pytest
    python tests/with_cache.py --cold python -m pytest   # an empty cache, removed afterwards, and a random hash seed

The cache is in the user's cache folder, in one folder for each version of jaxlib and each CPU, since a CPU silently
rejects what was compiled for another. The hash seed is fixed because some large programs depend on it: with a random
seed they would be compiled again in every run. Processes that the tests start inherit both.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

LARGEST = 500 * 2**20  # bytes in one folder; a whole run of the tests leaves less than a fifth of it
UNUSED = 30 * 24 * 3600  # seconds, after which a folder of another version or CPU is removed


def home() -> Path:
    """Return the folder of all caches of this project."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gsnmf"


def cpu() -> str:
    """Return the CPU's model and features, where the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "CPU part", "Features")  # the last two on ARM
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def folder() -> Path:
    """Return the folder for this jaxlib and this CPU."""
    return home() / f"jax-{version('jaxlib')}-{hashlib.sha256(cpu().encode()).hexdigest()[:12]}"


def trim(path: Path, largest: int = LARGEST) -> None:
    """Remove the entries that were read least recently, until half of `largest` bytes is left, if there are more."""
    entries = sorted((e.stat().st_atime, e.stat().st_size, e.path) for e in os.scandir(path) if e.is_file())
    size = sum(size for _, size, _ in entries)
    if size <= largest:
        return
    for _, bytes_, name in entries:
        Path(name).unlink(missing_ok=True)
        size -= bytes_
        if size <= largest / 2:
            return


def run(command: list[str], cache: Path, seed: str) -> int:
    """Run `command` with the cache and the hash seed, and return its exit status."""
    settings = {
        "PYTHONHASHSEED": seed,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    process = subprocess.Popen(command, env=os.environ | settings)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # Ctrl-C reached the command too, which ends by itself
            pass


def main(words: list[str]) -> int:
    """Do what the module's docstring lists."""
    if words[0] == "--cold":
        with tempfile.TemporaryDirectory(prefix="gsnmf-jax-") as empty:
            return run(words[1:], Path(empty), "random")
    try:
        cache = folder()
        cache.mkdir(parents=True, exist_ok=True)
        os.utime(cache)
        for other in home().glob("jax-*"):
            if other.stat().st_mtime < time.time() - UNUSED:
                shutil.rmtree(other, ignore_errors=True)
        trim(cache)
    except (OSError, RuntimeError) as error:  # no home, a folder that cannot be written, another run that trims it
        print(f"without a lasting compilation cache ({error})", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="gsnmf-jax-") as empty:
            return run(words, Path(empty), "0")
    return run(words, cache, "0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
