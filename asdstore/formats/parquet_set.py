"""A Parquet set on disk: which files it has, what their paths say, and the manifest that tells readers what is complete.

    <root>/version=0/corpus=mls/_manifest.json                                    what the corpus holds; the last file written
    <root>/version=0/corpus=mls/split=train/language=deu_Latn/part-00000.parquet  text, audio_bytes, audio_size
    <root>/version=0/corpus=mls/split=train/language=deu_Latn/_part-00000.rows.parquet   id, speaker, and where the audio lies

Names that begin with "_" or "." are no data to Arrow. Sets of other programs have neither manifests nor such companions:
all of their .parquet files count. Partition values are read as texts, whatever they look like.
"""
from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from asdstore.formats.parquet_writer import BYTES, NUMBER, TEXT, Column
from spec.document import parse_json
from spec.errors import AsdError, Fault, FormatError, MissingError

MANIFEST = "_manifest.json"
FORMAT, VERSION = "asdstore-parquet", 1
KEYS = ("corpus", "split", "language")
GROUP_ROWS = 100
COLUMNS = (Column("text", TEXT), Column("audio_bytes", BYTES), Column("audio_size", NUMBER))
ROW_COLUMNS = (Column("id", TEXT), Column("speaker", TEXT), Column("at", NUMBER), Column("bytes", NUMBER))
LARGEST = 1 << 28  # bytes of a manifest
MOST_DEEP = 12  # folders


class Part(NamedTuple):
    """One file of a set. What a manifest says is -1 or "" where there is none."""

    name: str  # relative to the root, with "/"
    corpus: str
    split: str
    language: str
    rows: int = -1
    samples: int = -1
    bytes: int = -1
    sha256: str = ""
    rows_bytes: int = -1  # of its companion
    rows_sha256: str = ""

    @property
    def companion(self) -> str:
        """The name of the file with its ids, speakers and places of audio."""
        folder, _, file = self.name.rpartition("/")
        return f"{folder}/_{file.removesuffix('.parquet')}.rows.parquet"


class Found(NamedTuple):
    """The files of a set, and the manifests that name them, by the corpus folder's name relative to the root."""

    root: str
    parts: tuple[Part, ...]
    manifests: dict[str, dict[str, Any]]


def part_name(split: str, language: str, number: int) -> str:
    """Where a part lies in the folder of its corpus.

    >>> part_name("train", "deu_Latn", 3)
    'split=train/language=deu_Latn/part-00003.parquet'
    """
    return f"split={split}/language={language}/part-{number:05d}.parquet"


def is_set(path: str | os.PathLike[str]) -> bool:
    """Whether a path looks like a Parquet set: a folder with partitions or Parquet files, or a partition itself."""
    if not os.path.isdir(path):
        return False
    if re.match(r"(version|corpus|split|language)=", os.path.basename(os.path.abspath(path))):
        return True
    with os.scandir(path) as entries:
        return any(re.match(r"(version|corpus|split|language)=|[^._].*\.parquet$", entry.name) for entry in entries)


def find(path: str | os.PathLike[str], faults: list[Fault] | None = None) -> Found:
    """The files of the set at `path`: a dataset's root, or any folder of its partitions; in the order of their names.

    What is wrong with single files and manifests goes to `faults` if it is given, and is raised otherwise.
    Raises: MissingError "missing" where there is none, or one that a manifest names is not there; FormatError "version"
    (several of them below), "partition" (a path without corpus, split or language), "manifest", "json".
    """
    root = _version(os.path.abspath(os.fspath(path)))
    parts: list[Part] = []
    manifests: dict[str, dict[str, Any]] = {}

    def attempt(read: Callable[[], Part | dict[str, Any]]) -> Any:
        try:
            return read()
        except AsdError as error:
            if faults is None:
                raise
            faults.append(error.fault)

    for folder, files in _walk(root, root, 0):
        if MANIFEST in files:
            relative = os.path.relpath(folder, root).replace(os.sep, "/")
            document = attempt(lambda folder=folder: read_manifest(os.path.join(folder, MANIFEST)))
            if document:
                manifests[relative] = document
                parts += filter(None, (attempt(lambda folder=folder, entry=entry, corpus=document["corpus"]:
                                               _listed(root, folder, corpus, entry)) for entry in document["files"]))
            continue
        data = [file for file in files if file.endswith(".parquet") and file[0] not in "._"]
        parts += filter(None, (attempt(lambda path=f"{folder}/{file}": _part(root, path)) for file in data))
    if not (parts or manifests or faults):
        raise MissingError("missing", file=path, expected="Parquet files below corpus=…/split=…/language=…", found="none")
    return Found(root, tuple(sorted(parts)), manifests)


