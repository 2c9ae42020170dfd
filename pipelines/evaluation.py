"""`pipelines.evaluate`: one pass over packs of face tracks, or over utterances; what the sources hold decides which."""
from __future__ import annotations

from typing import Any

from pipelines.loader import Loader


def evaluate(*sources: Any, **settings: Any) -> Loader:
    """A loader for evaluation: each track, or each utterance, once over all ranks, in the same order every time.

    Packs of face tracks: see `pipelines.presets.evaluate` (frame_budget, min_batch, max_batch, fps, targets, audio, ...).
    Parquet sets and packs of speech: see `pipelines.mixture_loader.evaluate_speech` (split, languages, corpora, ...).

    >>> evaluate("AVA/packed/val", frame_budget=8192)                                        # doctest: +SKIP
    >>> evaluate("all_asr/version=0", split="dev", languages=["deu_Latn"])                   # doctest: +SKIP
    """
    from pipelines.speech_corpus import is_speech, opened

    flat = [one for given in sources for one in (given if isinstance(given, (list, tuple)) else [given])]
    if flat:
        first = opened(flat[0])
        if is_speech(first):
            from pipelines.mixture_loader import evaluate_speech
            return evaluate_speech([first, *flat[1:]], **settings)
        flat[0] = first
    from pipelines.presets import evaluate as evaluate_tracks
    return evaluate_tracks(*flat, **settings)
