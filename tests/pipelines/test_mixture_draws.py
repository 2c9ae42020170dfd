"""The draws of a mixture: pure functions of a block, in the right shares, without repetition until a partition is exhausted."""
from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asdstore.errors import InputError
from pipelines.keys import Key
from pipelines.mixture_draws import MOST_DRAWS, Mixture, permuted, quotas

PARTS = st.lists(st.tuples(st.floats(1e-6, 1.0), st.integers(1, 60)), min_size=1, max_size=6)


def mixture(parts: list[tuple[float, int]], draws: int, local: int = 1) -> Mixture:
    codes = np.repeat(np.arange(len(parts)), [count for _, count in parts])
    codes = np.random.default_rng(0).permutation(codes)
    return Mixture.of(np.array([weight for weight, _ in parts]), codes, np.arange(len(codes)) + 1000, draws, local)


def partition_of(found: Mixture) -> dict[int, int]:
    return {int(row): p for p in range(len(found.first) - 1) for row in found.order[found.first[p]:found.first[p + 1]]}


@settings(deadline=None)
@given(PARTS, st.integers(1, 90), st.integers(0, 2**32), st.sampled_from([1, 3, 100]))
def test_each_pass_over_a_partition_takes_each_utterance_once(parts: list, draws: int, seed: int, local: int) -> None:
    found, key = mixture(parts, draws, local), Key.of(seed)
    where = partition_of(found)
    taken: dict[int, list[int]] = {p: [] for p in range(len(parts))}
    blocks = [found.take(key, block) for block in range(6)]
    for block, (rows, numbers) in enumerate(blocks):
        assert len(rows) == draws and sorted(numbers.tolist()) == list(range(block * draws, (block + 1) * draws))
        for row in rows[np.argsort(numbers)].tolist():
            taken[where[row]].append(row)
    for p, (_, count) in enumerate(parts):
        for at in range(0, len(taken[p]), count):
            one = taken[p][at:at + count]
            assert len(set(one)) == len(one)
            if len(one) == count:
                assert set(one) == set(found.order[found.first[p]:found.first[p + 1]].tolist())
    again = found.take(key, 3)  # asked for alone, in any order
    assert (again.rows == blocks[3].rows).all() and (again.numbers == blocks[3].numbers).all()


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8), st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 300))
def test_earlier_blocks_are_counted_without_making_them(weights: list, draws: int, seed: int, start: int) -> None:
    edges, key = mixture([(w, 1) for w in weights], draws).edges, Key.of(seed)
    assert edges[0] == 0 and edges[-1] == 1 << 40 and (np.diff(edges) > 0).all()
    expected = quotas(edges, draws, start, key)[0]
    for block in range(start, start + 20):
        before, own = quotas(edges, draws, block, key)
        assert (before == expected).all() and (own >= 0).all() and own.sum() == draws
        assert (np.abs(own - draws * np.diff(edges) / 2**40) < 2).all()
        expected = before + own


def test_blocks_far_away_cost_nothing_and_their_shares_are_exact() -> None:
    edges, key = mixture([(0.7, 1), (0.299999, 1), (0.000001, 1)], 1000).edges, Key.of(3)
    before, _ = quotas(edges, 1000, 2**32 - 1, key)
    assert before.sum() == 1000 * (2**32 - 1)
    assert (np.abs(before / before.sum() - [0.7, 0.299999, 0.000001]) < 1e-10).all()


def test_shares_over_20_000_draws_are_the_weights_within_one_percent() -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(40))
    found = mixture([(float(w), 50) for w in weights], 512)
    where, seen = partition_of(found), Counter()
    for block in range(39):
        seen.update(where[row] for row in found.take(Key.of(0), block).rows.tolist())
    total = sum(seen.values())
    assert total == 19968
    assert max(abs(seen[p] / total - weights[p]) for p in range(40)) < 0.001


def test_the_rarest_partition_is_drawn_at_its_rate() -> None:
    found = mixture([(1.0, 1000), (0.001, 5)], 100)
    where = partition_of(found)
    rare = [row for block in range(200) for row in found.take(Key.of(0), block).rows.tolist() if where[row] == 1]
    assert 19 <= len(rare) <= 21
    assert set(Counter(rare).values()) <= {3, 4, 5} and len(set(rare)) == 5


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000])
def test_permutations_are_whole_and_differ_by_key(size: int) -> None:
    keys = Key.of(0).fold(np.arange(400))
    index = np.tile(np.arange(size), 400)
    found = permuted(index, np.full(len(index), size), keys, np.repeat(np.arange(400), size)).reshape(400, size)
    assert (np.sort(found, axis=1) == np.arange(size)).all()
    if size > 1:  # each place is as likely to get each value: chi-square of the image of the first place
        bins = min(size, 8)
        seen = np.bincount(found[:, 0] * bins // size, minlength=bins)
        expected = np.bincount(np.arange(size) * bins // size, minlength=bins) / size * 400
        assert ((seen - expected) ** 2 / expected).sum() < 30
        assert len({tuple(row) for row in found.tolist()}) >= min(400, size) * 0.9


def test_neighbours_of_a_random_permutation_lie_anywhere_and_those_of_a_local_one_nearby() -> None:
    for local, near in ((1, False), (100, True)):
        found = mixture([(1.0, 10_000)], 200, local)
        places = np.concatenate([found.take(Key.of(0), block).rows for block in range(2)])
        runs = len(set((places // 100).tolist()))
        assert (runs <= 5) if near else (runs > 80)


def test_what_cannot_be_drawn_is_refused() -> None:
    rows = np.arange(3)
    for weights, codes, draws, kind in (([1.0], [0, 0, 0], 0, "block"), ([1.0], [0, 0, 0], MOST_DRAWS + 1, "block"),
                                        ([1.0, 0.0], [0, 0, 1], 5, "weights"), ([1.0, np.nan], [0, 0, 1], 5, "weights"),
                                        ([1.0, 1.0], [0, 0, 0], 5, "empty"), ([], [], 5, "weights")):
        with pytest.raises(InputError) as error:
            Mixture.of(np.array(weights), np.array(codes, np.int64), rows[:len(codes)], draws)
        assert error.value.kind == kind
    with pytest.raises(InputError, match="epoch"):
        quotas(np.array([0, 1 << 40]), 5, 1 << 32, Key.of(0))
