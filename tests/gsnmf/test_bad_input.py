"""Bad input, and the one line that each gets: rows of a table, easily added to.

A row has a name, the files it needs (text, bytes, or a function that writes to a path), the words of the command, and
the message, all of it. {f} stands for the folder of the files.
"""

import gzip
import hashlib
import io
import json
import re
import zipfile

import h5py
import numpy as np
import pytest

from gsnmf import __version__
from gsnmf.cli import main
from gsnmf.experiments.results import IDENTITY
from gsnmf.inference import Fit, Posterior
from gsnmf.model import Gamma, Names, Priors
from gsnmf.saving import _checksum, save_fit

COMMANDS = ("choose", "report", "crosscheck", "demo", "figures", "reproduce", "sweep", "")
FIT = ["--rank", "1", "--out", "{f}/out"]
X = "1,2,0\n3,4,5\n6,0,8\n"
MARKET = "%%MatrixMarket matrix coordinate integer general\n"
HEADER = "--header yes|no settles it (header= in read_matrix), and cells that are NA are missing"
INDEX = "--index yes|no settles it (index= in read_matrix), and cells that are NA are missing"
YEARS = "which may be either: --header yes|no settles it (header= in read_matrix)"
SEMICOLONS = (
    "expected commas between columns and decimal points in {f}/x.csv; got '%s', as with semicolons and decimal commas"
)
OTHERS = "which exists and was not written by gsnmf (--force replaces it)"
OWN = f"expected a new file to write, or one that gsnmf wrote; got {{f}}/%s, {OTHERS}"
APPENDED = OWN.replace("--force replaces it", "choose another --out")


def claims(path):
    """A .npy whose header claims 10¹⁴ numbers."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})


def broken_header(path):
    np.save(path, np.ones((2, 2)))
    path.write_bytes(path.read_bytes().replace(b"}", b" "))


def flipped(path):
    """A compressed .npz with a byte of its data changed."""
    np.savez_compressed(path, X=np.arange(4000.0).reshape(40, 100))
    content = bytearray(path.read_bytes())
    content[120] ^= 0xFF
    path.write_bytes(bytes(content))


def sparse_npz(path):
    """A sparse .npz whose row ends do not fit its shape."""
    parts = {"indptr": [0, 1], "indices": [0], "data": [1.0], "shape": [3, 2], "format": b"csr"}
    np.savez(path, **{name: np.asarray(value) for name, value in parts.items()})


def hdf5(**datasets):
    def write(path):
        with h5py.File(path, "w") as file:
            for name, values in datasets.items():
                file[name.replace("__", "/")] = values

    return write


def scattered(path):
    """Compressed rows that do not belong together."""
    with h5py.File(path, "w") as file:
        file["X/data"], file["X/indices"], file["X/indptr"] = [1.0], [0], [0, 5]
        file["X"].attrs["shape"] = (1, 2)


def packed(path):
    path.write_bytes(gzip.compress(f"{MARKET}3 3 900000\n1 1 1\n".encode(), mtime=0))


def twice(path):
    """A table with two columns of one name, which pandas would not write."""
    import pyarrow as pa
    import pyarrow.parquet

    pa.parquet.write_table(pa.Table.from_arrays([pa.array(["a b"])] * 2, names=["body", "body"]), path)


def secret(path):
    """A zip with a member that is said to be encrypted."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("X.npy", b"nothing")
    content = bytearray(buffer.getvalue())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(content))


def saved(npz=lambda content: content, text=lambda content: content):
    """Write a saved fit, its files changed by these functions."""

    def write(path):
        ones = Gamma(np.ones((2, 1)), np.ones((2, 1))), Gamma(np.ones((1, 3)), np.ones((1, 3)))
        fit = Fit(Posterior(*ones, None), np.array([-1.0]), 1, False, "made up", priors=Priors(*ones))
        save_fit(path, fit, None, Names([0, 1], [0, 1, 2], []))
        path.write_bytes(npz(path.read_bytes()))
        path.with_suffix(".json").write_text(text(path.with_suffix(".json").read_text()))

    return write


def signed(change, made=False):
    """Change the description, and sign it again; of a new fit unless one was made."""

    def edit(path):
        if not made:
            saved()(path)
        described = json.loads(path.with_suffix(".json").read_text())
        change(described)
        described["sha256"] = _checksum(path.read_bytes(), described)
        path.with_suffix(".json").write_text(json.dumps(described))

    return edit


def result(change):
    """Return a line of results, changed."""
    row = dict.fromkeys(IDENTITY, 0) | {"dataset": "digits", "method": "nmf_gs", "validation": False}
    return json.dumps(row | {"settings": {"large": 2.0, "rank": 3}, "size": 10, "correct": [3]} | change)


def former(change):
    """Change the description of a fit in format 5, whose checksum is that of the arrays alone."""

    def edit(path):
        saved()(path)
        described = json.loads(path.with_suffix(".json").read_text())
        described.pop("sha256")
        described |= {"format_version": 5, "sha256_of_npz": hashlib.sha256(path.read_bytes()).hexdigest()}
        change(described)
        path.with_suffix(".json").write_text(json.dumps(described))

    return edit


def stored(values):
    """Put other values in the place of T.a, and sign them."""

    def write(path):
        saved()(path)
        with np.load(path) as arrays:
            np.savez(path, **(dict(arrays) | {"posterior.T.a": values}))
        signed(lambda x: None, made=True)(path)

    return write


EDITED = [  # what is edited, how, and what is said
    ("bound", lambda x: x.update(bound=3),
     "expected bound to be one of 'augmented', 'collapsed', 'log_joint'; got 3"),
    ("num_steps", lambda x: x.update(num_steps=None), "expected num_steps to be a whole number ≥ 0; got None"),
    ("converged", lambda x: x.update(converged="no"), "expected converged to be True or False; got 'no'"),
    ("message", lambda x: x.update(message=3), "expected message to be text; got 3"),
    ("seconds", lambda x: x.update(seconds="x"), "expected seconds to be None or a number ≥ 0; got 'x'"),
    ("data", lambda x: x.update(data="x"), "expected data to be a whole number ≥ 0; got 'x'"),
    ("names", lambda x: x["names"]["group"].update(values=None),
     "expected a list of names of the axis group; got None"),
    ("T.a", lambda x: x["posterior"]["T"].update(a=None), "expected real numbers in T.a; got None"),
]  # fmt: skip
ARRAY = lambda values: lambda path: np.save(path, values)  # noqa: E731 (a row of the table calls it)
LABELLED = ["{f}/x.csv", "--labels", "{f}/y.txt", "--out", "{f}/out"]
FILES = {"x.csv": X, "y.txt": "a\na\nb\n"}
CHOOSE = ["choose", "{f}/x.csv", "--out", "{f}"]
CROSS = ["crosscheck", "--out", "{f}"]
SEED = "expected a whole number from 0 to 4294967295; got"
RANKS = "argument --ranks: expected FROM:TO, FROM:TO:STEP or a list as in 2,4,8; got"
DAMAGED = "got contents with SHA-256 {sha}…: one of them is from another fit, was edited or is damaged"

