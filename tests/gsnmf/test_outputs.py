"""Commands recognise what gsnmf wrote, and nothing else."""

import itertools
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gsnmf.checkpoints import Checkpoint
from gsnmf.commands.outputs import OWN, check_outputs, is_own
from gsnmf.drawing.axes import new_axes, write_figure
from gsnmf.experiments.results import IDENTITY
from gsnmf.inference import Fit, Posterior
from gsnmf.inference.engine import Snapshot
from gsnmf.journal import Journal, append
from gsnmf.model import Gamma, Names, Priors
from gsnmf.saving import save_fit


@pytest.fixture
def written(tmp_path):
    """One file of every kind that commands write; pages and tables are checked where commands run."""
    one = Gamma(np.ones((1, 1)), np.ones((1, 1)))
    fit = Fit(Posterior(one, one, None), np.array([-1.0]), 1, False, "made up", priors=Priors(one, one))
    save_fit(tmp_path / "fit", fit, None, Names([0], [0], []))
    Checkpoint(tmp_path / "fit.checkpoint.npz", "mark").save(Snapshot([np.ones(1)], np.ones(()), np.ones(1), False))
    for suffix in ("png", "pdf", "svg"):
        write_figure(new_axes().figure, tmp_path / f"picture.{suffix}")
    append(tmp_path / "results.jsonl", {"command": "gsnmf reproduce", "versions": {}})
    append(tmp_path / "rows.jsonl", dict.fromkeys(IDENTITY))
    Journal(tmp_path / "ranks.checkpoint.jsonl").piece("key", lambda: {"a": 1})
    (tmp_path / "cut.jsonl").write_bytes((tmp_path / "results.jsonl").read_bytes()[:9])
    (tmp_path / "empty.jsonl").write_bytes(b"")
    return sorted(tmp_path.iterdir())


def test_every_command_recognises_what_it_writes(written):
    assert {path.suffix for path in written} == OWN.keys() - {".html", ".csv"}
    for path in written:
        assert is_own(path), path
    check_outputs(written, (), False)


def test_force_is_offered_only_where_it_helps(tmp_path):
    """Lines are appended to a .jsonl file: its reader refuses those of others, also by force."""
    for name, remedy in (("a.csv", "--force replaces it"), ("a.jsonl", "choose another --out")):
        (tmp_path / name).write_bytes(b"mine")
        with pytest.raises(ValueError, match=rf"got .*{name}, which exists and was not written by gsnmf \({remedy}\)"):
            check_outputs([tmp_path / name], (), False)


def test_files_of_others_are_not_taken_for_own(tmp_path):
    for suffix in OWN:
        for content in (b"mine", b"{}", b"[]", b'{"a": 1}\n', b"\x89PNG", b"%PDF", b"" if suffix != ".jsonl" else b"x"):
            path = Path(tmp_path, f"a{suffix}")
            path.write_bytes(content)
            assert not is_own(path), (suffix, content)
            with pytest.raises(ValueError, match="which exists and was not written by gsnmf"):
                check_outputs([path], (), False)
            check_outputs([path], (), True)
            with pytest.raises(ValueError, match="to write a file other than the input"):
                check_outputs([path], [path], True)
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("about.npy", b"something else")
    assert not is_own(tmp_path / "b.npz")
    pictures = {"d.svg": b"<svg><text>my gsnmf drawing</text></svg>", "d.png": b"\x89PNG tEXtTitle\0gsnmf and others"}
    for name, content in (pictures | {"d.pdf": b"%PDF-1.4\n<< /Title (notes about gsnmf) >>"}).items():
        (tmp_path / name).write_bytes(content)
        assert not is_own(tmp_path / name), name
    (tmp_path / "c.json").write_text(json.dumps({"about": 1, "summary": 2}))
    assert not is_own(tmp_path / "c.json")
    (tmp_path / "folder.png").mkdir()
    for force in (False, True):
        with pytest.raises(ValueError, match="expected a file to write; got the folder"):
            check_outputs([tmp_path / "folder.png"], (), force)


def test_nothing_is_written_into_a_folder_that_is_read(tmp_path):
    """A part would be replaced, and another file read as a part the next time."""
    np.savez(tmp_path / "part.npz", X=np.ones((2, 3)))
    for name, force in itertools.product(("part.npz", "fit.npz", "below/fit.npz"), (False, True)):
        with pytest.raises(ValueError, match=rf"expected files to write outside the folder that is read; got .*{name}"):
            check_outputs([tmp_path / name], [tmp_path], force)
    check_outputs([tmp_path / "fit.npz"], [tmp_path / "part.npz"], False)


def test_an_input_is_not_replaced_by_another_name_of_it(tmp_path):
    """As on file systems where capitals do not count."""
    np.savez(tmp_path / "x.npz", X=np.ones((2, 3)))
    os.link(tmp_path / "x.npz", tmp_path / "fit.npz")
    with pytest.raises(ValueError, match=r"expected to write a file other than the input; got .*x\.npz for both"):
        check_outputs([tmp_path / "fit.npz"], [tmp_path / "x.npz"], True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_devices_pipes_and_links_to_nothing_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"got .*pipe\.npz, which is a device, a pipe or a socket"):
            check_outputs([tmp_path / "pipe.npz"], (), force)
    (tmp_path / "nowhere.npz").symlink_to(tmp_path / "absent")
    (tmp_path / "circle.npz").symlink_to(tmp_path / "circle.npz")
    for name in ("nowhere", "circle"):
        with pytest.raises(ValueError, match=rf"got .*{name}\.npz, which exists and was not written by gsnmf"):
            check_outputs([tmp_path / f"{name}.npz"], (), False)


def test_pictures_are_the_same_bytes_every_time(tmp_path):
    for suffix in ("png", "pdf"):
        for name in ("a", "b"):
            write_figure(new_axes().figure, tmp_path / f"{name}.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
