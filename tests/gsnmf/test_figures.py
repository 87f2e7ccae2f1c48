"""The paper's figures: what is drawn where, and that fits are made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gsnmf import cli, datasets
from gsnmf.commands import figures as figure_commands
from gsnmf.drawing import montage
from gsnmf.experiments import figures, panels, presets
from gsnmf.experiments.presets import preset
from gsnmf.experiments.protocol import PreparedDataset, parts
from gsnmf.experiments.results import by_fold
from gsnmf.images import preprocessing
from gsnmf.inference import cavi
from gsnmf.journal import append

SHAPE = (4, 3)
MASK = np.ones(SHAPE, bool)
MASK[0, 0] = False


@pytest.fixture
def faces() -> preprocessing.Prepared:
    """Three classes of 12 tiny images with a corner masked away, each class bright in rows of its own."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 12)
    stack = rng.poisson(1.0 + 20 * (np.arange(4)[None, :, None] == labels[:, None, None]), (36, *SHAPE)).astype(float)
    images = preprocessing.Images(stack, MASK)
    return preprocessing.Prepared(images.matrix, labels, images, "nobody")


@pytest.fixture
def problem(faces: preprocessing.Prepared) -> PreparedDataset:
    return PreparedDataset("digits", faces.X, faces.labels)


def settings(**changes: Any) -> list[tuple[str, dict[str, Any]]]:
    return panels.models("digits", large=[1.0, 50.0], small=1.0, max_steps=3, **changes)


def sweep_rows(
    smalls: tuple[float, ...] = (1.0, 32.0), larges: tuple[float, ...] = (32.0, 512.0, 2048.0)
) -> list[dict]:
    """Two folds of three restarts for each setting, with numbers of their own."""
    rng = np.random.default_rng(1)
    common = {"dataset": "digits", "fingerprint": "0", "method": "nmf_gs", "run": 0, "folds": 10, "restarts": 3}
    common |= {
        "version": "0.1.0",
        "precision": "float32",
        "validation": False,
        "bounds": False,
        "size": 20,
        "sweeps": [300] * 3,
        "seconds": [1.0] * 3,
    }
    return [
        common
        | {"fold": fold, "settings": {"rank": 30, "small": small, "large": large}}
        | {"correct": rng.integers(0, 21, 3).tolist()}
        for small in smalls for large in larges for fold in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize("smalls", [(1.0, 32.0), (32.0,)])
def test_curves_show_means_and_bars_from_worst_to_best(smalls: tuple[float, ...]) -> None:
    rows = sweep_rows(smalls)
    table = by_fold(rows[::-1])  # in any order
    ax = figures.accuracy_curves(table, title="t")
    drawn = {bars.get_label(): bars for bars in ax.containers}
    assert len(drawn) == len(smalls)
    for small in smalls:
        bars = next(b for label, b in drawn.items() if label.endswith(f"= {small:g}"))
        line, _, (ends,) = bars.lines
        for n, large in enumerate((32.0, 512.0, 2048.0)):
            found = [
                np.array(r["correct"]) / 20
                for r in rows
                if r["settings"] == {"rank": 30, "small": small, "large": large}
            ]
            assert line.get_ydata()[n] == pytest.approx(np.mean(found))
            low, high = sorted(ends.get_segments()[n][:, 1])
            assert low == pytest.approx(np.mean([f.min() for f in found]))
            assert high == pytest.approx(np.mean([f.max() for f in found]))
            assert line.get_xdata()[n] == pytest.approx(large, rel=0.15)  # apart from other lines, but not far
    assert [text.get_text() for text in ax.get_xticklabels()] == ["32", "512", "2048"]
    places = [bars.lines[0].get_xdata() for bars in ax.containers]
    assert all((a != b).all() for n, a in enumerate(places) for b in places[:n])


def test_curves_of_other_settings_are_lines_of_their_own() -> None:
    rows = sweep_rows((32.0,))
    other = [row | {"settings": row["settings"] | {"rank": 45, "lam_start": "prior"}} for row in rows]
    ax = figures.accuracy_curves(by_fold([*rows, *other]))
    assert len(ax.containers) == 2
    assert "rank = 45" in ax.containers[1].get_label()
    with pytest.raises(ValueError, match="expected results of nmf_gs, by fold; got a table without large"):
        figures.accuracy_curves(pd.DataFrame())


def test_curves_are_written_beside_results(tmp_path: Path) -> None:
    results = tmp_path / "sweep.v2"
    results.write_text("results")
    table = by_fold(sweep_rows())
    drawn = [figures.draw_accuracy(table, stem, "t") for stem in (results, results.with_suffix(""))]
    names = ["sweep.v2_accuracy.png", "sweep.v2_accuracy.pdf", "sweep_accuracy.png", "sweep_accuracy.pdf"]
    assert [path.name for paths in drawn for path in paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "sweep.v2"])
    assert results.read_text() == "results"
    written = drawn[0][1].read_bytes()
    assert b"/Type3" not in written  # letters are of TrueType fonts, for which journals ask
    assert b"/CIDFontType2" in written


