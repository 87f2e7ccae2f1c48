"""Files as count people have them: AnnData's, 10x's, tables, documents; what is said of them; names all the way."""

import argparse
import gzip
import warnings

import h5py
import jax
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from gsnmf import load_data, report
from gsnmf.cli import main
from gsnmf.commands.inputs import describe
from gsnmf.inference import to_arviz
from gsnmf.model import as_data
from gsnmf.parts import read_part
from gsnmf.reading import read_labels, read_matrix
from gsnmf.reading.counts import counts_advice, undo_log1p
from gsnmf.reading.tenx import distinct
from gsnmf.saving import load_fit
from gsnmf.streams import open_named

F, N = 6, 9
GROUPS = np.arange(N) % 3
X = np.random.default_rng(0).poisson(np.where(np.arange(F)[:, None] % 3 == GROUPS[None, :], 9.0, 0.5))
GENES, CELLS = [f"g{n}" for n in range(F)], [f"c{n}" for n in range(N)]
KINDS = [("B", "T", "NK")[c] for c in GROUPS]


@pytest.fixture(autouse=True)
def rank_promotion():
    """NumPyro promotes ranks."""


def write_h5ad(path, form="csr"):
    """A file in AnnData's layout, without anndata."""
    with h5py.File(path, "w") as file:
        if form == "dense":
            file["X"] = X.T
        else:
            rows = getattr(scipy.sparse, f"{form}_array")(X.T.astype(np.float32))
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = f"{form}_matrix", rows.shape
            group["data"], group["indices"], group["indptr"] = rows.data, rows.indices, rows.indptr
        file["layers/log"] = np.log1p(X.T)
        for axis, names in (("obs", CELLS), ("var", GENES)):
            file[f"{axis}/_index"] = [name.encode() for name in names]
            file[axis].attrs["_index"] = "_index"
        kind = file.create_group("obs/cell_type")
        kind["codes"], kind["categories"] = [2 - c for c in GROUPS], [b"NK", b"T", b"B"]
        nullable = file.create_group("obs/plate")
        nullable["values"], nullable["mask"] = GROUPS, np.arange(N) == 4
    return path


def write_tenx(folder, packed=False, extra=0):
    """A folder as CellRanger writes it, with `extra` antibodies after the genes."""
    more = np.vstack([X, np.ones((extra, N), int)])
    scipy.io.mmwrite(folder / "matrix.mtx", scipy.sparse.coo_array(more))
    kinds = ["Gene Expression"] * F + ["Antibody Capture"] * extra
    names = GENES + [f"ab{n}" for n in range(extra)]
    rows = [f"ENSG{n}\t{name}\t{kind}\n" for n, (name, kind) in enumerate(zip(names, kinds, strict=True))]
    (folder / "features.tsv").write_text("".join(rows))
    (folder / "barcodes.tsv").write_text("".join(f"{name}\n" for name in CELLS))
    for file in list(folder.iterdir()) if packed else ():
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


def write_tenx_h5(path, extra=0):
    """One file by CellRanger 3: features × barcodes in compressed columns, with `extra` antibodies before the genes."""
    columns = scipy.sparse.csc_array(np.vstack([np.ones((extra, N), int), X]))
    ids, kinds = [f"ab{n}" for n in range(extra)] + GENES, ["Antibody Capture"] * extra + ["Gene Expression"] * F
    with h5py.File(path, "w") as file:
        for name in ("data", "indices", "indptr"):
            file[f"matrix/{name}"] = getattr(columns, name)
        file["matrix/shape"], file["matrix/barcodes"] = columns.shape, [name.encode() for name in CELLS]
        for name, values in (("id", ids), ("name", ids), ("feature_type", kinds)):
            file[f"matrix/features/{name}"] = [value.encode() for value in values]
    return path


def require_whole(matrix):
    """X with the names of both axes."""
    np.testing.assert_array_equal(matrix.X.toarray() if scipy.sparse.issparse(matrix.X) else matrix.X, X)
    assert (matrix.feature_names, matrix.sample_names) == (GENES, CELLS)


