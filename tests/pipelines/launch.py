"""Runs a program in several processes that form one distributed run, for the tests of ranks."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run_ranks(program: str, world: int, folder: Path, *arguments: object, timeout: float = 240) -> list[Any]:
    """What each rank of `tests/pipelines/<program>` wrote to `<folder>/<rank>.json`.

    The program is called with rank, world, folder and the arguments. A rank that hangs, because another one has fewer steps,
    say, ends in TimeoutExpired.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    path = REPOSITORY / "tests" / "pipelines" / program
    running = [subprocess.Popen([sys.executable, *map(str, (path, rank, world, folder, *arguments))], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(world)]
    try:
        said = [process.communicate(timeout=timeout)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in running), "\n".join(said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
