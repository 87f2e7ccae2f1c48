"""Options that several commands share: the data, their priors, how a fit runs, folders and seeds."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .inputs import READING, add_reading, read_data

if TYPE_CHECKING:
    from ..journal import Journal
    from ..model import Data, Priors

# An option that is left out stays None, and then the library's own default holds (gsnmf.model.defaults,
# gsnmf.inference.defaults). Help texts repeat these numbers, as help must not wait for the library to be imported.
GROUP_OPTIONS = ("per_group", "common", "prior", "small", "large", "scale", "init", "lam_start")
DICTIONARY_OPTIONS = ("a_t", "b_t")
MOST_RANKS = 1000  # numbers of components to compare
SEED_OPTIONS = ("seeds", "strength")
PRIOR_OPTIONS = ("per_group", "common", "prior", "small", "large", "scale", *DICTIONARY_OPTIONS)


class Interrupted(KeyboardInterrupt):
    """A KeyboardInterrupt (Ctrl-C) with a sentence about what was saved."""


def add_problem(
    parser: argparse.ArgumentParser, *, optional: bool = False, init: str = "random", several: bool = False
) -> None:
    """Add the options for X, its labels and the priors.

    Args:
        parser: of the command.
        optional: whether FILE may be left out.
        init: the command's default initialisation of T and V, for the help.
        several: whether the command takes several numbers of components to compare.
    """
    shape = "a matrix: npy, npz, csv, tsv, mtx, parquet, h5ad, h5, or a folder of 10x"
    if optional:
        parser.add_argument(
            "file", type=place, nargs="?", metavar="FILE", help=f"{shape} (default: a draw from the model)"
        )
    else:
        parser.add_argument("file", type=place, metavar="FILE", help=shape)
    parser.add_argument(
        "--labels", type=place, metavar="FILE", help="one label per sample: npy, npz, csv, tsv, txt, or obs:COLUMN"
    )
    add_reading(parser)
    if several:
        help_ = "numbers of components to try: FROM:TO, FROM:TO:STEP, or a list as in 2,4,8"
        parser.add_argument("--ranks", type=ranks, required=True, metavar="K", help=help_)
        parser.set_defaults(rank=None, per_group=None)
    else:
        parser.add_argument("--rank", type=int, metavar="K", help="components in all; required without --labels")
    group = parser.add_argument_group("with --labels, the group-sparse prior (11) of the paper")
    if not several:
        group.add_argument(
            "--per-group", type=int, metavar="N", help="components of each label, unless --rank is given (default: 3)"
        )
    group.add_argument("--common", type=int, metavar="N", help="components that all labels share (default: 0)")
    prior_help = (
        "relative: --small and --large are fractions of a sample's counts; paper: shapes of λ (default: relative)"
    )
    group.add_argument("--prior", choices=["relative", "paper"], help=prior_help)
    own = "shrinkage at a component's own label (default: 0.001; with --prior paper: 32)"
    group.add_argument("--small", type=float, metavar="A", help=own)
    group.add_argument(
        "--large", type=float, metavar="A", help="shrinkage at other labels (default: 0.01; with --prior paper: 256)"
    )
    group.add_argument("--scale", type=float, metavar="B", help="scale of λ's prior (default: 1e6)")
    group.add_argument("--init", choices=["random", "groups"], help=f"initialisation of T and V (default: {init})")
    lam_help = "initialisation of λ: its prior mean, or its shape, better for large shapes (default: prior)"
    group.add_argument("--lam-start", choices=["prior", "shape"], help=lam_help)
    parser.add_argument("--a-t", type=float, metavar="A", help="shape of the dictionary's prior (default: 0.6)")
    parser.add_argument("--b-t", type=float, metavar="B", help="scale of the dictionary's prior (default: 20)")
    sets = "sets of features, each large in a component: .json or .gmt; a set with a label's name is bound to it"
    parser.add_argument("--seeds", type=place, metavar="FILE", help=sets)
    ratio = "prior mean of a feature in its set's component, relative to other features (default: 1000)"
    parser.add_argument("--strength", type=float, metavar="S", help=ratio)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options that say when a fit stops."""
    parser.add_argument("--max-steps", type=int, metavar="N", help="sweeps at most (default: 300)")
    parser.add_argument("--tol", type=float, help="relative change of the bound at which a fit stops (default: 1e-6)")


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of the options that were given."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def run_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return init, lam_start, max_steps and tol, as given or at the library's defaults."""
    from ..inference.defaults import INIT, LAM_START, MAX_STEPS, TOL

    defaults = {"init": INIT, "lam_start": LAM_START, "max_steps": MAX_STEPS, "tol": TOL}
    return defaults | given(arguments, *defaults)


