from __future__ import annotations

import numpy as np

from pipelines.keys import Key


def test_a_draw_depends_on_what_was_folded_in_and_on_nothing_else():
    rows = np.array([5, 6, 7])
    key = Key.of(3, 1).fold("mix_voice", rows)
    assert np.array_equal(key.uniform(), Key.of(3, 1).fold("mix_voice").fold(rows).uniform())
    assert np.array_equal(key.fold("snr").uniform()[1:2], Key.of(3, 1).fold("mix_voice", rows[1:2], "snr").uniform())


def test_every_part_matters():
    base = (Key.of(0, 0), "a", np.array([1]))
    others = [(Key.of(1, 0), "a", np.array([1])), (Key.of(0, 1), "a", np.array([1])), (Key.of(0, 0), "b", np.array([1])),
              (Key.of(0, 0), "a", np.array([2])), (Key.of(1, -1), "a", np.array([1]))]
    words = {int(key.fold(name, row).words[0]) for key, name, row in [base, *others]}
    assert len(words) == 6


def test_seed_and_epoch_do_not_stand_for_one_another():
    words = {int(Key.of(seed, epoch).words[0]) for seed in range(40) for epoch in range(40)}
    assert len(words) == 1600


def test_draws_are_even():
    draws = Key.of(0).fold(np.arange(200_000)).uniform()
    counts = np.bincount((draws * 50).astype(int), minlength=50)
    assert ((counts - 4000) ** 2 / 4000).sum() < 100  # chi squared, 49 degrees of freedom: 1 in 30,000
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.01
    twice = Key.of(0).fold(np.arange(200_000)).fold("again").uniform()
    assert abs(np.corrcoef(draws, twice)[0, 1]) < 0.01


def test_integers_stay_below_their_bound():
    below = np.arange(1, 2000)
    draws = Key.of(0).fold(below).integers(below)
    assert (draws >= 0).all() and (draws < below).all() and draws[0] == 0


def test_permutations_are_even():
    orders = np.stack([Key.of(seed).permutation(6) for seed in range(6000)])
    assert (np.sort(orders, axis=1) == np.arange(6)).all()
    counts = np.stack([np.bincount(orders[:, place], minlength=6) for place in range(6)])
    assert ((counts - 1000) ** 2 / 1000).sum() < 80  # chi squared, 25 degrees of freedom
    assert len(Key.of(0).permutation(0)) == 0


def test_the_words_are_pinned():
    """Another word would be another order for every state that was saved."""
    assert [hex(w) for w in Key.of(0, 3).fold("chunk", np.array([0, 1])).words.tolist()] == PINNED


PINNED = ["0x44741c15ac624f4f", "0xdb61d35e5b9b1ef8"]
