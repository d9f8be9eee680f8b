"""train.py's flags: what parses, and what is refused how."""

from pathlib import Path

import pytest

from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.cli.train_config import QUAD_IMAGES, parse_train_flags, read_train_flags
from duet.utils.data.loading.quads import QUAD
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
        (["--rect", "--quad"], "--rect with --quad: .*; remove one of them"),
        (["--rect", "--close-mosaic", "5"], "--rect with --close-mosaic: .*; remove one of them"),
        (["--image-weights", "--repeat-factor", "0.1"], "--image-weights with --repeat-factor: "),
        (["--compile", "--multi-scale"], "--multi-scale with --compile: each size would be"),
        (["--compile", "--rect"], "--rect with --compile: each shape would be recompiled"),
        (
            ["--quad", "--batch", "6"],
            "--batch-size 6 .* by 4 with --quad; use 4 or 8$",
        ),
        (["--quad", "--batch", "1"], "--batch-size 1 must be divisible by 4 with --quad; use 4$"),
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


def test_a_quad_is_of_as_many_images_for_flags_as_for_batches():
    """Rooms of `utils` must not import each other in a circle: the number stands twice."""
    assert QUAD_IMAGES == QUAD


def test_quads_need_four_images_of_each_process():
    config = parse_train_flags(["--quad", "--batch", "12"])
    config.check_processes(1)
    config.check_processes(3)
    with pytest.raises(UserError, match="12 is .* over 2 .* by 8 with --quad; use 8 or 16$"):
        config.check_processes(2)
    parse_train_flags(["--quad", "--batch-size", "-1"]).check_processes(2)


def test_recipes_that_do_not_exclude_each_other_parse():
    for flags in ("--quad --multi-scale --image-weights", "--rect --multi-scale --single-cls",
                  "--quad --repeat-factor 0.001 --fraction 0.5", "--compile --quad"):  # fmt: skip
        parse_train_flags(flags.split())
