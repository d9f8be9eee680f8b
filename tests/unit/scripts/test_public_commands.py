"""The command lines that public tutorials print."""

from __future__ import annotations

import logging
import shlex

import pytest

from duet.models.graph import read_model_yaml
from duet.models.training.start import build_model
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.processes.launch import wanted_processes

LINES = (
    "--data data/coco.yaml --weights ' ' --cfg models/yolov5n.yaml --batch 64",
    "--batch 16 --data coco.yaml --weights '' --device 0,1",
)


@pytest.mark.parametrize(
    ("line", "batch", "processes"), [(LINES[0], 64, 1), (LINES[1], 16, 2)], ids=["n", "s"]
)
def test_the_public_lines_are_understood(line, batch, processes):
    config = parse_train_flags(shlex.split(line))
    assert (config.weights, config.batch_size) == ("", batch)
    assert wanted_processes(config.device, config.nproc) == processes
    with pytest.raises(Exception, match="coco"):  # its images are not shipped
        load_dataset(config.data)


@pytest.mark.parametrize("weights", ["", " "])
def test_without_weights_and_model_yolov5s_starts_from_scratch(weights, caplog):
    config = parse_train_flags(["--weights", weights])
    with caplog.at_level(logging.INFO, logger="train"):
        model = build_model(config, read_hyperparameters(config.hyp), None, ("a", "b"))
    assert model.spec == read_model_yaml("models/yolov5s.yaml", 2)
    assert caplog.messages == ["no --weights and no --cfg: models/yolov5s.yaml from scratch"]
