"""The bytes of a recording: gzip members that are packed, found and unpacked one by one."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from pdops.errors import RecordingError

MAGIC = b"\x1f\x8b"
_PREFIX = MAGIC + b"\x08\x04" + bytes(4) + b"\x02\xff"
_FIELD = struct.Struct("<H2sHQd")
_HEAD = len(_PREFIX) + _FIELD.size
_CHUNK = 1 << 16
_WHOLE = 64 << 20
"""A member that unpacks to less than this many bytes is checked as a whole before any of it is believed."""
_MAX_RATIO = 300
"""Packed recordings expand 5 to 40 times; a file that expands more than this, beyond `_WHOLE`, is refused."""
MAX_LINE = 16 << 20
"""The longest line that is read, in bytes; a frame of 2,000 workers takes a quarter of it."""
_LONG = f"a line is longer than {MAX_LINE >> 20} MiB"


@dataclass(frozen=True, slots=True)
class Hop:
    """Where a member lies, and the Unix seconds of its first frame."""

    offset: int
    length: int
    start_s: float


def pack(lines: bytes, start_s: float) -> bytes:
    """Return one gzip member that says how long it is and when it begins."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = squeeze.compress(lines) + squeeze.flush()
    length = _HEAD + len(body) + 8
    field = _FIELD.pack(_FIELD.size - 2, b"PD", _FIELD.size - 6, length, start_s)
    return _PREFIX + field + body + struct.pack("<II", zlib.crc32(lines), len(lines) & 0xFFFFFFFF)


def hop_at(file: BinaryIO, offset: int, size: int) -> Hop | None:
    """Return the member that begins at a byte, or None when it does not say or is not whole."""
    file.seek(offset)
    head = file.read(_HEAD)
    if len(head) < _HEAD or not head.startswith(MAGIC + b"\x08\x04"):
        return None
    _, name, _, length, start_s = _FIELD.unpack_from(head, len(_PREFIX))
    if name != b"PD" or length < _HEAD or offset + length > size:
        return None
    return Hop(offset, length, start_s)


def hops(file: BinaryIO) -> list[Hop]:
    """Return the members that can be reached without unpacking, in order."""
    size = os.fstat(file.fileno()).st_size
    found: list[Hop] = []
    offset = 0
    while (hop := hop_at(file, offset, size)) is not None:
        found.append(hop)
        offset += hop.length
    return found


def read_lines(file: BinaryIO, offset: int, warn: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the lines from a member on.

    A damaged member is left out with a warning; a member that is cut off is read as far as whole lines go.

    Raises:
        RecordingError: the file expands beyond reason.
    """
    size = os.fstat(file.fileno()).st_size
    while offset < size:
        hop = hop_at(file, offset, size)
        file.seek(offset)
        if file.read(2) != MAGIC:
            file.seek(offset)
            if file.read(_CHUNK).strip(b"\0"):
                warn(f"what follows byte {offset} is not a recording and was left out")
            return
        file.seek(offset)
        try:
            end = yield from _member(file)
        except zlib.error:
            end = None if hop is None else offset + hop.length
            rest = "" if hop is not None else ", with all that follows"
            warn(f"the part at byte {offset} is damaged and was left out{rest}")
            if end is None:
                return
        else:
            if end is None:
                warn(f"the file is cut off; the part at byte {offset} was read as far as it goes")
                return
        offset = end


def _member(file: BinaryIO) -> Generator[bytes, None, int | None]:
    """Yield the lines of one member and return the byte after it, or None when it is cut off."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    held = bytearray()
    taken = made = 0
    while not unpack.eof:
        chunk = unpack.unconsumed_tail
        if not chunk:
            chunk = file.read(_CHUNK)
            taken += len(chunk)
            if not chunk:
                yield from _lines(file, held, held.rfind(b"\n") + 1)
                return None
        out = unpack.decompress(chunk, 1 << 20)
        made += len(out)
        held += out
        if made > _WHOLE:
            if made > taken * _MAX_RATIO:
                _refuse(file, f"{taken} bytes expand to more than {made >> 20} MiB")
            end = held.rfind(b"\n") + 1
            yield from _lines(file, held, end)
            del held[:end]
            if len(held) > MAX_LINE:
                _refuse(file, _LONG)
    yield from _lines(file, held, len(held))
    return file.tell() - len(unpack.unused_data)


def _lines(file: BinaryIO, held: bytearray, end: int) -> Iterator[bytes]:
    for line in bytes(held[:end]).split(b"\n"):
        if len(line) > MAX_LINE:
            _refuse(file, _LONG)
        if line:
            yield line


def _refuse(file: BinaryIO, why: str) -> NoReturn:
    raise RecordingError(
        "recording cannot be read",
        where=str(getattr(file, "name", "")),
        why=why,
        hint="it was not made by pdops; do not trust it",
    )
