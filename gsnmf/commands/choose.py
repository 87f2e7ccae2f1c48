"""The command `gsnmf choose`: options and printed output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .inputs import FILES, announce
from .options import (
    add_problem,
    add_run,
    check_folder,
    check_problem,
    make_priors,
    open_journal,
    place,
    read_problem,
    run_options,
    seed,
    warn_of_choices,
)
from .outputs import add_force, check_outputs

if TYPE_CHECKING:
    from ..comparison.ranks import Choice

CHOOSE_EXAMPLE = "  gsnmf choose counts.csv --ranks 2:12 --out choice"
CHOOSE = f"""examples:
{CHOOSE_EXAMPLE}
  gsnmf choose counts.csv --labels classes.csv --ranks 10:40:10 --large 0.03 --splits 5
  gsnmf choose counts.csv --ranks 2:12 --restarts 5 --stability

A proportion of the entries is held out, models of every rank are fitted to the rest, and the held-out entries are
scored by their log predictive density; this is repeated for every split. score: the mean log density of a held-out
entry; behind: how far it is below the best score. The smallest rank that is behind by at most one standard error of
that difference is chosen. With --stability, comes_back is the share of other restarts in which a component has a match
with a cosine above 0.9, and silhouette says how well components are told apart (1 is best); both fall beyond the number
of components that the data support.

{FILES}
The folder gets ranks.csv and ranks.png. Every score is kept as soon as it is known, in ranks.checkpoint.jsonl: the same
command resumes there after an interruption of any kind, also with more ranks or splits. Ctrl-C prints a
table of the results so far, and saves it if the folder has none.
JAX_ENABLE_X64=1 in the environment computes in double precision."""


def add_choose(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf choose`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    choose = commands.add_parser(
        "choose",
        help="choose the number of components for your own matrix",
        description="Choose the number of components by how well models predict held-out entries.",
        epilog=CHOOSE,
        **common,
    )
    choose.set_defaults(run=_choose)
    folder = Path("gsnmf_choice")
    choose.add_argument("--out", type=place, default=folder, metavar="DIR", help="output folder (default: %(default)s)")
    add_problem(choose, several=True)
    choose.add_argument("--share", type=float, default=0.1, help="proportion of entries to hold out (default: 0.1)")
    choose.add_argument("--splits", type=int, default=3, metavar="N", help="number of random splits (default: 3)")
    choose.add_argument(
        "--restarts",
        type=int,
        default=3,
        metavar="N",
        help="fits per rank and split; the best is kept (default: 3)",
    )
    choose.add_argument(
        "--stability",
        action="store_true",
        help="also say how often components come back in other restarts, and their silhouette; best with --restarts 5",
    )
    add_run(choose)
    add_force(choose)
    choose.add_argument("--seed", type=seed, default=0, metavar="N", help="random seed (default: 0)")


def _choose(arguments: argparse.Namespace) -> int:
    names = ("ranks.csv", "ranks.png", "ranks.checkpoint.jsonl")
    table, picture, checkpoint = (arguments.out / name for name in names)
    check_outputs((table, picture, checkpoint), (arguments.file, arguments.labels, arguments.seeds), arguments.force)
    arguments.rank = arguments.ranks[0]
    check_problem(arguments)
    check_folder(arguments.out)
    data, _, _ = read_problem(arguments)
    from ..comparison.plots import plot_rank_choice
    from ..comparison.ranks import choose_rank
    from ..drawing.axes import save
    from ..interrupts import raise_if_received
    from ..writing import write_whole

    announce(arguments)
    warn_of_choices(arguments, data.num_groups, None)  # few components are tried on purpose
    journal = open_journal(checkpoint)
    raise_if_received()
    choice = choose_rank(
        data,
        arguments.ranks,
        priors=lambda K, part: make_priors(arguments, part, K),
        share=arguments.share,
        num_splits=arguments.splits,
        restarts=arguments.restarts,
        seed=arguments.seed,
        stability=arguments.stability,
        checkpoint=journal,
        **run_options(arguments),
    )
    print(describe_choice(choice))
    if choice.complete or not table.exists():
        write_whole({table: choice.table.to_csv().encode()})
        save(plot_rank_choice(choice), picture)
        print(f"\nSaved in {arguments.out}: ranks.csv, ranks.png")
    else:
        print(f"\nNot saved: {table} stays as it was")
    if not choice.complete:
        said = f"the table above has the results so far, and the same command resumes from {checkpoint}"
        print(f"gsnmf: interrupted; {said}", file=sys.stderr)
        return 130
    journal.remove()
    return 0


def describe_choice(choice: Choice) -> str:
    """Return the table of ranks, and a sentence about the chosen rank.

    Args:
        choice: as `choose_rank` returns it.
    """
    forms = {"score": "{:.4f}", "error": "{:.4f}", "behind": "{:.4f}", "behind_error": "{:.4f}", "in_use": "{:.1f}"}
    forms |= {"comes_back": "{:.2f}", "silhouette": "{:.2f}"}
    formatters: Any = {name: form.format for name, form in forms.items()} | {"bound": "{:,.0f}".format}
    table = choice.table.reset_index().to_string(formatters=formatters, index=False)
    return f"{table}\n\nChosen: {choice.rank} components (the highest score has {choice.best})."
