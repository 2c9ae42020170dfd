"""Multilingual speech: text and audio as Omnilingual ASR prepares them, and corpora of it as partitioned Parquet and packs.

    from adapters.speech import AudioTableProcessor, map_to_target_schema, text_normalize
"""
from adapters.speech.audio import AudioTableProcessor, binary_to_list_int8, bytes_to_tensor, map_to_target_schema
from adapters.speech.languages import fleurs_languages, language_code, languages, mls_languages
from adapters.speech.text import text_normalize

__all__ = ["AudioTableProcessor", "binary_to_list_int8", "bytes_to_tensor", "fleurs_languages", "language_code", "languages",
           "map_to_target_schema", "mls_languages", "text_normalize"]
