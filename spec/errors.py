"""The one exception tree of asdstore, drawn:

    AsdError                      everything that this library raises on purpose
    ├── FormatError               (ValueError)         bytes or documents that break the standard
    │   └── IntegrityError                             a checksum or digest that does not match
    ├── InputError                (ValueError)         source media, labels, tables or arguments that cannot be used
    ├── StateError                (ValueError)         a loader state or plan that does not fit
    ├── TrackError                (KeyError)           a sample id that is unknown or ambiguous
    ├── MissingError              (FileNotFoundError)  a file that must be there is not
    ├── StoreError                (OSError)            a target that exists, is locked, is full, or changed while open
    └── DependencyError           (ImportError)        an optional package is not installed

Every error carries a stable, append-only `kind` and the parts of its message, so that `check` reports what `open` raises.
The tree lives on the ground floor because `spec` raises it too; users import it as `asdstore.errors`.
"""
from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong: where, what was expected, what was found, the cure; and the rule that it breaks, if any."""

    kind: str
    file: str = ""
    sample_id: str = ""
    row: int | None = None
    offset: int | None = None
    expected: str = ""
    found: str = ""
    cure: str = ""
    rule: str = ""
    level: str = "MUST"

    def where(self) -> str:
        """Where it is, in words: file, row, sample id, byte offset.

        >>> Fault("labels", file="train.csv", row=3, sample_id="a:1").where()
        "train.csv, row 3, sample 'a:1'"
        """
        parts = [self.file] if self.file else []
        if self.row is not None:
            parts.append(f"row {self.row}")
        if self.sample_id:
            parts.append(f"sample {self.sample_id!r}")
        if self.offset is not None:
            parts.append(f"byte {self.offset}")
        return ", ".join(parts)

    def text(self) -> str:
        """The whole message on one line.

        >>> Fault("size", file="faces.npy", expected="10 bytes", found="9", cure="Pack again.").text()
        'faces.npy: expected 10 bytes, found 9. Pack again. [size]'
        """
        said = ", ".join(p for p in (self.expected and f"expected {self.expected}", self.found and f"found {self.found}") if p)
        head = ": ".join(p for p in (self.where(), said) if p)
        tags = ", ".join(p for p in (self.rule, self.kind) if p)
        return f"{head}. {self.cure} [{tags}]" if self.cure else f"{head} [{tags}]"


class AsdError(Exception):
    """Base of the tree. `error.fault` has the parts, `error.kind` the stable kind.

    >>> raise InputError("labels", file="a.csv", row=2, expected="0 or 1", found="7")
    Traceback (most recent call last):
    spec.errors.InputError: a.csv, row 2: expected 0 or 1, found 7 [labels]
    """

    def __init__(self, kind: str | Fault, *, file: object = "", sample_id: str = "", row: int | None = None,
                 offset: int | None = None, expected: str = "", found: str = "", cure: str = "", rule: str = ""):
        self.fault = kind if isinstance(kind, Fault) else Fault(
            kind, str(file), sample_id, row, offset, expected, found, cure, rule)
        super().__init__(self.fault.text())

    @property
    def kind(self) -> str:
        return self.fault.kind

    def __str__(self) -> str:  # KeyError would show the repr, OSError its errno
        return self.fault.text()

    def __reduce__(self):
        return type(self), (self.fault,)


class FormatError(AsdError, ValueError): ...
class IntegrityError(FormatError): ...
class InputError(AsdError, ValueError): ...
class StateError(AsdError, ValueError): ...
class TrackError(AsdError, KeyError): ...
class MissingError(AsdError, FileNotFoundError): ...
class StoreError(AsdError, OSError): ...
class DependencyError(AsdError, ImportError): ...


def error(fault: Fault) -> AsdError:
    """The exception that says `fault`, of the class that fits its kind.

    >>> error(Fault("missing", file="faces.npy")).__class__.__name__
    'MissingError'
    """
    classes = {"missing": MissingError, "digest": IntegrityError, "sha256": IntegrityError, "stale": StoreError}
    return classes.get(fault.kind, FormatError)(fault)
