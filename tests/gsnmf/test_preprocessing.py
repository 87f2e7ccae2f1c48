"""Each step does what the paper's section 3.1 asks of it, and pixels stay where they belong."""

from __future__ import annotations

import builtins
import inspect
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gsnmf.datasets import digits, leukemia, orl
from gsnmf.images.congealing import congeal
from gsnmf.images.preprocessing import (
    PIPELINES,
    Congeal,
    EllipseMask,
    Equalise,
    Images,
    Mask,
    Negative,
    Resize,
    apply,
    as_images,
    compose,
    prepared,
)
from gsnmf.model import as_data


@pytest.fixture(scope="module")
def faces() -> Images:
    return as_images(orl().images[:12])


@pytest.fixture
def blank() -> Images:
    return as_images(np.zeros((1, 116, 98)))


def test_columns_of_the_matrix_are_samples_and_pictures_give_them_back(faces: Images) -> None:
    everything = faces.matrix
    assert everything.shape == (112 * 92, 12)
    np.testing.assert_array_equal(everything[:, 3], faces.stack[3].ravel())
    inside = EllipseMask(0.7, 0.5)(faces)
    picture = inside.picture(inside.matrix[:, 3])
    np.testing.assert_array_equal(np.isnan(picture), ~inside.mask)
    np.testing.assert_array_equal(picture[inside.mask], faces.stack[3][inside.mask])
    pictures = inside.picture(inside.matrix)
    assert pictures.shape == (12, 112, 92)
    np.testing.assert_array_equal(pictures[3], picture)
    assert as_data(inside.matrix, np.arange(12)).num_features == inside.mask.sum()


@pytest.mark.parametrize(
    ("shape", "factor", "expected"),
    [((231, 195), 0.5, (116, 98)), ((112, 92), 0.5, (56, 46)), ((256, 256), 0.75, (192, 192)), ((30, 10), 0.1, (3, 1))],
)
def test_sizes_are_rounded_up(shape: tuple[int, int], factor: float, expected: tuple[int, int]) -> None:
    assert Resize(factor)(as_images(np.zeros((1, *shape)))).stack.shape == (1, *expected)


def test_resizing_keeps_grey_levels_and_the_mask() -> None:
    ramp = np.repeat(np.linspace(10, 200, 40)[None, :, None], 20, 2)
    half = Resize(0.5)(EllipseMask()(as_images(ramp)))
    np.testing.assert_allclose(half.stack[0, 3:-3, 5], ramp[0].reshape(20, 2, 20).mean((1, 2))[3:-3], atol=1e-6)
    assert half.mask.dtype == bool
    np.testing.assert_allclose(half.mask.mean(), np.pi / 4, atol=0.02)


def test_resizing_does_not_alias() -> None:
    stripes = np.zeros((1, 40, 40))
    stripes[:, ::2] = 255
    assert np.ptp(Resize(0.5)(as_images(stripes)).stack[0, 3:-3]) < 5
    assert np.ptp(Resize(0.4)(as_images(stripes)).stack[0, 3:-3]) < 25


@pytest.mark.parametrize(("height", "width"), [(1.0, 1.0), (0.7085, 0.7085), (0.9, 0.4)])
def test_the_ellipse_has_its_area_and_is_symmetric(blank: Images, height: float, width: float) -> None:
    mask = EllipseMask(height, width)(blank).mask
    np.testing.assert_allclose(mask.mean(), np.pi / 4 * height * width, rtol=0.01)
    np.testing.assert_array_equal(mask, mask[::-1, ::-1])
    np.testing.assert_array_equal(mask, mask[::-1])
    assert abs(mask.any(1).sum() - height * 116) <= 2
    assert abs(mask.any(0).sum() - width * 98) <= 2


def test_masks_add_up(blank: Images) -> None:
    left = np.zeros((116, 98), bool)
    left[:, :49] = True
    both = apply(blank, EllipseMask(), Mask(left)).mask
    np.testing.assert_array_equal(both, EllipseMask()(blank).mask & left)


def test_equalised_grey_levels_are_whole_and_even_inside_the_mask(faces: Images) -> None:
    equal = apply(faces, Resize(0.5), EllipseMask(0.8, 0.8), Equalise())
    np.testing.assert_array_equal(equal.stack, equal.stack.round())
    assert (equal.stack[:, ~equal.mask] == 0).all()
    even = np.linspace(0.1, 0.9, 9)
    for column in equal.matrix.T:
        assert column.min() >= 0
        assert column.max() == 255
        np.testing.assert_allclose(np.quantile(column, even), 255 * even, atol=5)  # some levels are in one bin


def test_equalising_keeps_the_order_and_forgets_the_light(faces: Images) -> None:
    small = Resize(0.5)(faces)
    equal = Equalise()(small)
    order = np.argsort(small.stack[0].ravel(), kind="stable")
    assert (np.diff(equal.stack[0].ravel()[order]) >= 0).all()
    darker = Equalise()(small._replace(stack=0.3 * small.stack + 7))
    np.testing.assert_allclose(darker.stack, equal.stack, atol=1)


def test_what_is_outside_the_mask_has_no_say(faces: Images) -> None:
    inside = EllipseMask(0.6, 0.6)(faces)
    changed = inside._replace(stack=np.where(inside.mask, inside.stack, 130.0))
    np.testing.assert_array_equal(Equalise()(inside).matrix, Equalise()(changed).matrix)


