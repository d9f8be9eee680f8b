"""train.py and val.py as a user runs them, in a process of their own."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import val
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.weights.checkpoint import load_checkpoint
from tests.environments import wait_until
from tests.small import write_small_dataset, write_tiny_model
from tests.train.short_runs import start

SMALL = ["--img", "64", "--batch", "4", "--workers", "1", "--device", "cpu"]


# The last name of a folder: bytes that are no UTF-8, an escape code, a line end.
HOSTILE_NAME = os.fsdecode(b"zz caf\xe9\x1b[31m\n\xe2\x80\xae")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    data = write_small_dataset(folder)
    for split in ("train", "val"):
        image = max((data.parent / "images" / split).glob("*.jpg"))
        label = data.parent / "labels" / split / f"{image.stem}.txt"
        image.rename(image.with_stem(HOSTILE_NAME))
        label.rename(label.with_stem(HOSTILE_NAME))
    (data.parent / "images" / "train" / f"{HOSTILE_NAME}2.jpg").write_bytes(b"broken")
    return folder, data, write_tiny_model(folder)


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def trained(inputs):
    folder, data, model = inputs
    done = run(
        "train.py", "--data", data, "--cfg", model, "--weights", "", "--epochs", 2,
        "--project", folder, "--name", "exp", *SMALL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "exp", done


def all_rows(run_folder):
    with open(run_folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_undecodable_file_name_is_escaped(trained):
    _, done = trained
    lines = done.stdout.splitlines()
    found = [number for number, line in enumerate(lines) if "left out" in line]
    assert len(found) == 2  # when it is found, and at the end again
    for number in found:
        assert r"/images/train/zz caf\xe9\x1b[31m\n\u202e2.jpg: left out: " in lines[number]
    assert lines[-2] == "train: 1 of 13 images not used as labelled"
    assert found[-1] == len(lines) - 1
    assert lines[-1].startswith("  images that cannot be read: 1, /")
    assert all(line.isprintable() for line in done.stdout.splitlines())


def test_suggested_commands_use_the_training_size(trained, tmp_path):
    _, done = trained
    lines = done.stdout.splitlines()
    best = next(line for line in lines if line.startswith("best: "))
    val, detect, export = lines[lines.index("next:") + 1 :][:3]
    assert " export.py --weights " in export
    validated, detected = (
        subprocess.run(
            [*shlex.split(line), "--project", str(tmp_path), "--device", "cpu"],
            capture_output=True, text=True, timeout=300,
        )
        for line in (val, detect)
    )  # fmt: skip
    assert (validated.returncode, detected.returncode) == (0, 0), detected.stderr
    for shown in (validated, detected):
        assert "images at 64 px, the training size" in shown.stdout + shown.stderr
    overall = next(line for line in validated.stdout.splitlines() if " all " in line)
    assert f"mAP50 {float(overall.split()[-2]):.3f}" in best
    assert len(list(tmp_path.rglob("*.jpg"))) >= 6


def test_training_leaves_weights_results_settings_and_plots(trained):
    folder, _ = trained
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "weights/last.safetensors",
        "weights/best.safetensors",
        "weights/state-00000003.safetensors",
        "weights/state-00000006.safetensors",
        "card.md",
        "results.csv",
        "results.jsonl",
        "results.png",
        *(f"{name}_curve.png" for name in ("P", "R", "PR", "F1")),
        "confusion_matrix.png",
        "work.json",
        "run.lock",
        "labels.jpg",
        *(f"val_batch0_{what}.jpg" for what in ("labels", "pred")),
        "opt.yaml",
        "hyp.yaml",
        "classes.yaml",
        *(f"train_batch{number}.jpg" for number in range(3)),
    }
    classes = yaml.safe_load((folder / "classes.yaml").read_text())
    names = ("circle", "square", "triangle", "star", "cross")
    assert classes == {"names": dict(enumerate(names))}
    hyp = yaml.safe_load((folder / "hyp.yaml").read_text())
    given = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text())
    assert hyp | given == hyp  # and the defaults of those that the file leaves out
    assert not any(hyp[name] for name in hyp.keys() - given.keys())


def test_training_prints_a_line_per_epoch_and_no_stderr(trained):
    folder, done = trained
    lines = done.stdout.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.startswith("  epoch "))
    assert [line.split()[0] for line in lines[heading:][:3]] == ["epoch", "1/2", "2/2"]
    assert any(str(folder) in line for line in lines)
    assert done.stderr == ""


def test_training_start_describes_the_run(trained, inputs):
    folder, done = trained
    lines = done.stdout.splitlines()
    names = ["data", "model", "device", "recipe", "results"]
    reported = {line.split()[0]: line for line in lines if line[:9].strip() in names}
    assert list(reported) == names
    dataset = load_dataset(str(inputs[1]))
    rows = sum(
        len(path.read_text().splitlines())
        for path in (inputs[1].parent / "labels" / "train").glob("*.txt")
    )
    text = " ".join(" ".join(lines).split())
    assert f" images with {rows} labels" in text and " for validation" in text
    assert f"{Path(inputs[2]).name}, {len(dataset.class_names)} classes" in text
    assert " parameters, " in text and " GFLOPs at 64 px" in text
    assert "SGD, learning rate 0.01 to 0.0001, batch 4 (64 per update), 2 epochs, seed 0" in text
    assert f"results  {folder}" in text.replace("results ", "results  ")
    assert any(re.fullmatch(r"2 epochs in \d\d:\d\d", line) for line in lines)
    first = next(number for number, line in enumerate(lines) if line.startswith("data     "))
    last = next(number for number, line in enumerate(lines) if line.startswith("results  "))
    # What was found while the model was built follows, and the precision is said once.
    notes = [number for number, line in enumerate(lines) if line.startswith("anchors: ")]
    assert notes and min(notes) > last
    assert done.stdout.count("float32") == 1 and "plain" not in done.stdout
    assert all(len(line) <= 80 for line in lines[first:last])  # a folder's name is never broken


def test_val_repeats_the_metrics_of_the_best_weights(trained, inputs, monkeypatch, capsys):
    run_folder, reported = trained
    lines = reported.stdout.splitlines()
    weights = run_folder / "weights" / "best.safetensors"
    flags = map(str, ("--weights", weights, "--data", inputs[1], "--project", inputs[0], *SMALL))
    monkeypatch.setattr("sys.argv", ["val.py", *flags])
    val.main()
    shown = capsys.readouterr().out
    table = [line for line in lines if line.split()[:1] == ["all"]]
    assert table == [line for line in shown.splitlines() if line.split()[:1] == ["all"]]
    printed = table[0]
    (best,) = (line for line in lines if line.startswith("best: epoch "))
    epoch = load_checkpoint(weights).header.epoch
    assert best.startswith(f"best: epoch {epoch} of 2  P ")
    row = all_rows(run_folder)[epoch - 1]
    columns = ("precision", "recall", "mAP_0.5", "mAP_0.5:0.95")
    expected = [f"{float(row[f'metrics/{column}']):.4f}" for column in columns]
    assert printed.split()[-4:] == expected
    # After two epochs of a few images nothing is found; one line says that this is normal.
    assert set(expected) == {"0.0000"}
    assert sum(line.startswith("nothing was found yet") for line in lines) == 1
    assert "as YOLOv5 prints it" not in shown


def test_training_from_weights_starts_at_their_values(trained, inputs, tmp_path, caplog):
    _, data, _ = inputs
    weights = trained[0] / "weights" / "last.safetensors"
    flags = (
        "--data", data, "--weights", weights, "--epochs", 1, "--hyp",
        write_still_hyperparameters(tmp_path), "--project", tmp_path, "--bbox_iou_optim", *SMALL,
    )  # fmt: skip
    with caplog.at_level("INFO"):
        start([*map(str, flags), "--name", "exp"])
    work = json.loads((tmp_path / "exp" / "work.json").read_text())
    assert work["means"]["box_iou"] == "fast"
    before = load_checkpoint(weights).ema
    after = load_checkpoint(tmp_path / "exp" / "weights" / "last.safetensors")
    assert f"transferred {len(before)}/{len(before)}" in caplog.text
    for name, array in before.items():
        if "running_" not in name and array.dtype == np.float32:  # those follow the images
            np.testing.assert_array_equal(after.model[name], array, err_msg=name)


def write_still_hyperparameters(folder):
    """Rates of zero: weights stay as they are."""
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text())
    path = folder / "hyp.yaml"
    path.write_text(yaml.safe_dump({**document, "lr0": 0.0, "warmup_bias_lr": 0.0}))
    return path


def test_ctrl_c_saves_the_state_and_shows_how_to_resume(inputs, tmp_path):
    _, data, model = inputs
    command = [
        sys.executable, "train.py", "--data", str(data), "--cfg", str(model), "--epochs", "1000",
        "--project", str(tmp_path), *SMALL,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    results = tmp_path / "exp" / "results.csv"
    wait_until(lambda: results.exists() and len(results.read_text().splitlines()) > 1, process)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
    # Returns when no process that it started can write there any more.
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors == "\nCtrl-C: saving the state after this batch; press again to quit now\n"
    state = load_checkpoint(tmp_path / "exp" / "weights" / "last.safetensors")
    line = f"{sys.executable} train.py --resume {tmp_path / 'exp'}"
    number = state.header.batch_number
    assert printed.splitlines()[-1] == f"interrupted after {number} batches; continue with {line}"
