"""Which reader a file belongs to, told by its name: `train.pfile.1.gz` is a pfile, `valid.scp` a script of Kaldi's."""
from __future__ import annotations

import os
import re
from collections.abc import Sequence

from asdstore.errors import FormatError
from asdstore.formats.source import Source

_KINDS = re.compile(r"\.(pfile|scp|ark|pkl|pickle)(?=\.|$)")


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a name says: "pfile", "scp", "ark", "pickle", or "". Whatever stands behind the last such part is free.

    >>> kind_of("a.pkl/train.pfile.1.gz"), kind_of("x.pickle.bz2"), kind_of("README")
    ('pfile', 'pickle', '')
    """
    found = _KINDS.findall(os.path.basename(os.fspath(path)))
    return found[-1].replace("pkl", "pickle") if found else ""


def open_source(path: str | os.PathLike[str], label: str | os.PathLike[str] | None = None, strict: bool = True,
                allow_commands: bool = False) -> Source:
    """The frame features of a pfile, an scp or ark, a pickle, or a pack of frames.

    `label`, `strict` and `allow_commands` are those of `open_kaldi`; other files have their labels inside.

    Raises: FormatError, kind "format", for other names, and for labels beside a file that has its own; what the readers raise.
    """
    kind = "" if os.path.isdir(path) else kind_of(path)
    if kind in ("scp", "ark"):
        from asdstore.formats.kaldi import open_kaldi
        return open_kaldi(path, label, strict, allow_commands)
    if label is not None:
        raise FormatError("format", file=path, expected="label= beside an scp or ark only", found=f"label={label}")
    if os.path.isdir(path):
        from asdstore.formats.packed import open_packed
        return open_packed(path)
    if kind == "pfile":
        from asdstore.formats.pfile import open_pfile
        return open_pfile(path)
    if kind == "pickle":
        from asdstore.formats.pickles import open_pickle
        return open_pickle(path)
    raise FormatError("format", file=path, expected="a name with .pfile, .scp, .ark, .pickle or .pkl in it, or a pack",
                      found=os.path.basename(os.fspath(path)))


def open_sources(paths: Sequence[str | os.PathLike[str]], label: str | os.PathLike[str] | None = None, strict: bool = True,
                 allow_commands: bool = False) -> Source:
    """The same of one file, or of several as one, in order. Raises: as `open_source`; InputError, kind "dimension"."""
    sources = [open_source(path, label, strict, allow_commands) for path in paths]
    if len(sources) == 1:
        return sources[0]
    from asdstore.formats.joined import Joined
    return Joined(sources)
