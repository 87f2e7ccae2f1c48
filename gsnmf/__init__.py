"""Bayesian nonnegative matrix factorisation with group sparsity."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .moved import forward_moved_modules

if TYPE_CHECKING:
    from .comparison import Choice, Consensus, choose_rank, compare, consensus, plot_comparison, plot_rank_choice
    from .drawing.features import plot_top_features
    from .drawing.sensitivity import sensitivity_plot, sensitivity_table
    from .estimator import GroupSparseNMF
    from .features import counts_by_group, describe_components, top_features_table
    from .reading import load_data
    from .reporting import report

__version__ = "0.2.0"
__all__ = [
    "Choice",
    "Consensus",
    "GroupSparseNMF",
    "__version__",
    "choose_rank",
    "compare",
    "load_data",
    "consensus",
    "counts_by_group",
    "describe_components",
    "plot_comparison",
    "plot_rank_choice",
    "plot_top_features",
    "report",
    "sensitivity_plot",
    "sensitivity_table",
    "top_features_table",
]

_WHERE = {
    "GroupSparseNMF": "estimator",
    "Choice": "comparison",
    "Consensus": "comparison",
    "consensus": "comparison",
    "choose_rank": "comparison",
    "compare": "comparison",
    "load_data": "reading",
    "plot_comparison": "comparison",
    "plot_rank_choice": "comparison",
    "report": "reporting",
    "sensitivity_plot": "drawing.sensitivity",
    "sensitivity_table": "drawing.sensitivity",
    "counts_by_group": "features",
    "describe_components": "features",
    "plot_top_features": "drawing.features",
    "top_features_table": "features",
}
forward_moved_modules()


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import gsnmf` and the command's help stay instant."""
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
