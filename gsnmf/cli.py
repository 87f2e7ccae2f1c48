"""The command line: `gsnmf demo`, `gsnmf fit`. Libraries are imported when a command needs them, so help is instant."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__

if TYPE_CHECKING:
    from .inference import Fit
    from .model import Data, Priors

DEMO_EXAMPLE = "  gsnmf demo --out demo --seed 1"
FIT_EXAMPLE = "  gsnmf fit faces.npz --labels people.csv --per-group 3 --out faces_fit.npz --plots pictures"
FIT_EXAMPLES = f"""examples:
{FIT_EXAMPLE}
  gsnmf fit counts.csv --rank 10 --out counts_fit.npz

FILE holds a matrix, features × samples: .npy, .npz (one array, or the one called X), .csv or .tsv. The first row and
column of the last two may name samples and features. Labels are .npy, .npz, or text with one label per line, which
may begin with a line that says label, group or class.
The fit is saved as two files, .npz for the arrays and .json for the rest; gsnmf.saving.load_fit reads it again.
Ctrl-C saves what there is so far. JAX_ENABLE_X64=1 in the environment computes in double precision."""
GROUP_OPTIONS = {"per_group": 3, "small": 32.0, "large": 256.0, "scale": 1e6, "init": "random", "lam_start": "prior"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, for `main` to say in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 for a fit gone wrong, 2 for unusable input, 130 when interrupted."""
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(f"gsnmf: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gsnmf: interrupted; nothing was saved", file=sys.stderr)
        return 130
    return code


def _parser() -> Parser:
    raw = argparse.RawDescriptionHelpFormatter
    common: dict[str, Any] = {"formatter_class": raw, "allow_abbrev": False}
    parser = Parser(
        prog="gsnmf",
        description="Bayesian nonnegative matrix factorisation with group sparsity.",
        epilog=f"examples:\n{DEMO_EXAMPLE}\n{FIT_EXAMPLE}",
        **common,
    )
    parser.add_argument("--version", action="version", version=f"gsnmf {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="handwritten digits, with and without labels in the prior",
        description="Fit scikit-learn's digits with and without labels; print a table and write pictures.",
        epilog=f"example:\n{DEMO_EXAMPLE}",
        **common,
    )
    demo.add_argument(
        "--out", type=Path, default=Path("gsnmf_demo"), metavar="DIR", help="folder (default: %(default)s)"
    )
    demo.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the first random start (default: 0)")
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
    return parser


def _fit_options(fit: Parser) -> None:
    fit.add_argument("file", type=Path, metavar="FILE", help="features × samples: npy, npz, csv or tsv")
    fit.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the fit goes, as .npz and .json")
    fit.add_argument("--labels", type=Path, metavar="FILE", help="one label per sample: npy, npz, csv, tsv or txt")
    fit.add_argument("--rank", type=int, metavar="K", help="components in all; required without --labels")
    group = fit.add_argument_group("with --labels, the paper's prior (11)")
    group.add_argument(
        "--per-group", type=int, metavar="N", help="components of each label, if not --rank (default: 3)"
    )
    group.add_argument("--small", type=float, metavar="A", help="shape of λ at a component's own label (default: 32)")
    group.add_argument("--large", type=float, metavar="A", help="shape of λ at other labels (default: 256)")
    group.add_argument("--scale", type=float, metavar="B", help="scale of λ (default: 1e6)")
    group.add_argument("--init", choices=["random", "groups"], help="how T and V start (default: random)")
    lam_help = "λ starts at its prior mean (default) or at its shape, better for large shapes"
    group.add_argument("--lam-start", choices=["prior", "shape"], help=lam_help)
    fit.add_argument(
        "--a-t", type=float, default=0.6, metavar="A", help="shape of the dictionary's prior (default: 0.6)"
    )
    fit.add_argument("--b-t", type=float, default=20.0, metavar="B", help="its scale (default: 20)")
    fit.add_argument("--max-steps", type=int, default=300, metavar="N", help="sweeps at most (default: 300)")
    fit.add_argument("--tol", type=float, default=1e-6, help="relative change of the bound to stop at (default: 1e-6)")
    fit.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the random start (default: 0)")
    fit.add_argument("--plots", type=Path, metavar="DIR", help="write pictures into this folder")
    fit.add_argument(
        "--image-shape", type=_shape, metavar="HxW", help="samples are images: draw the dictionary as such"
    )


