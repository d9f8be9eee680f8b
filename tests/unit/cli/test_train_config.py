"""train.py's flags: what parses, and what is refused how."""

import shlex
from pathlib import Path

import pytest

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.cli.train_config import QUAD_IMAGES, parse_train_flags, read_train_flags
from duet.utils.data.loading.quads import QUAD
from duet.utils.errors import UserError

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
        ("--bbox_iou_optim", "bbox_iou_optim", True),
        ("--multi_tensor_optimizer", "multi_tensor_optimizer", True),
    ],
)
def test_the_public_training_flags_parse(flags, field, value):
    config = parse_train_flags([*MODEL, *shlex.split(flags)])
    assert getattr(config, field) == value


def test_training_defaults_are_the_public_ones():
    config = parse_train_flags(MODEL)
    assert (config.epochs, config.batch_size, config.image_size) == (100, 16, 640)
    assert (config.seed, config.project, config.optimizer) == (0, Path("runs/train"), "SGD")
    assert (config.hyp, config.workers) == (DEFAULT_HYPERPARAMETERS, None)
    assert config.freeze == ("0",)  # the first 0 layers
    assert not config.bbox_iou_optim and not config.multi_tensor_optimizer


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*MODEL, "--img", "16"], "--img 16; a whole number from 32 to 16384 is needed"),
        ([*MODEL, "--img", "16385"], "--img 16385; a whole number from 32 to 16384"),
        ([*MODEL, "--img", str(10**30)], "--img 1000000000000000000000000000000; a whole"),
        ([*MODEL, "--batch", "0"], "--batch-size 0; a whole number from 1 up, or -1 to measure"),
        ([*MODEL, "--epochs", "0"], "--epochs 0"),
        ([*MODEL, "--workers", "-1"], "--workers -1"),
        ([*MODEL, "--seed", "-1"], "--seed -1"),
        ([*MODEL, "--name", ""], "--name ''; the name of one folder"),
        ([*MODEL, "--name", "a/b"], "--name 'a/b'"),
        ([*MODEL, "--name", ".."], "--name '..'"),
        (
            ["--evolve", "--nosave"],
            "--evolve with --nosave: a search keeps its best weights; leave",
        ),
        (["--evolve", "--resume"], "--evolve with --resume: the same command continues a search"),
        (["--image-weights", "--noval"], "--image-weights with --noval: images are weighed by"),
        (["--rect", "--quad"], "--rect with --quad: .*; leave one of them out"),
        (["--rect", "--image-weights"], "--rect with --image-weights: .*; leave one of them out"),
        (["--rect", "--repeat-factor", "0.1"], "--rect with --repeat-factor: .*; leave one"),
        (["--rect", "--close-mosaic", "5"], "--rect with --close-mosaic: .*; leave one of them"),
        (["--image-weights", "--repeat-factor", "0.1"], "--image-weights with --repeat-factor: "),
        (["--compile", "--multi-scale"], "--multi-scale with --compile: each size would be"),
        (["--compile", "--rect"], "--rect with --compile: each shape would be compiled anew"),
        (
            ["--quad", "--batch", "6"],
            "--batch-size 6 .* by 4 with --quad; use 4 or 8$",
        ),
        (["--quad", "--batch", "1"], "--batch-size 1 must be divisible by 4 with --quad; use 4$"),
        (["--fraction", "0"], "--fraction 0; a number above 0 and up to 1 is needed"),
        (["--fraction", "nan"], "--fraction nan; a number above 0"),
        (["--repeat-factor", "1.5"], "--repeat-factor 1.5; a number from 0 to 1"),
        (["--repeat-factor", "nan"], "--repeat-factor nan; a number from 0 to 1"),
        (["--keep", "0"], "--keep 0"),
        (["--save-steps", "-1"], "--save-steps -1"),
        (["--time-limit", "0"], "--time-limit 0; a number of minutes above 0"),
        (["--time-limit", "nan"], "--time-limit nan"),
    ],
)
def test_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_train_flags(flags)


@pytest.mark.parametrize(
    "flags", [["--evolve", "x"], ["--epo", "3"], ["--img", "large"], ["--optimizer", "LION"]]
)
def test_unknown_and_malformed_flags_are_answered_in_two_lines(flags):
    with pytest.raises(UserError) as caught:
        parse_train_flags([*MODEL, *flags])
    first, second = str(caught.value).splitlines()
    assert flags[0] in first
    assert second == "`train.py --help` lists what is accepted"


def test_the_flags_that_were_given_are_told_from_defaults():
    values, given = read_train_flags(["--epochs", "100", "--batch", "4", "--resume", "--cache"])
    assert given == {"epochs": 100, "batch_size": 4, "resume": "newest", "cache": "ram"}
    assert given.items() <= values.items()
    assert read_train_flags([])[1] == {}
    assert values["resume"] == "newest" and read_train_flags([])[0]["resume"] == ""


def test_a_quad_is_of_as_many_images_for_flags_as_for_batches():
    """Rooms of `utils` must not import each other in a circle: the number stands twice."""
    assert QUAD_IMAGES == QUAD


def test_quads_need_four_images_of_each_process():
    config = parse_train_flags(["--quad", "--batch", "12"])
    config.check_processes(1)
    config.check_processes(3)
    with pytest.raises(UserError, match="12 is .* of all 2 .* by 8 with --quad; use 8 or 16$"):
        config.check_processes(2)
    parse_train_flags(["--quad", "--batch-size", "-1"]).check_processes(2)


def test_recipes_that_do_not_exclude_each_other_parse():
    for flags in ("--quad --multi-scale --image-weights", "--rect --multi-scale --single-cls",
                  "--quad --repeat-factor 0.001 --fraction 0.5", "--compile --quad"):  # fmt: skip
        parse_train_flags(flags.split())
