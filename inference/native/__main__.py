"""Command that builds the compiled kernels in place: python -m gsnmf.inference.native."""

from __future__ import annotations

import shlex
import sys
import time

from .build import BuildError, compile_library, find_compiler
from .library import describe


def main() -> int:
    """Build the library and say what was done; return the exit status."""
    begun = time.perf_counter()
    try:
        path = compile_library()
    except BuildError as error:
        print(f"no compiled kernels: {error}", file=sys.stderr)
        return 1
    print(f"{path}: built by {shlex.join(find_compiler())} in {time.perf_counter() - begun:.1f} s")
    print(describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
