"""Which recording a track belongs to: said by the pack, or told by the ids of a corpus that is known."""
from __future__ import annotations

from spec.index import Index
from spec.strings import Strings


def recordings(index: Index) -> Strings | list[str]:
    """The recording of each row, "" where it is not known."""
    if "dataset" not in index.columns:  # speech: every utterance stands for itself
        return index.texts("sample_id")
    said = index.columns.get("recording")
    known = said if isinstance(said, Strings) else None
    if known is not None and all(known):
        return known
    rows = zip(index.texts("dataset"), index.texts("sample_id"), known or [""] * len(index), strict=True)
    return [told or inferred(dataset, sample_id) for dataset, sample_id, told in rows]


def inferred(dataset: str, sample_id: str) -> str:
    """The source video that an id of a known corpus names, "" for others.

    >>> inferred("ava", "HV0H6oc4Kvs_0960_1020:1"), inferred("wasd", "0BRxm7G1acw_1449-1479_0000_0030:1")
    ('HV0H6oc4Kvs', '0BRxm7G1acw')
    >>> inferred("msdwild", "00001_00000_0"), inferred("avcc", "conv1_spk1")
    ('00001', '')
    """
    clip = sample_id.rpartition(":")[0]
    if dataset == "ava" and clip.count("_") >= 2:
        return clip.rsplit("_", 2)[0]
    if dataset == "wasd" and clip.count("_") >= 3:
        return clip.rsplit("_", 3)[0]
    if dataset == "msdwild" and sample_id.count("_") >= 2:
        return sample_id.rsplit("_", 2)[0]
    return ""
