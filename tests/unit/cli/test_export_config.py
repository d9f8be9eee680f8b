"""export.py's flags: what parses, and what is refused how."""

import shlex

import pytest

from duet.utils.cli.flags import as_words, flags_of
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.export.config import ExportConfig, parse_export_flags
from duet.utils.export.formats import FORMATS


def parse(flags):
    return parse_export_flags(["--weights", "W", *shlex.split(flags)])


def test_the_public_export_flags_parse():
    config = parse(
        "--include onnx --imgsz 640 480 --batch-size 2 --nms --topk-per-class 5 "
        "--topk-all 50 --iou-thres 0.5 --conf-thres 0.3 --opset 14 --half"
    )
    assert (config.include, config.image_size, config.batch_size) == (("onnx",), (640, 480), 2)
    assert (config.nms, config.half) == 2 * (True,)
    assert (config.top_per_class, config.top_all, config.opset) == (5, 50, 14)
    assert (config.iou_threshold, config.confidence_threshold) == (0.5, 0.3)
    assert config.precision == "float16"


def test_the_defaults_are_the_public_ones_and_one_side_is_a_square():
    config = parse("")
    assert (config.include, config.image_size, config.batch_size) == (("onnx",), (640, 640), 1)
    assert (config.top_per_class, config.top_all) == (100, 100)
    assert (config.iou_threshold, config.confidence_threshold) == (0.45, 0.25)
    assert (config.precision, config.device) == ("float32", "cpu")
    assert parse("--imgsz 320").image_size == (320, 320)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--include pb", "--include pb: no such format; accepted: onnx"),
        ("--include onnx,openvino", "spaces, not commas: --include onnx openvino"),
        ("--include ''", "--include : no such format"),
        ("--imgsz 64 64 64", "--imgsz: 3 numbers; accepted: one, or height and width"),
        ("--half --int8 --data D", "--half and --int8: a file has one precision"),
        ("--int8", "--int8 is calibrated on images; name their dataset with --data"),
        ("--topk-all 7", "--topk-all is a setting of NMS in the graph; give --nms too"),
        ("--nms --agnostic-nms --topk-per-class 7", "--topk-per-class: --agnostic-nms treats all"),
        ("--conf 0.3", "--conf-thres is a setting of NMS in the graph; give --nms too"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(flags, message):
    with pytest.raises(UserError) as caught:
        parse(flags)
    assert message in str(caught.value)


def test_weights_are_needed():
    with pytest.raises(UserError, match="--weights is required; accepted files: docs/en"):
        parse_export_flags([])


def test_the_words_of_settings_give_these_settings():
    config = parse("--imgsz 64 96 --nms --conf 0.125 --topk-all 7 --dynamic --opset 15 --data=-x")
    assert parse_export_flags(as_words(config)) == config
    assert set(flags_of(ExportConfig)) >= {"sizes", "include", "nms"}


def test_flags_become_the_settings_of_nms():
    flags = "--nms --conf-thres 0.3 --iou 0.6 --agnostic-nms --topk-all 7"
    wanted = SuppressionSettings(0.3, 0.6, True, None, 7, multi_label=False)
    assert parse(flags).suppression == wanted
    assert parse("--nms --topk-per-class 3").top_per_class == 3


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
@pytest.mark.parametrize("flag", ["--nms", "--int8 --data D"])
def test_a_format_without_it_is_refused(row, flag):
    words = f"--include {row.name} {flag}"
    if flag.split()[0][2:] in row.flags:
        parse(words)
    else:
        with pytest.raises(UserError, match=f"--include {row.name} does not support --.*that do: "):
            parse(words)
