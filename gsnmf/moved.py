"""Former names of modules, which keep working: `gsnmf.plots` is `gsnmf.drawing.plots`, and so on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "axes": "drawing.axes",
    "calibration": "classification.calibration",
    "choosing": "comparison.ranks",
    "comparison_plots": "comparison.plots",
    "comparison_report": "comparison.summary",
    "congealing": "images.congealing",
    "crosscheck_plots": "crosscheck.plots",
    "crosscheck_report": "crosscheck.report",
    "demo_labels": "demo.unlabelled",
    "files": "reading",
    "invariants": "crosscheck.invariants",
    "montage": "drawing.montage",
    "parameters": "classification.parameters",
    "plots": "drawing.plots",
    "prediction": "classification.prediction",
    "preprocessing": "images.preprocessing",
    "projection": "classification.projection",
    "restarts": "classification.restarts",
    "transduction": "classification.transduction",
    "inference.collapsed": "inference.diagnostics",
    "inference.export": "inference.arviz",
    "inference.factors": "inference.families",
    "inference.held_out": "inference.entries",
    "inference.imputation": "inference.entries",
    "inference.label_posterior": "inference.labels.readout",
    "inference.labelling": "inference.labels.warm_start",
    "inference.poisson": "inference.observed.dense",
    "inference.predictive": "inference.entries",
    "model.laws": "model.distributions",
    "model.relative": "model.units",
    "model.unseen": "model.metadata",
}
PACKAGE = __name__.rpartition(".")[0]


class Forwarding(MetaPathFinder, Loader):
    """An import of a former name gives the module under its present name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a former name, None for any other."""
        if fullname.removeprefix(f"{PACKAGE}.") in MOVED and fullname.startswith(f"{PACKAGE}."):
            return ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its present name."""
        module = import_module(f"{PACKAGE}.{MOVED[spec.name.removeprefix(f'{PACKAGE}.')]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is, with its own spec, which importlib has just replaced."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def forward_moved_modules() -> None:
    """Let imports find the former names; called once, by `import gsnmf`."""
    if not any(isinstance(finder, Forwarding) for finder in sys.meta_path):
        sys.meta_path.append(Forwarding())
