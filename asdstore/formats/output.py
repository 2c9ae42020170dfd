"""Files that appear whole or not at all, written piece by piece."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asdstore import files
from asdstore.errors import StoreError


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[files.StreamFile]:
    """A file under a name of its own until the block ends, then in its place, on the disk. Raises StoreError, kind "exists"."""
    target = Path(path)
    if target.exists():
        raise StoreError("exists", file=target, expected="a new file", found="one of that name",
                         cure="Remove it or name another.")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with files.StreamFile(partial, target.name) as file:
            yield file
            file.finish()
        files.rename(partial, target)
    except BaseException:
        with suppress(OSError):
            files.remove(partial)
        raise
    files.fsync_folder(target.parent)
