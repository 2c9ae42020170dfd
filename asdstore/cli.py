"""The console script: `asdstore VERB ...` is `python -m MODULE ...`.

Verbs are dispatched by module name and imported only when called, so that help costs nothing. That the modules are ours, and
not others of the same name, was verified when `asdstore` was imported.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence

VERBS = {  # verb: (module with a main(argv), what it does)
    "prepare": ("adapters.prepare", "pack a corpus: an AVA-style clip tree or a manifest of your own"),
    "check": ("asdstore.check", "report every fault of packs and mirrors, then their levels"),
    "mirror": ("asdstore.mirror", "give a pack a Zarr v3 face without a second copy"),
    "stats": ("asdstore.stats", "hours of each language of a Parquet set or speech pack, as TSV"),
    "convert": ("asdstore.convert", "frame features from one format to another: pfile, Kaldi, HTK"),
}


def usage() -> str:
    """The help text.

    >>> usage().splitlines()[0]
    'usage: asdstore VERB ...'
    """
    width = max(map(len, VERBS))
    verbs = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return "\n".join(["usage: asdstore VERB ...", "", "verbs:", *verbs, "",
                      "asdstore VERB --help tells more; asdstore --version gives the version."])


def version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("asdstore")
    except PackageNotFoundError:
        return "(run from a source folder, not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns its exit code: 0 fine, 1 faults found, 2 usage, 3 unreadable."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments[0] if arguments else ""
    if verb in ("-h", "--help"):
        print(usage())
        return 0
    if verb in ("-V", "--version"):
        print(f"asdstore {version()}")
        return 0
    if verb not in VERBS:
        print(_unknown(verb), file=sys.stderr)
        return 2
    return _dispatch(verb, arguments[1:])


def _unknown(verb: str) -> str:
    if not verb:
        return usage()
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"asdstore: there is no verb {verb!r}.{hint} The verbs: {', '.join(VERBS)}."


def _dispatch(verb: str, arguments: list[str]) -> int:
    from importlib import import_module

    sys.argv[0] = f"asdstore {verb}"  # the program's name in the verb's own help and messages
    return import_module(VERBS[verb][0]).main(arguments)
