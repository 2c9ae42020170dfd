"""Which processes run, for tests of those that must end. A dead one whose parent is dead too stays listed until the first
process of the system reaps it, which may take long: it does not run."""
from __future__ import annotations

from pathlib import Path


def runs(pid: int) -> bool:
    """Whether the process has not ended."""
    return _stat(Path(f"/proc/{pid}/stat"))[0] not in "ZX"


def running_in_group(group: int) -> list[int]:
    """Process ids of a process group that have not ended."""
    found = ((int(path.parent.name), _stat(path)) for path in Path("/proc").glob("[0-9]*/stat"))
    return [pid for pid, (state, _, its_group) in found if state not in "ZX" and int(its_group) == group]


def _stat(path: Path) -> list[str]:
    """State, parent and process group; state X where there is no such process."""
    try:
        return path.read_text().rpartition(")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return ["X", "0", "-1"]
