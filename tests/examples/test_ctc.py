"""The CTC example learns made speech by heart, from Parquet and from a pack alike."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from examples import ctc

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("pyarrow")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_learns_from_parquet_and_from_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc, "WORDS", ("hello", "salut", "ahoj"))
    sources = ctc.prepared(ctc.made_clips(tmp_path / "clips"), tmp_path)
    learned = [ctc.train(source, steps=150, report=0) for source in sources]
    for one in learned:
        assert one.right == 3 and one.loss[-1] < 0.1 < one.loss[0], one.said
    count = min(len(one.loss) for one in learned)
    assert np.allclose(learned[0].loss[:10], learned[1].loss[:10], rtol=0.05) and count > 10


def test_texts_that_are_wrong_are_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc, "WORDS", ("hello",))
    assert ctc.main(["--steps", "1"]) == 1
    out = capsys.readouterr().out
    assert out.count("0 of 1 texts without a mistake") == 2 and "'hello' -> " in out


def test_it_learns_the_real_clips(shared: Path, tmp_path: Path) -> None:
    _, pack = ctc.prepared(shared / "data" / "speech", tmp_path)
    learned = ctc.train(pack, steps=300, report=0)
    assert learned.right == len(learned.said) == 11, learned.said
