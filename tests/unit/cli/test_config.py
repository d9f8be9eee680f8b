"""Flags and hyper-parameter YAMLs: what parses, and what is refused how."""

import shlex
from pathlib import Path

import pytest
import yaml

from utils.cli.config import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    parse_train_flags,
    parse_val_flags,
    read_hyperparameters,
    read_train_flags,
)
from utils.errors import UserError

MODEL = ["--cfg", "models/yolov5n.yaml"]


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--weights ''", "weights", ""),
        ("--weights ' '", "weights", ""),
        ("--cfg models/yolov5s.yaml", "cfg", "models/yolov5s.yaml"),
        ("--data coco.yaml", "data", "coco.yaml"),
        ("--img 640", "image_size", 640),
        ("--imgsz 320", "image_size", 320),
        ("--batch 16", "batch_size", 16),
        ("--batch-size 8", "batch_size", 8),
        ("--epoch 1", "epochs", 1),
        ("--epochs 300", "epochs", 300),
        ("--hyp F", "hyp", Path("F")),
        ("--device 0", "device", "0"),
        ("--workers 8", "workers", 8),
        ("--name N", "name", "N"),
        ("--project P", "project", Path("P")),
        ("--exist-ok", "exist_ok", True),
        ("--bind-numa", "bind_numa", True),
        ("--seed 0", "seed", 0),
        ("--cos-lr", "cosine", True),
        ("--weights w.pt --remap-classes", "remap_classes", True),
        ("--cache", "cache", "ram"),
        ("--cache disk", "cache", "disk"),
        ("--freeze 10", "freeze", ("10",)),
        ("--freeze 0 1 2", "freeze", ("0", "1", "2")),
        ("--freeze model.0 model.24.m", "freeze", ("model.0", "model.24.m")),
        ("--optimizer SGD", "optimizer", "SGD"),
        ("--optimizer Adam", "optimizer", "Adam"),
        ("--optimizer AdamW", "optimizer", "AdamW"),
        ("--backend oneflow", "backend", "oneflow"),
    ],
)
def test_the_public_training_flags_parse(flags, field, value):
    config = parse_train_flags([*MODEL, *shlex.split(flags)])
    assert getattr(config, field) == value


def test_training_defaults_are_the_public_ones():
    config = parse_train_flags(MODEL)
    assert (config.epochs, config.batch_size, config.image_size, config.workers) == (
        100,
        16,
        640,
        8,
    )
    assert (config.hyp, config.seed, config.project, config.optimizer) == (
        DEFAULT_HYPERPARAMETERS,
        0,
        Path("runs/train"),
        "SGD",
    )
    assert config.freeze == ("0",)  # the first 0 layers


def test_the_public_validation_flags_parse():
    flags = "--weights W --data D --img 640 --iou 0.65 --conf 0.01 --batch-size 4 --task test"
    config = parse_val_flags(shlex.split(flags))
    assert (config.weights, config.data, config.image_size) == ("W", "D", 640)
    assert (config.iou_threshold, config.confidence_threshold) == (0.65, 0.01)
    assert (config.batch_size, config.task) == (4, "test")
    default = parse_val_flags(["--weights", "W"])
    assert (default.iou_threshold, default.confidence_threshold) == (0.6, 0.001)
    assert (default.batch_size, default.task) == (32, "val")


def test_the_public_flags_of_suppression_parse():
    flags = "--weights W --agnostic-nms --classes 0 2 5 --max-det 100"
    config = parse_val_flags(shlex.split(flags))
    assert (config.class_agnostic, config.classes, config.max_detections) == (True, (0, 2, 5), 100)
    default = parse_val_flags(["--weights", "W"])
    assert (default.class_agnostic, default.classes, default.max_detections) == (False, None, 300)


def test_the_coco_file_is_written_only_when_asked():
    assert parse_val_flags(["--weights", "W"]).save_json is False
    assert parse_val_flags(["--weights", "W", "--save-json"]).save_json is True


def test_the_fused_box_loss_is_chosen_by_its_flag_alone():
    assert parse_train_flags([*MODEL]).bbox_iou_optim is False
    assert parse_train_flags([*MODEL, "--bbox_iou_optim"]).bbox_iou_optim is True


def test_the_multi_tensor_updates_are_chosen_by_their_flag_alone():
    assert parse_train_flags([*MODEL]).multi_tensor_optimizer is False
    assert parse_train_flags([*MODEL, "--multi_tensor_optimizer"]).multi_tensor_optimizer is True


