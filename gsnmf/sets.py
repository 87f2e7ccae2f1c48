"""Sets of features: their files, JSON or GMT, the format of gene sets; and sets by the names of an estimator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .model import Data, Priors, seeded_priors
from .model.metadata import Names
from .model.seeds import known_seeds

FORMATS = (".json", ".gmt")


class NamedSets(NamedTuple):
    """Sets of features, and the names of the features and classes that the estimator counts by numbers.

    sets: the names of features by the name of the set; all of them occur.
    features, classes: names by number.
    strength: as in `seeded`.
    """

    sets: dict[Any, list[Any]]
    features: Sequence[Any]
    classes: Sequence[Any]
    strength: float

    def seed(self, priors: Priors, data: Data, rank: int | None) -> Priors:
        """Return the priors with `seeded` in their dictionary.

        Args:
            priors: with a Gamma on T.
            data: with numbers in place of names, of some of the classes perhaps.
            rank: K, where the priors' shapes leave it open.
        """
        groups = [self.classes[int(c)] for c in data.names.group]
        named = data._replace(names=Names(self.features, data.names.sample.tolist(), groups))
        return seeded_priors(priors, named, self.sets, rank=rank, strength=self.strength)


def named_sets(sets: Any, features: Sequence[Any], classes: Sequence[Any], strength: float) -> NamedSets | None:
    """Return sets for the estimator's priors; names that do not occur are listed in a warning. None for None.

    Args:
        sets: the names of features by the name of the set, or None.
        features: names of all features.
        classes: labels of all classes.
        strength: as in `seeded`.
    """
    return None if sets is None else NamedSets(known_seeds(sets, features), features, classes, strength)


def read_sets(path: str | Path) -> dict[str, list[str]]:
    """Read sets of features by name, for `gsnmf.model.seeded`.

    Args:
        path: .json, an object of lists, {"T cell": ["CD3D", "CD3E"]}; or .gmt, a set per line, separated by tabs: its
            name, a description, which is ignored, and the names of its features.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"expected sets of features in a file {' or '.join(FORMATS)}; got {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"expected a file with sets of features; got {path} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"expected sets of features as text in UTF-8; got other bytes in {path}") from None
    sets = _read_json(text, path) if path.suffix.lower() == ".json" else _read_gmt(text, path)
    if not sets:
        raise ValueError(f"expected at least one set of features; got none in {path}")
    return sets


def _read_json(text: str, path: Path) -> dict[str, list[str]]:
    twice: list[str] = []

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        return dict(pairs)

    try:
        sets = json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON in {path}; got {error}") from None
    if twice:
        raise ValueError(f"expected sets with distinct names in {path}; got {twice[0]!r} twice")
    lists = isinstance(sets, dict) and all(isinstance(members, list) for members in sets.values())
    if not lists or not all(isinstance(member, str) for members in sets.values() for member in members):
        raise ValueError(f'expected {path} to be an object of lists of names, {{"T cell": ["CD3D"]}}; got other JSON')
    return {name: list(members) for name, members in sets.items()}


def _read_gmt(text: str, path: Path) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = (field.strip() for field in line.split("\t"))
        members = [member for member in rest[1:] if member]
        if not name or not members:
            raise ValueError(
                f"expected name, description and features by tab in {path}; got line {number}, {line!r:.60}"
            )
        if name in sets:
            raise ValueError(f"expected sets with distinct names in {path}; got {name!r} twice, again in line {number}")
        sets[name] = members
    return sets
