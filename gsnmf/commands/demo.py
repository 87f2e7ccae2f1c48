"""The command `gsnmf demo`: options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import check_folder, place, seed
from .outputs import add_force, check_outputs

DEMO_EXAMPLE = "  gsnmf demo --out demo --seed 1"
DEMO_EXAMPLES = f"""examples:
{DEMO_EXAMPLE}
  gsnmf demo --labels 0.3 --out demo

With --labels SHARE only this proportion of the labels is given to the fit. The demo prints how many hidden labels it
recovers, compared with fits to the labelled images alone and with all labels, and shows the calibration of its
probabilities as a table and as a picture."""

# What is written without and with --labels
PICTURES = ("bound", "hinton_v", "hinton_lambda", "coefficients", "dictionary"), ("reliability", "dictionary")


def add_demo(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf demo`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    demo = commands.add_parser(
        "demo",
        help="handwritten digits, with and without labels in the prior",
        description="Fit scikit-learn's digits with and without labels; print a table and write pictures.",
        epilog=DEMO_EXAMPLES,
        **common,
    )
    demo.add_argument(
        "--out", type=place, default=Path("gsnmf_demo"), metavar="DIR", help="output folder (default: %(default)s)"
    )
    demo.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the first random start (default: 0)")
    demo.add_argument("--labels", type=float, metavar="SHARE", help="proportion of labels to keep, from 0.05 to 0.95")
    add_force(demo)
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    written = PICTURES[arguments.labels is not None]
    check_outputs((arguments.out / f"{name}.png" for name in written), (), arguments.force)
    check_folder(arguments.out)
    if arguments.labels is None:
        from ..demo.digits import run_demo

        run_demo(arguments.out, arguments.seed)
    else:
        from ..demo.unlabelled import run_labels_demo

        run_labels_demo(arguments.out, arguments.labels, arguments.seed)
    return 0
