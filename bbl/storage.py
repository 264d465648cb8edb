"""Read and write model files, which contain a JSON-ready dict and numpy arrays and are loaded
without running code.
"""

# Format version 1 is a zip file (not compressed, all sizes in 64 bits, fixed time stamps) with
# these members, in this order:
#
# - ``meta.json``: ASCII JSON of the format's name and version, the kind of content, the bbl
#   version, the table of arrays (name, dtype, shape, size in bytes) and the caller's dict;
# - ``NAME.npy`` for each array, sorted by name, little-endian and in C order;
# - ``sha256``: the hex digest of name, length and bytes of all members above.
#
# Zip headers, directory and npy headers are determined by names, sizes and checksums, so the reader
# reconstructs and compares them: a file from an untrusted source is never passed to a general zip
# or npy parser. A *member* is a file inside the zip file.

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import stat
import struct
import sys
import zlib
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np

from bbl.container import (
    MAX_ARRAYS,
    Entry,
    digest,
    directory,
    local_header,
    npy_header,
    read_members,
)
from bbl.errors import BBLTypeError, ModelFileError, OptionError

__all__ = ["read_any", "read_model", "write_model"]

FORMAT = "bbl model"
VERSION = 1
_DTYPES = frozenset(["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f8"])
_ARRAY_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
# limits that prevent files from untrusted sources from exhausting memory or the stack
_MAX_META = 64 * 2**20  # maximum number of bytes of meta.json
_MAX_DEPTH = 64  # maximum nesting depth of lists and dicts in meta.json
# maximum number of lists and dicts in meta.json; an empty list takes 2 bytes in the file and 90
# bytes in memory
_MAX_CONTAINERS = 250_000

# a string (its brackets do not count), an opening bracket (group 1), or a closing bracket. ++
# and *+ do not backtrack, so the search is linear in time
_JSON_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|([\[{])|[\]}]', re.DOTALL)


def write_model(
    path: str | os.PathLike, meta: dict[str, Any], arrays: dict[str, np.ndarray], kind: str = "bbl"
) -> None:
    """Write a model file; an existing file is replaced only after the new file is complete on disk.

    The same input results in the same bytes. If an error occurs, no temporary files are left.

    Parameters
    ----------
    path : str or os.PathLike
        The file. Symbolic links are followed; the permissions of an existing file are kept.
    meta : dict
        Values are str, int, finite float, bool, None, and lists and str-keyed dicts of these,
        nested at most 60 levels deep.
    arrays : dict of numpy.ndarray
        bool, integer or float64 arrays, keyed by name (letters, digits and ``_``).
    kind : str, default "bbl"
        Kind of content; `read_model` raises an error for a file of a different kind.

    Raises
    ------
    BBLTypeError, OptionError
        If `path`, `meta` or `arrays` cannot be written; no file is changed.
    OSError
        If the directory is missing or not writable, the path is a directory, or the disk is full.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from bbl.storage import read_model, write_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.bbl")
    ...     write_model(path, {"formula": "y ~ ."}, {"theta": np.array([0.5, -1.0])})
    ...     meta, arrays = read_model(path)
    >>> meta
    {'formula': 'y ~ .'}
    >>> arrays["theta"]
    array([ 0.5, -1. ])
    """
    target = _check_path(path)
    chunks = _pack(meta, arrays, kind)
    try:
        if os.path.exists(target) and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "the file is write-protected")
        _write_file(os.path.realpath(target), chunks)
    except OSError as error:
        remedy = "check the directory, its permissions and the free disk space"
        raise OSError(
            error.errno, f"cannot save: {error.strerror or error}; {remedy}", target
        ) from error


