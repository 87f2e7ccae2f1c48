"""Install the package in every way people do, each in a new environment, and say which path a sparse fit takes there.

    python tests/install_matrix.py                        # all of them, on every Python from 3.11 to 3.13 there is
    python tests/install_matrix.py --pythons 3.11 --only wheel

It needs nothing but Python, and uv if it is there. Environments and copies of the sources are in a temporary folder,
which is removed. "No compiler" is a PATH without any, and CXX unset. The exit status is 1 if an installation failed,
took another path than expected, or fitted something else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|cpp|c89|c99|tcc|icpx?|zig)(-[\d.]+)?$")
UV = shutil.which("uv")
FIT = """
import importlib.metadata, json, scipy.sparse, gsnmf
from gsnmf.inference import cavi, native
from gsnmf.inference.warning import quiet
from gsnmf.model import Gamma, Priors, as_data
import jax
X = scipy.sparse.random_array((30, 50), density=0.1, random_state=0)
with quiet():
    fit = cavi.run(as_data(X), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), rank=3, key=jax.random.key(0), max_steps=5)
print(json.dumps({"bound": float(fit.elbo[-1]), "jax": importlib.metadata.version("jax"), "from": gsnmf.__file__}))
"""


class Case(NamedTuple):
    """An installation: of what, whether there is a compiler, on all Pythons or on the first, the path expected."""

    what: str
    compiler: bool
    everywhere: bool
    path: str


CASES = [
    Case("editable", True, True, "compiled"),
    Case("wheel", True, True, "compiled"),
    Case("sdist", True, False, "compiled"),
    Case("editable", False, False, "JAX"),
    Case("wheel", False, True, "JAX"),
    Case("sdist", False, False, "JAX"),
    Case("editable[kernel]", False, False, "compiled"),
]


def run(*command: object, **options: object) -> str:
    """Run a command and return what it prints, or raise with the end of it."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)  # type: ignore[call-overload] # options are Popen's
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
        raise RuntimeError(f"{Path(str(command[0])).name} ended with {done.returncode}: {'; '.join(said[-2:])}")
    return str(done.stdout)


def find_pythons(wanted: list[str]) -> dict[str, str]:
    """Return the interpreters there are, on the PATH or among pyenv's."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in wanted:
        for path in [f"python{version}", *sorted(root.glob(f"{version}.*/bin/python"))]:
            try:
                found[version] = run(path, "-c", "import sys; print(sys.executable)").strip()
                break
            except (OSError, RuntimeError):
                continue
    return found


def environment(scratch: Path, compiler: bool) -> dict[str, str]:
    """Return the environment of commands; without a compiler, the PATH is a folder of links to everything else."""
    left_out = {"CC", "CXX", "PYTHONPATH", "VIRTUAL_ENV", "GSNMF_KERNEL", "XLA_FLAGS"}
    values = {name: value for name, value in os.environ.items() if name not in left_out}
    if not compiler:
        folder = scratch / "bin"
        if not folder.exists():
            folder.mkdir()
            for place in map(Path, reversed(os.environ["PATH"].split(os.pathsep))):  # of two, the first in the PATH
                for program in place.iterdir() if place.is_dir() else ():
                    if not COMPILER.match(program.name):
                        (folder / program.name).unlink(missing_ok=True)
                        (folder / program.name).symlink_to(program.absolute())
        values["PATH"] = str(folder)
        assert not any(shutil.which(name, path=values["PATH"]) for name in ("cc", "c++", "g++", "clang++"))
    return values


def checkout(folder: Path) -> Path:
    """Copy the sources, without anything that was built, and return the copy's path."""
    kept = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "kernels.so", "__pycache__")
    return Path(shutil.copytree(ROOT, folder, symlinks=True, ignore=kept))


def new_environment(python: str, folder: Path, env: dict[str, str]) -> Path:
    """Make a virtual environment and return its interpreter."""
    run(*([UV, "venv", "--quiet", "--python", python] if UV else [python, "-m", "venv"]), folder, env=env)
    return folder / "bin" / "python"


