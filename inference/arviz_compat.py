"""All that differs between ArviZ 0.23 (InferenceData) and 1.x (xarray's DataTree)."""

from __future__ import annotations

import warnings
from typing import Any


def gather(groups: dict[str, Any]) -> Any:
    """Datasets by group as the object that the installed ArviZ works with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.x at every first import
        import arviz

    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**groups)
    import xarray

    return xarray.DataTree.from_dict(groups)
