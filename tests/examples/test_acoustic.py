"""The acoustic example learns, needs its context to do so, and runs on real features."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from asdstore.errors import InputError

torch = pytest.importorskip("torch")
from examples import acoustic  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_learns_from_the_context(tmp_path, capsys):
    specs = acoustic.data(tmp_path)
    assert acoustic.data(tmp_path) == specs  # and the files are not made again
    with_context = acoustic.train(*specs, epochs=5)
    assert with_context.accuracy[-1] > with_context.majority + 0.5
    without = acoustic.train(*(spec.replace("context=5", "context=0") for spec in specs), epochs=5)
    assert with_context.accuracy[-1] > without.accuracy[-1] + 0.15
    assert capsys.readouterr().out.count("epoch") == 10


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert acoustic.main(["--epochs", "1"]) == 0 and "most frequent class" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        acoustic.main(["--train-data", "a.pfile"])


@pytest.mark.filterwarnings("ignore")
def test_real_features(shared, monkeypatch, capsys):
    monkeypatch.chdir(shared / "golden" / "pdnn" / "data")
    spec = "kaldi/ami_feats.scp,label=kaldi/ami_labels.ali,context=5"
    with pytest.raises(InputError, match="strict=False"):
        acoustic.train(spec, spec, epochs=1)
    result = acoustic.train(f"{spec},random=true", spec, epochs=3, batch=128, strict=False)
    assert result.accuracy[-1] > result.accuracy[0] >= 0
