"""The content of saved fits: arrays, and a description of everything else that JSON holds. Nothing is ever pickled."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from numpy.typing import NDArray

from .images.preprocessing import pixels_of
from .inference import Fit, Posterior
from .inference.families import Correlated, LogNormal, Point
from .inference.posterior import LabelledPosterior, LabelPosterior, StreamMark, StreamState
from .inference.results import priors_of
from .model import Data, Exponential, Gamma, GroupSparse, HeldOut, Labels, Names, Priors, Relevance
from .model.compressed import Compressed, Places, is_sparse
from .model.indexed import Indexed
from .soundness import check_factors, check_seconds, check_types, misfit, require_belonging

STORED_CLASSES: tuple[Any, ...] = (
    *(Gamma, Exponential, GroupSparse, Relevance, Priors, Posterior, LabelledPosterior, LabelPosterior, Labels),
    *(LogNormal, Correlated, Point, StreamMark, StreamState),
)
FAMILIES: dict[str, Any] = {part.__name__: part for part in STORED_CLASSES}
HELD_OUT = ("feature", "sample", "value")
PLACES = ("feature", "sample")  # of the hidden entries of a sparse X
ROWS = ("indptr", "indices")  # of a sparse X
NARROW_TYPES = (np.uint8, np.uint16, np.uint32, np.float32)  # types that X is stored as: the first that loses nothing


class Saved(NamedTuple):
    """A saved fit, with its priors and the names of its axes.

    data: the data of the fit, if they were saved too.
    pixels: height × width, true at the pixels that are features, if the fit was saved with an image shape.
    seconds: duration of the fit, if it was saved.
    """

    fit: Fit
    priors: Priors
    names: Names
    data: Data | None = None
    pixels: NDArray[np.bool_] | None = None
    seconds: float | None = None


def pack(
    fit: Fit, priors: Priors | None, names: Names | Data, *, image_shape: Any = None, seconds: float | None = None
) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of an .npz with the arrays, and a description of everything else.

    Args:
        fit: as in `save_fit`, and so are the other arguments.
        priors: None for those of the fit.
        names: or the data.
        image_shape: height and width, or pixels.
        seconds: duration of the fit.
    """
    data, names = (names, names.names) if isinstance(names, Data) else (None, names)
    priors = priors_of(fit, priors) if isinstance(fit, Fit) else priors
    for value, kind in ((fit, Fit), (priors, Priors), (names, Names)):
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__} to save; got {type(value).__name__}")
    require_belonging(fit, priors, names, data)
    check_seconds(seconds)
    pixels = None if image_shape is None else pixels_of(image_shape, len(names.feature))
    arrays: dict[str, NDArray[Any]] = {}
    _describe(fit.elbo, "elbo", arrays)
    description = {
        "num_steps": int(fit.num_steps),
        "converged": bool(fit.converged),
        "message": str(fit.message),
        "bound": str(fit.bound),
        "data": fit.data,
        "labels": fit.labels,
        "stream": _describe(fit.stream, "stream", arrays),
        "learned": bool(fit.learned),
        "posterior": _describe(fit.posterior, "posterior", arrays),
        "priors": _describe(priors, "priors", arrays),
        "names": {axis: _describe_names(axis, getattr(names, axis)) for axis in ("feature", "sample", "group")},
        "observed": _describe_data(data, arrays),
        "pixels": _describe(pixels, "pixels", arrays),
        "seconds": None if seconds is None else float(seconds),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue(), description


def unpack(content: bytes, description: dict[str, Any]) -> Saved:
    """Return the fit of `pack`; raise if the two do not describe one.

    Args:
        content: bytes of the .npz.
        description: by this or an older version, which had fewer keys.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    check_types(description)
    given = {field: description[field] for field in ("num_steps", "converged", "message")}
    priors = _build(description["priors"], arrays)
    fit = Fit(
        _build(description["posterior"], arrays),
        arrays["elbo"],
        **given,
        bound=description.get("bound", "augmented"),  # which version 1 does not state
        priors=priors,
        data=description.get("data"),
        learned=description.get("learned", False),
        labels=description.get("labels"),
        stream=_build(description.get("stream"), arrays),
    )
    axes: dict[str, Any] = {axis: np.asarray(n["values"], n["dtype"]) for axis, n in description["names"].items()}
    names = Names(**axes)
    check_factors(fit)
    found = misfit(fit, priors, names)
    if found is not None:
        raise ValueError(found)
    data, pixels = _build_data(description.get("observed"), names, arrays), _build(description.get("pixels"), arrays)
    return Saved(fit, priors, names, data, pixels, description.get("seconds"))


def _describe(value: Any, key: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Describe a NamedTuple by its name and fields, and an array by its key in `arrays`, where it is stored."""
    if value is None:
        return None
    if isinstance(value, tuple):
        name = type(value).__name__
        if FAMILIES.get(name) is not type(value):
            raise ValueError(f"expected one of {', '.join(FAMILIES)} in a fit to save; got {name}")
        return {"family": name} | {
            f: _describe(getattr(value, f), f"{key}.{f}", arrays) for f in FAMILIES[name]._fields
        }
    if isinstance(value, dist.Distribution):
        return _describe_distribution(value, key, arrays)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers in {key} to save; got dtype {array.dtype}")
    arrays[key] = array
    return key


def _describe_distribution(
    distribution: dist.Distribution, key: str, arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Describe a NumPyro distribution by its name and its arguments."""
    if isinstance(distribution, dist.ExpandedDistribution):
        return {
            "expanded": _describe_distribution(distribution.base_dist, key, arrays),
            "batch_shape": list(distribution.batch_shape),
        }
    name = type(distribution).__name__
    arguments = list(distribution.arg_constraints)
    known = (
        getattr(dist, name, None) is type(distribution)
        and arguments
        and all(hasattr(distribution, x) for x in arguments)
    )
    described = {"distribution": name}
    if known:
        described |= {x: _describe(getattr(distribution, x), f"{key}.{x}", arrays) for x in arguments}
    if not known or not _same(distribution, described, arrays):
        raise ValueError(f"expected a NumPyro distribution that its name and arguments describe, to save; got {name}")
    return described


def _same(distribution: dist.Distribution, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
    """Return whether the description restores this distribution, judged by its density at 1: some have more parts."""
    try:
        built = _build(described, arrays)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return False
    ours, theirs = (np.asarray(one.log_prob(1.0)) for one in (distribution, built))
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-5, equal_nan=True)


def _build(description: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Invert `_describe`; a scalar comes back as a scalar."""
    if description is None:
        return None
    if isinstance(description, str):
        return arrays[description][()]
    fields = dict(description)
    if "expanded" in fields:
        return _build(fields["expanded"], arrays).expand(tuple(fields["batch_shape"]))
    if "distribution" in fields:
        distribution = getattr(dist, fields.pop("distribution"))
        if not issubclass(distribution, dist.Distribution):
            raise ValueError(f"{distribution.__name__} is not a distribution")
        return distribution(**{name: _build(value, arrays) for name, value in fields.items()})
    if "unknown" in fields:  # the name of that field up to version 0.1
        fields["unlabelled"] = fields.pop("unknown")
    return FAMILIES[fields.pop("family")](**{name: _build(value, arrays) for name, value in fields.items()})


def _describe_data(data: Data | None, arrays: dict[str, NDArray[Any]]) -> dict[str, Any] | None:
    """Describe X, stored in the smallest type that holds it, and all other fields of `Data` except the names."""
    if data is None:
        return None
    X = data.matrix.stored()
    with np.errstate(invalid="ignore", over="ignore"):  # values that do not fit are found to be unequal
        narrow = (X.astype(kind) for kind in NARROW_TYPES if np.dtype(kind).itemsize < X.dtype.itemsize)
        arrays["data.X"] = next((small for small in narrow if np.array_equal(small, X)), X)
    rows = None
    if is_sparse(data):
        rows = {"shape": list(data.X.shape), "by_sample": data.X.by_sample}
        arrays |= {f"data.X.{name}": np.asarray(getattr(data.X, name)) for name in ROWS}
    held_out = None if data.held_out is None else [f"data.held_out.{name}" for name in HELD_OUT]
    if data.held_out is not None:
        arrays |= {f"data.held_out.{name}": getattr(data.held_out, name) for name in HELD_OUT}
    mask = None if data.mask is None else data.mask if is_sparse(data) else np.asarray(data.mask, bool)
    if isinstance(mask, Places):
        arrays |= {f"data.mask.{name}": np.asarray(getattr(mask, name)) for name in PLACES}
    return {
        "X": "data.X",
        "dtype": X.dtype.str,
        "membership": _describe(getattr(data.membership, "index", data.membership), "data.membership", arrays),
        "rows": rows,
        "mask": [f"data.mask.{name}" for name in PLACES]
        if isinstance(mask, Places)
        else _describe(mask, "data.mask", arrays),
        "held_out": held_out,
        "labels": _describe(data.labels, "data.labels", arrays),
    }


def _build_data(described: dict[str, Any] | None, names: Names, arrays: dict[str, NDArray[Any]]) -> Data | None:
    """Invert `_describe_data`."""
    if described is None:
        return None
    X: Any = arrays[described["X"]].astype(described["dtype"])
    rows, mask = described.get("rows"), described["mask"]
    if rows is not None:
        indptr, indices = (arrays[f"data.X.{name}"] for name in ROWS)
        X = Compressed(indptr, indices, X, tuple(rows["shape"]), rows["by_sample"])
        mask = mask and Places(arrays[mask[0]], arrays[mask[1]], X.shape)
    else:
        mask = _build(mask, arrays)
    if X.shape != (len(names.feature), len(names.sample)):
        raise ValueError(
            f"data of shape {X.shape} for {len(names.feature)} names of features and {len(names.sample)} of samples"
        )
    held_out = described["held_out"] and HeldOut(*(arrays[key] for key in described["held_out"]))
    membership, labels = (_build(described[field], arrays) for field in ("membership", "labels"))
    if np.ndim(membership) == 1:  # stored by index
        membership = Indexed(membership.astype(np.int32), len(names.group))
        if not ((membership.index >= 0) & (membership.index < len(names.group))).all():
            raise ValueError(f"groups of samples from {membership.index.min()} to {membership.index.max()}")
    if membership is not None and np.shape(membership) != (len(names.sample), len(names.group)):
        raise ValueError(f"membership of shape {np.shape(membership)} for {len(names.group)} names of groups")
    return Data(X, membership, names, mask, held_out, labels)


def _describe_names(axis: str, names: NDArray[Any]) -> dict[str, Any]:
    if names.dtype.kind not in "biufU":  # dates, bytes and other objects
        names = np.array([x.decode(errors="backslashreplace") if isinstance(x, bytes) else str(x) for x in names])
    return {"dtype": names.dtype.str, "values": names.tolist()}
