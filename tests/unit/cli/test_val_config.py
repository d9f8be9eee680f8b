"""val.py's flags: what parses, and what is refused how."""

import shlex

import pytest

from duet.utils.cli.val_config import parse_val_flags
from duet.utils.detect.config import parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.tiling import Tiling


def test_the_defaults_are_the_public_ones():
    config = parse_val_flags(["--weights", "A", "B"])
    assert (config.weights, config.split, config.classes) == (("A", "B"), "val", None)
    assert (config.iou_threshold, config.confidence_threshold) == (0.6, 0.001)
    assert (config.batch_size, config.max_detections) == (32, 300)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--weights is required"),
        (["--weights", "W", "--conf", "2"], "--conf 2"),
        (["--weights", "W", "--max-det", "0"], "--max-det 0"),
        (["--weights", "W", "--single-cls", "--classes", "0"], "--single-cls with --classes: "),
        (["--weights", "W", "--single-cls", "--annotations", "F"], "--single-cls with --annot"),
        (["--weights", "W", "--task", "study"], "accepted: .*speed. For a study, run val.py with"),
        (["--weights", "W", "--task", "no"], "--task no; accepted: train, val, test, speed$"),
        (["--weights", "W", "--save-conf"], "--save-conf adds scores to the files of --save-txt"),
    ],
)
def test_validation_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_val_flags(flags)


def test_tiles_are_cut_as_the_flags_say():
    flags = "--weights W --tile 320 --overlap 0.25 --batch-size 4"
    assert parse_val_flags(shlex.split(flags)).tiling == Tiling(320, 0.25, 4)
    assert parse_detect_flags(shlex.split(flags)).tiling == Tiling(320, 0.25, 4)
    assert parse_val_flags(["--weights", "W", "--tile", "640"]).tiling == Tiling(640, 0.2, 32)
    assert parse_val_flags(["--weights", "W"]).tiling is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tile 63", "--tile 63; accepted: 0, or at least 64 pixels"),
        ("--tile -640", "--tile -640; accepted: 0, or at least 64 pixels"),
        ("--tile 640 --overlap 0", "--overlap 0; accepted: a number from 0.1 to 0.75"),
        ("--tile 640 --overlap 1", "--overlap 1; accepted: a number from 0.1 to 0.75"),
        ("--tile 640 --overlap nan", "--overlap nan; accepted: a number from 0.1 to 0.75"),
        ("--overlap 0.2", "--overlap 0.2 .*--tile"),
        ("--tile 640 --square", "--square .*--tile"),
    ],
)
def test_flags_of_tiles_that_cannot_be_honoured_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_val_flags(["--weights", "W", *flags.split()])


def test_the_public_timings_take_the_val_split_with_their_own_thresholds():
    speed = parse_val_flags(["--weights", "W", "--task", "speed"])
    assert (speed.split, speed.confidence_threshold, speed.iou_threshold) == ("val", 0.25, 0.45)
    given = parse_val_flags(["--weights", "W", "--task", "speed", "--iou", "0.6"])
    assert (given.confidence_threshold, given.iou_threshold) == (0.25, 0.6)
    assert parse_val_flags(["--weights", "W", "--task", "test"]).split == "test"