@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_h5ad_is_read_without_anndata(tmp_path, form):
    matrix = read_matrix(write_h5ad(tmp_path / "cells.h5ad", form))
    require_whole(matrix)
    assert matrix.column("cell_type").tolist() == KINDS
    assert matrix.column("plate")[4] is None
    assert matrix.describe().startswith("read 6 features × 9 samples; samples in rows; names of features from var, of ")


def test_raw_has_genes_of_its_own(tmp_path):
    """As many as X has, in another order; or others, which nothing names."""
    with h5py.File(write_h5ad(tmp_path / "cells.h5ad"), "a") as file:
        file["raw/X"], file["raw/var/_index"] = X[::-1].T, [name.encode() for name in GENES[::-1]]
        file["layers/few"] = X[:2].T
    matrix = read_matrix(tmp_path / "cells.h5ad", key="raw/X")
    assert matrix.feature_names == open_named(tmp_path / "cells.h5ad", key="raw/X").feature_names == GENES[::-1]
    assert "names of features from raw/var, of samples from obs" in matrix.describe()
    few = read_matrix(tmp_path / "cells.h5ad", key="layers/few")
    assert (few.feature_names, few.sample_names) == (None, CELLS)
    assert "samples in rows; names of samples from obs" in few.describe()


def test_categories_by_anndata_0_7(tmp_path):
    """Codes, with a reference to categories elsewhere; −1 for missing ones."""
    with h5py.File(write_h5ad(tmp_path / "cells.h5ad"), "a") as file:
        file["obs/__categories/kind"] = [b"B", b"T", b"NK"]
        file["obs/kind"] = np.where(np.arange(N) == 4, -1, GROUPS)
        file["obs/kind"].attrs["categories"] = file["obs/__categories/kind"].ref
    column = read_matrix(tmp_path / "cells.h5ad").column
    assert column("kind").tolist() == [None if n == 4 else kind for n, kind in enumerate(KINDS)]
    with pytest.raises(ValueError, match=r"got cell_type, kind, plate$"):
        column("type")


def write_old(path):
    """A file as anndata wrote it before 0.7: frames are datasets, categories in uns, sparse groups with h5sparse_…."""
    with h5py.File(path, "w") as file:
        file["X"] = np.log1p(X.T)
        rows = scipy.sparse.csr_array(X.T)
        for name in ("data", "indices", "indptr"):
            file[f"raw.X/{name}"] = getattr(rows, name)
        file["raw.X"].attrs.update({"h5sparse_format": "csr", "h5sparse_shape": rows.shape})
        codes = np.where(np.arange(N) == 4, -1, GROUPS)
        kinds = list(zip(CELLS, codes, np.ones(N), strict=True))
        file["obs"] = np.array(kinds, [("index", "S4"), ("kind", "i1"), ("n_counts", "f4")])
        file["var"] = np.array([(name,) for name in GENES[::-1]], [("index", "S4")])
        file["raw.var"] = np.array([(name,) for name in GENES], [("index", "S4")])
        file["uns/kind_categories"] = [b"B", b"T", b"NK"]
    return path


def test_files_from_before_anndata_0_7(tmp_path):
    path = write_old(tmp_path / "cells.h5ad")
    matrix = read_matrix(path, key="raw.X")
    require_whole(matrix)
    assert "names of features from raw.var, of samples from obs" in matrix.describe()
    assert matrix.column("kind").tolist() == [None if n == 4 else kind for n, kind in enumerate(KINDS)]
    assert matrix.column("n_counts").tolist() == [1.0] * N
    with pytest.raises(ValueError, match=r"got kind, n_counts$"):
        matrix.column("type")
    assert read_matrix(path).feature_names == GENES[::-1]


@pytest.mark.parametrize("packed", [True, False])
def test_tenx_folders(tmp_path, packed):
    require_whole(read_matrix(write_tenx(tmp_path, packed)))


def test_tenx_leaves_out_what_is_not_a_gene(tmp_path):
    matrix = read_matrix(write_tenx(tmp_path, extra=2))
    require_whole(matrix)
    assert "2 features other than genes left out" in matrix.describe()