def pip(python: Path, *words: object, env: dict[str, str]) -> None:
    """Install into the interpreter's environment."""
    command = [UV, "pip", "install", "--python", python] if UV else [python, "-m", "pip", "install"]
    run(*command, "--quiet", *words, env=env)


def built(kind: str, compiler: bool, python: str, scratch: Path, env: dict[str, str]) -> Path:
    """Return the sdist or the wheel that is built from it, built once, by the first Python."""
    out = scratch / f"dist-{compiler}"
    if not out.exists():
        builder = new_environment(python, scratch / f"builder-{compiler}", env)
        pip(builder, "build", env=env)
        run(builder, "-m", "build", "--outdir", out, checkout(scratch / f"sources-{compiler}"), env=env)
    return next(out.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


def install(case: Case, version: str, pythons: dict[str, str], scratch: Path) -> dict[str, object]:
    """Install, ask for the version, fit, and return what was seen."""
    folder, env = scratch / f"{CASES.index(case)}-{version}", environment(scratch, case.compiler)
    folder.mkdir()
    python = new_environment(pythons[version], folder / "venv", env)
    if case.what in ("wheel", "sdist"):
        source = [built(case.what, case.compiler, next(iter(pythons.values())), scratch, env)]
    else:
        source = ["--editable", f"{checkout(folder / 'checkout')}{case.what.removeprefix('editable')}"]
    pip(python, *source, env=env)
    if case.what.endswith("[kernel]"):
        run(python, "-m", "gsnmf.inference.native", cwd=folder, env=env)
    said = run(python.parent / "gsnmf", "--version", cwd=folder, env=env).splitlines()[1].partition(": ")[2]
    fitted = json.loads(run(python, "-c", FIT, cwd=folder, env=env))
    if not str(fitted["from"]).startswith(str(folder)):
        raise RuntimeError(f"imported from {fitted['from']}")
    if not said.startswith(case.path):
        raise RuntimeError(f"expected the path {case.path!r}; got {said}")
    file = f" ({Path(source[0]).name.partition('-')[2]})" if case.what == "wheel" else ""
    return {"path": said, "jax": fitted["jax"], "bound": fitted["bound"], "what": case.what + file}


def main(words: list[str] | None = None) -> int:
    """Do what the module's docstring lists, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=["3.11", "3.12", "3.13"], metavar="VERSION")
    parser.add_argument("--only", default="", metavar="WORD", help="installations whose name contains this word")
    options = parser.parse_args(words)
    pythons, bounds, failed = find_pythons(options.pythons), [], 0
    for version in set(options.pythons) - set(pythons):
        print(f"no Python {version} here: left out", file=sys.stderr)
    if not pythons:
        parser.error(f"expected one of Python {', '.join(options.pythons)}; found none")
    print("| installed from | C++ compiler | Python | JAX | sparse X | seconds |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="gsnmf-install-") as scratch:
        for case in (case for case in CASES if options.only in case.what):
            for version in list(pythons)[: None if case.everywhere else 1]:
                begun = time.monotonic()
                try:
                    row = install(case, version, pythons, Path(scratch))
                    bounds.append(float(str(row["bound"])))
                    if abs(bounds[-1] - bounds[0]) > 1e-4 * abs(bounds[0]):  # single precision, another order of sums
                        raise RuntimeError(f"expected the bound {bounds[0]}; got {bounds[-1]}")
                except (OSError, RuntimeError) as error:
                    failed += 1
                    row = {"what": case.what, "jax": "", "path": f"FAILED: {error}"}
                compiler = "there" if case.compiler else "ziglang, by pip" if "[" in case.what else "none"
                took = time.monotonic() - begun
                print(
                    f"| {row['what']} | {compiler} | {version} | {row['jax']} | {row['path']} | {took:.0f} |",
                    flush=True,
                )
                shutil.rmtree(Path(scratch) / f"{CASES.index(case)}-{version}", ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
