"""Engines: order, errors, workers that die, and an end that leaves nobody behind."""
from __future__ import annotations

import _thread
import multiprocessing.util
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from adapters import engine
from asdstore.errors import InputError, StoreError
from tests.processes import runs


def square(number: int) -> int:
    time.sleep(0.02 * (3 - number % 4))  # later tasks end first
    return number * number


def process_id(_: int) -> int:
    return os.getpid()


def refuse_odd(number: int) -> int:
    if number % 2:
        raise InputError("odd", row=number)
    return number


def crash(number: int) -> int:
    raise KeyError(f"no {number}")


def die_once(folder: Path) -> str:
    mark = folder / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "lived"


def die_of_a_real_time_signal_once(folder: Path) -> str:
    mark = folder / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 40)
    return "lived"


def swell_once(folder: Path) -> str:
    mark = folder / "swollen"
    if not mark.exists():
        mark.touch()
        bytearray(1 << 60)
    return "lived"


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note_and_sleep(file: Path) -> None:
    file.write_text(str(os.getpid()))
    time.sleep(60)


@pytest.mark.parametrize("run", [engine.alone(), engine.processes(1), engine.processes(3)], ids=["alone", "1", "3"])
def test_results_come_in_the_order_of_the_tasks(run):
    assert list(run(square, range(9))) == [n * n for n in range(9)]


def test_no_task_needs_no_worker():
    assert list(engine.processes(2)(square, [])) == []


def test_workers_are_processes_that_stay():
    ids = list(engine.processes(2)(process_id, range(8)))
    assert os.getpid() not in ids and len(set(ids)) <= 2


def test_the_first_error_is_raised_with_its_class_and_parts():
    with pytest.raises(InputError) as caught:
        list(engine.processes(1)(refuse_odd, range(6)))
    assert caught.value.fault.row == 1


def test_an_unforeseen_error_brings_its_traceback():
    with pytest.raises(RuntimeError, match=r"KeyError: 'no 5'[\s\S]*in crash"):
        list(engine.processes(1)(crash, [5]))


def test_a_worker_that_dies_is_named_and_its_task_tried_again(tmp_path):
    said = []
    assert list(engine.processes(2, said.append)(die_once, [tmp_path])) == ["lived"]
    assert len(said) == 1 and "SIGKILL" in said[0] and repr(tmp_path) in said[0]


def test_a_signal_without_a_name_is_told_by_its_number(tmp_path):
    said = []
    assert list(engine.processes(1, said.append)(die_of_a_real_time_signal_once, [tmp_path])) == ["lived"]
    assert len(said) == 1 and "was killed by signal 40 " in said[0]


def test_a_worker_without_memory_ends_and_its_task_is_tried_again(tmp_path):
    said = []
    assert list(engine.processes(1, said.append)(swell_once, [tmp_path])) == ["lived"]
    assert len(said) == 1 and "ran out of memory" in said[0]


def test_a_task_that_kills_twice_is_an_error():
    said = []
    with pytest.raises(StoreError, match="at work on task 1, again") as caught:
        list(engine.processes(1, said.append, name="task {}".format)(_die_on_last, [0, 1]))
    assert caught.value.kind == "worker" and len(said) == 1


def _die_on_last(number: int) -> int:
    if number:
        die(number)
    return number


def test_closing_ends_the_workers_at_once(tmp_path):
    results = engine.processes(2)(_first_then_sleep, [tmp_path / "a", tmp_path / "b"])
    assert next(results) == "first"
    while not (tmp_path / "b").exists():
        time.sleep(0.01)
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 10 and not runs(int((tmp_path / "b").read_text()))


def test_a_stop_while_a_worker_starts_tears_nothing(monkeypatch, capfd):
    launch, started = multiprocessing.util.spawnv_passfds, []

    def launch_and_interrupt(*arguments):
        started.append(launch(*arguments))
        _thread.interrupt_main()  # as Ctrl-C does, whatever thread the signal comes to
        return started[-1]

    resource_tracker.ensure_running()
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", launch_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(engine.processes(1)(square, [1]))
    while runs(started[0]):
        time.sleep(0.01)
    assert "Traceback" not in capfd.readouterr().err


def _first_then_sleep(file: Path) -> str:
    if file.name == "b":
        note_and_sleep(file)
    return "first"


def count_up(number: int, note) -> int:
    for step in range(number):
        note((number, step))
    return number


def test_notes_are_heard_while_a_task_runs():
    heard = []
    assert list(engine.processes(2, heard=heard.append)(count_up, [3, 2])) == [3, 2]
    assert sorted(heard) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_one_worker_is_this_process_and_tells_what_it_hears() -> None:
    heard: list[object] = []
    run = engine.chosen("local", 1, "", print, heard.append, repr)
    assert run is not None
    assert list(run(_told, [3, 4])) == [(os.getpid(), 3), (os.getpid(), 4)]
    assert heard == [3, 4]
    assert list(engine.alone()(_told, [5])) == [(os.getpid(), 5)]


def _told(task: int, hear: Callable[[object], object] = lambda value: None) -> tuple[int, int]:
    hear(task)
    return os.getpid(), task
