"""Pictures of a report: arrays as small PNG files within the page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..drawing.montage import trim
from ..images.preprocessing import Images
from .markup import Html, tag

LONGEST = 112  # pixels of a picture's longer side; larger pictures are scaled down
SMALL = 40  # pictures up to this many pixels are drawn with visible pixels


def as_pictures(columns: Any, pixels: NDArray[np.bool_]) -> NDArray[np.floating]:
    """Return columns as pictures, n × height × width, without borders that are blank in all; NaN outside features.

    Args:
        columns: features × n.
        pixels: height × width, true at the pixels that are features.
    """
    nothing = np.zeros((0, *pixels.shape))
    return trim(np.where(pixels, Images(nothing, pixels).picture(columns), np.nan))


def data_uri(picture: NDArray[np.floating], top: float) -> str:
    """Encode a picture as PNG in negative, white at 0 and black at `top`; transparent where it is NaN.

    Args:
        picture: height × width, nonnegative.
        top: the value from which on pixels are black.
    """
    seen = np.isfinite(picture)
    dark = np.clip(np.where(seen, picture, 0) / (top or 1.0), 0, 1)
    grey, alpha = (Image.fromarray(x.astype(np.float32)) for x in (dark, seen))
    shrink = LONGEST / max(picture.shape)
    if shrink < 1:
        size = max(1, round(shrink * picture.shape[1])), max(1, round(shrink * picture.shape[0]))
        grey, alpha = (layer.resize(size, Image.Resampling.BOX) for layer in (grey, alpha))
    cover = np.asarray(alpha)
    ink = np.divide(np.asarray(grey), cover, out=np.zeros_like(cover), where=cover > 0)  # of a pixel's visible part
    layers = np.round(255 * np.stack([1 - np.clip(ink, 0, 1), cover], axis=-1)).astype(np.uint8)
    image = Image.fromarray(layers[..., 0] if seen.all() else layers)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def symbols(pictures: NDArray[np.floating]) -> Html:
    """Define pictures of components, each on its own scale, under the names c0, c1, ... for use all over the page."""
    height, width = pictures.shape[1:]
    drawn = []
    for k, picture in enumerate(pictures):
        image = tag(
            "image",
            href=data_uri(picture, float(np.nanmax(picture))),
            width=width,
            height=height,
            preserveAspectRatio="none",
        )
        drawn.append(tag("symbol", image, id=f"c{k}", viewBox=f"0 0 {width} {height}", preserveAspectRatio="none"))
    return tag("svg", drawn, width=0, height=0, class_="symbols", aria_hidden="true")


def component_picture(k: int, pictures: NDArray[np.floating], label: str) -> Html:
    """Return a component's picture for use in running text."""
    height, width = pictures.shape[1:]
    use = tag("use", href=f"#c{k}", width=width, height=height)
    kind = f"pic {_crispness(pictures)}"
    return tag("svg", use, class_=kind, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)


def picture_image(picture: NDArray[np.floating], top: float, label: str) -> Html:
    """Return a picture as an image element."""
    return tag("img", src=data_uri(picture, top), alt=label, class_=f"pic {_crispness(picture[None])}")


def _crispness(pictures: NDArray[np.floating]) -> str:
    return "crisp" if max(pictures.shape[1:]) <= SMALL else "smooth"
