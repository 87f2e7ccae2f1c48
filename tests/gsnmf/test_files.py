"""Matrices and labels as people bring them; fits that survive a round trip, and files that do not."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

from gsnmf.inference import Fit, Posterior
from gsnmf.inference.posterior import LabelPosterior
from gsnmf.model import Dirichlet, Exponential, Gamma, GroupSparse, Names, Priors, Relevance, as_data, by_scale
from gsnmf.model.missing import fingerprint
from gsnmf.model.priors import canonical
from gsnmf.reading import read_labels, read_matrix
from gsnmf.saving import _checksum, load_fit, pair, save_fit
from gsnmf.writing import HOST


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "X", "features", "samples"),
    [
        ("1,2\n3,4.5\n", [[1, 2], [3, 4.5]], None, None),
        ("s1,s2\n1,2\n3,4\n", [[1, 2], [3, 4]], None, ["s1", "s2"]),
        ("gene,s1,s2\nABC,1,2\nDEF,3,4\n", [[1, 2], [3, 4]], ["ABC", "DEF"], ["s1", "s2"]),
        ("ABC,1,2\nDEF,3,4\n", [[1, 2], [3, 4]], ["ABC", "DEF"], None),
        (",0,1\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], ["0", "1"], ["0", "1"]),  # as pandas writes
        ("only\n1\n2\n", [[1], [2]], None, ["only"]),
        ("\ufeff1,2\n\n3,4\n", [[1, 2], [3, 4]], None, None),  # as spreadsheets write
        ('"a, b","c"\n1,2\n', [[1, 2]], None, ["a, b", "c"]),
    ],
)
def test_read_csv(tmp_path: Path, text: str, X: Any, features: Any, samples: Any) -> None:
    matrix = read_matrix(write(tmp_path / "m.csv", text))
    np.testing.assert_array_equal(matrix.X, X)
    assert (matrix.feature_names, matrix.sample_names) == (features, samples)
    tabbed = read_matrix(write(tmp_path / "m.tsv", text.replace(",", "\t").replace("\t b", ", b")))
    np.testing.assert_array_equal(tabbed.X, X)


def test_read_numpy(tmp_path: Path) -> None:
    X = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.save(tmp_path / "m.npy", X)
    np.savez(tmp_path / "one.npz", anything=X)
    np.savez(tmp_path / "named.npz", X=X, y=np.ones(3))
    for name in ("m.npy", "one.npz", "named.npz"):
        read = read_matrix(tmp_path / name).X
        assert read.dtype == np.uint8
        np.testing.assert_array_equal(read, X)


@pytest.mark.parametrize(
    ("text", "features", "samples"),
    [
        ("g,s,t\nA,1,\nB,nan,4\n", ["A", "B"], ["s", "t"]),
        ("1,\nNA,4\n", None, None),  # a cell without a number is no name
        ("s,t\n1, \nN/A,4\n", None, ["s", "t"]),
    ],
)
def test_cells_without_a_number_are_missing(text: str, features: Any, samples: Any, tmp_path: Path) -> None:
    write(tmp_path / "X.csv", text)
    read = read_matrix(tmp_path / "X.csv")
    np.testing.assert_array_equal(read.X, [[1, np.nan], [np.nan, 4]])
    assert (read.feature_names, read.sample_names) == (features, samples)


def test_read_matrix_refuses(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    np.savez(tmp_path / "none.npz")
    np.save(tmp_path / "objects.npy", np.array([{}, None], dtype=object))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no more")
    (tmp_path / "latin.csv").write_bytes("é,1\n".encode("latin-1"))
    (tmp_path / "folder.csv").mkdir()
    cases = {
        "two.npz": "expected one array, or one called X.*got a, b",
        "none.npz": "got none",
        "objects.npy": "expected a NumPy file of numbers or text.*allow_pickle",
        "text.npy": "expected real numbers.*got dtype <U1",
        "broken.npz": "expected a NumPy file",
        "latin.csv": "UTF-8; got 'utf-8' codec can't decode byte",
        "folder.csv": "a folder",
        "missing.csv": "which does not exist",
        "matrix.xlsx": "expected a file ending in .npy, .npz, .csv, .tsv, .mtx, .mtx.gz, .parquet, .h5ad, .h5, ",
    }
    texts = {
        "empty.csv": ("", "empty file"),
        "header.csv": ("a,b\n", "only a header"),
        "ragged.csv": ("1,2\n3\n", "expected 2 columns in every row.*got 1 in row 2"),
        "word.csv": ("1,2\n3,x\n", "expected a number in row 2, column 2.*got 'x'"),
    }
    for name, (text, message) in texts.items():
        write(tmp_path / name, text)
        cases[name] = message
    for name, message in cases.items():
        with pytest.raises(ValueError, match=message):
            read_matrix(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("0\n1\n0\n", [0, 1, 0]),
        ("digit\n0\n1\n", [0, 1]),
        ("label\na\nb\n\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("007\n8\n", ["007", "8"]),
        ("-1\n1\n", [-1, 1]),
        ("a\n\nb\n", ["a", None, "b"]),
        ('NA\n1\n""\n2\nnan\n\n', [None, 1, None, 2, None]),
        ("class\n\n0\n1\n", [None, 0, 1]),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv"])
def test_read_labels(tmp_path: Path, text: str, labels: list[Any], suffix: str) -> None:
    read = read_labels(write(tmp_path / f"l{suffix}", text))
    assert read.tolist() == labels


def test_read_labels_numpy_and_refusals(tmp_path: Path) -> None:
    np.savez(tmp_path / "l.npz", X=np.ones((2, 2)), labels=np.array(["a", "b"]))
    assert read_labels(tmp_path / "l.npz").tolist() == ["a", "b"]
    np.save(tmp_path / "matrix.npy", np.ones((2, 2)))
    write(tmp_path / "columns.csv", "s1,a\ns2,b\n")
    write(tmp_path / "unknown.txt", "NA\n\nNA\n")
    write(tmp_path / "empty.txt", "")
    messages = {
        "matrix.npy": r"shape \(2, 2\)",
        "columns.csv": "several columns, 's1,a'",
        "unknown.txt": "got 3 unlabelled",
        "empty.txt": "got 0 unlabelled",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            read_labels(tmp_path / name)


def a_fit(dtype: Any = np.float32, grouped: bool = True) -> tuple[Fit, Priors, Names]:
    rng = np.random.default_rng(0)

    def gamma(*shape: int) -> Gamma:
        return Gamma(rng.exponential(size=shape).astype(dtype), rng.exponential(size=shape).astype(dtype))

    posterior = Posterior(gamma(4, 2), gamma(2, 3), gamma(2, 2) if grouped else None)
    coefficients = GroupSparse(gamma(2, 2)) if grouped else Gamma(1.0, np.float32(0.1))
    names = Names(["é", "b", "c", "d"], [10, 20, 30], ["x", "y"] if grouped else [])
    return Fit(posterior, rng.normal(size=7), 7, True, "Done — μ."), Priors(Gamma(0.6, 20.0), coefficients), names


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("grouped", [True, False])
def test_round_trip_to_the_bit(tmp_path: Path, dtype: Any, grouped: bool) -> None:
    fit, priors, names = a_fit(dtype, grouped)
    path = save_fit(tmp_path / "fit.v2", fit, priors, names)
    assert path == tmp_path / "fit.v2.npz"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit.v2.json", "fit.v2.npz"]  # nothing temporary left
    for spelling in (tmp_path / "fit.v2", path, str(tmp_path / "fit.v2.json")):
        loaded = load_fit(spelling)
        assert (loaded.fit.num_steps, loaded.fit.converged, loaded.fit.message) == (7, True, "Done — μ.")
        for axis in ("feature", "sample", "group"):
            old, new = getattr(names, axis), getattr(loaded.names, axis)
            assert old.dtype == new.dtype
            assert old.tolist() == new.tolist()
        for old, new in zip(
            _leaves((fit.posterior, fit.elbo, priors)),
            _leaves((loaded.fit.posterior, loaded.fit.elbo, loaded.priors)),
            strict=True,
        ):
            assert np.asarray(old).dtype == np.asarray(new).dtype
            assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
        assert type(loaded.priors.coefficients) is type(priors.coefficients)
        assert (loaded.fit.posterior.lam is None) is not grouped


@pytest.mark.parametrize(
    "priors",
    [
        Priors(dist.LogNormal(0.0, np.ones((4, 1))), GroupSparse(dist.HalfCauchy(2.0))),
        Priors(dist.HalfNormal(2.0).expand((4, 2)), dist.Weibull(np.array([[1.0, 3.0]]), 2.0).expand((4, 2))),
        Priors(Gamma(1.0, 1.0), Relevance(Gamma(1.0, 2.0))),
        Priors(Exponential(2.0), Exponential(Gamma(1.0, 2.0))),
    ],
)
def test_all_priors_that_have_names_are_saved(tmp_path: Path, priors: Priors) -> None:
    fit, _, names = a_fit()
    loaded = load_fit(save_fit(tmp_path / "fit", fit, priors, names))
    x = np.full((4, 2), 0.7)
    for old, new in zip(canonical(priors), canonical(loaded.priors), strict=True):
        old, new = (p if p.hyperprior is None else p.hyperprior for p in (old, new))
        np.testing.assert_array_equal(new.distribution().log_prob(x), old.distribution().log_prob(x))
    assert loaded.fit.priors is loaded.priors


class Cut(dist.HalfNormal):
    """A distribution whose arguments do not say all."""

    def __init__(self, scale: float, more: float = 0.0) -> None:
        super().__init__(scale)
        self.more = more

    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        return super().log_prob(value) + self.more


@pytest.mark.parametrize(
    ("law", "name"),
    [
        (by_scale(dist.HalfCauchy(1.0)), "Transformed"),
        (dist.TruncatedNormal(0.0, 1.0, low=0.0), "LeftTruncated"),
        (dist.TruncatedNormal(0.0, 1.0, low=0.0).expand((2, 3)), "LeftTruncated"),
        (Cut(1.0, 0.5), "Cut"),
    ],
)
def test_distributions_without_a_name_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, law: Any, name: str
) -> None:
    fit, _, names = a_fit()
    monkeypatch.setattr(dist, "Cut", Cut, raising=False)
    with pytest.raises(ValueError, match=f"its name and arguments describe, to save; got {name}"):
        save_fit(tmp_path / "fit", fit, Priors(Gamma(1.0, 1.0), GroupSparse(law)), names)
    assert not list(tmp_path.iterdir())


def _leaves(tree: Any) -> list[Any]:
    return [leaf for branch in tree for leaf in _leaves(branch)] if isinstance(tree, tuple) else [tree]


def test_json_is_readable(tmp_path: Path) -> None:
    save_fit(tmp_path / "fit", *a_fit())
    description = json.loads((tmp_path / "fit.json").read_text(encoding="utf-8"))
    assert description["priors"]["coefficients"]["family"] == "GroupSparse"
    assert description["names"]["sample"]["values"] == [10, 20, 30]
    assert description["gsnmf_version"]


def test_interrupted_save_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, priors, names = a_fit()
    save_fit(tmp_path / "fit", fit, priors, names)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk is full")))
    with pytest.raises(OSError, match="disk is full"):
        save_fit(tmp_path / "fit", fit._replace(num_steps=99), priors, names)
    assert load_fit(tmp_path / "fit").fit.num_steps == 7
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("error", [OSError("disk is full"), KeyboardInterrupt("disk is full")])
def test_a_save_that_fails_between_its_two_files_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The old arrays are replaced already: the new description must survive, and the next save clears it away."""
    fit, priors, names = a_fit()
    save_fit(tmp_path / "fit", fit, priors, names)

    def replace(source: Path, target: Path) -> None:
        if target.suffix == ".json":
            raise error
        source.rename(target)

    new = fit._replace(num_steps=99, elbo=fit.elbo + 1)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", replace)
        with pytest.raises(type(error), match="disk is full"):
            save_fit(tmp_path / "fit", new, priors, names)
    assert load_fit(tmp_path / "fit").fit.num_steps == 99
    save_fit(tmp_path / "fit", fit, priors, names)
    assert load_fit(tmp_path / "fit").fit.num_steps == 7
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("first", [False, True])
def test_a_save_that_was_killed_between_its_two_files_is_loaded(tmp_path: Path, first: bool) -> None:
    """The arrays are in place, the description still has its temporary name; then the next save clears it away."""
    fit, priors, names = a_fit()
    if not first:
        save_fit(tmp_path / "fit", fit, priors, names)
    save_fit(tmp_path / "new", fit._replace(num_steps=99, elbo=fit.elbo + 1), priors, names)
    (tmp_path / "new.npz").rename(tmp_path / "fit.npz")
    left = tmp_path / f".fit.json.{HOST}.{2**22 + 1}.1.tmp"  # Linux has no process with such a number
    (tmp_path / "new.json").rename(left)
    assert load_fit(tmp_path / "fit").fit.num_steps == 99
    save_fit(tmp_path / "fit", fit, priors, names)
    assert load_fit(tmp_path / "fit").fit.num_steps == 7
    assert not left.exists()


