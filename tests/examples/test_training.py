"""The training examples learn, look back only, survive batches without a scored frame, and go on where they were stopped."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pipelines
from examples import learning
from examples.learning import Curve, Score, sparkline

pytest.importorskip("cv2")
REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch's threads wait for one another where tests of others run beside these."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """Few conversations to learn from, and others to be tested on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "_SPLITS", (("train", 1, 6), ("val", 2, 2)))
        folder = tmp_path_factory.mktemp("learning")
        made = learning.packs(folder)
        assert learning.packs(folder) == made  # and not made again
    return [[pack] for pack in made]


def learned(curve: Curve) -> None:
    assert curve.loss[-1] < curve.loss[0] / 2 and all(np.isfinite(curve.loss))
    assert curve.scores[-1].accuracy > curve.scores[-1].majority + 0.15, str(curve)


def test_jax_learns(packs, capsys):
    pytest.importorskip("jax")
    from examples import train_jax

    curve = train_jax.train(*packs, epochs=10)
    learned(curve)
    said = capsys.readouterr().out
    assert said.count("epoch") == 10 and "accuracy  " in said and said.count("█") >= 2


def test_torch_and_lightning_learn_the_same(packs):
    pytest.importorskip("lightning")
    from examples import train_lightning, train_torch

    curve = train_torch.train(*packs, epochs=14)
    learned(curve)
    other = train_lightning.train(*packs, epochs=2, accelerator="cpu")
    assert np.allclose(other.loss, curve.loss[:2], rtol=1e-4) and other.scores[0].majority == curve.scores[0].majority


def test_torch_goes_on_from_a_checkpoint(packs, tmp_path: Path):
    from examples import train_torch

    whole = train_torch.train(*packs, epochs=3)
    train_torch.train(*packs, epochs=1, checkpoint=tmp_path / "run.pt")
    rest = train_torch.train(*packs, epochs=3, checkpoint=tmp_path / "run.pt")
    assert rest.loss == whole.loss[1:] and rest.scores == whole.scores[1:]
    assert not train_torch.train(*packs, epochs=3, checkpoint=tmp_path / "run.pt").loss  # all done


def test_torch_goes_on_within_an_epoch(packs, tmp_path: Path):
    from examples.train_torch import Run

    whole, first, rest = (Run(packs[0], 0) for _ in range(3))
    losses = [whole.step(batch) for batch in whole.loader]
    iteration = iter(first.loader)
    assert [first.step(next(iteration)) for _ in range(2)] == losses[:2] and len(losses) > 2
    first.save(tmp_path / "run.pt")
    rest.load(tmp_path / "run.pt")
    assert [rest.step(batch) for batch in rest.loader] == losses[2:]


def unscored(packs) -> tuple[dict, dict]:
    """A batch, and the same as it completes a step: nothing in it is valid or scored."""
    loader = pipelines.train(*packs[0], window=100, context=25, frame_budget=1024, rank=0, world=1)
    batch = loader[0]
    nothing = {name: np.zeros_like(batch[name]) for name in ("scored", "valid")}
    return batch, {**batch, **nothing, "scored_in_step": 0}


def test_a_step_without_scored_frames_in_torch(packs):
    torch = pytest.importorskip("torch")
    from examples.train_torch import Run

    run = Run(packs[0], 0)
    before = [parameter.detach().clone() for parameter in run.network.parameters()]
    filler = {name: torch.from_numpy(value) if getattr(value, "dtype", np.dtype("U")).kind != "U" else value
              for name, value in unscored(packs)[1].items()}
    assert run.step(filler) == 0.0
    assert all(torch.equal(old, new) for old, new in zip(before, run.network.parameters(), strict=True))


def test_a_step_without_scored_frames_in_jax(packs):
    jax = pytest.importorskip("jax")
    from examples import train_jax

    parameters = train_jax.initial(0)
    moments = (jax.tree.map(jax.numpy.zeros_like, parameters),) * 2
    after, _, loss = train_jax.step(parameters, moments, jax.numpy.float32(1), train_jax.used(unscored(packs)[1]))
    assert float(loss) == 0.0 and all(np.array_equal(after[name], value) for name, value in parameters.items())


def test_the_networks_look_back_only(packs):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    from examples import train_jax, train_torch

    batch = unscored(packs)[0]
    faces, audio = batch["faces"], batch["audio"]
    later = faces.copy(), audio.copy()
    later[0][:, 40:], later[1][:, 40 * 640:] = 255 - faces[:, 40:], 0
    parameters, network = train_jax.initial(0), train_torch.Network()
    with torch.no_grad():
        told = [network(torch.from_numpy(f), torch.from_numpy(a)).numpy() for f, a in ((faces, audio), later)]
    told += [np.asarray(jax.jit(train_jax.scores)(parameters, f, a)) for f, a in ((faces, audio), later)]
    for now, then in (told[:2], told[2:]):
        assert np.allclose(now[:, :40], then[:, :40], atol=1e-4) and not np.allclose(now[:, 40:], then[:, 40:], atol=1e-2)


def test_torchrun(packs):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "examples.train_torch",
               "--epochs", "2", "--train", str(packs[0][0]), "--val", str(packs[1][0])]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stderr
    assert done.stdout.count("epoch ") == 2 and done.stdout.count("accuracy ") == 1  # of rank 0 only


def test_arguments(packs, capsys):
    train, val = (str(pack) for pack, in packs)
    options = learning.arguments("", ["--train", train, "--val", val, "--epochs", "3"])
    assert (options.train, options.val, options.epochs) == ([train], [val], 3)
    with pytest.raises(SystemExit):
        learning.arguments("", ["--train", train])


def test_curves():
    assert sparkline([1, 1]) == "▁▁" and sparkline([0, 1, 2]) == "▁▅█"
    said: list[str] = []
    curve = Curve([], [])
    curve.add(0.7, Score.of(60, 30, 100), said.append)
    curve.add(0.2, Score.of(95, 30, 100), said.append)
    assert curve.scores[1] == Score(0.95, 0.7) and "95.0%" in said[1]
    assert "0.700 -> 0.200" in str(curve) and "60.0% -> 95.0%" in str(curve) and "70.0%" in str(curve)
