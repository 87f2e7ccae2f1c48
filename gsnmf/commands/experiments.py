"""The commands `gsnmf reproduce` and `gsnmf sweep`: options and printed output."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import Interrupted, check_folder, place
from .outputs import add_force, check_outputs

if TYPE_CHECKING:
    from ..experiments.protocol import PreparedDataset, Workload

PATHS, CLUSTER = ("--data", "--out"), "pip install 'gsnmf[cluster]'"
DATASETS = ("digits", "orl", "yale", "yale-condition", "jaffe")
METHOD_NAMES = ("pca", "nmf_kl", "nmf_vb", "nmf_gs")
REPRODUCE_EXAMPLE = "  gsnmf reproduce orl --quick"
REPRODUCE = f"""examples:
{REPRODUCE_EXAMPLE}
  gsnmf reproduce yale --data yale_centered.npz --methods nmf_gs --validation
  gsnmf reproduce orl --backend dask --scheduler tcp://10.0.0.1:8786

5 runs of 10-fold cross-validation with 10 random restarts each: dictionaries are learned from the training part, both
parts are mapped onto them by nonnegative least squares, and the nearest training sample by cosine gives the class.
Every fold is appended to one file when it is done; the same command resumes an interrupted run. digits come with
scikit-learn, orl with `pip install 'gsnmf[faces]'`; --data names your own copy of yale and jaffe."""
SWEEP_EXAMPLE = "  gsnmf sweep orl --vary large=32,256,2048,16384"
SWEEP = f"""examples:
{SWEEP_EXAMPLE}
  gsnmf sweep yale --data yale_centered.npz --vary small=1,32 --vary large=32,512,8192,131072
  gsnmf sweep digits --method nmf_vb --vary a_v=0.1,1 --vary rank=20,30,50

All combinations of the given values are run, with the other settings as in the presets; by default one run of 10 folds
with 3 restarts. The same command resumes an interrupted sweep."""


def add_commands(commands: Any, **common: Any) -> None:
    """Add the parsers of `gsnmf reproduce` and `gsnmf sweep`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    reproduce = commands.add_parser(
        "reproduce",
        help="reproduce the paper's tables on digits and faces",
        description="Run the paper's protocol with four methods and print the table next to the paper's.",
        epilog=REPRODUCE,
        **common,
    )
    reproduce.set_defaults(run=_reproduce)
    _work_options(reproduce)
    names = ", ".join(METHOD_NAMES)
    reproduce.add_argument(
        "--methods", nargs="+", choices=METHOD_NAMES, default=METHOD_NAMES, metavar="NAME", help=f"out of {names}"
    )
    reproduce.add_argument("--quick", action="store_true", help="2 of 10 folds, 2 restarts: takes minutes")
    reproduce.add_argument(
        "--validation", action="store_true", help="also choose a restart on validation samples: twice the work"
    )
    sweep = commands.add_parser(
        "sweep",
        help="measure accuracy as hyperparameters change",
        description="Cross-validate a method over a grid of settings; print a table and draw accuracies.",
        epilog=SWEEP,
        **common,
    )
    sweep.set_defaults(run=_sweep)
    _work_options(sweep)
    sweep.add_argument("--method", choices=METHOD_NAMES, default="nmf_gs", help="method to vary (default: nmf_gs)")
    sweep.add_argument(
        "--vary", action="append", type=varied, metavar="NAME=V1,V2", help="values of a setting; may be repeated"
    )


def _work_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", choices=DATASETS, metavar="DATASET", help=", ".join(DATASETS))
    parser.add_argument("--data", type=place, metavar="PATH", help="your copy of yale or jaffe: a folder, or an npz")
    parser.add_argument(
        "--out", type=place, metavar="FILE", help="results (default: gsnmf_results/COMMAND_DATASET.jsonl)"
    )
    add_force(parser)
    parser.add_argument("--runs", type=positive_integer, metavar="N", help="cross-validations")
    parser.add_argument("--folds", type=positive_integer, metavar="N", help="number of the 10 folds to use")
    parser.add_argument("--restarts", type=positive_integer, metavar="N", help="random starts")
    parser.add_argument(
        "--bounds", action="store_true", help="estimate collapsed bounds too, and their correlations with accuracy"
    )
    parser.add_argument("--jobs", type=positive_integer, metavar="N", help="folds in parallel (default: one per core)")
    parser.add_argument(
        "--backend", default="loky", metavar="NAME", help="joblib backend: loky (default), threading, dask, …"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="scheduler of a Dask cluster, with --backend dask")


