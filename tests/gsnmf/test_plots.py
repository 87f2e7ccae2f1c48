"""Pictures: what is drawn where, not how it looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gsnmf.drawing import plots
from gsnmf.inference import Fit, Posterior
from gsnmf.model import Gamma, as_data

V = np.array([[0.0, 1.0, 0.0, 2.0], [5.0, 0.0, 7.0, 0.0], [0.0, 4.0, 0.0, 4.0]])  # components × samples
GROUPS = ["a", "b", "a", "b"]
MEMBERSHIP = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])


def test_mean_by_group() -> None:
    np.testing.assert_allclose(plots.mean_by_group(V, MEMBERSHIP), [[0, 6, 0], [1.5, 0, 4]])
    empty = np.column_stack([MEMBERSHIP, np.zeros(4)])
    np.testing.assert_array_equal(plots.mean_by_group(V, empty)[2], 0)


def test_components_are_sorted_by_home_then_by_activity() -> None:
    assert plots.home_groups(V, MEMBERSHIP).tolist() == [1, 0, 1]
    assert plots.component_order(V, MEMBERSHIP).tolist() == [1, 2, 0]


def test_hinton_areas_are_proportional_to_values() -> None:
    matrix = np.array([[4.0, 1.0, 0.0], [2.0, 0.5, 3.0]])
    ax = plots.hinton(matrix, rows=["x", "y"], title="areas")
    boxes = [path.get_extents() for path in ax.collections[0].get_paths()]
    drawn = {(round((b.y0 + b.y1) / 2), round((b.x0 + b.x1) / 2)): b.width * b.height for b in boxes}
    assert set(drawn) == {(r, k) for r in range(2) for k in range(3)} - {(0, 2)}  # nothing for a zero
    for place, area in drawn.items():
        assert area / drawn[0, 0] == pytest.approx(matrix[place] / 4)
    assert all(b.width == pytest.approx(b.height) for b in boxes)
    assert drawn[0, 0] <= 1  # squares stay in their cells
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y"]
    assert ax.get_title() == "areas"


def test_hinton_refuses_and_draws_zeros() -> None:
    with pytest.raises(ValueError, match="nonnegative finite"):
        plots.hinton([[1.0, -1.0]])
    with pytest.raises(ValueError, match="nonnegative finite"):
        plots.hinton([1.0])
    plots.hinton(np.zeros((2, 2)))


def test_functions_draw_on_the_axes_given() -> None:
    for draw in (
        lambda ax: plots.hinton(np.ones((2, 3)), ax),
        lambda ax: plots.coefficients_by_label(V, MEMBERSHIP, ax),
        lambda ax: plots.dictionary_montage(np.ones((4, 3)), (2, 2), ax),
        lambda ax: plots.bound_trace([-3.0, -2.0, -1.0], ax),
    ):
        ax = plots.new_axes()
        assert draw(ax) is ax
        assert ax.get_xlabel() or not ax.axison


def test_coefficients_are_sorted_both_ways() -> None:
    ax = plots.coefficients_by_label(V, MEMBERSHIP, group_names=["a", "b"])
    np.testing.assert_array_equal(ax.images[0].get_array(), [[5, 7, 0, 0], [0, 0, 4, 4], [0, 0, 1, 2]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    assert ax.images[0].get_cmap().name == "Greys"  # the darker the larger
    np.testing.assert_array_equal(plots.coefficients_by_label(V).images[0].get_array(), V)


def test_montage_keeps_the_order_and_groups() -> None:
    T = np.array(
        [[1, 0, 0, 2], [0, 3, 0, 0], [0, 0, 5, 0], [0, 0, 0, 4]], float
    )  # the brightest pixel tells them apart
    ax = plots.dictionary_montage(T, (2, 2), order=[2, 0, 3, 1], groups=["p", "q", "p", "q"])
    canvas = np.ma.filled(ax.images[0].get_array(), np.nan)
    corners = [(round(p.get_x() + 0.5), round(p.get_y() + 0.5)) for p in ax.patches]
    tiles = [canvas[y : y + 2, x : x + 2].ravel() for x, y in corners]
    for tile, component in zip(tiles, [2, 0, 3, 1], strict=True):
        np.testing.assert_allclose(tile, T[:, component] / T[:, component].max())
    assert [text.get_text() for text in ax.texts] == ["p", "q"]
    steps = np.diff([x for x, _ in corners])
    assert steps[1] > steps[0]  # a gap between groups
    assert steps[0] == steps[2]


def test_montage_wraps_at_ncols() -> None:
    ax = plots.dictionary_montage(np.ones((6, 5)), (2, 3), ncols=2)
    assert [round(p.get_y() + 0.5) for p in ax.patches] == [1, 1, 4, 4, 7]
    with pytest.raises(ValueError, match=r"expected 4 features, \(2, 2\); got shape \(6, 5\)"):
        plots.dictionary_montage(np.ones((6, 5)), (2, 2))


def test_bound_trace_shows_the_end_of_every_line() -> None:
    ax = plots.bound_trace(np.r_[-1e9, np.linspace(-20, -10, 99)], label="one")
    plots.bound_trace(np.linspace(-30, -5, 50), ax, label="two")
    low, high = ax.get_ylim()
    assert low > -100  # not flattened by the first sweep
    assert high >= -5
    assert ax.lines[0].get_xdata()[0] == 1
    plots.bound_trace([-5.0])


@pytest.mark.parametrize("labels", [None, GROUPS])
def test_save_figures_writes_what_the_fit_allows(tmp_path: Path, labels: list[str] | None) -> None:
    lam = None if labels is None else Gamma(np.ones((3, 2)), np.ones((3, 2)))
    fit = Fit(
        Posterior(Gamma(np.ones((4, 3)), np.ones((4, 3))), Gamma(V, np.ones_like(V)), lam), np.arange(5.0), 5, True, ""
    )
    data = as_data(np.ones((4, 4)), labels)
    paths = plots.save_figures(tmp_path / "new", fit, data, (2, 2))
    names = {path.stem for path in paths}
    assert names == {"bound", "coefficients", "dictionary"} | ({"hinton_v", "hinton_lambda"} if labels else set())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert "dictionary" not in {path.stem for path in plots.save_figures(tmp_path, fit, data)}


def test_unused_components_are_left_out_of_the_montage(tmp_path: Path) -> None:
    T, scale = np.array([[2.0, 12.0], [1.0, 12.0]]), np.ones((2, 2))
    posterior = Posterior(Gamma(T, scale), Gamma(np.array([[5.0, 6.0], [1e-6, 1e-6]]), scale), None)
    fit, data = Fit(posterior, np.arange(5.0), 5, True, ""), as_data(np.ones((2, 2)))
    with pytest.MonkeyPatch.context() as patch:
        drawn = []
        patch.setattr(plots, "dictionary_montage", lambda *_, order, **__: drawn.append(order) or plots.new_axes())
        plots.save_figures(tmp_path, fit, data, (1, 2))
    assert [order.tolist() for order in drawn] == [[0]]
