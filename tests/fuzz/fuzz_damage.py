"""Ways to damage a file: bytes, words, members of archives, datasets of HDF5, values of JSON."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

WORDS = [
    "", "0", "-1", "1", "1e999", "-1e-999", "nan", "inf", "NA", "NULL", "None", "é", "\u2028", "\x00", '"', "1_0",
    "255", "65536", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "1" * 30,
    "0x1", "1e308", "1,234", "1;2", "true", "<b>", "../x", "%", "%%MatrixMarket", "\t", "\r\n", " ", "\ufeff", "٣",
]  # fmt: skip


def damage_bytes(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Change, remove, repeat, insert or splice in a few places."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64, 1024))
        piece = slice(at, at + length)
        match rng.randrange(8):
            case 0:
                data[piece] = bytes(rng.randrange(256) for _ in data[piece])
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[piece]
            case 3:
                data[at:at] = data[piece] * rng.choice((1, 2, 50))
            case 4:
                del data[at:]
            case 5:
                data[at:at] = rng.choice(WORDS).encode()
            case 6:
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + length]
            case _:
                data[piece] = rng.choice((b"\x00", b"\xff", b"\x7f")) * len(data[piece])
    return bytes(data)


def damage_words(rng: random.Random, content: bytes) -> bytes:
    """Replace words, numbers, separators or lines of a text."""
    parts = re.split(r"(\n|[^\w.+-]+)", content.decode("utf-8", errors="replace"))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(parts))
        parts[at] = rng.choice((*WORDS, rng.choice(parts), parts[at] * 2, ""))
    if rng.random() < 0.1:
        rng.shuffle(parts)
    return "".join(parts).encode("utf-8", errors="surrogatepass")


def damage_array(rng: random.Random) -> np.ndarray:
    """Return an array of any type and shape, perhaps with odd values."""
    kinds = ("f8", "f4", "f2", "i1", "u8", "i8", "?", "c16", "S3", "U2", "M8[s]", ">f8")
    shape = rng.choice(((), (0,), (1,), (2,), (5, 8), (8, 5), (8,), (9,), (5, 0), (2, 2, 2), (1, 1), (23,)))
    with np.errstate(all="ignore"):
        array = np.array(np.random.default_rng(rng.randrange(2**32)).integers(0, 9, shape)).astype(rng.choice(kinds))
    if array.size and array.dtype.kind == "f":
        array.flat[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -1, 6e4, 0.5))
    if array.size and array.dtype.kind == "i":
        array.flat[rng.randrange(array.size)] = rng.choice((-1, -128, 127))
    return array


def damage_zip(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Damage a member, and pack it again with a right checksum; or leave one out, or put another array in."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    match rng.randrange(5):
        case 0:
            del members[name]
        case 1:
            members[rng.choice((name, "X.npy", "y.npy", "é", ""))] = members.pop(name)
        case 2 | 3:
            buffer = io.BytesIO()
            np.save(buffer, damage_array(rng))
            members[name] = buffer.getvalue()
        case _:
            members[name] = damage_bytes(rng, members[name], others)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in members.items():
            archive.writestr(name or "_", data)
    return packed.getvalue()


def damage_hdf5(rng: random.Random, path: Path) -> None:
    """Remove or replace datasets, groups and attributes."""
    with h5py.File(path, "r+") as file:
        for _ in range(rng.choice((1, 1, 2))):
            places: list[str] = []
            file.visit(places.append)
            if not places:
                return
            place = rng.choice(places)
            match rng.randrange(5):
                case 0:
                    del file[place]
                case 1 | 2:
                    array = damage_array(rng)
                    del file[place]
                    file[place] = array.astype("S") if array.dtype.kind in "UM" else array
                case 3:
                    name = rng.choice([*file[place].attrs, "encoding-type", "shape", "_index"])
                    file[place].attrs[name] = rng.choice((-1, [2**40, 3], [8.5, 5], "csc_matrix", "?", [5], [8, 5]))
                case _:
                    file[place].attrs.clear()


def damage_tree(rng: random.Random, tree: Any) -> Any:
    """Replace, remove, repeat or nest one value somewhere in JSON."""
    if isinstance(tree, (dict, list)) and tree and rng.random() < 0.85:
        key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        tree = tree.copy()
        if rng.random() < 0.15:
            del tree[key]
        else:
            tree[key] = damage_tree(rng, tree[key])
        return tree
    odd = (None, True, -1, 0, 2**70, 1e400, float("nan"), "", "priors", "Gamma", [], {}, [tree], {"family": tree}, "|O")
    return rng.choice((*odd, *WORDS))


def damage(rng: random.Random, path: Path, others: list[bytes]) -> None:
    """Damage a file in place, by a way that suits its kind or by any."""
    content = path.read_bytes()
    suits = rng.random() < 0.6
    if suits and path.suffix in (".h5", ".h5ad"):
        damage_hdf5(rng, path)
        return
    if suits and path.suffix == ".npz":
        content = damage_zip(rng, content, others)
    elif suits and path.suffix == ".gz":
        content = gzip.compress(damage_words(rng, gzip.decompress(content)), compresslevel=1)
    elif suits and path.suffix == ".json":
        content = json.dumps(damage_tree(rng, json.loads(content))).encode("utf-8", errors="surrogatepass")
    elif suits and path.suffix not in (".npy", ".parquet"):
        content = damage_words(rng, content)
    else:
        content = damage_bytes(rng, content, others)
    path.write_bytes(content)
