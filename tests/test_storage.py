"""The model file: exact round trips, hostile and damaged files, failures while saving."""

import base64
import hashlib
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import bbl
from bbl import container, storage
from bbl.errors import BBLError, BBLTypeError, ModelFileError, OptionError
from bbl.storage import read_model, write_model

META = {
    "formula": "y ~ `é` + \"'\\\n漢\ud800",
    "levels": [
        ["int", 2**70],
        ["float", 0.1 + 0.2],
        ["bool", True],
        ["int", 1],
        ["float", -0.0],
        ["none", None],
        [],
    ],
    "order": {"b": {}, "a": [[]]},
}
ARRAYS = {
    "theta": np.array([[0.1, -0.0, 5e-324], [np.inf, -np.inf, np.nan]]),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(12)[::-2],
    "swapped": np.arange(3, dtype=">i4"),
    "codes": np.array([0, 255], dtype=np.uint8),
    "large": np.array([2**64 - 1], dtype=np.uint64),
    "flags": np.array([[True], [False]]),
    "scalar": np.array(2.5),
    "none": np.empty((0, 3)),
}
# What format version 1 looked like on the day it was made. Never change it: old files load for
# ever.
VERSION_1 = """
UEsDBC0AAAAAAAAAIQAeczuV//////////8JABQAbWV0YS5qc29uAQAQAPAAAAAAAAAA8AAAAAAAAAB7ImZvcm1hdCI6ImJibCBtb2RlbCIsImZvcm1h
dF92ZXJzaW9uIjoxLCJraW5kIjoiYmJsIiwiYmJsX3ZlcnNpb24iOiIwLjEuMCIsImFycmF5cyI6W3sibmFtZSI6ImNvdW50cyIsImR0eXBlIjoiPGk4
Iiwic2hhcGUiOlsyXSwic2l6ZSI6MTZ9LHsibmFtZSI6InRoZXRhIiwiZHR5cGUiOiI8ZjgiLCJzaGFwZSI6WzEsMl0sInNpemUiOjE2fV0sIm1ldGEi
OnsibGV2ZWxzIjpbWyJhIiwxLG51bGxdLFswLjUsdHJ1ZV1dfX1QSwMELQAAAAAAAAAhAOjQ06j//////////woAFABjb3VudHMubnB5AQAQAJAAAAAA
AAAAkAAAAAAAAACTTlVNUFkBAHYAeydkZXNjcic6ICc8aTgnLCAnZm9ydHJhbl9vcmRlcic6IEZhbHNlLCAnc2hhcGUnOiAoMiwpLCB9ICAgICAgICAg
ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgCgMAAAAAAAAABAAAAAAAAABQSwMELQAAAAAAAAAhAHmUzp7/
/////////wkAFAB0aGV0YS5ucHkBABAAkAAAAAAAAACQAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJzxmOCcsICdmb3J0cmFuX29yZGVyJzogRmFs
c2UsICdzaGFwZSc6ICgxLCAyKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAAAAAAA
4D8AAAAAAADwv1BLAwQtAAAAAAAAACEAVvG1wP//////////BgAUAHNoYTI1NgEAEABAAAAAAAAAAEAAAAAAAAAAODdiNDA0MThjOGQyOGFmMGY5Zjg1
MzdmNjU3ODBhMGU1MTBhNzE5MGIxYzhiMDM1OTQzNjcwMDExZjlhODQ4ZVBLAQItAy0AAAAAAAAAIQAeczuV//////////8JABwAAAAAAAAAAACkgf//
//9tZXRhLmpzb24BABgA8AAAAAAAAADwAAAAAAAAAAAAAAAAAAAAUEsBAi0DLQAAAAAAAAAhAOjQ06j//////////woAHAAAAAAAAAAAAKSB/////2Nv
dW50cy5ucHkBABgAkAAAAAAAAACQAAAAAAAAACsBAAAAAAAAUEsBAi0DLQAAAAAAAAAhAHmUzp7//////////wkAHAAAAAAAAAAAAKSB/////3RoZXRh
Lm5weQEAGACQAAAAAAAAAJAAAAAAAAAA9wEAAAAAAABQSwECLQMtAAAAAAAAACEAVvG1wP//////////BgAcAAAAAAAAAAAApIH/////c2hhMjU2AQAY
AEAAAAAAAAAAQAAAAAAAAADCAgAAAAAAAFBLBgYsAAAAAAAAAC0DLQAAAAAAAAAAAAQAAAAAAAAABAAAAAAAAABKAQAAAAAAADoDAAAAAAAAUEsGBwAA
AACEBAAAAAAAAAEAAABQSwUGAAAAAP///////////////wAA
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.bbl"


@pytest.fixture
def small(path):
    """The bytes of a small sound file."""
    write_model(
        path, {"a": [1, 0.5, "x"]}, {"b": np.array([1.5, -2.0]), "c": np.array([[True, False]])}
    )
    return path.read_bytes()


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def forge(members):
    """Return a file with these members whose headers, checksums and digest are all in order."""
    members = [(name, data) for name, data in members if name != "sha256"]
    members.append(("sha256", container.digest([(name, [data]) for name, data in members])))
    entries = [(name, zlib.crc32(data), len(data)) for name, data in members]
    parts = [
        container.local_header(*entry) + data
        for entry, (_, data) in zip(entries, members, strict=True)
    ]
    return b"".join(parts) + container.directory(entries)


def refused(path, data, reason=".", kind="bbl"):
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=reason) as caught:
        read_model(path, kind)
    assert isinstance(caught.value, ValueError | BBLError)
    assert repr(str(path)) in str(caught.value) and caught.value.argument == "path"


# ---- round trip


def test_round_trip_is_bitwise(path):
    write_model(path, META, ARRAYS)
    meta, arrays = read_model(path)
    assert repr(meta) == repr(META)  # types, order of keys, -0.0
    assert list(arrays) == sorted(ARRAYS)
    for name, array in arrays.items():
        expected = ARRAYS[name]
        assert array.dtype == expected.dtype.newbyteorder("=") and array.shape == expected.shape
        assert array.tobytes() == np.ascontiguousarray(expected.astype(array.dtype)).tobytes()
        assert array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def test_same_input_gives_same_bytes(path, small):
    write_model(
        path, {"a": [1, 0.5, "x"]}, {"c": np.array([[True, False]]), "b": np.array([1.5, -2.0])}
    )
    assert path.read_bytes() == small


def test_other_tools_can_open_the_file(path):
    write_model(path, META, ARRAYS)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    with np.load(path, allow_pickle=False) as loaded:
        for name, array in ARRAYS.items():
            assert loaded[name].tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
        document = json.loads(loaded["meta.json"])
        digest = hashlib.sha256()
        for name, data in list(members_of(path.read_bytes()).items())[:-1]:
            digest.update(name.encode() + b"\0" + str(len(data)).encode() + b"\0" + data)
        assert loaded["sha256"].decode() == digest.hexdigest()
    assert document["format_version"] == 1 and document["meta"] == META


def test_no_arrays_and_no_meta(path):
    write_model(path, {}, {})
    assert read_model(path) == ({}, {})


def test_files_of_version_1_load(path, monkeypatch):
    data = base64.b64decode(VERSION_1)
    path.write_bytes(data)
    meta, arrays = read_model(path)
    assert meta == {"levels": [["a", 1, None], [0.5, True]]}
    assert arrays.keys() == {"counts", "theta"}
    assert arrays["counts"].tolist() == [3, 4] and arrays["counts"].dtype == np.int64
    assert arrays["theta"].tolist() == [[0.5, -1.0]]
    monkeypatch.setattr(bbl, "__version__", "0.1.0", raising=False)
    write_model(path, meta, arrays)
    assert path.read_bytes() == data


def test_another_kind_is_refused(path):
    write_model(path, {}, {}, kind="crossval")
    assert read_model(path, kind="crossval") == ({}, {})
    refused(path, path.read_bytes(), "'crossval', not 'bbl'")


# ---- damage


def test_every_truncation_is_refused(path, small):
    for length in range(len(small)):
        refused(path, small[:length])


@pytest.mark.parametrize(
    "share", [1, pytest.param(8, marks=pytest.mark.long)], ids=["one of each byte", "all"]
)
def test_every_flipped_bit_is_refused(path, small, share):
    for position in range(len(small)):
        for bit in ((position + k) % 8 for k in range(share)):
            data = bytearray(small)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            with pytest.raises(ModelFileError):
                read_model(path)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"y ~ .\n" * 99, bytes(5000), b"PK\5\6" + bytes(18), b"\x80\x05N."]
)
def test_files_of_something_else(path, data):
    refused(path, data)


@pytest.mark.parametrize("where", ["front", "back", "both", "inside"])
def test_bytes_between_members(path, small, where):
    cut = small.index(b"PK\3\4", 1)
    changed = {
        "front": b"#!" + small,
        "back": small + b"\0",
        "both": small + small,
        "inside": small[:cut] + b"\0\0" + small[cut:],
    }
    refused(path, changed[where])


def zip_of(members, **options):
    """Return a zip by the standard library; `members` maps name or ZipInfo to bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", options.pop("compression", zipfile.ZIP_STORED)) as archive:
        for name, data in members:
            archive.writestr(name, data)
        archive.comment = options.pop("comment", b"")
    return buffer.getvalue()


