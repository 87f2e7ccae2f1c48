"""The compiled library: where it is, whether it can be used, and its kernels as JAX knows them.

Two environment variables are read, once: GSNMF_KERNEL=off switches the kernels off, and GSNMF_THREADS sets the number
of threads, by default that of the processors which this process may use. Results do not depend on it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import NamedTuple

import jax

from .build import HERE, LEVELS, LIBRARY, fingerprint

KERNELS = ("allocate", "thin", "gamma", "log_moments")
BUILD = "python -m gsnmf.inference.native builds it"


class Library(NamedTuple):
    """The library, or the reason why there is none.

    level: of the processor, the ending of the kernels' names; empty without a library.
    threads: that the kernels may use.
    reason: why there is no library; empty if there is one.
    """

    level: str
    threads: int
    reason: str


def is_available() -> bool:
    """Return whether the compiled kernels can be called: there is a library, and JAX computes on the CPU.

    >>> isinstance(is_available(), bool)
    True
    """
    return bool(load().level) and jax.default_backend() == "cpu"


def describe() -> str:
    """Return a line that says which way sparse sweeps take.

    >>> describe().split()[0].rstrip(",") in ("compiled", "JAX")
    True
    """
    library = load()
    if not library.level:
        return f"JAX, rows padded: no compiled kernel ({library.reason})"
    if jax.default_backend() != "cpu":
        return f"JAX, rows padded: no compiled kernel (it runs on CPUs; JAX computes on {jax.default_backend()})"
    names = {"avx2": "AVX2", "portable": "portable"}
    return f"compiled kernel, {names[library.level]}, {library.threads} thread{'s' * (library.threads > 1)}"


@cache
def load() -> Library:
    """Load the library and register its kernels with JAX, once in a process."""
    threads = _threads()
    switch = os.environ.get("GSNMF_KERNEL", "on").lower()
    if switch not in ("on", "off"):
        raise ValueError(f"expected GSNMF_KERNEL to be on or off; got {switch!r}")
    if switch == "off":
        return Library("", threads, "switched off by GSNMF_KERNEL")
    if not (HERE / LIBRARY).exists():
        return Library("", threads, f"no library: {BUILD}")
    try:
        library = open_library()
        sources = library.gsnmf_fingerprint().decode()
    except (OSError, AttributeError) as error:
        return Library("", threads, str(error))
    if sources != fingerprint():
        return Library("", threads, f"library of another version: {BUILD}")
    library.gsnmf_set_threads(threads)
    levels = list(LEVELS)[: library.gsnmf_level() + 1]
    for level in levels:
        for kernel in KERNELS:
            for dtype in ("f32", "f64"):
                name = f"gsnmf_{kernel}_{dtype}_{level}"
                handler = jax.ffi.pycapsule(getattr(library, name))  # type: ignore[no-untyped-call] # not typed in JAX
                jax.ffi.register_ffi_target(name, handler, platform="cpu")
    return Library(levels[-1], threads, "")


def open_library() -> ctypes.CDLL:
    """Return the library, the same in all calls."""
    library = ctypes.CDLL(str(HERE / LIBRARY))
    library.gsnmf_fingerprint.restype = ctypes.c_char_p
    return library


def _threads() -> int:
    named = os.environ.get("GSNMF_THREADS")
    if named is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not named.isdecimal() or int(named) < 1:
        raise ValueError(f"expected GSNMF_THREADS to be a whole number of at least 1; got {named!r}")
    return int(named)
