"""The fits that figures show: made once, saved, and read again whenever the same ones are asked for."""

from __future__ import annotations

import hashlib
import json
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
from ..saving import load_fit, pair, save_fit
from .methods import METHODS
from .presets import preset
from .protocol import Problem, parts

# Shapes of λ elsewhere than at a component's label: the same as there; labels share components; hardly any do. Of what
# components explain, the label where each is most active has about a third, 0.85 and all on Yale, where λ starts at its
# shape; 0.1, 0.7 and all on ORL; 0.65, 0.85 and all on digits. The presets are the second on Yale and the third on ORL
# and digits, where components have one label each already and larger shapes change nothing.
SHAPES: dict[str, tuple[float, ...]] = {
    "yale": (32, 8192, 131072),
    "yale-condition": (32, 8192, 131072),
    "jaffe": (32, 8192, 131072),
    "orl": (32, 4096, 16384),
    "digits": (160, 320, 1600),
}


class Panel(NamedTuple):
    """One fit in a figure.

    caption: its parameters, below it.
    T: features × components.
    V: components × samples, |E[V]|.
    lam: components × groups; None for a model without groups.
    membership: samples × groups.
    names: of the groups.
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
        """Components by the label in which they are most active, the most active first."""
        return component_order(self.V, self.membership)

    @property
    def homes(self) -> NDArray[np.intp]:
        """That label's number."""
        return home_groups(self.V, self.membership)

    @property
    def prevalence(self) -> NDArray[np.float64]:
        """Mean |v|: groups × components."""
        return mean_by_group(self.V, self.membership)

    def first(self, groups: int) -> Panel:
        """The same with the first groups only: their samples, and components that are at home there."""
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
    """Methods with their settings, one for each panel: nmf_gs with each `large`, then nmf_vb with as many components.

    The rest is as in the presets; nmf_vb makes as many sweeps as nmf_gs.

    Args:
        dataset: one of those with presets.
        large: shapes of λ where a component is not bound; `SHAPES` and the preset's when left out.
        small: shape where it is; the preset's when left out.
        changes: other settings of nmf_gs, such as lam_start and max_steps; None leaves the preset's.
    """
    usual = preset(dataset, "nmf_gs")
    shapes = large or sorted({*SHAPES[dataset], usual["large"]})
    base = usual | {name: value for name, value in {"small": small, **changes}.items() if value is not None}
    grouped = [("nmf_gs", base | {"large": float(a)}) for a in shapes]
    alike = {name: base[name] for name in ("rank", "max_steps", "tol", "accelerate")}
    return [*grouped, ("nmf_vb", preset(dataset, "nmf_vb") | alike)]


def panels(
    problem: Problem,
    folder: Path,
    wanted: Sequence[tuple[str, Mapping[str, Any]]],
    seed: int,
    saved: list[Path] | None = None,
) -> list[Panel]:
    """Fits to the first training part of the first cross-validation, read from the folder or made and saved there.

    Args:
        problem: the prepared dataset.
        folder: of saved fits; it must exist.
        wanted: as from `models`.
        seed: of the random start.
        saved: gets the path of each fit as soon as it is there, for when there is an interruption.
    """
    train, _ = parts(problem.labels)
    labels = problem.labels[train]
    found = []
    with tqdm(wanted, unit="fit", disable=None) as progress:
        for method, settings in progress:
            path = folder / f"{problem.name}_{method}_{fit_tag(problem, method, settings, seed)}.npz"
            progress.set_description(f"{problem.name} {method}")
            if not all(file.exists() for file in pair(path)):
                made = METHODS[method](problem.X[:, train], labels, seed, **settings).made
                if made is None:
                    raise ValueError(f"expected a variational method; got {method}")
                fit, data, priors = made
                save_fit(path, fit, priors, data.names)
            if saved is not None and path not in saved:
                saved.append(path)
            found.append(_panel(load_fit(path).fit.posterior, labels, caption(method, settings)))
    return found


def fit_tag(problem: Problem, method: str, settings: Mapping[str, Any], seed: int) -> str:
    """Of all that the numbers of a fit depend on: a fit of other data or with other settings has another name."""
    of = {"data": problem.fingerprint, "method": method, "settings": dict(settings), "seed": seed}
    of |= {"version": __version__, "precision": jnp.zeros(()).dtype.name}
    shown = f"large{settings['large']:g}_" if "large" in settings else ""
    return shown + hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]


def caption(method: str, settings: Mapping[str, Any]) -> str:
    """The method, and what tells its panel from others."""
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
