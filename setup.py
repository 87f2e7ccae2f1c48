"""Build step beyond pyproject.toml: compiles the kernels of inference/native, if there is a compiler.

An installation without them works as well: sweeps over sparse matrices then take JAX's way, which is slower.
"""

import importlib.util
import logging
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path(__file__).parent / "inference" / "native"
spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
native = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = native
spec.loader.exec_module(native)


class BuildWithKernels(build_py):
    """Puts the library beside its sources: in the checkout if that is installed as editable, else in the wheel."""

    def run(self):
        """Build as usual, then compile; a failure is a line of log."""
        super().run()
        folder = NATIVE if self.editable_mode else Path(self.build_lib, "gsnmf", "inference", "native")
        try:
            logging.info("compiled kernels: %s", native.compile_library(folder))
        except native.BuildError as error:
            logging.warning("no compiled kernels, slower sweeps over sparse matrices: %s", error)


class WheelForEveryPython(bdist_wheel):
    """A wheel with a library is for one platform, but for every Python."""

    def get_tag(self):
        """Return the tag that stands in the wheel's name."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", platform)


class WithLibrary(Distribution):
    """A distribution with a library, if there is a compiler."""

    def has_ext_modules(self):
        """Return whether it depends on the platform."""
        return bool(native.find_compiler())


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelForEveryPython})
