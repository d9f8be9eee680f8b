"""The real train.py as two ranks, whose clocks differ, ends with the epoch that rank 0 says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from duet.utils.processes.exit_status import EXIT_DONE
from duet.utils.weights.checkpoint import load_checkpoint
from tests.distributed.jobs import start_training
from tests.small import write_small_dataset, write_tiny_model


def test_two_ranks_end_together_when_the_time_is_over_and_validate_then(tmp_path: Path) -> None:
    data, cfg = write_small_dataset(tmp_path), write_tiny_model(tmp_path)
    flags = ["--data", data, "--cfg", cfg, "--epochs", 9, "--project", tmp_path, "--noplots"]
    flags += ["--noval", "--nosave", "--autobalance", "--time", "1e-9"]
    code, text = start_training(tmp_path, *flags).end()
    assert code == EXIT_DONE, text
    assert (
        text.count("early after epoch 1 of 9: --time 1e-09: reached the limit of 1e-09 hours") == 1
    )
    folder = tmp_path / "exp"
    assert [path.name for path in folder.glob("weights/*")] == ["last.safetensors"]
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["metrics/recall"] != "" and float(row["val/box_loss"]) > 0
    assert json.loads((folder / "work.json").read_text())["work"]["epochs"] == 1
    progress = load_checkpoint(folder / "weights" / "last.safetensors").header.progress
    assert progress["world_size"] == 2 and progress["loss"]["balance"][0] != 4