@pytest.mark.parametrize("extra", [0, 2])
def test_tenx_h5_as_a_whole_in_batches_and_in_parts(tmp_path, extra):
    path = write_tenx_h5(tmp_path / "cells.h5", extra)
    require_whole(read_matrix(path))
    opened = open_named(path)
    assert opened.X.shape == X.shape
    require_whole(opened._replace(X=opened.X[:, np.arange(N)]))
    assert ("2 features other than genes left out" in opened.describe()) == (extra == 2)
    parts = [read_part(path, n, 2).matrix for n in range(2)]
    np.testing.assert_array_equal(np.hstack([part.X.toarray() for part in parts]), X)
    assert [name for part in parts for name in part.sample_names] == CELLS
    assert parts[0].feature_names == GENES


def test_gene_symbols_become_distinct_even_if_the_new_name_is_taken():
    assert distinct(["a", "a-1", "a", "a"]) == ["a", "a-1", "a-2", "a-3"]


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, index=GENES, columns=CELLS)
    frame.to_parquet(tmp_path / "index.parquet")
    frame.reset_index(names="gene").to_parquet(tmp_path / "column.parquet")
    for name in ("index", "column"):
        require_whole(read_matrix(tmp_path / f"{name}.parquet"))


@pytest.mark.parametrize("name", ["gene_id", "Unnamed: 0", "GeneID"])
def test_a_first_column_of_parquet_is_names_by_the_rule_of_csv(tmp_path, name):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame({name: [672, 1, 7157], "a": [1, 20, 3], "b": [4, 5, 6], "Unnamed: 3": np.full(3, np.nan)})
    frame.to_parquet(path)
    matrix = read_matrix(path)
    assert (matrix.feature_names, matrix.sample_names) == (["672", "1", "7157"], ["a", "b"])
    assert matrix.how.endswith("of samples from the columns; an empty last column left out")
    assert read_matrix(path, index=False).sample_names == [name, "a", "b"]


