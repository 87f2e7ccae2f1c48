"""Run the notebooks from top to bottom, each in a kernel of its own, and keep what they show.

    make notebooks                                    # all of them, in full: some minutes on two cores
    python notebooks/run_notebooks.py notebooks/01_quickstart.ipynb

`tests/docs/test_notebooks.py` runs them in their reduced form, which `GSNMF_QUICK=1` asks for, and keeps no results.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
SECONDS = 1800  # for one cell; a hanging kernel ends some day


def notebooks() -> list[Path]:
    """All of them, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path, *, quick: bool = False) -> NotebookNode:
    """The notebook with the outputs of a fresh run; the file stays as it is.

    Args:
        path: of the notebook.
        quick: the reduced form.
    """
    notebook = nbformat.read(path, as_version=4)
    # The kernel is that of this interpreter, whatever others are installed, and it finds the modules of this folder.
    native = KernelSpecManager(kernel_dirs=[])
    modules = os.pathsep.join(filter(None, [str(FOLDER.parent.resolve()), os.environ.get("PYTHONPATH")]))
    environment = {"GSNMF_QUICK": str(int(quick)), "PYTHONPATH": modules}
    where = {"metadata": {"path": str(FOLDER)}}
    with tempfile.TemporaryDirectory() as folder:  # sockets that are files need no network
        sockets = {"transport": "ipc", "ip": f"{folder}/kernel"}
        kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=native, **sockets)
        client = NotebookClient(notebook, kernel, timeout=SECONDS, resources=where, record_timing=False)
        client.execute(cleanup_kc=True, env=os.environ | environment)  # the kernel ends, too
    return tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Without what differs from machine to machine: versions of Python, identifiers of the run."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    return notebook


def main(arguments: list[str]) -> None:
    """Run those that are named, or all, and write their outputs into the files."""
    for path in map(Path, arguments) if arguments else notebooks():
        begin = time.perf_counter()
        notebook = execute(path)
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s, {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