def joined(sets: Sequence[Found]) -> Found:
    """Several sets as one, their parts in the order of the sets; names become relative to the folder that holds them all."""
    if len(sets) == 1:
        return sets[0]
    root = os.path.commonpath([one.root for one in sets])
    inside = [os.path.relpath(one.root, root).replace(os.sep, "/") for one in sets]
    both = list(zip(inside, sets, strict=True))
    parts = tuple(part._replace(name=f"{folder}/{part.name}") for folder, one in both for part in one.parts)
    return Found(root, parts, {f"{folder}/{name}": said for folder, one in both for name, said in one.manifests.items()})


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checked `_manifest.json`. Raises FormatError "manifest", "json"; MissingError "missing"."""
    def refuse(expected: str, found: object) -> FormatError:
        return FormatError("manifest", file=path, expected=expected, found=str(found)[:200], cure="Prepare the corpus again.")

    try:
        document = parse_json(Path(path).read_bytes(), str(path), LARGEST)
    except OSError as why:
        raise MissingError("missing", file=path, expected="the manifest", found=why.strerror or str(why)) from why
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise refuse(f"{FORMAT} {VERSION}", document.get("format") if isinstance(document, dict) else document)
    listed = document.get("files")
    if not isinstance(listed, list) or not isinstance(document.get("corpus"), str):
        raise refuse("a corpus and a list of files", type(listed).__name__)
    sizes, digests = ("rows", "samples", "bytes", "rows_bytes"), ("sha256", "rows_sha256")
    for entry in listed:
        if not isinstance(entry, dict) or set(entry) != {"name", *sizes, *digests}:
            raise refuse(f"name, {', '.join((*sizes, *digests))} for each file", entry)
        if not all(type(entry[key]) is int and 0 <= entry[key] < 1 << 62 for key in sizes) or not all(
                isinstance(entry[key], str) and re.fullmatch("[0-9a-f]{64}", entry[key]) for key in digests):
            raise refuse("whole numbers and sha256 in hex", entry)
        if not re.fullmatch(r"split=\w[\w.-]*/language=\w[\w.-]*/part-\d{5,}\.parquet", str(entry["name"])):
            raise refuse("files such as split=train/language=eng_Latn/part-00000.parquet", entry["name"])
    return document


def dump_manifest(document: dict[str, Any]) -> bytes:
    """The bytes of `_manifest.json`, of a document without format and version."""
    return json.dumps({"format": FORMAT, "version": VERSION, **document}, indent=1, ensure_ascii=False).encode()


def partitions(path: str) -> dict[str, str]:
    """The `key=value` folders at the end of a file's path, values as texts.

    >>> partitions("/data/version=0/corpus=cv/split=train/language=nan/a.parquet")["language"]
    'nan'
    """
    found: dict[str, str] = {}
    for folder in reversed(os.path.abspath(path).split(os.sep)[:-1]):
        key, equals, value = folder.partition("=")
        if not equals:
            break
        found.setdefault(key, unquote(value))
    return found


def _version(root: str) -> str:
    """The folder itself, or the one version below it."""
    if not os.path.isdir(root):
        raise MissingError("missing", file=root, expected="a folder of Parquet files", found="none")
    below = sorted(name for name in os.listdir(root) if name.startswith("version="))
    if len(below) > 1:
        raise FormatError("version", file=root, expected="one version", found=", ".join(below), cure="Name the folder of one.")
    return os.path.join(root, below[0]) if below else root


def _walk(root: str, folder: str, depth: int) -> Iterator[tuple[str, list[str]]]:
    """Each folder with the names of its files; below a manifest nothing else is looked for."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    files = [entry.name for entry in found if entry.is_file()]
    yield folder, files
    if MANIFEST not in files and depth < MOST_DEEP:
        for entry in found:
            if entry.is_dir() and entry.name[0] not in "._":
                yield from _walk(root, entry.path, depth + 1)


def _part(root: str, path: str) -> Part:
    said = partitions(path)
    missing = [key for key in KEYS if not said.get(key)]
    if missing:
        raise FormatError("partition", file=path, expected="a path with corpus=…/split=…/language=…", found=f"no {missing[0]}=")
    return Part(os.path.relpath(path, root).replace(os.sep, "/"), said["corpus"], said["split"], said["language"])


def _listed(root: str, folder: str, corpus: str, entry: dict[str, Any]) -> Part:
    """A part that a manifest names, there with its companion and in its size."""
    part = _part(root, os.path.join(folder, entry["name"]))
    if part.corpus != corpus:
        raise FormatError("partition", file=os.path.join(folder, MANIFEST), found=corpus,
                          expected=f"corpus={part.corpus}, as its path says")
    for name, size in ((part.name, entry["bytes"]), (part.companion, entry["rows_bytes"])):
        try:
            found = os.stat(os.path.join(root, name)).st_size
        except OSError as why:
            raise MissingError("missing", file=name, expected="the file, as the manifest says", found=why.strerror or str(why),
                               cure="Restore it or prepare the corpus again.") from why
        if found != size:
            raise FormatError("size", file=name, expected=f"{size} bytes, as the manifest says", found=str(found),
                              cure="It was cut short or exchanged: restore it or prepare the corpus again.")
    return part._replace(**{key: entry[key] for key in entry if key != "name"})
