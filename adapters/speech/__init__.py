"""Multilingual speech: text and audio as Omnilingual ASR prepares them, and corpora of it as partitioned Parquet and packs.

    from adapters.speech import AudioTableProcessor, map_to_target_schema, text_normalize

Importing it loads nothing heavy; each name below is imported when it is first used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.speech.audio import AudioTableProcessor, binary_to_list_int8, bytes_to_tensor, map_to_target_schema
    from adapters.speech.languages import fleurs_languages, language_code, mls_languages
    from adapters.speech.text import text_normalize
    from asdstore.stats import compute_stats

_HOME = {"AudioTableProcessor": "adapters.speech.audio", "binary_to_list_int8": "adapters.speech.audio",
         "bytes_to_tensor": "adapters.speech.audio", "compute_stats": "asdstore.stats",
         "fleurs_languages": "adapters.speech.languages", "language_code": "adapters.speech.languages",
         "map_to_target_schema": "adapters.speech.audio", "mls_languages": "adapters.speech.languages",
         "text_normalize": "adapters.speech.text"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'adapters.speech' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_HOME[name]), name)
    return value


__all__ = ["AudioTableProcessor", "binary_to_list_int8", "bytes_to_tensor", "compute_stats", "fleurs_languages",
           "language_code", "map_to_target_schema", "mls_languages", "text_normalize"]
