"""What the entries of a script point into: archives, mapped, decompressed or printed by a command, and heads of objects."""
from __future__ import annotations

import os

import numpy as np

from asdstore.errors import InputError, MissingError
from asdstore.formats import compressed
from asdstore.formats.kaldi_names import Entry, refused
from asdstore.formats.kaldi_objects import PLAIN_HEAD, Object, Place, head, plain_matrix

MOST_MAPS = 64  # archives that a source keeps mapped
LONGEST_KEY = 1024  # bytes


class Archives:
    """The bytes of archives: plain ones mapped, of compressed ones and commands the last one held."""

    def __init__(self, allow_commands: bool, script: str):
        self.allow_commands, self.script = allow_commands, script
        self._maps: dict[str, tuple[np.ndarray, str]] = {}
        self._plain: dict[str, bool] = {}
        self._held: tuple[str, np.ndarray, str] = ("", np.empty(0, np.uint8), "")

    def bytes(self, entry: Entry) -> tuple[np.ndarray, str]:
        """The bytes that an entry points into, and the name of the file that they are of."""
        if entry.command:
            return self._output(entry)
        if entry.path in self._maps:
            return self._maps[entry.path]
        if self._held[0] == entry.path:
            return self._held[1:]
        try:
            file = compressed.found(entry.path)
        except MissingError as error:
            raise MissingError(error.fault._replace(sample_id=entry.key, cure=f"{self.script}: paths are relative to "
                               f"{os.getcwd()}, the folder in which the program runs.")) from None
        data = compressed.read(file)
        if compressed.suffix(file):
            self._held = entry.path, data, file
        else:
            if len(self._maps) >= MOST_MAPS:
                del self._maps[next(iter(self._maps))]
            self._maps[entry.path] = data, file
        return data, file

    def is_plain(self, entry: Entry) -> bool:
        """Whether an entry points into a file that is not compressed."""
        if entry.command:
            return False
        if entry.path not in self._plain:
            self._plain[entry.path] = os.path.isfile(entry.path) and not compressed.suffix(entry.path)
        return self._plain[entry.path]

    def release(self) -> None:
        self._maps.clear()
        self._held = ("", np.empty(0, np.uint8), "")

    def _output(self, entry: Entry) -> tuple[np.ndarray, str]:
        if not self.allow_commands:
            raise refused(entry, self.script)
        import subprocess

        with subprocess.Popen(entry.path, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            data = process.stdout.read(compressed.LARGEST)
            if process.stdout.read(1):
                process.kill()
                raise compressed.too_large(entry.path, compressed.LARGEST)
        if process.returncode:
            raise InputError("kaldi-command", file=self.script, row=entry.line or None, sample_id=entry.key,
                             expected="a command that ends with 0", found=f"{process.returncode} from {entry.path[:120]!r}")
        return np.frombuffer(data, np.uint8), f"{entry.path} |"


def entry_head(data: np.ndarray, entry: Entry, place: Place) -> Object:
    """The object of an entry. An archive that is named without its offset gets a message of its own."""
    if not entry.explicit and not entry.command and data[:2].tobytes() != b"\0B":
        words = data[:LONGEST_KEY].tobytes().split(None, 1)
        if len(words) == 2 and (words[1][:2] == b"\0B" or words[1][:1] == b"["):
            raise place.wrong("kaldi-object", 0, "path:offset, or a file that is one object",
                              f"an archive that begins with the key {words[0][:60]!r}", "Write :offset behind its name.")
    if entry.offset >= len(data):
        raise place.wrong("kaldi-truncated", entry.offset, f"an object at byte {entry.offset}", f"a file of {len(data)} bytes",
                          "The archive was cut short, or the offset belongs to another one.")
    return head(data, entry.offset, place)


class Heads:
    """Measures plain matrices in plain archives by reading their first bytes: a map costs a page for each of them."""

    def __init__(self, archives: Archives):
        self._archives, self._path, self._file, self._size = archives, "", -1, 0

    def matrix(self, entry: Entry) -> Object | None:
        """The matrix that an entry points to, None for everything that is anything else."""
        if entry.command:
            return None
        if entry.path != self._path:
            self.__exit__()
            self._path = entry.path
            if self._archives.is_plain(entry):
                self._file = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                self._size = os.fstat(self._file).st_size
        if self._file < 0:
            return None
        return plain_matrix(os.pread(self._file, PLAIN_HEAD, entry.offset), entry.offset, self._size)

    def __enter__(self) -> Heads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
