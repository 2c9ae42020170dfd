"""`dataset.json`: what a pack is. Parse follows the geometry that it records; dump writes the bytes of the original program."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from spec.document import parse_json
from spec.errors import Fault, error
from spec.layout import LAYOUTS, Layout, Shape

NAME = "dataset.json"
LARGEST = 1 << 24  # bytes


class Manifest(NamedTuple):
    """A parsed `dataset.json`. `extra` holds the keys that the layout does not know; they survive a round trip."""

    layout: Layout
    shards: int
    samples: int
    extra: dict[str, Any] = {}


def document(manifest: Manifest) -> dict[str, Any]:
    """The manifest as the JSON object of the standard, keys in the order of the original program."""
    layout = manifest.layout
    found: dict[str, Any] = {"format": layout.format, "version": layout.version, **dict(layout.constants)}
    color = {"face_color": found.pop("face_color")} if "face_color" in found else {}
    found |= {shape.key: list(layout.stream(shape.stream).item_shape) if layout.has(shape.stream) else None
              for shape in layout.shapes} | color
    found |= {key: dtype for key, dtype in _dtypes(layout)}
    return found | {"shards": manifest.shards, "samples": manifest.samples} | manifest.extra


def dump(manifest: Manifest) -> bytes:
    """The bytes of `dataset.json`: JSON, indent 2, no newline at the end.

    >>> from spec.layout import ASD
    >>> dump(Manifest(ASD, shards=1, samples=2))[:32]
    b'{\\n  "format": "muvap-asd-mmap",\\n'
    """
    return json.dumps(document(manifest), indent=2).encode()


def parse(data: bytes, file: str = NAME) -> Manifest:
    """The manifest that the bytes hold.

    Raises FormatError: "json", or the kind of the first of `faults`.
    """
    return of_document(parse_json(data, file, LARGEST), file)


def of_document(found: Any, file: str = NAME) -> Manifest:
    """The manifest of a JSON object. Raises FormatError with the kind of the first of `faults`."""
    for fault in faults(found, file):
        raise error(fault)
    layout = _layout(found)
    assert layout is not None  # faults() has named an unknown one
    layout = layout.with_shapes(_shapes(found, layout))
    known = set(document(Manifest(layout, 0, 0)))
    return Manifest(layout, found["shards"], found["samples"], {k: v for k, v in found.items() if k not in known})


def faults(found: Any, file: str = NAME) -> Iterator[Fault]:
    """Everything that is wrong with a manifest: kinds "manifest", "format", "version", "geometry", "dtype", "count"."""
    if not isinstance(found, dict):
        yield Fault("manifest", file, expected="a JSON object", found=type(found).__name__)
        return
    layout = _layout(found)
    if layout is None:
        names = [x.format for x in LAYOUTS]
        wrong = "version" if found.get("format") in names else "format"
        known = ", ".join(f"{x.format} {x.version}" for x in LAYOUTS)
        yield Fault(wrong, file, expected=known, found=f"{found.get('format')} {found.get('version')}",
                    cure="Pack the corpus again, or use the release that knows this format.")
        return
    for key, value in layout.constants:
        if key not in found or not _same(found[key], value):
            yield Fault("manifest", file, expected=f"{key} = {json.dumps(value)}", found=json.dumps(found.get(key, "nothing")))
    wrong_shapes = [shape for shape in layout.shapes if not _is_shape(found.get(shape.key, "nothing"), shape)]
    for key, dtype in _dtypes(layout if wrong_shapes else layout.with_shapes(_shapes(found, layout))):
        if found.get(key) != dtype:
            yield Fault("dtype", file, expected=f"{key} = {dtype}", found=repr(found.get(key)))
    for shape in wrong_shapes:
        sizes = f"a list of {' or '.join(map(str, shape.axes))} whole numbers, 1 to {shape.largest}"
        yield Fault("geometry", file, expected=f"{shape.key} = {sizes}{', or null' if shape.optional else ''}",
                    found=json.dumps(found.get(shape.key)))
    for key, most in (("shards", 10**6), ("samples", 10**12)):
        if type(found.get(key)) is not int or not 1 <= found[key] < most:
            yield Fault("count", file, expected=f"{key}: a whole number of at least 1", found=json.dumps(found.get(key)))


def _layout(found: dict[str, Any]) -> Layout | None:
    return next((x for x in LAYOUTS if _same(found.get("format"), x.format) and _same(found.get("version"), x.version)), None)


def _dtypes(layout: Layout) -> list[tuple[str, str]]:
    """The manifest's dtype keys: face_dtype, audio_dtype, label_dtype."""
    names = {"|u1": "uint8", "<i2": "int16", "<i4": "int32", "<f4": "float32"}
    return [(f"{s.name.removesuffix('s')}_dtype", names[s.dtype]) for s in layout.streams]


def _same(found: object, expected: object) -> bool:
    return type(found) is type(expected) and found == expected


def _is_shape(found: Any, shape: Shape) -> bool:
    if found is None:
        return shape.optional
    sizes = isinstance(found, list) and len(found) in shape.axes
    return sizes and all(type(n) is int and 0 < n <= shape.largest for n in found)


def _shapes(found: dict[str, Any], layout: Layout) -> dict[str, tuple[int, ...] | None]:
    """What a row of each stream is, as a manifest says whose shapes are right."""
    said = {shape.stream: found[shape.key] for shape in layout.shapes}
    return {stream: None if shape is None else tuple(shape) for stream, shape in said.items()}
