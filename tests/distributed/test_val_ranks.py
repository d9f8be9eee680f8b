"""val.py in two ranks finds and writes what it does alone."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import val
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.project import PROJECT
from tests.distributed.conftest import run_ranks
from tests.small import (
    initial_model,
    untrained,
    write_checkpoint,
    write_small_dataset,
    write_small_model,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights and a dataset with one broken image."""
    folder = tmp_path_factory.mktemp("inputs")
    dataset = load_dataset(write_small_dataset(folder))
    model = initial_model(write_small_model(folder), 0, len(dataset.class_names))
    write_checkpoint(folder / "weights.safetensors", untrained(model, dataset.class_names))
    (folder / "shapes/images/val/zzz.jpg").write_bytes(b"no image")
    return folder


def flags(folder, name):
    command = ("--weights", folder / "weights.safetensors", "--img", 64, "--conf", 0.0001)
    command += ("--data", folder / "shapes/shapes.yaml", "--batch", 5, "--workers", 1)
    command += ("--device", "cpu", "--project", folder, "--name", name, "--save-json")
    return [*map(str, command), "--legacy-metric"]


def predictions(folder, name):
    rows = json.loads((folder / name / "predictions.json").read_text())
    keys = [(row["image_id"], row["category_id"]) for row in rows]
    return keys, [row["score"] for row in rows], np.array([row["bbox"] for row in rows])


def test_two_ranks_print_and_write_like_one_process(folder, monkeypatch, capsys, caplog):
    monkeypatch.setattr("sys.argv", ["val.py", *flags(folder, "alone")])
    val.main()
    alone = capsys.readouterr().out
    done = run_ranks(2, "val.py", *flags(folder, "ranks"), raw=True)
    assert done.returncode == 0, done.stderr

    own = ("results in", "images/s", "not used as labelled", "left out")  # of each run, or twice
    table = [line for line in alone.splitlines() if not any(words in line for words in own)]
    printed = done.stdout.splitlines()
    # Figures have three digits: rounding of the network's sums does not show.
    assert [line for line in printed if line in table] == table
    # When the labels are read, and again at the end.
    assert sum("zzz.jpg: left out" in line for line in printed) == 2
    assert sum("results in" in line for line in printed) == 1
    assert [path.name for path in folder.glob("ranks*") if path.is_dir()] == ["ranks"]

    expected, found = predictions(folder, "alone"), predictions(folder, "ranks")
    assert len(expected[0]) > 6 and found[0] == expected[0]
    # Batches of five are computed as three and two: float32 sums of a network in another order.
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4)
    np.testing.assert_allclose(found[2], expected[2], atol=64e-4)


def figures_in(printed):
    """The lines of the tables: figures of three and four digits."""
    return [line for line in printed.splitlines() if re.search(r"\d\.\d{3}", line)]


def test_val_starts_its_own_ranks_with_equal_results(folder, monkeypatch, capsys):
    asked = ["--tile", "64", "--overlap", "0.3"]
    command = [sys.executable, "val.py", *flags(folder, "own"), *asked, "--nproc", "2"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting 2 processes" in done.stdout and done.stdout.count("results in") == 1
    monkeypatch.setattr("sys.argv", ["val.py", *flags(folder, "one"), *asked])
    val.main()
    table = figures_in(capsys.readouterr().out)
    assert len(table) > 5 and figures_in(done.stdout) == table
    expected, found = predictions(folder, "one"), predictions(folder, "own")
    assert len(found[0]) > 6 and found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4)  # as above