def test_load_refuses(tmp_path: Path) -> None:
    npz = save_fit(tmp_path / "fit", *a_fit())
    text = npz.with_suffix(".json")
    good_npz, good_json = npz.read_bytes(), json.loads(text.read_text(encoding="utf-8"))

    def refuses(message: str, content: bytes = good_npz, sealed: bool = True, **changes: Any) -> None:
        description = good_json | changes
        if sealed:  # as by somebody who also computes the checksum
            description["sha256"] = _checksum(content, description)
        npz.write_bytes(content)
        text.write_text(json.dumps(description), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            load_fit(npz)

    damaged = good_npz[:-1] + bytes([good_npz[-1] ^ 1])
    refuses("one of them is from another fit, was edited or is damaged", damaged, sealed=False)
    refuses("one of them is from another fit, was edited or is damaged", sealed=False, num_steps=8)
    refuses("format version 7 or older; got 8, written by gsnmf 9.0", format_version=8, gsnmf_version="9.0")
    refuses("to have format 'gsnmf-fit'", format="other")
    refuses("expected .*fit.json to describe the arrays.*Laplace", priors={"family": "Laplace"})
    refuses("to describe the arrays.*missing.a", posterior=good_json["posterior"] | {"T": "missing.a"})
    refuses("to describe the arrays", good_npz[: len(good_npz) // 2] + good_npz[len(good_npz) // 2 + 1 :])
    refuses("to describe the arrays", names={"feature": []})
    refuses("to describe the arrays", priors=[1, 2])
    for broken, message in (("{", "to be JSON written by save_fit"), ("[" * 10**5, "to be JSON written by save_fit")):
        text.write_text(broken, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            load_fit(npz)
    text.unlink()
    with pytest.raises(ValueError, match=r"got no file .*fit\.json"):
        load_fit(npz)
    with pytest.raises(ValueError, match=r"got no file .*nothing\.npz"):
        load_fit(tmp_path / "nothing")


def test_two_writers_do_not_leave_a_mixed_pair(tmp_path: Path) -> None:
    fit, priors, names = a_fit()

    def save(number: int) -> None:
        for _ in range(10):
            save_fit(tmp_path / "fit", fit._replace(num_steps=number), priors, names)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(save, n) for n in range(4)]:
            done.result()
    assert load_fit(tmp_path / "fit").fit.num_steps in range(4)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_fit_loads_while_it_is_being_replaced(tmp_path: Path) -> None:
    """Between its two files, a reader would take the new arrays for damaged: it reads again, while nobody writes."""
    fit, priors, names = a_fit()
    save_fit(tmp_path / "fit", fit, priors, names)

    def save() -> None:
        for number in range(100):
            save_fit(tmp_path / "fit", fit._replace(num_steps=number), priors, names)

    loaded = 0
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(save)
        while not done.done():
            load_fit(tmp_path / "fit")
            loaded += 1
        done.result()
    assert loaded > 10


def test_save_refuses_what_it_could_not_load(tmp_path: Path) -> None:
    fit, priors, names = a_fit()
    with pytest.raises(ValueError, match="expected real numbers in elbo"):
        save_fit(tmp_path / "fit", fit._replace(elbo=np.array([1j])), priors, names)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="expected the name of a file"):
        pair("")


def test_names_that_are_dates_or_bytes_are_saved_as_text(tmp_path: Path) -> None:
    fit, priors, names = a_fit()
    samples = pd.date_range("2020-01-01", periods=len(names.sample))
    for given in (samples, samples.to_numpy(), samples.strftime("%Y-%m-%d").str.encode("utf-8")):
        save_fit(tmp_path / "fit", fit, priors, Names(names.feature, list(given), names.group))
        kept = load_fit(tmp_path / "fit").names.sample
        assert kept.dtype.kind == "U"
        assert kept[1].startswith("2020-01-02")


def test_numbers_can_be_names_under_a_corner_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "entrez.csv"
    path.write_text("gene,s1,s2\n100130426,1,2\n10357,4,5\n")
    matrix = read_matrix(path)
    assert matrix.X.tolist() == [[1, 2], [4, 5]]
    assert matrix.feature_names == ["100130426", "10357"]
    assert matrix.sample_names == ["s1", "s2"]


def test_only_fits_are_saved_and_only_into_folders_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a Fit to save; got str"):
        save_fit(tmp_path / "a", "fit", None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("X", [[[0, 255], [3, 4]], [[0, 256], [1, 2]], [[0.5, 1], [2, 3]], [[1 / 3, 0], [1, 1e9]]])
def test_data_are_saved_with_the_fit_to_the_bit(tmp_path: Path, X: Any) -> None:
    fit, priors, _ = a_fit()
    T, V = np.asarray(fit.posterior.T.a), np.asarray(fit.posterior.V.a)
    values = np.resize(np.asarray(X, float), (len(T), V.shape[1]))
    mask = np.arange(values.size).reshape(values.shape) % 5 > 0
    groups = [None, {"a", "b"}, *("ab"[n % 2] for n in range(V.shape[1] - 2))]
    for data in (
        as_data(values),
        as_data(values, ["ab"[n % 2] for n in range(V.shape[1])], mask=mask),
        as_data(values.astype(np.float32), groups, label_prior=Dirichlet([1.0, 2.0])),
    ):
        own = fit, priors
        if data.num_groups == 0:
            own = fit._replace(posterior=fit.posterior._replace(lam=None)), Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0))
        path = save_fit(tmp_path / "fit", *own, data, image_shape=(1, len(T)), seconds=2.5)
        saved = load_fit(path)
        assert (saved.seconds, saved.pixels.shape) == (2.5, (1, len(T)))
        assert saved.data.X.dtype == data.X.dtype
        assert fingerprint(saved.data) == fingerprint(data)
        leaves, old = (jax.tree.leaves_with_path(d) for d in (saved.data, data))
        assert [where for where, _ in leaves] == [where for where, _ in old]
        for (_, new), (_, before) in zip(leaves, old, strict=True):
            np.testing.assert_array_equal(new, before)
        assert saved.data.names.group.tolist() == data.names.group.tolist()
        if data.held_out is not None:
            np.testing.assert_array_equal(saved.data.held_out.value, data.held_out.value)
            np.testing.assert_array_equal(saved.data.held_out.sample, data.held_out.sample)


def test_what_is_said_of_unknown_labels_is_saved(tmp_path: Path) -> None:
    fit, priors, names = a_fit()
    N = fit.posterior.V.a.shape[1]
    labels = LabelPosterior(np.full((N, 2), 0.5), None, None, np.ones(N))
    save_fit(tmp_path / "fit", fit._replace(posterior=fit.posterior.with_labels(labels)), priors, names)
    np.testing.assert_array_equal(load_fit(tmp_path / "fit").fit.posterior.z, 0.5)


def test_files_of_older_versions_load(tmp_path: Path) -> None:
    npz = save_fit(tmp_path / "fit", *a_fit())
    text = npz.with_suffix(".json")
    description = json.loads(text.read_text())
    for key in ("observed", "pixels", "seconds", "sha256"):
        del description[key]
    former = {"format_version": 3, "sha256_of_npz": hashlib.sha256(npz.read_bytes()).hexdigest()}
    text.write_text(json.dumps(description | former))
    saved = load_fit(npz)
    assert saved.data is saved.pixels is saved.seconds is None
    assert saved.fit.num_steps == 7
