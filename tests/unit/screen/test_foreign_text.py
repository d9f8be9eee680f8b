"""Every reader given hostile names and values: nothing of them steers the terminal.

Each case runs as a command does, and all that it prints and logs is looked at.
"""

import contextlib
import json
import logging
import os
import sys

import cv2
import numpy as np
import pytest

from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import read_train_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import WorkerError
from duet.utils.files.yaml_files import write_yaml
from duet.utils.processes.command import run_command
from duet.utils.weights import __main__ as weights
from duet.utils.weights.checkpoint import Checkpoint, Header, save_checkpoint
from tests.small import TINY

# What a file name may hold on Linux: escape codes, ends of lines, marks that turn the direction of
# writing, bytes that are no UTF-8. A class name or a header may hold a surrogate in its place.
NAME = os.fsdecode(b"a\x1b[2J\r\nFORGED: b\xc2\x85\xc2\x9b31m\x07\xe2\x80\xaec\xe9")
TEXT = NAME.replace("\udce9", "")


def dataset(folder, **keys):
    document = {"path": ".", "train": "images", "val": "images", "names": ["a"], **keys}
    (folder / "images").mkdir(exist_ok=True)
    write_yaml(folder / "d.yaml", document)
    return folder / "d.yaml"


def write_image(path, labels=None):
    path.write_bytes(cv2.imencode(".png", np.zeros((20, 20, 3), np.uint8))[1].tobytes())
    if labels is not None:
        path.with_suffix(".txt").write_text(labels)


def broken_images(folder):
    """Images and labels that are left out, and one that serves."""
    path = dataset(folder, train="pictures")
    (folder / "pictures").mkdir()
    write_image(folder / "pictures" / f"{NAME}1.png", "0 0.5 0.5 0.5 0.5\n" * 2)
    write_image(folder / "pictures" / f"{NAME}2.png", TEXT)
    (folder / "pictures" / f"{NAME}3.png").write_bytes(b"none")
    write_image(folder / "images" / "a.png", "0 0.5 0.5 0.5 0.5\n")
    load_split(load_dataset(path), "train")


def settings_yaml(folder, text):
    path = folder / "hostile.yaml"
    path.write_text(text.replace("TEXT", json.dumps(TEXT)), encoding="utf-8")
    return path


def model(folder, text):
    Detector(read_model_yaml(settings_yaml(folder, text)))


def weights_file(folder, command="show"):
    header = Header(
        {"nc": 1, "depth_multiple": 1, "width_multiple": 1, "backbone": [[-1, 1, NAME, []]],
         "head": [[-1, 1, NAME, []]], "anchors": NAME}, (NAME,), 0, 0, -1, 0, -1.0,
        {NAME: 1.0}, {"converted_from": NAME, "stored_dtypes": [NAME], "strides": NAME}, NAME,
    )  # fmt: skip
    path = folder / f"{NAME}.safetensors"
    save_checkpoint(path, Checkpoint(header, {}, {TEXT: np.zeros(1)}, {}))
    weights.main([command, str(path), *([f"{path}.safetensors"] if command == "convert" else [])])


def raise_(error):
    raise error


CASES = {
    "broken images": broken_images,
    "no such dataset": lambda folder: load_dataset(folder / f"{NAME}.yaml"),
    "splits": lambda folder: load_dataset(dataset(folder, train=[{TEXT: TEXT}])),
    "class numbers": lambda folder: load_dataset(dataset(folder, names={TEXT: TEXT})),
    "a list that is none": lambda folder: list_images([folder / NAME]),
    "keys": lambda folder: read_hyperparameters(settings_yaml(folder, "TEXT: TEXT")),
    "tag": lambda folder: read_hyperparameters(settings_yaml(folder, "a: !<%0a%1b%e2%80%ae> x")),
    "block": lambda folder: model(folder, TINY.replace("C3", "TEXT")),
    "anchors": lambda folder: model(folder, TINY.replace("[[10,", "[[TEXT,")),
    "weights shown": weights_file,
    "weights converted": lambda folder: weights_file(folder, "convert"),
    "flag": lambda folder: read_train_flags([f"--{NAME}", NAME]),
    "value of a flag": lambda folder: read_train_flags(["--epochs", NAME]),
    "an error of the system": lambda folder: (folder / NAME).read_text(),
    "a worker's error": lambda folder: raise_(WorkerError(f"{NAME}\nin a loader worker:\n{NAME}")),
    "an exit": lambda folder: raise_(SystemExit(NAME)),
}


@pytest.mark.parametrize("case", CASES)
def test_foreign_text_does_not_control_the_terminal(case, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command sets it, and its log
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without pytest's own
    with contextlib.suppress(SystemExit):
        run_command(lambda: CASES[case](tmp_path))
    logging.captureWarnings(False)
    logging.getLogger().setLevel(logging.WARNING)  # as it is without a command
    lines = "\n".join(capsys.readouterr()).split("\n")
    assert any("FORGED" in line or "\\x1b" in line or "#x1b" in line for line in lines), lines
    for line in lines:
        assert line.isprintable(), line
        assert not line.startswith("FORGED"), lines
