"""Default priors: the one place that builds them for the estimator, the commands, `choose_rank` and the demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from .data import Data
from .priors import Gamma, GroupSparse, Priors
from .silence import warn
from .structures import common_and_individual, structured
from .units import LARGE, SMALL, matching, relative_rates

PRIOR = "relative"  # docs/priors.md has the table that decided between the two
SHAPES = {"relative": (SMALL, LARGE), "paper": (32.0, 256.0)}  # fractions of a sample's counts; shapes of λ
PER_GROUP = 3  # components of each group
RANK = 10  # components of a model without groups
SCALE = 1e6  # bˡ
A_T, B_T = 0.6, 20.0  # the paper's dictionary


def num_components(num_groups: int, *, per_group: int = PER_GROUP, rank: int | None = None, common: int = 0) -> int:
    """Return the number of components of `default_priors`, without building them.

    Args:
        num_groups: C; 0 without groups.
        per_group: components of each group.
        rank: components in all; overrides the others.
        common: components that all groups share.

    >>> num_components(15, common=2), num_components(0)
    (47, 10)
    """
    if rank is not None:
        return rank
    return per_group * num_groups + common if num_groups else RANK


def said_of_bare_groups(num_groups: int, *, rank: int | None = None, common: int = 0) -> str | None:
    """Return that so few components leave groups without one of their own; None if they do not.

    Args:
        num_groups: C.
        rank: components in all, as in `default_priors`.
        common: components that all groups share.

    >>> said_of_bare_groups(4, rank=3)
    '3 components for 4 groups: 1 group has no component of its own.'
    """
    if rank is None or rank - common >= num_groups:
        return None
    left, components = num_groups - (rank - common), "1 component" if rank == 1 else f"{rank} components"
    shared = f" ({common} common)" if common else ""
    bare = "1 group has no component of its own" if left == 1 else f"{left} groups have no component of their own"
    return f"{components}{shared} for {num_groups} groups: {bare}."


def said_of_shrinkage(prior: str = PRIOR, small: float | None = None, large: float | None = None) -> str | None:
    """Return that small and large are swapped, or that shapes may have been passed for fractions; None if neither.

    Args:
        prior: as in `default_priors`.
        small: as in `default_priors`.
        large: as in `default_priors`.

    >>> said_of_shrinkage(small=0.02)
    'small=0.02 is above large=0.01 (the default): components are shrunk most in their own groups.'
    """
    given, usual = (small, large), SHAPES[prior]
    values = [default if value is None else value for value, default in zip(given, usual, strict=True)]
    named = [
        f"{name}={value:g}{' (the default)' if own is None else ''}"
        for name, value, own in zip(("small", "large"), values, given, strict=True)
    ]
    found = []
    if values[0] > values[1]:
        found.append(f"{' is above '.join(named)}: components are shrunk most in their own groups.")
    if prior == "relative" and max(values) >= 1:
        meaning = "fractions of a sample's counts, which are below 1 as a rule; prior='paper' takes shapes of λ"
        found.append(f"{' and '.join(named)} are read as {meaning}.")
    return " ".join(found) or None


def said_of_choices(num_groups: int, larger: str, *, rank: int | None, common: int = 0, **shrinkage: Any) -> list[str]:
    """Return what is odd about these options of `default_priors`, one sentence or two each.

    Args:
        num_groups: C; without groups none of these options has an effect.
        larger: the options that would give each group a component of its own, as the user knows them.
        rank: as in `said_of_bare_groups`.
        common: as in `said_of_bare_groups`.
        shrinkage: as in `said_of_shrinkage`.
    """
    if num_groups == 0:
        return []
    bare = said_of_bare_groups(num_groups, rank=rank, common=common)
    found = None if bare is None else f"{bare} A larger {larger}, gives one to each."
    return [said for said in (found, said_of_shrinkage(**shrinkage)) if said is not None]


def default_priors(
    data: Data,
    *,
    per_group: int | Sequence[int] = PER_GROUP,
    rank: int | None = None,
    common: int = 0,
    structure: ArrayLike | None = None,
    prior: str = PRIOR,
    small: float | None = None,
    large: float | None = None,
    scale: float = SCALE,
    a_t: float = A_T,
    b_t: float = B_T,
) -> Priors:
    """Build the default priors for these data: group sparse with groups, `matching` without.

    With groups, λ_ic has the paper's prior (11), Gamma(aˡ_ic, bˡ): aˡ is smaller where component i is bound to group c.
    Without groups, V is exponential with the scale that makes TV as large as X a priori. T ~ Gamma(aᵗ, bᵗ) in both.

    Args:
        data: as made by `as_data`.
        per_group: components of each group; one number, or one for each group.
        rank: components in all, `common` ones included; overrides per_group. Without groups, None means 10: pass the
            same number to `cavi.run`, as the shapes of these priors leave it open.
        common: components that all groups share, in addition to per_group of each.
        structure: in place of these three, components × groups, true where a component may serve a group.
        prior: "relative", where small and large are fractions of a sample's counts (`relative_rates`), so that the
            prior follows the unit of X and the sizes of groups; or "paper", where they are the shapes aˡ themselves.
        small: aˡ where a component is bound; None means 0.001 ("relative") or 32 ("paper").
        large: aˡ elsewhere; None means 0.01 or 256.
        scale: bˡ.
        a_t: shape aᵗ of the dictionary's prior.
        b_t: its scale bᵗ.

    >>> from gsnmf.model import as_data
    >>> data = as_data([[40.0, 0.0], [60.0, 100.0]], ["a", "b"])
    >>> default_priors(data, per_group=1).coefficients.rate.a.tolist()
    [[0.1, 1.0], [1.0, 0.1]]
    >>> default_priors(data, per_group=1, prior="paper").coefficients.rate.a.tolist()
    [[32.0, 256.0], [256.0, 32.0]]
    >>> default_priors(as_data([[3.0, 5.0]]), rank=2, a_t=0.5, b_t=2.0).coefficients
    Gamma(a=1.0, b=2.0)
    """
    if not isinstance(data, Data):
        raise ValueError(f"expected Data, as made by as_data; got {type(data).__name__}")
    if not isinstance(prior, str) or prior not in SHAPES:
        raise ValueError(f"expected prior to be one of {', '.join(map(repr, SHAPES))}; got {prior!r}")
    dictionary = Gamma(a_t, b_t)
    if data.num_groups == 0:
        return Priors(dictionary, matching(data, dictionary, RANK if rank is None else rank))
    given = small, large
    small, large = (
        default if value is None else value for value, default in zip((small, large), SHAPES[prior], strict=True)
    )
    if structure is None:
        structure = common_and_individual(common, per_group if rank is None else None, data.num_groups, rank=rank)
    elif rank is not None:
        raise ValueError(f"expected rank or structure; got rank={rank} and a structure")
    if prior == "relative":
        rates = relative_rates(data, None, small, large, scale, structure=structure)
    else:
        rates = structured(structure, small, large, scale)
    if found := said_of_shrinkage(prior, *given):
        warn(found, UserWarning, stacklevel=2)
    return Priors(dictionary, GroupSparse(rates))
