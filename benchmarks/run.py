"""Speed compared with the floor and the peers, every row a ratio measured within one run: a table, JSON and a plot."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import batch
import convergence
import fresh
import gibbs
import kernel
import least_squares
import peers_sparse
import report
import sparse
import sweeps
from measure import Options, Row

SUITES: dict[str, Callable[[Options], Iterator[Row]]] = {
    "memory": fresh.memory_rows,
    "compile": fresh.compile_rows,
    "sweep": sweeps.sweep_rows,
    "growth": sweeps.growth_rows,
    "converge": convergence.sweeps_rows,
    "svi": convergence.svi_rows,
    "batch": batch.rows,
    "gibbs": gibbs.rows,
    "nnls": least_squares.rows,
    "kernel": kernel.rows,
    "sparse": sparse.rows,
    "peers": peers_sparse.rows,
}
EPILOG = """what is measured:
  memory    peak memory of a fit, in units of X
  compile   the first call at a new shape less a later one; that later calls compile nothing
  sweep     a sweep with its bound against its floor (three products and a division, the faster of NumPy and JAX),
            a plain NumPy/SciPy CAVI, and an iteration of scikit-learn's KL-NMF
  growth    log-log slope of a sweep's time in F, N and K
  converge  accelerated sweeps, and seconds, to the bound of 300 and of 2000 plain sweeps
  svi       seconds to the same collapsed bound, against NumPyro's SVI; compiling left out on both sides
  batch     ten restarts by run_many against a loop
  gibbs     a Gibbs sweep against a plain CAVI sweep, on digits, counts of words and faces
  nnls      nonnegative least squares against QR and SciPy column by column
  kernel    the compiled pass over nonzeros against the bytes it must move, scikit-learn, and two threads
  sparse    a sweep of sparse X with its bound, with and without the kernel, against scikit-learn; two CPUs, growth in
            nonzeros, a million samples, memory of a fit
  peers     a sweep of sparse X, with and without the kernel, against SciPy, scikit-learn, scHPF's pass, hpfrec, poismf

examples:
  python benchmarks/run.py --quick
  python benchmarks/run.py --only sweep growth
  python benchmarks/run.py --yale yale_centered.npz --out results

Of repeats, taken in turns, the table shows the median and the quartiles. Other work on the machine disturbs them:
ratios within a round much less than the milliseconds, which are in the JSON file."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(prog="run.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    result.add_argument("--quick", action="store_true", help="fewer repeats and 2 seeds")
    result.add_argument("--tiny", action="store_true", help="toy sizes, to try the command; the numbers mean nothing")
    result.add_argument("--only", nargs="+", choices=SUITES, metavar="NAME", help=f"some of: {', '.join(SUITES)}")
    result.add_argument(
        "--yale",
        type=Path,
        metavar="PATH",
        help="the Yale faces as gsnmf.datasets.yale takes them; else generated data",
    )
    result.add_argument(
        "--counts",
        type=Path,
        metavar="FILE",
        help="counts of words, samples × features, as benchmarks/sparse.py takes them; else generated data",
    )
    result.add_argument(
        "--out", type=Path, default=Path("benchmarks/results"), metavar="DIR", help="folder (default: %(default)s)"
    )
    result.add_argument("--seeds", type=int, default=5, metavar="N", help="random starts (default: %(default)s)")
    return result


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; returns the exit code."""
    command = sys.argv[1:] if argv is None else argv
    given = parser().parse_args(command)
    if given.seeds < 1:
        parser().error(f"expected --seeds of at least 1; got {given.seeds}")
    for name in ("yale", "counts"):
        path = getattr(given, name)
        if path is not None and not path.exists():
            parser().error(f"expected --{name} to name a file or folder; got {path}")
    seeds = min(given.seeds, 2) if given.quick else given.seeds
    options = Options(given.quick, given.tiny, given.yale, seeds, given.counts)
    rows: list[Row] = []
    began = time.perf_counter()
    try:
        for name in given.only or SUITES:
            print(f"[{time.perf_counter() - began:5.0f} s] {name}", file=sys.stderr)
            for row in SUITES[name](options):
                rows.append(row)
            report.write(rows, command, given.out)  # after every part: a run takes minutes
    except KeyboardInterrupt:
        print("interrupted: what was measured so far", file=sys.stderr)
    if not rows:
        print("nothing was measured", file=sys.stderr)
        return 1
    print(report.text(report.table(rows)))
    if report.busy():
        print(f"The machine was busy: {report.load()} processes on average wanted a CPU. Ratios of unlike work suffer.")
    for file in report.write(rows, command, given.out):
        print(f"[{time.perf_counter() - began:5.0f} s] wrote {file}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
