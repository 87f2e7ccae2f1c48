"""The command `gsnmf fit`: options, run with checkpoints, printed table."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .inputs import FILES, announce, said
from .interruptible import run_interruptible
from .options import (
    Interrupted,
    add_problem,
    add_run,
    check_folder,
    check_problem,
    image_shape,
    place,
    read_problem,
    run_options,
    seed,
    warn_of_choices,
)
from .outputs import add_force, check_outputs, real
from .processes import Agreement, add_distributed, check_distributed, in_processes, read_own_part
from .stream import add_stream, check_interrupted, check_stream, run_stream

if TYPE_CHECKING:
    from ..checkpoints import Checkpoint
    from ..inference import Fit
    from ..model import Data, Priors

FIT_EXAMPLE = "  gsnmf fit faces.npz --labels people.csv --per-group 3 --out faces_fit.npz --plots pictures"
FIT_EXAMPLES = f"""examples:
{FIT_EXAMPLE}
  gsnmf fit counts.csv --rank 10 --out counts_fit.npz
  gsnmf fit counts.csv --labels types.txt --common 2 --seeds markers.gmt --out seeded_fit.npz
  gsnmf fit cells.h5ad --key layers/counts --labels obs:cell_type --out cells_fit.npz
  gsnmf fit documents.csv --text body --labels obs:topic --out documents_fit.npz
  gsnmf fit cells.h5ad --stream --labels obs:cell_type --out cells_fit.npz

{FILES}
The fit is saved as two files, .npz for the arrays and .json for the rest, together with the data unless --without-data
is given: gsnmf report makes a page of them, gsnmf.saving.load_fit loads them.
A checkpoint is written next to it, from which the same command resumes after any interruption, to the same fit;
Ctrl-C and SIGTERM also save the fit so far, unless --out has a finished one.
JAX_ENABLE_X64=1 in the environment computes in double precision."""
INTERRUPTED = "Interrupted after sweep"


def add_fit(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf fit`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    fit = commands.add_parser(
        "fit",
        help="fit your own matrix",
        description="Fit a matrix with labels (group sparse coefficients) or without (Gamma coefficients).",
        epilog=FIT_EXAMPLES,
        **common,
    )
    fit.set_defaults(run=_fit)
    fit.add_argument(
        "--out", type=place, required=True, metavar="FILE", help="file of the fit, saved as .npz and .json"
    )
    add_problem(fit)
    learned = fit.add_argument_group("hyperparameters learned with the factors, one value along AXIS or for all")
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
    add_run(fit)
    fit.add_argument(
        "--checkpoint-every", type=float, default=30.0, metavar="S", help="seconds between checkpoints (default: 30)"
    )
    add_distributed(fit)
    fit.add_argument("--seed", type=seed, default=0, metavar="N", help="as GroupSparseNMF's random_state (default: 0)")
    fit.add_argument("--plots", type=place, metavar="DIR", help="write pictures into this folder")
    fit.add_argument(
        "--image-shape", type=image_shape, metavar="HxW", help="samples are images: pictures and reports draw them"
    )
    add_stream(fit)
    add_force(fit)
    fit.add_argument("--without-data", action="store_true", help="save only the fit; a report then needs the data")


def _fit(arguments: argparse.Namespace) -> int:
    npz, checkpoint = _check(arguments)
    if arguments.distributed:
        return in_processes(arguments, checkpoint, lambda: _fit_and_save(arguments, npz, checkpoint))
    before = _written_at(npz)
    try:
        return run_stream(arguments, npz) if arguments.stream else _fit_and_save(arguments, npz, checkpoint)
    except KeyboardInterrupt:
        if _written_at(npz) != before:
            raise Interrupted(f"the fit is saved in {npz}") from None
        if checkpoint.exists() and not arguments.stream:  # whose checkpoints are fits
            raise Interrupted(f"the same command resumes from {checkpoint}") from None
        raise


def _check(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Check options and files before anything is read; return the file of the fit and that of its checkpoints."""
    from ..saving import pair

    npz, _ = pair(arguments.out)
    if npz.is_dir():
        raise ValueError(f"expected --out to name a file; got the folder {npz}")
    if npz.stem.endswith(".checkpoint"):
        whose = npz.with_name(f"{npz.stem.removesuffix('.checkpoint')}.npz")
        raise ValueError(f"expected another name for --out: {npz} is that of the checkpoint of {whose}")
    checkpoint, inputs = npz.with_suffix(".checkpoint.npz"), (arguments.file, arguments.labels, arguments.seeds)
    check_outputs([npz, npz.with_suffix(".json")], inputs, arguments.force)
    check_outputs([checkpoint], inputs, force=True)  # its own reader refuses other files
    check_problem(arguments)
    check_folder(npz.parent)
    check_distributed(arguments)
    if not 0 <= arguments.checkpoint_every < math.inf:
        raise ValueError(f"expected --checkpoint-every to be a number of seconds; got {arguments.checkpoint_every}")
    check_stream(arguments)
    if arguments.stream and arguments.distributed:
        raise ValueError("expected --stream or --distributed; got both")
    if not (arguments.resume or arguments.force):
        check_interrupted(npz)
    if arguments.plots is not None:
        from ..drawing.plots import FIGURES

        places = {real(arguments.plots), *real(arguments.plots).parents}
        if not places.isdisjoint(map(real, (npz, npz.with_suffix(".json"), checkpoint))):
            raise ValueError(f"expected --plots to name a folder other than the fit's own files; got {arguments.plots}")
        check_outputs((arguments.plots / f"{name}.png" for name in FIGURES), inputs, arguments.force)
        check_folder(arguments.plots)
    return npz, checkpoint


