"""Congealing: alignment of images of one kind by minimising the entropy of their stack.

Every image gets its own affine transform, chosen so that the grey levels of one pixel across the images are spread as
little as possible (Learned-Miller, 2006; Huang, Jain and Learned-Miller, 2007). Here the search is by gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates
from numpy.typing import ArrayLike, NDArray
from numpyro.optim import Adam
from scipy.ndimage import gaussian_filter
from tqdm import tqdm

from ..model.types import Array
from .preprocessing import as_stack

WINDOW = 0.5  # standard deviation of the window, in half sizes of the image
MAX_POINTS = 1200  # pixels of an image that are compared while aligning


class Congealed(NamedTuple):
    """Aligned images.

    stack: samples × height × width; pixels from beyond an image's border repeat its border.
    transforms: samples × 2 × 3, as `warp` takes them.
    entropy: entropy of the images compared, before the first step and after each.
    """

    stack: NDArray[np.floating]
    transforms: NDArray[np.floating]
    entropy: NDArray[np.floating]


def affine(parameters: ArrayLike, radius: ArrayLike = 1.0) -> Array:
    r"""Return the matrix (A t): A = rotation(θ) · ((1, k), (0, 1)) · diag(exp(sʸ), exp(sˣ)), t = radius · (tʸ, tˣ).

    Args:
        parameters: ... × 6: θ, k, sʸ, sˣ, tʸ, tˣ; all 0 is the identity.
        radius: unit of translations, in pixels.

    Returns:
        ... × 2 × 3.
    """
    angle, shear, scale_y, scale_x, shift_y, shift_x = jnp.moveaxis(jnp.asarray(parameters), -1, 0)
    cos, sin, y, x = jnp.cos(angle), jnp.sin(angle), jnp.exp(scale_y), jnp.exp(scale_x)
    rows = [
        [cos * y, (cos * shear - sin) * x, radius * shift_y],
        [sin * y, (sin * shear + cos) * x, radius * shift_x],
    ]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def warp(stack: ArrayLike, transforms: ArrayLike) -> NDArray[np.floating]:
    """Transform images affinely, by linear interpolation; borders are repeated outwards.

    new(p) = old(c + A (p − c) + t) at every pixel p = (row, column), with c the image's centre.

    Args:
        stack: samples × height × width.
        transforms: samples × 2 × 3, each (A t).
    """
    images, matrices = as_stack(stack), np.asarray(transforms, float)
    if matrices.shape != (len(images), 2, 3):
        raise ValueError(f"expected transforms of shape {(len(images), 2, 3)}; got {matrices.shape}")
    points = jnp.asarray(_points(images.shape[1:], 1).reshape(-1, 2))
    return np.asarray(_look_all(jnp.asarray(images), jnp.asarray(matrices), points)).reshape(images.shape)


def stack_entropy(stack: ArrayLike, *, bins: int = 8, span: tuple[float, float] | None = None) -> float:
    """Return the mean entropy of a pixel's grey level across a stack of images, from 0 to log `bins`.

    Each grey level counts for the two nearest of `bins` levels, more for the nearer one; the entropy, in nats, is
    averaged over pixels with a Gaussian window, so that the centre counts most.

    Args:
        stack: samples × height × width.
        bins: number of grey levels distinguished.
        span: the darkest and brightest grey level; None for the extremes of the stack.
    """
    _at_least("bins", bins, 2)
    images = as_stack(stack)
    points = _points(images.shape[1:], 1)
    return float(_entropy(jnp.asarray(_unit(images, span).reshape(len(images), -1)), _window(points), bins))


def congeal(
    stack: ArrayLike,
    *,
    steps: int = 100,
    rate: float = 0.02,
    blur: Sequence[float] = (0.12, 0.06, 0.03),
    contrast: float = 0.15,
    bins: int = 8,
    stiffness: float = 2.0,
    mask: ArrayLike | None = None,
    progress: bool | None = None,
) -> Congealed:
    """Align images by lowering the entropy of their stack, from coarse to fine.

    Adam minimises entropy + stiffness · mean(parameters²). The mean of the parameters over images is always subtracted,
    since moving or shrinking all images together does not align them. Images are compared by their local contrast,
    (x − mean) / deviation around each pixel: faces differ more in complexion and light than in the position of the
    eyes. Nothing is random. The step with the lowest entropy is returned, so that the entropy of the compared images
    never rises. The search is local, and single images may settle in a wrong place: look at the result.

    Args:
        stack: samples × height × width, at least two images.
        steps: total number of steps, divided equally among blurs.
        rate: initial step size of Adam, falling to 0; in radians, logarithms of scale, and half sizes of the image.
        blur: standard deviations of the blur under which images are compared, one after the other, in half sizes.
        contrast: standard deviation of the Gaussian that defines local contrast, in half sizes; 0 compares grey levels.
        bins: number of grey levels distinguished, as in `stack_entropy`.
        stiffness: strength of the penalty that keeps transforms near the identity.
        mask: height × width, true where pixels are compared; None for all pixels.
        progress: whether to show a progress bar; None shows it in a terminal.
    """
    images = as_stack(stack)
    for name, value, least in (("images", len(images), 2), ("steps", steps, 1), ("bins", bins, 2)):
        _at_least(name, value, least)
    if not isinstance(blur, (tuple, list)) or not blur:
        raise ValueError(f"expected blur to be a sequence of numbers; got {blur!r}")
    if min(*blur, contrast, rate, stiffness) < 0:
        raise ValueError(
            f"expected blur, contrast, rate and stiffness not below 0; got {blur=}, {contrast=}, {rate=}, {stiffness=}"
        )
    shape = images.shape[1:]
    radius = max(shape) / 2
    points = _points(shape, math.ceil(math.sqrt(shape[0] * shape[1] / MAX_POINTS)))
    weights = _window(points, None if mask is None else _as_mask(mask, shape))
    sharp = _unit(_local_contrast(_unit(images, None), contrast * radius), None)
    settings = _Settings(radius, rate, steps, stiffness)
    smooth = seen = jnp.asarray(sharp)
    state = Adam(rate).init(jnp.zeros((len(images), 6), seen.dtype))
    places = jnp.asarray(points.reshape(-1, 2))
    best, trace, stage = state, list[float](), -1
    for number in tqdm(range(steps + 1), unit="step", disable=None if progress is None else not progress):
        if (now := min(number * len(blur) // steps, len(blur) - 1)) > stage:
            stage, width = now, blur[now] * radius
            smooth = jnp.asarray(gaussian_filter(sharp, (0.0, width, width), mode="nearest"))
        after, entropy = _step(state, smooth, seen, places, weights, settings, bins)
        if float(entropy) < min(trace, default=math.inf):
            best = state
        trace.append(float(entropy))
        state = after
    transforms = np.asarray(affine(_centred(Adam(rate).get_params(best)), radius))
    return Congealed(warp(images, transforms), transforms, np.asarray(trace))


class _Settings(NamedTuple):
    """Numbers passed to compiled code as arguments, so that changing them needs no recompilation."""

    radius: float
    rate: float
    steps: int
    stiffness: float


@partial(jax.jit, static_argnames="bins")
def _step(
    state: Any, smooth: Array, sharp: Array, points: Array, weights: Array, settings: _Settings, bins: int
) -> tuple[Any, Array]:
    """Make one step of Adam on the blurred images; return it with the entropy of the sharp images before it."""
    optimizer = Adam(lambda i: settings.rate * (1 - i / settings.steps))

    def disorder(parameters: Array, images: Array) -> Array:
        transforms = affine(_centred(parameters), settings.radius)
        return _entropy(jax.vmap(_look, (0, 0, None))(images, transforms, points), weights, bins)

    def objective(parameters: Array) -> Array:
        return disorder(parameters, smooth) + settings.stiffness * jnp.mean(_centred(parameters) ** 2)

    parameters = optimizer.get_params(state)
    return optimizer.update(jax.grad(objective)(parameters), state), disorder(parameters, sharp)


def _centred(parameters: Array) -> Array:
    """Subtract the mean of the parameters over images."""
    return parameters - parameters.mean(0, keepdims=True)


def _look(image: Array, transform: Array, points: Array) -> Array:
    """Interpolate an image at c + A (p − c) + t, for points p as rows."""
    centre = (jnp.asarray(image.shape, transform.dtype) - 1) / 2
    source = (points - centre[None, :]) @ transform[:, :2].T + (centre + transform[:, 2])[None, :]
    return map_coordinates(image, [source[:, 0], source[:, 1]], order=1, mode="nearest")


@jax.jit
def _look_all(images: Array, transforms: Array, points: Array) -> Array:
    """Interpolate all images, images × points, few images at a time."""
    return jax.lax.map(lambda pair: _look(pair[0], pair[1], points), (images, transforms), batch_size=32)


def _local_contrast(images: NDArray[np.floating], width: float) -> NDArray[np.floating]:
    """Return (x − mean) / (deviation + 0.03) for grey levels in 0..1, within ±2; 0.03 damps noise on flat areas."""
    if width == 0:
        return images
    local = partial(gaussian_filter, sigma=(0.0, width, width), mode="nearest")
    offset = images - local(images)
    contrast: NDArray[np.floating] = np.clip(offset / (np.sqrt(local(offset**2)) + 0.03), -2, 2)
    return contrast


def _entropy(unit: Array, weights: Array, bins: int) -> Array:
    """Return Σ_p w_p H_p for grey levels in 0..1, images × pixels."""
    total = jnp.zeros_like(weights)
    for level in range(bins):  # one at a time: bins × images × pixels would fill the memory
        share = jnp.maximum(0, 1 - jnp.abs(unit * (bins - 1) - level)).mean(0)
        total -= share * jnp.log(jnp.maximum(share, 1e-9))  # 0 log 0 is 0, with a finite gradient
    return jnp.sum(weights * total)


def _points(shape: tuple[int, ...], stride: int) -> NDArray[np.float64]:
    """Return every stride-th pixel, rows × columns × 2, centred between the borders."""
    rows, columns = (np.arange((n - 1) % stride // 2, n, stride, dtype=float) for n in shape)
    return np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)


def _window(points: NDArray[np.float64], mask: NDArray[np.bool_] | None = None) -> Array:
    """Return weights of points (rows × columns × 2) that add up to 1: a Gaussian of their distance to the centre."""
    middle = (points[0, 0] + points[-1, -1]) / 2
    half = np.maximum(middle, 0.5)
    weights = np.exp(-(((points - middle) / half / WINDOW) ** 2).sum(-1) / 2)
    if mask is not None:
        weights = weights * mask[tuple(np.moveaxis(points, -1, 0).astype(int))]
        if not weights.any():
            raise ValueError(
                f"expected a mask that is true at some of the pixels compared; got {mask.sum()} other pixels"
            )
    return jnp.asarray((weights / weights.sum()).ravel())


def _unit(images: NDArray[np.floating], span: tuple[float, float] | None) -> NDArray[np.floating]:
    """Scale grey levels to 0..1."""
    low, high = (images.min(), images.max()) if span is None else span
    if images.min() < low or images.max() > high:
        raise ValueError(f"expected grey levels from {low} to {high}; got {images.min()} to {images.max()}")
    return (images - low) / ((high - low) or 1.0)


def _as_mask(mask: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    inside = np.asarray(mask)
    if inside.shape != shape or inside.dtype != bool or not inside.any():
        raise ValueError(
            f"expected a mask of booleans of shape {shape}, true somewhere; "
            f"got {inside.dtype} of shape {inside.shape}, true at {np.count_nonzero(inside)} pixels"
        )
    return inside


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"expected {name} to be at least {least}; got {value}")
