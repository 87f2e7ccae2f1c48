"""The hyperparameters that the experiments use, read from `presets.toml`."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import Any

from .methods import resolve


@functools.cache
def presets() -> dict[str, dict[str, dict[str, Any]]]:
    """Read settings by dataset and method."""
    return tomllib.loads(files(__package__).joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(dataset: str, method: str) -> dict[str, Any]:
    """Return the settings of a method on a dataset.

    Args:
        dataset: digits, orl, yale, yale-condition or jaffe.
        method: pca, nmf_kl, nmf_vb or nmf_gs.

    >>> preset("yale", "pca")
    {'rank': 73}
    """
    known = presets()
    if dataset not in known:
        raise ValueError(f"expected a dataset out of {', '.join(known)}; got {dataset!r}")
    return resolve(method, known[dataset].get(method, {}))