def test_the_figures_of_old_logs_are_measured_only_when_asked():
    assert parse_val_flags(["--weights", "W"]).legacy_metric is False
    assert parse_val_flags(["--weights", "W", "--legacy-metric"]).legacy_metric is True


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*MODEL, "--img", "16"], "--img 16"),
        ([*MODEL, "--batch", "0"], "--batch-size 0"),
        ([*MODEL, "--epochs", "0"], "--epochs 0"),
        ([*MODEL, "--workers", "-1"], "--workers -1"),
        ([*MODEL, "--seed", "-1"], "--seed -1"),
        ([*MODEL, "--name", ""], "--name ''; the name of one folder"),
        ([*MODEL, "--name", "a/b"], "--name 'a/b'"),
        ([*MODEL, "--name", ".."], "--name '..'"),
    ],
)
def test_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_train_flags(flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--weights is needed"),
        (["--weights", "W", "--conf", "2"], "--conf 2.0"),
        (["--weights", "W", "--max-det", "0"], "--max-det 0"),
    ],
)
def test_validation_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_val_flags(flags)


@pytest.mark.parametrize(
    "flags", [["--evolve"], ["--epo", "3"], ["--img", "large"], ["--optimizer", "LION"]]
)
def test_unknown_and_malformed_flags_end_with_code_two(flags, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_train_flags([*MODEL, *flags])
    assert caught.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_the_default_hyperparameters_are_the_public_ones():
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    assert (hyp.lr0, hyp.lrf, hyp.momentum, hyp.weight_decay) == (0.01, 0.01, 0.937, 0.0005)
    assert (hyp.box, hyp.cls, hyp.obj, hyp.anchor_t) == (0.05, 0.5, 1.0, 4.0)
    assert (hyp.hsv_h, hyp.hsv_s, hyp.hsv_v) == (0.015, 0.7, 0.4)
    assert (hyp.translate, hyp.scale, hyp.fliplr, hyp.mosaic) == (0.1, 0.5, 0.5, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr0": "fast"}, "lr0: 'fast' is not a number"),
        ({"lr0": float("nan")}, "lr0: nan"),
        ({"anchor_t": 1.0}, "anchor_t: 1.0"),
        ({"mosaic": 1.5}, "mosaic: 1.5"),
        ({"fl_gamma": 1.5}, "fl_gamma: 1.5 is not available"),
        ({"mixup": 0.1}, "mixup: 0.1 is not available"),
        ({"learning_rate": 0.1}, r"unknown \['learning_rate'\]"),
    ],
)
def test_wrong_hyperparameters_are_refused_by_name(tmp_path, change, message):
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text())
    path = tmp_path / "hyp.yaml"
    path.write_text(yaml.safe_dump({**document, **change}))
    with pytest.raises(UserError, match=message):
        read_hyperparameters(path)


def test_a_missing_hyperparameter_is_named(tmp_path):
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text())
    del document["momentum"]
    path = tmp_path / "hyp.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError, match=r"missing \['momentum'\]"):
        read_hyperparameters(path)


@pytest.mark.parametrize("path", sorted(Path("data/hyps").glob("*.yaml")), ids=lambda p: p.name)
def test_every_hyperparameter_yaml_that_ships_reads(path):
    assert isinstance(read_hyperparameters(path), Hyperparameters)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep", "0"], "--keep 0"),
        (["--save-steps", "-1"], "--save-steps -1"),
        (["--time-limit", "0"], "--time-limit 0; minutes above 0"),
        (["--time-limit", "nan"], "--time-limit nan"),
        (["--replay", "1:1", "--weights", "x", "--resume"], "give one of them"),
    ],
)
def test_flags_of_suspension_are_checked(flags, message):
    with pytest.raises(UserError, match=message):
        parse_train_flags([*MODEL, *flags])


def test_the_flags_that_were_given_are_told_from_defaults():
    values, given = read_train_flags(["--epochs", "100", "--batch", "4", "--resume", "--cache"])
    assert given == {"epochs": 100, "batch_size": 4, "resume": "newest", "cache": "ram"}
    assert given.items() <= values.items()
    assert read_train_flags([])[1] == {}
    assert values["resume"] == "newest" and read_train_flags([])[0]["resume"] == ""
