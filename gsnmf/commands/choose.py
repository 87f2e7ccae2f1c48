"""`gsnmf choose`: options and output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import (
    FILES,
    add_problem,
    add_run,
    check_folder,
    check_problem,
    make_priors,
    read_problem,
    run_options,
    seed,
)

if TYPE_CHECKING:
    from ..comparison.ranks import Choice

CHOOSE_EXAMPLE = "  gsnmf choose counts.csv --ranks 2:12 --out choice"
CHOOSE = f"""examples:
{CHOOSE_EXAMPLE}
  gsnmf choose counts.csv --labels classes.csv --ranks 10:40:10 --large 0.03 --splits 5

In every split some entries are hidden, and models of every rank are fitted to the rest and scored by the predictive
density of the hidden entries. score: the mean log density of a hidden entry; behind: how far it is below the best. The
rank chosen is the smallest one that is behind by at most one standard error of this difference.

{FILES}
The folder gets ranks.csv and ranks.png. Ctrl-C keeps the results so far. JAX_ENABLE_X64=1 in the environment computes
in double precision."""


def add_choose(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf choose`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    choose = commands.add_parser(
        "choose",
        help="choose the number of components for your own matrix",
        description="Choose the number of components by how well models predict hidden entries.",
        epilog=CHOOSE,
        **common,
    )
    choose.set_defaults(run=_choose)
    folder = Path("gsnmf_choice")
    choose.add_argument("--out", type=Path, default=folder, metavar="DIR", help="folder (default: %(default)s)")
    add_problem(choose, several=True)
    choose.add_argument("--share", type=float, default=0.1, help="proportion of entries to hide (default: 0.1)")
    choose.add_argument(
        "--splits", type=int, default=3, metavar="N", help="random choices of hidden entries (default: 3)"
    )
    choose.add_argument(
        "--restarts",
        type=int,
        default=3,
        metavar="N",
        help="fits of each rank, the one with the highest bound is scored (default: 3)",
    )
    add_run(choose)
    choose.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of all random choices (default: 0)")


def _choose(arguments: argparse.Namespace) -> int:
    check_folder(arguments.out)
    arguments.rank = arguments.ranks[0]
    check_problem(arguments)
    data, _, _ = read_problem(arguments)
    from ..comparison.ranks import choose_rank, plot_rank_choice
    from ..drawing.axes import save

    choice = choose_rank(
        data,
        arguments.ranks,
        priors=lambda K, part: make_priors(arguments, part, K),
        share=arguments.share,
        num_splits=arguments.splits,
        restarts=arguments.restarts,
        seed=arguments.seed,
        **run_options(arguments),
    )
    choice.table.to_csv(arguments.out / "ranks.csv")
    save(plot_rank_choice(choice), arguments.out / "ranks.png")
    print(report(choice))
    print(f"\nSaved in {arguments.out}: ranks.csv, ranks.png")
    if not choice.complete:
        print("gsnmf: interrupted; the table has what was done by then", file=sys.stderr)
        return 130
    return 0


def report(choice: Choice) -> str:
    """Format the table and the choice.

    Args:
        choice: as `choose_rank` returns it.
    """
    forms = {"score": "{:.4f}", "error": "{:.4f}", "behind": "{:.4f}", "behind_error": "{:.4f}", "in_use": "{:.1f}"}
    formatters: Any = {name: form.format for name, form in forms.items()} | {"bound": "{:,.0f}".format}
    table = choice.table.reset_index().to_string(formatters=formatters, index=False)
    return f"{table}\n\nChosen: {choice.rank} components (the highest score has {choice.best})."