def positive_integer(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1; got {text!r}")
    return int(text)


def varied(text: str) -> tuple[str, list[Any]]:
    """Parse NAME=V1,V2 into a name and its values: numbers where possible, else text."""
    name, found, values = text.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not found or not name.isidentifier() or not all(parts):
        raise argparse.ArgumentTypeError(f"expected NAME=V1,V2,…, as in large=32,256; got {text!r}")
    return name, [_value(part) for part in parts]


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _reproduce(arguments: argparse.Namespace) -> int:
    from ..experiments.presets import preset
    from ..experiments.protocol import FULL, QUICK
    from ..experiments.tables import MEANING, differences, summary

    plan = _plan(arguments, QUICK if arguments.quick else FULL)._replace(validation=arguments.validation)
    methods = [(name, preset(arguments.dataset, name)) for name in dict.fromkeys(arguments.methods)]
    rows, path = _work(arguments, plan, methods)
    table, gaps = summary(rows), differences(rows)
    print(f"\n{arguments.dataset}: accuracy, mean over folds ± standard error\n\n{table.T.to_string()}\n")
    for name, meaning in MEANING.items():
        if name in table:
            print(f"  {name}: {meaning}")
    print("Folds share most of their training samples, so these standard errors are somewhat too small.")
    if arguments.dataset == "jaffe":
        print("The paper's numbers of nmf_kl on JAFFE repeat those on Yale: probably a copy error.")
    if len(gaps):
        print(f"\nPaired differences over folds (corrected: for overlapping training parts)\n\n{gaps.to_string()}")
    _print_correlations(rows)
    print(f"\nResults in {path}")
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    from ..experiments.methods import resolve
    from ..experiments.presets import preset
    from ..experiments.protocol import FULL
    from ..experiments.results import by_fold

    if arguments.vary is None and arguments.method != "nmf_gs":
        raise ValueError(f"expected --vary NAME=V1,V2 with --method {arguments.method}; got none")
    grid: dict[str, list[Any]] = {}
    for name, values in arguments.vary or [("small", [1, 32, 1024]), ("large", [2**n for n in range(5, 18, 2)])]:
        grid[name] = grid.get(name, []) + values
    base = preset(arguments.dataset, arguments.method)
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    methods = [(arguments.method, resolve(arguments.method, base | one)) for one in combinations]
    rows, path = _work(arguments, _plan(arguments, FULL._replace(runs=1, restarts=3)), methods)
    folds = by_fold(rows)
    shown = [name for name in ("min", "mean", "max", "roots", "vote", "bound", "collapsed") if name in folds]
    table = folds.groupby(list(grid), sort=False, dropna=False)[shown].mean()
    print(f"\n{arguments.dataset}, {arguments.method}: mean over folds\n\n{table.round(4).to_string()}")
    _print_correlations(rows)
    print(f"\nResults in {path}")
    if arguments.method == "nmf_gs" and "large" in grid:
        from ..experiments.figures import draw_accuracy

        for drawn in draw_accuracy(folds, path.with_suffix(""), f"{arguments.dataset}, K = {base['rank']}"):
            print(f"  {drawn}")
    return 0


def _plan(arguments: argparse.Namespace, plan: Workload) -> Workload:
    if arguments.folds is not None and arguments.folds > plan.folds:
        raise ValueError(f"expected --folds of at most {plan.folds}; got {arguments.folds}")
    given = {"runs": arguments.runs, "use": arguments.folds, "restarts": arguments.restarts}
    return plan._replace(bounds=arguments.bounds, **{k: v for k, v in given.items() if v is not None})


def _work(
    arguments: argparse.Namespace, plan: Workload, methods: list[tuple[str, dict[str, Any]]]
) -> tuple[list, Path]:
    """Run the plan; return its rows, and the file they are in."""
    name = "sweep" if hasattr(arguments, "vary") else "reproduce"
    path = arguments.out or Path("gsnmf_results") / f"{name}_{arguments.dataset}.jsonl"
    if path.suffix != ".jsonl" or path.is_dir():
        raise ValueError(f"expected --out to name a .jsonl file; got {path}")
    pictures = [path.with_name(f"{path.stem}_accuracy{suffix}") for suffix in (".png", ".pdf")]
    check_outputs([path, *(pictures if name == "sweep" else ())], [arguments.data], arguments.force)
    check_folder(path.parent)
    if arguments.scheduler is not None and arguments.backend != "dask":
        raise ValueError(f"expected --backend dask with --scheduler; got {arguments.backend}")
    from .. import memory
    from ..experiments.protocol import run
    from ..experiments.results import read
    from ..interrupts import raise_if_received
    from ..model import as_data

    raise_if_received()
    problem = load(arguments.dataset, arguments.data)
    F, N = problem.X.shape
    print(f"{problem.name}: {F:,} features × {N:,} samples, {len(set(problem.labels.tolist()))} classes")
    memory.plan(as_data(problem.X), max(settings["rank"] for _, settings in methods)).check()
    if path.exists() and (rows := read(path)):
        print(f"gsnmf: resuming from {path}, which has {len(rows)} folds", file=sys.stderr)
    jobs, said = arguments.jobs or os.cpu_count() or 1, _said(arguments.words)
    try:
        with _cluster(arguments.scheduler) if arguments.backend == "dask" else nullcontext():
            return run(problem, plan, methods, path, jobs=jobs, backend=arguments.backend, command=said), path
    except KeyboardInterrupt:
        raise Interrupted(_kept(path)) from None
    except (BrokenProcessPool, _killed_in_dask()):
        lost = "a worker process was ended by the system, perhaps for lack of memory (--jobs sets their number)"
        raise ChildProcessError(f"{lost}; {_kept(path)}") from None


def _kept(path: Path) -> str:
    from ..experiments.results import read

    done = len(read(path)) if path.exists() else 0
    return f"{path} has {done} folds; the same command resumes from there"


def _killed_in_dask() -> type[Exception]:
    """Return Dask's error for a lost worker; without Dask, the error of other pools."""
    killed: type[Exception] = getattr(sys.modules.get("distributed"), "KilledWorker", BrokenProcessPool)
    return killed


def _said(words: list[str]) -> str:
    """Return the command, with files named without their folders."""
    short, last = ["gsnmf"], ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in PATHS:
            word = f"{name}={Path(value).name}"
        short.append(Path(word).name if last in PATHS else word)
        last = word
    return shlex.join(short)


def load(dataset: str, data: Path | None) -> PreparedDataset:
    """Load a dataset, preprocessed as in the paper.

    Args:
        dataset: one of `DATASETS`.
        data: the user's copy, for datasets that need one.
    """
    from ..experiments.protocol import PreparedDataset
    from ..images.preprocessing import prepared

    try:
        found = prepared(dataset, data)
    except ValueError as error:
        if data is not None:
            raise
        raise ValueError(f"expected --data PATH with {dataset}: {error}") from None
    return PreparedDataset(dataset, found.X, found.labels)


def _cluster(scheduler: str | None) -> Any:
    """Return a Dask client, which joblib then finds; without a scheduler, a local one."""
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise ImportError(f"expected dask.distributed for --backend dask; got none ({error}). Run: {CLUSTER}") from None
    return Client(scheduler)


def _print_correlations(rows: list[dict[str, Any]]) -> None:
    from ..experiments.tables import correlations

    table = correlations(rows)
    if len(table):
        print("\nDoes a higher bound mean a better classifier? Rank correlations of bounds with accuracy\n")
        print(table.to_string(index=False, float_format="{:.2f}".format))
