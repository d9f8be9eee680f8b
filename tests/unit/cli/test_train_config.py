"""train.py's flags: what parses, and what is refused how."""

from pathlib import Path

import pytest

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.cli.train_config import parse_train_flags, read_train_flags
from duet.utils.errors import UserError

MODEL = ["--cfg", "models/yolov5n.yaml"]


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
        ([*MODEL, "--img", "16"], "--img 16; accepted: a whole number from 32 to 16384"),
        (
            [*MODEL, "--batch", "0"],
            "--batch-size 0; accepted: a whole number of at least 1, or -1 to measure",
        ),
        ([*MODEL, "--name", ""], "--name ''; accepted: a folder name"),
        (
            ["--evolve", "--nosave"],
            "--evolve with --nosave: a search keeps its best weights; remove",
        ),
        (["--evolve", "--resume"], "--evolve with --resume: the same command continues a search"),
        (["--image-weights", "--noval"], "--image-weights with --noval: images are weighted by"),
        (["--rect", "--close-mosaic", "5"], "--rect with --close-mosaic: .*; remove one of them"),
        (["--compile", "--multi-scale"], "--multi-scale with --compile: each size would be"),
        (["--compile", "--rect"], "--rect with --compile: each shape would be recompiled"),
        (["--quad"], "--quad .* double --img"),
        (["--repeat-factor", "0.1"], "--repeat-factor .*--image-weights"),
        (["--mosaic-window=16"], "--mosaic-window .*--cache"),
        (["--fraction", "0"], "--fraction 0; accepted: a number above 0"),
    ],
)
def test_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_train_flags(flags)


def test_the_flags_that_were_given_are_told_from_defaults():
    values, given = read_train_flags(["--epochs", "100", "--batch", "4", "--resume", "--cache"])
    assert given == {"epochs": 100, "batch_size": 4, "resume": "newest", "cache": "ram"}
    assert given.items() <= values.items()
    assert read_train_flags([])[1] == {}
    assert values["resume"] == "newest" and read_train_flags([])[0]["resume"] == ""


def test_a_batch_must_be_divisible_by_the_processes():
    config = parse_train_flags(["--batch", "12"])
    config.check_processes(3)
    with pytest.raises(UserError, match="12 is the total over 5 .* by 5; use 10 or 15$"):
        config.check_processes(5)
    parse_train_flags(["--batch-size", "-1"]).check_processes(5)


def test_recipes_that_do_not_exclude_each_other_parse():
    for flags in ("--multi-scale --image-weights", "--rect --multi-scale --single-cls",
                  "--compile --fraction 0.5"):  # fmt: skip
        parse_train_flags(flags.split())