def check_problem(arguments: argparse.Namespace) -> None:
    """Raise ValueError for options that contradict each other or would have no effect."""
    grouped = list(given(arguments, *GROUP_OPTIONS))
    if arguments.file is None:
        without = [*given(arguments, "labels", "rank", *DICTIONARY_OPTIONS, *SEED_OPTIONS, *READING), *grouped]
        if without:
            raise ValueError(f"expected FILE with --{without[0].replace('_', '-')}; got none")
    elif arguments.labels is None and grouped:
        raise ValueError(f"expected --labels with --{grouped[0].replace('_', '-')}; got none")
    elif arguments.labels is None and arguments.rank is None:
        raise ValueError("expected --labels FILE, or --rank K for a model without groups; got neither")
    if arguments.rank is not None and arguments.per_group is not None:
        raise ValueError("expected --per-group or --rank; got both")
    if arguments.strength is not None and arguments.seeds is None:
        raise ValueError("expected --seeds with --strength; got none")
    if arguments.prior != "paper":
        for name, value in given(arguments, "small", "large").items():
            if value >= 1:
                said = f"expected --{name} to be a fraction of a sample's counts, below 1; got {value:g}"
                raise ValueError(f"{said} (for shapes of λ add --prior paper)")


def warn_of_choices(arguments: argparse.Namespace, num_groups: int, rank: int | None) -> None:
    """Warn of labels without a component of their own, and of shrinkage that is rarely meant.

    Args:
        arguments: of the command.
        num_groups: number of labels.
        rank: --rank; None if there is no single one.
    """
    from ..model.defaults import said_of_choices

    chosen = given(arguments, "common", "prior", "small", "large")
    for said in said_of_choices(num_groups, "--rank, or --per-group", rank=rank, **chosen):
        print(f"gsnmf: warning: {said}", file=sys.stderr)


def read_problem(arguments: argparse.Namespace) -> tuple[Data, Priors, int]:
    """Read the data and build the priors; return both, checked against each other, and the rank."""
    from ..interrupts import raise_if_received
    from ..model.problem import Problem

    raise_if_received()  # during the imports so far: reading may take minutes
    check_files(arguments)
    data = read_data(arguments, arguments.file)
    check_components(arguments, data)
    priors = make_priors(arguments, data, arguments.rank)
    return data, priors, Problem(data, priors, arguments.rank).rank


def check_components(arguments: argparse.Namespace, data: Data) -> None:
    """Raise ValueError if factors of so many components do not fit in memory, before priors are built."""
    from ..memory import plan

    plan(data, max(getattr(arguments, "ranks", None) or [asked_components(arguments, data.num_groups)])).check()


def asked_components(arguments: argparse.Namespace, num_groups: int) -> int:
    """Return the number of components that the options ask for."""
    from ..model.defaults import num_components

    return num_components(num_groups, **given(arguments, "rank", "per_group", "common"))


def check_files(arguments: argparse.Namespace) -> None:
    """Raise ValueError if the header of a file states more than memory holds, before the file is read."""
    from ..memory import plan_file

    for path, key in ((arguments.file, arguments.key), (arguments.labels, None)):
        planned = None if path is None else plan_file(path, arguments.rank or 0, key)
        if planned is not None:
            planned.check()


def make_priors(arguments: argparse.Namespace, data: Data, rank: int | None) -> Priors:
    """Build the priors for these options and this number of components; None for --per-group of each label."""
    from ..model import default_priors, seeded_priors
    from ..model.silence import quiet
    from ..sets import read_sets

    with quiet():  # see `warn_of_choices`
        priors = default_priors(data, rank=rank, **given(arguments, *PRIOR_OPTIONS))
    if arguments.seeds is None:
        return priors
    return seeded_priors(priors, data, read_sets(arguments.seeds), rank=rank, **given(arguments, "strength"))


def check_folder(folder: Path) -> None:
    """Create the folder and check that it is writable, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"expected a folder to write into; got {folder} ({os.strerror(error.errno or 0)})") from None


def open_journal(path: Path) -> Journal:
    """Open the file that keeps the pieces of a long command, and say if it has some already."""
    from ..journal import Journal

    journal = Journal(path)
    if journal.lines:
        print(f"gsnmf: resuming from {path}, which has {len(journal.lines)} results", file=sys.stderr)
    return journal


def place(text: str) -> Path:
    """Parse the name of a file or folder; an unset variable of the shell leaves it empty, which Path takes for ".".

    Args:
        text: as given.
    """
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file or folder; got ''")
    return Path(text)


def seed(text: str) -> int:
    """Parse a seed: a whole number that random generators accept."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}; got {text!r}")
    return int(text)


def ranks(text: str) -> list[int]:
    """Parse FROM:TO (both ends included), FROM:TO:STEP, or a list.

    >>> ranks("2:5"), ranks("2:8:3"), ranks("4,2")
    ([2, 3, 4, 5], [2, 5, 8], [4, 2])
    """
    parts = text.split(":") if ":" in text else text.split(",")
    found: Any = []
    if all(part.isdecimal() and int(part) > 0 for part in parts) and (":" not in text or len(parts) <= 3):
        numbers = [int(part) for part in parts]
        found = range(numbers[0], numbers[1] + 1, *numbers[2:]) if ":" in text else numbers
    if len(found[: MOST_RANKS + 1]) > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_RANKS} numbers of components to try; got {text!r}")
    if not found:
        raise argparse.ArgumentTypeError(f"expected FROM:TO, FROM:TO:STEP or a list as in 2,4,8; got {text!r}")
    return list(found)


def image_shape(text: str) -> tuple[int, int]:
    """Parse HxW, as in 112x92."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"expected HxW, as in 112x92; got {text!r}")
    return int(parts[0]), int(parts[1])
