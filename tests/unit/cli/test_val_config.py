"""val.py's flags: what parses, and what is refused how."""

import shlex

import pytest

from utils.cli.val_config import parse_val_flags
from utils.errors import UserError


def test_the_public_validation_flags_parse():
    flags = "--weights W --data D --img 640 --iou 0.65 --conf 0.01 --batch-size 4 --task test"
    config = parse_val_flags(shlex.split(flags))
    assert (config.weights, config.data, config.image_size) == ("W", "D", 640)
    assert (config.iou_threshold, config.confidence_threshold) == (0.65, 0.01)
    assert (config.batch_size, config.task) == (4, "test")
    default = parse_val_flags(["--weights", "W"])
    assert (default.iou_threshold, default.confidence_threshold) == (0.6, 0.001)
    assert (default.batch_size, default.task) == (32, "val")


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
        (["--weights", "W", "--conf", "2"], "--conf 2.0"),
        (["--weights", "W", "--max-det", "0"], "--max-det 0"),
    ],
)
def test_validation_values_out_of_range_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        parse_val_flags(flags)