def read_model(
    path: str | os.PathLike, kind: str = "bbl"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return (meta, arrays) of a model file of one `kind`; see `read_any`."""
    _, meta, arrays = read_any(path, (kind,))
    return meta, arrays


def read_any(
    path: str | os.PathLike, kinds: Collection[str]
) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Read a file written by `write_model`; every byte is checked, so files from untrusted sources
    can be read.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    kinds : collection of str
        The kinds that the caller accepts.

    Returns
    -------
    kind : str
    meta : dict
    arrays : dict of numpy.ndarray
        Arrays by name, sorted; bitwise identical to the stored ones, C-contiguous, in native byte
        order, and read-only.

    Raises
    ------
    FileNotFoundError, OSError
        If the file does not exist or cannot be read.
    ModelFileError
        If the file is damaged or not a model file, or if it has another kind or a later format
        version.
    """
    file_name = _check_path(path)
    try:
        with open(file_name, "rb") as file:
            members = read_members(file, os.fstat(file.fileno()).st_size)
        return _unpack(members, kinds)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot load: {error.strerror or error}; check the path", file_name
        ) from error
    except (ValueError, struct.error) as error:
        raise ModelFileError(
            f"{file_name!r} is not a model file that can be loaded: {error}.",
            argument="path",
            hint="If it is damaged, save the model again or get an intact copy.",
        ) from None


def _check_path(path: str | os.PathLike) -> str:
    """Return `path` as a str, after checking that it is a regular file or does not exist yet."""
    try:
        file_name = os.fsdecode(path)
        mode = os.stat(file_name).st_mode
    except TypeError:
        description = f"{path!r} of type {type(path).__name__}"
        raise BBLTypeError(
            f"path must be a str or os.PathLike; got {description}.", argument="path"
        ) from None
    except ValueError as error:  # a NUL, or characters that the file system cannot encode
        raise OptionError(
            f"path={path!r} cannot be a file name: {error}.",
            argument="path",
            hint="Choose another file name.",
            value=path,
        ) from None
    except OSError:
        # absent or not accessible: treat it as a regular file; opening it raises the error
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode) or not os.path.basename(file_name):
        raise IsADirectoryError(errno.EISDIR, "this is a directory; add a file name", file_name)
    if not stat.S_ISREG(mode):  # reading a pipe would block, and /dev/null must not be replaced
        raise OSError(errno.EINVAL, "this is not a regular file; pass another path", file_name)
    return file_name


def _pack(meta: dict[str, Any], arrays: dict[str, np.ndarray], kind: str) -> list[Any]:
    """Return the bytes of a model file as a list of bytes objects and flat uint8 arrays.

    The arrays are views where possible.
    """
    plain_arrays = {name: _plain_array(name, array) for name, array in arrays.items()}
    if len(plain_arrays) > MAX_ARRAYS:
        raise OptionError(
            f"arrays has {len(plain_arrays)} entries; at most {MAX_ARRAYS} are allowed.",
            argument="arrays",
        )
    plain_arrays = {name: plain_arrays[name] for name in sorted(plain_arrays)}
    members: list[tuple[str, list[Any]]] = [("meta.json", [_encode_meta(meta, plain_arrays, kind)])]
    for name, array in plain_arrays.items():
        header = npy_header(array.dtype.str, array.shape)
        members.append((f"{name}.npy", [header, array.reshape(-1).view(np.uint8)]))
    members.append(("sha256", [digest(members)]))  # digest of all previous members
    chunks: list[Any] = []
    entries: list[Entry] = []
    for name, pieces in members:
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        # the length of a uint8 array is its size in bytes
        entries.append((name, crc, sum(map(len, pieces))))
        chunks += [local_header(*entries[-1]), *pieces]
    return [*chunks, directory(entries)]


def _plain_array(name: object, array: np.ndarray) -> np.ndarray:
    """Return an array in little-endian C order, after checking its name and dtype."""
    if not (isinstance(name, str) and _ARRAY_NAME.fullmatch(name)):
        raise OptionError(
            f"The array name {name!r} must have 1 to 64 letters, digits or '_'.", argument="arrays"
        )
    is_plain = type(array) in (np.ndarray, np.memmap)  # a masked array would lose its mask
    descr = array.dtype.newbyteorder("<").str if is_plain else ""
    if descr not in _DTYPES:
        description = f"dtype {array.dtype}" if is_plain else type(array).__name__
        raise BBLTypeError(
            f"arrays[{name!r}] must be a bool, integer or float64 numpy array; got {description}.",
            argument="arrays",
            hint="Convert it first.",
        )
    return np.asarray(array, dtype=descr, order="C")