def test_whole_numbers_of_parquet_that_may_be_names_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pd.DataFrame({"key": [907, 301, 555], "a": [7, 7, 5]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"to be data or names; got 907, 301, 555, …, .*: --index yes\|no settles it"):
        read_matrix(path)
    assert read_matrix(path, index=False).X.tolist() == [[907, 7], [301, 7], [555, 5]]
    assert read_matrix(path, index=True).feature_names == ["907", "301", "555"]
    pd.DataFrame({"a": [7, 8, 9]}).to_parquet(path)
    assert read_matrix(path).X.tolist() == [[7], [8], [9]]
    with pytest.raises(ValueError, match="got only names of features"):
        read_matrix(path, index=True)


BOTH = "names of features from the first column, of samples from the first row"
SAMPLES = "names of samples from the first row, no names of features"
TABLE = [
    ("gene_id,a,b\n11,1,2\n12,3,4\n", BOTH, [[1, 2], [3, 4]]),
    ("Geneid,a,b\n672,900,2\n1,3,4\n", BOTH, [[900, 2], [3, 4]]),
    ("GeneID,a,b\n672,900,2\n1,3,4\n", BOTH, [[900, 2], [3, 4]]),
    ("Identifier,a,b\n672,900,2\n1,3,4\n", BOTH, [[900, 2], [3, 4]]),
    ("itemA,itemB\n1,2\n3,4\n", SAMPLES, [[1, 2], [3, 4]]),
    ("Unnamed: 0,a,b\n0,1,2\n1,3,4\n", BOTH, [[1, 2], [3, 4]]),
    ("a,b\nx,1,2\ny,3,4\n", BOTH, [[1, 2], [3, 4]]),  # as R writes it
    ("probe_1,probe_2\n1,2\n3,4\n", SAMPLES, [[1, 2], [3, 4]]),
    ("1,2,\n3,4,\n", "no names; an empty last column left out", [[1, 2], [3, 4]]),
    ("gene,a,b\nx,1,2\ny,3,4\n,,\n", f"{BOTH}; an empty last row left out", [[1, 2], [3, 4]]),
    ("1,2,\n3,4,\n,,\n,,\n", "no names; an empty last column and 2 empty last rows left out", [[1, 2], [3, 4]]),
    ("a,b,\n1,2,\n3,4,\n", f"{SAMPLES}; an empty last column left out", [[1, 2], [3, 4]]),
    ("a,b\n1,2,\n3,4,\n", f"{SAMPLES}; an empty last column left out", [[1, 2], [3, 4]]),
    ("gene,a,b\nx,1,2,\ny,3,4,\n", f"{BOTH}; an empty last column left out", [[1, 2], [3, 4]]),
    ("a,b\n1,2,,\n3,4,,\n", f"{SAMPLES}; 2 empty last columns left out", [[1, 2], [3, 4]]),
    ("a,b,,\n1,2,,\n3,4,,\n", f"{SAMPLES}; 2 empty last columns left out", [[1, 2], [3, 4]]),
    ("a,b\n1,7,2\n2,3,4\n", BOTH, [[7, 2], [3, 4]]),  # R's numbers of rows
    ("10x_a,1st\n1,2\n3,4\n", SAMPLES, [[1, 2], [3, 4]]),
    ("2020-01-01,2020-01-02\n1,2\n3,4\n", SAMPLES, [[1, 2], [3, 4]]),
    ("NULL,2\n#N/A,<NA>\n", "no names; 3 missing cells", [[np.nan, 2], [np.nan, np.nan]]),
    (
        "x,1,NA\ny,3,4\n",
        "names of features from the first column, no names of samples; 1 missing cell",
        [[1, np.nan], [3, 4]],
    ),
]


@pytest.mark.parametrize(("text", "how", "values"), TABLE)
def test_what_was_read_is_said(tmp_path, text, how, values):
    (tmp_path / "x.csv").write_text(text)
    matrix = read_matrix(tmp_path / "x.csv")
    assert matrix.describe() == f"read 2 features × 2 samples; {how}"
    np.testing.assert_array_equal(matrix.X, values)


def test_options_settle_what_the_rule_refuses(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("0,1,2\n5,6,7\n8,9,9\n")
    assert read_matrix(path, header=True, index=False).sample_names == ["0", "1", "2"]
    assert read_matrix(path, header=False, index=False).X.shape == (3, 3)
    assert read_matrix(path, header=True, index=True).feature_names == ["5", "8"]


def test_the_line_is_printed_before_a_fit(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("a,b,c\n1,2,\n3,4,5\n")
    assert main(["fit", str(tmp_path / "x.csv"), "--rank", "1", "--max-steps", "2", "--out", str(tmp_path / "f")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        "gsnmf: read 2 features × 3 samples; names of samples from the first row, no names of features; 1 missing cell"
    )


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1\n1.0\n2\n", [1, 1, 2]),
        ("a;b\nb\na\n", [["a", "b"], "b", "a"]),
        ("a; b\nnull\nNone\na\n", [["a", "b"], None, None, "a"]),
        ("2;1.0\n1\n<NA>\n", [[1, 2], 1, None]),
        ("a;b\na;c\nb;c\n", [["a", "b"], ["a", "c"], ["b", "c"]]),
        ("1.1\n1.10\n1.1\n1.10\n", ["1.1", "1.10", "1.1", "1.10"]),
        ("y\nn\ny\nn\n", ["y", "n", "y", "n"]),
        ("y\na\nb\na\n", ["a", "b", "a"]),
        ("123456789012345678\n123456789012345678\n1\n", [123456789012345678, 123456789012345678, 1]),
        (
            "12345678901234567890\n12345678901234567891\n1\n1",
            ["12345678901234567890", "12345678901234567891", "1", "1"],
        ),
    ],
)
def test_labels_by_one_rule(tmp_path, text, labels):
    (tmp_path / "y.txt").write_text(text)
    assert read_labels(tmp_path / "y.txt").tolist() == labels


def test_minus_one_in_a_file_of_labels_is_said_to_be_a_group(tmp_path):
    for text, warned in (("-1\n0\n1\n0\n1\n-1", True), ("-1\n1\n1\n-1", False), ("-1\n-2\n1\n1", False)):
        (tmp_path / "y.txt").write_text(text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert -1 in read_labels(tmp_path / "y.txt").tolist()
        assert [str(warning.message) for warning in caught] == [
            f"-1 in {tmp_path / 'y.txt'} is read as a group: unlabelled samples have NA, or NaN in .npy"
        ] * warned


def test_labels_in_arrays_follow_the_rule():
    ones = np.ones((2, 4))
    assert as_data(ones, [1, 1.0, 2, 2]).names.group.tolist() == [1, 2]
    with pytest.raises(ValueError, match="got a mixture of text and numbers, '1' and 1"):
        as_data(ones, [1, "1", 1, "1"])
    with pytest.raises(ValueError, match=r"written in one way; got '1' and '1\.0'"):
        as_data(ones, ["1", "1.0", "1", "a"])
    with pytest.warns(UserWarning, match="label 'None' is text and counts as a group"):
        as_data(ones, ["None", "a", "a", "None"])
    with pytest.warns(UserWarning, match="20 groups for 20 labelled samples"):
        as_data(np.ones((2, 20)), list(range(20)))


def test_missing_cells_of_a_sparse_matrix_are_counted(tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array([[0, np.nan, 2], [3, 0, np.nan]]))
    assert read_matrix(tmp_path / "x.npz").describe().endswith("4 entries stored, all others 0; 2 missing cells")


def test_documents(tmp_path, capsys):
    rows = ["body,topic", '"red, green red",a', "green blue,b;a", "red red,a", ",NA", "blue green,b"]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    data = load_data(tmp_path / "d.csv", "obs:topic", text="body")
    assert data.names.feature.tolist() == ["blue", "green", "red"]
    assert data.X.to_scipy().toarray().tolist() == [[0, 1, 0, 0, 1], [1, 1, 0, 0, 1], [2, 0, 2, 0, 0]]
    np.testing.assert_array_equal(data.membership, [[1, 0], [0.5, 0.5], [1, 0], [0.5, 0.5], [0, 1]])
    assert load_data(tmp_path / "d.csv", "topic", text="body", max_features=1).names.feature.tolist() == ["red"]
    assert "1 document without any of them" in read_matrix(tmp_path / "d.csv", text="body").describe()


def test_documents_with_commas_at_the_ends_of_lines(tmp_path):
    (tmp_path / "d.csv").write_text("body,topic\nred green,a,\nred green,b,\n")
    assert load_data(tmp_path / "d.csv", "obs:topic", text="body").names.feature.tolist() == ["green", "red"]


@pytest.mark.parametrize("kind", ["h5ad", "10x"])
def test_names_go_all_the_way(tmp_path, kind, capsys):
    """From the file through the fit, its saved form, ArviZ and the report."""
    path, labels = tmp_path / "cells.h5ad", "obs:cell_type"
    if kind == "h5ad":
        write_h5ad(path)
    else:
        path = tmp_path / "10x"
        path.mkdir()
        write_tenx(path)
        (tmp_path / "y.txt").write_text("\n".join(KINDS))
        labels = str(tmp_path / "y.txt")
    out = tmp_path / "fit"
    options = ["--labels", labels, "--per-group", "1", "--max-steps", "30", "--out", str(out)]
    assert main(["fit", str(path), *options]) == 0
    saved = load_fit(out)
    for names in (saved.names, saved.data.names):
        assert names.feature.tolist() == GENES
        assert names.sample.tolist() == CELLS
        assert names.group.tolist() == ["B", "NK", "T"]
    draws = to_arviz(
        saved.fit, saved.data, key=jax.random.key(0), num_samples=3, log_likelihood=None, posterior_predictive=False
    )
    coords = draws["posterior"].coords
    assert (coords["feature"].values.tolist(), coords["sample"].values.tolist()) == (GENES, CELLS)
    page = report(saved.fit, saved.data, widths=False)
    assert all(name in page for name in (*GENES, "c0", "NK"))


def test_as_data_takes_paths(tmp_path):
    data = as_data(write_h5ad(tmp_path / "cells.h5ad"), "cell_type")
    assert data.names.sample.tolist() == CELLS
    assert data.names.group[data.membership.argmax(axis=1)].tolist() == KINDS
    assert data.X.to_scipy().toarray().tolist() == X.tolist()


def test_log_counts_are_noticed_and_undone(tmp_path, capsys):
    scaled = np.log1p(1e4 * X.T / X.T.sum(axis=1, keepdims=True))
    advice = counts_advice(scaled, ["spliced", "counts"], raw=True)
    assert advice.startswith("expected counts; got values that are not whole numbers, the largest ")
    assert advice.endswith(
        "as after log1p: look in layers['counts'], layers['spliced'], adata.raw, or undo log1p by "
        "gsnmf.reading.counts.undo_log1p"
    )
    assert counts_advice(X) is counts_advice(X.astype(float)) is None
    assert "negative" in counts_advice(scaled - 3)
    some = X.T[(X.T == 1).any(axis=1)]
    np.testing.assert_array_equal(undo_log1p(np.log1p(7.7 * some / some.sum(axis=1, keepdims=True))), some)
    with pytest.raises(ValueError, match=r"expected log\(1 \+ s·count\)"):
        undo_log1p(np.array([[0.5, 0.61]]))
    write_h5ad(tmp_path / "cells.h5ad")
    fit = ["fit", str(tmp_path / "cells.h5ad"), "--rank", "1", "--max-steps", "2", "--key", "layers/log"]
    assert main([*fit, "--out", str(tmp_path / "f")]) == 0
    said = capsys.readouterr().err
    assert "gsnmf: warning: expected counts; got values that are not whole numbers" in said
    assert "as after log1p: --key X reads another matrix\n" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "the file has no other matrix"),
        (("raw/X",), "--key raw/X reads another matrix"),
        (("layers/my counts", "raw/X"), "--key 'layers/my counts' or --key raw/X reads another matrix"),
    ],
)
def test_where_counts_may_be(tmp_path, more, message):
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        for place in ("X", *more):
            file[place] = np.log1p(X.T)
    arguments = argparse.Namespace(key=None)
    describe(arguments, read_matrix(tmp_path / "cells.h5ad"), tmp_path / "cells.h5ad")
    assert arguments.said[1].endswith(f"as after log1p: {message}")


