"""Tokenizers: characters, SentencePiece models, any function."""
from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asdstore.errors import InputError, MissingError
from pipelines.tokenizers import Characters, SentencePiece, as_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model that is trained here."""
    sentencepiece = pytest.importorskip("sentencepiece")
    file = io.BytesIO()
    texts = ["the child almost hurt the small dog", "ask not what your country can do for you", "hello there"] * 20
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=file, vocab_size=30, pad_id=3,
                                             model_type="unigram", minloglevel=2)
    path = tmp_path_factory.mktemp("model") / "tokens.model"
    path.write_bytes(file.getvalue())
    return path


@given(st.lists(st.text(), max_size=5))
def test_characters_come_back(texts: list[str]) -> None:
    tokens = Characters.of(texts)
    for text in texts:
        assert tokens.decode(tokens(text)) == text and all(1 < token < len(tokens) for token in tokens(text))
    again = pickle.loads(pickle.dumps(tokens))
    assert again.alphabet == tokens.alphabet and repr(again) == repr(tokens)


def test_unknown_characters_and_padding() -> None:
    tokens = Characters("ab")
    assert tokens("aé€b") == [2, 1, 1, 3] and tokens.decode([0, 2, 0, 1, 3, 0]) == "a\ufffdb"
    with pytest.raises(InputError, match="once"):
        Characters("aba")


def test_sentencepiece(model: Path) -> None:
    tokens = SentencePiece(model)
    found = tokens("the small dog")
    assert tokens.decode(found) == "the small dog" and all(0 <= token < len(tokens) for token in found)
    assert tokens.pad_id == 3 and tokens.unknown_id == 0 and tokens.unknown_id in tokens("漢")
    again = pickle.loads(pickle.dumps(tokens))
    assert again("the small dog") == found and repr(again) == repr(tokens)


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    assert as_tokenizer(None) is None and as_tokenizer(len) is len
    with pytest.raises(MissingError, match="SentencePiece model"):
        as_tokenizer(tmp_path / "none.model")
    with pytest.raises(InputError) as error:
        as_tokenizer(7)
    assert error.value.kind == "tokenizer"
    pytest.importorskip("sentencepiece")
    (tmp_path / "bad.model").write_bytes(b"no model at all")
    with pytest.raises(InputError) as error:
        as_tokenizer(str(tmp_path / "bad.model"))
    assert error.value.kind == "tokenizer" and "bad.model" in str(error.value)
