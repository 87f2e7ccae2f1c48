"""Bayesian nonnegative matrix factorisation with group sparsity."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choosing import Choice, choose_rank, plot_rank_choice
    from .comparison import compare
    from .comparison_plots import plot_comparison
    from .estimator import GroupSparseNMF
    from .reporting import report

__version__ = "0.1.0"
__all__ = [
    "Choice",
    "GroupSparseNMF",
    "__version__",
    "choose_rank",
    "compare",
    "plot_comparison",
    "plot_rank_choice",
    "report",
]

_WHERE = {
    "GroupSparseNMF": "estimator",
    "Choice": "choosing",
    "choose_rank": "choosing",
    "compare": "comparison",
    "plot_comparison": "comparison_plots",
    "plot_rank_choice": "choosing",
    "report": "reporting",
}


def __getattr__(name: str) -> Any:
    """Imported when it is first asked for: `import gsnmf` and the command's help stay instant."""
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
