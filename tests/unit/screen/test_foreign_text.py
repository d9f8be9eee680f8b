"""Every reader given hostile names and values: nothing of them steers the terminal.

Each case runs as a command does, and all that it prints and logs is looked at.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from models.detector import Detector
from models.graph import read_model_yaml
from tests.coco_reference import detections, evaluate, ground_truth
from tests.small import TINY
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import read_train_flags
from utils.data.sources.coco_annotations import read_coco_annotations
from utils.data.sources.dataset import load_dataset
from utils.data.sources.image_files import list_images
from utils.data.sources.samples import Sample
from utils.data.sources.splits import load_split
from utils.errors import LoaderError
from utils.files.yaml import write_yaml
from utils.processes.command import run_command
from utils.report.console import metrics_table
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint, Header, save_checkpoint
from utils.state.resume import find_resume_point
from utils.weights import __main__ as weights

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


def no_image_is_usable(folder):
    path = dataset(folder)
    (folder / "images" / f"{NAME}.png").write_bytes(b"none")
    load_split(load_dataset(path), "train")


def no_image_is_labelled(folder):
    write_image(folder / f"{NAME}.png", "")
    (folder / "list.txt").write_bytes(os.fsencode(f"./{NAME}.png".replace("\r\n", "")))
    shutil.copy(folder / f"{NAME}.png", folder / f"{NAME}.png".replace("\r\n", ""))
    load_split(load_dataset(dataset(folder, train="list.txt", val="list.txt")), "train")


def settings_yaml(folder, text):
    path = folder / "hostile.yaml"
    path.write_text(text.replace("TEXT", json.dumps(TEXT)), encoding="utf-8")
    return path


def model(folder, text):
    Detector(read_model_yaml(settings_yaml(folder, text)))


def annotations(folder, **sections):
    document = {"images": [], "annotations": [], "categories": [], **sections}
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(document))
    images = [Sample(Path(f"{NAME}.png"), 9, 9, np.zeros(0, np.int64), np.zeros((0, 4)))]
    read_coco_annotations(path, images, [NAME])


IMAGE = {"id": 1, "file_name": f"{NAME}.png", "height": 9, "width": 9}


def weights_file(folder, command="show"):
    header = Header(
        {"nc": 1, "depth_multiple": 1, "width_multiple": 1, "backbone": [[-1, 1, NAME, []]],
         "head": [[-1, 1, NAME, []]], "anchors": NAME}, (NAME,), 0, 0, -1, 0, -1.0,
        {NAME: 1.0}, {"converted_from": NAME, "stored_dtypes": [NAME], "strides": NAME}, NAME,
    )  # fmt: skip
    path = folder / f"{NAME}.safetensors"
    save_checkpoint(path, Checkpoint(header, {}, {TEXT: np.zeros(1)}, {}))
    weights.main([command, str(path), *([f"{path}.safetensors"] if command == "convert" else [])])


def run_folder(folder):
    (folder / NAME / "exp" / "weights").mkdir(parents=True)
    (folder / NAME / "exp" / "weights" / "last.safetensors").write_bytes(b"none")
    find_resume_point({"resume": "auto", "project": folder / NAME, "name": "exp"}, {})


def table_of_classes(folder):
    boxes = [[10, 10, 30, 30]]
    images = {1: (detections(boxes, [0.9], [0]), ground_truth([0], boxes))}
    result = dataclasses.replace(evaluate(images, 1), class_names=(NAME,))
    say(*metrics_table(result).splitlines())


def raise_(error):
    raise error


CASES = {
    "broken images": broken_images,
    "no image is usable": no_image_is_usable,
    "no image is labelled": no_image_is_labelled,
    "no such dataset": lambda folder: load_dataset(folder / f"{NAME}.yaml"),
    "root": lambda folder: load_dataset(dataset(folder, path=TEXT)),
    "splits": lambda folder: load_dataset(dataset(folder, train=[{TEXT: TEXT}])),
    "class numbers": lambda folder: load_dataset(dataset(folder, names={TEXT: TEXT})),
    "a list that is none": lambda folder: list_images([folder / NAME]),
    "keys": lambda folder: read_hyperparameters(settings_yaml(folder, "TEXT: TEXT")),
    "key twice": lambda folder: read_hyperparameters(settings_yaml(folder, "TEXT: 1\nTEXT: 2")),
    "tag": lambda folder: read_hyperparameters(settings_yaml(folder, "a: !<%0a%1b%e2%80%ae> x")),
    "block": lambda folder: model(folder, TINY.replace("C3", "TEXT")),
    "anchors": lambda folder: model(folder, TINY.replace("[[10,", "[[TEXT,")),
    "image of no name": annotations,
    "images of one name": lambda folder: annotations(folder, images=[IMAGE, IMAGE]),
    "weights shown": weights_file,
    "weights converted": lambda folder: weights_file(folder, "convert"),
    "run folder": run_folder,
    "flag": lambda folder: read_train_flags([f"--{NAME}", NAME]),
    "value of a flag": lambda folder: read_train_flags(["--epochs", NAME]),
    "table": table_of_classes,
    "an error of the system": lambda folder: (folder / NAME).read_text(),
    "a worker's error": lambda folder: raise_(LoaderError(f"{NAME}\nin a loader worker:\n{NAME}")),
    "an exit": lambda folder: raise_(SystemExit(NAME)),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_from_outside_steers_the_terminal(case, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command sets it, and its log
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without pytest's own
    with contextlib.suppress(SystemExit):
        run_command(lambda: CASES[case](tmp_path))
    logging.captureWarnings(False)
    lines = "\n".join(capsys.readouterr()).split("\n")
    assert any("FORGED" in line or "\\x1b" in line or "#x1b" in line for line in lines), lines
    for line in lines:
        assert line.isprintable(), line
        assert not line.startswith("FORGED"), lines
