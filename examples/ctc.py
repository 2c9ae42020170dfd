"""A tiny CTC model that learns a handful of utterances by heart, read from Parquet or from a pack of the same corpus.

    python -m examples.ctc                    # speech that is made here: a tone for each letter
    python -m examples.ctc CLIPS              # a folder of audio files with a manifest.json of file, language, transcript

Everything between a folder of sound files and a loss: prepare, pack, verify, a mixture, SpecAugment, log-mel, greedy decoding.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pipelines
from adapters import prepare
from pipelines.log_mel import BANDS

STRIDE = 4
WORDS = ("hello", "good day", "bonjour", "salut", "guten tag", "ciao bella", "ahoj", "hola amiga")


class Learned(NamedTuple):
    """The loss at each step, and what the model says of each text in the end."""

    loss: list[float]
    said: dict[str, str]

    @property
    def right(self) -> int:
        """Texts that it says without a mistake."""
        return sum(text == said for text, said in self.said.items())


def made_clips(folder: Path) -> Path:
    """Speech of a kind: each letter is a tone of its own for 120 ms, in two languages."""
    import soundfile

    folder.mkdir(parents=True)
    draw, rows = np.random.default_rng(0), []
    time = np.arange(1920) / 16000
    for number, text in enumerate(WORDS):
        tones = [np.sin(2 * np.pi * (300 + 110 * (ord(letter) - 96)) * time) * (letter != " ") for letter in text]
        wave = np.concatenate(tones) * 0.3 + draw.normal(0, 0.003, 1920 * len(text))
        soundfile.write(folder / f"{number}.flac", wave, 16000)
        language = "eng_Latn" if number % 2 else "fra_Latn"
        rows.append({"file": f"{number}.flac", "language": language, "transcript": text})
    (folder / "manifest.json").write_text(json.dumps(rows))
    return folder


def prepared(clips: Path, folder: Path) -> tuple[Path, Path]:
    """The clips as a Parquet set and as a pack: `python -m adapters.prepare speech --input ... --pack`."""
    rows = [row for row in json.loads((clips / "manifest.json").read_text()) if row["transcript"]]
    table = folder / "clips.jsonl"
    table.write_text("\n".join(json.dumps({"audio": str((clips / row["file"]).resolve()), "text": row["transcript"],
                                            "language": row["language"]}) for row in rows))
    with contextlib.redirect_stdout(io.StringIO()):
        code = prepare.main(["speech", "--input", str(table), "--output", str(folder / "set"), "--corpus", "clips",
                             "--split", "train", "--pack", "--json"])
    if code:
        raise SystemExit(code)
    return folder / "set", folder / "set" / "packed" / "clips"


def loaders(source: Path, block: int, seed: int) -> tuple[Any, Any, pipelines.Characters]:
    """What is trained on, masked a little, and the same utterances once as they are."""
    texts = [text for batch in pipelines.evaluate(source, split="train") for text in batch["texts"].tolist()]
    tokenizer = pipelines.Characters.of(texts)
    masks = pipelines.SpecAugment(0.3, (0, 6), time=5)
    training = pipelines.mixture(source, tokenizer=tokenizer, features="log_mel", block=block, sample_budget=1_600_000, group=1,
                                 spec_augment=masks, seed=seed, beta_corpus=1, beta_language=1, unit="hours")
    once = pipelines.evaluate(source, split="train", tokenizer=tokenizer, features="log_mel")
    return pipelines.to_torch(training), pipelines.to_torch(once), tokenizer


def network(tokens: int, width: int = 128) -> Any:
    """Log-mel [B, 80, frames] to scores of tokens [B, tokens, frames / 4], each of which sees 1.2 s around it."""
    from torch import nn

    layers: list[Any] = [nn.Conv1d(BANDS, width, 9, stride=STRIDE, padding=4), nn.GELU()]
    for dilation in (1, 2, 4):
        layers += [nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation), nn.BatchNorm1d(width), nn.GELU()]
    return nn.Sequential(*layers, nn.Conv1d(width, tokens, 1))


def frames(lengths: Any) -> Any:
    """What the network makes of so many frames."""
    return (lengths + STRIDE - 1) // STRIDE


def train(source: Path, steps: int = 800, seed: int = 0, report: int = 25) -> Learned:
    """Train until the loss is small, `steps` at the most, then say what is heard."""
    import torch

    torch.manual_seed(seed)
    training, once, tokenizer = loaders(source, block=16, seed=seed)
    model = network(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    ctc, loss = torch.nn.CTCLoss(zero_infinity=True), []
    while len(loss) < steps and not (len(loss) > 20 and np.mean(loss[-10:]) < 0.02):
        for batch in training:  # a block of draws; the next iteration takes the next one
            scores = model(batch["source_seqs"].transpose(1, 2)).permute(2, 0, 1).log_softmax(2)
            value = ctc(scores, batch["target_seqs"], frames(batch["source_seq_lens"]), batch["target_seq_lens"])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            loss.append(value.item())
            if report and len(loss) % report == 0:
                print(f"step {len(loss):4}  loss {np.mean(loss[-report:]):.3f}")
            if len(loss) >= steps:
                break
    return Learned(loss, heard(model.eval(), once, tokenizer))


def heard(model: Any, once: Any, tokenizer: pipelines.Characters) -> dict[str, str]:
    """What the model says of each text, decoded greedily: repeated tokens are one, and blanks nothing."""
    import torch

    said = {}
    with torch.no_grad():
        for batch in once:
            best = model(batch["source_seqs"].transpose(1, 2)).argmax(1)
            for row, text in enumerate(batch["texts"]):
                tokens = torch.unique_consecutive(best[row, :int(frames(batch["source_seq_lens"])[row])])
                said[text] = tokenizer.decode(tokens.tolist())
    return said


def main(argv: list[str] | None = None) -> int:
    """Train from Parquet, then from the pack. Exit code 0 if both learn every text."""
    parser = argparse.ArgumentParser(prog="python -m examples.ctc", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("clips", nargs="?", type=Path, help="a folder of audio files with a manifest.json (made here)")
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args(argv)
    fine = True
    with tempfile.TemporaryDirectory(prefix="asdstore-ctc-") as folder:
        clips = options.clips or made_clips(Path(folder) / "clips")
        for name, source in zip(("Parquet", "pack"), prepared(clips, Path(folder)), strict=True):
            print(f"\nfrom {name}")
            learned = train(source, options.steps)
            for text, said in learned.said.items():
                print(f"  {text!r} -> {said!r}")
            print(f"  {learned.right} of {len(learned.said)} texts without a mistake")
            fine = fine and learned.right == len(learned.said)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