def test_foreign_zips_are_refused(path, small):
    members = list(members_of(small).items())
    link = zipfile.ZipInfo("b.npy")
    link.external_attr = 0o120777 << 16
    refused(path, zip_of(members))
    refused(path, zip_of(members, compression=zipfile.ZIP_DEFLATED))
    refused(path, zip_of(members, comment=b"hello"))
    refused(path, zip_of([(link if name == "b.npy" else name, data) for name, data in members]))
    refused(path, zip_of([("zeros.npy", bytes(2**24))], compression=zipfile.ZIP_DEFLATED))


def test_flags_methods_and_modes_are_refused(path, small):
    """Encryption, compression and a symbolic link, each in the local header, in the directory, and
    in both.
    """
    local, entry = small.index(b"PK\3\4", 1), small.index(b"PK\1\2", small.index(b"PK\1\2") + 1)
    for changes in [
        {local + 6: 1},
        {entry + 8: 1},
        {local + 6: 1, entry + 8: 1},
        {local + 8: 8, entry + 10: 8},
        {entry + 41: 0xA1},
    ]:
        data = bytearray(small)
        for position, value in changes.items():
            assert data[position] != value
            data[position] = value
        refused(path, data)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40, 10**9])
def test_sizes_are_checked_before_anything_is_allocated(path, small, size):
    members = list(members_of(small).items())
    entries = [(name, zlib.crc32(data), len(data)) for name, data in members]
    entries[1] = (*entries[1][:2], size)
    headers = b"".join(
        container.local_header(*entry) + data
        for entry, (_, data) in zip(entries, members, strict=True)
    )
    listing = bytearray(container.directory([(*entry[:2], 0) for entry in entries]))
    # an entry that lies, in a fitting directory
    struct.pack_into("<Q", listing, listing.index(b"b.npy") + 5 + 4, size)
    struct.pack_into("<Q", listing, listing.index(b"PK\6\6") + 48, len(headers))
    path.write_bytes(headers + listing)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            read_model(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


# ---- hostile content under a correct digest


def test_forge_makes_sound_files(small):
    assert forge(members_of(small).items()) == small


@pytest.mark.parametrize(
    "name", ["../b.npy", "/b.npy", "C:\\b.npy", "b.npy\0", "x/b.npy", "b", "B.npy", "", "d.npy"]
)
def test_member_names(path, small, name):
    refused(
        path, forge([(name if n == "b.npy" else n, data) for n, data in members_of(small).items()])
    )
    document = json.loads(members_of(small)["meta.json"])
    if name != "d.npy":
        document["arrays"][0]["name"] = name.removesuffix(".npy")
        members = members_of(small) | {"meta.json": json.dumps(document).encode()}
        path.write_bytes(
            forge([(name if n == "b.npy" else n, data) for n, data in members.items()])
        )
        if name == "B.npy":
            assert read_model(path)[1]["B"].tolist() == [1.5, -2.0]
        else:
            with pytest.raises(ModelFileError):
                read_model(path)


def test_members_extra_missing_double_swapped_reordered(path, small):
    members = list(members_of(small).items())[:-1]
    meta, b, c = members
    assert (b[0], c[0]) == ("b.npy", "c.npy")
    for bad in [
        [*members, ("d.npy", b[1])],
        [*members, ("evil.pkl", b"x")],
        [meta, b],
        [b, c],
        [],
        [*members, c],
        [meta, b, b],
        [meta, ("b.npy", c[1]), ("c.npy", b[1])],
        [meta, c, b],
    ]:
        refused(path, forge(bad))
    refused(path, forge([("sha256", b""), *members])[1:])


def with_meta(small, old, new):
    """Return the file with a part of the text of meta.json replaced, digest in order."""
    members = members_of(small)
    text = members["meta.json"].decode()
    assert text.count(old) == 1
    return forge(
        (members | {"meta.json": text.replace(old, new).encode("utf-8", "surrogatepass")}).items()
    )


HOSTILE = {
    "does not describe a model": [('"format":"bbl model"', '"format":"other"')],
    "format version is not": [
        ('"format_version":1', '"format_version":0'),
        ('"format_version":1', '"format_version":true'),
        ('"format_version":1', '"format_version":"1"'),
        ('"format_version":1,', ""),
    ],
    "json contains": [
        ("[1,0.5", "[NaN,0.5"),
        ("[1,0.5", "[-Infinity,0.5"),
        ("[1,0.5", "[1e999,0.5"),
    ],
    "digits": [("[1,0.5", "[" + "9" * 5000 + ",0.5")],
    "delimiter": [("[1,0.5", "[01,0.5")],
    "Expecting value": [('"x"', "'x'")],
    "ascii": [('"x"', '"é"'), ('"x"', '"\ud800"')],
    "twice": [('"a":', '"a":0,"a":')],
    "levels": [
        ('"x"', "[" * 10_000 + "]" * 10_000),
        ('"x"', "[" * 10_000),
        ('"x"', '{"":' * 10_000 + "0" + "}" * 10_000),
        ('"x"', "[],\n" * 260_000 + "[]"),
    ],
    "is incomplete": [
        ('"meta":{', '"meta":0,"other":{'),
        ('"meta":', '"Meta":'),
        ('"arrays":', '"Arrays":'),
        ('"arrays":', '"arrays":{},"other":'),
    ],
    "incomplete": [
        ('"shape":[2],"size":16', '"shape":[2]'),
        ('"shape":[2],', '"shape":[2],"more":1,'),
        ('"arrays":[', '"arrays":[0,'),
    ],
    "invalid name or dtype": [
        ('"dtype":"<f8"', '"dtype":">f8"'),
        ('"dtype":"<f8"', '"dtype":"<c8"'),
        ('"dtype":"<f8"', '"dtype":"|O8"'),
        ('"dtype":"<f8"', '"dtype":["<f8"]'),
        ('"name":"b"', '"name":null'),
        ('"name":"b"', '"name":["b"]'),
    ],
    "shape of 'b' is invalid": [
        ('"shape":[2]', '"shape":[-2]'),
        ('"shape":[2]', '"shape":[2.0]'),
        ('"shape":[2]', '"shape":2'),
        ('"shape":[2]', '"shape":[0,9223372036854775808]'),
    ],
    "'[bcd]' does not match its declaration": [
        ('"dtype":"<f8"', '"dtype":"<i8"'),
        ('"shape":[2]', '"shape":[3]'),
        ('"shape":[2]', '"shape":[2,1]'),
        ('"shape":[2]', '"shape":[4611686018427387903,4]'),
        ('"shape":[2],"size":16', '"shape":[0,2305843009213693952],"size":0'),
        ('"shape":[2],"size":16', '"shape":[2],"size":8'),
        ('"name":"b"', '"name":"c"'),
        ('"name":"b"', '"name":"d"'),
    ],
}


@pytest.mark.parametrize(
    ("reason", "old", "new"), [(reason, *row) for reason, rows in HOSTILE.items() for row in rows]
)
def test_hostile_meta(path, small, reason, old, new):
    refused(path, with_meta(small, old, new), reason)


def test_later_version_says_upgrade(path, small):
    refused(
        path,
        with_meta(small, '"format_version":1', '"format_version":7'),
        "format version, 7 .*upgrade bbl",
    )


@pytest.mark.long
def test_many_brackets_do_not_fill_the_memory(path, small):
    """2 bytes of file make 90 bytes of memory: the limit is 64 MiB or 20 x the file."""
    data = with_meta(small, '"x"', "[]," * 249_000 + "{}")
    path.write_bytes(data)
    tracemalloc.start()
    try:
        assert len(read_model(path)[0]["a"]) == 249_003
        assert tracemalloc.get_traced_memory()[1] < max(64 * 2**20, 20 * len(data))
    finally:
        tracemalloc.stop()


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


class Attack:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_arrays_not_as_declared(path, small):
    members = members_of(small)
    fortran = members["b.npy"].replace(b"False", b"True ")
    spaced = members["b.npy"].replace(b"  \n", b" \n ")
    assert len({members["b.npy"], fortran, spaced}) == 3
    beyond = members["c.npy"][:-1] + b"\2"
    for change in [
        {"b.npy": fortran},
        {"b.npy": spaced},
        {"b.npy": npy(np.zeros(2, dtype=">f8"))},
        {"b.npy": npy(np.zeros(3))},
        {"b.npy": b""},
        {"b.npy": members["b.npy"] + bytes(8)},
        {"c.npy": beyond},
    ]:
        refused(path, forge((members | change).items()))


def test_pickles_are_refused_and_nothing_runs(path, small, tmp_path):
    ran = tmp_path / "ran"
    members = members_of(small)
    objects = npy(np.array([Attack(ran), Attack(ran)], dtype=object), allow_pickle=True)
    attack = pickle.dumps(Attack(ran))
    refused(path, attack)
    refused(path, objects)
    refused(path, forge((members | {"b.npy": objects}).items()))
    refused(path, forge((members | {"b.npy": attack}).items()))
    refused(path, forge((members | {"meta.json": attack}).items()))
    declared = members["meta.json"].replace(b'"dtype":"<f8"', b'"dtype":"|O"')
    refused(path, forge((members | {"b.npy": objects, "meta.json": declared}).items()))
    assert not ran.exists()
    pickle.loads(attack)  # noqa: S301 - the attack is a real one
    assert ran.exists()


def test_pickle_is_never_reached(path, monkeypatch):
    def reached(*args, **kwargs):
        raise AssertionError("pickle was reached")

    for name in ["load", "loads", "dump", "dumps", "Unpickler", "Pickler"]:
        monkeypatch.setattr(pickle, name, reached)
    monkeypatch.setattr(np, "load", reached)
    write_model(path, META, ARRAYS)
    assert read_model(path)[1].keys() == ARRAYS.keys()
    source = "".join(
        Path(module.__file__).read_text(encoding="utf-8") for module in (storage, container)
    )
    assert not re.search(r"pickle|marshal|eval\(|exec\(|np\.load|__import__", source)


@pytest.mark.long
def test_random_damage_raises_nothing_else(path, small):
    rng = np.random.default_rng(1)
    for _ in range(2000):
        data = bytearray(small)
        for _ in range(rng.integers(1, 4)):
            position = int(rng.integers(len(data)))
            match rng.integers(3):
                case 0:
                    data[position] = rng.integers(256)
                case 1:
                    del data[position : position + int(rng.integers(1, 50))]
                case _:
                    data[position:position] = data[: int(rng.integers(1, 50))]
        path.write_bytes(data)
        if data != small:
            with pytest.raises(ModelFileError):
                read_model(path)


# ---- what cannot be saved


@pytest.mark.parametrize(
    ("meta", "error", "where"),
    [
        ({"a": [1, float("nan")]}, OptionError, r"meta\['a'\]\[1\] is nan"),
        ({"a": float("-inf")}, OptionError, "-inf"),
        ({"a": (1, 2)}, BBLTypeError, "tuple"),
        ({"a": np.float64(1)}, BBLTypeError, "float64"),
        ({"a": {1: 2}}, BBLTypeError, "key 1"),
        ({"a": 10**5000}, OptionError, "meta"),
        ({"a": [[]] * 300_000}, OptionError, "lists"),
        ([], BBLTypeError, "list"),
    ],
)
def test_meta_that_json_would_change(path, meta, error, where):
    with pytest.raises(error, match=where) as caught:
        write_model(path, meta, {})
    assert caught.value.argument == "meta"
    assert not list(path.parent.iterdir())


def test_meta_that_is_too_deep_or_holds_itself(path):
    meta = {}
    deep = meta
    for _ in range(60):
        deep["a"] = {}
        deep = deep["a"]
    write_model(path, meta, {})
    assert read_model(path)[0] == meta
    deep["a"] = meta
    with pytest.raises(OptionError, match="nested too deep"):
        write_model(path, meta, {})


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, dtype=np.float32),
        np.zeros(2, dtype=complex),
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, dtype="f8,i4"),
        np.zeros(2, dtype="M8[s]"),
        np.ma.masked_array([1.0], [True]),
        [1.0],
        1.0,
        None,
    ],
)
def test_arrays_that_are_not_plain(path, array):
    with pytest.raises(BBLTypeError, match=r"arrays\['a'\]") as caught:
        write_model(path, {}, {"a": array})
    assert caught.value.argument == "arrays"
    assert not list(path.parent.iterdir())


