"""The command `gsnmf crosscheck`: options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .inputs import FILES, announce
from .options import (
    Interrupted,
    add_problem,
    check_folder,
    check_problem,
    open_journal,
    place,
    read_problem,
    seed,
    warn_of_choices,
)
from .outputs import add_force, check_outputs

CROSSCHECK_EXAMPLE = "  gsnmf crosscheck --out crosscheck --seed 1"
CROSSCHECK_EXAMPLES = f"""examples:
{CROSSCHECK_EXAMPLE}
  gsnmf crosscheck counts.csv --labels classes.csv --per-group 1 --draws 2000 --out crosscheck

The algorithms are coordinate ascent in closed form (CAVI), the same continued with S summed out, with means and widths
corrected by linear response (refined), stochastic gradients (SVI), Hamiltonian Monte Carlo (NUTS) and conjugate
sampling (Gibbs). Each has its own initialisation, from samples of the groups if there are labels, except that refined
continues CAVI, and the chains of NUTS start at draws from CAVI's posterior. The quantities compared do not depend on
the order and scale of components. Without FILE the problem is drawn from the model: 12 features × 18 samples in three
groups.

{FILES}
If X has fractions, Gibbs is left out. The folder gets crosscheck.csv, crosscheck.json, marginals.png and forest.png.
The result of each algorithm is kept in crosscheck.checkpoint.jsonl until all have ended: the same command resumes from
there after an interruption of any kind. JAX_ENABLE_X64=1 in the environment computes in double precision."""
WRITTEN = ("crosscheck.csv", "crosscheck.json", "marginals.png", "forest.png", "crosscheck.checkpoint.jsonl")


def add_crosscheck(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf crosscheck`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    crosscheck = commands.add_parser(
        "crosscheck",
        help="compare five algorithms on the same problem",
        description="Run CAVI, refined CAVI, SVI, NUTS and Gibbs on one small problem; show how far they agree.",
        epilog=CROSSCHECK_EXAMPLES,
        **common,
    )
    crosscheck.set_defaults(run=_crosscheck)
    folder = Path("gsnmf_crosscheck")
    crosscheck.add_argument(
        "--out", type=place, default=folder, metavar="DIR", help="output folder (default: %(default)s)"
    )
    add_problem(crosscheck, optional=True, init="groups")
    add_force(crosscheck)
    crosscheck.add_argument("--seed", type=seed, default=0, metavar="N", help="random seed (default: 0)")
    crosscheck.add_argument(
        "--draws",
        type=int,
        default=1000,
        metavar="N",
        help="draws of each chain, after as many of warm-up (default: 1000)",
    )
    crosscheck.add_argument(
        "--chains", type=int, default=4, metavar="N", help="chains of NUTS and of Gibbs (default: 4)"
    )


def _crosscheck(arguments: argparse.Namespace) -> int:
    written = [arguments.out / name for name in WRITTEN]
    check_outputs(written, (arguments.file, arguments.labels, arguments.seeds), arguments.force)
    check_problem(arguments)
    from ..crosscheck.run import check_sizes, run_crosscheck
    from ..inference.defaults import LAM_START
    from ..interrupts import raise_if_received

    check_sizes(arguments.draws, arguments.chains)
    check_folder(arguments.out)
    problem = None if arguments.file is None else read_problem(arguments)
    options = {name: getattr(arguments, name) for name in ("seed", "draws", "chains", "init")}  # init: its own default
    announce(arguments)
    if problem is not None:
        warn_of_choices(arguments, problem[0].num_groups, arguments.rank)
    journal = open_journal(written[-1])
    raise_if_received()
    try:
        run_crosscheck(
            arguments.out, problem, lam_start=arguments.lam_start or LAM_START, checkpoint=journal, **options
        )
    except KeyboardInterrupt:
        if journal.lines:
            raise Interrupted(f"the same command resumes from {journal.path}") from None
        raise
    journal.remove()
    return 0
