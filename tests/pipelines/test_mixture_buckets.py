"""The original's length batching, to the last index."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asdstore.errors import InputError
from pipelines.mixture_buckets import Buckets, as_batches, bucket_sizes, bucketed


def test_every_golden_batching(shared: Path) -> None:
    cases = json.loads((shared / "golden/omnilingual/batching.json").read_text())
    assert len(cases) == 8
    for case in cases:
        options = Buckets(*(case[name] for name in Buckets._fields))
        sizes = [list(pair) for pair in bucket_sizes(options)]
        assert len(sizes) == case["n_buckets"], case["name"]
        if "..." in case["bucket_sizes"]:
            assert sizes[:2] == case["bucket_sizes"][:2] and sizes[-2:] == case["bucket_sizes"][-2:]
        else:
            assert sizes == case["bucket_sizes"], case["name"]
        if case["error"]:
            with pytest.raises(InputError) as error:
                bucketed(case["lengths"], options)
            assert error.value.kind == "budget"
        else:
            assert bucketed(case["lengths"], options) == case["batches"], case["name"]


@pytest.mark.parametrize("options, count, ends", [
    (Buckets(32_000, 960_000, 960_000, 8), 30, [(24, 32000), (8, 64000), (1, 960000)]),
    (Buckets(), 3573, [(4, 800_000)])])
def test_the_recipes_buckets(options: Buckets, count: int, ends: list[tuple[int, int]]) -> None:
    found = bucket_sizes(options)
    assert len(found) == count and set(ends) <= {*found, (8, 64000)}


@pytest.mark.parametrize("options", [Buckets(0, 100, 200), Buckets(10, 5, 200), Buckets(1, 300, 200), Buckets(1, 100, 200, 0)])
def test_options_that_cannot_be(options: Buckets) -> None:
    with pytest.raises(InputError) as error:
        bucketed([5], options)
    assert error.value.kind == "budget"


@given(st.lists(st.integers(0, 130), max_size=80), st.integers(1, 12), st.integers(100, 900), st.integers(1, 4))
def test_batches_keep_the_budget_and_lose_nothing_between_the_limits(lengths: list[int], least: int, most: int,
                                                                       multiple: int) -> None:
    options = Buckets(least, 100, most, multiple)
    found = bucketed(lengths, options)
    assert sorted(sum(found, [])) == [i for i, length in enumerate(lengths) if least <= length <= 100]
    assert all(len(batch) * max(lengths[i] for i in batch) <= most for batch in found)
    columns = as_batches(found, np.array(lengths + [0]))
    assert [columns.members(b).tolist() for b in range(len(columns))] == found
    assert columns.frames.tolist() == [max(lengths[i] for i in batch) for batch in found]
