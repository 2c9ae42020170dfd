"""Batches as the original program makes them: buckets of lengths that fill in the order in which utterances come.

Source: fairseq2's length batching as Omnilingual ASR uses it; `compat="omnilingual"`.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.batching import Batches


class Buckets(NamedTuple):
    """The original's options, under its names; lengths are in samples."""

    min_audio_len: int = 1
    max_audio_len: int = 800_000
    max_num_elements: int = 3_200_000
    num_seqs_multiple_of: int = 8
    drop_remainder: bool = False
    max_bucket_size: int | None = None


def bucket_sizes(options: Buckets) -> list[tuple[int, int]]:
    """(utterances, longest) of each bucket, lengths rising, before `max_bucket_size` leaves some out.

    Raises: InputError "budget" where not one utterance of the longest fits.

    >>> bucket_sizes(Buckets(10, 100, 200, 1))[-3:]
    [(4, 50), (3, 66), (2, 100)]
    """
    longest, multiple = options.max_audio_len, options.num_seqs_multiple_of
    if not 1 <= options.min_audio_len <= longest <= options.max_num_elements or multiple < 1:
        raise InputError("budget", found=str(options), expected="1 <= min_audio_len <= max_audio_len <= max_num_elements, "
                         "num_seqs_multiple_of of 1 or more")
    elements = options.max_num_elements // longest * longest
    count, length = elements, 1
    found = []
    while True:
        if length >= options.min_audio_len:
            found.append((count - count % multiple if count > multiple else count, length))
        if length >= longest:
            return found
        count = elements // (length + 1)
        length = elements // count


def bucketed(lengths: Sequence[int], options: Buckets) -> list[list[int]]:
    """The batches, as indices into `lengths`: each when its bucket is full, and what is left from the longest bucket down.

    Utterances outside min_audio_len to max_audio_len are in none. Raises: InputError "budget".

    >>> bucketed([90, 12, 95, 60, 10], Buckets(1, 100, 200, 1))
    [[0, 2], [3, 1, 4]]
    """
    sizes = bucket_sizes(options)
    if options.max_bucket_size is not None:
        sizes = [pair for pair in sizes if pair[0] <= options.max_bucket_size]
    if not sizes:
        raise InputError("budget", expected="a bucket of at most max_bucket_size utterances", found=str(options))
    ends = [length for _, length in sizes]
    waiting: list[list[int]] = [[] for _ in sizes]
    batches = []
    for number, length in enumerate(lengths):
        if not options.min_audio_len <= length <= options.max_audio_len:
            continue
        at = bisect_left(ends, length)
        waiting[at].append(number)
        if len(waiting[at]) == sizes[at][0]:
            batches.append(waiting[at])
            waiting[at] = []
    return batches + _rest(waiting, sizes, options.drop_remainder)


def _rest(waiting: list[list[int]], sizes: list[tuple[int, int]], drop: bool) -> list[list[int]]:
    """What has not filled its bucket, topped up from the ends of shorter ones."""
    batches = []
    for at in range(len(waiting) - 1, -1, -1):
        batch, shorter = waiting[at], at - 1
        if not batch:
            continue
        while len(batch) < sizes[at][0] and shorter >= 0:
            if waiting[shorter]:
                batch.append(waiting[shorter].pop())
            else:
                shorter -= 1
        if drop and len(batch) < sizes[at][0]:
            break
        batches.append(batch)
    return batches


def as_batches(found: list[list[int]], lengths: np.ndarray) -> Batches:
    """The same as columns, `frames` the longest of each batch."""
    sizes = np.array([len(batch) for batch in found], np.int64)
    ids = np.array([number for batch in found for number in batch], np.int64)
    longest = [int(lengths[batch].max()) for batch in found]
    return Batches(ids, np.concatenate([[0], np.cumsum(sizes)]), sizes, np.array(longest, np.int64))
