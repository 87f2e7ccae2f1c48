"""The hyperparameters that the experiments use, read from `presets.toml`."""

from __future__ import annotations

import functools
import inspect
import tomllib
from importlib.resources import files
from typing import Any

from .methods import METHODS


@functools.cache
def presets() -> dict[str, dict[str, dict[str, Any]]]:
    """Settings by dataset and method."""
    return tomllib.loads(files(__package__).joinpath("presets.toml").read_text(encoding="utf-8"))


def preset(dataset: str, method: str) -> dict[str, Any]:
    """The settings of a method on a dataset.

    Args:
        dataset: digits, orl, yale, yale-condition or jaffe.
        method: pca, nmf_kl, nmf_vb or nmf_gs.

    >>> preset("yale", "pca")
    {'rank': 73}
    """
    known = presets()
    if dataset not in known:
        raise ValueError(f"expected a dataset out of {', '.join(known)}; got {dataset!r}")
    if method not in METHODS:
        raise ValueError(f"expected a method out of {', '.join(METHODS)}; got {method!r}")
    return dict(known[dataset][method])


def change(settings: dict[str, Any], method: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings with some of them replaced, if the method has such.

    Args:
        settings: as from `preset`.
        method: whose they are.
        changes: names with new values.
    """
    signature = inspect.signature(METHODS[method]).parameters
    allowed = [name for name in signature if name not in ("X", "labels", "seed", "options")]
    if "options" in signature:
        allowed += ["max_steps", "tol", "accelerate", "init"]
    for name in changes:
        if name not in allowed:
            raise ValueError(f"expected a setting of {method} out of {', '.join(allowed)}; got {name!r}")
    return settings | changes
