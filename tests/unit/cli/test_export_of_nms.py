"""The flags of export.py that put NMS and the letterbox into the graph."""

import pytest

from utils.errors import UserError
from utils.evaluation.nms import SuppressionSettings
from utils.export.config import parse_export_flags
from utils.export.formats import FORMATS


def config(*words):
    return parse_export_flags(["--weights", "w.pt", *words])


def test_flags_become_the_settings_of_nms():
    flags = ["--nms", "--conf-thres", "0.3", "--iou", "0.6", "--agnostic-nms", "--topk-all", "7"]
    wanted = SuppressionSettings(0.3, 0.6, True, None, 7, multi_label=False)
    assert config(*flags).suppression == wanted
    assert config("--nms", "--topk-per-class", "3").top_per_class == 3


@pytest.mark.parametrize(
    "words",
    [["--efficient-nms"], ["--agnostic-nms"], ["--topk-all", "7"], ["--topk-per-class", "7"]],
)
def test_a_flag_of_nms_needs_nms(words):
    with pytest.raises(UserError, match=f"^{words[0]} is a setting of NMS in the graph"):
        config(*words)


@pytest.mark.parametrize("flag", ["--efficient-nms", "--agnostic-nms"])
def test_a_limit_a_class_that_cannot_be_kept_is_refused(flag):
    with pytest.raises(UserError, match=f"^--topk-per-class: {flag} .*; give only --topk-all$"):
        config("--nms", flag, "--topk-per-class", "7")


@pytest.mark.parametrize(
    "words",
    [["--topk-all", "0"], ["--topk-all", "10001"], ["--conf-thres", "1.5"], ["--iou", "-1"]],
)
def test_a_number_out_of_range_is_refused(words):
    with pytest.raises(UserError, match=words[0]):
        config("--nms", *words)


@pytest.mark.parametrize("words", [["--dynamic"], ["--batch-size", "2"]])
def test_letterbox_takes_one_image(words):
    with pytest.raises(UserError, match="--letterbox takes one image"):
        config("--letterbox", *words)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
@pytest.mark.parametrize("flag", ["--letterbox", "--nms", "--efficient-nms"])
def test_a_format_without_it_is_refused(row, flag):
    words = ["--include", row.name, "--nms", flag]
    if {"nms", flag[2:].replace("-", "_")} <= set(row.flags):
        config(*words)
    else:
        with pytest.raises(UserError, match=f"--include {row.name} does not support --.*that do: "):
            config(*words)