def _fit_and_save(arguments: argparse.Namespace, npz: Path, checkpoint: Path) -> int:
    import jax

    from ..saving import save_fit

    data, priors, rank = _read(arguments)
    begin = time.perf_counter()
    fit, interrupted = _run(arguments, data, priors, rank, checkpoint)
    if fit is None:
        raise KeyboardInterrupt
    if jax.process_index() > 0:  # process 0 writes
        return 0
    seconds = time.perf_counter() - begin
    usable = math.isfinite(fit.elbo[-1])
    if (not usable or (interrupted and checkpoint.exists())) and _is_finished(npz):
        return _keep_earlier(npz, checkpoint, fit, interrupted)
    kept = data.names if arguments.without_data or arguments.distributed else data
    save_fit(npz, fit, fit.priors or priors, kept, image_shape=arguments.image_shape, seconds=seconds)
    if interrupted:
        where = f"saved in {npz}" + ("; the same command resumes" if checkpoint.exists() else "")
        print(f"gsnmf: interrupted after sweep {fit.num_steps}; {where}", file=sys.stderr)
        return 130
    checkpoint.unlink(missing_ok=True)  # not before the fit is saved
    return _describe_fit(arguments, npz, data, fit, seconds)


def _read(arguments: argparse.Namespace) -> tuple[Data, Priors, int]:
    """Read the data, or the part of this process; return them, priors and rank, and say what was read."""
    import jax

    from ..inference.beginning import check_options
    from ..memory import plan

    data, priors, rank = read_own_part(arguments) if arguments.distributed else read_problem(arguments)
    shape = arguments.image_shape
    if shape is not None and shape[0] * shape[1] != data.num_features:
        raise ValueError(f"expected --image-shape with {data.num_features} pixels; got {shape[0]}x{shape[1]}")
    options = run_options(arguments)
    check_options(options["max_steps"], options["tol"])
    planned = plan(data, rank).check()
    if jax.process_index() == 0:
        announce(arguments)
        print(f"gsnmf: {planned}", file=sys.stderr)
        warn_of_choices(arguments, data.num_groups, arguments.rank)
    return data, priors, rank


def _keep_earlier(npz: Path, checkpoint: Path, fit: Fit, interrupted: bool) -> int:
    """Say that the finished fit of an earlier run stays, as this one was interrupted or diverged; return the code."""
    stays = f"{npz} stays as it was, from an earlier run"
    if interrupted and checkpoint.exists():
        said_so = f"{stays}; the same command resumes from {checkpoint}"
        print(f"gsnmf: interrupted after sweep {fit.num_steps}; {said_so}", file=sys.stderr)
        return 130
    checkpoint.unlink(missing_ok=True)
    print(f"gsnmf: error: {fit.message} {stays}.", file=sys.stderr)
    return 1


