"""The options of `prepare frames`."""
from __future__ import annotations

import argparse
from typing import Any


def frame_options(corpora: Any, running: argparse.ArgumentParser) -> None:
    """Add the verb `frames` to the corpora of a parser; `running` has the options that every corpus has."""
    text = "frames: features in pfiles, Kaldi archives or PDNN's pickles"
    verb = corpora.add_parser("frames", parents=[running], help=text, description=text)
    verb.add_argument("spec", metavar="SPEC", help="a file or a pattern; for Kaldi 'train.scp,label=train.ali'")
    verb.add_argument("--output", required=True, help="the pack")
    verb.add_argument("--skip-unlabelled", action="store_true",
                      help="leave out utterances without labels, or with another number of them; they are listed")
    verb.set_defaults(run=_run)


def _run(options: argparse.Namespace, say_faults: Any) -> int:
    from adapters.frames import run

    return run(options)
