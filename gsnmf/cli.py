"""The command line: dispatch to a command, with errors turned into one line and an exit code.

Libraries are imported when a command needs them, so help is instant.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

from . import __version__
from .commands.choose import CHOOSE_EXAMPLE, add_choose
from .commands.crosscheck import CROSSCHECK_EXAMPLE, add_crosscheck
from .commands.demo import DEMO_EXAMPLE, add_demo
from .commands.experiments import REPRODUCE_EXAMPLE, SWEEP_EXAMPLE, add_commands
from .commands.figures import FIGURES_EXAMPLE, add_figures
from .commands.fit import FIT_EXAMPLE, add_fit
from .commands.report import REPORT_EXAMPLE, add_report
from .consoles import forgiving
from .interrupts import CODES, exit_code, listening, was_received

POOLED = ("reproduce", "sweep")  # their worker processes are ended by the interpreter's normal shutdown
INTERRUPTED = 130  # what commands return after an interruption, by whichever signal
EXAMPLES = (
    DEMO_EXAMPLE, FIT_EXAMPLE, REPORT_EXAMPLE, CHOOSE_EXAMPLE, CROSSCHECK_EXAMPLE, REPRODUCE_EXAMPLE, SWEEP_EXAMPLE,
    FIGURES_EXAMPLE,
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that `main` prints them in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        raise ValueError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    """The option --version, which loads the kernels only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print the version and how sparse X is read."""
        from .inference import native

        print(f"gsnmf {__version__}\nsparse X: {native.describe()}")
        parser.exit()


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit code.

    It is 0, 1 for a failed fit, 2 for invalid input or if not all could be printed, 130 or 143 when interrupted.

    Args:
        argv: the words after `gsnmf`; None for those of this process, which is then taken to end with the command. An
            interruption ends it at once, except for POOLED commands: normal shutdown would wait for JAX's compilers, or
            crash in them. After success Ctrl-C and SIGTERM are ignored, so that they cannot disturb that shutdown.
    """
    if argv is None:
        warnings.showwarning = _warned
    words = sys.argv[1:] if argv is None else argv
    with forgiving() as printed:
        code = _run(words, last=argv is None)
        printed.flush()
        if printed.lost is not None and not isinstance(printed.lost, BrokenPipeError):  # as of head, which has enough
            why = getattr(printed.lost, "strerror", None) or printed.lost
            print(f"gsnmf: error: not all could be printed ({why}); files are as without this error", file=sys.stderr)
            code = code or 2
    if argv is None and code in CODES.values() and words[0] not in POOLED:
        os._exit(code)
    return code


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line, without the place in the code that it comes from."""
    print(f"gsnmf: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _run(words: list[str], last: bool) -> int:
    try:
        with listening(last) as heard:
            arguments = _parser().parse_args(words, argparse.Namespace(words=words))
            code: int = arguments.run(arguments)
            heard.finished = True  # no call, at which Python would let a signal in
    except SystemExit as end:  # of --help and --version
        return int(end.code or 0)
    except (ValueError, OSError, ImportError) as error:
        if was_received():  # an import that was interrupted may raise anything
            return _interrupted(error)
        print(f"gsnmf: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError, AssertionError) as error:  # NumPy's and Python's, and JAX's
        if _lacks_platform(error):
            asked = os.environ["JAX_PLATFORMS"]
            print(f"gsnmf: error: expected JAX_PLATFORMS to name what this machine has; got {asked}", file=sys.stderr)
            return 2
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        said = " ".join(str(error).split()) or "an allocation failed"
        print(f"gsnmf: error: expected enough memory for this command; got: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    return exit_code() if code == INTERRUPTED else code


def _lacks_platform(error: BaseException) -> bool:
    """Return whether JAX found no platform, such as a GPU, of the name that the environment asks for."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return bool(os.environ.get("JAX_PLATFORMS")) and Path(last.filename).stem == "xla_bridge"


def _interrupted(error: BaseException) -> int:
    """Say what was saved, and return the exit code."""
    said = str(error) if isinstance(error, KeyboardInterrupt) else ""
    print(f"gsnmf: interrupted; {said or 'nothing was saved'}", file=sys.stderr)
    return exit_code()


def _parser() -> Parser:
    common: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = Parser(
        prog="gsnmf",
        description="Bayesian nonnegative matrix factorisation with group sparsity.",
        epilog="\n".join(("examples:", *EXAMPLES)),
        **common,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="version, and the path that sparse X takes")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (add_demo, add_fit, add_report, add_choose, add_crosscheck, add_commands, add_figures):
        add(commands, **common)
    return parser
