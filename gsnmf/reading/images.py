"""Pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

GREY = ("1", "L", "LA", "P", "RGB", "RGBA")  # modes of pictures that become 8-bit grey without loss of range


def read_images(paths: Sequence[Path]) -> NDArray[np.uint8]:
    """Read pictures of one size as 8-bit grey levels, samples × height × width."""
    from PIL import Image

    images: list[NDArray[np.uint8]] = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                if picture.mode not in GREY:
                    raise ValueError(f"expected 8 bits per pixel in {path}; got mode {picture.mode}")
                images.append(np.asarray(picture.convert("L")))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow raises these for broken files
            raise ValueError(f"expected a picture in {path}; got {error}") from None
        if images[-1].shape != images[0].shape:
            height, width = images[0].shape
            raise ValueError(
                f"expected images of one size, {height}x{width} as in {paths[0].name}; "
                f"got {'x'.join(map(str, images[-1].shape))} in {path.name}"
            )
    return np.stack(images)
