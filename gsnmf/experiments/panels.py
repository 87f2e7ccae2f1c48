"""The fits that figures show: computed once, saved, and read again for the same settings and data."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .. import __version__
from ..drawing.plots import component_order, home_groups, mean_by_group
from ..inference import Posterior, in_use
from ..model import as_data
from ..reading.matrix import number
from ..saving import load_fit, pair, save_fit
from .methods import METHODS
from .presets import preset
from .protocol import PreparedDataset, parts

# Shapes of λ at labels other than a component's own: the first equals the shape at its own label, with the second
# labels share components, with the third hardly any do. The label where a component is most active has this proportion
# of what it explains: about a third, 0.85 and all on Yale, where λ starts at its shape; 0.1, 0.7 and all on ORL; 0.65,
# 0.85 and all on digits. The presets are the second on Yale and the third on ORL and digits, where components have one
# label each already and larger shapes change nothing.
SHAPES: dict[str, tuple[float, ...]] = {
    "yale": (32, 8192, 131072),
    "yale-condition": (32, 8192, 131072),
    "jaffe": (32, 8192, 131072),
    "orl": (32, 4096, 16384),
    "digits": (160, 320, 1600),
}


class Panel(NamedTuple):
    """One fit in a figure.

    caption: text below the panel, with its parameters.
    T: features × components.
    V: components × samples, |E[V]|.
    lam: components × groups; None for a model without groups.
    membership: samples × groups.
    names: names of the groups.
    used: whether each component explains anything.
    """

    caption: str
    T: NDArray[np.floating]
    V: NDArray[np.floating]
    lam: NDArray[np.floating] | None
    membership: NDArray[np.floating]
    names: NDArray[Any]
    used: NDArray[np.bool_]

    @property
    def order(self) -> NDArray[np.intp]:
        """Components sorted by the label in which they are most active, the most active first."""
        return component_order(self.V, self.membership)

    @property
    def homes(self) -> NDArray[np.intp]:
        """The index of the label in which each component is most active."""
        return home_groups(self.V, self.membership)

    @property
    def prevalence(self) -> NDArray[np.float64]:
        """Mean |v|: groups × components."""
        return mean_by_group(self.V, self.membership)

    def first(self, groups: int) -> Panel:
        """Return the panel restricted to the first groups: their samples, and the components most active there."""
        inside = self.membership[:, :groups].any(axis=1)
        own = self.homes < groups
        lam = None if self.lam is None else self.lam[own, :groups]
        return self._replace(
            T=self.T[:, own], V=self.V[own][:, inside], lam=lam, membership=self.membership[inside, :groups],
            names=self.names[:groups], used=self.used[own],
        )  # fmt: skip


def models(
    dataset: str, *, large: Sequence[float] | None = None, small: float | None = None, **changes: Any
) -> list[tuple[str, dict[str, Any]]]:
    """Return methods and settings, one per panel: nmf_gs with each `large`, then nmf_vb with as many components.

    Other settings are as in the presets; nmf_vb makes as many sweeps as nmf_gs.

    Args:
        dataset: a dataset with presets.
        large: shapes of λ where a component is not bound; by default `SHAPES` and the preset's.
        small: shape of λ where a component is bound; by default the preset's.
        changes: other settings of nmf_gs, for example lam_start and max_steps; None keeps the preset's.
    """
    usual = preset(dataset, "nmf_gs")
    shapes = large or sorted({*SHAPES[dataset], usual["large"]})
    base = usual | {name: value for name, value in {"small": small, **changes}.items() if value is not None}
    grouped = [("nmf_gs", base | {"large": float(a)}) for a in shapes]
    alike = {name: base[name] for name in ("rank", "max_steps", "tol", "accelerate")}
    return [*grouped, ("nmf_vb", preset(dataset, "nmf_vb") | alike)]


def panels(
    problem: PreparedDataset,
    folder: Path,
    wanted: Sequence[tuple[str, Mapping[str, Any]]],
    seed: int,
    saved: list[Path] | None = None,
) -> list[Panel]:
    """Return fits to the first training part of the first cross-validation, read from the folder or computed and saved.

    Args:
        problem: the prepared dataset.
        folder: folder of saved fits; it must exist.
        wanted: as from `models`.
        seed: seed of the random start.
        saved: receives the path of each fit as soon as it is saved, in case of an interruption.
    """
    train, _ = parts(problem.labels)
    labels = problem.labels[train]
    paths = [folder / f"{problem.name}_{method}_{fit_tag(problem, method, more, seed)}.npz" for method, more in wanted]
    missing = [path for path in paths if not all(file.exists() for file in pair(path))]
    earlier = [path for path in paths if path not in missing and path not in (saved or ())]
    if earlier:
        print(f"gsnmf: resuming from {folder}, which has {number(len(earlier), 'fit')}", file=sys.stderr)
    found = []
    with tqdm(list(zip(paths, wanted, strict=True)), unit="fit", disable=None) as progress:
        for path, (method, settings) in progress:
            progress.set_description(f"{problem.name} {method}")
            if path in missing:
                made = METHODS[method](problem.X[:, train], labels, seed, **settings).made
                if made is None:
                    raise ValueError(f"expected a variational method; got {method}")
                fit, data, priors = made
                save_fit(path, fit, priors, data.names)
            if saved is not None and path not in saved:
                saved.append(path)
            found.append(_panel(load_fit(path).fit.posterior, labels, caption(method, settings)))
    return found


def fit_tag(problem: PreparedDataset, method: str, settings: Mapping[str, Any], seed: int) -> str:
    """Return a hash of everything that a fit depends on: fits of other data or settings have other names."""
    of = {"data": problem.fingerprint, "method": method, "settings": dict(settings), "seed": seed}
    of |= {"version": __version__, "precision": jnp.zeros(()).dtype.name}
    shown = f"large{settings['large']:g}_" if "large" in settings else ""
    return shown + hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]


def caption(method: str, settings: Mapping[str, Any]) -> str:
    """Return the caption of a panel: the method and its distinguishing settings."""
    name = rf"$\mathit{{{method.replace('_', chr(92) + '_')}}}$"
    if method == "nmf_gs":
        return rf"{name}, $a^\lambda_{{\mathrm{{large}}}} = {settings['large']:.7g}$"
    return rf"{name}, $a^v = {settings['a_v']:g}$, $b^v = {settings['b_v']:g}$"


def _panel(posterior: Posterior, labels: NDArray[Any], caption: str) -> Panel:
    T, V = (np.asarray(q.mean, float) for q in (posterior.T, posterior.V))
    lam = None if posterior.lam is None else np.asarray(posterior.lam.mean, float)
    data = as_data(np.zeros((1, len(labels))), labels)
    membership = np.asarray(data.membership, float)
    return Panel(caption, T, V, lam, membership, data.names.group, in_use(posterior))
