"""The exception tree of asdstore; see `spec.errors`, where it lives because `spec` raises it too."""
from spec.errors import (
    AsdError,
    DependencyError,
    Fault,
    FormatError,
    InputError,
    IntegrityError,
    MissingError,
    StateError,
    StoreError,
    TrackError,
    error,
)

__all__ = ["AsdError", "DependencyError", "Fault", "FormatError", "InputError", "IntegrityError", "MissingError",
           "StateError", "StoreError", "TrackError", "error"]
