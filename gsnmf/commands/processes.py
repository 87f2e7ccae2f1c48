"""The option --distributed of `gsnmf fit`: several processes, each with its own samples."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..interrupts import exit_code, raise_if_received, was_received
from .inputs import READING, describe
from .options import check_components, make_priors
from .stream import labels_in

if TYPE_CHECKING:
    from ..model import Data, Priors


def add_distributed(parser: argparse.ArgumentParser) -> None:
    """Add the options of several processes."""
    group = parser.add_argument_group(
        "several processes, which run the same command, on one machine or on several (docs/distributed.md)"
    )
    group.add_argument(
        "--distributed", action="store_true", help="split the samples of FILE, or the files of a folder, over processes"
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0; found from Slurm, MPI or Kubernetes")
    group.add_argument("--processes", type=int, metavar="N", help="their number; found from Slurm, MPI or Kubernetes")
    group.add_argument(
        "--process", type=int, metavar="I", help="the number of this one, from 0; found from Slurm, MPI or Kubernetes"
    )
    group.add_argument("--wait", type=float, metavar="S", help="seconds for all processes to begin (300)")
    group.add_argument(
        "--heartbeat", type=float, metavar="S", help="seconds until a silent process counts as lost (30)"
    )


def check_distributed(arguments: argparse.Namespace) -> None:
    """Raise ValueError for options that contradict each other."""
    if not arguments.distributed:
        for name in ("coordinator", "processes", "process", "wait", "heartbeat"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"expected --distributed with --{name}; got none")
    else:
        if arguments.plots is not None:
            raise ValueError("expected --plots without --distributed; got both (gsnmf report draws a saved fit)")
        for name in READING:
            if name != "key" and getattr(arguments, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"expected no {option} with --distributed, which reads X; got {option}")
    for name in ("wait", "heartbeat"):
        seconds = getattr(arguments, name)
        if seconds is not None and not 1 <= seconds < 1e6:
            raise ValueError(f"expected --{name} to be at least 1 second; got {seconds:g}")


def in_processes(arguments: argparse.Namespace, checkpoint: Any, run: Callable[[], int]) -> int:
    """Join the other processes, run, and part; an error here ends all of them.

    Args:
        arguments: of the command.
        checkpoint: the file of checkpoints.
        run: the command itself.
    """
    from ..distributed import HEARTBEAT, WAIT, Peers, join

    join(arguments.coordinator, arguments.processes, arguments.process, arguments.wait or WAIT)
    hint = f"; run the same command again, with any number of processes, to resume from {checkpoint}, if it is there"
    try:
        with Peers(hint, arguments.heartbeat or HEARTBEAT):
            return run()
    except (ValueError, OSError, ImportError) as error:
        print(f"gsnmf: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(2)  # JAX's own exit would wait for the other processes, which this one leaves
    except KeyboardInterrupt:
        print(f"gsnmf: interrupted{hint}", file=sys.stderr, flush=True)
        os._exit(exit_code())


class Agreement:
    """What processes agree on between sweeps; all of them must ask.

    ending: whether a signal has come to one of them, which ends after the checkpoint. The others go on to the next sum,
        where the watch ends them.
    """

    def __init__(self) -> None:
        self.ending = False

    def due(self, due: bool) -> bool:
        """Return whether all take part in a checkpoint: if process 0 says so, or one of them is to end."""
        from ..inference.processes import all_processes

        told = all_processes([due, was_received()])
        self.ending = any(signalled for _, signalled in told)
        return bool(told[0][0]) or self.ending

    def raise_if_ending(self) -> None:
        """Raise KeyboardInterrupt if a signal has come to this process, once process 0 has written the checkpoint."""
        from ..inference.processes import all_processes

        if self.ending:
            all_processes(None)
            raise_if_received()


def read_own_part(arguments: argparse.Namespace) -> tuple[Data, Priors, int]:
    """Read the samples of this process; return data that stand for those of all, priors and rank."""
    import jax

    from ..inference.sharding import shard
    from ..inference.stream.batches import read_levels
    from ..model import as_data
    from ..model.problem import Problem
    from ..parts import read_part

    matrix, first, N = read_part(arguments.file, jax.process_index(), jax.process_count(), arguments.key)
    describe(arguments, matrix, arguments.file, f"; {N:,} samples in all {jax.process_count()} processes")
    labels = levels = None
    every = labels_in(arguments)
    if every is not None:
        if len(every) != N:
            raise ValueError(f"expected {N} labels, one per sample; got {len(every)} in {arguments.labels}")
        labels = every[first : first + matrix.X.shape[1]]
        levels = read_levels(every, None)[1]
    names = matrix.sample_names or range(first, first + matrix.X.shape[1])
    local = as_data(matrix.X, labels, feature_names=matrix.feature_names, sample_names=list(names), group_names=levels)
    data = shard(local)
    check_components(arguments, data)
    priors = make_priors(arguments, data, arguments.rank)
    return data, priors, Problem(data, priors, arguments.rank).rank
