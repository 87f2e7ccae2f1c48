"""The stream of `gsnmf fit --stream`: samples are read from the file batch by batch."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .inputs import READING, announce, describe
from .interruptible import run_interruptible
from .options import PRIOR_OPTIONS, asked_components, check_files, given, run_options, warn_of_choices

if TYPE_CHECKING:
    from ..inference import Fit
    from ..reading import NamedMatrix

PASSES = 4  # over the samples; docs/streams.md shows how far they go
UNUSED = (
    *("seeds", "strength", "plots", "image_shape", "learn_dictionary", "learn_coefficients"),
    *("max_steps", "tol"),
    *(name for name in READING if name != "key"),
)


def add_stream(parser: argparse.ArgumentParser) -> None:
    """Add the options of streams."""
    group = parser.add_argument_group(
        "streams, for samples that need not fit in memory (also .h5ad, .h5 and .zarr files)"
    )
    group.add_argument(
        "--stream", action="store_true", help="read samples in batches, several times; --out gets the fit so far"
    )
    group.add_argument("--passes", type=int, metavar="N", help=f"times that samples are read (default: {PASSES})")
    group.add_argument(
        "--batch-size", type=int, metavar="N", help="samples of a batch (default: a 32nd of all, from 64 to 512)"
    )
    group.add_argument("--resume", action="store_true", help="resume from --out, saved by an interrupted stream")


def check_stream(arguments: argparse.Namespace) -> None:
    """Raise for options that have no effect with --stream, or without it."""
    if not arguments.stream:
        without = list(given(arguments, "passes", "batch_size")) + ["resume"] * arguments.resume
        if without:
            raise ValueError(f"expected --stream with --{without[0].replace('_', '-')}; got none")
        return
    useless = list(given(arguments, *UNUSED))
    if useless:
        name = useless[0].replace("_", "-")
        raise ValueError(f"expected no --{name} with --stream, where it has no effect; got --{name}")
    from ..model.checks import whole

    for name, value in given(arguments, "passes", "batch_size").items():
        whole(f"--{name.replace('_', '-')}", value, 1)


def run_stream(arguments: argparse.Namespace, npz: Path) -> int:
    """Fit a stream and save it in `npz`, with checkpoints; return the exit code."""
    from ..classification.pointless import said_of_stream
    from ..interrupts import raise_if_received
    from ..memory import plan_stream
    from ..model import Names
    from ..saving import save_fit

    raise_if_received()
    matrix, groups, levels = _open(arguments)
    X, features = matrix.X, matrix.feature_names
    start = _saved_stream(npz) if arguments.resume else None
    priors = _priors(arguments, X, groups, len(levels), start)
    names = Names(range(X.shape[0]) if features is None else features, [], levels)
    describe(arguments, matrix, arguments.file)
    announce(arguments)
    print(f"gsnmf: {plan_stream(X, priors, arguments.rank, arguments.batch_size).check()}", file=sys.stderr)
    warn_of_choices(arguments, len(levels), arguments.rank)
    if start is not None:
        print(f"gsnmf: resuming from batch {start.num_steps} of {npz}", file=sys.stderr)
    begin = time.perf_counter()
    fit, interrupted = _run(arguments, X, groups, priors, start, lambda some: save_fit(npz, some, priors, names))
    if fit is None:
        raise KeyboardInterrupt
    seconds = time.perf_counter() - begin
    save_fit(npz, fit, priors, names, seconds=None if interrupted else seconds)  # see `check_interrupted`
    if interrupted:
        print(f"gsnmf: interrupted after batch {fit.num_steps}; saved in {npz}: --resume resumes it", file=sys.stderr)
        return 130
    print(_table(X, levels, fit, seconds))
    if not fit.is_finite:
        print(f"gsnmf: error: {fit.message} The saved factors are not usable.", file=sys.stderr)
        return 1
    if found := said_of_stream(fit, X):
        print(f"gsnmf: warning: {found}", file=sys.stderr)
    print(f"\n{fit.message}\nSaved in {npz} and {npz.with_suffix('.json').name}; coefficients: gsnmf.inference.fold_in")
    return 0


def _open(arguments: argparse.Namespace) -> tuple[NamedMatrix, Any, list[Any]]:
    """Return the matrix, opened if its format allows that, the labels of its samples or None, and the groups."""
    from ..inference.stream.batches import read_levels
    from ..streams import LAZY, open_named

    if arguments.file.suffix.lower() not in LAZY:  # then it is loaded
        check_files(arguments)
    matrix = open_named(arguments.file, arguments.key)
    groups = labels_in(arguments, matrix.X)
    if groups is None:
        return matrix, None, []
    return matrix, groups, read_levels(groups, None)[1]


def _saved_stream(npz: Path) -> Fit:
    """Return the stream that was saved, to resume it."""
    from ..saving import load_fit

    fit = load_fit(npz).fit
    if fit.stream is None:
        raise ValueError(f"expected --out to name a saved stream to resume; got another fit in {npz}")
    return fit


def _priors(arguments: argparse.Namespace, X: Any, groups: Any, num_groups: int, start: Fit | None) -> Any:
    """Return the priors of the options; of a stream that is resumed, its own, which given options must agree with."""
    from ..inference.results import rank_of, same_priors
    from ..memory import plan_stream
    from ..model.silence import quiet
    from ..soundness import PRECISION
    from ..streams import sampled_priors

    options, saved = given(arguments, *PRIOR_OPTIONS), None if start is None else rank_of(start.posterior)
    if saved is not None and arguments.rank not in (None, saved):
        raise ValueError(f"expected --rank {saved}, as of the stream that is resumed; got --rank {arguments.rank}")
    if start is not None and not options:
        return start.priors
    plan_stream(X, None, asked_components(arguments, num_groups), arguments.batch_size).check()
    with quiet():  # see `warn_of_choices`
        priors = sampled_priors(X, groups, rank=arguments.rank, **options)
    own = priors if start is None or start.priors is None else start.priors
    if not same_priors(priors, own, rtol=PRECISION):
        names = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
        raise ValueError(f"expected the priors of the stream that is resumed; got others with {names}")
    return own


def check_interrupted(npz: Path) -> None:
    """Raise before an interrupted stream is replaced: one that was saved without its duration."""
    from ..saving import load_fit

    try:
        saved = load_fit(npz)
    except (OSError, ValueError):  # there is none, or none that could be resumed
        return
    if saved.fit.stream is not None and saved.seconds is None:
        remedy = "--stream --resume resumes it, --force replaces it"
        raise ValueError(
            f"expected no unfinished stream in --out; got one in {npz}, or one saved without its duration ({remedy})"
        )


def labels_in(arguments: argparse.Namespace, X: Any = None) -> Any:
    """Return the labels in a file, or in a column of AnnData's obs, of all parts in a folder; None without.

    Args:
        arguments: of the command.
        X: to check the number of labels in a file, if it was opened.
    """
    from ..parts import obs_reader
    from ..reading import NamedMatrix, read_columns

    matrix = NamedMatrix(X, None, None, column=obs_reader(arguments.file))
    return read_columns(matrix, arguments.file, arguments.labels)


def _run(
    arguments: argparse.Namespace, X: Any, groups: Any, priors: Any, start: Any, save: Any
) -> tuple[Fit | None, bool]:
    """Return the fit, and whether a signal ended it: then the fit so far, or None before the first."""
    import jax

    from ..classification.restarts import draw_seeds
    from ..inference import cavi

    saved = time.perf_counter()
    _, [seed] = draw_seeds(arguments.seed, 1)

    def save_if_due(fit: Fit) -> None:
        nonlocal saved
        if time.perf_counter() - saved > arguments.checkpoint_every:
            save(fit)
            saved = time.perf_counter()

    options = {name: value for name, value in run_options(arguments).items() if name in ("init", "lam_start")}
    options |= {"groups": groups, "rank": arguments.rank, "batch_size": arguments.batch_size, "start": start}
    options["passes"] = PASSES if arguments.passes is None else arguments.passes
    key = jax.random.key(seed)
    return run_interruptible(
        lambda callback: cavi.stream(X, priors, key=key, progress_bar=True, callback=callback, **options),
        seen=save_if_due,
        last=start,
    )


def _table(X: Any, levels: list[Any], fit: Fit, seconds: float) -> str:
    import numpy as np
    import pandas as pd

    each = max(1, -(-len(fit.elbo) * X.shape[1] // int(fit.stream.samples))) if fit.stream else 1
    values = {
        "features": f"{X.shape[0]:,}",
        "samples": f"{X.shape[1]:,}",
        "groups": len(levels) or "none",
        "components": fit.posterior.T.mean.shape[1],
        "bound (last pass, estimated)": f"{np.mean(fit.elbo[-each:]):,.0f}",
        "batches": fit.num_steps,
        "seconds": f"{seconds:.1f}",
    }
    return str(pd.DataFrame([values]).to_string(index=False))
