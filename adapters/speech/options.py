"""The options of `prepare speech`."""
from __future__ import annotations

import argparse
from typing import Any


def speech_options(corpora: Any, running: argparse.ArgumentParser) -> None:
    """Add the verb `speech` to the corpora of a parser; `running` has the options that every corpus has."""
    text = "speech: Parquet, Arrow, tables or folders of utterances, or a Hugging Face hub, as partitioned Parquet and packs"
    verb = corpora.add_parser("speech", parents=[running], help=text, description=text)
    verb.set_defaults(run=_run)
    source = verb.add_argument_group("what is read")
    source.add_argument("--input", action="append", metavar="[SPLIT=]PATH", default=[],
                        help="a Parquet or Arrow file, a table (.tsv .csv .jsonl), a save_to_disk folder, or a folder of "
                             "Parquet or audio files; may stand several times")
    source.add_argument("--hub", metavar="NAME", help="a dataset of a hub, or a local copy of its repository, streamed")
    source.add_argument("--config", action="append", default=[], help="a configuration of it; may stand several times")
    source.add_argument("--revision", help="of that dataset")
    source.add_argument("--preset", choices=("fleurs", "mls"), help="corpus, columns and languages of FLEURS or MLS; without "
                                                                    "--input from their hub")
    source.add_argument("--short", action="store_true", help="two languages of the preset only")
    source.add_argument("--corpus", dest="corpus_name", metavar="NAME", help="what the corpus is called (the preset)")
    source.add_argument("--split", default="", help="of all rows (default: a column, the path, or the hub says it)")
    source.add_argument("--language", default="", help="of all rows, such as eng_Latn (default: a column or the path says it)")
    for name in ("audio", "text", "language", "split", "speaker", "id"):
        source.add_argument(f"--{name}-column", default="", metavar="NAME", help=f"the column with the {name} (found by name)")
    source.add_argument("--root", help="what relative audio paths of tables are relative to (the table's folder)")
    source.add_argument("--any-language", action="store_true", help="let languages be codes that are none of the 1,672")
    written = verb.add_argument_group("what is written")
    written.add_argument("--output", metavar="ROOT", help="the dataset's root: version=0/corpus=…/split=…/language=… go below")
    written.add_argument("--dataset-version", default="0", metavar="V", help="the V of version=V (0)")
    written.add_argument("--audio-format", choices=("flac", "ogg", "wav"), default="flac", help="of the utterances (flac)")
    written.add_argument("--rules", choices=("omnilingual", "unicode", "none"), default="omnilingual",
                         help="how texts are normalised: as Omnilingual ASR does, corrected, or not at all (omnilingual)")
    written.add_argument("--keep-case", action="store_true", help="do not write texts in lower case")
    written.add_argument("--keep-numbers", action="store_true", help="do not remove words of digits")
    written.add_argument("--remove-brackets", action="store_true", help="remove what stands in round brackets")
    written.add_argument("--shuffle-window", type=int, default=0, metavar="N", help="shuffle within N rows (0: keep the order)")
    written.add_argument("--seed", type=int, default=0, help="of the shuffle (0)")
    written.add_argument("--rows-per-file", type=int, default=10_000, metavar="N", help="rows of a file at the most (10000)")
    written.add_argument("--pack", nargs="?", const="", metavar="DIR",
                         help="also write a memory-mapped pack (ROOT/packed/<corpus>); alone with an --input prepared before")


def _run(options: argparse.Namespace, say_faults: Any) -> int:
    from adapters.speech.command import run

    return run(options, say_faults)
