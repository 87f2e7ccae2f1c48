"""Chains as NumPyro's `MCMC` holds them, with their priors, and the loop of Gibbs sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC
from tqdm.auto import tqdm

from ..model.matrix import is_traced
from ..model.priors import Priors
from ..model.problem import Problem
from ..model.types import Array
from .gibbs import Gibbs, GibbsState, Sites

Keep: TypeAlias = Sequence[str] | Mapping[str, Callable[[Sites], Any]]
PARTS = 20  # steps of a progress bar


class Chains(MCMC):
    """NumPyro's `MCMC` with the priors that its chains were run with, and the settings of the sampler."""

    priors: Priors | None = None
    settings: Mapping[str, Any] = MappingProxyType({})


class GibbsChains(Chains):
    """Chains of Gibbs sampling, whose loop is compiled once for all data of one shape.

    NumPyro compiles its own loop again in every call, with X as a constant in it. It still runs chains in parallel, and
    chains with fields or exclusions that are asked for in `run`.
    """

    def _single_chain_mcmc(
        self, init: tuple, args: tuple, kwargs: dict, collect_fields: tuple, remove_sites: tuple
    ) -> tuple[dict[str, Any], GibbsState]:
        key, state, z = init
        kernel = cast(Gibbs, self.sampler)
        if is_traced(init, args) or collect_fields != (kernel.sample_field,) or remove_sites:
            return super()._single_chain_mcmc(init, args, kwargs, collect_fields, remove_sites)  # type: ignore[no-any-return, no-untyped-call]  # NumPyro's
        problem = kernel.problem(*args, **kwargs)
        state = kernel.init(key, self.num_warmup, z, (problem,), {}) if state is None else state
        (lower, upper, size), thinning = self._bounds(), self.thinning
        loop = Loop(kernel.scale_move, self.postprocess_fn, self.num_chains > 1 and self.chain_method == "vectorized")
        one = jax.eval_shape(loop.stored, state.z)
        draws = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), one)
        with tqdm(total=upper, disable=not self.progress_bar, desc="Gibbs", unit="sweep") as bar:
            step = max(1, -(-upper // PARTS)) if self.progress_bar else max(1, upper)
            for begin in range(0, upper, step):
                end, first = min(upper, begin + step), lower + (upper - lower) % thinning
                state, draws = _sweeps(loop, problem, state, draws, begin, end, first, thinning)
                bar.update(end - begin)
        return {kernel.sample_field: draws}, state

    def _bounds(self) -> tuple[int, int, int]:
        """Return the first sweep that is stored, the number of sweeps, and the number of draws."""
        lower, upper, size = (self._collection_params[name] for name in ("lower", "upper", "collection_size"))
        return lower, upper, (upper - lower if size is None else size) // self.thinning


class Loop(NamedTuple):
    """Options of the loop, which are static.

    scale_move: whether every sweep ends with the scale move.
    keep: a function of the sites of a draw to what is stored of it; None to store all of it.
    several: whether the state holds several chains.
    """

    scale_move: bool
    keep: Callable[[Sites], Sites] | None
    several: bool

    def stored(self, z: Sites) -> Sites:
        """Return what is stored of the sites."""
        if self.keep is None:
            return z
        return jax.vmap(self.keep)(z) if self.several else self.keep(z)


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def _sweeps(
    loop: Loop,
    problem: Problem,
    state: GibbsState,
    draws: Sites,
    begin: Array,
    end: Array,
    first: Array,
    thinning: Array,
) -> tuple[GibbsState, Sites]:
    """Make sweeps `begin` to `end`, and store the last of every `thinning` of them, from the first that counts."""
    kernel = Gibbs(loop.scale_move)

    def one(i: Array, carry: tuple[GibbsState, Sites]) -> tuple[GibbsState, Sites]:
        state, draws = carry
        state = kernel.sample(state, (problem,), {})
        place = (i - first) // thinning

        def put(all_: Array, x: Array) -> Array:
            return all_.at[jnp.where(place < 0, len(all_), place)].set(x, mode="drop")

        return state, jax.tree.map(put, draws, loop.stored(state.z))

    found: tuple[GibbsState, Sites] = jax.lax.fori_loop(begin, end, one, (state, draws))
    return found


def keeper(keep: Keep | None, z: Sites) -> Callable[[Sites], Sites] | None:
    """Return what maps the sites of a draw to what is stored of it; None to store all of it.

    Args:
        keep: names of sites, or functions of the sites by name.
        z: the sites of one draw.

    >>> z = {"T": jnp.ones((2, 3)), "V": jnp.ones((3, 4))}
    >>> keeper({"total": lambda z: z["T"].sum()}, z)(z)["total"]
    Array(6., dtype=float32)
    """
    if keep is None:
        return None
    if isinstance(keep, Mapping) and keep and all(map(callable, keep.values())):
        for name, function in keep.items():
            _require_array(name, function, z)
        return Functions(tuple(keep.items()))
    known = not isinstance(keep, (str, Mapping)) and np.ndim(keep) == 1 and set(keep) <= set(z)
    if not known or not len(keep):
        raise ValueError(f"expected keep to have some of the sites {', '.join(z)}, or functions by name; got {keep!r}")
    return Some(tuple(keep))


def _require_array(name: str, function: Callable[[Sites], Any], z: Sites) -> None:
    """Raise unless the function returns an array for the sites of a draw."""
    said = f"expected keep[{name!r}] to return an array for the sites {', '.join(z)} of a draw"
    try:
        found = jax.eval_shape(function, z)
    except Exception as error:  # (whatever a user's function raises)
        raise ValueError(f"{said}; got {type(error).__name__}: {error}") from error
    if not isinstance(found, jax.ShapeDtypeStruct):
        raise ValueError(f"{said}; got {type(found).__name__}")


@dataclass(frozen=True)
class Functions:
    """Functions of the sites of a draw, by name. Equal ones share a compiled loop."""

    functions: tuple[tuple[str, Callable[[Sites], Any]], ...]

    def __call__(self, z: Sites) -> Sites:
        """Return their values."""
        return {name: function(z) for name, function in self.functions}


@dataclass(frozen=True)
class Some:
    """Some of the sites of a draw, by name."""

    names: tuple[str, ...]

    def __call__(self, z: Sites) -> Sites:
        """Return their values."""
        return {name: z[name] for name in self.names}
