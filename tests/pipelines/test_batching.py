from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asdstore.errors import InputError
from pipelines.batching import Batches, Limits, check_limits, compose
from pipelines.chunks import history, tile
from pipelines.keys import Key
from pipelines.shapes import choose, compose_shapes
from pipelines.transforms import quadratic

LENGTHS = st.one_of(st.lists(st.integers(1, 250), min_size=1, max_size=400),
                    st.lists(st.integers(1, 4), min_size=1, max_size=2000)).map(lambda x: np.array(x, np.int64))
LIMITS = st.builds(lambda budget, low, more: Limits(budget, low, low + more), st.integers(250, 4096), st.integers(1, 8),
                   st.integers(0, 24))


def members(batches: Batches) -> list[list[int]]:
    return [batches.members(b).tolist() for b in range(len(batches))]


def check(lengths: np.ndarray, limits: Limits, batches: Batches) -> None:
    """What must hold of any batches."""
    assert np.array_equal(np.sort(batches.ids), np.arange(len(lengths)))
    assert batches.offsets[0] == 0 and (batches.sizes > 0).all() and (batches.sizes <= batches.rows).all()
    for own, frames in zip(members(batches), batches.frames, strict=True):
        assert lengths[own].max() <= frames
        assert len(own) <= limits.max_batch
        if len(own) > limits.min_batch:
            assert len(own) * frames <= limits.budget


@given(LENGTHS, LIMITS, st.integers(0, 9), st.sampled_from([1, 6, 24]))
def test_every_chunk_once_and_no_batch_above_its_budget(lengths, limits, epoch, group):
    batches = compose(lengths, limits, Key.of(0, epoch), group=group)
    check(lengths, limits, batches)
    assert np.array_equal(batches.frames, np.maximum.reduceat(lengths[batches.ids], batches.offsets[:-1]))
    assert (batches.sizes < limits.min_batch).sum() <= 1


@given(LENGTHS, LIMITS)
def test_cropped_batches_have_the_frames_of_their_shortest(lengths, limits):
    batches = compose(lengths, limits, Key.of(0), fit="crop")
    assert np.array_equal(batches.frames, np.minimum.reduceat(lengths[batches.ids], batches.offsets[:-1]))


@given(LENGTHS, LIMITS)
def test_the_number_of_batches_is_that_of_every_epoch(lengths, limits):
    assert len({len(compose(lengths, limits, Key.of(7, epoch))) for epoch in range(3)}) == 1


@given(st.lists(st.integers(1, 250), min_size=600, max_size=900).map(np.array), st.integers(1, 8))
def test_the_number_of_batches_divides_by_the_group(lengths, group):
    assert len(compose(lengths, Limits(2048), Key.of(0), group=group)) % group == 0


@given(LENGTHS, LIMITS, st.integers(2, 30))
def test_a_corpus_too_small_for_the_group_is_left_whole(lengths, limits, group):
    plain, grouped = (len(compose(lengths, limits, Key.of(0), group=g)) for g in (1, group))
    assert grouped == plain or (grouped % group == 0 and grouped <= 1.25 * plain)


def test_no_chunks_no_batches():
    assert len(compose(np.empty(0, np.int64), Limits(100), Key.of(0))) == 0


def test_without_shuffling_the_order_is_fixed_and_falling():
    lengths = np.random.default_rng(0).integers(1, 250, 500)
    batches = compose(lengths, Limits(2048), Key.of(0, 0), shuffle=False)
    assert members(batches) == members(compose(lengths, Limits(2048), Key.of(1, 5), shuffle=False))
    assert (np.diff(batches.frames) <= 0).all()


def test_a_last_batch_joins_its_neighbour_only_within_the_budget():
    lengths = np.full(11, 250)
    assert sorted(compose(lengths, Limits(1000, 4, 4), Key.of(0), group=1).sizes) == [3, 4, 4]  # 7 would exceed the budget
    assert sorted(compose(lengths, Limits(4000, 8, 8), Key.of(0), group=1).sizes.tolist()) in ([3, 8], [11])


@pytest.mark.parametrize(("limits", "longest", "kind"), [
    (Limits(100, 0, 4), 9, "min_batch"), (Limits(100, 5, 4), 9, "max_batch"), (Limits(99, 1, 4), 100, "budget"),
    (Limits(0, 1, 4), 0, "budget"), (Limits(100, 1, 4, partial(quadratic, q=1)), 50, "budget")])
def test_limits_that_cannot_hold(limits, longest, kind):
    with pytest.raises(InputError) as error:
        check_limits(limits, longest)
    assert error.value.kind == kind


def test_another_cost_bounds_the_batches():
    lengths = np.random.default_rng(0).integers(1, 250, 2000)
    limits = Limits(4096, 1, 64, partial(quadratic, q=64))
    batches = compose(lengths, limits, Key.of(0))
    assert (batches.sizes * quadratic(batches.frames, 64) <= 4096).all()
    assert len(batches) > len(compose(lengths, Limits(4096, 1, 64), Key.of(0)))


