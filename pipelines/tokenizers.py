"""Tokenizers: any function of a text that gives whole numbers will do; these are characters and SentencePiece.

A tokenizer may say `pad_id` (0 where it does not) and `unknown_id`. Where it does, utterances of nothing but unknown tokens
are left out.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from asdstore.errors import DependencyError, InputError, MissingError

Tokenizer = Callable[[str], Sequence[int]]


class Characters:
    """A token for each character of an alphabet. 0 is padding, and the blank of CTC; 1 is any other character.

    >>> tokens = Characters.of(["abba", "cab"])
    >>> tokens("cabx"), tokens.decode([4, 2, 3, 1, 0]), len(tokens)
    ([4, 2, 3, 1], 'cab\\ufffd', 5)
    """

    pad_id, unknown_id = 0, 1

    def __init__(self, alphabet: str):
        if len(set(alphabet)) != len(alphabet):
            raise InputError("tokenizer", expected="each character of the alphabet once", found=repr(alphabet)[:100])
        self.alphabet = alphabet
        self._ids = {character: number for number, character in enumerate(alphabet, 2)}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Characters:
        """All characters of some texts, in the order of their code points."""
        return cls("".join(sorted({character for text in texts for character in text})))

    def __call__(self, text: str) -> list[int]:
        return [self._ids.get(character, 1) for character in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, U+FFFD for unknown ones and nothing for padding."""
        return "".join("\ufffd" if token == 1 else self.alphabet[token - 2] for token in tokens if token > 0)

    def __len__(self) -> int:
        """How many tokens there are, padding and unknown included."""
        return len(self.alphabet) + 2

    def __repr__(self) -> str:
        return f"Characters({self.alphabet!r})"


class SentencePiece:
    """The tokens of a SentencePiece model file; loaded in each process that uses it."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.path.abspath(os.fspath(path))
        if not os.path.isfile(self.path):
            raise MissingError("missing", file=self.path, expected="a SentencePiece model", found="no such file")

    def __reduce__(self):
        return SentencePiece, (self.path,)

    @cached_property
    def _model(self) -> Any:
        try:
            import sentencepiece  # type: ignore[import-untyped]
        except ImportError as why:
            raise DependencyError("dependency", expected="the package sentencepiece", found=str(why),
                                  cure="pip install 'asdstore[speech]'") from why
        try:
            return sentencepiece.SentencePieceProcessor(model_file=self.path)
        except (RuntimeError, OSError) as why:
            raise InputError("tokenizer", file=self.path, expected="a SentencePiece model", found=str(why)[:200]) from why

    @cached_property
    def digest(self) -> str:
        """sha256 of the file."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def pad_id(self) -> int:
        return max(self._model.pad_id(), 0)

    @property
    def unknown_id(self) -> int:
        return self._model.unk_id()

    def __call__(self, text: str) -> list[int]:
        return self._model.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        return self._model.decode([int(token) for token in tokens])

    def __len__(self) -> int:
        return self._model.vocab_size()

    def __repr__(self) -> str:
        return f"SentencePiece({self.digest[:16]})"


def as_tokenizer(given: Any) -> Tokenizer | None:
    """A tokenizer, one of a SentencePiece file's path, or None. Raises: InputError "tokenizer"; as `SentencePiece`."""
    if isinstance(given, (str, os.PathLike)):
        given = SentencePiece(given)
        len(given)  # a file that is no model says so now
    if given is not None and not callable(given):
        raise InputError("tokenizer", expected="a function of a text, or the path of a SentencePiece model",
                         found=repr(given)[:100])
    return given  # type: ignore[return-value]
