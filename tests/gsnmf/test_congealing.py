"""Faces jittered on purpose are put in order again."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from gsnmf.datasets import orl
from gsnmf.images.congealing import affine, congeal, stack_entropy, warp

GREY = (0.0, 255.0)
IDENTITY = np.eye(2, 3)[None]
Matrices = NDArray[np.floating]


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    """Single precision, as people run it."""
    with jax.enable_x64(False):
        yield


def people(step: int) -> NDArray[np.floating]:
    """Every so many-th of the ORL faces at half size, 56 × 46."""
    return orl().images[::step].reshape(-1, 56, 2, 46, 2).mean((2, 4))


def jitter(count: int, seed: int) -> Matrices:
    """Rotations by some 6 degrees, scales by 5 %, translations by 2 pixels of 56."""
    parameters = np.random.default_rng(seed).normal(size=(count, 6)) * [0.1, 0.03, 0.05, 0.05, 0.08, 0.08]
    return np.asarray(affine(parameters, 28.0))


def after(first: Matrices, second: Matrices) -> Matrices:
    """Where a pixel comes from that is looked up by `second` in an image warped by `first`."""
    A, t = first[:, :, :2] @ second[:, :, :2], first[:, :, :2] @ second[:, :, 2:] + first[:, :, 2:]
    return np.concatenate([A, t], 2)


def errors(transforms: Matrices, truth: Matrices) -> NDArray[np.floating]:
    """Pixels that each image is off, on average over the face, when all may be off together."""
    y, x = np.meshgrid(np.linspace(-17, 17, 5), np.linspace(-14, 14, 5), indexing="ij")
    places = np.stack([y.ravel(), x.ravel()])
    off = (transforms - truth)[:, :, :2] @ places + (transforms - truth)[:, :, 2:]
    return np.asarray(np.sqrt(((off - np.median(off, 0)) ** 2).sum(1).mean(1)))


def test_affine_and_warp_are_what_they_say() -> None:
    np.testing.assert_allclose(affine(np.zeros((1, 6))), IDENTITY)
    turned = np.asarray(affine([np.pi / 2, 0, 0, 0, 0, 0]))
    image = np.arange(25.0).reshape(5, 5)
    np.testing.assert_allclose(warp(image[None], turned[None])[0], np.rot90(image, -1), atol=1e-5)
    shifted = np.asarray(affine([0, 0, 0, 0, 1.0, -2.0], radius=1.0))
    np.testing.assert_allclose(warp(image[None], shifted[None])[0, 1:3, 2:], image[2:4, :3], atol=1e-5)
    wide = np.asarray(affine([0, 0, 0, np.log(0.5), 0, 0]))  # x halves its steps: twice as wide
    np.testing.assert_allclose(warp(image[None], wide[None])[0][:, [0, 2, 4]], image[:, 1:4], atol=1e-5)
    np.testing.assert_array_equal(warp(image[None], IDENTITY), image[None])


def test_entropy_of_known_stacks() -> None:
    same = np.full((6, 4, 4), 255.0)
    assert stack_entropy(same, span=GREY) == 0
    two = np.repeat([0.0, 255.0], 3)[:, None, None] * np.ones((1, 4, 4))
    np.testing.assert_allclose(stack_entropy(two), np.log(2), rtol=1e-5)
    every = np.linspace(0, 255, 8)[:, None, None] * np.ones((1, 4, 4))
    np.testing.assert_allclose(stack_entropy(every, bins=8), np.log(8), rtol=1e-5)
    np.testing.assert_allclose(stack_entropy(every[::-1] / 7 + 3, bins=8), np.log(8), rtol=1e-5)


def test_jittered_copies_of_a_face_find_each_other() -> None:
    """Twenty views of one face: the truth is known, and the jitter is undone to a fraction of a pixel."""
    face = np.repeat(people(400), 20, 0)
    moved = jitter(20, seed=0)
    jittered = warp(face, moved)
    aligned = congeal(jittered, steps=50)
    before, now = errors(moved, IDENTITY), errors(after(moved, aligned.transforms), IDENTITY)
    assert before.mean() > 2
    assert now.max() < 0.25, now
    entropies = [stack_entropy(stack, span=GREY) for stack in (face, aligned.stack, jittered)]
    assert entropies[1] < entropies[0] + 0.15 * (entropies[2] - entropies[0]), entropies


def test_jittered_faces_of_many_people_are_put_in_order() -> None:
    """Entropy falls below that of the faces before the jitter, and the outcome hardly depends on the jitter.

    These faces are not aligned themselves, so that jitter does not add much. As interpolation lowers entropy too, each
    image is also moved by its neighbour's transform: as much interpolation, no alignment.
    """
    faces = people(20)
    moved = jitter(len(faces), seed=1)
    jittered = warp(faces, moved)
    aligned, never_moved = congeal(jittered, steps=50), congeal(faces, steps=50)
    exchanged = warp(jittered, np.roll(aligned.transforms, 1, 0))
    goal, *others = (
        stack_entropy(stack, span=GREY) for stack in (aligned.stack, never_moved.stack, faces, jittered, exchanged)
    )
    np.testing.assert_allclose(goal, others[0], atol=0.03)
    assert goal < min(others[1:]) - 0.1, (goal, others)
    off = errors(after(moved, aligned.transforms), never_moved.transforms)
    assert np.median(off) < 0.4 * np.median(errors(moved, IDENTITY)), off


@cache
def small() -> Any:
    """Faces, and what ten steps make of them."""
    faces = people(20)
    return faces, congeal(faces, steps=10)


def test_the_stack_neither_drifts_nor_shrinks() -> None:
    """The mean transform stays the identity, up to the curvature of rotations and scales."""
    transforms = small()[1].transforms
    assert np.abs(transforms - IDENTITY).max() > 1
    np.testing.assert_allclose(transforms[:, :, 2].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(np.log(np.linalg.det(transforms[:, :, :2])).mean(), 0, atol=1e-4)


def test_the_trace_is_per_step_and_the_best_step_is_returned() -> None:
    faces, aligned = small()
    assert aligned.entropy.shape == (11,)
    assert aligned.entropy.min() < aligned.entropy[0] - 0.05
    np.testing.assert_allclose(aligned.stack, warp(faces, aligned.transforms))
    tiny = faces.reshape(-1, 28, 2, 23, 2).mean((2, 4))  # so few pixels that all are compared
    for rate, best in ((0.02, 2), (0.4, 0)):  # the larger one only does harm
        result = congeal(tiny, steps=2, rate=rate, contrast=0.0)
        assert result.entropy.argmin() == best
        lowest = stack_entropy(result.stack, span=(tiny.min(), tiny.max()))
        np.testing.assert_allclose(lowest, result.entropy[best], rtol=1e-4)
    np.testing.assert_array_equal(congeal(0 * tiny, steps=2).stack, 0 * tiny)  # nothing to tell apart, no harm done


def test_nothing_is_random_and_order_does_not_matter() -> None:
    faces, aligned = small()
    np.testing.assert_array_equal(congeal(faces, steps=10).transforms, aligned.transforms)
    np.testing.assert_allclose(congeal(faces[::-1], steps=10).transforms[::-1], aligned.transforms, atol=0.05)


def test_only_the_mask_is_compared() -> None:
    faces = small()[0]
    mask = np.zeros(faces.shape[1:], bool)
    mask[10:40, 10:36] = True
    masked = congeal(faces, steps=10, mask=mask, contrast=0.0, blur=(0.0,))
    spoilt = faces.copy()
    spoilt[:, 0, 0] = faces[:, 0, 0] / 2
    again = congeal(spoilt, steps=10, mask=mask, contrast=0.0, blur=(0.0,))
    np.testing.assert_allclose(masked.transforms, again.transforms, atol=1e-5)
    assert not np.allclose(masked.transforms, congeal(faces, steps=10, contrast=0.0, blur=(0.0,)).transforms, atol=0.01)


def test_refused() -> None:
    images = np.zeros((3, 8, 8))
    refused: list[tuple[Any, str]] = [
        (lambda: congeal(images[:1]), "expected images to be at least 2; got 1"),
        (lambda: congeal(images, steps=0), "expected steps to be at least 1; got 0"),
        (lambda: congeal(images, blur=()), r"expected blur to be a sequence of numbers; got \(\)"),
        (lambda: congeal(images, mask=np.ones((2, 2), bool)), r"expected a mask of booleans of shape \(8, 8\)"),
        (
            lambda: congeal(np.zeros((2, 90, 90)), mask=np.eye(90, k=89) > 0),
            "expected a mask that is true at some of the pixels compared",
        ),
        (lambda: congeal(images[0]), r"expected images × height × width; got float64 of shape \(8, 8\)"),
        (lambda: stack_entropy(images, bins=1), "expected bins to be at least 2; got 1"),
        (lambda: stack_entropy(images, span=(1.0, 2.0)), "expected grey levels from 1.0 to 2.0; got 0.0 to 0.0"),
        (lambda: warp(images, IDENTITY), r"expected transforms of shape \(3, 2, 3\); got \(1, 2, 3\)"),
    ]
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
