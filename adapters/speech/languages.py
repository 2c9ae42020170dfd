"""Languages as `iso639-3_Script[_variety]`: the 1,672 codes, those of FLEURS and MLS, and what a wrong one may mean."""
from __future__ import annotations

from functools import cache
from pathlib import Path

from asdstore.errors import InputError

DATA = Path(__file__).with_name("data")
MLS = {"dutch": "nld_Latn", "english": "eng_Latn", "french": "fra_Latn", "german": "deu_Latn", "italian": "ita_Latn",
       "polish": "pol_Latn", "portuguese": "por_Latn", "spanish": "spa_Latn"}


@cache
def languages() -> tuple[str, ...]:
    """The 1,672 codes, sorted.

    >>> len(languages()), languages()[0]
    (1672, 'aae_Latn')
    """
    return tuple(sorted(f"{language}_{script}{part}{variety}" for script, names in _table("languages.tsv")
                        for language, part, variety in (name.partition("_") for name in names.split())))


@cache
def fleurs_languages() -> dict[str, str]:
    """The configurations of google/fleurs, such as "de_de", and their codes: 102."""
    return dict(_table("fleurs.tsv"))


def mls_languages() -> dict[str, str]:
    """The configurations of facebook/multilingual_librispeech, such as "german", and their codes: 8, English included."""
    return dict(MLS)


def language_code(text: str, file: object = "") -> str:
    """The code itself, if it is one of the 1,672. Raises InputError, kind "language", which says what was meant.

    >>> language_code("deu_Latn")
    'deu_Latn'
    >>> language_code("de")
    Traceback (most recent call last):
    spec.errors.InputError: expected a language such as eng_Latn, found 'de'. Did you mean deu_Latn? [language]
    """
    if text in _known():
        return text
    meant = " or ".join(suggestions(text))
    raise InputError("language", file=file, expected="a language such as eng_Latn", found=repr(text)[:80],
                     cure=f"Did you mean {meant}?" if meant else "")


def suggestions(text: str) -> list[str]:
    """Codes that a text may stand for: of another case, without its script, in two letters, of a corpus, or misspelt.

    >>> suggestions("deu_latn"), suggestions("deu"), suggestions("pt-BR"), suggestions("german"), suggestions("nan")
    (['deu_Latn'], ['deu_Latn'], ['por_Latn'], ['deu_Latn'], ['nan_Latn'])
    """
    name = text.strip().lower().replace("-", "_")
    same = [code for code in languages() if code.lower() == name]
    if same:
        return same
    corpora = fleurs_languages() | MLS
    if name in corpora:
        return [corpora[name]]
    language = name.partition("_")[0]
    language = dict(_table("two_letters.tsv")).get(language, language)
    spoken = [code for code in languages() if code.startswith(f"{language}_")]
    if spoken:
        return spoken[:5]
    from difflib import get_close_matches

    return get_close_matches(text, languages(), n=3, cutoff=0.7)


@cache
def _known() -> frozenset[str]:
    return frozenset(languages())


def _table(name: str) -> list[tuple[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [(key, value) for key, _, value in (line.partition("\t") for line in lines if not line.startswith("#"))]
