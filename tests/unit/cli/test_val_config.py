"""val.py's flags: what parses, and what is refused how."""

import shlex

import pytest

from utils.cli.absent_flags import VALIDATION
from utils.cli.flags import flags_of
from utils.cli.val_config import ValConfig, parse_val_flags
from utils.detect.config import parse_detect_flags
from utils.errors import UserError
from utils.tiling import Tiling


def test_the_public_validation_flags_parse():
    flags = "--weights W --data D --img 640 --iou 0.65 --conf 0.01 --batch-size 4 --task test"
    config = parse_val_flags(shlex.split(flags))
    assert (config.weights, config.data, config.image_size) == (("W",), "D", 640)
    assert (config.iou_threshold, config.confidence_threshold) == (0.65, 0.01)
    assert (config.batch_size, config.task) == (4, "test")
    default = parse_val_flags(["--weights", "W"])
    assert (default.iou_threshold, default.confidence_threshold) == (0.6, 0.001)
    assert (default.batch_size, default.task) == (32, "val")


def test_the_public_spellings_of_thresholds_and_sizes_parse():
    flags = "--weights W --conf-thres 0.25 --iou-thres 0.45 --imgsz 320 --batch-size 8"
    config = parse_val_flags(shlex.split(flags))
    assert (config.confidence_threshold, config.iou_threshold) == (0.25, 0.45)
    assert (config.image_size, config.batch_size) == (320, 8)


@pytest.mark.parametrize("name", VALIDATION)
def test_a_public_flag_that_is_not_there_is_answered_with_what_takes_its_place(name, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_val_flags(["--weights", "W", name])
    assert caught.value.code == 2
    text = f"error: {name} is not in this version: {VALIDATION[name]}"
    assert capsys.readouterr().err.splitlines() == [text, "`val.py --help` lists what is accepted"]


def test_a_flag_that_is_there_is_not_listed_as_absent():
    there = {name for found in flags_of(ValConfig).values() for name in found.names}
    assert not VALIDATION.keys() & there
    words = {word.rstrip(",;") for text in VALIDATION.values() for word in text.split()}
    assert {word for word in words if word.startswith("--")} <= there


def test_the_public_flags_of_nms_parse():
    flags = "--weights W --agnostic-nms --classes 0 2 5 --max-det 100"
    config = parse_val_flags(shlex.split(flags))
    assert (config.class_agnostic, config.classes, config.max_detections) == (True, (0, 2, 5), 100)
    default = parse_val_flags(["--weights", "W"])
    assert (default.class_agnostic, default.classes, default.max_detections) == (False, None, 300)


def test_the_coco_file_is_written_only_when_asked():
    assert parse_val_flags(["--weights", "W"]).save_json is False
    assert parse_val_flags(["--weights", "W", "--save-json"]).save_json is True


def test_the_figures_of_old_logs_are_measured_only_when_asked():
    assert parse_val_flags(["--weights", "W"]).legacy_metric is False
    assert parse_val_flags(["--weights", "W", "--legacy-metric"]).legacy_metric is True


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--weights is needed"),
        (["--weights", "W", "--conf", "2"], "--conf 2"),
        (["--weights", "W", "--max-det", "0"], "--max-det 0"),
        (["--weights", "W", "--single-cls", "--classes", "0"], "--single-cls with --classes, "),
        (["--weights", "W", "--single-cls", "--annotations", "F"], "--single-cls with --annot"),
        (["--weights", "W", "--task", "study", "--tile", "640"], "--task study with --tile: it"),
        (["--weights", "W", "--task", "study", "--save-txt"], "--task study with --save-txt: it"),
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
        ("--tile 63", "--tile 63; a whole number from 64 up"),
        ("--tile -640", "--tile -640; a whole number from 64 up"),
        ("--tile 640 --overlap 0", "--overlap 0; a number from 0.1 to 0.75"),
        ("--tile 640 --overlap 1", "--overlap 1; a number from 0.1 to 0.75"),
        ("--tile 640 --overlap nan", "--overlap nan; a number from 0.1 to 0.75"),
        ("--overlap 0.2", "--overlap 0.2 .*--tile"),
        ("--tile 640 --square", "--square .*--tile"),
    ],
)
def test_flags_of_tiles_that_cannot_be_honoured_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_val_flags(["--weights", "W", *flags.split()])


def test_augmentation_half_precision_and_several_weights_parse():
    config = parse_val_flags(shlex.split("--weights A B --augment --half"))
    assert (config.weights, config.augment, config.half) == (("A", "B"), True, True)
    default = parse_val_flags(["--weights", "W"])
    assert (default.augment, default.half) == (False, False)


def test_the_public_timings_take_the_val_split_with_their_own_thresholds():
    speed = parse_val_flags(["--weights", "W", "--task", "speed"])
    assert (speed.split, speed.confidence_threshold, speed.iou_threshold) == ("val", 0.25, 0.45)
    study = parse_val_flags(["--weights", "W", "--task", "study", "--conf", "0.01"])
    assert (study.split, study.confidence_threshold, study.iou_threshold) == ("val", 0.01, 0.7)
    given = parse_val_flags(["--weights", "W", "--task", "speed", "--iou", "0.6"])
    assert (given.confidence_threshold, given.iou_threshold) == (0.25, 0.6)
    assert parse_val_flags(["--weights", "W", "--task", "test"]).split == "test"
