"""`python -m asdstore.convert INPUT OUTPUT`: frame features from one format to another.

INPUT is a file or a pattern: pfiles, an scp or ark (labels by --label), pickles, packs of frames, or HTK feature files (--htk,
labels by --mlf or --lab). OUTPUT ends in .pfile, or in .scp, beside which stand the archive .ark and the alignment .ali.
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asdstore.formats.source import Source


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code: 0 fine, 1 faults, 2 usage, 3 unreadable."""
    parser = _parser()
    options = parser.parse_args(argv)
    if not options.output.endswith((".pfile", ".scp")):
        parser.error(f"OUTPUT ends in .pfile or .scp, not as {options.output!r} does")
    if (options.mlf or options.lab or options.label_list) and not options.htk:
        parser.error("--mlf, --lab and --label-list belong to --htk")
    from asdstore.errors import AsdError, MissingError, StoreError

    try:
        source = _opened(options)
        written = write(source, options.output, text=options.text, table=not options.no_table)
    except AsdError as error:
        print(json.dumps({"faults": [error.fault._asdict()]}, indent=2) if options.json else error,
              file=sys.stdout if options.json else sys.stderr)
        exists = isinstance(error, StoreError) and error.kind == "exists"
        return 2 if exists else 3 if isinstance(error, (MissingError, StoreError)) else 1
    facts = {"written": written, "utterances": len(source), "frames": source.frames, "dim": source.dim,
             "label_columns": source.label_columns, "notes": source.notes}
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        print(f"{', '.join(written)}: {len(source):,} utterances, {source.frames:,} frames of {source.dim} values, "
              f"{source.label_columns} label columns")
        for name, items in source.notes.items():
            print(f"  {name}: {len(items):,}")
    return 0


def write(source: Source, output: str, text: bool = False, table: bool = True) -> list[str]:
    """Writes a source as a pfile, or as a script with its archive and alignment, all or none. Returns the files.

    Raises: InputError "label-column" for several label columns in an alignment; StoreError "exists" before anything is
        written; what the writers raise.
    """
    from asdstore import files
    from asdstore.errors import InputError, StoreError
    from asdstore.formats.kaldi_write import write_alignments, write_ark
    from asdstore.formats.pfile import write_pfile

    if output.endswith(".pfile"):
        write_pfile(output, source, table)
        return [output]
    if source.label_columns > 1:
        raise InputError("label-column", file=source.path, expected="one label column", found=str(source.label_columns),
                         cure="An alignment has one label for each frame: a pfile keeps all columns.")
    archive, alignment = (output.removesuffix(".scp") + ending for ending in (".ark", ".ali"))
    written = [output, archive, alignment] if source.label_columns else [output, archive]
    for path in filter(os.path.lexists, written):
        raise StoreError("exists", file=path, expected="a new file", found="one of that name",
                         cure="Remove it or name another.")
    spans = list(zip(source.ids, source.offsets[:-1].tolist(), source.offsets[1:].tolist(), strict=True))
    with ExitStack() as undo:
        if source.label_columns:
            write_alignments(alignment, ((name, source.read_labels(a, b)[:, 0]) for name, a, b in spans))
            undo.callback(files.remove, Path(alignment))
        write_ark(archive, ((name, source.read(a, b).features) for name, a, b in spans), scp=output, text=text)
        undo.pop_all()
    return written


def _opened(options: argparse.Namespace) -> Source:
    from asdstore.errors import MissingError
    from asdstore.formats.joined import Joined
    from asdstore.formats.open import open_source

    strict = not options.skip_unlabelled
    if options.htk:
        from asdstore.formats.htk import open_htk
        return Joined([open_htk(options.input, options.mlf or options.lab, options.label_list, strict)])
    paths = [options.input] if os.path.exists(options.input) else sorted(glob.glob(options.input))
    if not paths:
        raise MissingError("missing", file=options.input, expected="a file of that name or pattern", found="none")
    return Joined([open_source(path, options.label, strict) for path in paths])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=None if sys.argv[0].startswith("asdstore") else "python -m asdstore.convert",
                                     description="Convert frame features to a pfile, or to a Kaldi script with its archive.")
    parser.add_argument("input", metavar="INPUT", help="a file or pattern: pfile, scp, ark, pickle, or a pack of frames")
    parser.add_argument("output", metavar="OUTPUT", help="X.pfile, or X.scp, beside which X.ark and X.ali are written")
    parser.add_argument("--label", help="the alignment of an scp or ark")
    parser.add_argument("--skip-unlabelled", action="store_true", help="leave out utterances without labels, and count them")
    parser.add_argument("--htk", action="store_true", help="INPUT is HTK feature files")
    labels = parser.add_mutually_exclusive_group()
    labels.add_argument("--mlf", help="their labels: a master label file")
    labels.add_argument("--lab", metavar="DIR", help="their labels: the folder of the .lab files")
    parser.add_argument("--label-list", help="names of the labels, one on each line, the first is 0")
    parser.add_argument("--text", action="store_true", help="write the archive as text")
    parser.add_argument("--no-table", action="store_true", help="write the pfile without a sentence table")
    parser.add_argument("--json", action="store_true", help="what was written, or the fault, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
