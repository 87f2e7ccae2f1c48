"""`gsnmf choose`: its options, and what it prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import FILES, add_problem, check_folder, check_problem, make_priors, read_problem, seed

if TYPE_CHECKING:
    from ..comparison.ranks import Choice

CHOOSE_EXAMPLE = "  gsnmf choose counts.csv --ranks 2:12 --out choice"
CHOOSE = f"""examples:
{CHOOSE_EXAMPLE}
  gsnmf choose counts.csv --labels classes.csv --ranks 10:40:10 --small 1 --large 10 --splits 5

A share of the entries is hidden, models of every size are fitted to the rest, and each says how probable it held the
hidden entries; that again for every split. score: the log density of a hidden entry on average; behind: by how much
it is below the best. Chosen is the smallest rank that is behind by one standard error of that at most.

{FILES}
The folder gets ranks.csv and ranks.png. Ctrl-C keeps what is done. JAX_ENABLE_X64=1 in the environment computes in
double precision."""


def add_choose(commands: Any, **common: Any) -> None:
    """The parser of this command, added to those of `gsnmf`.

    Args:
        commands: what `add_subparsers` returned.
        common: options of every parser.
    """
    choose = commands.add_parser(
        "choose",
        help="how many components a matrix of yours asks for",
        description="Choose the number of components by how well models predict entries that they were not shown.",
        epilog=CHOOSE,
        **common,
    )
    choose.set_defaults(run=_choose)
    folder = Path("gsnmf_choice")
    choose.add_argument("--out", type=Path, default=folder, metavar="DIR", help="folder (default: %(default)s)")
    add_problem(choose, several=True)
    choose.add_argument("--share", type=float, default=0.1, help="of the entries to hide (default: 0.1)")
    choose.add_argument("--splits", type=int, default=3, metavar="N", help="how often (default: 3)")
    choose.add_argument("--restarts", type=int, default=3, metavar="N", help="fits of each; the best bound is taken")
    choose.add_argument("--max-steps", type=int, default=1000, metavar="N", help="sweeps at most (default: 1000)")
    choose.add_argument("--tol", type=float, default=1e-6, help="relative change of the bound to stop at")
    choose.add_argument("--seed", type=seed, default=0, metavar="N", help="of all that is random (default: 0)")


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
        init=arguments.init,
        lam_start=arguments.lam_start,
        max_steps=arguments.max_steps,
        tol=arguments.tol,
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
    """The table, and what it says.

    Args:
        choice: as `choose_rank` returns it.
    """
    forms = {"score": "{:.4f}", "error": "{:.4f}", "behind": "{:.4f}", "behind_error": "{:.4f}", "in_use": "{:.1f}"}
    formatters: Any = {name: form.format for name, form in forms.items()} | {"bound": "{:,.0f}".format}
    table = choice.table.reset_index().to_string(formatters=formatters, index=False)
    return f"{table}\n\nChosen: {choice.rank} components (the highest score has {choice.best})."