def test_memory_map(path, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5.0))
    write_model(path, {}, {"a": np.load(tmp_path / "a.npy", mmap_mode="r")})
    loaded = read_model(path)[1]["a"]
    assert type(loaded) is np.ndarray and loaded.tolist() == [0, 1, 2, 3, 4]


def test_empty_array_of_impossible_shape(path, small):
    """Its size is right, and so is its header; only numpy can refuse it."""
    shape = (0, 2**61)
    text = with_meta(small, '"shape":[2],"size":16', f'"shape":[0,{2**61}],"size":0')
    refused(path, forge((members_of(text) | {"b.npy": container.npy_header("<f8", shape)}).items()))


def test_text_over_the_limit(path, small, monkeypatch):
    monkeypatch.setattr(storage, "_MAX_META", 100)
    refused(path, small, "MiB of JSON")
    with pytest.raises(OptionError, match="MiB of JSON"):
        write_model(path, {"a": "x" * 100}, {})


@pytest.mark.parametrize("name", ["", "../a", "a.b", "a/b", "a\0", "é", "a" * 65, 1, None])
def test_array_names(path, name):
    with pytest.raises(OptionError, match=re.escape(repr(name))):
        write_model(path, {}, {name: np.zeros(1)})


def test_too_many_arrays(path):
    arrays = {f"a{i}": np.zeros(1) for i in range(1001)}
    with pytest.raises(OptionError, match="1001"):
        write_model(path, {}, arrays)
    del arrays["a7"]
    write_model(path, {}, arrays)
    assert len(read_model(path)[1]) == 1000


