"""Which utterances a block of draws takes: a pure function of (key, block), in time that no block before it adds to.

Draws fall on partitions by their weights. A block of D draws puts one of them on each D-th part of the line from 0 to 1 on
which partitions lie side by side, as wide as their weights: a partition gets D times its weight, rounded down or up. Where in
their parts the draws of block b lie is the b-th number of a van der Corput sequence, so that what was rounded evens out, and
how many draws earlier blocks made on a partition is counted without making them.

Draw k of a partition of n utterances is number k mod n of a permutation that is drawn for pass k div n.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.keys import Key
from pipelines.settings import whole

_LINE = 40  # bits of a place on the line
_PLACES = 32  # bits of a place within a D-th part of it, and of the number of a block
_ROUNDS = 4  # of mixing bits
_CHUNK = 1 << 15  # indices permuted at a time, so that they stay in the cache
MOST_DRAWS = 1 << 22  # of a block, so that all of this stays within 62 bits


class Draws(NamedTuple):
    """The draws of a block: int64 `rows` [draws], positions in the order of `Mixture.order`'s utterances, and `numbers`
    [draws], which no other draw of any block has."""

    rows: np.ndarray
    numbers: np.ndarray


class Mixture(NamedTuple):
    """Partitions and their weights.

    `edges` int64 [partitions + 1]: where partitions begin on a line of 2**40; `first` int64 [partitions + 1]: the same in
    `order`, int64 [utterances], the rows of each partition side by side; `local`: draws keep near one another what lies in
    one run of so many rows, 1 for none.
    """

    edges: np.ndarray
    first: np.ndarray
    order: np.ndarray
    draws: int
    local: int = 1

    @classmethod
    def of(cls, weights: np.ndarray, codes: np.ndarray, rows: np.ndarray, draws: int, local: int = 1) -> Mixture:
        """Of weights [partitions] (any sum, all above 0), and of rows [utterances] with the partition of each in `codes`.

        Raises: InputError "block" for a number of draws that cannot be; "weights"; "empty" for a partition without rows.
        """
        if not 1 <= whole("block", draws) <= MOST_DRAWS:
            raise InputError("block", expected=f"1 to {MOST_DRAWS} draws", found=str(draws))
        if not len(weights) or not (np.isfinite(weights).all() and (weights > 0).all()):
            raise InputError("weights", expected="a weight above 0 for each partition", found=str(np.asarray(weights))[:100])
        counts = np.bincount(codes, minlength=len(weights))
        if not counts.all():
            raise InputError("empty", expected="utterances in each partition", found=f"none in {int(np.argmin(counts))}")
        ends = np.cumsum(weights) / np.sum(weights) * (1 << _LINE)
        edges = np.concatenate([[0], np.rint(ends)]).astype(np.int64)
        edges = np.maximum.accumulate(edges - np.arange(len(edges))) + np.arange(len(edges))  # no partition has no width
        edges = np.minimum(edges, (1 << _LINE) - np.arange(len(weights), -1, -1))
        return cls(edges, np.concatenate([[0], np.cumsum(counts)]), rows[np.argsort(codes, kind="stable")], draws, local)

    def take(self, key: Key, block: int) -> Draws:
        """The draws of a block, in a random order."""
        before, counts = quotas(self.edges, self.draws, block, key)
        sizes = np.diff(self.first)
        firsts, lasts = before // sizes, (before + np.maximum(counts, 1) - 1) // sizes
        passes = np.where(counts > 0, lasts - firsts + 1, 0)
        # a segment is what one pass over one partition gives to the block
        partition = np.repeat(np.arange(len(sizes)), passes)
        nth = firsts[partition] + np.arange(len(partition)) - np.repeat(np.cumsum(passes) - passes, passes)
        size = sizes[partition]
        start = np.maximum(before[partition] - nth * size, 0)
        stop = np.minimum(before[partition] + counts[partition] - nth * size, size)
        lengths = stop - start
        segment = np.repeat(np.arange(len(partition)), lengths)
        index = np.arange(self.draws) - np.repeat(np.cumsum(lengths) - lengths - start, lengths)
        image = _mixed(index, size[segment], key.fold("pass", partition, nth), segment, self.local)
        mixed = key.fold("draws", block).permutation(self.draws)
        rows = self.order[self.first[partition][segment] + image]
        return Draws(rows[mixed], block * self.draws + mixed)


def quotas(edges: np.ndarray, draws: int, block: int, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """How many draws earlier blocks made on each partition, and how many this block makes: int64 [partitions] both.

    >>> edges = np.array([0, 0.7, 1]) * (1 << 40)
    >>> [quotas(edges.astype(np.int64), 5, block, Key.of(0))[1].tolist() for block in range(4)]
    [[3, 2], [4, 1], [3, 2], [4, 1]]
    """
    if not 0 <= block < 1 << _PLACES:
        raise InputError("epoch", expected=f"0 to {(1 << _PLACES) - 1}", found=str(block))
    whole = draws * edges
    share, rest = whole >> _LINE, whole & ((1 << _LINE) - 1)
    limit = -(-rest >> (_LINE - _PLACES))  # a draw whose place in its part lies below it is on this side of the edge
    shift = int(key.fold("places").words[0]) >> (64 - _PLACES)
    own = share + (_reversed(block) ^ shift < limit)
    earlier = block * share
    for bit in range(block.bit_length()):
        if block >> bit & 1:  # the blocks that have all bits above this one of `block`, 0 for it, and any below it
            step = 1 << (_PLACES - bit)
            place = (_reversed(block >> bit + 1 << bit + 1) ^ shift) & step - 1
            earlier = earlier + np.clip(-((place - limit) // step), 0, 1 << bit)
    return np.diff(earlier), np.diff(own)


def _reversed(number: int) -> int:
    """The number with its bits in the other order."""
    return int(f"{number:0{_PLACES}b}"[::-1], 2)


def _mixed(index: np.ndarray, size: np.ndarray, keys: Key, segment: np.ndarray, local: int) -> np.ndarray:
    """Images of indices below `size` under the permutations of their segments, which keep runs of `local` together."""
    if local == 1:
        return permuted(index, size, keys, segment)
    place = index // local  # of a run in its pass; whole runs are mixed, and the rest of a partition comes last
    begins = np.append(True, (segment[1:] != segment[:-1]) | (place[1:] != place[:-1]))[:len(index)]
    which, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
    of, whole, place = segment[heads], size[heads] // local, place[heads]
    mixed = permuted(np.minimum(place, np.maximum(whole - 1, 0)), np.maximum(whole, 1), keys, of)
    run = np.where(place < whole, mixed, whole)
    width = np.where(place < whole, local, np.maximum(size[heads] - whole * local, 1))
    own = Key(keys.words[of]).fold("run", run)
    return run[which] * local + permuted(index % local, width[which], own, which)


def permuted(index: np.ndarray, size: np.ndarray, keys: Key, which: np.ndarray) -> np.ndarray:
    """The images of indices under random permutations of the numbers below `size`: int64 [n].

    Args:
        index, size: int64 [n], index below size.
        keys: of the permutations.
        which: int64 [n], the key that each index belongs to.

    Multiplying by an odd number, adding, and folding the upper half of the bits into the lower one are permutations of the
    numbers of so many bits; what falls beyond `size` goes round again.

    >>> sorted(permuted(np.arange(7), np.full(7, 7), Key.of(0), np.zeros(7, np.int64)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    odds, adds = zip(*((keys.fold("odd", r).words | np.uint64(1), keys.fold("add", r).words) for r in range(_ROUNDS)),
                     strict=True)
    found = np.empty(len(index), np.int64)
    for start in range(0, len(index), _CHUNK):
        part = slice(start, start + _CHUNK)
        found[part] = _permuted(index[part].astype(np.uint64), size[part].astype(np.uint64), odds, adds, which[part])
    return found


def _permuted(found: np.ndarray, size: np.ndarray, odds: tuple[np.ndarray, ...], adds: tuple[np.ndarray, ...],
              which: np.ndarray) -> np.ndarray:
    one = np.uint64(1)
    bits = np.maximum(np.frexp((size - one).astype(np.float64))[1], 1).astype(np.uint64)
    masks, halves = (one << bits) - one, (bits + one) >> one
    left: Any = slice(None)
    while True:
        x, mask, half, key = found[left], masks[left], halves[left], which[left]
        for odd, add in zip(odds, adds, strict=True):
            x = (x * odd[key] + add[key]) & mask
            x ^= x >> half
        found[left] = x
        left = np.flatnonzero(found >= size)
        if not len(left):
            return found
