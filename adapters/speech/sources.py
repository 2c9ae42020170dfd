"""Where utterances come from: Parquet files and `save_to_disk` folders with Hugging Face's audio columns, tables, folders.

Every source is a `Piece`, a run of rows that can be read in their order; which split and language a row belongs to is known
before anything is decoded. Nothing here asks a hub.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from adapters.speech import tables
from asdstore.errors import DependencyError, InputError, MissingError
from asdstore.formats.parquet_set import partitions
from spec.document import parse_json

SPLITS = {"validation": "dev", "valid": "dev", "val": "dev"}  # others keep their names
IN_NAMES = re.compile(r"(train|validation|valid|val|dev|test)(?![a-z0-9])")  # how names of files and folders tell a split


class Names(NamedTuple):
    """The columns of a source; "" for one that it does not have, or that is to be found by its name."""

    audio: str = ""
    text: str = ""
    language: str = ""
    split: str = ""
    speaker: str = ""
    id: str = ""


class Piece(NamedTuple):
    """Some rows in their order: a Parquet file, an Arrow stream, or a table in memory."""

    path: str  # the file, or where the table is from
    kind: str  # "parquet", "arrow" or "table"
    names: Names
    split: str = ""  # of all rows, "" where a column says it; where folders say it and a column too, they have to agree
    language: str = ""  # the same, as the source calls it
    table: Any = None  # a pyarrow Table of kind "table"

    @property
    def stem(self) -> str:
        return Path(self.path).stem


class Given(NamedTuple):
    """What a caller says of its sources; "" where the source says it itself."""

    split: str = ""
    language: str = ""
    names: Names = Names()
    configurations: tuple[str, ...] = ()  # of a corpus whose folders are named by them: they stand for languages
    root: Path | None = None  # where relative audio paths of tables begin


def find(path: Path, given: Given) -> list[Piece]:
    """The pieces of one source, in the order of their paths.

    Raises: MissingError "missing"; InputError "source" (nothing known in it), "parquet", "column", "split", "language",
    "table".
    """
    return _find(path, path.absolute().parent, given)


def _find(path: Path, above: Path, given: Given) -> list[Piece]:
    if not path.exists():
        raise MissingError("missing", file=path, expected="a file or folder of speech", found="none")
    if path.is_file():
        return [_piece(path, above, given)]
    if (path / "dataset_dict.json").is_file():
        document = parse_json((path / "dataset_dict.json").read_bytes(), str(path / "dataset_dict.json"))
        splits = document.get("splits") if isinstance(document, dict) else None
        if not isinstance(splits, list) or not all(isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) for name in splits):
            raise InputError("source", file=path / "dataset_dict.json", expected="a list of splits", found=str(splits)[:80])
        return [piece for name in splits 
                for piece in _find(path / name, above, given._replace(split=given.split or name))]
    if (path / "state.json").is_file():
        return [_piece(file, above, given) for file in _saved(path)]
    inside = sorted(file for file in path.rglob("*.parquet") if _is_open(file.relative_to(path)))
    if inside:
        return [_piece(file, above, given) for file in inside]
    table = tables.metadata(path)
    if table:
        return [_piece(table, above, given)]
    return [_of_texts(path, tables.read_folder(path), above, given)]


def of_table(table: Any, path: str, given: Given) -> Piece:
    """An Arrow table in memory as a piece. Raises as `find`."""
    return _resolved(Piece(path, "table", Names(), table=table), table.column_names, Path(path).absolute().parent, given)


def _of_texts(path: Path, table: Any, above: Path, given: Given) -> Piece:
    """A table whose columns have our own names."""
    return _resolved(Piece(str(path), "table", Names(), table=table), table.column_names, above, given._replace(names=Names()))


def _is_open(path: Path) -> bool:
    return not any(part[0] in "._" for part in path.parts)


def _saved(folder: Path) -> list[Path]:
    """The Arrow files of a `save_to_disk` folder. Raises InputError "source"."""
    document = parse_json((folder / "state.json").read_bytes(), str(folder / "state.json"))
    listed = document.get("_data_files") if isinstance(document, dict) else None
    names = [entry.get("filename") for entry in listed] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) for name in names):
        raise InputError("source", file=folder / "state.json", expected="_data_files, each with a filename",
                         found=str(listed)[:80])
    return [folder / name for name in names]


def _piece(path: Path, above: Path, given: Given) -> Piece:
    kind = {".parquet": "parquet", ".arrow": "arrow"}.get(path.suffix, "table" if path.suffix in tables.TABLES else "")
    if not kind:
        raise InputError("source", file=path, found=path.name,
                         expected=f"a folder, or a file that ends in .parquet, .arrow, {', '.join(tables.TABLES)}")
    if kind == "table":
        return _of_texts(path, tables.read_table(path, given.root, given.names._asdict()), above, given)
    with arrow_errors(path):
        if kind == "parquet":
            import pyarrow.parquet as pq

            columns = pq.read_schema(path).names
        else:
            with open_stream(str(path)) as reader:
                columns = reader.schema.names
    return _resolved(Piece(str(path), kind, Names()), columns, above, given)


def _resolved(piece: Piece, columns: list[str], above: Path, given: Given) -> Piece:
    """The piece with its columns, split and language, told by folders below `above` where nothing else says it.

    Raises InputError "column", "split", "language".
    """
    names = Names(*(tables.column_of(name, wanted, columns, piece.path)
                    for name, wanted in zip(Names._fields, given.names, strict=True)))
    said = partitions(os.path.abspath(piece.path))
    parts = Path(piece.path).absolute().relative_to(above).with_suffix("").parts[::-1]
    split = given.split or said.get("split", "")
    if not split and not names.split:
        split = next((match[1] for match in map(IN_NAMES.match, parts) if match), "")
    language = given.language or said.get("language", "")
    if not language and given.configurations:
        bare = (part.removeprefix("mls_") for part in parts)  # as the folders of facebook/multilingual_librispeech are called
        language = next((part for part in bare if part in given.configurations), "")
    for name, value, column in (("split", split, names.split), ("language", language, names.language)):
        if not value and not column:
            raise InputError(name, file=piece.path, expected=f"a {name}", found=f"none in the path or in {columns}"[:200],
                             cure=f"Say it with --{name}, or --{name}-column.")
    compared = [name for name in ("split", "language") if said.get(name) and name in columns and not getattr(given, name)]
    names = names._replace(split="split" if "split" in compared else "" if split else names.split,
                           language="language" if "language" in compared else "" if language else names.language)
    return piece._replace(names=names, split=split, language=language)


# ---- Arrow

def require_arrow() -> None:
    """Raises DependencyError where Arrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as why:
        raise DependencyError("dependency", expected="the package pyarrow", found=str(why),
                              cure="pip install 'asdstore[speech]'") from why