# ---- paths


@pytest.mark.parametrize("action", [lambda p: write_model(p, {}, {}), read_model])
class TestPaths:
    @pytest.mark.parametrize("path", [None, 3, True, 1.5, ["a"], io.BytesIO()])
    def test_no_path(self, action, path):
        with pytest.raises(BBLTypeError, match="path must be") as caught:
            action(path)
        assert caught.value.argument == "path"

    @pytest.mark.parametrize("path", ["a\0b", "a\udfff\ud800"])
    def test_no_possible_name(self, action, path):
        with pytest.raises(OptionError, match="path="):
            action(path)

    def test_folders(self, action, tmp_path):
        for path in [tmp_path, f"{tmp_path}/", f"{tmp_path}/new/", "", ".", os.fsencode(tmp_path)]:
            with pytest.raises(OSError, match="directory") as caught:
                action(path)
            assert caught.value.filename == os.fsdecode(path)
        assert not list(tmp_path.iterdir())

    def test_missing_folder(self, action, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"No such file.*'.*model\.bbl'"):
            action(tmp_path / "none" / "model.bbl")
        assert not list(tmp_path.iterdir())

    @pytest.mark.skipif(os.name != "posix", reason="pipes and devices are POSIX")
    def test_special_files(self, action, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in [tmp_path / "pipe", "/dev/null"]:
            with pytest.raises(OSError, match="regular file"):
                action(path)


def test_missing_file(path):
    with pytest.raises(FileNotFoundError, match="check the path"):
        read_model(path)


def test_str_bytes_pathlike_and_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ["a.bbl", b"b.bbl", Path("c.bbl"), tmp_path / "d.bbl"]:
        write_model(path, {"a": 1}, {})
        assert read_model(path)[0] == {"a": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bbl", "b.bbl", "c.bbl", "d.bbl"]


# ---- saving is all or nothing


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_leaves_the_old_file_and_no_litter(path, small, monkeypatch, step, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)) as caught:
        write_model(path, {}, {"a": np.zeros(9)})
    if isinstance(error, OSError):
        assert caught.value.errno == 28 and caught.value.filename == str(path)
        assert "No space left" in str(caught.value)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == small


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux")
def test_folder_where_nobody_can_write():
    with pytest.raises(OSError, match=r"cannot save.*'/proc/model\.bbl'"):
        write_model("/proc/model.bbl", {}, {})


def test_write_protected(path, small, monkeypatch):
    path.chmod(0o444)
    # a superuser may write everywhere, so the system's answer is stood in for
    monkeypatch.setattr(os, "access", lambda name, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="write-protected"):
        write_model(path, {}, {})
    assert path.read_bytes() == small


@pytest.mark.skipif(os.name != "posix", reason="permissions and links are POSIX")
def test_permissions_and_links(path, small):
    other = path.with_name("other.bbl")
    old = os.umask(0o027)
    try:
        write_model(other, {}, {})
    finally:
        os.umask(old)
    assert other.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    link = path.with_name("link.bbl")
    link.symlink_to(path)
    write_model(link, {"a": 2}, {})
    assert link.is_symlink() and read_model(path)[0] == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600


KILLS = """
import os, random, signal, sys, time
import numpy as np
from bbl.storage import read_model, write_model

path, rounds, known, again = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
write_model(again, *read_model(known))
versions = [np.full(50_000, float(v)) for v in range(2)]
write_model(path, {"v": 0}, {"a": versions[0]})
for _ in range(rounds):
    child = os.fork()
    if not child:
        while True:
            for v in range(2):
                write_model(path, {"v": v}, {"a": versions[v]})
    time.sleep(random.uniform(0.001, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    meta, arrays = read_model(path)
    assert (arrays["a"] == meta["v"]).all()
print("sound")
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_round_trip_in_another_process_and_kills_while_saving(path, tmp_path_factory):
    """The file is sound after every kill; all that can be left beside it is the temporary file of
    that save.
    """
    folder = tmp_path_factory.mktemp("others")
    known, again = folder / "known.bbl", folder / "again.bbl"
    write_model(known, META, ARRAYS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLS, path, "40", known, again],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "sound\n"
    assert again.read_bytes() == known.read_bytes()
    assert all(
        re.fullmatch(r"model\.bbl|\.bbl-[0-9a-f]{16}\.tmp", p.name) for p in path.parent.iterdir()
    )
