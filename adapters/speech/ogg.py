"""Ogg files without chance in them: libsndfile numbers each stream at random, and equal audio shall be equal bytes."""
from __future__ import annotations

import struct

PAGE = struct.Struct("<4sBBqIIIB")  # "OggS", version, flags, position, serial number, page number, crc32, lace count
SERIAL, CRC = 14, 22  # bytes into a page
POLYNOMIAL = 0x04C11DB7


def _crc_table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = (value << 1 ^ (POLYNOMIAL if value >> 31 else 0)) & 0xFFFFFFFF
        return value

    return tuple(entry(n << 24) for n in range(256))


TABLE = _crc_table()


def page_crc(page: bytes | bytearray) -> int:
    """The checksum of a page whose own checksum is zero.

    >>> hex(page_crc(b"123456789"))
    '0x89a1897f'
    """
    crc = 0
    for byte in page:
        crc = crc << 8 & 0xFFFFFFFF ^ TABLE[crc >> 24 ^ byte]
    return crc


def with_serial(file: bytes, serial: int = 0) -> bytes:
    """The Ogg file with another serial number on each of its pages, which have to be those of one stream."""
    found = bytearray(file)
    at = 0
    while at < len(found):
        laces = PAGE.unpack_from(found, at)[-1]
        body = at + PAGE.size + laces
        end = body + sum(found[at + PAGE.size:body])
        struct.pack_into("<I", found, at + SERIAL, serial)
        struct.pack_into("<I", found, at + CRC, 0)
        struct.pack_into("<I", found, at + CRC, page_crc(found[at:end]))
        at = end
    return bytes(found)
