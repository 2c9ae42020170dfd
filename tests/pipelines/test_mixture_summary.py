"""Weights of a mixture: the original's numbers, and summaries that cannot be right."""
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asdstore.errors import InputError, MissingError
from asdstore.stats import Share
from pipelines.mixture_summary import mixture_weights, read_summary

GOLDEN = "golden/omnilingual/weights.json"


@pytest.fixture(scope="module")
def known(shared: Path) -> dict:
    return json.loads((shared / GOLDEN).read_text())


def test_every_golden_weight(known: dict) -> None:
    hours = {(row["corpus"], row["language"]): row["hours"] for row in known["stats"]}
    assert len(known["cases"]) == 6
    for case in known["cases"]:
        found = mixture_weights(hours, case["beta_corpus"], case["beta_language"])
        wanted = {(row["corpus"], row["language"]): row["w"] for row in case["weights"]}
        assert found == pytest.approx(wanted, rel=0, abs=1e-15)


EDGES = {"zero hours one lang": None, "zero hours beta0": None, "corpus all zero": "more than 0 hours",
         "duplicate rows": "a/x again", "language NA": None}


def test_every_golden_edge(known: dict, tmp_path: Path) -> None:
    """Where the original is right we are alike; where it loses a row or makes NaN we say so."""
    assert {edge["name"] for edge in known["edges"]} == set(EDGES)
    for edge in known["edges"]:
        path = tmp_path / "summary.tsv"
        path.write_text(edge["tsv"])
        betas = edge["beta_corpus"], edge["beta_language"]
        if said := EDGES[edge["name"]]:
            with pytest.raises(InputError, match=said) as error:
                mixture_weights(path, *betas)
            assert error.value.kind == "summary"
            continue
        found = {"/".join(key): weight for key, weight in mixture_weights(path, *betas).items()}
        assert math.fsum(found.values()) == pytest.approx(1)
        if edge["name"] == "language NA":  # the original takes both for one without a name
            assert found == pytest.approx({"na/nan": 1 - edge["result"]["na/nan"], "na/null": edge["result"]["na/nan"]})
            continue
        assert set(found) == set(edge["result"])
        for key in found:
            assert found[key] == pytest.approx(edge["result"][key], abs=1e-15)


def test_languages_called_nan_and_null_are_read_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "summary.tsv"
    path.write_text("corpus\tlanguage\thours\nna\tnan\t1\nna\tnull\t3\n")
    assert read_summary(path) == {("na", "nan"): 1.0, ("na", "null"): 3.0}


BAD = {"header only": "corpus\tlanguage\thours\n", "nothing": "", "no hours": "corpus\tlanguage\na\tx\n",
       "negative": "corpus\tlanguage\thours\na\tx\t-1\n", "words": "corpus\tlanguage\thours\na\tx\tmany\n",
       "not a number": "corpus\tlanguage\thours\na\tx\tnan\n", "infinite": "corpus\tlanguage\thours\na\tx\tinf\n",
       "short row": "corpus\tlanguage\thours\na\tx\n", "twice": "corpus\tlanguage\thours\na\tx\t1\nb\ty\t1\na\tx\t1\n",
       "zero corpus": "corpus\tlanguage\thours\na\tx\t0\na\ty\t0\nb\ty\t1\n",
       "columns twice": "corpus\tcorpus\tlanguage\thours\n"}


@pytest.mark.parametrize("name", BAD)
def test_bad_summaries_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "summary.tsv"
    path.write_text(BAD[name])
    with pytest.raises(InputError) as error:
        mixture_weights(path)
    assert error.value.kind == "summary" and str(path) in str(error.value)


def test_faults_are_named_by_line_and_a_mark_at_the_beginning_is_none(tmp_path: Path) -> None:
    path = tmp_path / "summary.tsv"
    path.write_text("\ufeffcorpus\tlanguage\tsplit\thours\na\tx\tdev\t1\n\na\tx\ttrain\t2\na\ty\ttrain\tmany\n", "utf-8")
    beta: Any = np.float32(0.5)
    assert mixture_weights(path, beta, split="dev") == {("a", "x"): 1.0}
    with pytest.raises(InputError) as error:
        mixture_weights(path, split="train")
    assert error.value.fault.row == 5


def test_a_missing_summary_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="asdstore stats"):
        mixture_weights(tmp_path / "none.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"corpus\tlanguage\thours\n\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        mixture_weights(tmp_path / "bytes.tsv")


@pytest.mark.parametrize("betas", [(-0.1, 0.5), (0.5, -1), (math.nan, 0.5), (0.5, math.inf), ("x", 0.5), (None, 0.5)])
def test_betas_below_zero_are_refused(betas: tuple) -> None:
    with pytest.raises(InputError) as error:
        mixture_weights({("a", "x"): 1.0}, *betas)
    assert error.value.kind == "beta"


def test_a_table_by_split_gives_the_hours_of_that_split(tmp_path: Path) -> None:
    path = tmp_path / "per_split.tsv"
    path.write_text("corpus\tlanguage\tsplit\trows\thours\na\tx\ttrain\t9\t3\na\tx\tdev\t9\t9\nb\tx\ttrain\t9\t1\n")
    assert read_summary(path, "train") == {("a", "x"): 3.0, ("b", "x"): 1.0}
    with pytest.raises(InputError, match="again"):
        read_summary(path)
    with pytest.raises(InputError, match="none of the split 'test'"):
        read_summary(path, "test")
    shares = [Share("a", "x", "train", 1, 57_600_000, 0), Share("a", "x", "dev", 1, 1, 0)]
    assert read_summary(shares, "train") == {("a", "x"): 1.0}


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("wxyz")), st.floats(1e-3, 1e4), min_size=1),
       st.floats(0, 2), st.floats(0, 2))
def test_weights_add_up_and_hours_may_be_scaled(hours: dict, beta_corpus: float, beta_language: float) -> None:
    weights = mixture_weights(hours, beta_corpus, beta_language)
    assert set(weights) == set(hours) and math.fsum(weights.values()) == pytest.approx(1)
    scaled = mixture_weights({key: value * 7 for key, value in hours.items()}, beta_corpus, beta_language)
    assert scaled == pytest.approx(weights, rel=1e-9)
    total = math.fsum(hours.values())
    assert mixture_weights(hours, 1, 1) == pytest.approx({key: value / total for key, value in hours.items()}, rel=1e-9)
