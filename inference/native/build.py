"""Compilation of the kernels, with nothing but Python's own library: `setup.py` runs this file before JAX is installed.

    compile_library(folder)   # writes the library into `folder`; raises BuildError with the reason if it cannot

Any compiler that understands GCC's options will do: the one that CXX names, c++, g++ or clang++ on the PATH, or the
package `ziglang`, which pip installs. The library uses neither Python's nor JAX's headers, so that one file serves
every version of both.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = "kernels" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
OPTIONS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",  # GCC's default, not Clang's: a b + c is rounded once wherever the processor can
    "-fno-exceptions",
    "-fno-rtti",
    "-Wno-psabi",
]
AVX2 = ["-mavx2", "-mfma", "-mbmi2"]
LEVELS = {"portable": [], "avx2": AVX2} if platform.machine() in ("x86_64", "AMD64") else {"portable": []}


class BuildError(Exception):
    """A library that could not be built; the message says why."""


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler; empty if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named, ["c++"], ["g++"], ["clang++"]]:
        if command and shutil.which(command[0]):
            return command
    return [sys.executable, "-m", "ziglang", "c++"] if importlib.util.find_spec("ziglang") else []


def fingerprint() -> str:
    """Return a checksum of the sources, which a library carries: one that was built from others is not used."""
    sources = sorted([*HERE.glob("*.cc"), *HERE.glob("*.h")])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def compile_library(folder: Path = HERE) -> Path:
    """Compile the kernels once for each level of processors, link them, and return the library's path.

    Args:
        folder: for the library.
    """
    compiler = find_compiler()
    if not compiler:
        raise BuildError("found no C++ compiler, and no package ziglang")
    path = Path(folder) / LIBRARY
    with tempfile.TemporaryDirectory() as scratch:
        parts = {"parallel": [f'-DFINGERPRINT="{fingerprint()}"']}
        parts |= {level: [f"-DLEVEL={level}", *options] for level, options in LEVELS.items()}
        objects = []
        for part, options in parts.items():
            source = "parallel.cc" if part == "parallel" else "kernels.cc"
            objects.append(str(Path(scratch) / f"{part}.o"))
            _run([*compiler, *OPTIONS, *options, "-c", str(HERE / source), "-o", objects[-1]])
        built = Path(scratch) / LIBRARY
        # The kernels need no C++ library, which ziglang would compile first.
        linker = ["cc" if word == "c++" and "ziglang" in compiler else word for word in compiler]
        libraries = [] if sys.platform == "win32" else ["-pthread", "-lm"]
        _run([*linker, "-shared", "-o", str(built), *objects, *libraries])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(built, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)  # at once: another process may have it open
        except OSError as error:
            raise BuildError(f"cannot write {path}: {error}") from error
    return path


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr.strip()}")
