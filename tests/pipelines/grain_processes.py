"""Reads a pack through Grain's worker processes: python grain_processes.py PACK OUTPUT."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import grain
from absl import flags

import pipelines
from tests.pipelines.made import SETTINGS

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()  # Grain's processes want it of a plain script
    dataset = pipelines.to_grain(pipelines.train(sys.argv[1], **SETTINGS), 2).to_iter_dataset()
    iteration = iter(dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
    Path(sys.argv[2]).write_text(json.dumps([batch["sample_ids"].tolist() for batch in iteration]))
    iteration.close()
