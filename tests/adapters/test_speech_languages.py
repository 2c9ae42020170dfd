"""Language codes: the whole lists as the shared data has them, and what wrong codes may have meant."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.speech.languages import fleurs_languages, language_code, languages, mls_languages, suggestions
from asdstore.errors import InputError


def test_all_codes(shared: Path) -> None:
    assert list(languages()) == (shared / "data/languages/supported_langs.txt").read_text().split()
    maps = json.loads((shared / "golden/omnilingual/lang_maps.json").read_text())
    assert fleurs_languages() == maps["fleurs102_ours"]
    assert mls_languages() == {name: codes[0] for name, codes in maps["mls"].items()}


def test_counts_and_parts() -> None:
    assert len(languages()) == 1672 and len(fleurs_languages()) == 102 and len(mls_languages()) == 8
    assert [code for code in languages() if code.count("_") > 1] == [
        "ell_Grek_cypr1249", "lld_Latn_gherd", "lld_Latn_valbadia", "roh_Latn_surs1244"]
    assert set(fleurs_languages().values()) | set(mls_languages().values()) <= set(languages())


def test_good_codes_come_back() -> None:
    assert language_code("ell_Grek_cypr1249") == "ell_Grek_cypr1249"


@pytest.mark.parametrize(("text", "meant"), [
    ("de", "deu_Latn"), ("deu", "deu_Latn"), ("deu_latn", "deu_Latn"), ("de_de", "deu_Latn"), ("de-DE", "deu_Latn"),
    ("German", "deu_Latn"), ("eu", "eus_Latn"), ("nan", "nan_Latn"), ("ar", "arb_Arab"), ("mn", "khk_Cyrl"),
    ("deu_Lat", "deu_Latn"), ("cmn_hans_cn", "cmn_Hans"), ("yue_hant_hk", "yue_Hant"), ("fil_ph", "tgl_Latn"),
    ("est_Latn", "ekk_Latn"), ("swa", "swh_Latn"), ("npi_Deva", "nep_Deva"), ("zho", "cmn_Hans"), ("iw", "heb_Hebr")])
def test_wrong_codes_say_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean .*{meant}") as error:
        language_code(text)
    assert error.value.kind == "language" and repr(text) in str(error.value)


@pytest.mark.parametrize("text", ["", "nan_Hani_x_y", "NaN", "null", "NA", "../etc", "qqqqqqqq", "eng_Latn\n", "a" * 10_000])
def test_texts_that_are_no_codes(text: str) -> None:
    with pytest.raises(InputError) as error:
        language_code(text)
    assert error.value.kind == "language" and len(str(error.value)) < 200


def test_several_scripts_are_all_suggested() -> None:
    assert suggestions("az") == ["aze_Arab", "aze_Cyrl", "aze_Latn"]
