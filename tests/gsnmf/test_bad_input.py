"""Bad input, and the one line that each gets: rows of a table, easily added to.

A row has a name, the files it needs (text, bytes, or a function that writes to a path), the words of the command, and
the message, all of it. {f} stands for the folder of the files.
"""

import gzip
import io
import zipfile

import h5py
import numpy as np
import pytest

from gsnmf.cli import main

FIT = ["--rank", "1", "--out", "{f}/out"]
X = "1,2,0\n3,4,5\n6,0,8\n"
MARKET = "%%MatrixMarket matrix coordinate integer general\n"
HEADER = "--header yes|no settles it (header= in read_matrix), and cells that are NA are missing"
INDEX = "--index yes|no settles it (index= in read_matrix), and cells that are NA are missing"
OTHERS = "which exists and is another's (--force replaces it)"
OWN = f"expected a new file to write, or one that gsnmf wrote; got {{f}}/%s, {OTHERS}"


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


def secret(path):
    """A zip with a member that is said to be encrypted."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("X.npy", b"nothing")
    content = bytearray(buffer.getvalue())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(content))


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
    ("an empty first cell among numbers", {"x.csv": ",9,4\n3,4,5\n"}, ["{f}/x.csv", *FIT],
     "expected names after the empty first cell of {f}/x.csv, or increasing numbers; got 9, 4 in the first row: "
     "--header yes|no and --index yes|no settle it (header= and index= in read_matrix)"),
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
    ("a folder that is not 10x's", {}, ["{f}", *FIT],
     "expected a file ending in .npy, .npz, .csv, .tsv, .mtx, .mtx.gz, .parquet, .h5ad, .h5, .hdf5, .zarr, or a folder "
     "with 10x's matrix.mtx; got {f}"),
    ("10x without barcodes", {"matrix.mtx": f"{MARKET}1 2 1\n1 1 3\n", "genes.tsv": "i\tn\n"}, ["{f}", *FIT],
     "expected barcodes.tsv, perhaps with .gz, in {f}; got none"),
    ("10x with too few genes", {"matrix.mtx": f"{MARKET}2 1 1\n1 1 3\n", "genes.tsv": "i\tn\n", "barcodes.tsv": "b\n"},
     ["{f}", *FIT], "expected 2 features in {f}, as the matrix has; got 1"),
    # Documents
    ("no such column of text", {"d.csv": "body,topic\na b,x\n"}, ["{f}/d.csv", "--text", "words", *FIT],
     "expected a column 'words' in {f}/d.csv; got body, topic"),
    ("documents without frequent terms", {"d.csv": "body\nab\ncd\n"}, ["{f}/d.csv", "--text", "body", *FIT],
     "expected terms that occur in at least 2 documents in column 'body' of {f}/d.csv; got 2 documents (After pruning, "
     "no terms remain. Try a lower min_df or a higher max_df.)"),
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
    ("a matrix of several that several processes would not read", {"x.csv": X},
     ["{f}/x.csv", *FIT, "--distributed", "--key", "layers/a"],
     "expected no --key with --distributed, which reads X; got it"),
    ("--header with a stream", {"x.csv": X}, ["{f}/x.csv", *FIT, "--stream", "--header", "no"],
     "expected no --header with --stream, where it has no effect; got it"),
    # Files of others
    ("a fit over its input", {"x.npz": lambda path: np.savez(path, X=np.ones((2, 2)))},
     ["{f}/x.npz", "--rank", "1", "--out", "{f}/x", "--force"],
     "expected --out to name a file other than the input; got {f}/x.npz for both"),
    ("a fit over another's json", {"x.csv": X, "out.json": "{}"}, ["{f}/x.csv", *FIT], OWN % "out.json"),
    ("a fit over another's npz", {"x.csv": X, "out.npz": lambda path: np.savez(path, a=1)}, ["{f}/x.csv", *FIT],
     OWN % "out.npz"),
    ("a picture over another's", {"x.csv": X, "bound.png": "mine"}, ["{f}/x.csv", *FIT, "--plots", "{f}"],
     OWN % "bound.png"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_gets_one_line(tmp_path, capsys, files, words, message):
    for name, content in files.items():
        write(tmp_path / name, content)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    command = [] if words[0] in ("choose", "report", "crosscheck") else ["fit"]
    code = main([*command, *(word.format(f=tmp_path) for word in words)])
    out, said = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said == f"gsnmf: error: {message.format(f=tmp_path)}\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def write(path, content):
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
