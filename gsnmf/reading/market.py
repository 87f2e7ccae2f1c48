"""MatrixMarket's .mtx and .mtx.gz. SciPy reads them; before that, header and lines are checked.

SciPy 1.17 ends the whole process for some malformed lines ("1 1 1e"), so every line is compared with the form that the
header states.
"""

from __future__ import annotations

import gzip
import inspect
import math
import re
from pathlib import Path
from typing import Any, BinaryIO

import scipy.io
import scipy.sparse

from .arrays import in_words
from .matrix import NamedMatrix, require_real

AS_ARRAY = {"spmatrix": False} if "spmatrix" in inspect.signature(scipy.io.mmread).parameters else {}  # SciPy 1.15
LEAST = 4  # bytes of an entry at least: two indices and their ends
PACKED = 1032  # deflate never packs more tightly
BLOCK = 1 << 22  # bytes that are checked at once
WHOLE = rb"[+-]?\d{1,18}"
UNSIGNED = rb"\d{1,19}"
REAL = rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?|nan|NaN|inf|Inf)"
FIELDS = {
    b"integer": (WHOLE,),
    b"unsigned-integer": (UNSIGNED,),
    b"real": (REAL,),
    b"double": (REAL,),
    b"complex": (REAL, REAL),
    b"pattern": (),
}


def read_market(path: Path) -> NamedMatrix:
    """Read features × samples from MatrixMarket's .mtx or .mtx.gz, as a sparse matrix."""
    return NamedMatrix(read_sparse_text(path), None, None)


def read_sparse_text(path: Path) -> Any:
    """Read MatrixMarket's .mtx or .mtx.gz as a sparse matrix."""
    try:
        with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as file:
            check_market(file, path)
        found = scipy.io.mmread(path, **AS_ARRAY)
    except Exception as error:  # of a damaged file
        raise ValueError(f"expected a sparse matrix in {path}; got {in_words(error)}") from None
    return require_real(found if scipy.sparse.issparse(found) else scipy.sparse.csr_array(found), path)


def check_market(file: BinaryIO | gzip.GzipFile, path: Path) -> None:
    """Raise if a header claims more than the file has room for, or a line does not have the form that it states.

    Args:
        file: opened, at its beginning.
        path: of the file.
    """
    first = line = file.readline(1 << 16)
    words = first.lower().split()
    if len(words) != 5 or words[0] != b"%%matrixmarket" or words[1] != b"matrix" or words[3] not in FIELDS:
        raise ValueError(f"a first line {first[:60].decode(errors='replace').strip()!r}")
    number = 1
    while line.startswith(b"%") or (line and not line.strip()):
        line, number = file.readline(1 << 16), number + 1
    sizes = line.split()
    coordinates = words[2] == b"coordinate"
    if not all(size.isdigit() for size in sizes) or len(sizes) != (3 if coordinates else 2):
        raise ValueError(f"sizes {line[:60].decode(errors='replace').strip()!r} in line {number}")
    _check_sizes([int(size) for size in sizes], path)
    values = (WHOLE, WHOLE, *FIELDS[words[3]]) if coordinates else FIELDS[words[3]]
    form = rb"[ \t]*+" + rb"[ \t]++".join(values) + rb"[ \t]*+\r?\n|[ \t]*+\r?\n"
    lines = re.compile(rb"(?:" + form + rb")*+")
    while text := file.read(BLOCK) + file.readline():
        if text[-1:] in (b" ", b"\t", b"\r"):  # SciPy would end the whole process
            raise ValueError("a last line that ends in a space, not in a line break")
        text = text if text.endswith(b"\n") else text + b"\n"
        found = lines.match(text)
        end = found.end() if found else 0
        if end < len(text):
            bad = text[end : text.index(b"\n", end)][:60].decode(errors="replace")
            where = number + 1 + text.count(b"\n", 0, end)
            raise ValueError(f"{bad!r} in line {where}")
        number += text.count(b"\n")


def _check_sizes(sizes: list[int], path: Path) -> None:
    size = path.stat().st_size
    room = size * (PACKED if path.name.lower().endswith(".gz") else 1)
    entries, least = (sizes[2], LEAST) if len(sizes) == 3 else (math.prod(sizes), 2)
    if entries * least > room + least:
        raise ValueError(f"a header that claims {entries:,} entries in {size:,} bytes")
    if min(sizes[:2]) == 0:  # SciPy would divide by it if values follow
        raise ValueError(f"a header that claims {sizes[0]:,} × {sizes[1]:,}")
    if max(sizes[:2]) >= 2**31:
        raise ValueError(f"a header that claims {sizes[0]:,} × {sizes[1]:,}, more than 2³¹ along an axis")
