"""What commands ask for in the same words: a matrix of yours with its priors, folders, seeds."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model import Data, Priors

FILES = """\
FILE holds a matrix, features × samples: .npy, .npz (one array, or the one called X), .csv or .tsv. The first row and
column of the last two may name samples and features. Labels are .npy, .npz, or text with one label per line, which
may begin with a line that says label, group or class. NaN, and cells that are empty or say NA, are missing entries, or
labels that are unknown and are learned; at the end of a file of labels write NA, as empty lines there do not count."""
GROUP_OPTIONS = {"per_group": 3, "small": 32.0, "large": 256.0, "scale": 1e6, "init": "random", "lam_start": "prior"}
PRIOR_OPTIONS = {"a_t": 0.6, "b_t": 20.0}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence on what is saved."""


def add_problem(
    parser: argparse.ArgumentParser, *, optional: bool = False, init: str = "random", several: bool = False
) -> None:
    """The options about X, its labels and the priors; `check_problem` fills in their defaults.

    Args:
        parser: of the command.
        optional: whether the command can do without a file.
        init: how T and V start unless told, for the help.
        several: whether the command takes numbers of components to try, and not just one.
    """
    shape = "features × samples: npy, npz, csv or tsv"
    if optional:
        parser.add_argument(
            "file", type=Path, nargs="?", metavar="FILE", help=f"{shape} (default: drawn from the model)"
        )
    else:
        parser.add_argument("file", type=Path, metavar="FILE", help=shape)
    parser.add_argument("--labels", type=Path, metavar="FILE", help="one label per sample: npy, npz, csv, tsv or txt")
    if several:
        help_ = "numbers of components to try: FROM:TO, FROM:TO:STEP, or a list as in 2,4,8"
        parser.add_argument("--ranks", type=ranks, required=True, metavar="K", help=help_)
        parser.set_defaults(rank=None, per_group=None)
    else:
        parser.add_argument("--rank", type=int, metavar="K", help="components in all; required without --labels")
    group = parser.add_argument_group("with --labels, the paper's prior (11)")
    if not several:
        group.add_argument(
            "--per-group", type=int, metavar="N", help="components of each label, if not --rank (default: 3)"
        )
    group.add_argument("--small", type=float, metavar="A", help="shape of λ at a component's own label (default: 32)")
    group.add_argument("--large", type=float, metavar="A", help="shape of λ at other labels (default: 256)")
    group.add_argument("--scale", type=float, metavar="B", help="scale of λ (default: 1e6)")
    group.add_argument("--init", choices=["random", "groups"], help=f"how T and V start (default: {init})")
    lam_help = "λ starts at its prior mean (default) or at its shape, better for large shapes"
    group.add_argument("--lam-start", choices=["prior", "shape"], help=lam_help)
    parser.add_argument("--a-t", type=float, metavar="A", help="shape of the dictionary's prior (default: 0.6)")
    parser.add_argument("--b-t", type=float, metavar="B", help="its scale (default: 20)")


def check_problem(arguments: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and fill in the defaults of those that have."""
    grouped = [name for name in GROUP_OPTIONS if getattr(arguments, name) is not None]
    if arguments.file is None:
        given = [name for name in ("labels", "rank", *PRIOR_OPTIONS) if getattr(arguments, name) is not None] + grouped
        if given:
            raise ValueError(f"expected FILE with --{given[0].replace('_', '-')}; got none")
    elif arguments.labels is None and grouped:
        raise ValueError(f"expected --labels with --{grouped[0].replace('_', '-')}; got none")
    elif arguments.labels is None and arguments.rank is None:
        raise ValueError("expected --labels FILE, or --rank K for a model without groups; got neither")
    if arguments.rank is not None and arguments.per_group is not None:
        raise ValueError("expected --per-group or --rank; got both")
    for name, value in (GROUP_OPTIONS | PRIOR_OPTIONS).items():
        if getattr(arguments, name) is None and not (name == "per_group" and arguments.rank is not None):
            setattr(arguments, name, value)


def read_problem(arguments: argparse.Namespace) -> tuple[Data, Priors, int]:
    """Data and priors of the options, checked against each other, and the rank."""
    from ..files import read_labels, read_matrix
    from ..model import as_data
    from ..model.problem import Problem

    X, features, samples = read_matrix(arguments.file)
    labels = None if arguments.labels is None else read_labels(arguments.labels)
    data = as_data(X, labels, feature_names=features, sample_names=samples)
    priors = make_priors(arguments, data, arguments.rank)
    return data, priors, Problem(data, priors, arguments.rank).rank


def make_priors(arguments: argparse.Namespace, data: Data, rank: int | None) -> Priors:
    """The priors of the options with so many components in all; None for --per-group of each label."""
    from ..model import Gamma, GroupSparse, Priors, label_driven, matching

    dictionary = Gamma(arguments.a_t, arguments.b_t)
    if rank is not None and data.num_groups == 0:
        return Priors(dictionary, matching(data, dictionary, rank))
    how = {"per_group": arguments.per_group} if rank is None else {"rank": rank}
    shapes = {name: getattr(arguments, name) for name in ("small", "large", "scale")}
    return Priors(dictionary, GroupSparse(label_driven(num_groups=data.num_groups, **how, **shapes)))


def check_folder(folder: Path) -> None:
    """Make the folder and see that files can be written there, before any work is done for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"expected a folder to write into; got {folder} ({os.strerror(error.errno or 0)})") from None


def seed(text: str) -> int:
    """A whole number that random generators take."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}; got {text!r}")
    return int(text)


def ranks(text: str) -> list[int]:
    """FROM:TO with both ends, FROM:TO:STEP, or a list.

    >>> ranks("2:5"), ranks("2:8:3"), ranks("4,2")
    ([2, 3, 4, 5], [2, 5, 8], [4, 2])
    """
    parts = text.split(":") if ":" in text else text.split(",")
    found: list[int] = []
    if all(part.isdecimal() and int(part) > 0 for part in parts) and (":" not in text or len(parts) <= 3):
        numbers = [int(part) for part in parts]
        found = list(range(numbers[0], numbers[1] + 1, *numbers[2:])) if ":" in text else numbers
    if not found:
        raise argparse.ArgumentTypeError(f"expected FROM:TO, FROM:TO:STEP or a list as in 2,4,8; got {text!r}")
    return found


def image_shape(text: str) -> tuple[int, int]:
    """HxW, as in 112x92."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"expected HxW, as in 112x92; got {text!r}")
    return int(parts[0]), int(parts[1])