def test_results_of_others_are_never_replaced(tmp_path, capsys):
    """`report` and `choose`: neither inputs, even by --force, nor files of others; but their own."""
    table, page, out = tmp_path / "ranks.csv", tmp_path / "page.html", str(tmp_path / "fit")
    pd.DataFrame(X).to_csv(table, index=False, header=False)
    before = table.read_bytes()
    assert main(["fit", str(table), "--rank", "1", "--max-steps", "2", "--out", out, "--without-data"]) == 0
    choose = ["choose", str(table), "--ranks", "1", "--splits", "1", "--restarts", "1", "--max-steps", "2", "--out"]
    for command in (
        ["report", out, "--data", str(table), "--out", str(table)],
        ["report", out, "--data", str(table), "--out", str(table), "--force"],
        [*choose, str(tmp_path), "--force"],
    ):
        assert main(command) == 2
        assert capsys.readouterr().err.endswith(
            f"error: expected to write a file other than the input; got {table} for both\n"
        )
        assert table.read_bytes() == before
    page.write_text("<html>mine</html>")
    (tmp_path / "choice").mkdir()
    (tmp_path / "choice" / "ranks.png").write_text("mine")
    written = ["report", out, "--data", str(table), "--without-widths", "--out", str(page)]
    for command in (written, [*choose, str(tmp_path / "choice")]):
        assert main(command) == 2
        assert "which exists and was not written by gsnmf (--force replaces it)" in capsys.readouterr().err
        assert main([*command, "--force"]) == 0
        assert main(command) == 0  # its own


def test_unsigned_numbers_of_matrix_market(tmp_path):
    X = scipy.sparse.coo_array(np.array([[1, 0], [0, 3]], np.uint32))
    scipy.io.mmwrite(tmp_path / "x.mtx", X)
    assert "unsigned" in (tmp_path / "x.mtx").read_text().splitlines()[0]
    assert read_matrix(tmp_path / "x.mtx").X.toarray().tolist() == [[1, 0], [0, 3]]


def test_zeros_that_are_stored_do_not_become_nan():
    stored = scipy.sparse.csr_array((np.log1p([1.0, 0.0, 3.0]), [0, 1, 2], [0, 3]), shape=(1, 3))
    assert undo_log1p(stored).toarray().tolist() == [[1, 0, 3]]
