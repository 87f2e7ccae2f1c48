"""The command `gsnmf report`: options and output file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from .inputs import READING, add_reading, announce, read_data
from .options import check_folder, given, image_shape, place
from .outputs import add_force, check_outputs, real

if TYPE_CHECKING:
    from ..model import Data
    from ..saving import Saved

REPORT_EXAMPLE = "  gsnmf report my_fit.npz --out my_fit.html"
REPORT = f"""examples:
{REPORT_EXAMPLE}
  gsnmf report digits_fit.npz --image-shape 8x8 --title "Digits"
  gsnmf report old_fit.npz --data counts.csv --labels classes.csv

FIT is a fit saved by gsnmf fit --out, both files. The page contains everything it shows, including the data where
samples are drawn: it opens from disk, makes no network requests, and can be sent to others as it is. Unless samples are
images, components are listed by the names of their most probable and most distinctive features, with a search."""


def add_report(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf report`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    report = commands.add_parser(
        "report",
        help="make a page about a saved fit, to open in a browser",
        description="Make one self-contained HTML page about a fit: data, priors, bound, components, reconstructions.",
        epilog=REPORT,
        **common,
    )
    report.set_defaults(run=_report)
    report.add_argument("fit", type=place, metavar="FIT", help="a fit saved by gsnmf fit")
    report.add_argument("--out", type=place, metavar="FILE", help="file of the page (default: FIT with .html)")
    report.add_argument("--data", type=place, metavar="FILE", help="the data, if they were not saved with the fit")
    report.add_argument("--labels", type=place, metavar="FILE", help="with --data: one label per sample, or obs:COLUMN")
    report.add_argument("--image-shape", type=image_shape, metavar="HxW", help="samples are images of this size")
    report.add_argument(
        "--image-mask",
        type=place,
        metavar="FILE",
        help="npy, npz or csv, height × width: 1 at pixels that are features",
    )
    add_reading(report)
    add_force(report)
    report.add_argument("--title", help="title of the page (default: the name of FIT)")
    report.add_argument(
        "--khat", action="store_true", help="also draw from the posterior to estimate k̂, which takes longer"
    )
    report.add_argument(
        "--without-widths",
        action="store_true",
        help="leave out the intervals of components' top features and of their proportions in samples, which continue "
        "the fit by cavi.refine and take up to half a minute; large problems leave them out in any case",
    )


def _report(arguments: argparse.Namespace) -> int:
    for name in given(arguments, "labels", *READING) if arguments.data is None else ():
        raise ValueError(f"expected --data with --{name.replace('_', '-')}; got none")
    if arguments.image_shape is not None and arguments.image_mask is not None:
        raise ValueError("expected --image-shape or --image-mask; got both")
    from ..interrupts import raise_if_received
    from ..saving import load_fit, pair

    raise_if_received()
    npz, text = pair(arguments.fit)
    out = npz.with_suffix(".html") if arguments.out is None else arguments.out
    if out.is_dir():
        raise ValueError(f"expected --out to name a file; got the folder {out}")
    if real(out) in (real(npz), real(text)):
        raise ValueError(f"expected --out to name a file other than the fit's own files; got {out}")
    check_outputs([out], (arguments.data, arguments.labels, arguments.image_mask, npz, text), arguments.force)
    if out.suffix.lower() != ".html":  # by which it is recognised the next time
        raise ValueError(f"expected --out to end in .html; got {out}")
    check_folder(out.parent)
    saved = load_fit(arguments.fit)
    data = _data(arguments, saved)
    shape = _shape(arguments, saved)
    from ..reporting import report

    title = npz.stem if arguments.title is None else arguments.title
    page = report(
        saved.fit,
        data,
        saved.priors,
        image_shape=shape,
        title=title,
        path=out,
        seconds=saved.seconds,
        khat=arguments.khat,
        widths=not arguments.without_widths,
    )
    print(f"Saved in {out} ({len(page.encode()) / 1e6:.1f} MB): open it in a browser")
    root = round(data.num_features**0.5)
    if shape is None and root > 3 and root * root == data.num_features:
        print(f"gsnmf: if samples are images, --image-shape {root}x{root} draws them as images", file=sys.stderr)
    return 0


def _data(arguments: argparse.Namespace, saved: Saved) -> Data:
    """Return the data named in the options, else the data saved with the fit."""
    if arguments.data is None:
        if saved.data is None:
            raise ValueError(f"expected --data FILE, as {arguments.fit} was saved without its data; got none")
        return saved.data
    from ..model import Names

    if arguments.labels is None and len(saved.names.group):
        raise ValueError("expected --labels with --data, as this fit was made with labels; got none")
    known = saved.names.group.tolist() if len(saved.names.group) else None
    data = read_data(arguments, arguments.data, group_names=known)
    own = len(saved.names.feature), len(saved.names.sample)
    if data.matrix.shape != own:
        raise ValueError(f"expected --data of {own[0]} features × {own[1]} samples; got {data.matrix.shape}")
    announce(arguments)
    names = (saved.names.feature, saved.names.sample, data.names.group)
    return data._replace(names=Names(*(axis.tolist() for axis in names)))


def _shape(arguments: argparse.Namespace, saved: Saved) -> Any:
    """Return the image shape from the options, else as it was saved."""
    if arguments.image_mask is None:
        return saved.pixels if arguments.image_shape is None else arguments.image_shape
    import scipy.sparse

    from ..reading import read_matrix

    mask = read_matrix(arguments.image_mask).X
    if scipy.sparse.issparse(mask):
        raise ValueError(f"expected a dense array of 0 and 1 in {arguments.image_mask}; got a sparse matrix")
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"expected 0 and 1 in {arguments.image_mask}; got {mask[(mask != 0) & (mask != 1)][0]:g}")
    return mask.astype(bool)
