"""The command line: `gsnmf demo`, `fit`, `report`, `choose`, `crosscheck`, and those of the experiments.

Libraries are imported when a command needs them, so help is instant.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .choose_command import CHOOSE_EXAMPLE, add_choose
from .experiments.commands import REPRODUCE_EXAMPLE, SWEEP_EXAMPLE, add_commands
from .experiments.figure_commands import FIGURES_EXAMPLE, add_figures
from .options import FILES, add_problem, check_folder, check_problem, image_shape, read_problem, seed
from .report_command import REPORT_EXAMPLE, add_report

if TYPE_CHECKING:
    from .inference import Fit
    from .model import Data, Priors

DEMO_EXAMPLE = "  gsnmf demo --out demo --seed 1"
DEMO_EXAMPLES = f"""examples:
{DEMO_EXAMPLE}
  gsnmf demo --labels 0.3 --out demo

With --labels all but this share of the labels are hidden from the fit: how many of them it recovers, beside fits to the
labelled images alone and with all labels; how often its probabilities come true, as a table and as a picture."""
FIT_EXAMPLE = "  gsnmf fit faces.npz --labels people.csv --per-group 3 --out faces_fit.npz --plots pictures"
FIT_EXAMPLES = f"""examples:
{FIT_EXAMPLE}
  gsnmf fit counts.csv --rank 10 --out counts_fit.npz

{FILES}
The fit is saved as two files, .npz for the arrays and .json for the rest, and with it the data, unless --without-data:
gsnmf report makes a page of them, gsnmf.saving.load_fit reads them again.
Ctrl-C saves what there is so far. JAX_ENABLE_X64=1 in the environment computes in double precision."""
CROSSCHECK_EXAMPLE = "  gsnmf crosscheck --out crosscheck --seed 1"
CROSSCHECK_EXAMPLES = f"""examples:
{CROSSCHECK_EXAMPLE}
  gsnmf crosscheck counts.csv --labels classes.csv --per-group 1 --draws 2000 --out crosscheck

Closed forms (CAVI), stochastic gradients (SVI), Hamiltonian chains (NUTS) and conjugate ones (Gibbs). Each begins by
itself, from samples of the groups if there are labels, but the chains of NUTS begin at draws from CAVI's posterior.
What is compared does not depend on the order and scale of components. Without FILE the problem is drawn from the model:
12 features × 18 samples in three groups.

