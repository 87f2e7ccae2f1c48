"""The command `gsnmf figures`: options and output files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .experiments import DATASETS, positive_integer
from .options import check_folder, place, seed
from .outputs import add_force, check_outputs

if TYPE_CHECKING:
    from ..experiments.panels import Panel
    from ..images.preprocessing import Prepared

FIGURES_EXAMPLE = "  gsnmf figures orl --out pictures"
FIGURES = f"""examples:
{FIGURES_EXAMPLE}
  gsnmf figures yale --data yale_centered.npz --sweep gsnmf_results/sweep_yale.jsonl
  gsnmf figures digits --large 160 640 --small 160
  gsnmf figures digits orl --montage overview.png

Fits to the first training part of 10-fold cross-validation, with the settings of `gsnmf reproduce` except those given
here, are saved in the folder `fits` of --out. Figures are drawn from the saved fits: another call with the same
settings and data reads them, and resumes an interrupted call. These files are written as PNG and PDF for each DATASET;
the numbers are those of the paper's figures on Yale (in parentheses on JAFFE, which yale-condition resembles):
  DATASET_coefficients   E[V], samples sorted by label             figure 2
  DATASET_hinton         mean |v| by label and component           figures 3 (8)
  DATASET_relevance      1 / E[λ] by label and component           figure 4
  DATASET_dictionary     the components as images                  figures 5 (9)
  DATASET_features       mean |v|, with the images in the diagram  figures 11 (12)
  DATASET_accuracy       of --sweep                                figures 6 (10), 7 (ORL)"""
# Fields that may differ between results of one curve: the fold, and the settings on the axis and in the legend.
VARIED = ("dataset", "method", "settings", "run", "fold", "validation")


def add_figures(commands: Any, **common: Any) -> None:
    """Add the parser of `gsnmf figures`.

    Args:
        commands: the subparsers of `gsnmf`.
        common: options that all parsers share.
    """
    figures = commands.add_parser(
        "figures",
        help="draw the paper's figures on digits and faces",
        description="Draw the effect of a larger shape of λ on coefficients and dictionaries, from saved fits.",
        epilog=FIGURES,
        **common,
    )
    figures.set_defaults(run=_figures)
    figures.add_argument("datasets", nargs="+", choices=DATASETS, metavar="DATASET", help=", ".join(DATASETS))
    figures.add_argument("--data", type=place, metavar="PATH", help="your copy of yale or jaffe: a folder, or an npz")
    figures.add_argument(
        "--out", type=place, default=Path("gsnmf_figures"), metavar="DIR", help="output folder (default: %(default)s)"
    )
    figures.add_argument(
        "--sweep",
        type=place,
        nargs="+",
        metavar="FILE",
        help="results of `gsnmf sweep` on nmf_gs, all with the same plan, to draw as well",
    )
    figures.add_argument(
        "--large",
        type=positive_number,
        nargs="+",
        metavar="A",
        help="shapes of λ at other labels, increasing, one panel each (default: three, including the preset's)",
    )
    figures.add_argument(
        "--small",
        type=positive_number,
        metavar="A",
        help="shape of λ at a component's own label (default: the preset's)",
    )
    figures.add_argument("--lam-start", choices=["shape", "prior"], help="initialisation of λ (default: the preset's)")
    figures.add_argument("--max-steps", type=positive_integer, metavar="N", help="sweeps (default: the preset's)")
    add_force(figures)
    figures.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the random start (default: 0)")
    figures.add_argument(
        "--montage",
        type=place,
        metavar="FILE",
        help="one page with a column for each DATASET, always with the settings of its preset",
    )


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0; got {text!r}")
    return value


def _figures(arguments: argparse.Namespace) -> int:
    datasets = list(dict.fromkeys(arguments.datasets))
    own = [name for name in datasets if name not in ("digits", "orl")]
    if arguments.data is not None and len(own) != 1:
        raise ValueError(f"expected --data with one of yale, yale-condition, jaffe; got {', '.join(datasets)}")
    if arguments.large is not None and arguments.large != sorted(set(arguments.large)):
        raise ValueError(f"expected increasing shapes for --large; got {' '.join(f'{a:g}' for a in arguments.large)}")
    if arguments.montage is not None and arguments.montage.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"expected --montage to name a .png, .pdf or .svg file; got {arguments.montage}")
    check_outputs(_written(arguments, datasets), (arguments.data, *(arguments.sweep or ())), arguments.force)
    fits = arguments.out / "fits"
    check_folder(fits)
    if arguments.montage is not None:
        check_folder(arguments.montage.parent)
    saved: list[Path] = []
    try:
        if arguments.sweep:
            _draw_accuracies(datasets, arguments.sweep, arguments.out)
        _draw_fits(arguments, datasets, fits, saved)
    except KeyboardInterrupt:
        names = f"saved in {fits}: {', '.join(path.stem for path in saved)}" if saved else "no fit is saved yet"
        print(f"gsnmf: interrupted; {names}. The same command resumes from there.", file=sys.stderr)
        return 130
    return 0


def _written(arguments: argparse.Namespace, datasets: list[str]) -> list[Path]:
    """Return the pictures that the command writes; names of fits have a checksum of all that they depend on."""
    from ..experiments.figures import KINDS

    kinds = [*KINDS, *(["accuracy"] if arguments.sweep else [])]
    stems = [f"{name}_{kind}" for name in datasets for kind in kinds]
    files = [arguments.out / f"{stem}{suffix}" for stem in stems for suffix in (".png", ".pdf")]
    return files if arguments.montage is None else [*files, arguments.montage]


def _draw_fits(arguments: argparse.Namespace, datasets: list[str], fits: Path, saved: list[Path]) -> None:
    from ..datasets import OWN_COPY, SHORT_CREDITS
    from ..experiments.panels import models, panels
    from ..experiments.presets import preset
    from ..experiments.protocol import PreparedDataset
    from ..images.preprocessing import prepared

    pages = []
    for dataset in datasets:
        found = prepared(dataset, arguments.data if dataset in OWN_COPY else None)
        problem = PreparedDataset(dataset, found.X, found.labels)
        given = {name: getattr(arguments, name) for name in ("large", "small", "lam_start", "max_steps")}
        wanted = models(dataset, **given)
        shown = panels(problem, fits, wanted, arguments.seed, saved)
        _draw_effects(dataset, shown, found, wanted[0][1], arguments.out)
        if arguments.montage is not None:
            usual = panels(problem, fits, [("nmf_gs", preset(dataset, "nmf_gs"))], arguments.seed, saved)[0]
            pages.append((f"{dataset}: {usual.caption}", usual, found.image and found.image.picture))
    if arguments.montage is not None:
        _draw_montage(pages, ". ".join(dict.fromkeys(SHORT_CREDITS[name] for name in datasets)), arguments.montage)


def _draw_effects(dataset: str, shown: list[Panel], found: Prepared, settings: Mapping[str, Any], out: Path) -> None:
    from tqdm import tqdm

    from ..experiments.figures import KINDS, effect, number, save_figure

    pictures = None if found.image is None else found.image.picture
    with tqdm(KINDS, unit="figure", disable=None) as progress:
        for kind in progress:
            progress.set_description(f"{dataset} {kind}")
            figure = effect(kind, shown, pictures, note=note(dataset, settings, len(shown[0].membership)))
            png, pdf = save_figure(figure, out / f"{dataset}_{kind}")
            progress.write(f"  {png}, {pdf.suffix}: {number(dataset, kind)}")


def _draw_accuracies(datasets: list[str], files: list[Path], out: Path) -> None:
    from ..experiments.figures import draw_accuracy, number
    from ..experiments.results import by_fold, identity, read

    every = read(files)
    found = {dataset: _of_one_plan(every, dataset) for dataset in datasets}
    if not any(found.values()):
        got = ", ".join(sorted({f"{row['method']} on {row['dataset']}" for row in every})) or "none"
        names = " or ".join(datasets)
        raise ValueError(f"expected results of nmf_gs on {names} in {', '.join(map(str, files))}; got {got}")
    for dataset, rows in found.items():
        if not rows:
            print(f"  No accuracies of {dataset} are drawn: there are no results of nmf_gs on {dataset}.")
            continue
        once = {identity(row): row for row in rows}  # files may repeat each other
        if len({row["settings"]["large"] for row in rows}) < 2:
            raise ValueError(
                f"expected results of a sweep of {dataset} over two values of large or more; "
                f"got {rows[0]['settings']['large']:g} only"
            )
        title = f"{dataset}, K = {rows[0]['settings']['rank']}"
        png, pdf = draw_accuracy(by_fold(list(once.values())), out / dataset, title)
        print(f"  {png}, {pdf.suffix}: {number(dataset, 'accuracy')}")


def _of_one_plan(every: list[dict[str, Any]], dataset: str) -> list[dict[str, Any]]:
    """Return the results of nmf_gs on a dataset, if they differ only in fold, small and large.

    A point is then a mean over comparable results. Results with restarts chosen on validation samples are left out:
    they have no accuracies of single restarts.
    """
    from ..experiments.results import IDENTITY

    rows = [row for row in every if row["dataset"] == dataset and row["method"] == "nmf_gs" and not row["validation"]]
    without = [name for row in rows for name in ("large", "rank") if name not in row["settings"]]
    if without:
        raise ValueError(f"expected results of nmf_gs on {dataset} with a setting {without[0]}; got none")
    plans = [
        {name: row[name] for name in IDENTITY if name not in VARIED}
        | {name: value for name, value in row["settings"].items() if name not in ("small", "large")}
        for row in rows
    ]
    for name in dict.fromkeys(name for plan in plans for name in plan):
        values = list(dict.fromkeys(str(plan.get(name, "none given")) for plan in plans))
        if len(values) > 1:
            raise ValueError(f"expected results on {dataset} with one value of {name}; got {' and '.join(values)}")
    return rows


def _draw_montage(pages: list[tuple[str, Panel, Any]], note: str, path: Path) -> None:
    from ..drawing.axes import write_figure
    from ..experiments.figures import overview

    for name, _, pictures in pages:
        if pictures is None:
            raise ValueError(f"expected samples that are images for --montage; got {name}")
    write_figure(overview(pages, note=note), path, pil_kwargs={"optimize": True} if path.suffix == ".png" else None)
    print(f"  {path}")


def note(dataset: str, settings: Mapping[str, Any], samples: int) -> str:
    """Return a note with the settings that all panels with groups share, and the credit of the data.

    Args:
        dataset: name of the dataset.
        settings: settings of one panel with groups.
        samples: number of samples that were fitted.
    """
    from ..datasets import SHORT_CREDITS

    shapes = rf"$a^\lambda_{{\mathrm{{small}}}} = {settings['small']:g}$, $b^\lambda = {_power(settings['scale'])}$"
    prior = rf"$a^t = {settings['a_t']:g}$, $b^t = {settings['b_t']:g}$, $K = {settings['rank']}$"
    start = {"shape": "λ starts at its shape", "prior": "λ starts at its prior mean"}[settings["lam_start"]]
    return f"{shapes}, {prior}; {start}; {settings['max_steps']} sweeps, {samples} samples\n{SHORT_CREDITS[dataset]}"


def _power(value: float) -> str:
    """Format a number as 10⁶ rather than 1e+06."""
    mantissa, found, exponent = f"{value:g}".partition("e")
    factor = "" if mantissa == "1" else rf"{mantissa} \cdot "
    return f"{factor}10^{{{int(exponent)}}}" if found else mantissa
