"""train.py on a packed dataset, in processes of their own."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np

from tests.small import RESULT_COLUMNS, write_small_dataset, write_small_model


def run(*arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(folder, data, model, name):
    run(
        "train.py", "--data", data, "--cfg", model, "--weights", "", "--epochs", 1, "--img", 64,
        "--batch", 4, "--workers", 1, "--device", "cpu", "--project", folder, "--name", name,
        "--noplots",
    )  # fmt: skip
    with open(folder / name / "results.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    columns = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
    return np.array([float(row[name]) for name in columns])


def test_an_epoch_from_records_has_the_losses_and_metrics_of_one_from_files(tmp_path):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    run("-m", "utils.data.records", "pack", "--data", data, "--out", tmp_path / "packed")
    expected = train(tmp_path, data, model, "from-files")
    found = train(tmp_path, tmp_path / "packed" / data.name, model, "from-records")
    assert expected[1] > 0  # the box loss
    np.testing.assert_array_equal(found, expected)