{FILES}
If X has fractions there is no Gibbs. The folder gets crosscheck.csv, crosscheck.json, marginals.png and forest.png.
JAX_ENABLE_X64=1 in the environment computes in double precision."""

EXAMPLES = (
    DEMO_EXAMPLE, FIT_EXAMPLE, REPORT_EXAMPLE, CHOOSE_EXAMPLE, CROSSCHECK_EXAMPLE, REPRODUCE_EXAMPLE, SWEEP_EXAMPLE,
    FIGURES_EXAMPLE,
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, for `main` to say in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 for a fit gone wrong, 2 for unusable input, 130 when interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console of few letters must not end long work with an error
    try:
        words = sys.argv[1:] if argv is None else argv
        arguments = _parser().parse_args(words, argparse.Namespace(words=words))
        code: int = arguments.run(arguments)
    except (ValueError, OSError, ImportError) as error:
        print(f"gsnmf: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"gsnmf: interrupted; {interrupt if str(interrupt) else 'nothing was saved'}", file=sys.stderr)
        return 130
    return code


def _parser() -> Parser:
    raw = argparse.RawDescriptionHelpFormatter
    common: dict[str, Any] = {"formatter_class": raw, "allow_abbrev": False}
    parser = Parser(
        prog="gsnmf",
        description="Bayesian nonnegative matrix factorisation with group sparsity.",
        epilog="\n".join(("examples:", *EXAMPLES)),
        **common,
    )
    parser.add_argument("--version", action="version", version=f"gsnmf {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="handwritten digits, with and without labels in the prior",
        description="Fit scikit-learn's digits with and without labels; print a table and write pictures.",
        epilog=DEMO_EXAMPLES,
        **common,
    )
    demo.add_argument(
        "--out", type=Path, default=Path("gsnmf_demo"), metavar="DIR", help="folder (default: %(default)s)"
    )
    demo.add_argument("--seed", type=seed, default=0, metavar="N", help="of the first random start (default: 0)")
    demo.add_argument("--labels", type=float, metavar="SHARE", help="hide all but this share, from 0.05 to 0.95")
    demo.set_defaults(run=_demo)
    fit = commands.add_parser(
        "fit",
        help="fit a matrix of yours",
        description="Fit a matrix with labels (group sparse coefficients) or without (Gamma coefficients).",
        epilog=FIT_EXAMPLES,
        **common,
    )
    fit.set_defaults(run=_fit)
    _fit_options(fit)
    add_report(commands, **common)
    add_choose(commands, **common)
    crosscheck = commands.add_parser(
        "crosscheck",
        help="the same problem by four algorithms",
        description="Run CAVI, SVI, NUTS and Gibbs on one small problem; print how far they agree, and draw it.",
        epilog=CROSSCHECK_EXAMPLES,
        **common,
    )
    crosscheck.set_defaults(run=_crosscheck)
    _crosscheck_options(crosscheck)
    add_commands(commands, **common)
    add_figures(commands, **common)
    return parser


def _fit_options(fit: Parser) -> None:
    fit.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the fit goes, as .npz and .json")
    add_problem(fit)
    learned = fit.add_argument_group("learned with the factors, with one value along AXIS or for all")
    learned.add_argument(
        "--learn-dictionary",
        choices=["all", "feature", "component"],
        metavar="AXIS",
        help="shape and scale of T's prior",
    )
    learned.add_argument(
        "--learn-coefficients",
        choices=["all", "component", "group", "sample"],
        metavar="AXIS",
        help="scale of λ's prior; without --labels, shape and scale of V's",
    )
    fit.add_argument("--max-steps", type=int, default=300, metavar="N", help="sweeps at most (default: 300)")
    fit.add_argument("--tol", type=float, default=1e-6, help="relative change of the bound to stop at (default: 1e-6)")
    fit.add_argument("--seed", type=seed, default=0, metavar="N", help="of the random start (default: 0)")
    fit.add_argument("--plots", type=Path, metavar="DIR", help="write pictures into this folder")
    fit.add_argument(
        "--image-shape", type=image_shape, metavar="HxW", help="samples are images: pictures and reports draw them"
    )
    fit.add_argument("--without-data", action="store_true", help="save the fit alone; a report then asks for the data")


def _crosscheck_options(crosscheck: Parser) -> None:
    folder = Path("gsnmf_crosscheck")
    crosscheck.add_argument("--out", type=Path, default=folder, metavar="DIR", help="folder (default: %(default)s)")
    add_problem(crosscheck, optional=True, init="groups")
    crosscheck.add_argument("--seed", type=seed, default=0, metavar="N", help="of all that is random (default: 0)")
    crosscheck.add_argument(
        "--draws", type=int, default=1000, metavar="N", help="of each chain, after as many to warm up (default: 1000)"
    )
    crosscheck.add_argument("--chains", type=int, default=4, metavar="N", help="of NUTS and of Gibbs (default: 4)")


def _demo(arguments: argparse.Namespace) -> int:
    check_folder(arguments.out)
    if arguments.labels is None:
        from .demo import run_demo

        run_demo(arguments.out, arguments.seed)
    else:
        from .demo_labels import run_labels_demo

        run_labels_demo(arguments.out, arguments.labels, arguments.seed)
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    from .saving import pair, save_fit

    npz, _ = pair(arguments.out)
    check_folder(npz.parent)
    if npz.is_dir():
        raise ValueError(f"expected --out to name a file; got the folder {npz}")
    for given in (arguments.file, arguments.labels):
        if given is not None and given.resolve() in (npz.resolve(), npz.with_suffix(".json").resolve()):
            raise ValueError(f"expected --out to name another file than the input; got {given} for both")
    check_problem(arguments)
    if arguments.plots is not None:
        check_folder(arguments.plots)
    data, priors, rank = read_problem(arguments)
    shape = arguments.image_shape
    if shape is not None and shape[0] * shape[1] != data.num_features:
        raise ValueError(f"expected --image-shape with {data.num_features} pixels; got {shape[0]}x{shape[1]}")
    begin = time.perf_counter()
    fit, interrupted = _run(arguments, data, priors, rank)
    if fit is None:
        raise KeyboardInterrupt
    seconds = time.perf_counter() - begin
    kept = data.names if arguments.without_data else data
    save_fit(npz, fit, fit.priors or priors, kept, image_shape=shape, seconds=seconds)
    if interrupted:
        print(f"gsnmf: interrupted after sweep {fit.num_steps}; saved in {npz}", file=sys.stderr)
        return 130
    print(_table(data, fit, seconds))
    if not math.isfinite(fit.elbo[-1]):
        print(f"gsnmf: error: {fit.message} The saved factors are of no use.", file=sys.stderr)
        return 1
    print(f"\n{fit.message}\nSaved in {npz} and {npz.with_suffix('.json').name}")
    if not arguments.without_data:
        print(f"A page about it: gsnmf report {npz}")
    if arguments.plots is not None:
        from .plots import save_figures

        for path in save_figures(arguments.plots, fit, data, arguments.image_shape):
            print(f"  {path}")
    return 0


def _crosscheck(arguments: argparse.Namespace) -> int:
    check_folder(arguments.out)
    init = arguments.init  # its default here is not that of a fit
    check_problem(arguments)
    from .crosscheck import check_sizes, run_crosscheck

    check_sizes(arguments.draws, arguments.chains)
    problem = None if arguments.file is None else read_problem(arguments)
    options = {name: getattr(arguments, name) for name in ("seed", "draws", "chains", "lam_start")}
    run_crosscheck(arguments.out, problem, init=init, **options)
    return 0


def _run(arguments: argparse.Namespace, data: Data, priors: Priors, rank: int) -> tuple[Fit | None, bool]:
    """The fit, and whether Ctrl-C ended it: then the last checkpoint, or None before the first."""
    import warnings

    import jax
    from sklearn.exceptions import ConvergenceWarning
    from tqdm import tqdm

    from .inference import DeadComponentsWarning, cavi

    last: list[Fit] = []
    start = cavi.start_at_shape(data, priors, rank) if arguments.lam_start == "shape" else None
    learn, axes = None, (arguments.learn_dictionary, arguments.learn_coefficients)
    if any(axes):
        # The shapes of λ say which component belongs to which label: only their scale is open.
        learn = cavi.learn(*axes, what=("both", "both" if arguments.labels is None else "scale"))
    with tqdm(total=arguments.max_steps, unit="sweep", disable=None) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its sentence is printed with the table
        warnings.simplefilter("ignore", DeadComponentsWarning)  # the table counts them

        def checkpoint(fit: Fit) -> None:
            last[:] = [fit]
            progress.update(fit.num_steps - progress.n)

        try:
            fit = cavi.run(
                data,
                priors,
                key=jax.random.key(arguments.seed),
                start=start,
                init=arguments.init,
                rank=rank,
                max_steps=arguments.max_steps,
                tol=arguments.tol,
                learn=learn,
                callback=checkpoint,
            )
        except KeyboardInterrupt:
            if not last:
                return None, True
            return last[0]._replace(converged=False, message=f"Interrupted after sweep {last[0].num_steps}."), True
    return fit, False


def _table(data: Data, fit: Fit, seconds: float) -> str:
    import pandas as pd

    from .inference import in_use

    used = in_use(fit.posterior, data)
    values = {
        "features": f"{data.num_features:,}",
        "samples": f"{data.num_samples:,}",
        "missing": f"{data.X.size - data.num_observed:,}" if data.mask is not None else "none",
        "groups": data.num_groups or "none",
        **({} if data.known.all() else {"unlabelled": f"{(~data.known).sum():,}"}),
        "components": f"{used.sum()} of {len(used)} in use",
        "bound": f"{fit.elbo[-1]:,.0f}",
        "sweeps": fit.num_steps,
        "converged": "yes" if fit.converged else "no",
        "seconds": f"{seconds:.1f}",
    }
    return str(pd.DataFrame([values]).to_string(index=False))
