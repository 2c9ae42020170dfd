"""A Parquet set as a memory-mapped speech pack: every utterance decoded once, in the order of the set."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from adapters.engine import Run
from adapters.progress import Bar
from asdstore.errors import StoreError
from asdstore.formats.parquet import ParquetSet, open_parquet
from asdstore.records import Record
from asdstore.speech_tracks import SpeechMedia, speech_record
from asdstore.writer import write_pack
from spec.layout import SAMPLE_RATE, SHARD_NAME, SPEECH

Choose = Callable[[Callable[[Any], None], Callable[[Any], str]], Run | None]


def pack_corpus(source: Path, target: Path, max_shard_bytes: int, overwrite: bool, choose: Choose, bar: Bar) -> dict[str, Any]:
    """Writes the pack and returns its report. `choose(progress, name)` gives the engine.

    Raises: what `open_parquet` and `write_pack` raise; InputError for an utterance that does not decode to its audio_size.
    """
    opened = open_parquet(source)
    records = list(_records(opened))
    bar.total = sum(record.frames for record in records)
    seen: set[str] = set()

    def progress(record: Record) -> None:
        if record.sample_id not in seen:  # a worker's record is heard of twice: when it is done, and with its shard
            seen.add(record.sample_id)
            bar.add(record.frames)

    said = {"hours": round(bar.total / SAMPLE_RATE / 3600, 6), "without_audio_size": len(opened) - len(records)}
    pack = write_pack(target, records, load, layout=SPEECH, max_shard_bytes=max_shard_bytes, sources=opened.digest,
                      overwrite=overwrite, run=choose(progress, lambda task: SHARD_NAME.format(task.number)),
                      progress=progress, report=said)
    return json.loads((pack / "report.json").read_bytes())


def load(record: Record) -> SpeechMedia:
    """The audio and texts of a record of `pack_corpus`."""
    root, digest, row = record.source  # type: ignore[misc]
    one = _opened(root, digest)[row]
    return SpeechMedia(one.audio, one.text, one.language, one.split, one.speaker)


def _records(opened: ParquetSet) -> Iterator[Record]:
    """Ids are `<corpus>/<split>/<language>/<id>`; one that comes again has ~2, ~3 ... behind it."""
    times: Counter[str] = Counter()
    for one in opened:
        if one.audio_size < 1:
            continue
        name = f"{one.corpus}/{one.split}/{one.language}/{one.id}"
        times[name] += 1
        while times[name] > 1 and times[f"{name}~{times[name]}"]:
            times[name] += 1
        unique = name if times[name] == 1 else f"{name}~{times[name]}"
        times[unique] = max(1, times[unique])
        yield speech_record(one.corpus, unique, one.audio_size, (opened.root, opened.digest, one.row))


@lru_cache(maxsize=2)
def _opened(root: str, digest: str) -> ParquetSet:
    """The set in this process, the same that was planned. Raises StoreError "stale" where it is another one by now."""
    found = open_parquet(root)
    if found.digest != digest:
        raise StoreError("stale", file=root, expected=f"the set {digest[:12]} that was planned", found=found.digest[:12],
                         cure="Run the command again.")
    return found
