"""The characters that text normalisation knows, as sets of code points: punctuation, what is deleted, digits.

PUNCTUATION, DELETED and DIGITS are those that Omnilingual ASR (Apache-2.0) uses for every language, its accidents included:
letters such as U+3005 and U+30FC count as punctuation, "#" does not, and most of the world's digits are unknown.
"""
from __future__ import annotations


def points(ranges: str) -> frozenset[int]:
    """The code points of ranges in hexadecimal.

    >>> sorted(points("41-43 61"))
    [65, 66, 67, 97]
    """
    pairs = (part.partition("-") for part in ranges.split())
    return frozenset(n for first, _, last in pairs for n in range(int(first, 16), int(last or first, 16) + 1))


PUNCTUATION = points(
    "8 1A 21-22 24-26 28-2C 2E-2F 3A-40 5B 5D-5F 7B-7E 81 8D 8F-90 92-94 9D A1 A3 A9 AB-AC AF-B0 B6-B7 BB-BD BF D7 2C7 2DC "
    "37E 387 55A-55F 589 5BE 60C 61B 61E-61F 640 6D4 964-965 9F7 E46 EC6 F04-F05 F0C-F0E 104A-104F 109F 1361-1366 166D-166E "
    "17D4-17D7 17DA 2006 2015 2018-2022 2026-2027 202F-2030 2038-203B 2044 2060 206F 2071 207F 20AC 2153 215F 2192 2212 "
    "226A-226B 22EF 230A-230B 231E-231F 2500 2D70 3001-3002 3005 3008-3011 3014-3015 30FB-30FC A4FE-A4FF A92E-A92F E003 E013 "
    "E01D E040-E041 E043 E06B E06D E070 E203 E231-E234 E236 E290-E296 E2D9 E2DB E2DE E2F9-E2FC E2FE E313 E328-E32E E492-E493 "
    "E514 E516-E518 EA01 EA7B F171-F173 F218 F21D F50E-F50F F511 F513 F518-F519 F521-F523 F529 F52D F62D F7D0 F7E8 FD3E-FD3F "
    "FE4F-FE50 FE55-FE57 FF01 FF08-FF09 FF0C FF0E-FF0F FF1A-FF1C FF1E-FF1F FF3F FF41-FF44 FF5E FF65 FFFD")
DELETED = points("64B-652 656-657 200B-200C 200E-200F 202A 202C")
DIGITS = points("30-39 6F0-6F9 966-96F 9E6-9EF B66-B6F D66-D6F 1040-1049 17E0-17E9 206F 2170-2179 A900-A909 FF10-FF19")

LETTERS = points("E46 EC6 17D7 3005 30FC")  # of PUNCTUATION: the signs that repeat or lengthen in Thai, Lao, Khmer, Japanese
TATWEEL = 0x640  # lengthens a word on paper only
SOFT_HYPHEN, BYTE_ORDER_MARK = 0xAD, 0xFEFF
HEBREW_POINTS = points("5B0-5CF")
ZERO_WIDTH_JOINER = 0x200D
NUMBER_SIGN = 0x23