def _encode_meta(meta: dict[str, Any], arrays: dict[str, np.ndarray], kind: str) -> bytes:
    """Return the bytes of meta.json: `meta`, the table of `arrays`, and the versions."""
    if type(meta) is not dict or type(kind) is not str:
        raise BBLTypeError(
            f"meta must be a dict and kind must be a str; got {type(meta)}, {type(kind)}.",
            argument="meta",
        )
    _check_plain(meta, "meta", 2)  # 2: meta is a dict inside the dict of meta.json
    document = {
        "format": FORMAT,
        "format_version": VERSION,
        "kind": kind,
        "bbl_version": getattr(sys.modules["bbl"], "__version__", ""),
        "arrays": [
            {"name": n, "dtype": a.dtype.str, "shape": a.shape, "size": a.nbytes}
            for n, a in arrays.items()
        ],
        "meta": meta,
    }
    try:
        text = json.dumps(document, separators=(",", ":"))
        _check_json(text)
    except ValueError as error:  # also raised for an int with too many digits to convert
        raise OptionError(
            f"meta cannot be written: {error}.", argument="meta", hint="Make it smaller."
        ) from None
    return text.encode("ascii")


def _check_plain(value: object, place: str, depth: int) -> None:
    """Raise an error for values that would be changed by JSON.

    Such values are tuples, numpy scalars, keys that are not str, NaN and infinity. `place`
    describes the value in messages, such as ``meta['terms'][0]``; `depth` is one more than the
    number of enclosing lists and dicts in meta.json.
    """
    # 62 levels: the dict of meta.json, meta, and the 60 levels documented in `write_model`. The
    # limit is 2 less than in `_check_json`, so that this error, which names the place, is raised
    # first.
    if depth > _MAX_DEPTH - 2:
        raise OptionError(
            f"{place[:200]} is nested too deeply.", argument="meta", hint="Reduce the nesting."
        )
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise BBLTypeError(
                    f"{place} has the key {key!r}; keys must be str.", argument="meta"
                )
            _check_plain(item, f"{place}[{key!r}]", depth + 1)
    elif type(value) is list:
        for position, item in enumerate(value):
            _check_plain(item, f"{place}[{position}]", depth + 1)
    elif type(value) is float and not math.isfinite(value):
        raise OptionError(
            f"{place} is {value}, which a model file cannot contain.",
            argument="meta",
            hint="Pass None.",
        )
    elif value is not None and type(value) not in (str, int, float, bool):
        description = f"{place} is a {type(value).__name__}"
        raise BBLTypeError(
            f"{description}.",
            argument="meta",
            hint="Use str, int, float, bool, None, list or dict.",
        )