def test_a_point_is_of_one_plan(tmp_path: Path) -> None:
    rows = sweep_rows()
    others = [rows[0] | {"method": "pca", "restarts": 1}, rows[0] | {"dataset": "orl", "fingerprint": "1"}]
    assert figure_commands._of_one_plan([*rows, *others], "digits") == rows
    aside = [row | {"validation": True, "restarts": 7, "chosen": 3} for row in rows]
    assert figure_commands._of_one_plan([*aside, *rows], "digits") == rows
    own = {"fingerprint": "1", "version": "9", "precision": "float64", "folds": 5, "restarts": 4, "bounds": True}
    for name, value in own.items():
        with pytest.raises(ValueError, match=f"expected results on digits with one value of {name}; got .+ and"):
            figure_commands._of_one_plan([*rows, rows[0] | {name: value}], "digits")
    for name, value in {"rank": 45, "lam_start": "prior"}.items():
        other = rows[0] | {"settings": rows[0]["settings"] | {name: value}}
        with pytest.raises(ValueError, match=f"with one value of {name}; got .* and {value}"):
            figure_commands._of_one_plan([*rows, other], "digits")


def test_accuracies_of_files_that_repeat_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[pd.DataFrame] = []
    draw = figures.draw_accuracy
    monkeypatch.setattr(figures, "draw_accuracy", lambda table, *rest: seen.append(table) or draw(table, *rest))
    rows, results = sweep_rows(), tmp_path / "sweep.jsonl"
    for row in [*rows, *(row | {"validation": True, "chosen": 3} for row in rows)]:
        append(results, row)
    figure_commands._draw_accuracies(["digits"], [results, results], tmp_path)
    pd.testing.assert_frame_equal(seen[0], by_fold(rows))


def test_datasets_without_results_have_no_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "sweep.jsonl"
    for row in sweep_rows():
        append(results, row)
    figure_commands._draw_accuracies(["orl", "digits"], [results], tmp_path)
    said = capsys.readouterr().out
    assert "No accuracies of orl are drawn: there are no results of nmf_gs on orl.\n" in said
    assert "digits_accuracy.png, .pdf: like figure 6\n" in said
    assert sorted(path.name for path in tmp_path.glob("*_accuracy.*")) == ["digits_accuracy.pdf", "digits_accuracy.png"]
    with pytest.raises(ValueError, match=r"expected results of nmf_gs on orl or yale in .*; got nmf_gs on digits"):
        figure_commands._draw_accuracies(["orl", "yale"], [results], tmp_path)


@pytest.mark.parametrize("dataset", list(panels.SHAPES))
def test_panels_are_of_the_preset(dataset: str) -> None:
    usual = preset(dataset, "nmf_gs")
    *grouped, (name, alone) = panels.models(dataset, lam_start=None, max_steps=None)
    assert ("nmf_gs", usual) in grouped
    assert len(grouped) == 3
    assert all(own | {"large": usual["large"]} == usual for _, own in grouped)
    assert (name, alone["rank"], alone["max_steps"]) == ("nmf_vb", usual["rank"], usual["max_steps"])
    *grouped, (_, alone) = panels.models(dataset, max_steps=7, small=2.0)
    assert {own["max_steps"] for _, own in grouped} == {alone["max_steps"]} == {7}
    assert {own["small"] for _, own in grouped} == {2.0}


