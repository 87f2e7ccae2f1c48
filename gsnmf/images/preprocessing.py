"""Preprocessing of images as in the paper's section 3.1: small steps, each from `Images` to `Images`.

>>> import numpy as np
>>> faces = as_images(np.random.default_rng(0).integers(0, 256, (5, 40, 32)))
>>> apply(faces, Resize(0.5), EllipseMask(0.8, 0.8), Equalise()).matrix.shape
(160, 5)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, reduce
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..datasets import FACES, Dataset, load
from ..model.checks import whole
from ..reading import PathLike


class Images(NamedTuple):
    """Images of one size, with a mask of the pixels that are features; build it with `as_images`.

    stack: samples × height × width.
    mask: height × width, true where a pixel counts.
    """

    stack: NDArray[np.floating]
    mask: NDArray[np.bool_]

    @property
    def matrix(self) -> NDArray[np.floating]:
        """The pixels inside the mask, row by row: features × samples."""
        return self.stack[:, self.mask].T

    def picture(self, columns: ArrayLike) -> NDArray[np.floating]:
        """Return features as pictures, with NaN outside the mask.

        Args:
            columns: one column (features) or several (features × n), for example a dictionary.

        Returns:
            height × width, or n × height × width.
        """
        values = np.asarray(columns, float)
        if values.ndim not in (1, 2) or len(values) != self.mask.sum():
            raise ValueError(f"expected {self.mask.sum()} features, in one column or several; got shape {values.shape}")
        pictures = np.full((*values.shape[1:], *self.mask.shape), np.nan)
        pictures[..., self.mask] = values.T
        return pictures


Step: TypeAlias = Callable[[Images], Images]


def as_images(images: ArrayLike | Dataset) -> Images:
    """Build `Images` in which all pixels are features.

    Args:
        images: samples × height × width, or a dataset of images.
    """
    stack = as_stack(images.images if isinstance(images, Dataset) else images)
    return Images(stack, np.ones(stack.shape[1:], bool))


def pixels_of(image_shape: Any, num_features: int) -> NDArray[np.bool_]:
    """Return whether each pixel of an image is a feature, height × width of booleans.

    Args:
        image_shape: height and width, if all pixels are features; or height × width of booleans, as `Images.mask`.
        num_features: number of features.

    >>> pixels_of((2, 3), 6).shape
    (2, 3)
    """
    given = np.asarray(image_shape)
    shape = given.tolist() if given.shape == (2,) and given.dtype.kind in "iu" else [0]
    pixels = given if given.ndim == 2 and given.dtype == bool else np.ones(shape if min(shape) > 0 else [0, 0], bool)
    if not pixels.size:
        raise ValueError(f"expected a height and a width, or height × width of booleans; got {image_shape!r}")
    if pixels.sum() != num_features:
        said = "×".join(map(str, pixels.shape))
        raise ValueError(f"expected an image shape of {num_features} pixels; got {said} with {pixels.sum()}")
    return pixels


def as_stack(stack: ArrayLike) -> NDArray[np.floating]:
    """Return images as floating-point numbers, samples × height × width; raise for any other input."""
    images = np.asarray(stack)
    if images.ndim != 3 or 0 in images.shape or images.dtype.kind not in "biuf":
        raise ValueError(f"expected images × height × width; got {images.dtype} of shape {images.shape}")
    if not np.isfinite(images).all():
        raise ValueError(f"expected finite grey levels; got {images[~np.isfinite(images)][0]}")
    return images.astype(float)


def compose(*steps: Step) -> Step:
    """Compose several steps into one, applied in the given order."""
    return partial(_in_turn, steps)


def apply(images: Images, *steps: Step) -> Images:
    """Apply steps to images, in the given order."""
    return _in_turn(steps, images)


@dataclass(frozen=True)
class Resize:
    """Resizing by a factor, rounded up as in MATLAB's imresize: half of 231 × 195 is 116 × 98.

    Linear interpolation, after a Gaussian blur if images shrink. A pixel is a feature if the nearest one was.
    """

    factor: float

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        if not isinstance(self.factor, (int, float)) or not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"expected a factor above 0; got {self.factor!r}")
        resize = _skimage("transform").resize
        # Rounded first: 0.1 · 30 is 3, not the 4 that ⌈3.0000000000000004⌉ would give.
        shape = [math.ceil(round(self.factor * n, 9)) for n in images.mask.shape]
        shrinks = self.factor < 1
        stack = [resize(image, shape, order=1, anti_aliasing=shrinks, preserve_range=True) for image in images.stack]
        return Images(np.stack(stack), resize(images.mask, shape, order=0, anti_aliasing=False))


@dataclass(frozen=True, eq=False)  # comparing arrays does not give a single boolean
class Mask:
    """A mask: pixels stay features where `inside` (height × width, of booleans) is true."""

    inside: NDArray[np.bool_]

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        inside = np.asarray(self.inside)
        if inside.shape != images.mask.shape or inside.dtype != bool:
            raise ValueError(
                f"expected a mask of booleans of shape {images.mask.shape}; got {inside.dtype} of shape {inside.shape}"
            )
        return images._replace(mask=_not_empty(images.mask & inside))


@dataclass(frozen=True)
class EllipseMask:
    """A centred elliptical mask: `height` and `width` are its diameters, as proportions of the image's.

    With both 1 it is the largest ellipse that fits; a pixel is inside if its centre is.
    """

    height: float = 1.0
    width: float = 1.0

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        if not all(isinstance(d, (int, float)) and d > 0 for d in (self.height, self.width)):
            raise ValueError(f"expected diameters above 0; got {self.height!r} and {self.width!r}")
        y, x = ((2 * np.arange(n) + 1 - n) / n for n in images.mask.shape)
        inside = (y[:, None] / self.height) ** 2 + (x[None, :] / self.width) ** 2 <= 1
        return Mask(inside)(images)


@dataclass(frozen=True)
class Equalise:
    """Histogram equalisation of every image inside the mask, to whole numbers from 0 to 255.

    New grey level: 255 × the proportion of pixels that are as dark or darker, by a histogram of `levels` bins. Pixels
    outside the mask become 0.
    """

    levels: int = 256

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        whole("levels", self.levels, 2)
        equalise = partial(_skimage("exposure").equalize_hist, nbins=self.levels, mask=images.mask)
        stack = np.stack([np.round(255 * equalise(image)) for image in images.stack])
        return images._replace(stack=np.where(images.mask[None], stack, 0.0))


@dataclass(frozen=True)
class Negative:
    """The negative, 255 − x, for grey levels from 0 to 255. Pixels outside the mask become 0."""

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        matrix = images.matrix
        if matrix.min() < 0 or matrix.max() > 255:
            raise ValueError(f"expected grey levels from 0 to 255; got {matrix.min():g} to {matrix.max():g}")
        return images._replace(stack=np.where(images.mask[None], 255 - images.stack, 0.0))


@dataclass(frozen=True)
class Congeal:
    """Alignment of images by `gsnmf.images.congealing.congeal`, which documents the parameters.

    Only pixels inside the mask are compared; the mask stays where it is.
    """

    steps: int = 100
    rate: float = 0.02
    blur: tuple[float, ...] = (0.12, 0.06, 0.03)
    contrast: float = 0.15
    bins: int = 8
    stiffness: float = 2.0

    def __call__(self, images: Images) -> Images:
        """Apply the step."""
        from .congealing import congeal

        return images._replace(stack=congeal(images.stack, mask=images.mask, **asdict(self)).stack)


FACE = EllipseMask(0.7085, 0.7085)  # half as many pixels as the largest ellipse: 4484 of 116 × 98
PIPELINES: dict[str, tuple[Step, ...]] = {
    "digits": (),
    "orl": (Resize(0.5), Equalise()),
    "yale": (Resize(0.5), FACE, Equalise()),
    "yale-condition": (Resize(0.5), FACE, Equalise()),
    "jaffe": (Congeal(), Resize(0.75), FACE, Equalise()),
}


class Prepared(NamedTuple):
    """A dataset ready for `gsnmf.model.as_data(X, labels)`.

    X: features × samples.
    labels: one per sample.
    image: the images that X is from, whose `picture` draws columns; None if samples are not images.
    credit: the owner of the data, and the terms of use.
    """

    X: NDArray[Any]
    labels: NDArray[Any]
    image: Images | None
    credit: str


def prepared(name: str, path: PathLike | None = None) -> Prepared:
    """Load a dataset by its name, preprocessed as in the paper (3.1): `PIPELINES[name]`; leukemia as it is.

    The paper shows masks for Yale and JAFFE and does not describe them: the ellipse is ours.

    Args:
        name: digits, orl, leukemia, yale, yale-condition or jaffe.
        path: your own copy, for the last three.
    """
    dataset = load(name, path)
    if dataset.image_shape is None:
        return Prepared(dataset.data.T, dataset.labels, None, dataset.credit)
    images = apply(as_images(dataset), *PIPELINES[name])
    return Prepared(images.matrix, dataset.labels, images, dataset.credit)


def _in_turn(steps: tuple[Step, ...], images: Images) -> Images:
    if not isinstance(images, Images):
        raise ValueError(f"expected Images, as made by as_images; got {type(images).__name__}")
    for step in steps:
        if isinstance(step, type) or not callable(step):
            raise ValueError(f"expected steps, for example Resize(0.5), one after the other; got {step!r}")
    return reduce(lambda before, step: step(before), steps, images)


def _not_empty(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if not mask.any():
        raise ValueError("expected a mask that leaves at least one pixel; got 0 pixels")
    return mask


def _skimage(module: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"skimage.{module}")
    except ImportError as error:
        raise ImportError(f"expected scikit-image to prepare images; got none ({error}). Run: {FACES}") from None
