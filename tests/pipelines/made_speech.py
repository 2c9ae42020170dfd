"""Small corpora of speech whose clips tell which they are, as sets of this project, of other programs, and as packs."""
from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Where = tuple[str, str, str]  # corpus, split, language
CORPORA: dict[Where, int] = {("mls", "train", "deu_Latn"): 40, ("mls", "train", "fra_Latn"): 12, ("cv", "train", "deu_Latn"): 7,
                             ("cv", "train", "lug_Latn"): 3, ("mls", "dev", "deu_Latn"): 9, ("cv", "dev", "lug_Latn"): 4}


class Clip(NamedTuple):
    """An utterance: int16 audio [samples] whose first sample is `number`."""

    number: int
    where: Where
    audio: np.ndarray
    text: str

    @property
    def flac(self) -> bytes:
        return encoded(self.audio)


class Spoken(NamedTuple):
    """The same clips in every form."""

    clips: list[Clip]
    foreign: Path
    own: Path
    packs: list[Path]

    def sources(self) -> dict[str, Any]:
        return {"foreign": self.foreign, "own": self.own, "packs": list(self.packs)}

    def of(self, split: str = "train") -> list[Clip]:
        return [clip for clip in self.clips if clip.where[1] == split]


def encoded(audio: np.ndarray, kind: str = "FLAC") -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, audio, 16000, format=kind, subtype="PCM_16")
    return file.getvalue()


def clips(corpora: dict[Where, int] | None = None, longest: int = 6000) -> list[Clip]:
    found = []
    for where, count in (corpora or CORPORA).items():
        for _ in range(count):
            number = len(found) + 1
            draw = np.random.default_rng(number)
            audio = (draw.standard_normal(int(draw.integers(800, longest))) * 3000).clip(-32768, 32767).astype(np.int16)
            audio[0] = number
            found.append(Clip(number, where, audio, name(number)))
    return found


def name(number: int) -> str:
    """A text of letters only that tells the number."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def write_foreign(root: Path, found: Iterable[Clip], *, group: int = 5, files: int = 1, binary: bool = False,
                  broken: dict[int, bytes | None] | None = None, sizes: dict[int, int | None] | None = None) -> Path:
    """A set as other programs write it; `broken` has other bytes for some clips, `sizes` other lengths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    by: dict[Where, list[Clip]] = {}
    for clip in found:
        by.setdefault(clip.where, []).append(clip)
    for (corpus, split, language), members in by.items():
        folder = root / "version=0" / f"corpus={corpus}" / f"split={split}" / f"language={language}"
        folder.mkdir(parents=True)
        for part in range(files):
            own = members[part::files]
            data = [(broken or {}).get(clip.number, b"?") for clip in own]
            data = [clip.flac if one == b"?" else one for one, clip in zip(data, own, strict=True)]
            kind = pa.binary() if binary else pa.list_(pa.int8())
            cells: Any = data if binary else [None if one is None else np.frombuffer(one, np.int8) for one in data]
            lengths = [(sizes or {}).get(clip.number, len(clip.audio)) for clip in own]
            table = pa.table({"text": pa.array([clip.text for clip in own], pa.string()), "audio_bytes": pa.array(cells, kind),
                              "audio_size": pa.array(lengths, pa.int64())})
            pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=group)
    return root


def write_set(root: Path, found: Iterable[Clip], *, pack: bool = False) -> Path:
    """A set of this project, prepared from JSON lines and sound files; with `pack` also a pack at root/packed/<corpus>."""
    from adapters import prepare

    by: dict[str, list[Clip]] = {}
    for clip in found:
        by.setdefault(clip.where[0], []).append(clip)
    source = root.parent / f"{root.name}-source"
    source.mkdir(parents=True)
    for corpus, members in by.items():
        lines = []
        for clip in members:
            (source / f"{clip.number}.flac").write_bytes(clip.flac)
            lines.append({"audio": f"{clip.number}.flac", "text": clip.text, "split": clip.where[1], "language": clip.where[2],
                          "id": str(clip.number)})
        (source / f"{corpus}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        more = ["--pack"] if pack else []
        with contextlib.redirect_stdout(io.StringIO()):
            code = prepare.main(["speech", "--input", str(source / f"{corpus}.jsonl"), "--output", str(root),
                                 "--corpus", corpus, "--rules", "none", "--json", *more])
        assert code == 0
    return root


def numbers(texts: Sequence[str]) -> list[int]:
    """Which clips texts belong to."""
    return [int("".join(str(ord(letter) - ord("a")) for letter in str(text))) for text in texts]
