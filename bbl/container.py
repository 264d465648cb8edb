"""The zip and npy bytes of a model file: headers, directory and digest.

Every function that makes these bytes is deterministic. So `read_members` rebuilds them from names, sizes and checksums
and compares, in place of parsing them. A *member* is one file inside the zip file.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any, BinaryIO

__all__ = ["MAX_ARRAYS", "Entry", "digest", "directory", "local_header", "npy_header", "read_members"]

MAX_ARRAYS = 1000
_MAX_DIRECTORY = MAX_ARRAYS * 256  # bytes; names have at most 68, which leaves room
_LOCAL = struct.Struct("<4s5H3I2H")  # header before each member
_LOCAL_SIZES = struct.Struct("<2H2Q")  # its 64-bit sizes
_ENTRY = struct.Struct("<4s6H3I5H2I")  # entry of a member in the directory
_ENTRY_SIZES = struct.Struct("<2H3Q")  # its 64-bit sizes and offset
_END = struct.Struct("<4sQ2H2I4Q4sIQI4s4H2IH")  # zip64 end, its locator, classic end
_JANUARY_1980 = 0x21  # date of all members, so that the same model gives the same bytes
_ZIP64 = 45  # version of the format that readers need
_SEE64 = 0xFFFFFFFF  # in a field of four bytes: the value is in the 64-bit record
_SEE64_SHORT = 0xFFFF  # the same, in a field of two bytes

Entry = tuple[str, int, int]  # name, crc32, size of a member


def local_header(name: str, crc: int, size: int) -> bytes:
    """Return the zip header that stands before a member of `size` bytes with the checksum `crc`."""
    fixed = _LOCAL.pack(b"PK\3\4", _ZIP64, 0, 0, 0, _JANUARY_1980, crc, _SEE64, _SEE64, len(name), _LOCAL_SIZES.size)
    return fixed + name.encode() + _LOCAL_SIZES.pack(1, 16, size, size)


def directory(entries: list[Entry]) -> bytes:
    """Return the zip directory and the end records of members that follow each other from byte 0 on."""
    parts = []
    offset = 0  # of the member's header
    made_by, mode = 3 << 8 | _ZIP64, 0o100644 << 16  # Unix, a regular file
    for name, crc, size in entries:
        fixed = (b"PK\1\2", made_by, _ZIP64, 0, 0, 0, _JANUARY_1980, crc, _SEE64, _SEE64, len(name), _ENTRY_SIZES.size)
        parts.append(_ENTRY.pack(*fixed, 0, 0, 0, mode, _SEE64) + name.encode())
        parts.append(_ENTRY_SIZES.pack(1, 24, size, size, offset))
        offset += len(local_header(name, crc, size)) + size
    entry_bytes, count = b"".join(parts), len(entries)
    zip64 = (b"PK\6\6", 44, made_by, _ZIP64, 0, 0, count, count, len(entry_bytes), offset)
    locator = (b"PK\6\7", 0, offset + len(entry_bytes), 1)
    classic = (b"PK\5\6", 0, 0, _SEE64_SHORT, _SEE64_SHORT, _SEE64, _SEE64, 0)
    return entry_bytes + _END.pack(*zip64, *locator, *classic)


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an npy file, format 1.0, padded with blanks to a multiple of 64 bytes."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def digest(members: list[tuple[str, list[Any]]]) -> bytes:
    """Return the SHA-256 hex digest of members, each a name and the parts of its bytes."""
    checksum = hashlib.sha256()
    for name, parts in members:
        checksum.update(f"{name}\0{sum(map(len, parts))}\0".encode())
        for piece in parts:
            checksum.update(piece)
    return checksum.hexdigest().encode()


def read_members(file: BinaryIO, size: int) -> dict[str, bytes]:
    """Return the bytes of the members by name, in order, without ``sha256``, after checking every byte of the file.

    No more than `size` bytes, the length of the file, are read; and no content before the sizes are known to add up.
    """
    entries, stored_directory = _read_directory(file, size)
    if directory(entries) != stored_directory:  # also: gaps, overlaps, comments, compression, encryption, links
        raise ValueError("its directory is not as written")
    members: dict[str, bytes] = {}
    file.seek(0)
    for name, crc, length in entries:
        header = local_header(name, crc, length)
        if file.read(len(header)) != header:
            raise ValueError(f"the header of {name!r} is not as written")
        members[name] = file.read(length)
        if len(members[name]) != length or zlib.crc32(members[name]) != crc:
            raise ValueError(f"{name!r} does not have its checksum")
    stored_digest = members.pop("sha256", b"")
    if len(members) != len(entries) - 1 or stored_digest != digest([(n, [data]) for n, data in members.items()]):
        raise ValueError("the content does not have its digest")
    return members


def _read_directory(file: BinaryIO, size: int) -> tuple[list[Entry], bytes]:
    """Return the entries of the directory at the end of a file of `size` bytes, and the bytes of directory and end."""
    if size < _END.size:
        raise ValueError("it is too short")
    file.seek(size - _END.size)
    end = _END.unpack(file.read(_END.size))
    length, offset = end[8], end[9]  # of the directory
    if offset + length + _END.size != size or length > _MAX_DIRECTORY:
        raise ValueError("its end is missing")
    file.seek(offset)
    stored = file.read(length + _END.size)
    entries: list[Entry] = []
    position = 0
    while position < length:
        fixed = _ENTRY.unpack_from(stored, position)  # fixed[7]: crc32, fixed[10]: length of the name
        position += _ENTRY.size
        name = stored[position : position + fixed[10]].decode("ascii")
        position += len(name)
        entries.append((name, fixed[7], _ENTRY_SIZES.unpack_from(stored, position)[2]))
        position += _ENTRY_SIZES.size
    return entries, stored