def test_pictures_in_a_hinton_diagram_have_areas_in_proportion() -> None:
    matrix = np.array([[4.0, 1.0, 0.0], [2.0, 0.001, 3.0]])
    pictures = np.arange(36.0).reshape(3, *SHAPE) + 1
    pictures[:, 0, 0] = np.nan
    ax = montage.hinton_pictures(matrix, pictures, rows=["x", "y"])
    drawn = {}
    for image in ax.images:
        left, right, bottom, top = image.get_extent()
        place = round((top + bottom) / 2), round((left + right) / 2)
        drawn[place] = right - left, abs(bottom - top)
        tile = np.ma.filled(image.get_array(), np.nan)
        np.testing.assert_allclose(
            tile, pictures[place[1]] / np.nanmax(pictures[place[1]])
        )  # its own, blank in a corner
        assert image.get_cmap().name == "Greys"  # in negative
    assert set(drawn) == {(0, 0), (0, 1), (1, 0), (1, 2)}  # neither nothing nor specks
    for place, (width, height) in drawn.items():
        assert width == pytest.approx(drawn[0, 0][0] * np.sqrt(matrix[place] / 4))
        assert height == pytest.approx(width)  # in cells, which are as high over wide as the pictures
    assert ax.get_aspect() == pytest.approx(4 / 3)
    assert drawn[0, 0][0] <= 1
    assert ax.get_ylim() == (1.6, -0.6)
    with pytest.raises(ValueError, match="expected a picture for each of 3 components; got 2"):
        montage.hinton_pictures(matrix, pictures[:2])


def test_blank_borders_are_trimmed_and_blanks_within_kept() -> None:
    pictures = np.full((2, 5, 4), np.nan)
    pictures[:, 1:4, 1:3] = 1.0
    pictures[:, 1, 1] = np.nan
    np.testing.assert_array_equal(montage.trim(pictures), pictures[:, 1:4, 1:3])
    blank = np.full((1, 2, 2), np.nan)
    assert montage.trim(blank).shape == blank.shape
    canvas = np.ma.filled(montage.montage(pictures).images[0].get_array(), np.nan)
    assert np.isfinite(canvas).sum() == 2 * 5


def test_fits_are_made_once(
    problem: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = panels.panels(problem, tmp_path, settings(), 0)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 6
    assert "resuming" not in capsys.readouterr().err
    calls = []
    run = cavi.run
    monkeypatch.setattr(cavi, "run", lambda *args, **options: calls.append(1) or run(*args, **options))
    again = panels.panels(problem, tmp_path, settings(), 0)
    assert not calls
    assert f"gsnmf: resuming from {tmp_path}, which has 3 fits" in capsys.readouterr().err
    panels.panels(problem, tmp_path, settings()[:1], 0, saved := list(files))
    assert len(saved) == 6
    assert "resuming" not in capsys.readouterr().err  # from fits of the same run
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.V, other.V)
        assert one.V.shape == (30, len(parts(problem.labels)[0]))


@pytest.mark.parametrize("change", ["data", "labels", "seed", "large", "lam_start", "max_steps"])
def test_other_data_or_settings_are_other_fits(problem: PreparedDataset, change: str) -> None:
    method, base = settings()[1]
    tag = panels.fit_tag(problem, method, base, 0)
    assert tag == panels.fit_tag(problem, method, dict(reversed(base.items())), 0)
    if change == "data":
        problem = problem._replace(X=problem.X + (np.arange(problem.X.size).reshape(problem.X.shape) == 7))
    elif change == "labels":
        problem = problem._replace(labels=problem.labels[::-1])
    elif change != "seed":
        base = base | {change: {"large": 51.0, "lam_start": "prior", "max_steps": 4}[change]}
    assert tag != panels.fit_tag(problem, method, base, int(change == "seed"))