def test_the_negative_of_the_negative(faces: Images) -> None:
    equal = apply(faces, EllipseMask(), Equalise())
    negative = Negative()(equal)
    np.testing.assert_array_equal(negative.matrix, 255 - equal.matrix)
    np.testing.assert_array_equal(Negative()(negative).stack, equal.stack)


def test_steps_compose_in_order(faces: Images) -> None:
    steps = (Resize(0.5), EllipseMask(), Equalise())
    by_hand = Equalise()(EllipseMask()(Resize(0.5)(faces)))
    for images in (compose(*steps)(faces), apply(faces, *steps), apply(faces, compose(*steps[:2]), steps[2])):
        np.testing.assert_array_equal(images.stack, by_hand.stack)
        np.testing.assert_array_equal(images.mask, by_hand.mask)
    assert repr(steps) == "(Resize(factor=0.5), EllipseMask(height=1.0, width=1.0), Equalise(levels=256))"


def test_congealing_is_a_step(faces: Images) -> None:
    """With the settings and defaults of the function, and its mask."""
    small = EllipseMask()(as_images(faces.stack[:3, 20:60, 20:60]))
    aligned = Congeal(steps=3)(small)
    np.testing.assert_array_equal(aligned.stack, congeal(small.stack, steps=3, mask=small.mask).stack)
    np.testing.assert_array_equal(aligned.mask, small.mask)
    defaults = {name: option.default for name, option in inspect.signature(congeal).parameters.items()}
    assert asdict(Congeal()).items() <= defaults.items()


def test_prepared_orl() -> None:
    X, labels, image, credit = prepared("orl")
    assert X.shape == (2576, 400)
    assert image is not None
    np.testing.assert_array_equal(image.picture(X[:, 7]), image.stack[7])
    assert set(labels) == set(range(1, 41))
    assert "AT&T" in credit
    np.testing.assert_allclose(np.median(X, axis=0), 127.5, atol=5)


def test_prepared_without_steps() -> None:
    np.testing.assert_array_equal(prepared("digits").X, digits().data.T)
    X, _, image, _ = prepared("leukemia")
    np.testing.assert_array_equal(X, leukemia().data.T)
    assert image is None


def test_prepared_from_own_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "y.npz", images=rng.integers(0, 256, (3, 231, 195)), labels=[0, 0, 1], expression=list("abc"))
    assert prepared("yale", tmp_path / "y.npz").X.shape == (4484, 3)
    assert prepared("yale-condition", tmp_path / "y.npz").labels.tolist() == list("abc")
    for name in ("KA.AN1.39", "KA.HA2.30", "YM.SU3.60"):
        Image.fromarray(rng.integers(0, 256, (40, 40)).astype(np.uint8)).save(tmp_path / f"{name}.tiff")
    monkeypatch.setitem(PIPELINES, "jaffe", (Congeal(steps=2), *PIPELINES["jaffe"][1:]))
    X, labels, image, _ = prepared("jaffe", tmp_path)
    assert image is not None
    assert image.stack.shape == (3, 30, 30)
    assert (X.shape, labels.tolist()) == ((image.mask.sum(), 3), ["angry", "happy", "surprise"])


def test_refused(faces: Images, blank: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: as_images(np.zeros((3, 4))), r"expected images × height × width; got float64 of shape \(3, 4\)"),
        (lambda: as_images(np.full((1, 2, 2), np.nan)), "expected finite grey levels"),
        (lambda: as_images(leukemia()), "expected samples that are images"),
        (lambda: Resize(0.0)(blank), r"expected a factor above 0; got 0.0"),
        (lambda: Mask(np.ones((2, 2), bool))(blank), r"expected a mask of booleans of shape \(116, 98\); got bool"),
        (lambda: Mask(np.zeros((116, 98), bool))(blank), "expected a mask that leaves at least one pixel"),
        (lambda: EllipseMask(0.0, 1.0)(blank), "expected diameters above 0"),
        (lambda: Equalise(1)(blank), "expected levels to be a whole number ≥ 2; got 1"),
        (lambda: Resize("a")(blank), "expected a factor above 0; got 'a'"),
        (lambda: EllipseMask("x")(blank), "expected diameters above 0; got 'x' and 1.0"),
        (lambda: Congeal(blur=())(as_images(np.zeros((2, 8, 8)))), "expected blur to be a sequence of numbers"),
        (lambda: apply(blank.stack, Equalise()), "expected Images, as made by as_images; got ndarray"),
        (lambda: apply(blank, Equalise), "expected steps, for example Resize"),
        (lambda: Negative()(blank._replace(stack=blank.stack + 256)), "expected grey levels from 0 to 255; got 256"),
        (lambda: faces.picture(np.zeros(5)), r"expected 10304 features, in one column or several; got shape \(5,\)"),
    ]
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
    importing = builtins.__import__
    monkeypatch.setattr(
        "importlib.import_module", lambda name: importing("no_such_package") if "skimage" in name else importing(name)
    )
    with pytest.raises(ImportError, match=r"expected scikit-image .* Run: pip install 'gsnmf\[faces\]'"):
        Resize(0.5)(blank)


@pytest.mark.skipif("GSNMF_YALE" not in os.environ, reason="GSNMF_YALE names no copy of the Yale faces")
def test_the_real_yale_faces_as_the_paper_prepares_them() -> None:
    X, labels, image, _ = prepared("yale", os.environ["GSNMF_YALE"])
    assert X.shape == (4484, 165)
    assert image is not None
    assert image.mask.shape == (116, 98)
    assert len(set(labels)) == 15
