"""The header of a pfile, bytes <-> facts. 32768 bytes of ASCII lines, padded with NUL; all numbers behind it are big-endian.

    -pfile_header version 0 size 32768
    -num_sentences S
    -num_frames N
    -first_feature_column 2
    -num_features F
    -first_label_column 2+F
    -num_labels L
    -format dd + f for each feature + d for each label       (repeat counts are read too: 2d24f1d)
    -data size N*C offset 0 ndim 2 nrow N ncol C             (size and offset in 4-byte words behind the header)
    -sent_table_data size S+1 offset N*C ndim 1              (the line is absent where there is no table)
    -end

A row is int32 sentence, int32 frame, F float32, L int32; the table S + 1 int32, the first row of each sentence and N.
Lines come in any order and may end in CR LF. Tolerated: other header sizes; `ndim` of the data other than 2; no `-format`,
no `-end`, no `-num_labels` where the columns leave no room for labels. Everything else that disagrees is an error.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from asdstore.errors import FormatError

SIZE = 32768
LARGEST_SIZE = 1 << 20  # bytes of a header that are read at the most
MOST_COLUMNS = 1 << 20  # of a row; what a header claims must not make us reserve memory
MAGIC = b"-pfile_header"
CURE = "Write the file again with a program that keeps the format, or convert it from its source."


class Header(NamedTuple):
    """What a pfile says of itself."""

    sentences: int
    frames: int
    features: int  # values of a frame
    labels: int  # label columns
    columns: int  # 4-byte words of a row, the two ids included
    first_feature: int
    first_label: int
    table: bool  # whether a sentence table follows the rows
    size: int = SIZE  # bytes of the header

    @property
    def row_bytes(self) -> int:
        return 4 * self.columns

    @property
    def table_at(self) -> int:
        """The byte behind the last row."""
        return self.size + self.frames * self.row_bytes

    @property
    def bytes(self) -> int:
        """Bytes of the whole file."""
        return self.table_at + (4 * (self.sentences + 1) if self.table else 0)


def header(sentences: int, frames: int, features: int, labels: int, table: bool = True) -> bytes:
    """The header that QuickNet writes.

    >>> header(2, 5, 2, 1)[:35], parse(header(2, 5, 2, 1)).bytes
    (b'-pfile_header version 0 size 32768\\n', 32880)
    """
    columns = 2 + features + labels
    lines = [f"-pfile_header version 0 size {SIZE}", f"-num_sentences {sentences}", f"-num_frames {frames}",
             "-first_feature_column 2", f"-num_features {features}", f"-first_label_column {2 + features}",
             f"-num_labels {labels}", f"-format dd{'f' * features}{'d' * labels}",
             f"-data size {frames * columns} offset 0 ndim 2 nrow {frames} ncol {columns}"]
    if table:
        lines.append(f"-sent_table_data size {sentences + 1} offset {frames * columns} ndim 1")
    text = "\n".join([*lines, "-end", ""]).encode()
    if len(text) > SIZE:
        raise FormatError("pfile-header", expected=f"at most {SIZE} bytes of header", found=str(len(text)),
                          cure="A frame has too many values for a pfile.")
    return text.ljust(SIZE, b"\0")


def parse(head: bytes, file: object = "") -> Header:
    """The facts of the header that `head` begins with; `head` is at least the first LARGEST_SIZE bytes, or the whole file.

    Raises FormatError: "pfile-magic" (not a pfile), "pfile-truncated" (ends inside the header), "pfile-header" (names the
    line, its byte, and what was expected there).
    """
    first = re.match(rb"-pfile_header version (\d{1,9}) size (\d{1,9})\r?\n", head)
    if first is None:
        kind, found = ("pfile-header", "another first line") if head.startswith(MAGIC) else ("pfile-magic", "not a pfile")
        raise FormatError(kind, file=file, offset=0, expected="-pfile_header version 0 size 32768",
                          found=f"{found}: {head[:34]!r}" if head else f"{found}: an empty file")
    version, size = int(first[1]), int(first[2])
    if version != 0 or not len(first[0]) <= size <= LARGEST_SIZE:
        raise FormatError("pfile-header", file=file, offset=0, expected=f"version 0 and a size of at most {LARGEST_SIZE}",
                          found=f"version {version} size {size}")
    if len(head) < size:
        raise truncated(file, size, len(head), "a header of")
    return _Lines(head[:size], file).facts(size)


def truncated(file: object, expected: int, found: int, what: str = "") -> FormatError:
    return FormatError("pfile-truncated", file=file, offset=found, expected=f"{what} {expected} bytes".strip(),
                       found=f"a file of {found} bytes", cure="The file was cut short: copy or write it again.")


class _Lines:
    """The lines of a header by tag, with the byte at which each begins."""

    def __init__(self, head: bytes, file: object):
        self.file = file
        self.lines: dict[str, tuple[int, str]] = {}
        at = 0
        for line in head.split(b"\n"):
            tag, _, rest = line.rstrip(b"\r\0 ").decode("latin1").partition(" ")
            if tag == "-end":
                break
            if tag in self.lines:
                raise self.wrong(tag, "the line once", "it twice", at)
            if tag.startswith("-"):
                self.lines[tag] = at, rest
            at += len(line) + 1

    def wrong(self, tag: str, expected: str, found: str, at: int | None = None) -> FormatError:
        at = self.lines[tag][0] if at is None and tag in self.lines else at
        return FormatError("pfile-header", file=self.file, offset=at, expected=f"{tag}: {expected}", found=found, cure=CURE)

    def text(self, tag: str) -> str:
        if tag not in self.lines:
            raise self.wrong(tag, "the line", "none")
        return self.lines[tag][1]

    def number(self, tag: str) -> int:
        found = re.fullmatch(r"\s*(\d{1,12})\s*", self.text(tag))
        if not found:
            raise self.wrong(tag, "a whole number", repr(self.text(tag)[:40]))
        return int(found[1])

    def names(self, tag: str, *wanted: str) -> dict[str, int]:
        """The numbers of a line such as `size 25 offset 0 ndim 2`."""
        found = dict(re.findall(r"(\w+) (\d{1,15})\b", self.text(tag)))
        for name in wanted:
            if name not in found:
                raise self.wrong(tag, f"{name} and a whole number", repr(self.text(tag)[:80]))
        return {name: int(found[name]) for name in wanted}

    def facts(self, size: int) -> Header:
        sentences, frames = self.number("-num_sentences"), self.number("-num_frames")
        first_feature, features = self.number("-first_feature_column"), self.number("-num_features")
        data = self.names("-data", "size", "offset", "nrow", "ncol")
        columns = data["ncol"]
        labels = self.number("-num_labels") if "-num_labels" in self.lines else 0
        first_label = self.number("-first_label_column") if labels else first_feature + features
        behind, label_end = first_feature + features, first_label + labels
        if "-num_labels" not in self.lines and columns != behind:
            raise self.wrong("-num_labels", f"the line, for {columns} columns of which {behind} are known", "none")
        if max(columns, behind, first_label + labels) > MOST_COLUMNS:
            raise self.wrong("-data", f"a row of at most {MOST_COLUMNS} columns", self.text("-data")[:80])
        if first_feature < 2 or features < 1:
            raise self.wrong("-num_features", "features behind the two id columns", f"{features} from column {first_feature}")
        together = labels > 0 and first_feature < label_end and first_label < behind
        if behind > columns or label_end > columns or first_label < 2 or together:
            raise self.wrong("-data", f"ncol to hold features {first_feature} to {behind - 1}, and apart from them labels "
                             f"{first_label} to {label_end - 1}", f"ncol {columns}")
        for name, value in {"nrow": frames, "offset": 0, "size": frames * columns}.items():
            if data[name] != value:
                raise self.wrong("-data", f"{name} {value}", f"{name} {data[name]}")
        self.check_format(first_feature, features, first_label, labels, columns)
        table = "-sent_table_data" in self.lines
        if table:
            said = self.names("-sent_table_data", "size", "offset")
            if said != {"size": sentences + 1, "offset": frames * columns}:
                raise self.wrong("-sent_table_data", f"size {sentences + 1} offset {frames * columns}",
                                 f"size {said['size']} offset {said['offset']}")
        return Header(sentences, frames, features, labels, columns, first_feature, first_label, table, size)

    def check_format(self, first_feature: int, features: int, first_label: int, labels: int, columns: int) -> None:
        """`-format` has a letter for each column; columns that are neither features nor labels may be either."""
        if "-format" not in self.lines:
            return
        said = self.lines["-format"][1].strip()
        parts = re.findall(r"(\d{0,6})([df])", said)
        if "".join(count + letter for count, letter in parts) != said or sum(int(n or 1) for n, _ in parts) != columns:
            raise self.wrong("-format", f"d and f for {columns} columns", repr(said[:80]))
        letters = "".join(letter * int(n or 1) for n, letter in parts)
        wanted = (("dd", 0), ("f" * features, first_feature), ("d" * labels, first_label))
        if any(letters[at:at + len(kind)] != kind for kind, at in wanted):
            raise self.wrong("-format", f"dd, {features} f from column {first_feature}, {labels} d from column {first_label}",
                             repr(said[:80]))