def _written_at(file: Path) -> int | None:
    """Return when a file was written; None if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else None


def _is_finished(npz: Path) -> bool:
    """Return whether a fit that can be used, and that no signal ended, is saved there."""
    from ..saving import load_fit

    try:
        saved = load_fit(npz)
    except (OSError, ValueError):
        return False
    ended = saved.fit.stream is None or saved.seconds is not None  # see `stream.check_interrupted`
    return ended and saved.fit.is_finite and not saved.fit.message.startswith(INTERRUPTED)


def _describe_fit(arguments: argparse.Namespace, npz: Path, data: Data, fit: Fit, seconds: float) -> int:
    """Print the table of a saved fit and draw its pictures; return the exit code."""
    from ..classification.pointless import said_of_fit

    print(_table(data, fit, seconds))
    if not math.isfinite(fit.elbo[-1]):
        print(f"gsnmf: error: {fit.message} The saved factors are not usable.", file=sys.stderr)
        return 1
    if found := said_of_fit(fit, data):
        print(f"gsnmf: warning: {found}", file=sys.stderr)
    print(f"\n{fit.message}\nSaved in {npz} and {npz.with_suffix('.json').name}")
    if not (arguments.without_data or arguments.distributed):
        print(f"A page about it: gsnmf report {npz}")
    if arguments.plots is not None:
        from ..drawing.plots import save_figures

        for path in save_figures(arguments.plots, fit, data, arguments.image_shape):
            print(f"  {path}")
    return 0


def _run(arguments: argparse.Namespace, data: Data, priors: Priors, rank: int, file: Path) -> tuple[Fit | None, bool]:
    """Return the fit, and whether a signal ended it: then the fit of the last 25 sweeps, or None before the first."""
    import jax
    from tqdm import tqdm

    from ..classification.restarts import draw_seeds
    from ..inference import cavi
    from ..inference.warning import quiet
    from ..interrupts import raise_if_received, remembering

    raise_if_received()
    options: dict[str, Any] = run_options(arguments)
    _, [first] = draw_seeds(arguments.seed, 1)  # the estimator's first restart, so that both give the same fit
    options |= {"key": jax.random.key(first), "rank": rank, "learn": _learned(arguments)}
    options["labels"] = cavi.labelling_for(data, options["init"])
    agreement = Agreement()
    kept = _checkpoint(arguments, data, priors, file, agreement)
    resume = kept.load()
    if resume is not None and kept.writes:
        print(f"gsnmf: resuming from sweep {resume.num_steps} of {file}", file=sys.stderr)
    bar = tqdm(total=options["max_steps"], unit="sweep", disable=None)
    # the table has what warnings would say
    with said(kept.writes), bar as progress, quiet(), remembering(arguments.distributed):
        fit, interrupted = run_interruptible(
            lambda callback: cavi.run(data, priors, callback=callback, checkpoint=kept, resume=resume, **options),
            seen=lambda fit: progress.update(fit.num_steps - progress.n),
            stop=agreement.raise_if_ending if arguments.distributed else raise_if_received,
        )
        if interrupted and arguments.distributed:  # the checkpoint is all that is kept
            return None, True
        if interrupted and fit is not None:
            kept.save_last()
            fit = fit._replace(converged=False, message=f"{INTERRUPTED} {fit.num_steps}.")
    return fit, interrupted


def _learned(arguments: argparse.Namespace) -> Any:
    """Return the hyperparameters to learn; None for none."""
    from ..inference import cavi

    axes = arguments.learn_dictionary, arguments.learn_coefficients
    if not any(axes):
        return None
    # The shapes of λ specify which component belongs to which label: only the scale can be learned.
    return cavi.learn(*axes, what=("both", "both" if arguments.labels is None else "scale"))


def _checkpoint(
    arguments: argparse.Namespace, data: Data, priors: Priors, file: Path, agreement: Agreement
) -> Checkpoint:
    """Return the checkpoint of this run, which process 0 writes."""
    import jax

    from ..checkpoints import Checkpoint, mark_of

    options, axes = run_options(arguments), (arguments.learn_dictionary, arguments.learn_coefficients)
    own = {"seed": arguments.seed, "init": options["init"], "lam_start": options["lam_start"], "learn": axes}
    mark = mark_of(data, priors, own)
    return Checkpoint(file, mark, arguments.checkpoint_every, due=agreement.due, writes=jax.process_index() == 0)


def _table(data: Data, fit: Fit, seconds: float) -> str:
    import pandas as pd

    from ..inference import in_use
    from ..model.compressed import is_sparse

    used, hidden = in_use(fit.posterior, data), data.num_features * data.num_samples - data.num_observed
    values = {
        "features": f"{data.num_features:,}",
        "samples": f"{data.num_samples:,}",
        **({"nonzero": f"{data.X.nnz:,}"} if is_sparse(data) else {}),
        "missing": f"{hidden:,}" if hidden else "none",
        "groups": data.num_groups or "none",
        **({} if data.known.all() else {"unlabelled": f"{(~data.known).sum():,}"}),
        "components": f"{used.sum()} of {len(used)} in use",
        "bound": f"{fit.elbo[-1]:,.0f}",
        "sweeps": fit.num_steps,
        "converged": "yes" if fit.converged else "no",
        "seconds": f"{seconds:.1f}",
    }
    return str(pd.DataFrame([values]).to_string(index=False))
