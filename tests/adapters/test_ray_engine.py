"""The engine on a real Ray cluster of several nodes on this machine: the serial run's bytes, also when a node is killed."""
from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

from adapters import ray_engine  # noqa: E402
from adapters.ray_engine import cluster as engine  # noqa: E402
from asdstore.errors import InputError, StoreError  # noqa: E402
from asdstore.testing import digests  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without processors for tasks, and room for nodes that have one each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY))  # as if this package were installed
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        ray.shutdown()
        made.shutdown()


@contextmanager
def killing(nodes: Any, node: Any, when: Callable[[], object]) -> Iterator[list[str]]:
    """Within the context the node is killed as soon as `when` says so; gives a list that is empty until then."""
    killed: list[str] = []
    done = threading.Event()

    def wait() -> None:
        while not done.wait(0.005):
            if when():
                nodes.remove_node(node, allow_graceful=False)
                killed.append(node.node_id)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


def square(task: int, *heard: Any) -> int:
    for say in heard:
        say(task)
    return task * task


def note_and_sleep(task: tuple[int, str]) -> int:
    """Says where it runs, and takes its time."""
    number, folder = task
    Path(folder, f"{number}-{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
    time.sleep(1.0)
    return number


def fail(task: int) -> int:
    if task == 3:
        raise InputError("labels", file="x.csv", row=task, expected="0 or 1", found="2")
    if task == 4:
        raise ZeroDivisionError("by zero")
    return task


def die(task: int) -> int:
    if task == 1:
        os._exit(1)
    return task


def test_results_and_what_tasks_say(nodes: Any) -> None:
    heard: list[int] = []
    assert sorted(engine(address=nodes.address, heard=heard.append)(square, range(20))) == [n * n for n in range(20)]
    assert set(heard) <= set(range(20))
    assert list(engine(address=nodes.address)(square, [])) == []


def test_tasks_are_bounded_by_the_workers(nodes: Any, tmp_path: Path) -> None:
    begun = time.perf_counter()
    assert sorted(engine(1, nodes.address)(note_and_sleep, [(n, str(tmp_path)) for n in range(3)])) == [0, 1, 2]
    assert time.perf_counter() - begun > 3


def test_errors_are_those_of_the_tasks(nodes: Any) -> None:
    found: list[int] = []
    with pytest.raises(InputError) as error:
        for value in engine(1, nodes.address)(fail, range(1, 10)):
            found.append(value)
    assert error.value.fault.row == 3 and found == [1, 2]  # after an error no task is begun
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by zero(.|\n)*in fail"):
        list(engine(1, nodes.address)(fail, [4]))


def test_a_task_whose_workers_always_die(nodes: Any) -> None:
    with pytest.raises(StoreError, match="task one") as error:
        list(engine(address=nodes.address, name=lambda task: f"task {['zero', 'one'][task]}")(die, [0, 1]))
    assert error.value.kind == "worker"


def test_a_killed_node_costs_its_tasks_only(nodes: Any, tmp_path: Path) -> None:
    extra = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    tasks = [(n, str(tmp_path)) for n in range(12)]
    with killing(nodes, extra, lambda: list(tmp_path.glob(f"*-{extra.node_id}-*"))) as killed:
        assert sorted(engine(address=nodes.address)(note_and_sleep, tasks)) == list(range(12))
    began = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert killed and len(began) > 12 and len(set(began)) == 12  # what was at work there began anew, elsewhere


def test_no_cluster_there() -> None:
    with pytest.raises(StoreError) as error:
        list(engine(address="127.0.0.1:1")(square, [1]))
    assert error.value.kind == "cluster"


# ---- the command

@pytest.fixture
def source(speech: Any) -> Path:
    rows = [row | {"language": ("deu_Latn", "fra_Latn")[n % 2]} for n, row in enumerate(speech.rows(48))]
    return speech.parquet("a.parquet", rows)


def test_a_set_and_a_pack_on_the_cluster(speech: Any, source: Path, nodes: Any) -> None:
    options = ("--input", source, "--split", "train", "--rows-per-file", 6, "--shuffle-window", 6, "--pack",
               "--max-shard-gb", 0.00005)
    told = speech.report(*options, output="serial")
    again = speech.report(*options, "--engine", "ray", "--address", nodes.address, output="cluster")
    assert {key: told[key] for key in told if key != "pack"} == {key: again[key] for key in again if key != "pack"}
    assert digests(speech.root / "serial") == digests(speech.root / "cluster")


def test_a_cluster_without_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(_reference: object) -> None:
        raise ray.exceptions.RayError("actor died\n\nModuleNotFoundError: No module named 'adapters'\n")

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(StoreError, match="No module named 'adapters'. Is this package installed on every machine") as e:
        ray_engine._taken(ray, MagicMock())
    assert e.value.kind == "cluster"


def test_relative_paths_mean_the_same_on_the_cluster(speech: Any, source: Path, nodes: Any,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)  # the nodes were started elsewhere
    options = ("--input", source.name, "--split", "train", "--rows-per-file", 20)
    speech.report(*options, output="serial")
    speech.report(*options, "--engine", "ray", "--address", nodes.address, output="cluster")
    assert digests(speech.root / "serial") == digests(speech.root / "cluster")


def test_a_node_killed_in_the_middle_of_a_set(speech: Any, source: Path, nodes: Any) -> None:
    options = ("--input", source, "--split", "train", "--rows-per-file", 2)
    speech.report(*options, output="serial")
    extra = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    facts = speech.root / "cluster/version=0/.corpus=tones.partial/facts"
    with killing(nodes, extra, lambda: facts.is_dir() and list(facts.iterdir())) as killed:
        speech.report(*options, "--engine", "ray", "--address", nodes.address, output="cluster")
    assert killed and digests(speech.root / "serial") == digests(speech.root / "cluster")


def test_a_face_corpus_on_the_cluster(clip_tree: Any, nodes: Any, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    for n in range(6):
        clip_tree.add(f"video_{n}_0:1", frames=12)
    options = ("--max-shard-gb", "0.0002")
    clip_tree.report(*options, "--output", str(tmp_path / "serial"))
    clip_tree.report(*options, "--output", str(tmp_path / "cluster"), "--engine", "ray", "--address", nodes.address)
    assert len(list((tmp_path / "serial").glob("shard-*"))) > 1
    assert digests(tmp_path / "serial") == digests(tmp_path / "cluster")


def test_faults_of_a_corpus_on_the_cluster(clip_tree: Any, nodes: Any) -> None:
    pytest.importorskip("cv2")
    clip_tree.add("video_0_0:1")
    clip_tree.wav("video_0_0:1").write_bytes(b"no sound")
    code, out, _ = clip_tree.prepare("--engine", "ray", "--address", nodes.address, "--json")
    assert code == 1 and json.loads(out)["faults"][0]["kind"] == "audio-corrupt" and not clip_tree.pack.exists()


# ---- Ray Data, as the document uses it: the tools are functions of Arrow tables

def test_the_pipeline_of_the_document(speech: Any, nodes: Any) -> None:
    import pyarrow as pa

    rows = [{"sentence": row["text"], "audio": row["audio"]} for row in speech.rows(7)]
    rows[3]["audio"] = {"bytes": b"garbage", "path": "x.wav"}

    def process(batch: Any) -> Any:
        from adapters.speech import AudioTableProcessor, map_to_target_schema, text_normalize

        texts = [text_normalize(text, iso_code="en") for text in batch["sentence"].to_pylist()]
        batch = AudioTableProcessor()(batch.append_column("text", [texts]))
        return map_to_target_schema(batch, split="train", corpus="common_voice", language="eng_Latn")

    ray.init(nodes.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        dataset = ray.data.from_arrow(pa.Table.from_pylist(rows)).map_batches(process, batch_format="pyarrow", batch_size=100)
        dataset.write_parquet(str(speech.root / "set/version=0"), partition_cols=["corpus", "split", "language"],
                              row_group_size=100)
    finally:
        ray.shutdown()
    found = speech.open()
    assert [one.text for one in found] == [f"clip {letter}" for letter in "abcefg"]
    assert {(one.corpus, one.split, one.language) for one in found} == {("common_voice", "train", "eng_Latn")}
    assert all(len(one.audio) == one.audio_size for one in found)