def _write_file(target: str, chunks: list[Any]) -> None:
    """Write `chunks` to a temporary file in the same directory, and rename it to `target`."""
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".bbl-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:  # x: the file must not exist
            with suppress(OSError):  # no old file, or a file system without permissions
                os.chmod(temporary, os.stat(target).st_mode & 0o777)
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if os.name == "posix":
        # The new name must also be written to disk. The file is already complete, and not every
        # file system can sync a directory.
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _unpack(
    members: dict[str, bytes], kinds: Collection[str]
) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Return (kind, meta, arrays), given the members of a file.

    Raise a ValueError if meta.json is invalid. `read_members` has already checked and removed the
    member ``sha256``.
    """
    text = members.get("meta.json", b"").decode("ascii")
    _check_json(text)
    # parse_constant receives NaN and Infinity, which are rejected
    document = json.loads(
        text, object_pairs_hook=_build_dict, parse_float=_parse_finite, parse_constant=_parse_finite
    )
    if type(document) is not dict or document.get("format") != FORMAT:
        raise ValueError("meta.json does not describe a model")
    version = document.get("format_version")
    if type(version) is not int or version < 1:
        raise ValueError("the format version is not a positive integer")
    if version > VERSION:
        writer = str(document.get("bbl_version"))[:40]
        raise ValueError(
            f"its format version, {version} (of bbl {writer}), is newer than {VERSION}, the "
            "latest that this version of bbl can read: upgrade bbl"
        )
    kind = document.get("kind")
    if type(kind) is not str or kind not in kinds:
        wanted = " or ".join(map(repr, kinds))
        raise ValueError(
            f"it contains {str(kind)[:80]!r}, not {wanted}: use the function that loads such files"
        )
    # table: one row for each array
    meta = document.get("meta")
    table = document.get("arrays")
    if type(meta) is not dict or type(table) is not list:
        raise ValueError("meta.json is incomplete")
    arrays = dict(_read_array(row, members) for row in table)
    if ["meta.json", *(f"{name}.npy" for name in sorted(arrays))] != list(members) or len(
        table
    ) != len(arrays):
        raise ValueError("its members do not match meta.json")
    return kind, meta, arrays


def _read_array(row: Any, members: dict[str, bytes]) -> tuple[str, np.ndarray]:
    """Return (name, array) for one row of the table of arrays in meta.json.

    The array is a read-only view of the member's bytes.
    """
    if type(row) is not dict or row.keys() != {"name", "dtype", "shape", "size"}:
        raise ValueError("a row of the table of arrays is incomplete")
    name = row["name"]
    descr = row["dtype"]
    shape = row["shape"]
    size = row["size"]
    if (
        type(name) is not str
        or not _ARRAY_NAME.fullmatch(name)
        or type(descr) is not str
        or descr not in _DTYPES
    ):
        raise ValueError("the table of arrays has an invalid name or dtype")
    if type(shape) is not list or any(type(n) is not int or not 0 <= n < 2**62 for n in shape):
        raise ValueError(f"the shape of {name!r} is invalid")
    dtype = np.dtype(descr)
    data = members.get(f"{name}.npy", b"")
    header = npy_header(descr, tuple(shape))
    if (
        size != math.prod(shape) * dtype.itemsize
        or len(data) != len(header) + size
        or not data.startswith(header)
    ):
        raise ValueError(f"{name!r} does not match its declaration")
    array: np.ndarray = np.ndarray(tuple(shape), dtype, buffer=data, offset=len(header))
    # translate deletes all bytes 0 and 1
    if descr == "|b1" and data[len(header) :].translate(None, b"\0\1"):
        raise ValueError(f"{name!r} has a boolean that is neither 0 nor 1")
    return name, array.astype(dtype.newbyteorder("="), copy=False)  # "=": native byte order


def _check_json(text: str) -> None:
    """Raise a ValueError if a JSON text is too long, or has too many or too deeply nested
    containers.
    """
    if len(text) > _MAX_META:
        raise ValueError(f"over {_MAX_META >> 20} MiB of JSON")
    depth = n_brackets = 0
    for match in _JSON_BRACKET.finditer(text):
        if match[0][0] != '"':  # a bracket, not a string
            depth += 1 if match[1] else -1
            n_brackets += 1
            # two brackets for each container
            if depth > _MAX_DEPTH or n_brackets > 2 * _MAX_CONTAINERS:
                raise ValueError(
                    f"it is nested more than {_MAX_DEPTH} levels deep, or has more than "
                    f"{_MAX_CONTAINERS} lists and dicts"
                )


def _build_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the (key, value) pairs of a JSON object as a dict.

    Raise a ValueError for duplicate keys.
    """
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("meta.json has a duplicate key")
    return result


def _parse_finite(text: str) -> float:
    """Return the float of a JSON number; raise a ValueError for NaN, infinity and overflow."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"meta.json contains {text[:20]}")
    return value