def _demo(arguments: argparse.Namespace) -> int:
    _check_folder(arguments.out)
    from .demo import run_demo

    run_demo(arguments.out, arguments.seed)
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    from .saving import pair, save_fit

    npz, _ = pair(arguments.out)
    _check_folder(npz.parent)
    if npz.is_dir():
        raise ValueError(f"expected --out to name a file; got the folder {npz}")
    for given in (arguments.file, arguments.labels):
        if given is not None and given.resolve() in (npz.resolve(), npz.with_suffix(".json").resolve()):
            raise ValueError(f"expected --out to name another file than the input; got {given} for both")
    _check_options(arguments)
    if arguments.plots is not None:
        _check_folder(arguments.plots)
    data, priors, rank = _problem(arguments)
    begin = time.perf_counter()
    fit, interrupted = _run(arguments, data, priors, rank)
    if fit is None:
        raise KeyboardInterrupt
    save_fit(npz, fit, priors, data.names)
    if interrupted:
        print(f"gsnmf: interrupted after sweep {fit.num_steps}; saved in {npz}", file=sys.stderr)
        return 130
    print(_table(data, fit, time.perf_counter() - begin))
    if not math.isfinite(fit.elbo[-1]):
        print(f"gsnmf: error: {fit.message} The saved factors are of no use.", file=sys.stderr)
        return 1
    print(f"\n{fit.message}\nSaved in {npz} and {npz.with_suffix('.json').name}")
    if arguments.plots is not None:
        from .plots import save_figures

        for path in save_figures(arguments.plots, fit, data, arguments.image_shape):
            print(f"  {path}")
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and fill in the defaults of those that have."""
    given = [name for name in GROUP_OPTIONS if getattr(arguments, name) is not None]
    if arguments.labels is None and given:
        raise ValueError(f"expected --labels with --{given[0].replace('_', '-')}; got none")
    if arguments.labels is None and arguments.rank is None:
        raise ValueError("expected --labels FILE, or --rank K for a model without groups; got neither")
    if arguments.rank is not None and arguments.per_group is not None:
        raise ValueError("expected --per-group or --rank; got both")
    if arguments.image_shape is not None and arguments.plots is None:
        raise ValueError("expected --plots DIR with --image-shape; got none")
    for name, value in GROUP_OPTIONS.items():
        if getattr(arguments, name) is None and not (name == "per_group" and arguments.rank is not None):
            setattr(arguments, name, value)


def _problem(arguments: argparse.Namespace) -> tuple[Data, Priors, int]:
    """Data and priors, checked against each other, and the rank."""
    from .files import read_labels, read_matrix
    from .model import Gamma, GroupSparse, Priors, as_data, label_driven
    from .model.problem import prepare

    X, features, samples = read_matrix(arguments.file)
    labels = None if arguments.labels is None else read_labels(arguments.labels)
    data = as_data(X, labels, feature_names=features, sample_names=samples)
    shape = arguments.image_shape
    if shape is not None and shape[0] * shape[1] != data.num_features:
        raise ValueError(f"expected --image-shape with {data.num_features} pixels; got {shape[0]}x{shape[1]}")
    dictionary = Gamma(arguments.a_t, arguments.b_t)
    if labels is None:
        # Exponential coefficients, of the scale that makes TV as large as X a priori.
        size, unit = float(data.X.mean()), arguments.rank * dictionary.mean
        priors = Priors(dictionary, Gamma(1.0, size / unit if size > 0 and unit > 0 else 1.0))
    else:
        how = {"per_group": arguments.per_group} if arguments.rank is None else {"rank": arguments.rank}
        shapes = {name: getattr(arguments, name) for name in ("small", "large", "scale")}
        priors = Priors(dictionary, GroupSparse(label_driven(num_groups=data.num_groups, **how, **shapes)))
    return data, priors, prepare(data, priors, arguments.rank)[2]


def _run(arguments: argparse.Namespace, data: Data, priors: Priors, rank: int) -> tuple[Fit | None, bool]:
    """The fit, and whether Ctrl-C ended it: then the last checkpoint, or None before the first."""
    import warnings

    import jax
    from sklearn.exceptions import ConvergenceWarning
    from tqdm import tqdm

    from .inference import cavi

    last: list[Fit] = []
    start = cavi.start(lam=priors.coefficients.hyperprior.a) if arguments.lam_start == "shape" else None  # type: ignore[union-attr]  # groups have one
    with tqdm(total=arguments.max_steps, unit="sweep", disable=None) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its sentence is printed with the table

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
                callback=checkpoint,
            )
        except KeyboardInterrupt:
            if not last:
                return None, True
            return last[0]._replace(converged=False, message=f"Interrupted after sweep {last[0].num_steps}."), True
    return fit, False


def _table(data: Data, fit: Fit, seconds: float) -> str:
    import pandas as pd

    from .plots import in_use

    used = in_use(fit.posterior)
    values = {
        "features": f"{data.num_features:,}",
        "samples": f"{data.num_samples:,}",
        "groups": data.num_groups or "none",
        "components": f"{used.sum()} of {len(used)} in use",
        "bound": f"{fit.elbo[-1]:,.0f}",
        "sweeps": fit.num_steps,
        "converged": "yes" if fit.converged else "no",
        "seconds": f"{seconds:.1f}",
    }
    return str(pd.DataFrame([values]).to_string(index=False))


def _check_folder(folder: Path) -> None:
    """Make the folder and see that files can be written there, before any work is done for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"expected a folder to write into; got {folder} ({os.strerror(error.errno or 0)})") from None


def _seed(text: str) -> int:
    """A whole number that random generators take."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}; got {text!r}")
    return int(text)


def _shape(text: str) -> tuple[int, int]:
    """HxW, as in 112x92."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"expected HxW, as in 112x92; got {text!r}")
    return int(parts[0]), int(parts[1])