BAD = [
    # Names or data
    ("a hole in the first row", {"x.csv": "1,-,3\n4,5,6\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got '-' next to '3': {HEADER}"),
    ("a separator in the first row", {"x.csv": '1,"1,234",3\n4,5,6\n'}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got '1,234' next to '3': {HEADER}"),
    ("a hole in the first column", {"x.csv": "1,2\n-,4\n5,6\n"}, ["{f}/x.csv", *FIT],
     f"expected the first column of {{f}}/x.csv to hold either names or numbers; got '-' next to '1': {INDEX}"),
    ("a word in the first cell", {"x.csv": "?,2\n3,4\n"}, ["{f}/x.csv", *FIT],
     f"expected the first column of {{f}}/x.csv to hold either names or numbers; got '?' next to '3': {INDEX}"),
    ("no letter in a lonely header", {"x.csv": "-\n3\n4\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got '-': {HEADER}"),
    ("names of samples that are numbers in part", {"x.csv": "a,1,b\n2,3,4\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got 'b' next to '1': {HEADER}"),
    ("a number before names", {"x.csv": "7,a,b\n2,3,4\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got 'a' next to '7': {HEADER}"),
    ("names of features that are numbers in part", {"x.csv": "a,1\n7,2\nb,3\n"}, ["{f}/x.csv", *FIT],
     f"expected the first column of {{f}}/x.csv to hold either names or numbers; got 'a' next to '7': {INDEX}"),
    ("a header of integers", {"x.csv": "0,1,2\n5,6,7\n8,9,9\n"}, ["{f}/x.csv", *FIT],
     "expected the first row of {f}/x.csv to be data or names; got 0, 1, 2, …, which may be either: "
     "--header yes|no settles it (header= in read_matrix)"),
    ("an index without a word for it", {"x.csv": "key,a,b\n1,7,8\n2,7,3\n3,5,5\n"}, ["{f}/x.csv", *FIT],
     "expected the first column of {f}/x.csv to be data or names; got 1, 2, 3, …, which may be either: "
     "--index yes|no settles it (index= in read_matrix)"),
    ("an index of large numbers", {"x.csv": "key,a,b\n907,7,8\n301,7,3\n555,5,5\n"}, ["{f}/x.csv", *FIT],
     "expected the first column of {f}/x.csv to be data or names; got 907, 301, 555, …, which may be either: "
     "--index yes|no settles it (index= in read_matrix)"),
    ("years as a header", {"x.csv": "country,1990,2000,2010\nUS,1,2,3\nFR,4,5,6\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to be data or names; got 1990, 2000, 2010, …, {YEARS}"),
    ("two years above larger numbers", {"x.csv": "country,1990,1995\nUS,9000,3\nFR,4,7000\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to be data or names; got 1990, 1995, …, {YEARS}"),
    ("numbers of samples as a header", {"x.csv": "kind,907,301,555\na,1,2,3\nb,4,5,6\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to be data or names; got 907, 301, 555, …, {YEARS}"),
    ("semicolons and decimal commas", {"x.csv": "name;x\ng1;1,5\ng2;2,5\n"}, ["{f}/x.csv", *FIT],
     SEMICOLONS % "g1;1,5"),
    ("semicolons without a header", {"x.csv": "g1;1,5\ng2;-2,5\n"}, ["{f}/x.csv", *FIT], SEMICOLONS % "g2;-2,5"),
    ("semicolons below a comma", {"x.csv": "n;s1,s2\ng1;1,5\n"}, ["{f}/x.csv", *FIT], SEMICOLONS % "g1;1,5"),
    ("an empty first cell among numbers", {"x.csv": ",9,4\n3,4,5\n"}, ["{f}/x.csv", *FIT],
     "expected names after the empty first cell of {f}/x.csv, or increasing numbers; got 9, 4 in the first row: "
     "--header yes|no and --index yes|no settle it (header= and index= in read_matrix)"),
    ("a comment above numbers", {"x.csv": "# hello\n1,2\n3,4\n"}, ["{f}/x.csv", *FIT],
     "expected names above all 2 columns of {f}/x.csv, or names in the first column; got a header of 1 above 1, 2: "
     "--index yes takes the first column as names (index=True in read_matrix)"),
    ("a short header, though there is none", {"x.csv": "a,b\nx,1,2\n"}, ["{f}/x.csv", *FIT, "--header", "no"],
     "expected 3 columns in every row of {f}/x.csv; got 2 in row 1"),
    ("a short header, though there is no index", {"x.csv": "a,b\nx,1,2\n"}, ["{f}/x.csv", *FIT, "--index", "no"],
     "expected 3 columns in every row of {f}/x.csv; got 2 in row 1"),
    ("separators in the first column", {"x.csv": '"1,234",2,3\n"2,000",4,5\n'}, ["{f}/x.csv", *FIT],
     f"expected the first column of {{f}}/x.csv to hold either names or numbers; got '1,234': {INDEX}"),
    ("percentages in the first row", {"x.csv": "10%,20%\n1,2\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got '20%': {HEADER}"),
    ("limits of detection", {"x.csv": "<5,<5\n1,2\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got '<5': {HEADER}"),
    ("booleans", {"x.csv": "TRUE,FALSE\n1,2\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got 'FALSE': {HEADER}"),
    ("quotes", {"x.csv": "'1','2'\n1,2\n"}, ["{f}/x.csv", *FIT],
     f"expected the first row of {{f}}/x.csv to hold either names or numbers; got \"'2'\": {HEADER}"),
    ("decimal commas", {"x.tsv": "1,5\t2,5\n1,0\t2,0\n"}, ["{f}/x.tsv", *FIT],
     f"expected the first row of {{f}}/x.tsv to hold either names or numbers; got '2,5': {HEADER}"),
    ("--header of another kind", {"x.csv": X}, ["{f}/x.csv", *FIT, "--header", "maybe"],
     "argument --header: expected yes or no; got 'maybe' (see gsnmf fit --help)"),
    ("--header for an array", {"x.npy": lambda path: np.save(path, np.ones((2, 2)))},
     ["{f}/x.npy", *FIT, "--header", "no"], "expected header only for .csv and .tsv; got header=False for x.npy"),
    ("--header no, though it has names", {"x.csv": "a,b\n1,2\n"},
     ["{f}/x.csv", *FIT, "--header", "no", "--index", "no"],
     "expected a number in row 1, column 1 of {f}/x.csv; got 'a'"),
    ("only names of features", {"x.csv": "a\nb\n"}, ["{f}/x.csv", *FIT, "--index", "yes", "--header", "no"],
     "expected columns of numbers in {f}/x.csv; got only names of features"),
    ("an underscore in a number", {"x.csv": "1,2\n3,1_000\n"}, ["{f}/x.csv", *FIT],
     "expected a number in row 2, column 2 of {f}/x.csv; got '1_000'"),
    # Damaged or false files
    ("a flipped byte", {"x.npz": flipped}, ["{f}/x.npz", *FIT],
     "expected a NumPy file of numbers or text in {f}/x.npz; got compressed data that are damaged"),
    ("a header that claims too much", {"x.npy": claims}, ["{f}/x.npy", *FIT],
     "expected a NumPy file of numbers or text in {f}/x.npy; got a header that claims 100,000,000,000,000 values in "
     "128 bytes"),
    ("MatrixMarket that claims too much", {"x.mtx": f"{MARKET}3 3 99999999999\n1 1 1\n"}, ["{f}/x.mtx", *FIT],
     "expected a sparse matrix in {f}/x.mtx; got a header that claims 99,999,999,999 entries in 71 bytes"),
    ("MatrixMarket that is too large", {"x.mtx": f"{MARKET}3000000000 3 1\n1 1 1\n"}, ["{f}/x.mtx", *FIT],
     "expected a sparse matrix in {f}/x.mtx; got a header that claims 3,000,000,000 × 3, more than 2³¹ along an axis"),
    ("a line of MatrixMarket that ends SciPy's process", {"x.mtx": f"{MARKET}2 2 2\n1 1 1\n2 2 1e\n"},
     ["{f}/x.mtx", *FIT], "expected a sparse matrix in {f}/x.mtx; got '2 2 1e' in line 4"),
    ("MatrixMarket without its first line", {"x.mtx": "2 2 1\n1 1 1\n"}, ["{f}/x.mtx", *FIT],
     "expected a sparse matrix in {f}/x.mtx; got a first line '2 2 1'"),
    ("packed MatrixMarket that claims too much", {"x.mtx.gz": packed}, ["{f}/x.mtx.gz", *FIT],
     "expected a sparse matrix in {f}/x.mtx.gz; got a header that claims 900,000 entries in 78 bytes"),
    ("an encrypted .npz", {"x.npz": secret}, ["{f}/x.npz", *FIT],
     "expected a NumPy file of numbers or text in {f}/x.npz; got an encrypted archive"),
    ("a sparse .npz that does not fit together", {"x.npz": sparse_npz}, ["{f}/x.npz", *FIT],
     "expected a sparse matrix in {f}/x.npz; got indices and row ends that do not belong together"),
    ("a line instead of a matrix", {"x.npy": lambda path: np.save(path, np.ones(3))}, ["{f}/x.npy", *FIT],
     "expected a matrix, features × samples, in {f}/x.npy; got shape (3,)"),
    ("text instead of HDF5", {"x.h5ad": "no"}, ["{f}/x.h5ad", *FIT],
     "expected an HDF5 file in {f}/x.h5ad; got another kind of file, or a damaged one"),
    ("HDF5 without a matrix", {"x.h5": hdf5(a=[1], b=[2])}, ["{f}/x.h5", *FIT],
     "expected one matrix in {f}/x.h5, or the one called X; got a, b"),
    ("a place that is not in the file", {"x.h5ad": hdf5(X=np.ones((2, 2)))}, ["{f}/x.h5ad", *FIT, "--key", "layers/c"],
     "expected 'layers/c' in {f}/x.h5ad; got X"),
    ("an .npy with a damaged header", {"x.npy": broken_header}, ["{f}/x.npy", *FIT],
     "expected a NumPy file of numbers or text in {f}/x.npy; got a header that is damaged"),
    ("text in HDF5", {"x.h5": hdf5(X=[[b"a"]])}, ["{f}/x.h5", *FIT],
     "expected a matrix of real numbers in {f}/x.h5; got object of shape (1, 1)"),
    ("rows that do not belong together", {"x.h5ad": scattered}, ["{f}/x.h5ad", *FIT],
     "expected compressed rows of 1 samples; got 2 row ends for 1 values that do not belong together"),
    ("a parquet that is none", {"x.parquet": "no"}, ["{f}/x.parquet", *FIT],
     "expected a parquet file in {f}/x.parquet; got another kind of file, or a damaged one"),
    ("a folder that is not 10x's", {"d/a.txt": ""}, ["{f}/d", *FIT],
     "expected a file ending in .npy, .npz, .csv, .tsv, .mtx, .mtx.gz, .parquet, .h5ad, .h5, .hdf5, .zarr, or a folder "
     "with 10x's matrix.mtx; got {f}/d"),
    ("10x without barcodes", {"d/matrix.mtx": f"{MARKET}1 2 1\n1 1 3\n", "d/genes.tsv": "i\tn\n"}, ["{f}/d", *FIT],
     "expected barcodes.tsv, perhaps with .gz, in {f}/d; got none"),
    ("10x with too few genes",
     {"d/matrix.mtx": f"{MARKET}2 1 1\n1 1 3\n", "d/genes.tsv": "i\tn\n", "d/barcodes.tsv": "b\n"},
     ["{f}/d", *FIT], "expected 2 features in {f}/d, as the matrix has; got 1"),
    ("a fit called as checkpoints are", FILES, ["{f}/x.csv", "--rank", "1", "--out", "{f}/a.checkpoint.npz"],
     "expected another name for --out: {f}/a.checkpoint.npz is that of the checkpoint of {f}/a.npz"),
    ("two sets with one name", FILES | {"s.json": '{"a": ["g1"], "a": ["g2"]}'},
     ["{f}/x.csv", *FIT, "--seeds", "{f}/s.json"],
     "expected sets with distinct names in {f}/s.json; got 'a' twice"),
    ("a fit below the folder that is read", {"d/matrix.mtx": f"{MARKET}1 1 1\n1 1 3\n"},
     ["{f}/d", "--rank", "1", "--out", "{f}/d/below/out"],
     "expected files to write outside the folder that is read; got {f}/d/below/out.npz in {f}/d"),
    ("a fit into the folder that is read", {"d/matrix.mtx": f"{MARKET}1 1 1\n1 1 3\n"},
     ["{f}/d", "--rank", "1", "--out", "{f}/d/out"],
     "expected files to write outside the folder that is read; got {f}/d/out.npz in {f}/d"),
    # Documents
    ("no such column of text", {"d.csv": "body,topic\na b,x\n"}, ["{f}/d.csv", "--text", "words", *FIT],
     "expected a column 'words' in {f}/d.csv; got body, topic"),
    ("documents without frequent terms", {"d.csv": "body\nab\ncd\n"}, ["{f}/d.csv", "--text", "body", *FIT],
     "expected terms that occur in at least 2 documents in column 'body' of {f}/d.csv; got 2 documents (After pruning, "
     "no terms remain. Try a lower min_df or a higher max_df.)"),
    ("two columns of text of one name", {"d.csv": "body,body\na b,c d\na b,c d\n"},
     ["{f}/d.csv", "--text", "body", *FIT], "expected one column 'body' in {f}/d.csv; got 2"),
    ("two columns of labels of one name", {"d.tsv": "body\tt\tt\nred\tx\ty\nred\tx\ty\n"},
     ["{f}/d.tsv", "--text", "body", "--labels", "obs:t", *FIT], "expected one column 't' in {f}/d.tsv; got 2"),
    ("two columns of text of one name, in .parquet", {"d.parquet": twice},
     ["{f}/d.parquet", "--text", "body", *FIT],
     "expected columns of distinct names in {f}/d.parquet; got several of one name"),
    ("documents in an array", {"d.npy": "x"}, ["{f}/d.npy", "--text", "body", *FIT],
     "expected a table of documents ending in .csv, .tsv, .parquet; got {f}/d.npy"),
    ("--min-df without documents", {"x.csv": X}, ["{f}/x.csv", "--min-df", "3", *FIT],
     "expected min_df only for documents (text=); got min_df=3 for x.csv"),
    ("--min-df of nothing", {"d.csv": "body\na\n"}, ["{f}/d.csv", "--text", "body", "--min-df", "0", *FIT],
     "expected min_df to be a whole number ≥ 1; got 0"),
    # Labels
    ("a label of its own for each sample", {"x.csv": X, "y.txt": "a\nb\nc\n"},
     ["{f}/x.csv", "--labels", "{f}/y.txt", "--out", "{f}/out"],
     "expected labels that several samples share in {f}/y.txt; got 3 labels for 3 labelled samples ('a', 'b', 'c', …): "
     "are these names of samples?"),
    ("one number in two ways among words", {"x.csv": X, "y.txt": "1\n1.0\na\n"},
     ["{f}/x.csv", "--labels", "{f}/y.txt", "--out", "{f}/out"],
     "expected a label to be written in one way; got '1' and '1.0' (make them numbers)"),
    ("one number with and without a zero", {"x.csv": X, "y.txt": "1\n01\na\n"}, LABELLED,
     "expected a label to be written in one way; got '01' and '1' (make them numbers)"),
    ("one number with and without an exponent", {"x.csv": X, "y.txt": "1\n1e0\n1\n"}, LABELLED,
     "expected a label to be written in one way; got '1' and '1e0' (make them numbers)"),
    ("names of samples, a semicolon and labels", {"x.csv": X, "y.txt": "s0;a\ns1;b\ns2;a\n"}, LABELLED,
     "expected labels that several samples share in {f}/y.txt; got 5 labels for 3 labelled samples ('a', 's0', 'b', "
     "…): are these names of samples? (a semicolon separates labels of one sample: leave out all but the labels)"),
    ("a known and an unknown label of one sample", {"x.csv": X, "y.txt": "a;NA\nb\na\n"}, LABELLED,
     "expected known labels where a sample has several in {f}/y.txt; got 'a;NA'"),
    ("labels that are not UTF-8", {"x.csv": X, "y.npy": ARRAY(np.array([b"a", b"\xff", b"a"]))},
     ["{f}/x.csv", "--labels", "{f}/y.npy", "--out", "{f}/out"],
     "expected labels in {f}/y.npy to be text in UTF-8; got 'utf-8' codec can't decode byte 0xff in position 0: "
     "invalid start byte"),
    ("labels that are all missing", {"x.csv": X, "y.txt": "null\nNone\n<NA>\n"},
     ["{f}/x.csv", "--labels", "{f}/y.txt", "--out", "{f}/out"],
     "expected one label per line in {f}/y.txt, some of them known; got 3 unlabelled"),
    ("a column of a file without columns", {"x.csv": X}, ["{f}/x.csv", "--labels", "obs:kind", "--out", "{f}/out"],
     "expected a file of labels, as x.csv has no columns with values of samples; got 'obs:kind'"),
    ("no such column of obs", {"x.h5ad": hdf5(X=np.ones((2, 2)), obs__kind=[1, 1])},
     ["{f}/x.h5ad", "--labels", "obs:type", "--out", "{f}/out"],
     "expected a column 'type' in the obs of {f}/x.h5ad; got kind"),
    # Sizes
    ("too many numbers of components", {"x.csv": X}, ["choose", "{f}/x.csv", "--ranks", "1:100000000000"],
     "argument --ranks: expected at most 1000 numbers of components to try; got '1:100000000000' (see gsnmf choose "
     "--help)"),
    ("--header with several processes", {"x.csv": X}, ["{f}/x.csv", *FIT, "--distributed", "--header", "no"],
     "expected no --header with --distributed, which reads X; got --header"),
    ("--header with a stream", {"x.csv": X}, ["{f}/x.csv", *FIT, "--stream", "--header", "no"],
     "expected no --header with --stream, where it has no effect; got --header"),
    # Files that cannot be written
    ("a fit where a folder is", {"x.csv": X, "out.json/a": "1"}, ["{f}/x.csv", *FIT],
     "expected a file to write; got the folder {f}/out.json"),
    ("a name that is too long", {"x.csv": X}, ["{f}/x.csv", "--rank", "1", "--out", f"{{f}}/{'a' * 250}"],
     "expected a shorter name of a file to write; got one of 254 characters"),
    ("a page that is not .html", {"fit.npz": saved()}, ["report", "{f}/fit.npz", "--out", "{f}/r.txt"],
     "expected --out to end in .html; got {f}/r.txt"),
    ("a page that is a folder", {"fit.npz": saved()}, ["report", "{f}/fit.npz", "--out", "{f}"],
     "expected --out to name a file; got the folder {f}"),
    # Files of others
    ("a picture over the input", {"p/bound.png": X}, ["{f}/p/bound.png", *FIT, "--plots", "{f}/p"],
     "expected to write a file other than the input; got {f}/p/bound.png for both"),
    ("a fit over its input", {"x.npz": lambda path: np.savez(path, X=np.ones((2, 2)))},
     ["{f}/x.npz", "--rank", "1", "--out", "{f}/x", "--force"],
     "expected to write a file other than the input; got {f}/x.npz for both"),
    ("a fit over another's json", {"x.csv": X, "out.json": "{}"}, ["{f}/x.csv", *FIT], OWN % "out.json"),
    ("a fit over another's npz", {"x.csv": X, "out.npz": lambda path: np.savez(path, a=1)}, ["{f}/x.csv", *FIT],
     OWN % "out.npz"),
    ("a picture over another's", {"x.csv": X, "bound.png": "mine"}, ["{f}/x.csv", *FIT, "--plots", "{f}"],
     OWN % "bound.png"),
    ("choose over another's table", FILES | {"ranks.csv": "a,b\n"}, [*CHOOSE, "--ranks", "1"], OWN % "ranks.csv"),
    ("choose over another's journal", FILES | {"ranks.checkpoint.jsonl": '{"a": 1}\n'}, [*CHOOSE, "--ranks", "1"],
     APPENDED % "ranks.checkpoint.jsonl"),
    ("another's journal, by force", FILES | {"ranks.checkpoint.jsonl": '{"a": 1}\n'},
     [*CHOOSE, "--ranks", "1", "--force"], "expected {f}/ranks.checkpoint.jsonl to hold pieces of a run that gsnmf "
     "resumes; got the line b'{{\"a\": 1}}'"),
    ("choose over its input", {"ranks.csv": X}, ["choose", "{f}/ranks.csv", "--ranks", "1", "--out", "{f}", "--force"],
     "expected to write a file other than the input; got {f}/ranks.csv for both"),
    ("crosscheck over another's table", {"crosscheck.csv": "mine"}, CROSS, OWN % "crosscheck.csv"),
    ("crosscheck over another's json", {"crosscheck.json": "{}"}, CROSS, OWN % "crosscheck.json"),
    ("crosscheck over another's picture", {"forest.png": "mine"}, CROSS, OWN % "forest.png"),
    ("crosscheck over its input", {"crosscheck.csv": X},
     ["crosscheck", "{f}/crosscheck.csv", "--rank", "1", "--out", "{f}", "--force"],
     "expected to write a file other than the input; got {f}/crosscheck.csv for both"),
    ("demo over another's picture", {"bound.png": "mine"}, ["demo", "--out", "{f}"], OWN % "bound.png"),
    ("demo of labels over another's picture", {"reliability.png": "mine"},
     ["demo", "--labels", "0.5", "--out", "{f}"], OWN % "reliability.png"),
    ("figures over another's picture", {"digits_hinton.pdf": "mine"}, ["figures", "digits", "--out", "{f}"],
     OWN % "digits_hinton.pdf"),
    ("figures over another's montage", {"all.svg": "mine"},
     ["figures", "digits", "--out", "{f}", "--montage", "{f}/all.svg"], OWN % "all.svg"),
    ("reproduce over another's lines", {"a.jsonl": "dear diary\n"}, ["reproduce", "digits", "--out", "{f}/a.jsonl"],
     APPENDED % "a.jsonl"),
    ("reproduce over another's lines, by force", {"a.jsonl": "dear diary\n"},
     ["reproduce", "digits", "--out", "{f}/a.jsonl", "--force"],
     "expected {f}/a.jsonl to hold results of `gsnmf reproduce` or `gsnmf sweep`; got the line b'dear diary'"),
    ("sweep over another's picture", {"a_accuracy.pdf": "mine"}, ["sweep", "digits", "--out", "{f}/a.jsonl"],
     OWN % "a_accuracy.pdf"),
    ("report over another's page", {"fit.npz": saved(), "fit.html": "mine"}, ["report", "{f}/fit.npz"],
     OWN % "fit.html"),
    ("report over the fit itself", {"fit.npz": saved()}, ["report", "{f}/fit", "--out", "{f}/fit.json", "--force"],
     "expected --out to name a file other than the fit's own files; got {f}/fit.json"),
    ("a checkpoint that is another file", {"x.csv": X, "out.checkpoint.npz": "no"}, ["{f}/x.csv", *FIT],
     "expected a checkpoint in {f}/out.checkpoint.npz; got another kind of file, or a damaged one (remove it, or "
     "choose another --out)"),
    # Saved fits
    ("a fit that is not there", {}, ["report", "{f}/fit"],
     "expected a saved fit in {f}/fit.npz and fit.json; got no file {f}/fit.npz"),
    ("half of a fit", {"fit.npz": b"arrays"}, ["report", "{f}/fit.npz"],
     "expected a saved fit in {f}/fit.npz and fit.json; got no file {f}/fit.json"),
    ("a fit without its arrays", {"fit.npz": saved(npz=lambda content: b"")}, ["report", "{f}/fit.npz"],
     f"expected {{f}}/fit.npz and fit.json as they were saved; {DAMAGED}"),
    ("a fit with a flipped byte", {"fit.npz": saved(npz=lambda x: x[:90] + bytes([x[90] ^ 1]) + x[91:])},
     ["report", "{f}/fit.npz"], f"expected {{f}}/fit.npz and fit.json as they were saved; {DAMAGED}"),
    ("an edited description", {"fit.npz": saved(text=lambda x: x.replace("made up", "made down"))},
     ["report", "{f}/fit.npz"], f"expected {{f}}/fit.npz and fit.json as they were saved; {DAMAGED}"),
    ("a description that is not JSON", {"fit.npz": saved(text=lambda x: "{")}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to be JSON written by save_fit; got Expecting property name enclosed in double quotes: "
     "line 1 column 2 (char 1)"),
    ("a description that is too deep", {"fit.npz": saved(text=lambda x: "[" * 100_000)}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to be JSON written by save_fit; got maximum recursion depth exceeded while decoding a JSON "
     "array from a unicode string"),
    ("a description that is a list", {"fit.npz": saved(text=lambda x: "[]")}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to have format 'gsnmf-fit'; got 'list'"),
    ("a description of another kind", {"fit.npz": saved(text=lambda x: '{"format": "x"}')}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to have format 'gsnmf-fit'; got 'x'"),
    ("a description of a later version", {"fit.npz": signed(lambda x: x.update(format_version=99))},
     ["report", "{f}/fit.npz"], "expected {f}/fit.json in format version 7 or older; got 99, written by gsnmf "
     f"{__version__} (this is {__version__})"),
    ("a version that is text", {"fit.npz": signed(lambda x: x.update(format_version="6"))}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json in format version 7 or older; got '6', written by gsnmf "
     f"{__version__} (this is {__version__})"),
    ("a description without a posterior", {"fit.npz": signed(lambda x: x.pop("posterior"))}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to describe the arrays of fit.npz; got KeyError('posterior')"),
    ("a description of an unknown family", {"fit.npz": signed(lambda x: x["posterior"].update(family="os.system"))},
     ["report", "{f}/fit.npz"], "expected {f}/fit.json to describe the arrays of fit.npz; got KeyError('os.system')"),
    ("a description with too few names", {"fit.npz": signed(lambda x: x["names"]["sample"].update(values=[1]))},
     ["report", "{f}/fit.npz"], "expected {f}/fit.json to describe the arrays of fit.npz; got ValueError('factors of "
     "shapes [(2, 1), (1, 3)] for 2 names of features and 1 of samples')"),
    *((f"a fit edited: {name}", {"fit.npz": signed(change)}, ["report", "{f}/fit.npz"],
       f"expected {{f}}/fit.json to describe the arrays of fit.npz; got ValueError({said!r})")
      for name, change, said in EDITED),
    *((f"{name} of a fit that is {said}", {"fit.npz": stored(values)}, ["report", "{f}/fit.npz"],
       f"expected {{f}}/fit.json to describe the arrays of fit.npz; got ValueError({message!r})")
      for name, said, values, message in [
          ("T.a", "complex", np.ones((2, 1), complex), "expected real numbers in T.a; got complex128"),
          ("T.a", "negative", -np.ones((2, 1)), "expected T.a to be positive; got -1.0"),
          ("T.a", "not a number", np.full((2, 1), np.nan), "expected numbers in T.a; got NaN"),
      ]),
    ("a fit of an older format, edited", {"fit.npz": former(lambda x: x.update(bound=3))}, ["report", "{f}/fit.npz"],
     "expected {f}/fit.json to describe the arrays of fit.npz; got ValueError(\"expected bound to be one of "
     "'augmented', 'collapsed', 'log_joint'; got 3\")"),
    ("a fit without its data", {"fit.npz": saved()}, ["report", "{f}/fit.npz"],
     "expected --data FILE, as {f}/fit.npz was saved without its data; got none"),
    ("data of another shape", FILES | {"fit.npz": saved()}, ["report", "{f}/fit.npz", "--data", "{f}/x.csv"],
     "expected --data of 2 features × 3 samples; got (3, 3)"),
    ("labels without data", {"fit.npz": saved()}, ["report", "{f}/fit.npz", "--labels", "{f}/y.txt"],
     "expected --data with --labels; got none"),
    ("a resumed stream that is none", FILES | {"out.npz": saved()}, ["{f}/x.csv", *FIT, "--stream", "--resume"],
     "expected --out to name a saved stream to resume; got another fit in {f}/out.npz"),
    # Values of X
    ("a negative count", {"x.csv": "1,-2\n3,4\n"}, ["{f}/x.csv", *FIT],
     "expected X to be nonnegative; got a minimum of -2.0"),
    ("an infinite count", {"x.csv": "1,inf\n3,4\n"}, ["{f}/x.csv", *FIT],
     "expected X to be finite; got inf at feature 0, sample 1 (1 entries are not finite)"),
    ("nothing observed", {"x.csv": "NA,NA\nNA,NA\n"}, ["{f}/x.csv", *FIT],
     "expected at least one observed entry of X; got 4 hidden entries"),
    ("an empty table", {"x.csv": ""}, ["{f}/x.csv", *FIT], "expected rows of values in {f}/x.csv; got an empty file"),
    ("rows of different lengths", {"x.csv": "1,2\n3\n"}, ["{f}/x.csv", *FIT],
     "expected 2 columns in every row of {f}/x.csv; got 1 in row 2"),
    ("bytes that are not text", {"x.csv": b"\xff\xfe\x00"}, ["{f}/x.csv", *FIT],
     "expected {f}/x.csv to be text in UTF-8; got 'utf-8' codec can't decode byte 0xff in position 0: invalid start "
     "byte"),
    ("complex numbers", {"x.npy": ARRAY(np.ones((2, 2), complex))}, ["{f}/x.npy", *FIT],
     "expected real numbers in {f}/x.npy; got dtype complex128"),
    ("objects", {"x.npy": ARRAY(np.array([{}], object))}, ["{f}/x.npy", *FIT],
     "expected a NumPy file of numbers or text in {f}/x.npy; got Object arrays cannot be loaded when "
     "allow_pickle=False"),
    ("no feature", {"x.npy": ARRAY(np.ones((0, 3)))}, ["{f}/x.npy", *FIT],
     "expected X with at least one feature and one sample; got shape (0, 3)"),
    ("several arrays", {"x.npz": lambda path: np.savez(path, a=np.ones((2, 2)), b=np.ones((2, 2)))},
     ["{f}/x.npz", *FIT], "expected one array, or one called X, in {f}/x.npz; got a, b"),
    ("an entry outside of MatrixMarket's shape", {"x.mtx": f"{MARKET}2 2 1\n3 1 1\n"}, ["{f}/x.mtx", *FIT],
     "expected a sparse matrix in {f}/x.mtx; got Line 3: Row index out of bounds"),
    ("no such file", {}, ["{f}/x.csv", *FIT], "expected a file; got {f}/x.csv, which does not exist"),
    # Options of a fit
    ("no --out", FILES, ["{f}/x.csv", "--rank", "1"],
     "the following arguments are required: --out (see gsnmf fit --help)"),
    ("--out without a name", FILES, ["{f}/x.csv", "--rank", "1", "--out", "."],
     "expected the name of a file; got '.'"),
    ("--out of two dots", FILES, ["{f}/x.csv", "--rank", "1", "--out", ".."],
     "expected the name of a file; got '..'"),
    ("pictures below the fit", FILES, ["{f}/x.csv", "--rank", "1", "--out", "{f}/a", "--plots", "{f}/a.npz/b"],
     "expected --plots to name a folder other than the fit's own files; got {f}/a.npz/b"),
    ("pictures over the fit", FILES, ["{f}/x.csv", "--rank", "1", "--out", "{f}/a", "--plots", "{f}/a.npz"],
     "expected --plots to name a folder other than the fit's own files; got {f}/a.npz"),
    ("no rank, no labels", FILES, ["{f}/x.csv", "--out", "{f}/out"],
     "expected --labels FILE, or --rank K for a model without groups; got neither"),
    ("a rank of 0", FILES, ["{f}/x.csv", "--rank", "0", "--out", "{f}/out"],
     "expected rank to be a whole number ≥ 1; got 0"),
    ("a rank that is not whole", FILES, ["{f}/x.csv", "--rank", "1.5", "--out", "{f}/out"],
     "argument --rank: invalid int value: '1.5' (see gsnmf fit --help)"),
    ("a negative seed", FILES, ["{f}/x.csv", *FIT, "--seed", "-1"],
     f"argument --seed: {SEED} '-1' (see gsnmf fit --help)"),
    ("a seed of more than 32 bits", FILES, ["{f}/x.csv", *FIT, "--seed", "4294967296"],
     f"argument --seed: {SEED} '4294967296' (see gsnmf fit --help)"),
    ("a tolerance that is not a number", FILES, ["{f}/x.csv", *FIT, "--tol", "nan"],
     "expected tol to be None or a number ≥ 0; got nan"),
    ("more sweeps than are counted", FILES, ["{f}/x.csv", *FIT, "--max-steps", "99999999999"],
     "expected max_steps to be at most 2147483647; got 99999999999"),
    ("no sweep", FILES, ["{f}/x.csv", *FIT, "--max-steps", "0"], "expected max_steps to be a whole number ≥ 1; got 0"),
    ("no period", FILES, ["{f}/x.csv", *FIT, "--checkpoint-every", "nan"],
     "expected --checkpoint-every to be a number of seconds; got nan"),
    ("a shape of 0", FILES, ["{f}/x.csv", *FIT, "--a-t", "0"],
     "expected dictionary.a to be positive and finite in float64; got 0."),
    ("an infinite scale", FILES, ["{f}/x.csv", *FIT, "--b-t", "inf"],
     "expected dictionary.b to be positive and finite in float64; got inf"),
    ("a scale of λ that is 0", FILES, [*LABELLED, "--scale", "0"], "expected scale to be a positive number; got 0.0"),
    ("a negative number of common components", FILES, [*LABELLED, "--common", "-1"],
     "expected num_common to be a whole number ≥ 0; got -1"),
    ("shapes in place of fractions", FILES, [*LABELLED, "--small", "32"],
     "expected --small to be a fraction of a sample's counts, below 1; got 32 (for shapes of λ add --prior paper)"),
    ("two ways to say the rank", FILES, [*LABELLED, "--rank", "2", "--per-group", "1"],
     "expected --per-group or --rank; got both"),
    ("too few labels", FILES | {"y.txt": "a\nb\n"}, LABELLED,
     "expected one label for each of the 3 samples in {f}/y.txt; got 2"),
    ("labels of features", {"x.csv": "1,2\n3,4\n6,0\n", "y.txt": "a\na\nb\n"}, LABELLED,
     "expected one label for each of the 2 samples in {f}/y.txt; got 3, as many as features: transpose the matrix?"),
    ("labels from a variable that is not set", FILES, ["{f}/x.csv", "--labels", "", "--out", "{f}/out"],
     "argument --labels: expected the name of a file or folder; got '' (see gsnmf fit --help)"),
    ("a matrix from a variable that is not set", {}, ["choose", "", "--ranks", "1", "--out", "{f}"],
     "argument FILE: expected the name of a file or folder; got '' (see gsnmf choose --help)"),
    ("an entry below empty lines", {"x.csv": "1,2\n\n3,4\n\n5,z\n"}, ["{f}/x.csv", *FIT],
     "expected a number in row 5, column 2 of {f}/x.csv; got 'z'"),
    ("a short row below a header and an empty line", {"x.csv": "gene,a,b\n\ng1,1,2\ng2,3\n"}, ["{f}/x.csv", *FIT],
     "expected 3 columns in every row of {f}/x.csv; got 2 in row 4"),
    ("a short row below a cell of two lines", {"x.csv": 'g,a,b\n"x\ny",1,2\nz,3\n'}, ["{f}/x.csv", *FIT],
     "expected 3 columns in every row of {f}/x.csv; got 2 in row 4"),
    ("labels for another number of samples, in a stream",
     {"x.npy": lambda path: np.save(path, np.ones((2, 3))), "y.txt": "a\na\n"},
     ["{f}/x.npy", "--labels", "{f}/y.txt", "--stream", "--out", "{f}/out"],
     "expected one label for each of the 3 samples in {f}/y.txt; got 2, as many as features: transpose the matrix?"),
    ("one entry held out", FILES, [*CHOOSE, "--ranks", "1", "--splits", "1", "--share", "0.01"],
     "expected share and the splits to hide at least 2 entries; got 1 with share=0.01"),
    ("entries below double precision", {"x.csv": "0,1e-310\n1e-311,0\n"}, ["{f}/x.csv", *FIT],
     "expected X above 2.2e-308, the smallest number at this precision; got 1e-310 at most"),
    ("entries whose sum is near the end of double precision", {"x.csv": "1e306,1\n1e304,2\n"}, ["{f}/x.csv", *FIT],
     "expected entries of X that add up to 2.5e+305 at most at this precision; got 1.0e+306"),
    ("an empty file of labels", FILES | {"y.txt": ""}, LABELLED,
     "expected one label per line in {f}/y.txt, some of them known; got 0 unlabelled"),
    ("labels that are learned by sample", FILES, [*LABELLED, "--learn-coefficients", "sample"],
     "expected λ to be learned by 'all', 'component' or 'group'; got 'sample'"),
    ("images of another size", FILES, ["{f}/x.csv", *FIT, "--image-shape", "2x2"],
     "expected --image-shape with 3 pixels; got 2x2"),
    ("a size that is none", FILES, ["{f}/x.csv", *FIT, "--image-shape", "0x3"],
     "argument --image-shape: expected HxW, as in 112x92; got '0x3' (see gsnmf fit --help)"),
    ("--strength without sets", FILES, ["{f}/x.csv", *FIT, "--strength", "2"],
     "expected --seeds with --strength; got none"),
    ("sets that are not there", FILES, ["{f}/x.csv", *FIT, "--seeds", "{f}/s.gmt"],
     "expected a file with sets of features; got {f}/s.gmt (No such file or directory)"),
    ("sets without features", FILES | {"s.gmt": "x\n"}, ["{f}/x.csv", *FIT, "--seeds", "{f}/s.gmt"],
     "expected name, description and features by tab in {f}/s.gmt; got line 1, 'x'"),
    ("sets of unknown features", FILES | {"s.json": '{"s": ["zzz"]}'}, ["{f}/x.csv", *FIT, "--seeds", "{f}/s.json"],
     "expected the set 's' to name features of X, such as 0, 1, 2; got ['zzz']"),
    ("an option of processes alone", FILES, ["{f}/x.csv", *FIT, "--process", "0"],
     "expected --distributed with --process; got none"),
    ("pictures by several processes", FILES,
     ["{f}/x.csv", *FIT, "--distributed", "--plots", "{f}/p"],
     "expected --plots without --distributed; got both (gsnmf report draws a saved fit)"),
    ("two kinds of large data", FILES, ["{f}/x.csv", *FIT, "--stream", "--distributed"],
     "expected --stream or --distributed; got both"),
    ("no pass", FILES, ["{f}/x.csv", *FIT, "--stream", "--passes", "0"],
     "expected --passes to be a whole number ≥ 1; got 0"),
    ("an empty batch", FILES, ["{f}/x.csv", *FIT, "--stream", "--batch-size", "0"],
     "expected --batch-size to be a whole number ≥ 1; got 0"),
    ("an option that is unknown", FILES, ["{f}/x.csv", *FIT, "--ranks", "2"],
     "unrecognized arguments: --ranks 2 (see gsnmf --help)"),
    # Other commands
    ("ranks that fall", FILES, [*CHOOSE, "--ranks", "5:2"], f"{RANKS} '5:2' (see gsnmf choose --help)"),
    ("ranks without an end", FILES, [*CHOOSE, "--ranks", "2:"], f"{RANKS} '2:' (see gsnmf choose --help)"),
    ("no split", FILES, [*CHOOSE, "--ranks", "1", "--splits", "0"],
     "expected num_splits to be a whole number ≥ 1; got 0"),
    ("stability of one restart", FILES, [*CHOOSE, "--ranks", "1", "--restarts", "1", "--stability"],
     "expected restarts, with stability=True, to be a whole number ≥ 2; got 1"),
    ("a share of all entries", FILES, [*CHOOSE, "--ranks", "1", "--share", "1"],
     "expected share between 0 and 1; got 1.0"),
    ("too few draws", {}, [*CROSS, "--draws", "1"], "expected draws to be a whole number ≥ 50; got 1"),
    ("one chain", {}, [*CROSS, "--chains", "1"], "expected chains to be a whole number ≥ 2; got 1"),
    ("a file without a rank", FILES, ["crosscheck", "{f}/x.csv", "--out", "{f}"],
     "expected --labels FILE, or --rank K for a model without groups; got neither"),
    ("a demo of too many labels", {}, ["demo", "--labels", "2", "--out", "{f}"],
     "expected a share of labels from 0.05 to 0.95; got 2.0"),
    ("a folder that is a file", FILES, ["demo", "--out", "{f}/x.csv"],
     "expected a folder to write into; got {f}/x.csv (File exists)"),
    ("results that are not lines", FILES, ["reproduce", "digits", "--out", "{f}/x.csv"],
     "expected --out to name a .jsonl file; got {f}/x.csv"),
    ("too many folds", {}, ["reproduce", "digits", "--folds", "11", "--out", "{f}/a.jsonl"],
     "expected --folds of at most 10; got 11"),
    ("processes that fork", {}, ["reproduce", "digits", "--backend", "multiprocessing", "--out", "{f}/a.jsonl"],
     "expected a joblib backend that does not fork, loky or threading; got multiprocessing"),
    ("a copy of digits", FILES, ["reproduce", "digits", "--data", "{f}/x.csv", "--out", "{f}/a.jsonl"],
     "expected no path with digits, which comes with a package; got {f}/x.csv"),
    ("a setting that is text", {}, ["sweep", "digits", "--vary", "rank=x", "--out", "{f}/a.jsonl"],
     "expected rank to be a whole number ≥ 1; got 'x'"),
    ("a setting below zero", {}, ["sweep", "digits", "--vary", "large=-1", "--out", "{f}/a.jsonl"],
     "expected large to be a positive number; got -1"),
    *((f"a setting {vary}", {}, ["sweep", "digits", "--vary", vary, "--out", "{f}/a.jsonl"], said) for vary, said in [
        ("tol=-1", "expected tol to be None or a number ≥ 0; got -1"),
        ("lam_start=x", "expected lam_start to be one of 'prior', 'shape'; got 'x'"),
        ("init=None", "expected init to be one of 'random', 'groups'; got None"),
        ("accelerate=x", "expected accelerate to be True or False; got 'x'"),
    ]),
    ("a backend that joblib does not know", {}, ["reproduce", "digits", "--backend", "foo", "--out", "{f}/a.jsonl"],
     "expected a joblib backend, such as loky, threading or dask; got foo"),
    ("a setting without values", {}, ["sweep", "digits", "--vary", "large=", "--out", "{f}/a.jsonl"],
     "argument --vary: expected NAME=V1,V2,…, as in large=32,256; got 'large=' (see gsnmf sweep --help)"),
    ("shapes that fall", {}, ["figures", "digits", "--large", "5", "4", "--out", "{f}"],
     "expected increasing shapes for --large; got 5 4"),
    ("a sweep that is another's", {"a.jsonl": "dear diary\n"},
     ["figures", "digits", "--sweep", "{f}/a.jsonl", "--out", "{f}"],
     "expected {f}/a.jsonl to hold results of `gsnmf reproduce` or `gsnmf sweep`; got the line b'dear diary'"),
    *((f"a result with {name}", {"a.jsonl": result(change)},
       ["figures", "digits", "--sweep", "{f}/a.jsonl", "--out", "{f}"],
       "expected {f}/a.jsonl to hold results of `gsnmf reproduce` or `gsnmf sweep`; got the line "
       f"{result(change).encode()[:50]!r}".replace("{", "{{").replace("}", "}}").replace("{{f}}", "{f}"))
      for name, change in [
          ("settings that are text", {"settings": "x"}),
          ("a shape that is text", {"settings": {"large": "x", "rank": 3}}),
          ("nothing correct", {"correct": []}),
          ("text that is correct", {"correct": ["x"]}),
          ("no samples", {"size": 0}),
      ]),
    ("a result without a shape", {"a.jsonl": result({"settings": {"rank": 3}})},
     ["figures", "digits", "--sweep", "{f}/a.jsonl", "--out", "{f}"],
     "expected results of nmf_gs on digits with a setting large; got none"),
    ("no command", {}, [""], "argument COMMAND: invalid choice: '' (choose from 'demo', 'fit', 'report', 'choose', "
     "'crosscheck', 'reproduce', 'sweep', 'figures') (see gsnmf --help)"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_gets_one_line(tmp_path, capsys, files, words, message):
    """A line about what was read may precede it; no file is changed, and none appears."""
    for name, content in files.items():
        write(tmp_path / name, content)
    before = contents(tmp_path)
    command = [] if words[0] in COMMANDS else ["fit"]
    code = main([*command, *(word.format(f=tmp_path) for word in words)])
    out, said = capsys.readouterr()
    assert code == 2
    assert all(re.fullmatch(r"digits: .* samples, 10 classes", line) for line in out.splitlines())
    *read, said = said.splitlines()
    assert all(re.match(r"gsnmf: (read|dense X|X of|JAX compiles) ", line) for line in read)
    sha = re.search(r"SHA-256 (\w*)", said)
    assert said == f"gsnmf: error: {message.format(f=tmp_path, sha=sha and sha[1])}"
    assert contents(tmp_path) == before


def test_the_table_is_long_and_has_no_row_twice():
    assert len({row[0] for row in BAD}) == len(BAD) >= 80


def contents(folder):
    """Return all files and folders; `figures` makes its folder of fits before it reads --sweep."""
    found = [path for path in folder.rglob("*") if path.name != "fits"]
    return {path: path.read_bytes() if path.is_file() else None for path in found}


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