@contextmanager
def arrow_errors(path: Path | str) -> Iterator[None]:
    """Names the file in what Arrow raises: InputError "parquet"."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as why:
        raise InputError("parquet", file=path, expected="a whole Parquet or Arrow file", found=str(why)[:200],
                         cure="It was cut short or damaged: fetch it again.") from why


@contextmanager
def open_stream(path: str) -> Iterator[Any]:
    """An Arrow file as a reader of batches: the stream that `save_to_disk` writes, or a file with a footer."""
    import pyarrow as pa

    with pa.memory_map(path) as file:
        file_format = file.read(6) == b"ARROW1"
        file.seek(0)
        if not file_format:
            yield pa.ipc.open_stream(file)
            return
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(n) for n in range(reader.num_record_batches))
        yield pa.RecordBatchReader.from_batches(reader.schema, batches)


def batches(piece: Piece, columns: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """Some columns of all rows as record batches, each with the number of its first row."""
    first, wanted = 0, list(dict.fromkeys(column for column in columns if column))
    with arrow_errors(piece.path):
        for batch in _batches(piece, wanted):
            yield first, batch
            first += len(batch)


def whole(batch: Any) -> Any:
    """A record batch whose offsets lie inside of its data, and whose texts are UTF-8. Raises pyarrow.ArrowInvalid."""
    batch.validate(full=True)  # Arrow trusts what it reads, and crashes later
    return batch


def _batches(piece: Piece, columns: list[str]) -> Iterator[Any]:
    if piece.kind == "table":
        yield from piece.table.select(columns).to_batches()
    elif piece.kind == "arrow":
        with open_stream(piece.path) as reader:
            for batch in reader:
                yield whole(batch.select(columns))
    else:
        import pyarrow.parquet as pq

        with pq.ParquetFile(piece.path) as file:
            yield from map(whole, file.iter_batches(65536, columns=columns))
