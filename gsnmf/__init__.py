"""Bayesian nonnegative matrix factorisation with group sparsity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import compare
    from .estimator import GroupSparseNMF

__version__ = "0.1.0"
__all__ = ["GroupSparseNMF", "__version__", "compare"]


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for: `import gsnmf` and the command's help stay instant."""
    if name == "GroupSparseNMF":
        from .estimator import GroupSparseNMF

        return GroupSparseNMF
    if name == "compare":
        from .comparison import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
