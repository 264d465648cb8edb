"""The bytes of a model file in zip and npy format: headers, directory and digest.

All functions that produce these bytes are deterministic. Instead of parsing a file, `read_members`
therefore reconstructs its bytes from names, sizes and checksums, and compares them with the file. A
*member* is a file inside the zip file.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any, BinaryIO

__all__ = [
    "MAX_ARRAYS",
    "Entry",
    "digest",
    "directory",
    "local_header",
    "npy_header",
    "read_members",
]

MAX_ARRAYS = 1000
# in bytes; this is sufficient because names have at most 68 bytes
_MAX_DIRECTORY = MAX_ARRAYS * 256
# Records of the zip format (APPNOTE.TXT), with the order of their fields. Header before each
# member: signature; version, flags, method, time, date; crc32, two sizes; lengths of name and extra
_LOCAL = struct.Struct("<4s5H3I2H")
# extra field of the header: tag 1, its length of 16; size before and after compression
_LOCAL_SIZES = struct.Struct("<2H2Q")
# entry of a member in the directory: signature; versions of writer and reader, flags, method, time,
# date; crc32, two sizes; lengths of name, extra and comment, disk, internal attributes; external
# attributes, offset
_ENTRY = struct.Struct("<4s6H3I5H2I")
# extra field of the entry: tag 1, its length of 24; size before and after compression, offset of
# the member's header
_ENTRY_SIZES = struct.Struct("<2H3Q")
# zip64 end: signature, length of the rest; versions, disks; number of entries on the disk and in
# total, size and offset of the directory. Locator: signature, disk, offset of the zip64 end, number
# of disks. Classic end: signature; two disks, two numbers of entries; size and offset of the
# directory; length of the comment
_END = struct.Struct("<4sQ2H2I4Q4sIQI4s4H2IH")
_JANUARY_1980 = 0x21  # date of all members, so that the same model always results in the same bytes
_ZIP64 = 45  # version of the format that readers must support
_SEE64 = 0xFFFFFFFF  # in a four-byte field, this means that the value is in the 64-bit record
_SEE64_SHORT = 0xFFFF  # the same for a two-byte field

Entry = tuple[str, int, int]  # name, crc32 and size in bytes of a member


def local_header(name: str, crc: int, size: int) -> bytes:
    """Return the zip header before a member of `size` bytes with checksum `crc`; see `_LOCAL`."""
    # three zeros: no flags, no compression, midnight
    fixed = _LOCAL.pack(
        b"PK\3\4", _ZIP64, 0, 0, 0, _JANUARY_1980, crc, _SEE64, _SEE64, len(name), _LOCAL_SIZES.size
    )
    return fixed + name.encode() + _LOCAL_SIZES.pack(1, 16, size, size)


def directory(entries: list[Entry]) -> bytes:
    """Return the zip directory and the end records for contiguous members that start at byte 0.

    The order of the fields is defined by the record formats `_ENTRY` and `_END`.
    """
    records = []
    offset = 0  # position of the member's header
    # the high byte stands for the writer, Unix (3); the high two bytes of mode stand for a regular
    # file with permissions 644
    made_by = 3 << 8 | _ZIP64
    mode = 0o100644 << 16
    for name, crc, size in entries:
        fixed = (
            b"PK\1\2",
            made_by,
            _ZIP64,
            0,
            0,
            0,
            _JANUARY_1980,
            crc,
            _SEE64,
            _SEE64,
            len(name),
            _ENTRY_SIZES.size,
        )
        # three zeros: no comment, disk 0, no internal attributes
        records.append(_ENTRY.pack(*fixed, 0, 0, 0, mode, _SEE64) + name.encode())
        records.append(_ENTRY_SIZES.pack(1, 24, size, size, offset))
        offset += len(local_header(name, crc, size)) + size
    entry_bytes = b"".join(records)
    n_entries = len(entries)
    # 44: length of the zip64 end after this field
    zip64_end = (
        b"PK\6\6",
        44,
        made_by,
        _ZIP64,
        0,
        0,
        n_entries,
        n_entries,
        len(entry_bytes),
        offset,
    )
    locator = (b"PK\6\7", 0, offset + len(entry_bytes), 1)
    classic_end = (b"PK\5\6", 0, 0, _SEE64_SHORT, _SEE64_SHORT, _SEE64, _SEE64, 0)
    return entry_bytes + _END.pack(*zip64_end, *locator, *classic_end)


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an npy file, format 1.0, padded to a multiple of 64 bytes."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    # 11: magic, version and length before the text, and the newline
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def digest(members: list[tuple[str, list[Any]]]) -> bytes:
    """Return the SHA-256 hex digest of members, which are pairs of a name and a list of pieces.

    Pieces are bytes or uint8 arrays.
    """
    checksum = hashlib.sha256()
    for name, pieces in members:
        checksum.update(f"{name}\0{sum(map(len, pieces))}\0".encode())
        for piece in pieces:
            checksum.update(piece)
    return checksum.hexdigest().encode()


def read_members(file: BinaryIO, size: int) -> dict[str, bytes]:
    """Return the bytes of the members by name, in their order, after checking every byte of the
    file.

    The member ``sha256`` is not included. At most `size` bytes are read, which is the length of the
    file. Before members are read, the directory is compared with the directory that their names,
    checksums and sizes determine.
    """
    entries, stored_directory = _read_directory(file, size)
    # this also detects gaps, overlaps, comments, compression, encryption and links
    if directory(entries) != stored_directory:
        raise ValueError("its directory is corrupt")
    members: dict[str, bytes] = {}
    file.seek(0)
    for name, crc, length in entries:
        header = local_header(name, crc, length)
        if file.read(len(header)) != header:
            raise ValueError(f"the header of {name!r} is corrupt")
        members[name] = file.read(length)
        if len(members[name]) != length or zlib.crc32(members[name]) != crc:
            raise ValueError(f"{name!r} does not match its checksum")
    stored_digest = members.pop("sha256", b"")
    # all names are distinct, and one of them is "sha256"
    if len(members) != len(entries) - 1 or stored_digest != digest(
        [(n, [data]) for n, data in members.items()]
    ):
        raise ValueError("the content does not match its digest")
    return members


def _read_directory(file: BinaryIO, size: int) -> tuple[list[Entry], bytes]:
    """Return the entries of the directory at the end of a file, and the bytes of directory and end.

    `size` is the length of the file in bytes.
    """
    if size < _END.size:
        raise ValueError("it is too short")
    file.seek(size - _END.size)
    end = _END.unpack(file.read(_END.size))
    # the last two Q fields of the zip64 end in `_END`
    directory_size = end[8]
    offset = end[9]
    if offset + directory_size + _END.size != size or directory_size > _MAX_DIRECTORY:
        raise ValueError("its end is missing")
    file.seek(offset)
    directory_and_end = file.read(directory_size + _END.size)
    entries: list[Entry] = []
    position = 0  # position in the directory
    while position < directory_size:
        # see `_ENTRY`: [7] crc32, [10] length of the name
        fields = _ENTRY.unpack_from(directory_and_end, position)
        position += _ENTRY.size
        name = directory_and_end[position : position + fields[10]].decode("ascii")
        position += len(name)
        # [2]: size before compression, equal to the size in the file because members are not
        # compressed
        entries.append((name, fields[7], _ENTRY_SIZES.unpack_from(directory_and_end, position)[2]))
        position += _ENTRY_SIZES.size
    return entries, directory_and_end
