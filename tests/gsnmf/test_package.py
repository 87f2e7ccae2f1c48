"""The package as it is installed: from a wheel built from the source distribution, in an environment of its own."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gsnmf


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_version_is_in_the_citation_and_the_changelog():
    assert f"version: {gsnmf.__version__}\n" in Path("CITATION.cff").read_text()
    assert f"## {gsnmf.__version__}" in Path("CHANGELOG.md").read_text()


def test_nothing_is_imported_twice():
    """The links gsnmf/model and gsnmf/inference are for tools; a module has one name."""
    code = "import gsnmf.cli, gsnmf.inference, sys; print([m for m in sys.modules if m.split('.')[0] == 'model'])"
    assert run(sys.executable, "-c", code, cwd="/").strip() == "[]"


@pytest.mark.slow
def test_wheel_from_sdist_installs_and_runs(tmp_path):
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--outdir", tmp_path, Path.cwd())  # the wheel is built from the sdist
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    wanted = {"gsnmf/py.typed", "gsnmf/model/priors.py", "gsnmf/inference/cavi.py", "gsnmf/cli.py"}
    wanted |= {f"gsnmf/reporting/page.{end}" for end in ("py", "html", "css", "js")}
    wanted |= {"gsnmf/estimator.py", "gsnmf/experiments/protocol.py", "gsnmf/experiments/presets.toml"}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted <= set(archive.namelist())
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"model/priors.py", "inference/cavi.py", "LICENSE", "README.md"} <= names
    run(python, "-m", "pip", "install", "--quiet", wheel)
    code = "import gsnmf.model, gsnmf.inference as i; print(i.cavi.__name__, i.__file__)"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    out = run(python, "-c", code, cwd=tmp_path, env=env)
    assert out.startswith("gsnmf.inference.cavi ")
    assert str(environment) in out
    assert "gsnmf fit" in run(environment / "bin" / "gsnmf", "--help", cwd=tmp_path, env=env)


def test_the_workflow_runs_targets_that_exist():
    """Every `make TARGET` in it is in the Makefile, every Python that the package names is tested, with both pandas."""
    workflow, makefile = Path(".github/workflows/ci.yml").read_text(), Path("Makefile").read_text()
    targets = set(re.findall(r"run: make ([a-z-]+)", workflow))
    assert targets >= {"lint", "test", "test-lowest", "test-slow", "mutants", "fuzz", "release-check"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for version in re.findall(r"Python :: (3\.\d+)", Path("pyproject.toml").read_text()):
        assert f'"{version}"' in workflow
        assert version in re.search(r"^PYTHONS := (.*)$", makefile, re.MULTILINE)[1].split()
    generations = re.search(r"\$\(or \$\(PANDAS\),([\d ]+)\)", makefile)[1].split()
    assert generations == re.findall(r'"(\d+)"', re.search(r"pandas: \[(.*)\]", workflow)[1]) == ["2", "3"]