def test_panels_sort_and_restrict() -> None:
    V = np.array([[0.0, 0, 5, 5, 1, 0], [3.0, 3, 0, 0, 0, 0], [4.0, 4, 0, 1, 0, 0], [0, 0, 0, 0, 2.0, 2]])
    membership = np.repeat(np.eye(3), 2, axis=0)
    T, lam = np.arange(8.0).reshape(2, 4), np.arange(12.0).reshape(4, 3) + 1
    panel = panels.Panel("c", T, V, lam, membership, np.array(["a", "b", "c"]), np.ones(4, bool))
    assert panel.order.tolist() == [2, 1, 0, 3]
    few = panel.first(2)
    np.testing.assert_array_equal(few.V, V[:3, :4])
    np.testing.assert_array_equal(few.T, T[:, :3])
    np.testing.assert_array_equal(few.lam, lam[:3, :2])
    assert few.names.tolist() == ["a", "b"]
    ax = figures.draw_relevance(panel, montage.new_axes())
    boxes = [path.get_extents() for path in ax.collections[0].get_paths()]
    area = {(round((b.y0 + b.y1) / 2), round((b.x0 + b.x1) / 2)): b.width * b.height for b in boxes}
    assert area[0, 0] / area[2, 3] == pytest.approx(lam[3, 2] / lam[2, 0])  # 1 / λ, components sorted


def test_figures_have_a_panel_for_each_fit(
    problem: PreparedDataset, faces: preprocessing.Prepared, tmp_path: Path
) -> None:
    shown = panels.panels(problem, tmp_path, settings(), 0)
    for kind, (_, what, alone, _) in figures.KINDS.items():
        figure = figures.effect(kind, shown, faces.image.picture, note="the rest")
        texts = [ax.get_xlabel() or " ".join(t.get_text() for t in ax.texts) for ax in figure.axes]
        assert len(texts) == (3 if alone else 2)
        for letter, text, panel in zip("abc", texts, shown, strict=False):
            assert f"{letter}) {panel.caption}" in text
        assert "= 50$" in texts[1]
        assert figure.get_supxlabel() == f"{what}\nthe rest"
    words = [panel._replace(names=np.array(["happy", "sad", "wink"])) for panel in shown]
    assert len({ax.get_position().x0 for ax in figures.effect("hinton", words).axes}) == 1  # one below the other
    assert len({ax.get_position().x0 for ax in figures.effect("hinton", shown).axes}) == 2
    many = shown[0]._replace(V=np.ones((figures.MANY + 1, 3)))
    assert figures.title("features", many).endswith("first 8 labels")
    with pytest.raises(
        ValueError, match="expected samples that are images for a figure of features; got pictures=None"
    ):
        figures.effect("features", shown)
    with pytest.raises(ValueError, match=r"expected a figure out of coefficients, .*; got 'pie'"):
        figures.effect("pie", shown)
    with pytest.raises(ValueError, match="expected a model with groups; got lam=None"):
        figures.draw_relevance(shown[-1], montage.new_axes())