# Figures --------------------------------------------------------------------------------------------------------------------


def fed_lengths(frames: np.ndarray) -> np.ndarray:
    spans = tile(frames, 200)
    return spans.length + history(spans.start, 50)


@pytest.fixture(scope="module")
def corpora(shared):
    folder = shared / "golden" / "dist"
    ava, wasd = (np.load(folder / f"{name}.npy").astype(np.int64) for name in ("ava_like", "wasd"))
    return {"ava": fed_lengths(ava), "ava+wasd": fed_lengths(np.concatenate([ava, wasd]))}


def made_corpus() -> np.ndarray:
    draw = np.random.default_rng(0)
    return fed_lengths(np.clip(draw.lognormal(3.875, 1.1, 30_000), 25, 300).astype(np.int64))


def pairs(batches: Batches) -> set[tuple[int, int]]:
    return {(a, b) for own in members(batches) for i, a in enumerate(sorted(own)) for b in sorted(own)[i + 1:]}


def balance(fed: np.ndarray, batches: Batches, world: int) -> float:
    work = np.add.reduceat(fed[batches.ids], batches.offsets[:-1])
    steps = work[:len(work) // world * world].reshape(-1, world)
    return float((steps.mean(axis=1) / steps.max(axis=1)).mean())


def check_figures(fed: np.ndarray, utilisation: float) -> None:
    first, second = (compose(fed, Limits(2048), Key.of(0, epoch)) for epoch in (0, 1))
    padded = first.rows * first.frames
    assert fed.sum() / padded.sum() >= utilisation
    assert padded.max() <= 2048
    assert len(pairs(first) & pairs(second)) <= 0.12 * len(pairs(first))
    assert min(balance(fed, first, world) for world in (1, 2, 3, 4, 6, 8)) >= 0.99
    wide = compose(fed, Limits(2048), Key.of(0), group=96)
    assert min(balance(fed, wide, world) for world in (16, 32)) >= 0.96


def test_figures_of_a_made_corpus():
    check_figures(made_corpus(), 0.9995)


def test_figures_of_the_golden_lengths(corpora):
    check_figures(corpora["ava"], 0.9995)
    check_figures(corpora["ava+wasd"], 0.9998)


@pytest.mark.parametrize("chunks", [50_000, 1_000_000])
def test_planning_costs_a_few_sorts(chunks):
    lengths = np.random.default_rng(0).choice(made_corpus(), chunks)

    def best(work) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return min(times)

    assert best(lambda: compose(lengths, Limits(2048), Key.of(0))) <= 10 * best(lambda: np.lexsort((lengths,)))


# Bounded shapes -------------------------------------------------------------------------------------------------------------


@given(LENGTHS, LIMITS, st.integers(1, 8), st.sampled_from([1, 4, 24]), st.booleans())
def test_few_shapes(lengths, limits, count, group, shuffle):
    longest = int(lengths.max())
    grid = choose(lengths, longest, count)
    assert len(grid) <= count and grid[-1] == longest and list(grid) == sorted(set(grid))
    batches = compose_shapes(lengths, grid, limits, Key.of(0, 1), group=group, shuffle=shuffle)
    check(lengths, limits, batches)
    shapes = set(zip(batches.rows.tolist(), batches.frames.tolist(), strict=True))
    assert shapes <= {(int(limits.sizes(np.array([t]))[0]), t) for t in grid}
    whole = len(batches) // group * group
    for at in range(0, whole, group):
        assert len(set(batches.frames[at:at + group].tolist())) == 1
    assert (batches.rows != batches.sizes).sum() <= 1  # only the last batch of all has rows without a chunk


def test_the_grid_wastes_least():
    lengths = np.repeat([10, 11, 50, 52, 200], [100, 100, 30, 30, 4])
    assert choose(lengths, 200, 3) == (11, 52, 200)
    best = min(((np.searchsorted([a, b, 200], lengths), (a, b)) for a in range(10, 200) for b in range(a + 1, 200)),
               key=lambda found: np.array([*found[1], 200])[found[0]].sum())[1]
    assert best == (11, 52)


def test_the_shapes_of_the_golden_lengths(corpora):
    fed = corpora["ava+wasd"]
    batches = compose_shapes(fed, choose(fed, 250, 16), Limits(2048), Key.of(0))
    assert fed.sum() / (batches.rows * batches.frames).sum() >= 0.97


def test_the_order_is_pinned():
    """States are saved in this order: it may change only together with `recipe.VERSION`."""
    lengths = np.array([5, 9, 5, 7, 9, 9, 2, 5])
    assert members(compose(lengths, Limits(20, 1, 4), Key.of(0, 1), group=2)) == PINNED
    assert members(compose_shapes(lengths, (5, 9), Limits(20, 1, 4), Key.of(0, 1), group=1)) == PINNED_SHAPES


PINNED = [[4], [7, 2, 0], [6], [3], [5], [1]]
PINNED_SHAPES = [[4, 3], [2, 0, 7, 6], [1, 5]]
