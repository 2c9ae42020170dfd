"""Transcripts as a speech model reads them: `text_normalize`."""
from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from adapters.speech import characters as chars
from asdstore.errors import DependencyError, InputError

RULES = ("omnilingual", "unicode")
QUOTES = "\u2018\u2019\u201b"
ALEF_WASLA, ALEF = "\u0671", "\u0627"
TWO_LETTERS = {"ar": "ara", "he": "heb", "iw": "heb", "jv": "jav", "jw": "jav", "mn": "mon", "th": "tha"}  # with tables below
NOT_ROMANISED = ((0xA4D0, 0xABFF), (0xD7A4, 0xF8FF), (0x10000, 0x10FFFF))  # scripts that become nothing
IDEOGRAPHS = (0x3400, 0x9FFF)  # become a syllable and a space each
ROMANISED = {"\u0259": "@", "\u0138": "k", "\u00c6": "AE", "\u0152": "OE", "\u014a": "NG"}  # where anyascii differs


class _Way(NamedTuple):
    """How the text of one language is normalised."""

    table: dict[int, str | None]  # punctuation to a space, deleted characters to nothing
    digits: re.Pattern[str]  # a word of digits alone
    all_quotes: bool = False  # or the last one of a word
    alef: bool = False  # alef wasla is written as alef
    ascii: bool = False  # transliterated


def text_normalize(text: str, iso_code: str, lower_case: bool = True, remove_numbers: bool = True,
                   remove_brackets: bool = False, rules: str = "omnilingual") -> str:
    """The text in NFKC, without punctuation, words of digits alone, and spare white space.

    Arguments:
        text: a transcript.
        iso_code: its language: "en", "eng" or "eng_Latn".
        lower_case: write it in lower case, by Unicode's rules for no language in particular.
        remove_numbers: remove words of digits alone.
        remove_brackets: remove round brackets with what they hold; those that hold a digit always go.
        rules: "omnilingual" gives what Omnilingual ASR's own function gives, its faults included; "unicode" corrects these:

            language    tables (ara arb heb jav khk mon tha) are reached by "he" and "heb_Hebr" too, not by "heb" alone
            digits      decimal digits of every script count, not those of ten scripts
            "123"       a text of digits alone becomes "", as it does with a space around it
            letters     the signs of Thai, Lao, Khmer and Japanese that repeat or lengthen (U+0E46 U+0EC6 U+17D7 U+3005
                        U+30FC) stay, they are no punctuation
            tatweel     U+0640 is deleted and does not cut a word in two
            invisible   U+FEFF and U+00AD are deleted in every language
            "#"         is punctuation
            quotes      every quotation mark inside a word becomes "'", not the last one alone
            alef wasla  U+0671 becomes alef in Arabic, not in every language

        Both follow the Unicode tables of this Python (`unicodedata.unidata_version`), and NFKC goes first: U+2103 becomes "c",
        U+2116 "no", an acute accent that stands alone a space and a mark.

    Raises: InputError "rules"; DependencyError where Javanese is not written in ASCII and anyascii is missing.

    >>> text_normalize("Hello, World! 123", "en"), text_normalize("L’été à l’école", "fr")
    ('hello world', "l'été à l'école")
    """
    if rules not in RULES:
        raise InputError("rules", expected=" or ".join(RULES), found=repr(rules))
    way = _way(rules, iso_code if rules == "omnilingual" else _three_letters(iso_code))
    text = unicodedata.normalize("NFKC", text)
    if lower_case:
        text = text.lower()
    text = _without_brackets(text, remove_brackets)
    for entity in ("&lt;", "&gt;", "&nbsp"):
        text = text.replace(entity, "")
    if any(quote in text for quote in QUOTES):
        text = re.sub(r"\S+", lambda word: _quoted(word[0], way.all_quotes), text)
    if way.alef:
        text = text.replace(ALEF_WASLA, ALEF)
    text = text.translate(way.table)
    if remove_numbers:
        text = way.digits.sub(" ", text)
    if way.ascii:
        text = _in_ascii(text)
    return " ".join(text.split())


def _three_letters(iso_code: str) -> str:
    """The language of a code: "he", "heb" and "heb_Hebr" give "heb".

    >>> [_three_letters(code) for code in ("he", "heb_Hebr", "en", "ceb_ph")]
    ['heb', 'heb', 'en', 'ceb']
    """
    language = re.split("[_-]", iso_code, maxsplit=1)[0].lower()
    return TWO_LETTERS.get(language, language)


@cache
def _way(rules: str, language: str) -> _Way:
    corrected = rules == "unicode"
    deleted, punctuation = set(chars.DELETED), set(chars.PUNCTUATION)
    if corrected:
        punctuation = punctuation - chars.LETTERS - {chars.TATWEEL} | {chars.NUMBER_SIGN}
        deleted |= {chars.TATWEEL, chars.BYTE_ORDER_MARK, chars.SOFT_HYPHEN}
    if language in ("mon", "khk"):
        deleted.add(chars.SOFT_HYPHEN)
    elif language == "heb":
        deleted |= chars.HEBREW_POINTS
    elif language == "tha":
        punctuation.add(chars.ZERO_WIDTH_JOINER)
    if corrected:
        digits = r"(?:^|(?<=\s))\d+(?=\s|$)"
    else:
        digit = "[" + "".join(map(chr, sorted(chars.DIGITS))) + "]+"
        digits = rf"^{digit}(?=\s)|(?<=\s){digit}(?=\s|$)"
    return _Way(dict.fromkeys(deleted) | dict.fromkeys(punctuation, " "), re.compile(digits), corrected,
                not corrected or language in ("ara", "arb"), language == "jav")


def _without_brackets(text: str, every: bool) -> str:
    """A space for each pair of round brackets that holds a digit, or for `every` one. They do not nest.

    >>> _without_brackets("(a (nested 1) b) c", False)
    '  b) c'
    """
    head, bracket, tail = text.rpartition(")")  # beyond the last one there is nothing to find, and much to search
    return re.sub(r"\(([^)]*)\)", lambda found: " " if every or re.search(r"\d", found[1]) else found[0], head + bracket) + tail


def _quoted(word: str, every: bool) -> str:
    """A word with an apostrophe for the last quotation mark that stands inside it, or for `every` one.

    >>> _quoted("‘l’homme’s’", False), _quoted("l’homme’s", True)
    ("‘l’homme's’", "l'homme's")
    """
    letters = list(word)
    inside = [at for at in range(1, len(word) - 1) if word[at] in QUOTES]
    for at in inside if every else inside[-1:]:
        letters[at] = "'"
    return "".join(letters)


def _in_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        from anyascii import anyascii
    except ImportError as why:
        raise DependencyError("dependency", expected="the package anyascii, for Javanese", found=str(why),
                              cure="pip install 'asdstore[speech]'") from why

    def romanised(char: str) -> str:
        point = ord(char)
        if point < 0x80:
            return char
        if any(first <= point <= last for first, last in NOT_ROMANISED):
            return ""
        return ROMANISED.get(char) or anyascii(char) + " " * (IDEOGRAPHS[0] <= point <= IDEOGRAPHS[1])

    return "".join(map(romanised, text))
