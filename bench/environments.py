"""Where peers are installed: asdstore's own environment, or one of those that are made here under .venv-peers."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent
ROOT = HOME.parent
FOLDER = ROOT / ".venv-peers"
STAMP = "installed.txt"  # the requirements that an environment has, and why others are missing


def interpreter(name: str) -> Path:
    """The Python of an environment."""
    return Path(sys.executable) if name == "own" else FOLDER / name / "bin" / "python"


def install(name: str) -> dict[str, str]:
    """Make an environment unless it is there; why packages could not be installed, by their requirement."""
    if name == "own":
        return {}
    requirements = (HOME / f"requirements-{name}.txt").read_text()
    stamp = FOLDER / name / STAMP
    if not stamp.is_file() or not stamp.read_text().startswith(requirements):
        print(f"installing {FOLDER.name}/{name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER / name)], check=True)
        missing = _installed(interpreter(name), [line for line in requirements.splitlines() if line and line[0] != "#"])
        stamp.write_text(requirements + "".join(f"\n! {package}: {why}" for package, why in missing.items()))
    lines = stamp.read_text()[len(requirements):].splitlines()
    return dict(line[2:].split(": ", 1) for line in lines if line.startswith("! "))


def _installed(python: Path, packages: list[str]) -> dict[str, str]:
    """Install all at once or, where that fails, one by one, the first one (torch) pinned for the others."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    first, others = packages[0], packages[1:]
    subprocess.run([*pip, first], check=True)
    if subprocess.run([*pip, *packages], capture_output=True).returncode == 0:
        return {}
    missing = {}
    for package in others:
        done = subprocess.run([*pip, first, package], capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
            missing[package] = (errors or ["pip failed"])[-1]
    return missing