def test_the_command_writes_pictures(
    faces: preprocessing.Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preprocessing, "prepared", lambda name, path=None: faces)
    monkeypatch.setattr(figures, "KINDS", {name: figures.KINDS[name] for name in ("dictionary", "hinton")})
    results = tmp_path / "sweep.jsonl"
    for row in sweep_rows():
        append(results, row)
    command = ["figures", "digits", "--out", str(tmp_path), "--max-steps", "2", "--large", "1", "9", "--small", "1"]
    assert cli.main([*command, "--sweep", str(results)]) == 0
    said = "".join(capsys.readouterr())
    for kind, number in (("dictionary", 5), ("hinton", 3), ("accuracy", 6)):
        assert (tmp_path / f"digits_{kind}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"digits_{kind}.pdf").read_bytes().startswith(b"%PDF")
        assert f"digits_{kind}.png, .pdf: like figure {number}\n" in said
    names = sorted(path.name for path in (tmp_path / "fits").glob("*.json"))
    assert [name.rsplit("_", 1)[0] for name in names] == [
        "digits_nmf_gs_large1",
        "digits_nmf_gs_large9",
        "digits_nmf_vb",
    ]
    assert json.loads((tmp_path / "fits" / names[0]).read_text())["num_steps"] == 2


def test_the_montage_is_of_the_preset(
    faces: preprocessing.Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = preset("digits", "nmf_gs") | {"rank": 6, "large": 40.0, "small": 2.0, "max_steps": 4}
    monkeypatch.setattr(preprocessing, "prepared", lambda name, path=None: faces)
    known = {"digits": {"nmf_gs": usual, "nmf_vb": preset("digits", "nmf_vb")}}
    monkeypatch.setattr(presets, "presets", lambda: known)
    monkeypatch.setattr(figure_commands, "_draw_effects", lambda *_: None)
    drawn: list[Figure] = []
    overview = figures.overview
    monkeypatch.setattr(
        figures, "overview", lambda *args, **options: drawn.append(overview(*args, **options)) or drawn[0]
    )
    out, page = tmp_path / "out", tmp_path / "new" / "page.png"
    options = ["--large", "1", "9", "--small", "1", "--max-steps", "2", "--lam-start", "prior", "--out", str(out)]
    assert cli.main(["figures", "digits", *options, "--montage", str(page)]) == 0
    assert page.read_bytes().startswith(b"\x89PNG")
    (fit,) = (out / "fits").glob("digits_nmf_gs_large40_*.json")
    assert json.loads(fit.read_text())["num_steps"] == 4
    heading = next(text for text in drawn[0].axes[0].texts if text.get_text().startswith("digits: "))
    assert heading.get_text().endswith("= 40$")
    beneath = drawn[0].axes[0]._left_title.get_window_extent()
    assert beneath.width > 0
    assert heading.get_window_extent().y0 > beneath.y1  # on a line of its own
    assert drawn[0].get_supxlabel() == datasets.DIGITS_BY


@pytest.mark.parametrize("finished", [0, 1])
def test_interrupted_fits_are_found_again(
    finished: int,
    faces: preprocessing.Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(preprocessing, "prepared", lambda name, path=None: faces)
    monkeypatch.setattr(figures, "KINDS", {"hinton": figures.KINDS["hinton"]})
    run, calls = cavi.run, []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > finished:
            raise KeyboardInterrupt
        return run(*args, **options)

    monkeypatch.setattr(cavi, "run", interrupted)
    command = ["figures", "digits", "--out", str(tmp_path), "--max-steps", "2", "--large", "1", "9", "--small", "1"]
    assert cli.main(command) == 130
    said = capsys.readouterr().err
    saved = [path.stem for path in (tmp_path / "fits").glob("*.npz")]
    assert len(saved) == finished
    what = f"saved in {tmp_path / 'fits'}: {saved[0]}" if saved else "no fit is saved yet"
    assert f"gsnmf: interrupted; {what}. The same command resumes from there.\n" in said
    assert "nothing was saved" not in said
    calls.clear()
    monkeypatch.setattr(cavi, "run", lambda *args, **options: calls.append(1) or run(*args, **options))
    assert cli.main(command) == 0
    assert len(calls) == 3 - finished


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["digits", "--data", "x"], "expected --data with one of yale, yale-condition, jaffe; got digits"),
        (["digits", "--large", "9", "1"], "expected increasing shapes for --large; got 9 1"),
        (["digits", "--large", "-1"], "expected a number above 0; got '-1'"),
        (["digits", "--max-steps", "0"], "expected a whole number from 1; got '0'"),
        (["orl", "--sweep", "SWEEP"], "expected results of nmf_gs on orl in"),
        (["digits", "--sweep", "MIXED"], "expected results on digits with one value of fingerprint; got 0 and 1"),
    ],
)
def test_errors_say_what_was_expected(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rows in (("SWEEP", sweep_rows()), ("MIXED", [*sweep_rows(), sweep_rows()[0] | {"fingerprint": "1"}])):
        for row in rows:
            append(tmp_path / name, row)
    options = [str(tmp_path / word) if word in ("SWEEP", "MIXED") else word for word in options]
    assert cli.main(["figures", *options, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_numbers_are_the_papers() -> None:
    assert figures.number("yale", "coefficients") == "figure 2"
    assert figures.number("jaffe", "features") == "figure 12"
    assert figures.number("orl", "accuracy") == "figure 7"
    assert figures.number("yale-condition", "hinton") == "like figure 8"
    assert figures.number("digits", "hinton") == "like figure 3"
